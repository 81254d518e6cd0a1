package worker

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	"go.temporal.io/sdk/activity"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/protocol"
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

// registrations are the activities that a worker was given, by type: its registry does not tell what it has.
type registrations struct {
	mu    sync.Mutex
	funcs map[string]reflect.Type
}

// listen has the worker's registrations told.
func (r *registrations) listen(o *sdkworker.PluginConfigureWorkerRegistryOptions) {
	before := o.OnRegisterActivity
	o.OnRegisterActivity = func(a any, options activity.RegisterOptions) {
		r.add(a, options.Name)
		if before != nil {
			before(a, options)
		}
	}
}

// add remembers an activity by the name that the SDK gives it: its own, or that of the function or method. Those of a struct
// have the name before theirs.
func (r *registrations) add(a any, name string) {
	v := reflect.ValueOf(a)
	if v.Kind() == reflect.Func {
		if name == "" {
			name = protocol.FuncName(v)
		}
		r.put(name, v.Type())
		return
	}
	for m := range v.NumMethod() {
		r.put(name+v.Type().Method(m).Name, v.Method(m).Type())
	}
}

func (r *registrations) put(name string, f reflect.Type) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.funcs[name] = f
}

// argument is the type of the first argument of an activity, without its context; nil where it has none.
func (r *registrations) argument(name string) (t reflect.Type, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, known := r.funcs[name]
	if !known {
		return nil, false
	}
	first := 0
	if f.NumIn() > 0 && f.In(0).Implements(reflect.TypeFor[context.Context]()) {
		first = 1
	}
	if f.NumIn() > first {
		t = f.In(first)
	}
	return t, true
}

// check refuses rules for activity types that the worker does not have, and those that cannot look at what the activity takes.
func (r *registrations) check(registry activities.Registry, rules []workflows.Rule) error {
	for _, rule := range rules {
		argument, known := r.argument(rule.Activity)
		switch {
		case known:
			if misfit := rule.Misfit(argument); misfit != "" {
				return &lockcore.InvalidError{
					Field: "worker.Options.Rules", Value: fmt.Sprintf("%q takes %s", rule.Activity, misfit),
					Bound: fmt.Sprintf("what its rule takes, a %v: give the rule the activity's own type", rule.Input),
				}
			}
		case !rule.IsElsewhere && !taken(registry, rule.Activity):
			return &lockcore.InvalidError{
				Field: "worker.Options.Rules", Value: fmt.Sprintf("%q", rule.Activity),
				Bound: "an activity type that is registered on the worker, or a rule with Elsewhere() where other workers run it",
			}
		}
	}
	return nil
}

// taken tells whether the registry has an activity type that it has told nobody of: it refuses a name that is taken.
func taken(registry activities.Registry, name string) (yes bool) {
	defer func() { yes = recover() != nil }()
	registry.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: name})
	return false
}
