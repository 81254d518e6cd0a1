package run

import (
	"encoding/json"
	"fmt"
	"reflect"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Rule says which locks the activities of one type take, in every workflow that runs on a worker which has it.
type Rule struct {
	// Activity is the type's name.
	Activity string
	// Input is the type of the activity's first argument; nil where the rule does not look at it.
	Input reflect.Type
	// Locks are those of an activity with that argument.
	Locks func(input any) Locks
	// Elsewhere says that the activity runs on other workers than the workflows, and Retired that the rule guards
	// nothing any more.
	IsElsewhere, IsRetired bool
}

// Elsewhere returns the rule for a worker that runs activities, but not those of this type: it is not an error then
// that the type is unknown there.
func (r Rule) Elsewhere() Rule {
	r.IsElsewhere = true
	return r
}

// Retired returns the rule for the time until the last workflow run has ended that began under it: steps are not guarded
// any more, and the release that stands in the histories of such runs goes on being made. A rule that never had
// [ScopeSaga], nor guarded a step of a saga, can be taken away at once.
func (r Rule) Retired() Rule {
	r.IsRetired = true
	return r
}

// versionRules is the change ID of rules whose locks outlive a step: asked for at the first such step of a run, so that
// a run which was in flight when the rule came makes no command that its history does not have.
const versionRules = "lockstep.rules"

// wanted are the locks that a step asks for, by its context or else by a rule.
func (s *State) wanted(ctx workflow.Context, activityType string, args []any) (*Locks, error) {
	if l, said := ctx.Value(locksKey{}).(*Locks); said { // none, where it is nil
		return l, nil
	}
	rule, ok := s.Rules[activityType]
	if !ok {
		return nil, nil
	}
	input, err := rule.input(args)
	if err != nil {
		return nil, err
	}
	l := rule.Locks(input)
	if s.kind(ctx, &l) == protocol.ScopeSaga && workflow.GetVersion(ctx, versionRules, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		l.Scope = protocol.ScopeStep
	}
	if rule.IsRetired {
		if s.kind(ctx, &l) == protocol.ScopeSaga {
			scope, _ := s.scope(ctx)
			scope.want(l.Resources)
		}
		return nil, nil
	}
	return &l, nil
}

// Guards tells whether a call of an activity may be guarded: a local one that is not has no number.
func (s *State) Guards(ctx workflow.Context, activityType string) bool {
	if l, said := ctx.Value(locksKey{}).(*Locks); said {
		return l != nil
	}
	_, ok := s.Rules[activityType]
	return ok
}

// kind is the scope of locks under ctx.
func (s *State) kind(ctx workflow.Context, l *Locks) string {
	switch _, inSaga := s.scope(ctx); {
	case l.Scope != "":
		return l.Scope
	case inSaga:
		return protocol.ScopeSaga
	default:
		return protocol.ScopeStep
	}
}

// input is the argument that the rule looks at, as its type. A workflow may pass another type with the same JSON.
//
//workflowcheck:ignore JSON has the keys of a map in order, and the same argument gives the same input
func (r *Rule) input(args []any) (any, error) {
	if r.Input == nil {
		return nil, nil
	}
	wrong := func(value string) error {
		return &lockcore.InvalidError{
			Field: fmt.Sprintf("the first argument of activity %q", r.Activity), Value: value, Bound: "a " + r.Input.String() + ", as its rule wants",
		}
	}
	if len(args) == 0 {
		return nil, wrong("none")
	}
	if v := reflect.ValueOf(args[0]); v.IsValid() {
		if v.Type().AssignableTo(r.Input) {
			return args[0], nil
		}
		if v.Kind() == reflect.Pointer && !v.IsNil() && v.Type().Elem().AssignableTo(r.Input) {
			return v.Elem().Interface(), nil
		}
	}
	text, err := json.Marshal(args[0])
	into := reflect.New(r.Input)
	if err == nil {
		err = json.Unmarshal(text, into.Interface())
	}
	if err != nil {
		return nil, wrong(fmt.Sprintf("a %T (%s)", args[0], protocol.Cut(err.Error(), 128)))
	}
	return into.Elem().Interface(), nil
}
