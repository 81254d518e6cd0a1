package run

import (
	"errors"
	"slices"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Header is the header of a run's start, of a child's or of a run that continues another.
type Header = map[string]*commonpb.Payload

// Begin takes in what the run was started with: the locks of the run that it continues, and the party of its parent.
// What cannot be read is an error: the locks would be nobody's.
func (s *State) Begin(ctx workflow.Context, header Header) error {
	s.base, s.past = ctx, newPast(ctx)
	if p := header[protocol.OwnerKey]; p != nil {
		owner, err := protocol.DecodeOwner(p)
		if err != nil {
			return err
		}
		s.owner = owner
	}
	p := header[protocol.HandoverKey]
	if p == nil {
		return nil
	}
	h, err := protocol.DecodeHandover(p)
	if err != nil {
		return err
	}
	// The server gives a run's header to its retries and its next runs by a cron schedule too.
	if h.From == "" || h.From != workflow.GetInfo(ctx).ContinuedExecutionRunID {
		return nil
	}
	s.lockRun, s.schedule, s.steps, s.started = h.LockRun, h.Schedule, h.Steps, h.Started
	s.root.take(h.Run)
	if len(h.Locks) > 0 {
		s.handedLock = s.NewLock(ctx, &Locks{})
		s.handedLock.give(h.Locks)
	}
	if len(h.Saga) > 0 {
		scope := s.Open()
		scope.take(h.Saga)
		s.handed = scope
	}
	return nil
}

// take makes the scope one that wants and holds what another one did.
func (c *Scope) take(resources []lockcore.Resource) {
	c.want(resources)
	for _, r := range resources {
		if r.Held {
			c.held.add(r.Name)
		}
	}
}

// give makes the lock one that took, and holds, what those of the run before did.
func (l *Lock) give(resources []lockcore.Resource) {
	l.step.scope.take(resources)
	l.step.Guard.Resources = slices.Clone(l.step.scope.asked)
}

// adopted leaves to locks around code what the run before had taken by such locks: their release is its release.
func (s *State) adopted(resources []lockcore.Resource) {
	l := s.handedLock
	if l == nil {
		return
	}
	for _, r := range resources {
		l.step.scope.drop(r.Name)
	}
	l.step.Guard.Resources = slices.Clone(l.step.scope.asked)
	if len(l.step.scope.wanted) == 0 {
		l.step.scope.close()
		s.handedLock = nil
	}
}

// begun is when the first of the runs began that hand their locks over to each other.
func (s *State) begun(ctx workflow.Context) time.Time {
	if !s.started.IsZero() {
		return s.started
	}
	return workflow.GetInfo(ctx).WorkflowStartTime.UTC()
}

// MarkHandover asks that the run which ends with err hands its locks over. Where err does not continue as new, it does
// nothing.
func MarkHandover(err error) error {
	var again *workflow.ContinueAsNewError
	if !errors.As(err, &again) {
		return nil
	}
	p, encodeErr := protocol.EncodeHandover(protocol.Handover{})
	if encodeErr != nil {
		return encodeErr
	}
	if again.Header == nil {
		again.Header = &commonpb.Header{}
	}
	if again.Header.Fields == nil {
		again.Header.Fields = Header{}
	}
	again.Header.Fields[protocol.HandoverKey] = p
	return nil
}

// HandsOver tells whether a function that ends with err hands its locks over; see [MarkHandover].
func HandsOver(err error) bool {
	var again *workflow.ContinueAsNewError
	return errors.As(err, &again) && again.Header.GetFields()[protocol.HandoverKey] != nil
}

// HandOver writes, at the end of a run, its locks into the header of the run that continues it, where err asks for that.
// Then there is nothing to release.
func (s *State) HandOver(ctx workflow.Context, err error) (done bool) {
	var again *workflow.ContinueAsNewError
	if !HandsOver(err) || !errors.As(err, &again) {
		return false
	}
	s.look()
	info := workflow.GetInfo(ctx)
	h := protocol.Handover{
		From: info.WorkflowExecution.RunID, LockRun: s.LockRun(ctx), Schedule: s.schedule, Steps: s.steps, Started: s.begun(ctx),
		Run: s.root.give(),
	}
	for _, c := range s.open {
		switch {
		case c == s.root:
		case c.lock != nil:
			h.Locks = append(h.Locks, c.give()...)
		default:
			h.Saga = append(h.Saga, c.give()...)
		}
	}
	p, encodeErr := protocol.EncodeHandover(h)
	if encodeErr != nil {
		workflow.GetLogger(ctx).Error("lockstep: locks were not handed over, and are released", "error", encodeErr)
		delete(again.Header.Fields, protocol.HandoverKey)
		return false
	}
	again.Header.Fields[protocol.HandoverKey] = p
	return true
}

// give lists what the scope wants, and says what it holds.
func (c *Scope) give() []lockcore.Resource {
	c.closed = true
	all := c.all()
	out := make([]lockcore.Resource, 0, len(all))
	for _, name := range all {
		r := lockcore.Resource{Name: name}
		if i, found := slices.BinarySearchFunc(c.asked, name, byName); found {
			r = c.asked[i]
		}
		r.Held = c.held.has(name)
		out = append(out, r)
	}
	return out
}

// LockRun is the run of the workflow in whose name this run locks: its own, or that which handed its locks over.
func (s *State) LockRun(ctx workflow.Context) string {
	if s.lockRun != "" {
		return s.lockRun
	}
	return workflow.GetInfo(ctx).WorkflowExecution.RunID
}

// Continue writes what every run that continues this one has to know into its header.
func (s *State) Continue(header Header) error {
	if s.owner == "" || header == nil {
		return nil
	}
	return writeOwner(header, s.owner)
}

// Adopt writes the party that a child workflow started under ctx inherits into its header, where ctx says so.
func Adopt(ctx workflow.Context, header Header) error {
	if owner := ownerFrom(ctx); owner != "" && header != nil {
		return writeOwner(header, owner)
	}
	return nil
}

func writeOwner(header Header, owner string) error {
	p, err := protocol.EncodeOwner(protocol.Cut(owner, protocol.MaxName))
	if err != nil {
		return err
	}
	header[protocol.OwnerKey] = p
	return nil
}
