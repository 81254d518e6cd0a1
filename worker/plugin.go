package worker

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/interceptors"
	"github.com/temporal-lockstep/lockstep/internal/namespace"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// PluginName is the name under which the plugin appears in Temporal.
const PluginName = wire.PluginName

// Plugin installs Lockstep in clients, workers and replayers. Make it with [NewPlugin]. It needs no
// closing, and does not close the Locker. While a worker runs that has it, it holds one more connection
// to Temporal for each client that it was given to, which is made as the client was.
type Plugin struct {
	*temporal.SimplePlugin
	// janitors and registrar are nil in a plugin for replayers. A nil registrar does nothing.
	janitors  *janitors
	registrar *registrar
	// interceptor is the one that it installs.
	interceptor *interceptors.Interceptor
}

// NewPlugin makes a plugin that installs Lockstep: its interceptor, its activities and its janitor. Give it to
// client.Options.Plugins, from where it reaches every worker made from that client, or to
// worker.Options.Plugins; given to both, it guards once and registers once. The janitor of a plugin that no client was
// given begins when a worker runs its first activity, and that of others when a worker starts:
//
//	plugin, err := worker.NewPlugin(worker.Options{Locker: locker})
//	c, err := client.Dial(client.Options{Plugins: []client.Plugin{plugin}})
//
// The error is a *lockcore.InvalidError that names the option. A worker on which two plugins meet that
// differ in Locker or Rules panics when it is made, as the SDK does with errors of plugins: such a
// worker would take locks in one place and release them in another.
func NewPlugin(o Options) (*Plugin, error) {
	if err := o.checked(); err != nil {
		return nil, err
	}
	j := &janitors{options: o, clients: map[[2]string]clientOptions{}, workers: map[string]bool{}}
	own := o.interceptor(j.connected)
	j.connect = own.Connect
	p := newPlugin(own, o.Rules, func(registry activities.Registry) { activities.Register(registry, o.activities()) })
	p.janitors, p.registrar = j, newRegistrar(o.Locker)
	return p, nil
}

// NamespaceError says that a worker does not know the ID of its namespace, with which its lock IDs begin.
type NamespaceError = namespace.Error

// NewClient connects the client.
func (p *Plugin) NewClient(
	ctx context.Context, o client.PluginNewClientOptions, next func(context.Context, client.PluginNewClientOptions) error,
) error {
	err := p.SimplePlugin.NewClient(ctx, o, next)
	if err == nil && p.janitors != nil {
		p.janitors.madeClient(clientOptions{o.ClientOptions, o.FromExisting})
		p.registrar.madeClient(o.ClientOptions)
	}
	return err
}

// ConfigureWorker installs the interceptor.
func (p *Plugin) ConfigureWorker(ctx context.Context, o sdkworker.PluginConfigureWorkerOptions) error {
	err := p.SimplePlugin.ConfigureWorker(ctx, o)
	if err == nil {
		p.registrar.madeWorker(o)
	}
	return err
}

// StartWorker starts the worker, and the janitor unless it has started already. The SDK asks the server about the worker's namespace then; if the worker may not describe
// it, or no server answers, the error is a *[NamespaceError].
func (p *Plugin) StartWorker(
	ctx context.Context, o sdkworker.PluginStartWorkerOptions, next func(context.Context, sdkworker.PluginStartWorkerOptions) error,
) error {
	await := p.registrar.begin(o.WorkerInstanceKey)
	p.interceptor.Learn(ctx)
	await() // a worker that polls and has not registered seems to have no Lockstep
	err := p.SimplePlugin.StartWorker(ctx, o, next)
	if err != nil {
		p.registrar.end(o.WorkerInstanceKey)
	}
	var denied *serviceerror.PermissionDenied
	if errors.As(err, &denied) {
		return &NamespaceError{Err: err}
	}
	if err == nil && p.janitors != nil {
		p.janitors.started(o.WorkerInstanceKey)
	}
	return err
}

// flushWithin bounds how long the end of a worker waits for the locks of runs that it has completed.
const flushWithin = 2 * time.Second

// StopWorker stops the worker, and ends the janitor with the last one. What runs hold that it has completed is released first.
func (p *Plugin) StopWorker(
	ctx context.Context, o sdkworker.PluginStopWorkerOptions, next func(context.Context, sdkworker.PluginStopWorkerOptions),
) {
	p.registrar.end(o.WorkerInstanceKey)
	p.SimplePlugin.StopWorker(ctx, o, next)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
	defer cancel()
	p.interceptor.Flush(ctx)
	if p.janitors != nil {
		p.janitors.stopped(o.WorkerInstanceKey)
	}
}

// NewReplayPlugin makes a plugin for worker.WorkflowReplayerOptions.Plugins: it replays histories of
// guarded workflows and needs no database. On a live worker, guarded steps would fail with it.
func NewReplayPlugin() *Plugin {
	return newPlugin(interceptors.New(interceptors.Options{}), nil, func(activities.Registry) {})
}

func newPlugin(own *interceptors.Interceptor, rules []Rule, register func(activities.Registry)) *Plugin {
	var workers sync.Map // their *registrations, by key
	simple, err := temporal.NewSimplePlugin(temporal.SimplePluginOptions{
		Name: PluginName,
		ConfigureWorker: func(_ context.Context, o sdkworker.PluginConfigureWorkerOptions) error {
			if options := own.Options(); o.WorkerOptions.LocalActivityWorkerOnly && !o.WorkerOptions.DisableWorkflowWorker &&
				options.Locker != nil && options.TaskQueue == "" {
				return &lockcore.InvalidError{
					Field: "worker.Options.TaskQueue", Value: `""`,
					Bound: "a task queue whose workers run activities and have Lockstep: this worker has LocalActivityWorkerOnly",
				}
			}
			given := &registrations{funcs: map[string]reflect.Type{}}
			if _, twice := workers.LoadOrStore(o.WorkerInstanceKey, given); !twice {
				given.listen(o.WorkerRegistryOptions)
			}
			if slots := o.WorkerOptions.MaxConcurrentActivityExecutionSize; slots > 0 && own.Options().Locker != nil {
				own.Options().Locker.Core().LimitInlineWaits(slots / 4)
			}
			return install(&o.WorkerOptions.Interceptors, own)
		},
		ConfigureWorkflowReplayer: func(_ context.Context, o sdkworker.PluginConfigureWorkflowReplayerOptions) error {
			return install(&o.WorkflowReplayerOptions.Interceptors, own)
		},
		RunContextBefore: func(_ context.Context, o temporal.SimplePluginRunContextBeforeOptions) error {
			register(o.Registry)
			given, isWorker := workers.Load(o.InstanceKey)
			if !isWorker { // but a replayer, which has no activities
				return nil
			}
			return given.(*registrations).check(o.Registry, rules)
		},
		RunContextAfter: func(_ context.Context, o temporal.SimplePluginRunContextAfterOptions) {
			workers.Delete(o.InstanceKey)
		},
	})
	if err != nil {
		panic(err) // it refuses only a plugin without a name
	}
	return &Plugin{SimplePlugin: simple, interceptor: own}
}

// install appends the interceptor unless one of its kind is there already.
func install(list *[]interceptor.WorkerInterceptor, own *interceptors.Interceptor) error {
	for _, other := range *list {
		if there, ok := other.(*interceptors.Interceptor); ok {
			if !there.Options().Same(own.Options()) {
				return &lockcore.InvalidError{
					Field: "worker.Options.Plugins", Value: "a second Lockstep plugin, with another Locker, task queue or other rules",
					Bound: "one plugin for the client and its workers, or the same Locker, TaskQueue and rules in each",
				}
			}
			return nil
		}
	}
	*list = append(*list, own)
	return nil
}
