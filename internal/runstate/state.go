package runstate

import (
	"errors"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/collection"
	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// State is what one workflow run knows of its locks.
type State struct {
	// base is the context with which the run began.
	base workflow.Context
	// steps numbers the calls of ExecuteActivity, guarded or not, so that a step keeps its name
	// when another one gains or loses its guard. schedules numbers the schedulings, and locks the
	// locks around code.
	steps, locks int
	// sagas numbers the sagas.
	sagas     int
	schedules uint32
	// root is the scope of what no saga holds.
	root *Scope
	// open are the scopes that may hold something: the root, and the sagas and locks in progress.
	open []*Scope
	// due lists the resources of closed scopes that are not released yet. endings are under way.
	due     uses
	endings []*ending
	// closer releases the locks after the run has closed. It is nil in a replayer.
	taskQueue string
	closer    Closer
	// details are what Temporal's UI shows of the waits.
	details details
	// owner is the one that the run inherited, if any. started is when the first of the runs began
	// that go on with each other's holds.
	owner   wire.Owner
	started time.Time
	// continues says that the run goes on with what the run holds that it continues, wasReset that
	// a reset made it: what the history says to be held may have been released since.
	continues, wasReset bool
	// handsOver is the error for which the run leaves its holds to the next one.
	handsOver *workflow.ContinueAsNewError
	// collection is that in which the worker keeps its locks.
	collection *collection.ID
	// HasSessions is set once the run has created a session.
	HasSessions bool
	// ended says that the workflow function has returned.
	ended bool
	// running are the steps that were scheduled, in that order.
	running []running
}

// running is a future, and what is to be done when it is ready.
type running struct {
	future workflow.Future
	then   func(ctx workflow.Context)
}

// When calls then, which must not block, when the future is ready. All steps of a run share one
// coroutine for that: the SDK asks every coroutine after every event, so that with one for each of
// 2,000 open steps a replay took half a minute.
func (s *State) When(future workflow.Future, then func(ctx workflow.Context)) {
	s.running = append(s.running, running{future, then})
	if len(s.running) > 1 {
		return
	}
	ctx, _ := workflow.NewDisconnectedContext(s.base)
	isReady := func(r running) bool { return r.future.IsReady() }
	workflow.GoNamed(ctx, "lockstep-steps", func(ctx workflow.Context) {
		for len(s.running) > 0 {
			_ = workflow.Await(ctx, func() bool { return slices.ContainsFunc(s.running, isReady) }) // it is never cancelled
			for _, r := range s.running {
				if isReady(r) {
					r.then(ctx)
				}
			}
			s.running = slices.DeleteFunc(s.running, isReady)
		}
	})
}

// NewState makes the state of a run that has asked for nothing yet. collection is what is known of
// the worker's, and closer, unless it is nil, releases the locks after the run has closed. Lockstep's
// activities run on taskQueue, or on the run's if it is empty.
func NewState(collection *collection.ID, closer Closer, taskQueue string) *State {
	s := &State{collection: collection, closer: closer, taskQueue: taskQueue}
	s.root = s.newScope()
	return s
}

// Header is the header of a run's start, of a child's or of a run that continues another.
type Header = map[string]*commonpb.Payload

// Begin takes in what the run was started with: its owner, and the mark of the run before it. It
// fails if the header cannot be read.
func (s *State) Begin(ctx workflow.Context, header Header) error {
	info := workflow.GetInfo(ctx)
	s.base = ctx
	s.wasReset = info.OriginalRunID != "" && info.OriginalRunID != info.WorkflowExecution.RunID
	s.started = info.WorkflowStartTime.UTC()
	var err error
	if p := header[wire.OwnerKey]; p != nil {
		if s.owner, err = wire.DecodeOwner(p); err != nil {
			return err
		}
	}
	p := header[wire.HandoverKey]
	if p == nil {
		return nil
	}
	h, err := wire.DecodeHandover(p)
	// The server gives a run's header to its retries and its next runs by a cron schedule too.
	if err == nil && h.From != "" && h.From == info.ContinuedExecutionRunID {
		s.continues = true
		if !h.Started.IsZero() {
			s.started = h.Started
		}
	}
	return err
}

// before is the run that was reset, if this one was made so.
func (s *State) before(ctx workflow.Context) string {
	if !s.wasReset {
		return ""
	}
	return workflow.GetInfo(ctx).OriginalRunID
}

// ancestors are the workflow IDs of a child's parent and root.
func ancestors(ctx workflow.Context) (ids []string) {
	info := workflow.GetInfo(ctx)
	for _, of := range []*workflow.Execution{info.ParentWorkflowExecution, info.RootWorkflowExecution} {
		if of != nil && of.ID != info.WorkflowExecution.ID && !slices.Contains(ids, of.ID) {
			ids = append(ids, of.ID)
		}
	}
	return ids
}

// knows reports whether the run is known to hold a resource for a scope: by the scope itself, or by
// locks around code.
func (s *State) knows(scope *Scope, name string) bool {
	return slices.ContainsFunc(s.open, func(o *Scope) bool {
		return (o == scope || o.lock != nil || scope.lock != nil) && o.uses.holds(name)
	})
}

// MarkHandover has the run leave its locks to the next one if it ends with err as a
// ContinueAsNewError.
func (s *State) MarkHandover(err error) {
	errors.As(err, &s.handsOver)
}

// HandsOver reports whether a function that ends with err leaves its locks to the next run; see
// [State.MarkHandover].
func HandsOver(ctx workflow.Context, err error) bool {
	s, again := StateFrom(ctx), (*workflow.ContinueAsNewError)(nil)
	return s != nil && errors.As(err, &again) && again == s.handsOver
}

// End ends the waits of a run whose function has returned err. It hands the run's holds over to the next
// run, or verifies them, unless the run has failed, and has them released after the run has closed. It
// returns err, or the error with which the run fails instead.
func (s *State) End(ctx workflow.Context, err error) error {
	s.ended = true
	for _, c := range slices.Clone(s.open) {
		c.awaitParked(ctx)
	}
	if HandsOver(ctx, err) {
		failed := s.handOver(ctx)
		if failed == nil {
			s.close(ctx, s.freeable(), true)
			return err
		}
		err = failed
	}
	all := slices.Clone(s.due)
	for _, c := range s.open {
		c.closed = true
		for _, use := range c.uses {
			all.add(use)
		}
	}
	if again := (*workflow.ContinueAsNewError)(nil); err == nil || errors.As(err, &again) {
		if failed := s.verify(ctx, 0, all.held()); failed != nil {
			err = failed
		}
	}
	s.close(ctx, all, false)
	return err
}

// handOver extends the holds once, and marks the next run. Then there is nothing to release.
func (s *State) handOver(ctx workflow.Context) error {
	var held uses
	for _, c := range s.open {
		for _, use := range c.uses.held() {
			held.add(use)
		}
	}
	if len(held) > 0 {
		ctx, _ := workflow.NewDisconnectedContext(ctx)
		err := s.run(ctx, task{
			name: wire.ActivityKeep, summary: "hand over " + strings.Join(held.names(), ", "),
			params: wire.KeepParams{
				Resources: held.names(), Once: true, HandOver: true, Inherits: s.wasReset, Collection: s.collection.Known(),
			},
		})
		if err != nil {
			return wire.TypedError(err)
		}
	}
	p, err := wire.EncodeHandover(wire.Handover{From: runID(ctx), Started: s.started})
	if err != nil {
		return err
	}
	if s.handsOver.Header == nil {
		s.handsOver.Header = &commonpb.Header{}
	}
	if s.handsOver.Header.Fields == nil {
		s.handsOver.Header.Fields = Header{}
	}
	s.handsOver.Header.Fields[wire.HandoverKey] = p
	return nil
}

// Continue writes what every run that continues this one has to know into its header.
func (s *State) Continue(header Header) error { return writeOwner(header, s.owner) }

func writeOwner(header Header, owner wire.Owner) error {
	if owner.IsZero() || header == nil {
		return nil
	}
	owner.Name = wire.Cut(owner.Name, wire.MaxName)
	p, err := wire.EncodeOwner(owner)
	if err == nil {
		header[wire.OwnerKey] = p
	}
	return err
}

func runID(ctx workflow.Context) string { return workflow.GetInfo(ctx).WorkflowExecution.RunID }
