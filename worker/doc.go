// Package worker installs Lockstep in Temporal workers. Give the plugin to the client. Every worker made from that client gets it:
//
//	plugin, err := worker.NewPlugin(worker.Options{Locker: locker})
//	c, err := client.Dial(client.Options{Plugins: []client.Plugin{plugin}})
//	w := sdkworker.New(c, "payments", sdkworker.Options{})
//
// In these examples, sdkworker is the package worker of Temporal's SDK. The same plugin can be used in sdkworker.Options.Plugins and
// sdkworker.WorkflowReplayerOptions.Plugins. Installing it twice has no further effect. Two plugins on one worker that differ in Locker or rules
// are refused when the worker is made.
//
// The plugin installs an interceptor, innermost, so that the spans of other interceptors enclose those of the locks; activities whose names begin
// with "lockstep."; and the janitor, which asks Temporal about the runs that hold locks (see [JanitorOptions]).
//
// Without the plugin, call [Interceptor] and [Register] with the same options. Then no janitor runs: start "lockstep janitor" too.
//
//	guards, err := worker.Interceptor(o)
//	w := sdkworker.New(c, "payments", sdkworker.Options{Interceptors: []interceptor.WorkerInterceptor{guards}})
//	err = worker.Register(w, o)
//
// # Rollout
//
// Workflows that use no locks run as before: no event, no database command, and their histories replay. Install the plugin on all workers of
// a task queue before workflows use locks. A worker without the plugin fails the workflow task of such a workflow, which Temporal then gives
// to another worker. But it runs guarded activities without their locks.
//
// # Namespaces
//
// Lock IDs begin with the ID of the worker's namespace, so several Temporal clusters can share a database. The worker asks Temporal for the
// ID. A worker without permission for DescribeNamespace does not start.
//
// # The Locker
//
// The Locker and its MongoDB client belong to the caller: the plugin does not close them, and they must outlive the worker.
package worker
