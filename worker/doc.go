// Package worker installs Lockstep in a Temporal worker, in one line.
//
// # With a plugin
//
// A plugin on the client reaches every worker that is made from it:
//
//	plugin, err := worker.NewPlugin(worker.Options{Locker: locker})
//	c, err := client.Dial(client.Options{Plugins: []client.Plugin{plugin}})
//	w := sdkworker.New(c, "payments", sdkworker.Options{})
//
// The same plugin fits in worker.Options.Plugins and in worker.WorkflowReplayerOptions.Plugins. Where it
// is met twice, it guards once and registers once. Two plugins on one worker that differ in Locker or rules are
// refused when the worker is made.
//
// # Without
//
// A worker that exists already, and uses no plugins, takes the two halves:
//
//	own, err := worker.Interceptor(o)
//	w := sdkworker.New(c, "payments", sdkworker.Options{Interceptors: []interceptor.WorkerInterceptor{own}})
//	err = worker.Register(w, o)
//
// Both halves take the same options. What the one takes in another collection the other would not find to release. They
// have no janitor: run the command "lockstep janitor" beside such workers.
//
// # Namespaces and clusters
//
// Lock IDs and owners begin with the ID of the worker's namespace, which Temporal is asked for (DescribeNamespace): so several
// clusters may share a database, and need no names. A worker that may not describe its namespace does not start, and its
// error is a *NamespaceError.
//
// # What is installed
//
// The interceptor of package interceptors, after those that are there already, so that spans of
// tracing interceptors enclose the locks'; and the activities of package activities, under names that begin with "lockstep.".
// Workflows that ask for no locks run as before: no event, no database command, and their histories
// replay.
//
// The plugin also has the janitor, which asks Temporal about the runs that hold locks: it releases what terminated workflows
// have left, and extends what open ones hold. See [JanitorOptions].
//
// # Rolling out
//
// Install it on all workers of a task queue first, and let workflows ask for locks then. A worker
// without the interceptor that runs workflow code fails the workflow task where locks are asked for,
// and another worker takes it; one that runs activities runs guarded steps without their locks.
//
// # What it does not do
//
// It does not close the Locker: that and its MongoDB client are the caller's, and must outlive the worker. Workflows whose turn has come are woken in the background, by as many goroutines as there are to wake, within bounds.
package worker
