package runstate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
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

// CheckLocks returns an error if no worker would accept the locks: the guard of a workflows.Locks, whose Scope may be empty. It depends on its
// argument alone, so that nothing is scheduled that would be refused.
func CheckLocks(l *wire.Guard) error {
	ttl, holdTTL := time.Duration(l.TTL), time.Duration(l.HoldTTL)
	resources, _ := wire.CoreResources(l.Resources)
	err := cmp.Or(
		lockcore.StepRequest{Resources: resources, TTL: ttl, HoldTTL: holdTTL}.CheckLocks("Locks."),
		wire.CheckHoldTTL("Locks.HoldTTL", holdTTL), wire.CheckNotNegative("Locks.MaxWait", l.MaxWait, "as long as it takes"),
	)
	if err == nil && holdTTL != 0 && holdTTL < ttl {
		err = &lockcore.InvalidError{Field: "Locks.HoldTTL", Value: holdTTL.String(), Bound: fmt.Sprintf("at least Locks.TTL, which is %v", ttl)}
	}
	if err == nil && l.Scope != "" && l.Scope != wire.ScopeStep && l.Scope != wire.ScopeSaga {
		err = &lockcore.InvalidError{Field: "Locks.Scope", Value: fmt.Sprintf("%q", wire.Cut(l.Scope, 64)), Bound: "ScopeStep, ScopeSaga, or empty"}
	}
	if err != nil {
		return wire.NewWaitError(err, true)
	}
	return nil
}

// Invalid returns the error of a call that is refused before anything is scheduled.
func Invalid(field, value, bound string) error {
	return wire.NewWaitError(&lockcore.InvalidError{Field: field, Value: value, Bound: bound}, true)
}

// addLocks returns the locks of a context and of an inner one: one request for each resource, with the stronger mode and the longer scope.
// The other options are those of the inner context, if it sets them.
func addLocks(outer, inner *wire.Guard) *wire.Guard {
	of, _ := wire.CoreResources(outer.Resources)
	more, _ := wire.CoreResources(inner.Resources)
	return &wire.Guard{
		Resources: wire.Resources(wire.Merge(of, more...)...), Scope: longerScope(outer.Scope, inner.Scope),
		TTL: cmp.Or(inner.TTL, outer.TTL), HoldTTL: cmp.Or(inner.HoldTTL, outer.HoldTTL), MaxWait: cmp.Or(inner.MaxWait, outer.MaxWait),
		Try: outer.Try || inner.Try,
	}
}

// longerScope returns the longer of two scopes. The default is never shorter than the step. An unknown scope wins, so that it is refused.
func longerScope(a, b string) string {
	scopes := []string{wire.ScopeSaga, "", wire.ScopeStep} // the longest first
	if slices.Index(scopes, a) < slices.Index(scopes, b) {
		return a
	}
	return b
}

// stepContext is the part of a workflow.Context that determines how the steps under it are guarded.
type stepContext struct {
	state *State
	// locks is the prototype of the guards of the steps, or nil. Its Scope is empty for the default.
	locks *wire.Guard
	// scope belongs to the outermost saga around the context, and saga is the innermost one.
	scope *Scope
	saga  *Saga
	owner wire.Owner
	// compensating is set for compensations: they wait without limit and are never victims of a deadlock.
	compensating bool
	// undo links a step with the activity that undoes it, for which undoes is set.
	undo   *Undo
	undoes bool
	// coroutine is the coroutine that was given the context.
	coroutine *coroutine
}

// coroutine identifies a coroutine of the workflow by its address.
type coroutine struct {
	// startedIn is the scope of the saga whose function has started the coroutine under a context from outside the saga, or nil.
	startedIn *Scope
}

type stepContextKey struct{}

func stepContextOf(ctx workflow.Context) stepContext {
	c, _ := ctx.Value(stepContextKey{}).(stepContext)
	return c
}

func (c stepContext) attach(ctx workflow.Context) workflow.Context {
	return workflow.WithValue(ctx, stepContextKey{}, c)
}

// WithState returns the context of the workflow function, or of a handler, of the run with this state.
func WithState(ctx workflow.Context, s *State) workflow.Context {
	c := stepContextOf(ctx)
	c.state, c.coroutine = s, &coroutine{}
	return c.attach(ctx)
}

// StateFrom returns the run's state, or nil if the interceptor is not installed.
func StateFrom(ctx workflow.Context) *State { return stepContextOf(ctx).state }

// TrackCoroutine returns f with a context that identifies the coroutine in which it runs. If a saga's function starts the coroutine under
// a context from outside the saga, the coroutine counts as the saga's, so that its steps are found too.
func TrackCoroutine(ctx workflow.Context, f func(ctx workflow.Context)) func(ctx workflow.Context) {
	own := &coroutine{startedIn: stepContextOf(ctx).enclosingSaga()}
	return func(ctx workflow.Context) {
		c := stepContextOf(ctx)
		c.coroutine = own
		f(c.attach(ctx))
	}
}

// enclosingSaga returns the scope of the open saga whose function uses this context although it was created outside the saga, or nil.
// RunSaga blocks its own coroutine, so only the saga's function can use a context of that coroutine while the saga is open.
func (c stepContext) enclosingSaga() *Scope {
	if c.state == nil || c.inScope() {
		return nil
	}
	i := slices.IndexFunc(c.state.open, func(s *Scope) bool {
		return s.coroutine != nil && (s.coroutine == c.coroutine || c.coroutine != nil && s == c.coroutine.startedIn) && s.admits(c.compensating)
	})
	if i < 0 {
		return nil
	}
	return c.state.open[i]
}

// CheckSaga returns an error for a saga inside the function of another one under a context from outside that one: the other would not
// undo it.
func CheckSaga(ctx workflow.Context) error {
	if c := stepContextOf(ctx); c.compensating || c.enclosingSaga() == nil {
		return nil
	}
	return Invalid("the context of RunSaga", "a context from outside the saga around it",
		"the context that the outer RunSaga gives to its function, or one derived from it")
}

// WithLocks returns a context whose steps take these locks in addition to those of ctx, or none if l is nil.
func WithLocks(ctx workflow.Context, l *wire.Guard) workflow.Context {
	c := stepContextOf(ctx)
	if c.locks != nil && l != nil {
		l = addLocks(c.locks, l)
	}
	c.locks = l
	return c.attach(ctx)
}

// ScopeFrom returns the scope of the saga around ctx, or nil.
func ScopeFrom(ctx workflow.Context) *Scope { return stepContextOf(ctx).scope }

// InScope reports whether ctx is in a saga that has not ended, or is of a compensation under its locks.
func InScope(ctx workflow.Context) bool { return stepContextOf(ctx).inScope() }

func (c stepContext) inScope() bool { return c.scope != nil && c.scope.admits(c.compensating) }

// WithCompensating returns a context for compensations: its steps must run, and must not run at the same time as what they undo.
func WithCompensating(ctx workflow.Context) workflow.Context {
	c := stepContextOf(ctx)
	c.compensating = true
	return c.attach(ctx)
}

// IsCompensating reports whether the steps of ctx are compensations.
func IsCompensating(ctx workflow.Context) bool { return stepContextOf(ctx).compensating }

// Undo links a step with the activity that undoes it if its saga fails. The two never run at the same time.
type Undo struct {
	// part is the step's name. It is empty if the step is not guarded.
	part string
}

// WithUndo returns a context for the step of an Undo, or, if undoes is set, for the activity that undoes it.
func WithUndo(ctx workflow.Context, u *Undo, undoes bool) workflow.Context {
	c := stepContextOf(ctx)
	c.undo, c.undoes = u, undoes
	return c.attach(ctx)
}

// Session returns the session of ctx, or nil. It asks the SDK only in a run with sessions, because the SDK logs a warning otherwise.
func Session(ctx workflow.Context) *workflow.SessionInfo {
	if s := StateFrom(ctx); s == nil || !s.HasSessions {
		return nil
	}
	return workflow.GetSessionInfo(ctx)
}

// OutsideSession returns a context with the values of ctx, except its session, that is not cancelled.
func OutsideSession(ctx workflow.Context) workflow.Context {
	outside, _ := workflow.NewDisconnectedContext(ownContext{ctx, ctx})
	return outside
}

// WithOwner returns a context whose steps wait and hold as the owner with this name, and whose child workflows inherit it. If the name is
// empty, it is the owner of the run itself.
func WithOwner(ctx workflow.Context, name string) workflow.Context {
	c := stepContextOf(ctx)
	switch {
	case name != "":
		c.owner = wire.Owner{Name: name}
	case c.state != nil && !c.state.owner.IsZero():
		c.owner = c.state.owner
	default:
		c.owner = wire.Owner{Workflow: workflow.GetInfo(ctx).WorkflowExecution.ID}
	}
	return c.attach(ctx)
}

// WriteOwner writes the owner of ctx into the header of a child workflow.
func WriteOwner(ctx workflow.Context, header Header) { writeOwner(header, stepContextOf(ctx).owner) }

// Continue writes the owner that the run inherited into the header of a run that continues it.
func (s *State) Continue(header Header) { writeOwner(header, s.owner) }

// WriteRuleFacts writes what a rule must know of an activity without a guard into the activity's header. It writes nothing outside of sagas
// and compensations with the default owner, or if the header was dropped: then the rule locks in the name of the workflow.
func (s *State) WriteRuleFacts(ctx workflow.Context, header Header) {
	a := stepContextOf(ctx)
	facts := wire.RuleFacts{Owner: cmp.Or(a.owner, s.owner), NeverVictim: a.compensating}
	facts.Owner.Name = wire.Cut(facts.Owner.Name, wire.MaxName)
	if a.saga != nil {
		facts.Saga = a.saga.id
	}
	if facts.Owner == (wire.Owner{Workflow: workflow.GetInfo(ctx).WorkflowExecution.ID}) {
		facts.Owner = wire.Owner{}
	}
	if header == nil || facts == (wire.RuleFacts{}) {
		return
	}
	p, err := wire.EncodeRuleFacts(facts)
	if err != nil {
		panic(err) // texts are always encoded
	}
	header[wire.RuleFactsKey] = p
}

// GuardsSteps reports whether steps under ctx take locks.
func GuardsSteps(ctx workflow.Context) bool { return stepContextOf(ctx).locks != nil }
