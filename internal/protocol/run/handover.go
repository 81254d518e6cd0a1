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
	for _, run := range h.Former {
		s.former.add(run)
	}
	s.root.take(h.Run, h.Lacks)
	if len(h.Locks) > 0 {
		h.Holds = append(h.Holds, protocol.Hold{Resources: h.Locks})
	}
	for _, hold := range h.Holds {
		s.handedLocks = append(s.handedLocks, s.handed(ctx, hold, h.Lacks))
	}
	if len(h.Saga) > 0 {
		scope := s.Open()
		scope.take(h.Saga, h.Lacks)
		s.handedScope = scope
	}
	return nil
}

// take makes the scope one that wants and holds what another one did, and lacks what that one did.
func (c *Scope) take(resources []lockcore.Resource, lacks []string) {
	c.want(resources)
	for _, r := range resources {
		switch {
		case r.Held:
			c.held.add(r.Name)
		case slices.Contains(lacks, r.Name):
			c.lacks.add(r.Name)
		}
	}
}

// handed makes a lock that took, and holds, what one of the run before did.
func (s *State) handed(ctx workflow.Context, hold protocol.Hold, lacks []string) *Lock {
	l := s.NewLock(ctx, &Locks{HoldTTL: time.Duration(hold.HoldTTL), Owner: hold.Owner, Reacquire: hold.Reacquire})
	l.step.scope.take(hold.Resources, lacks)
	l.step.Guard.LockRun = s.lockRun
	l.leave(l.step.scope.asked)
	switch {
	case !hold.KeepAlive:
	case len(l.step.scope.lacks) == 0:
		l.KeepAlive(ctx)
	default: // it is started when they have been taken anew
		l.keepAlive.stop = func() {}
	}
	return l
}

// leave makes the lock one for what is left of it.
func (l *Lock) leave(resources []lockcore.Resource) {
	l.asked = slices.Clone(resources)
	l.step.Guard.Resources = slices.Clone(resources)
}

// adopted leaves to locks around code what the run before had taken by such locks: their release is its release.
func (s *State) adopted(ctx workflow.Context, resources []lockcore.Resource) {
	for _, l := range slices.Clone(s.handedLocks) {
		scope := l.step.scope
		before := len(scope.wanted)
		for _, r := range resources {
			scope.drop(r.Name)
		}
		l.leave(scope.asked)
		switch {
		case len(scope.wanted) == before:
		case len(scope.wanted) == 0:
			l.keepAlive.end()
			scope.close()
			s.handedLocks = slices.DeleteFunc(s.handedLocks, func(o *Lock) bool { return o == l })
		case l.keepAlive.stop != nil && len(scope.lacks) == 0:
			l.keepAlive.stop()
			l.KeepAlive(ctx)
		}
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
	s.leavePlaces(ctx)
	s.look()
	info := workflow.GetInfo(ctx)
	h := protocol.Handover{
		From: info.WorkflowExecution.RunID, LockRun: s.LockRun(ctx), Schedule: s.schedule, Steps: s.steps, Started: s.begun(ctx),
		Run: s.root.give(), Former: s.former,
	}
	var lacks names
	for _, c := range s.open {
		for _, name := range c.lacks {
			lacks.add(name)
		}
		switch {
		case c == s.root:
		case c.lock != nil:
			h.Holds = append(h.Holds, c.lock.give())
		default:
			h.Saga = append(h.Saga, c.give()...)
		}
	}
	h.Lacks = lacks
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

// give says what the lock wants and holds, and how.
func (l *Lock) give() protocol.Hold {
	g := l.step.Guard
	return protocol.Hold{
		Resources: l.step.scope.give(), HoldTTL: g.HoldTTL, Owner: g.Owner, Reacquire: l.reacquire, KeepAlive: l.keepAlive.stop != nil,
	}
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
