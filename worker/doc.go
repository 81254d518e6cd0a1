// Package worker installs Lockstep in a Temporal worker. A plugin on the client reaches every worker that is made from it:
//
//	plugin, err := worker.NewPlugin(worker.Options{Locker: locker})
//	c, err := client.Dial(client.Options{Plugins: []client.Plugin{plugin}})
//	w := sdkworker.New(c, "payments", sdkworker.Options{})
//
// The same plugin fits in worker.Options.Plugins and worker.WorkflowReplayerOptions.Plugins. If a worker meets it twice, it
// guards once. Two plugins on one worker that differ in Locker or rules are refused when the worker is made.
//
// A worker that uses no plugins takes two halves, with the same options. They have no janitor: run "lockstep janitor" beside.
//
//	guards, err := worker.Interceptor(o)
//	w := sdkworker.New(c, "payments", sdkworker.Options{Interceptors: []interceptor.WorkerInterceptor{guards}})
//	err = worker.Register(w, o)
//
// What is installed: an interceptor, after those that are there, so that their spans enclose the locks'; activities whose
// names begin with "lockstep."; and the janitor, which asks Temporal about the runs that hold locks, releases
// what closed ones left, and extends what open ones hold (see [JanitorOptions]).
//
// Workflows that ask for no locks run as before: no event, no database command, and their histories replay. Install
// the plugin on all workers of a task queue before workflows ask for locks. A worker without it fails the workflow task of such a
// workflow, and another worker takes it; but it runs guarded activities without their locks.
//
// Lock IDs begin with the ID of the worker's namespace, for which Temporal is asked. So several clusters may share a
// database. A worker that may not describe its namespace does not start, and its error is a *[NamespaceError].
//
// The Locker and its MongoDB client are the caller's: the plugin does not close them, and they must outlive the worker.
package worker
