package runstate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Locks are the locks that the steps under a context take; see workflows.Locks.
type Locks struct {
	Resources []lockcore.Resource
	// Scope is wire.ScopeStep, wire.ScopeSaga, or empty for the default.
	Scope   string
	TTL     time.Duration
	HoldTTL time.Duration
	MaxWait time.Duration
	Try     bool
}

// Check returns an error if no worker would accept the locks. It depends on its arguments alone, so that nothing is scheduled that would be
// refused.
func (l *Locks) Check() error {
	err := cmp.Or(
		lockcore.StepRequest{Resources: l.Resources, TTL: l.TTL, HoldTTL: l.HoldTTL}.CheckLocks("Locks."),
		wire.CheckHoldTTL("Locks.HoldTTL", l.HoldTTL), wire.CheckNotNegative("Locks.MaxWait", wire.Duration(l.MaxWait), "as long as it takes"),
	)
	if err == nil && l.HoldTTL != 0 && l.HoldTTL < l.TTL {
		err = &lockcore.InvalidError{Field: "Locks.HoldTTL", Value: l.HoldTTL.String(), Bound: fmt.Sprintf("at least Locks.TTL, which is %v", l.TTL)}
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

// add returns the locks with those of an inner context added: one request for each resource, with the stronger mode and the longer scope.
// The other options are those of the inner context, if it sets them.
func (l *Locks) add(inner *Locks) *Locks {
	sum := *l
	sum.Resources = wire.Merge(l.Resources, inner.Resources...)
	sum.Scope = longerScope(l.Scope, inner.Scope)
	sum.TTL, sum.HoldTTL = cmp.Or(inner.TTL, l.TTL), cmp.Or(inner.HoldTTL, l.HoldTTL)
	sum.MaxWait = cmp.Or(inner.MaxWait, l.MaxWait)
	sum.Try = l.Try || inner.Try
	return &sum
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
	locks *Locks
	// scope belongs to the outermost saga around the context, and saga is the innermost one.
	scope *Scope
	saga  *Saga
	owner wire.Owner
	// compensating is set for compensations: they wait without limit and are never victims of a deadlock.
	compensating bool
	// undone identifies the step to its compensation. undoing is the step that this compensation undoes.
	undone, undoing *Undone
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
func WithLocks(ctx workflow.Context, l *Locks) workflow.Context {
	c := stepContextOf(ctx)
	if c.locks != nil && l != nil {
		l = c.locks.add(l)
	}
	c.locks = l
	return c.attach(ctx)
}

// WithScope opens the scope of a saga and returns its context. [Scope.Commit] or [Scope.Release] ends it.
func (s *State) WithScope(ctx workflow.Context) (workflow.Context, *Scope) {
	c := stepContextOf(ctx)
	scope := s.newScope(ctx)
	scope.coroutine = c.coroutine
	c.scope = scope
	return c.attach(ctx), scope
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

// Undone is a step that is undone if its saga fails.
type Undone struct {
	// part is the step's name. It is empty if the step is not guarded.
	part string
}

// WithUndone returns a context whose step is u.
func WithUndone(ctx workflow.Context, u *Undone) workflow.Context {
	c := stepContextOf(ctx)
	c.undone = u
	return c.attach(ctx)
}

// WithUndoing returns a context whose step undoes u, and never runs at the same time.
func WithUndoing(ctx workflow.Context, u *Undone) workflow.Context {
	c := stepContextOf(ctx)
	c.undoing = u
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
