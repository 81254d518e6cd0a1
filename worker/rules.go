package worker

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/interceptors"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Rule guards every activity of one type, in workflows of any SDK, as long as a worker with the rule runs it. Make one with
// [RuleFor], and give it to [Options.Rules].
type Rule struct {
	activity  string
	input     reflect.Type
	resources func(first any) []lockcore.Resource
	elsewhere bool
}

// RuleFor makes the rule of an activity type, by the name under which it is registered, from a function that says what an
// activity with this first argument locks while it runs. An empty answer means no locks.
//
//	worker.RuleFor("Debit", func(t Transfer) []lockcore.Resource {
//		return []lockcore.Resource{lockcore.Exclusive("account/" + t.From)}
//	})
//
// The activity worker calls it before each attempt: workflow code need not know, and nothing is written to the history. T is
// the type of the activity's first argument, or any; a worker with another type does not start. A dynamic activity may serve the
// type: then the argument is decoded to T, and a name that no workflow uses is not noticed.
//
// The locks have scope step. What the workflow holds for a saga, or by workflows.Lock, does not block the step. A guard on the
// same step is added to: on a resource that both name, the stronger mode and the guard's scope count. workflows.Unguarded does
// not take a rule away.
//
// A step that finds its locks busy does not park. The attempt fails with a retryable lockstep.Busy and keeps its place in the
// queue; the next one comes the sooner the nearer it is to the head, within 20 s, and within ScheduleToCloseTimeout. Such
// attempts count against MaximumAttempts. A step that must be woken fast needs a guard. A local activity with a rule fails
// with lockstep.Invalid.
func RuleFor[T any](activityType string, resources func(in T) []lockcore.Resource) Rule {
	rule := Rule{activity: activityType, input: reflect.TypeFor[T]()}
	if resources != nil {
		rule.resources = func(first any) []lockcore.Resource {
			in, _ := first.(T) // the zero value if T is an interface, and the argument nil
			return resources(in)
		}
	}
	return rule
}

// Elsewhere returns the rule for a worker that does not run activities of this type: it is no error then that the type is
// unknown there.
func (r Rule) Elsewhere() Rule {
	r.elsewhere = true
	return r
}

// forInterceptor is the rule as the interceptor calls it.
func (r Rule) forInterceptor() interceptors.Rule {
	return interceptors.Rule{Activity: r.activity, Resources: func(args []any) ([]lockcore.Resource, error) {
		first, err := r.argument(args)
		if err != nil {
			return nil, err
		}
		if first != nil && !reflect.TypeOf(first).AssignableTo(r.input) || first == nil && !takesNil(r.input) {
			return nil, &lockcore.InvalidError{
				Field: "worker.Options.Rules", Value: fmt.Sprintf("%q was called with a %T", r.activity, first), Bound: fmt.Sprintf("what its rule takes, a %v", r.input),
			}
		}
		return r.resources(first), nil
	}}
}

var encodedValues = reflect.TypeFor[converter.EncodedValues]()

// argument returns the first argument of an activity, or nil. That of a dynamic activity, which gets its arguments encoded, is
// decoded to the rule's type.
func (r Rule) argument(args []any) (any, error) {
	if len(args) == 0 {
		return nil, nil
	}
	encoded, dynamic := args[0].(converter.EncodedValues)
	switch {
	case !dynamic || r.input == encodedValues:
		return args[0], nil
	case !encoded.HasValues():
		return nil, nil
	}
	first := reflect.New(r.input)
	err := encoded.Get(first.Interface())
	switch {
	case errors.Is(err, converter.ErrUnableToDecode):
		return nil, &lockcore.InvalidError{
			Field: "worker.Options.Rules", Value: fmt.Sprintf("%q was called with another argument: %s", r.activity, wire.Cut(err.Error(), 128)),
			Bound: fmt.Sprintf("what its rule takes, a %v", r.input),
		}
	case err != nil: // a codec on another server may answer the next attempt
		return nil, fmt.Errorf("lockstep: decode the argument of %q for its rule: %w", r.activity, err)
	}
	return first.Elem().Interface(), nil
}

func takesNil(t reflect.Type) bool {
	return t.Kind() == reflect.Interface || t.Kind() == reflect.Pointer
}

func checkRules(rules []Rule) error {
	seen := map[string]bool{}
	for i, r := range rules {
		field := fmt.Sprintf("worker.Options.Rules[%d]", i)
		switch {
		case r.activity == "":
			return &lockcore.InvalidError{Field: field, Value: "a rule without an activity type", Bound: `worker.RuleFor("Debit", …), with the name of an activity type`}
		case wire.IsMachinery(r.activity):
			return &lockcore.InvalidError{Field: field, Value: fmt.Sprintf("%q", r.activity), Bound: "an activity type of your own: this one is never guarded"}
		case r.resources == nil:
			return &lockcore.InvalidError{Field: field, Value: fmt.Sprintf("%q without a function", r.activity), Bound: "a rule made by worker.RuleFor, with a function"}
		case seen[r.activity]:
			return &lockcore.InvalidError{Field: field, Value: fmt.Sprintf("%q again", r.activity), Bound: "one rule for each activity type"}
		}
		seen[r.activity] = true
	}
	return nil
}

// registrations are the activities that a worker was given, by type: its registry does not tell what it has.
type registrations struct {
	mu    sync.Mutex
	funcs map[string]reflect.Type
	// dynamic is set if a dynamic activity serves all other types.
	dynamic bool
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
	beforeDynamic := o.OnRegisterDynamicActivity
	o.OnRegisterDynamicActivity = func(a any, options activity.DynamicRegisterOptions) {
		r.mu.Lock()
		r.dynamic = true
		r.mu.Unlock()
		if beforeDynamic != nil {
			beforeDynamic(a, options)
		}
	}
}

// add remembers an activity by the name that the SDK gives it: its own, or that of the function or method. Those of a struct
// have the name before theirs.
func (r *registrations) add(a any, name string) {
	v := reflect.ValueOf(a)
	if v.Kind() == reflect.Func {
		if name == "" {
			name = wire.FuncName(v)
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

// argument is the type of the first argument of an activity, without its context; nil if it has none.
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
func (r *registrations) check(registry activities.Registry, rules []Rule) error {
	r.mu.Lock()
	dynamic := r.dynamic
	r.mu.Unlock()
	for _, rule := range rules {
		argument, known := r.argument(rule.activity)
		switch {
		case known:
			if !rule.fits(argument) {
				return &lockcore.InvalidError{
					Field: "worker.Options.Rules", Value: fmt.Sprintf("%q takes %s", rule.activity, typeName(argument)),
					Bound: fmt.Sprintf("what its rule takes, a %v: give the rule the activity's own type", rule.input),
				}
			}
		case dynamic:
			if !rule.decodes() {
				return &lockcore.InvalidError{
					Field: "worker.Options.Rules", Value: fmt.Sprintf("the rule of %q, which a dynamic activity serves, takes a %v", rule.activity, rule.input),
					Bound: "a type to which the argument can be decoded, any, or converter.EncodedValues",
				}
			}
		case !rule.elsewhere && !taken(registry, rule.activity):
			return &lockcore.InvalidError{
				Field: "worker.Options.Rules", Value: fmt.Sprintf("%q", rule.activity),
				Bound: "an activity type that is registered on the worker, or a rule with Elsewhere() where other workers run it",
			}
		}
	}
	return nil
}

// fits reports whether the rule can look at the first argument of an activity, which is of type t; t is nil if it has none.
func (r Rule) fits(t reflect.Type) bool {
	return r.input.Kind() == reflect.Interface && t == nil || t != nil && (t.AssignableTo(r.input) || t.Kind() == reflect.Interface)
}

// decodes reports whether the arguments of a dynamic activity can be decoded to the rule's type.
func (r Rule) decodes() bool {
	return r.input.Kind() != reflect.Interface || r.input.NumMethod() == 0 || r.input == encodedValues
}

func typeName(t reflect.Type) string {
	if t == nil {
		return "no argument"
	}
	return "a " + t.String()
}

// taken reports whether the registry has an activity type that it does not list: it refuses a name that is taken.
func taken(registry activities.Registry, name string) (yes bool) {
	defer func() { yes = recover() != nil }()
	registry.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: name})
	return false
}
