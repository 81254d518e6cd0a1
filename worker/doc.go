// Package worker installs Lockstep in Temporal workers. A plugin on the client reaches every worker that is made from the client:
//
//	plugin, err := worker.NewPlugin(worker.Options{Locker: locker})
//	c, err := client.Dial(client.Options{Plugins: []client.Plugin{plugin}})
//	w := sdkworker.New(c, "payments", sdkworker.Options{})
//
// The same plugin fits in worker.Options.Plugins and worker.WorkflowReplayerOptions.Plugins. If a worker gets it twice, it guards once. Two
// plugins on one worker that differ in Locker or rules are refused when the worker is made.
//
// The plugin installs three things:
//
//   - an interceptor, after the existing ones, so that their spans enclose those of the locks;
//   - activities whose names begin with "lockstep.";
//   - the janitor, which asks Temporal about the runs that hold locks, releases what closed runs left, and extends what open runs hold
//     (see [JanitorOptions]).
//
// A worker without plugins uses two functions, with the same options. It has no janitor: run "lockstep janitor" too.
//
//	guards, err := worker.Interceptor(o)
//	w := sdkworker.New(c, "payments", sdkworker.Options{Interceptors: []interceptor.WorkerInterceptor{guards}})
//	err = worker.Register(w, o)
//
// # Rollout
//
// Workflows that use no locks run as before: no event, no database command, and their histories replay. Install the plugin on all workers of
// a task queue before workflows use locks. A worker without it fails the workflow task of such a workflow, and another worker takes the
// task; but it runs guarded activities without their locks.
//
// # Namespaces
//
// Lock IDs begin with the ID of the worker's namespace, so several clusters may share a database. The worker asks Temporal for the ID. A
// worker that may not describe its namespace does not start, and its error is a *[NamespaceError].
//
// # Ownership
//
// The Locker and its MongoDB client belong to the caller: the plugin does not close them, and they must outlive the worker.
package worker
