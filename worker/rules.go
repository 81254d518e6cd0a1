package worker

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

func checkRules(rules []workflows.Rule) error {
	seen := map[string]bool{}
	for i, r := range rules {
		field := fmt.Sprintf("worker.Options.Rules[%d]", i)
		switch {
		case r.Activity == "":
			return &lockcore.InvalidError{Field: field, Value: `""`, Bound: "the name of an activity type"}
		case r.Locks == nil:
			return &lockcore.InvalidError{Field: field, Value: fmt.Sprintf("%q without a function", r.Activity), Bound: "a rule made by workflows.RuleFor, with a function"}
		case seen[r.Activity]:
			return &lockcore.InvalidError{Field: field, Value: fmt.Sprintf("%q again", r.Activity), Bound: "one rule for each activity type"}
		}
		seen[r.Activity] = true
	}
	return nil
}

// known refuses rules for activity types that the worker does not have. A registry does not tell what it has, but it
// refuses a name that is taken.
func known(registry activities.Registry, rules []workflows.Rule) error {
	for _, r := range rules {
		if !r.IsElsewhere && !taken(registry, r.Activity) {
			return &lockcore.InvalidError{
				Field: "worker.Options.Rules", Value: fmt.Sprintf("%q", r.Activity),
				Bound: "an activity type that is registered on the worker, or a rule with Elsewhere() where other workers run it",
			}
		}
	}
	return nil
}

func taken(registry activities.Registry, name string) (yes bool) {
	defer func() { yes = recover() != nil }()
	registry.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: name})
	return false
}
