package worker

import (
	"errors"

	sdkinterceptor "go.temporal.io/sdk/interceptor"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Options is what a worker needs to guard steps.
type Options struct {
	// Locker takes and keeps the locks. Required.
	Locker *lockcore.Locker
	// Cluster names the Temporal cluster in lock IDs, so that several clusters can share a database: 1
	// to 64 bytes without "/". All workers of a cluster must say the same. Defaults to "default".
	Cluster string
}

// NewPlugin makes a plugin that installs Lockstep: its interceptor and its activities. Give it to
// client.Options.Plugins, from where it reaches every worker made from that client, or to
// worker.Options.Plugins; given to both, it guards once and registers once:
//
//	plugin, err := worker.NewPlugin(worker.Options{Locker: locker})
//	c, err := client.Dial(client.Options{Plugins: []client.Plugin{plugin}})
//
// The error is a *lockcore.InvalidError that names the option.
func NewPlugin(o Options) (*Plugin, error) { return nil, errors.ErrUnsupported }

// NewReplayPlugin makes a plugin for worker.WorkflowReplayerOptions.Plugins: it replays histories of
// guarded workflows and needs no database.
func NewReplayPlugin() *Plugin { return nil }

// Interceptor makes the worker interceptor alone, for worker.Options.Interceptors of a worker that
// uses no plugins. Such a worker calls [Register] too. The error is a *lockcore.InvalidError that names the option.
func Interceptor(o Options) (sdkinterceptor.WorkerInterceptor, error) {
	return nil, errors.ErrUnsupported
}

// Register registers Lockstep's activities on a worker that already exists; it may be called again.
// The error is a *lockcore.InvalidError that names the option.
func Register(registry sdkworker.ActivityRegistry, o Options) error { return errors.ErrUnsupported }
