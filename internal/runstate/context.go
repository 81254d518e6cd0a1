package runstate

import (
	"cmp"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Locks are the locks that a context asks for; see workflows.Locks.
type Locks struct {
	Resources []lockcore.Resource
	// Scope is one of the protocol's scopes, or empty for the default of its place.
	Scope   string
	TTL     time.Duration
	HoldTTL time.Duration
	Owner   wire.Owner
	MaxWait time.Duration
	Try     bool
}

// Refuse returns an error for what workflow code refuses itself: a name that JSON would change, and a
// negative duration. Any other bound is the activity worker's to check.
func (l *Locks) Refuse() error {
	for i, r := range l.Resources {
		if !utf8.ValidString(r.Name) {
			return Invalid(fmt.Sprintf("Locks.Resources[%d].Name", i), fmt.Sprintf("%q", wire.Cut(r.Name, 64)), "1 to 512 bytes of valid UTF-8 without NUL")
		}
	}
	for _, d := range []struct {
		field, bound string
		value        time.Duration
	}{
		{"Locks.TTL", ttlBound, l.TTL},
		{"Locks.HoldTTL", ttlBound, l.HoldTTL},
		{"Locks.MaxWait", "0 (as long as it takes), or more", l.MaxWait},
	} {
		if d.value < 0 {
			return Invalid(d.field, d.value.String(), d.bound)
		}
	}
	return nil
}

const ttlBound = "0 (the activity worker's default), 100ms to ten years, or lockcore.Forever"

// longestWait is MaxWait, or 0 if that is as long as it takes: longer than a timeout of Temporal's can
// be.
func (l *Locks) longestWait() time.Duration {
	if l.MaxWait > 100*365*24*time.Hour {
		return 0
	}
	return l.MaxWait
}

// Invalid is the error of a call that is refused before anything is scheduled.
func Invalid(field, value, bound string) error {
	return wire.NewWaitError(&lockcore.InvalidError{Field: field, Value: value, Bound: bound}, true)
}

// with adds what an inner context asks for: one request for each resource, with the stronger mode
// and the longer scope. The other options are those of the inner one, if it sets them.
func (l *Locks) with(inner *Locks) *Locks {
	sum := *l
	sum.Resources = wire.Merge(l.Resources, inner.Resources...)
	sum.Scope = longer(l.Scope, inner.Scope)
	sum.TTL, sum.HoldTTL = cmp.Or(inner.TTL, l.TTL), cmp.Or(inner.HoldTTL, l.HoldTTL)
	sum.Owner, sum.MaxWait = cmp.Or(inner.Owner, l.Owner), cmp.Or(inner.MaxWait, l.MaxWait)
	sum.Try = l.Try || inner.Try
	return &sum
}

// longer is the longer of two scopes. The default of a place is never shorter than the step. An
// unknown scope wins, so that it is refused.
func longer(a, b string) string {
	rank := func(scope string) int {
		return slices.Index([]string{wire.ScopeSaga, "", wire.ScopeStep}, scope)
	}
	if rank(a) < rank(b) {
		return a
	}
	return b
}

// asked is what a context says of the steps under it.
type asked struct {
	state *State
	locks *Locks
	// scope is that of the outermost saga around the context, and saga is the innermost one.
	scope *Scope
	saga  *Saga
	owner wire.Owner
	// compensating steps undo others: they wait without limit and are never victims.
	compensating bool
	// undone is what the step is undone as, and undoing what it undoes.
	undone, undoing *Undone
	// coroutine is the one to which the context was given.
	coroutine *coroutine
}

// coroutine names a coroutine of the workflow by its address.
type coroutine struct{ _ byte }

type askedKey struct{}

func askedOf(ctx workflow.Context) asked {
	a, _ := ctx.Value(askedKey{}).(asked)
	return a
}

func with(ctx workflow.Context, change func(a *asked)) workflow.Context {
	a := askedOf(ctx)
	change(&a)
	return workflow.WithValue(ctx, askedKey{}, a)
}

// WithState returns a context of the run whose state s is, for the workflow function or a handler.
func WithState(ctx workflow.Context, s *State) workflow.Context {
	return with(ctx, func(a *asked) { a.state, a.coroutine = s, &coroutine{} })
}

// Go makes the function of a coroutine that is started under ctx. One that a saga's function starts
// under a context from outside the saga is taken for the saga's, so that its steps are found too.
func Go(ctx workflow.Context, f func(ctx workflow.Context)) func(ctx workflow.Context) {
	own := &coroutine{}
	if a := askedOf(ctx); a.strays() != nil {
		own = a.coroutine
	}
	return func(ctx workflow.Context) { f(with(ctx, func(a *asked) { a.coroutine = own })) }
}

// strays returns the open saga in whose function the context is used, although it comes from
// outside the saga; else nil. RunSaga blocks its own coroutine, so it is the saga's function that
// uses that coroutine's context meanwhile.
func (a asked) strays() *Scope {
	if a.state == nil || a.scope != nil && !a.scope.closed {
		return nil
	}
	i := slices.IndexFunc(a.state.open, func(c *Scope) bool { return c.coroutine != nil && c.coroutine == a.coroutine && !c.closed })
	if i < 0 {
		return nil
	}
	return a.state.open[i]
}

// StateFrom returns the run's state, or nil if the interceptor is not installed.
func StateFrom(ctx workflow.Context) *State { return askedOf(ctx).state }

// WithLocks returns a context whose steps ask for locks, and for those that ctx asks for already;
// or for none if l is nil.
func WithLocks(ctx workflow.Context, l *Locks) workflow.Context {
	return with(ctx, func(a *asked) {
		if a.locks != nil && l != nil {
			l = a.locks.with(l)
		}
		a.locks = l
	})
}

// WithScope opens the scope of a saga and returns its context; [Scope.Commit] or [Scope.Release]
// ends it.
func (s *State) WithScope(ctx workflow.Context) (workflow.Context, *Scope) {
	scope := s.newScope()
	scope.coroutine = askedOf(ctx).coroutine
	return with(ctx, func(a *asked) { a.scope = scope }), scope
}

// Return notes that the saga's function has returned, and leaves what it holds to the end of the
// run.
func (c *Scope) Return() { c.coroutine = nil }

// ScopeFrom returns the scope of the innermost saga around ctx, nil if there is none.
func ScopeFrom(ctx workflow.Context) *Scope { return askedOf(ctx).scope }

// InScope reports whether ctx is within a saga that has not ended.
func InScope(ctx workflow.Context) bool {
	s := ScopeFrom(ctx)
	return s != nil && !s.closed
}

// WithCompensating returns a context whose steps undo others: they must run, and must not run
// beside what they undo.
func WithCompensating(ctx workflow.Context) workflow.Context {
	return with(ctx, func(a *asked) { a.compensating = true })
}

// Compensates reports whether the steps of ctx undo others.
func Compensates(ctx workflow.Context) bool { return askedOf(ctx).compensating }

// Undone is a step that is undone if its saga fails.
type Undone struct {
	// part is the step's name; empty if it is not guarded.
	part string
}

// WithUndone returns a context whose step is u.
func WithUndone(ctx workflow.Context, u *Undone) workflow.Context {
	return with(ctx, func(a *asked) { a.undone = u })
}

// WithUndoing returns a context whose step undoes u, and never runs beside it.
func WithUndoing(ctx workflow.Context, u *Undone) workflow.Context {
	return with(ctx, func(a *asked) { a.undoing = u })
}

// Session returns the session of ctx, nil if there is none. The SDK warns if it is asked in vain.
func Session(ctx workflow.Context) *workflow.SessionInfo {
	if s := StateFrom(ctx); s == nil || !s.HasSessions {
		return nil
	}
	return workflow.GetSessionInfo(ctx)
}

// OutsideSession returns a context of the run that is in no session, with the locks and the activity
// options of ctx.
func OutsideSession(ctx workflow.Context) workflow.Context {
	a := askedOf(ctx)
	outside, _ := workflow.NewDisconnectedContext(a.state.base)
	return with(workflow.WithActivityOptions(outside, workflow.GetActivityOptions(ctx)), func(own *asked) { *own = a })
}

// WithOwner returns a context whose steps wait and hold as owner, and whose child workflows inherit
// it. If the name is empty, it is the owner of the run itself.
func WithOwner(ctx workflow.Context, name string) workflow.Context {
	return with(ctx, func(a *asked) {
		switch {
		case name != "":
			a.owner = wire.Owner{Name: name}
		case a.state != nil && !a.state.owner.IsZero():
			a.owner = a.state.owner
		default:
			a.owner = wire.Owner{Workflow: workflow.GetInfo(ctx).WorkflowExecution.ID}
		}
	})
}

// Adopt writes the owner that ctx names for child workflows into the header of one.
func Adopt(ctx workflow.Context, header Header) error { return writeOwner(header, askedOf(ctx).owner) }
