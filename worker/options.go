package worker

import (
	"go.temporal.io/sdk/interceptor"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/interceptors"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Options is what a worker needs to guard steps.
type Options struct {
	// Locker takes and keeps the locks. Required.
	Locker *lockcore.Locker
	// Rules guard activities by their type, at most one rule for each; see [RuleFor]. They are checked when the plugin is made,
	// and when a worker starts: a type that it does not have is an error, and so is one whose first argument is of another
	// type than the rule's.
	Rules []Rule
	// TaskQueue is the task queue of all of Lockstep's own activities but lockstep.Wait, which runs on the queue of the step that
	// waits. It is a queue of the workflow's namespace whose workers run activities and have Lockstep. A worker with
	// LocalActivityWorkerOnly is refused without it. Defaults to the workflow's.
	TaskQueue string
	// Janitor is for the plugin alone: [Interceptor] and [Register] have no janitor.
	Janitor JanitorOptions
}

// checked refuses what cannot be.
func (o Options) checked() error {
	if o.Locker == nil {
		return &lockcore.InvalidError{Field: "worker.Options.Locker", Value: "nil", Bound: "a Locker made by lockcore.New"}
	}
	if err := o.Janitor.checked(); err != nil {
		return err
	}
	return checkRules(o.Rules)
}

func (o Options) interceptor(connected func(interceptors.Connection)) *interceptors.Interceptor {
	rules := make([]interceptors.Rule, len(o.Rules))
	for i, r := range o.Rules {
		rules[i] = r.forInterceptor()
	}
	return interceptors.New(interceptors.Options{Locker: o.Locker, Rules: rules, TaskQueue: o.TaskQueue, Connected: connected})
}

func (o Options) activities() *activities.Activities {
	return &activities.Activities{Locker: o.Locker.Core()}
}

// Interceptor makes the worker interceptor alone, for worker.Options.Interceptors of a worker that
// uses no plugins. Such a worker calls [Register] too, and has no janitor: run "lockstep janitor" beside it. When the worker has
// stopped, call Locker.Close, which waits until the steps that have returned have left their locks. The error is a *lockcore.InvalidError that
// names the option.
func Interceptor(o Options) (interceptor.WorkerInterceptor, error) {
	if err := o.checked(); err != nil {
		return nil, err
	}
	return o.interceptor(nil), nil
}

// Register registers Lockstep's activities on a worker that already exists; it may be called again. Give it the options of
// [Interceptor]: with a Locker on another collection, locks would be taken in one place and released in another. The error
// is a *lockcore.InvalidError that names the option.
func Register(registry activities.Registry, o Options) error {
	if err := o.checked(); err != nil {
		return err
	}
	activities.Register(registry, o.activities())
	return nil
}
