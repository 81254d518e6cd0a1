package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/interceptors"
	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/startup"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// flushTimeout bounds the time for which the end of a worker waits until the locks of completed runs are released.
const flushTimeout = 2 * time.Second

// Plugin installs Lockstep in clients, workers and replayers. Make it with [NewPlugin]. It need not be closed, and does not close the Locker.
// While a worker with the plugin runs, the plugin holds one more connection to Temporal for each client that it was given to, made with the
// options of that client.
type Plugin struct {
	client.PluginBase
	workerBase
	interceptor *interceptors.Interceptor
	rules       []Rule
	// locker and janitors are nil in a plugin for replayers.
	locker   *lockcore.Steps
	janitors *janitors
	// registrations are those of the workers, *registrations by instance key.
	registrations sync.Map
	// indexes is done once the indexes were checked.
	indexes sync.Once
}

// workerBase has another name than the client's PluginBase, because the fields of a struct must differ.
type workerBase = sdkworker.PluginBase

// NewPlugin returns a plugin that installs Lockstep: its interceptor, its activities and its janitor. Put it into client.Options.Plugins, for
// every worker that is made from the client, or into sdkworker.Options.Plugins, or both. The janitor starts when a worker starts, or with the
// worker's first activity, which gives it a client, if only the worker has the plugin.
//
// The error is a *lockcore.InvalidError that names the option. If a worker gets two plugins that differ in Locker or Rules, sdkworker.New
// panics, as for all errors of plugins.
func NewPlugin(o Options) (*Plugin, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	j := newJanitors(o)
	p := &Plugin{interceptor: o.interceptor(j.connected), rules: o.Rules, locker: o.Locker.Steps(), janitors: j}
	j.interceptor = p.interceptor
	return p, nil
}

// NewReplayPlugin returns a plugin for sdkworker.WorkflowReplayerOptions.Plugins: it replays histories of guarded workflows and needs no
// database. Guarded steps of a worker with this plugin fail.
func NewReplayPlugin() *Plugin {
	return &Plugin{interceptor: interceptors.New(interceptors.Options{})}
}

// Name returns the name under which the plugin appears in Temporal.
func (p *Plugin) Name() string { return wire.PluginName }

// ConfigureClient puts interceptors.First before the interceptors of the client, and checks or sets its converters.
func (p *Plugin) ConfigureClient(_ context.Context, o client.PluginConfigureClientOptions) error {
	if p.locker != nil && !startsWithFirst(o.ClientOptions.Interceptors) { // the client's interceptors come before the worker's
		o.ClientOptions.Interceptors = append([]interceptor.ClientInterceptor{interceptors.First()}, o.ClientOptions.Interceptors...)
	}
	return cmp.Or(hideNames(p.interceptor.Options().DataConverter, o.ClientOptions), checkReads(o.ClientOptions.DataConverter))
}

// ConfigureWorkflowReplayer installs the interceptor in the replayer.
func (p *Plugin) ConfigureWorkflowReplayer(_ context.Context, o sdkworker.PluginConfigureWorkflowReplayerOptions) error {
	own := p.interceptor
	if p.locker == nil { // the header of a run that continues another one may be encoded
		own = interceptors.New(interceptors.Options{DataConverter: o.WorkflowReplayerOptions.DataConverter})
	}
	return p.install(own, &o.WorkflowReplayerOptions.Interceptors)
}

// NewClient connects the client.
func (p *Plugin) NewClient(
	ctx context.Context, o client.PluginNewClientOptions, next func(context.Context, client.PluginNewClientOptions) error,
) error {
	err := next(ctx, o)
	if err == nil && p.janitors != nil {
		p.janitors.addClient(o)
	}
	return err
}

// ConfigureWorker installs the interceptor in the worker, and refuses options that do not fit it.
func (p *Plugin) ConfigureWorker(_ context.Context, o sdkworker.PluginConfigureWorkerOptions) error {
	options := p.interceptor.Options()
	if o.WorkerOptions.LocalActivityWorkerOnly && !o.WorkerOptions.DisableWorkflowWorker && p.locker != nil && options.TaskQueue == "" {
		return &lockcore.InvalidError{
			Field: "worker.Options.TaskQueue", Value: `""`,
			Bound: "a task queue whose workers run activities and have Lockstep: this worker has LocalActivityWorkerOnly",
		}
	}
	if options.DataConverter != nil && !p.janitors.haveClients() {
		return errNeedsClient
	}
	known := &registrations{options: o.WorkerOptions, funcs: map[string]reflect.Type{}}
	if _, twice := p.registrations.LoadOrStore(o.WorkerInstanceKey, known); !twice {
		known.listen(o.WorkerRegistryOptions)
	}
	if slots := o.WorkerOptions.MaxConcurrentActivityExecutionSize; slots > 0 && p.locker != nil {
		p.locker.LimitInlineWaits(slots / 4)
	}
	return p.install(p.interceptor, &o.WorkerOptions.Interceptors)
}

// startsWithFirst reports whether a list of interceptors begins with that of interceptors.First.
func startsWithFirst[I any](list []I) bool {
	return len(list) > 0 && any(list[0]) == any(interceptors.First())
}

// install appends the interceptor, unless one of its kind is in the list already. On a worker, interceptors.First begins the list: other
// interceptors may wrap the failures of steps.
func (p *Plugin) install(own *interceptors.Interceptor, list *[]interceptor.WorkerInterceptor) error {
	for _, other := range *list {
		installed, ok := other.(*interceptors.Interceptor)
		if !ok {
			continue
		}
		if !installed.Options().Same(own.Options()) {
			return &lockcore.InvalidError{
				Field: "worker.Options.Plugins", Value: "a second Lockstep plugin, with another Locker, task queue or other rules",
				Bound: "one plugin for the client and its workers, or the same Locker, TaskQueue and rules in each",
			}
		}
		return nil
	}
	*list = append(*list, own)
	if p.locker != nil && !startsWithFirst(*list) {
		*list = append([]interceptor.WorkerInterceptor{interceptors.First()}, *list...)
	}
	return nil
}

// register registers Lockstep's own activities, and checks the rules against the activities that the worker has.
func (p *Plugin) register(o sdkworker.PluginStartWorkerOptions) error {
	known, configured := p.registrations.Load(o.WorkerInstanceKey)
	if p.locker == nil || !configured {
		return nil
	}
	activities.Register(o.WorkerRegistry, p.locker)
	return known.(*registrations).check(o.WorkerRegistry.RegisterActivityWithOptions, p.rules)
}

// StartWorker starts the worker, and the janitor if the client has the plugin. It waits for 30 seconds until the database answers, and then
// returns an error. It also does if the SDK may not ask the server about the worker's namespace.
func (p *Plugin) StartWorker(
	ctx context.Context, o sdkworker.PluginStartWorkerOptions, next func(context.Context, sdkworker.PluginStartWorkerOptions) error,
) error {
	if err := p.awaitDatabase(ctx, o.WorkerInstanceKey); err != nil {
		return err
	}
	if err := p.register(o); err != nil {
		return err
	}
	err := next(ctx, o)
	if _, denied := errors.AsType[*serviceerror.PermissionDenied](err); denied {
		return &currentrun.NamespaceError{Err: err}
	}
	if err == nil && p.janitors != nil {
		p.janitors.addWorker(o.WorkerInstanceKey)
	}
	return err
}

// awaitDatabase returns an error if no database answers. An answer that refuses is logged here and returned by each step. A worker that
// runs no activities, except local ones, which have no locks, needs no database: it only learns the collection's ID, for its guards.
func (p *Plugin) awaitDatabase(ctx context.Context, worker string) error {
	if p.locker == nil {
		return nil
	}
	if known, configured := p.registrations.Load(worker); configured && known.(*registrations).options.LocalActivityWorkerOnly {
		currentrun.LearnCollection(ctx, p.locker)
		return nil
	}
	logger := p.janitors.log()
	err := startup.Await(ctx, logger, func(ctx context.Context) error {
		_, err := p.locker.CollectionID(ctx)
		return err
	})
	if errors.Is(err, startup.ErrNoDatabase) || ctx.Err() != nil {
		return fmt.Errorf("lockstep: the worker was not started: %w", err)
	}
	if err != nil {
		logger.Warn("lockstep: the database refused to read the locks' collection, and guarded steps may fail", "error", err)
		return nil
	}
	p.indexes.Do(func() { p.checkIndexes(ctx, logger) })
	return nil
}

// checkIndexes logs a warning if the collection lacks indexes, because nothing else fails then. Workers need not have the right to ask.
func (p *Plugin) checkIndexes(ctx context.Context, logger log.Logger) {
	collection, missing, err := p.locker.MissingIndexes(ctx)
	if err == nil && len(missing) > 0 {
		logger.Warn("lockstep: indexes are missing, so idle documents stay forever and background work reads all documents: run lockstep init",
			"collection", collection, "missing", missing)
	}
}

// StopWorker stops the worker, releases the locks of completed runs, and stops the janitor when the last worker stops.
func (p *Plugin) StopWorker(
	ctx context.Context, o sdkworker.PluginStopWorkerOptions, next func(context.Context, sdkworker.PluginStopWorkerOptions),
) {
	next(ctx, o)
	p.registrations.Delete(o.WorkerInstanceKey)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	p.interceptor.Flush(ctx)
	if p.janitors != nil {
		p.janitors.removeWorker(o.WorkerInstanceKey)
	}
}
