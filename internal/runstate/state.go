package runstate

import (
	"errors"
	"slices"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// State is the state of the locks of one workflow run.
type State struct {
	// base is the context with which the run began.
	base workflow.Context
	// steps numbers the calls of ExecuteActivity, guarded or not, so that a step keeps its name when another one gains or loses its
	// guard. locks numbers the locks around code, sagas the sagas, and schedules the schedulings.
	steps, locks, sagas int
	schedules           uint32
	// root is the scope of the locks that do not belong to a saga.
	root *Scope
	// open lists the scopes that may hold something: the root, and the sagas and locks in progress.
	open []*Scope
	// due lists the resources of closed scopes that are not released yet. endings lists the releases and leaves in progress. sending is set
	// while a coroutine schedules them, and additions counts what was added.
	due       []due
	endings   []*ending
	sending   bool
	additions int
	// task counts what the current workflow task schedules.
	task task
	// taskQueue is the queue of Lockstep's own activities; empty for that of the run.
	taskQueue string
	// guards encodes guards; nil if they are plain JSON.
	guards converter.DataConverter
	// closer releases the locks after the run has closed. It is nil in a replayer.
	closer Closer
	// owner is the owner that the run inherited, if any.
	owner wire.Owner
	// started is the start of the first of the runs that continue each other's holds.
	started time.Time
	// continues is set if the run before handed its holds over to this one.
	continues bool
	// wasReset is set if a reset made the run: the holds in its history may have been released.
	wasReset bool
	// handsOver is the error with which the run leaves its holds to the next one.
	handsOver *workflow.ContinueAsNewError
	// collectionID returns the ID of the collection in which the worker keeps its locks, or "" if it is not known. It does no
	// I/O, and the ID only travels in headers and inputs, which a replay does not compare.
	collectionID func() string
	// HasSessions is set once the run has created a session.
	HasSessions bool
	// ended is set once the workflow function has returned.
	ended bool
	// callbacks are those of whenReady, in the order of the calls.
	callbacks []callback
}

// callback is called when a future is ready.
type callback struct {
	future workflow.Future
	call   func(ctx workflow.Context)
}

// NewState returns the state of a run that has requested no locks yet. closer, if not nil, releases the locks after the run has closed.
// Lockstep's own activities run on taskQueue, or on the run's task queue if it is empty. guards encodes guards; if it is nil, they are plain
// JSON.
func NewState(collectionID func() string, closer Closer, taskQueue string, guards converter.DataConverter) *State {
	s := &State{collectionID: collectionID, closer: closer, taskQueue: taskQueue, guards: guards}
	s.root = s.newScope(nil)
	return s
}

// whenReady calls a function, which must not block, when the future is ready. All steps of a run share one coroutine for that: the SDK
// runs every coroutine after every event, so with a coroutine for each of 2,000 open steps a replay took half a minute.
func (s *State) whenReady(future workflow.Future, call func(ctx workflow.Context)) {
	s.callbacks = append(s.callbacks, callback{future, call})
	if len(s.callbacks) > 1 {
		return
	}
	isReady := func(c callback) bool { return c.future.IsReady() }
	ctx, _ := workflow.NewDisconnectedContext(s.base)
	workflow.GoNamed(ctx, "lockstep-steps", func(ctx workflow.Context) {
		for len(s.callbacks) > 0 {
			_ = workflow.Await(ctx, func() bool { return slices.ContainsFunc(s.callbacks, isReady) }) // it is never cancelled
			for _, c := range s.callbacks {
				if isReady(c) {
					c.call(ctx)
				}
			}
			s.callbacks = slices.DeleteFunc(s.callbacks, isReady)
		}
	})
}

// Header is the header of the start of a run: of this one, of a child, or of a run that continues this one.
type Header = map[string]*commonpb.Payload

// Begin reads the header with which the run was started: its owner, and the mark of the run before it. It returns an error if the header
// cannot be read.
func (s *State) Begin(ctx workflow.Context, header Header) error {
	info := workflow.GetInfo(ctx)
	s.base, s.root.ctx = ctx, ctx
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
	// The server also gives the header of a run to its retries, and to the next runs of a cron schedule.
	if err != nil || h.From == "" || h.From != info.ContinuedExecutionRunID {
		return err
	}
	s.continues = true
	if !h.Started.IsZero() {
		s.started = h.Started
	}
	return s.inherit(ctx, header)
}

// ancestors returns the workflow IDs of the parent and the root of a child workflow.
func ancestors(ctx workflow.Context) (ids []string) {
	info := workflow.GetInfo(ctx)
	for _, of := range []*workflow.Execution{info.ParentWorkflowExecution, info.RootWorkflowExecution} {
		if of != nil && of.ID != info.WorkflowExecution.ID && !slices.Contains(ids, of.ID) {
			ids = append(ids, of.ID)
		}
	}
	return ids
}

// heldSince returns the schedule number of the first step since which the run is known to hold a resource for a scope: through the scope
// itself, or through locks around code. It is 0 if the run is not known to hold it.
func (s *State) heldSince(scope *Scope, name string) (schedule uint32) {
	for _, o := range s.open {
		first := o.uses.heldSince(name)
		if (o == scope || o.lock != nil || scope.lock != nil) && first > 0 && (schedule == 0 || first < schedule) {
			schedule = first
		}
	}
	return schedule
}

// End ends the waits of a run whose function has returned err, and arranges what follows after the run has closed: the release of its locks,
// or their hand-over to the next run. It awaits no activity: a signal that arrived in the meantime would be lost.
func (s *State) End(ctx workflow.Context, err error) {
	s.ended = true
	for _, c := range slices.Clone(s.open) {
		c.awaitParked(ctx)
	}
	if !HandsOver(ctx, err) {
		s.handsOver = nil
		_, continues := errors.AsType[*workflow.ContinueAsNewError](err)
		for _, c := range s.open {
			c.closed = true
			s.addDue(due{c.ctx, c.uses, (err == nil || continues) && c.coroutine == nil})
		}
		s.open = nil
	}
	s.endings = append(s.endings, s.takeReleasable()...)
	if s.handsOver != nil {
		s.writeHandover(ctx)
	}
	s.close(ctx)
}

// writeOwner writes the owner of a child workflow, or of a run that continues this one, into its header.
func writeOwner(header Header, owner wire.Owner) {
	if owner.IsZero() || header == nil {
		return
	}
	owner.Name = wire.Cut(owner.Name, wire.MaxName)
	p, err := wire.EncodeOwner(owner)
	if err != nil {
		panic(err) // two texts are always encoded
	}
	header[wire.OwnerKey] = p
}

func runID(ctx workflow.Context) string { return workflow.GetInfo(ctx).WorkflowExecution.RunID }
