package workflows

import (
	"reflect"

	"github.com/temporal-lockstep/lockstep/internal/protocol/run"
)

// Rule guards every activity of one type, so that workflow code stays as it is. Make one with [RuleFor], and give it to
// worker.Options.Rules.
//
// A rule's locks are those that a [WithLocks] around the activity would ask for; where there is a WithLocks, or an
// [Unguarded], it counts and the rule does not. A guarded step adds no event to the history, with one exception: a
// step whose locks are to outlive it records a version marker, two events: in a saga the first of its type, and outside of one, with
// ScopeSaga, each. In a run that was in flight when the rule came, and has none, locks in sagas end with each step, and others
// outlive the steps that are scheduled from then on.
//
// What a rule says may change while runs are in flight: what is in their histories stays as it is. A rule that is to go is
// Retired first. Package interceptors says under "Runs in flight" what to mind when one comes.
type Rule = run.Rule

// RuleFor makes the rule of an activity type, by the name under which it is registered, from a function that says which
// locks an activity with this first argument takes. T is that argument's type; what a workflow passes is converted by
// way of JSON where it is another one, and an argument that cannot be is a *lockcore.InvalidError of the step. Where the
// activity's own argument cannot be, a worker with the plugin does not start.
//
//	workflows.RuleFor("Debit", func(t Transfer) workflows.Locks {
//		return workflows.Locks{Resources: []lockcore.Resource{lockcore.Exclusive(t.From)}}
//	})
//
// locks runs in workflow code: it must be deterministic, and depend on its argument alone.
func RuleFor[T any](activityType string, locks func(in T) Locks) Rule {
	rule := Rule{Activity: activityType, Input: reflect.TypeFor[T]()}
	if locks != nil {
		rule.Locks = func(input any) run.Locks {
			in, _ := input.(T) // the zero value where it is a nil interface
			return locks(in).run()
		}
	}
	return rule
}
