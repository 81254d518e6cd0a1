package worker

import (
	"cmp"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/interceptors"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Options configures Lockstep in a worker.
type Options struct {
	// Locker takes and keeps the locks. Required. Its HoldTTL must be 15 min or more, because a saga that has used its locks within the last five
	// minutes commits without asking the database. A shorter one is refused, with an error that matches lockcore.ErrInvalid.
	Locker *lockcore.Locker
	// Rules guard activities by their type, at most one rule for each; see [RuleFor]. They are checked when the plugin is made, and when a
	// worker starts: it is an error if the worker has not registered the activity type, or if the first argument of the activity does not fit the rule.
	Rules []Rule
	// TaskQueue is the task queue of all of Lockstep's own activities except lockstep.Wait, which runs on the task queue of the waiting step.
	// It is a queue of the workflow's namespace whose workers run activities and have Lockstep. A worker with LocalActivityWorkerOnly needs
	// it, and is refused without it. Defaults to the workflow's task queue.
	TaskQueue string
	// DataConverter hides the names of resources in workflow histories. It must have a codec that encrypts. It encodes the guards of steps,
	// which otherwise are plain JSON in the headers of activities, and the plugin gives it to its clients: as client.Options.DataConverter,
	// unless that is set, and in a client.Options.FailureConverter that encodes the messages and the details of all failures, unless that is set.
	// A client with a converter that shows what it encodes is refused. The option needs the plugin in client.Options.Plugins, on the clients of
	// all workers. Clients that read failures, and replayers, need the same two converters.
	//
	// Workers can be restarted with the option one after the other: one that has it reads guards that are not encoded, and one that lacks it fails an
	// encoded guard with a retryable lockstep.Unavailable. Defaults to nil: names are not encoded.
	DataConverter converter.DataConverter
	// Janitor configures the janitor of the plugin. [Interceptor] and [Register] have no janitor, and ignore it.
	Janitor JanitorOptions
}

// check returns a *lockcore.InvalidError if an option is missing or contradicts another.
func (o Options) check() error {
	if o.Locker == nil {
		return &lockcore.InvalidError{Field: "worker.Options.Locker", Value: "nil", Bound: "a Locker made by lockcore.New"}
	}
	if err := cmp.Or(o.Janitor.check(), wire.CheckHoldTTL("lockcore.Config.HoldTTL", o.Locker.Steps().HoldTTL())); err != nil {
		return err
	}
	return checkRules(o.Rules)
}

func (o Options) interceptor(connected func(interceptors.Connection)) *interceptors.Interceptor {
	rules := make([]interceptors.Rule, len(o.Rules))
	for i, r := range o.Rules {
		rules[i] = r.forInterceptor()
	}
	return interceptors.New(interceptors.Options{Locker: o.Locker, Rules: rules, TaskQueue: o.TaskQueue, DataConverter: o.DataConverter, Connected: connected})
}

// Interceptor returns only the worker interceptor, for sdkworker.Options.Interceptors of a worker without the plugin. Also call [Register] on
// that worker, and run "lockstep janitor". After the worker has stopped, call Locker.Close, which waits until the locks of finished steps
// are released. If another interceptor wraps the errors of activities, put interceptors.First before all of them, as the plugin does. Unlike the
// plugin, it cannot check that the database answers before the worker starts. The error is a *lockcore.InvalidError that names the option.
func Interceptor(o Options) (interceptor.WorkerInterceptor, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.DataConverter != nil {
		return nil, errNeedsClient
	}
	return o.interceptor(nil), nil
}

// Register registers Lockstep's own activities on a worker, or in the SDK's test environment; it may be called again. Pass the same options as to [Interceptor]: with a Locker
// on another collection, locks would be acquired in one place and released in another. The error is a *lockcore.InvalidError that names the
// option.
func Register(registry sdkworker.ActivityRegistry, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	activities.Register(registry, o.Locker.Steps())
	return nil
}
