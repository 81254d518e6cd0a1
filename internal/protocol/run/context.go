package run

import (
	"cmp"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Locks are the locks that a context asks for; see workflows.Locks.
type Locks struct {
	Resources []lockcore.Resource
	// Scope is one of the protocol's scopes, or empty for what is usual at the place.
	Scope   string
	TTL     time.Duration
	HoldTTL time.Duration
	Owner   protocol.Owner
	MaxWait time.Duration
	Try     bool
}

// Refused is what nobody else could refuse: a name that JSON would change on its way, and a wait that would be without end.
func (l *Locks) Refused() *lockcore.InvalidError {
	for i, r := range l.Resources {
		if !utf8.ValidString(r.Name) {
			return &lockcore.InvalidError{
				Field: fmt.Sprintf("Locks.Resources[%d].Name", i), Value: fmt.Sprintf("%q", protocol.Cut(r.Name, 64)), Bound: "1 to 512 bytes of valid UTF-8 without NUL",
			}
		}
	}
	if l.MaxWait < 0 {
		return &lockcore.InvalidError{Field: "Locks.MaxWait", Value: l.MaxWait.String(), Bound: "0, which is without end, or more"}
	}
	return nil
}

// with adds what an inner context asks for: one request for each resource, with the stronger mode, and the longer scope. Of
// the other options those of the inner one count, if it says any.
func (l *Locks) with(inner *Locks) *Locks {
	sum := *l
	sum.Resources = slices.Clone(l.Resources)
	for _, r := range inner.Resources {
		i := slices.IndexFunc(sum.Resources, func(own lockcore.Resource) bool { return own.Name == r.Name })
		if i < 0 {
			sum.Resources = append(sum.Resources, r)
			continue
		}
		sum.Resources[i] = protocol.Stronger(sum.Resources[i], r)
	}
	sum.Scope = longer(l.Scope, inner.Scope)
	sum.TTL, sum.HoldTTL = cmp.Or(inner.TTL, l.TTL), cmp.Or(inner.HoldTTL, l.HoldTTL)
	sum.Owner, sum.MaxWait = cmp.Or(inner.Owner, l.Owner), cmp.Or(inner.MaxWait, l.MaxWait)
	sum.Try = l.Try || inner.Try
	return &sum
}

// longer is the longer of two scopes. An empty one is what is usual at the place, which is never shorter than the step; one that
// does not exist is kept, so that it is refused.
func longer(a, b string) string {
	rank := func(scope string) int {
		return slices.Index([]string{protocol.ScopeSaga, "", protocol.ScopeStep}, scope)
	}
	if rank(a) < rank(b) {
		return a
	}
	return b
}

type (
	stateKey        struct{}
	locksKey        struct{}
	scopeKey        struct{}
	compensatingKey struct{}
	undoneKey       struct{}
	undoingKey      struct{}
	ownerKey        struct{}
)

// WithState returns a context of the run whose state s is.
func WithState(ctx workflow.Context, s *State) workflow.Context {
	return workflow.WithValue(ctx, stateKey{}, s)
}

// StateFrom returns the run's state, or nil where the interceptor is not installed.
func StateFrom(ctx workflow.Context) *State {
	s, _ := ctx.Value(stateKey{}).(*State)
	return s
}

// WithLocks returns a context whose steps ask for locks, and for those that ctx asks for already; or for none if l is nil.
func WithLocks(ctx workflow.Context, l *Locks) workflow.Context {
	if outer, _ := ctx.Value(locksKey{}).(*Locks); outer != nil && l != nil {
		l = outer.with(l)
	}
	return workflow.WithValue(ctx, locksKey{}, l)
}

// WithScope returns a context within a scope.
func WithScope(ctx workflow.Context, s *Scope) workflow.Context {
	return workflow.WithValue(ctx, scopeKey{}, s)
}

// ScopeFrom returns the innermost scope around ctx, nil where there is none.
func ScopeFrom(ctx workflow.Context) *Scope {
	s, _ := ctx.Value(scopeKey{}).(*Scope)
	return s
}

// InScope tells whether ctx is within a scope that has not ended.
func InScope(ctx workflow.Context) bool {
	s := ScopeFrom(ctx)
	return s != nil && !s.closed
}

// WithCompensating returns a context whose steps undo others: they must run, and must not run beside
// what they undo.
func WithCompensating(ctx workflow.Context) workflow.Context {
	return workflow.WithValue(ctx, compensatingKey{}, true)
}

func isCompensating(ctx workflow.Context) bool {
	c, _ := ctx.Value(compensatingKey{}).(bool)
	return c
}

// Undone is a step that is undone if its saga fails, unless it is known that it never ran.
type Undone struct {
	// part is the step's name; empty if it is not guarded.
	part string
}

// WithUndone returns a context whose step is u.
func WithUndone(ctx workflow.Context, u *Undone) workflow.Context {
	return workflow.WithValue(ctx, undoneKey{}, u)
}

// WithUndoing returns a context whose step undoes u, and never runs beside it.
func WithUndoing(ctx workflow.Context, u *Undone) workflow.Context {
	return workflow.WithValue(ctx, undoingKey{}, u)
}

func undoneFrom(ctx workflow.Context) *Undone {
	u, _ := ctx.Value(undoneKey{}).(*Undone)
	return u
}

// undo says which step the guard's undoes, and notes the name of one that is undone.
func undo(ctx workflow.Context, g *protocol.Guard) {
	if u := undoneFrom(ctx); u != nil {
		u.part = g.Part
	}
	if u, _ := ctx.Value(undoingKey{}).(*Undone); u != nil {
		g.Undoes = u.part
		if s := StateFrom(ctx); s != nil {
			g.Before = s.before(ctx)
		}
	}
}

// WithOwner returns a context whose steps wait and hold as owner, and whose child workflows inherit it. If the name is
// empty, it is the owner of the run itself.
func WithOwner(ctx workflow.Context, name string) workflow.Context {
	owner := protocol.Owner{Name: name}
	if name == "" {
		owner.Workflow = workflow.GetInfo(ctx).WorkflowExecution.ID
		if s := StateFrom(ctx); s != nil && !s.owner.IsZero() {
			owner = s.owner
		}
	}
	return workflow.WithValue(ctx, ownerKey{}, owner)
}

func ownerFrom(ctx workflow.Context) protocol.Owner {
	owner, _ := ctx.Value(ownerKey{}).(protocol.Owner)
	return owner
}
