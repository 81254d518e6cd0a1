package run

import (
	"fmt"
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
	Scope     string
	TTL       time.Duration
	HoldTTL   time.Duration
	Owner     string
	Reacquire bool
	MaxWait   time.Duration
	Try       bool
	// FromWorkflow takes them from the workflow, around the step.
	FromWorkflow bool
	// KeepAlive was asked for, which no step has.
	KeepAlive bool
	// retired says that they are those of a rule that guards nothing any more.
	retired bool
}

// Refused is what nobody else could refuse: a name that JSON would change on its way, and a wait that would be without end.
func (l *Locks) Refused() *protocol.InvalidDetails {
	for i, r := range l.Resources {
		if !utf8.ValidString(r.Name) {
			return &protocol.InvalidDetails{
				Field: fmt.Sprintf("Locks.Resources[%d].Name", i), Value: fmt.Sprintf("%q", protocol.Cut(r.Name, 64)), Bound: "1 to 512 bytes of valid UTF-8 without NUL",
			}
		}
	}
	if l.MaxWait < 0 {
		return &protocol.InvalidDetails{Field: "Locks.MaxWait", Value: l.MaxWait.String(), Bound: "0, which is without end, or more"}
	}
	return nil
}

type (
	stateKey        struct{}
	locksKey        struct{}
	scopeKey        struct{}
	compensatingKey struct{}
	undoneKey       struct{}
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

// WithLocks returns a context whose steps ask for locks, or for none where l is nil.
func WithLocks(ctx workflow.Context, l *Locks) workflow.Context {
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

// WithUndone returns a context whose step is undone, if its saga fails, unless it is known that it never ran.
func WithUndone(ctx workflow.Context) workflow.Context {
	return workflow.WithValue(ctx, undoneKey{}, true)
}

func isUndone(ctx workflow.Context) bool {
	undone, _ := ctx.Value(undoneKey{}).(bool)
	return undone
}

// WithOwner returns a context whose steps wait and hold as owner, and whose child workflows inherit it. Where owner is
// empty, it is the party of the run itself.
func WithOwner(ctx workflow.Context, owner string) workflow.Context {
	if owner == "" {
		owner = workflow.GetInfo(ctx).WorkflowExecution.ID
		if s := StateFrom(ctx); s != nil && s.owner != "" {
			owner = s.owner
		}
	}
	return workflow.WithValue(ctx, ownerKey{}, owner)
}

func ownerFrom(ctx workflow.Context) string {
	owner, _ := ctx.Value(ownerKey{}).(string)
	return owner
}
