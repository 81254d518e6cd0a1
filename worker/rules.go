package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/interceptors"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Rule guards every activity of one type, in workflows of any SDK or without a workflow, as long as a worker with the rule runs it. Make
// one with [RuleFor], and give it to [Options.Rules].
type Rule struct {
	activity  string
	input     reflect.Type
	resources func(first any) []lockcore.Resource
	elsewhere bool
}

// RuleFor returns the rule of an activity type, by the name under which it is registered. The function returns the resources that an
// activity whose first argument is in locks while it runs; an empty list means no locks.
//
//	worker.RuleFor("Debit", func(t Transfer) []lockcore.Resource {
//		return []lockcore.Resource{lockcore.Exclusive("account/" + t.From)}
//	})
//
// The activity worker calls the function before each attempt. Workflow code does not change, and nothing is written to the history. T is the
// type of the activity's first argument, or any. A worker whose activity takes another type does not start. If a dynamic activity serves the
// type, the argument is decoded to T, and a misspelled activity name is not noticed.
//
// The locks have ScopeStep. Locks that the workflow holds by a saga or workflows.Lock do not block the step. A rule adds to a guard of the
// same step: a resource that both name is taken in the stronger mode, for the guard's scope. workflows.Unguarded does not remove a rule.
//
// The step waits and holds as the owner of its workflow. A compensation is never the victim of a deadlock, and workflows.RunSaga begins again if
// another step is. The error of that step is the SDK's own: read it with workflows.LockError. A saga that fails does not wait for steps that only
// a rule locks, and a saga that commits does not verify their locks.
//
// Unlike with a guard, the workflow does not wait for busy locks: the attempt fails with a retryable lockstep.Busy, and the activity keeps its
// position in the queue. Temporal starts the next attempt after at most 20 s, sooner near the head of the queue, and in time for
// ScheduleToCloseTimeout. Such attempts count against MaximumAttempts: a worker logs a warning if the retry policy or the timeout of such an
// activity does not let it wait. A local activity with a rule fails with lockstep.Invalid.
//
// Each run of an activity without a workflow is a party and an owner of its own. No janitor watches it: if it is terminated or its worker dies,
// its locks end with their TTL.
func RuleFor[T any](activityType string, resources func(in T) []lockcore.Resource) Rule {
	rule := Rule{activity: activityType, input: reflect.TypeFor[T]()}
	if resources != nil {
		rule.resources = func(first any) []lockcore.Resource {
			in, _ := first.(T) // the zero value if T is an interface and the argument is nil
			return resources(in)
		}
	}
	return rule
}

// Elsewhere returns the same rule for workers that do not register the activity type, because other workers run it. So all workers can
// share one Options.
func (r Rule) Elsewhere() Rule {
	r.elsewhere = true
	return r
}

// forInterceptor returns the rule as the interceptor calls it.
func (r Rule) forInterceptor() interceptors.Rule {
	return interceptors.Rule{Activity: r.activity, Resources: func(args []any) ([]lockcore.Resource, error) {
		first, err := r.argument(args)
		if err != nil {
			return nil, err
		}
		if first != nil && !reflect.TypeOf(first).AssignableTo(r.input) || first == nil && !takesNil(r.input) {
			return nil, invalidRule(fmt.Sprintf("%q was called with a %T", r.activity, first), fmt.Sprintf("what its rule takes, a %v", r.input))
		}
		return r.resources(first), nil
	}}
}

var encodedValues = reflect.TypeFor[converter.EncodedValues]()

// argument returns the first argument of an activity, or nil. A dynamic activity gets its arguments encoded; then the argument is decoded to
// the rule's type.
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
		return nil, invalidRule(fmt.Sprintf("%q was called with another argument: %s", r.activity, wire.Cut(err.Error(), 128)),
			fmt.Sprintf("what its rule takes, a %v", r.input))
	case err != nil: // a codec on another server may answer the next attempt
		return nil, fmt.Errorf("lockstep: decode the argument of %q for its rule: %w", r.activity, err)
	}
	return first.Elem().Interface(), nil
}

func invalidRule(value, bound string) error {
	return &lockcore.InvalidError{Field: "worker.Options.Rules", Value: value, Bound: bound}
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
		case wire.IsNeverGuarded(r.activity):
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

// registrations records the activities of a worker, by type, because the worker's registry does not list them.
type registrations struct {
	// options are the worker's. They may change until it starts.
	options *sdkworker.Options
	mu      sync.Mutex
	funcs   map[string]reflect.Type
	// dynamic is set if a dynamic activity serves all other types.
	dynamic bool
}

// listen records the activities that are registered on the worker from now on.
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

// add records an activity under the name that the SDK gives it: the given one, or that of the function. For a struct, the given name is the
// prefix of the names of its methods.
func (r *registrations) add(a any, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := reflect.ValueOf(a)
	if v.Kind() == reflect.Func {
		if name == "" {
			name = wire.FuncName(v)
		}
		r.funcs[name] = v.Type()
		return
	}
	for m := range v.NumMethod() {
		r.funcs[name+v.Type().Method(m).Name] = v.Method(m).Type()
	}
}

// firstArgument returns the type of the first argument of an activity, after the context; nil if it has none.
func firstArgument(f reflect.Type) reflect.Type {
	first := 0
	if f.NumIn() > 0 && f.In(0).Implements(reflect.TypeFor[context.Context]()) {
		first = 1
	}
	if f.NumIn() > first {
		return f.In(first)
	}
	return nil
}

// check refuses rules for activity types that the worker does not have, and rules that do not fit the first argument of their activity. register
// registers an activity on the worker.
func (r *registrations) check(register func(a any, options activity.RegisterOptions), rules []Rule) error {
	r.mu.Lock()
	funcs, dynamic := maps.Clone(r.funcs), r.dynamic // isTaken may register, and so add to them
	r.mu.Unlock()
	for _, rule := range rules {
		switch f, known := funcs[rule.activity]; {
		case known:
			if argument := firstArgument(f); !rule.fits(argument) {
				return invalidRule(fmt.Sprintf("%q takes %s", rule.activity, typeName(argument)),
					fmt.Sprintf("what its rule takes, a %v: give the rule the activity's own type", rule.input))
			}
		case dynamic:
			if !rule.decodes() {
				return invalidRule(fmt.Sprintf("the rule of %q, which a dynamic activity serves, takes a %v", rule.activity, rule.input),
					"a type to which the argument can be decoded, any, or converter.EncodedValues")
			}
		case !rule.elsewhere && !isTaken(register, rule.activity):
			return invalidRule(fmt.Sprintf("%q", rule.activity),
				"an activity type that is registered on the worker, or a rule with Elsewhere() where other workers run it")
		}
	}
	return nil
}

// fits reports whether the rule accepts a first argument of type t; t is nil if the activity has none.
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
	return "an argument of type " + t.String()
}

// isTaken reports whether a worker has an activity type that was registered before the plugin could record it: register panics if a name is
// registered twice.
func isTaken(register func(a any, options activity.RegisterOptions), name string) (taken bool) {
	defer func() { taken = recover() != nil }()
	register(func(context.Context) error { return nil }, activity.RegisterOptions{Name: name})
	return false
}
