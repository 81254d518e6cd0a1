package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.temporal.io/api/proxy"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

func TestDoctor_Indexes_MissingUnusedOrUsed(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	finds := func(want string) {
		t.Helper()
		_, out, stderr := l.lockstep(t, "doctor")
		require.Contains(t, out, want, stderr)
		// The tests' server is FerretDB, which has no replica sets, or a replica set of one member.
		require.Regexp(t, `(?m)^(warning|ok) +replica set `, out)
	}
	l.ask(t, "holder", "p", "r") // which makes the collection
	finds("not there: lockstep_idle, lockstep_attn\n")
	finds("→ lockstep init --database " + l.database + " makes them")
	l.prints(t, "init")
	finds("both are there")
	idle := make([]any, 20_000)
	for i := range idle {
		idle[i] = bson.D{
			{Key: "_id", Value: fmt.Sprint("idle/", i)}, {Key: "entries", Value: bson.A{}}, {Key: "waiters", Value: bson.A{}},
			{Key: "attn", Value: bson.A{}}, {Key: "idleAt", Value: time.Now()},
		}
	}
	_, err := testenv.Mongo(t).Client().Database(l.database).Collection(defaultCollection).InsertMany(t.Context(), idle)
	require.NoError(t, err)
	finds("both are there, and used to find what is contended\n")
}

// examined returns what the doctor prints. All tests share a namespace, so the check of its workers may find those of another test.
func (l *locks) examined(t *testing.T, args ...string) string {
	t.Helper()
	_, stdout, stderr := l.lockstep(t, append([]string{"doctor"}, args...)...)
	require.Regexp(t, `^(lockstep: (broken|unknown): workers\n)?$`, stderr)
	return stdout
}

// newNamespace returns the name of a new namespace, for tests that must not find the workers of other tests.
func newNamespace(t *testing.T) string {
	t.Helper()
	c, name := testenv.Temporal(t), testenv.TaskQueue(t)
	_, err := c.WorkflowService().RegisterNamespace(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: name, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := c.WorkflowService().DescribeTaskQueue(t.Context(), &workflowservice.DescribeTaskQueueRequest{
			Namespace: name, TaskQueue: &taskqueuepb.TaskQueue{Name: name},
		})
		return err == nil
	}, within, 50*time.Millisecond, "the namespace is not known")
	return name
}

func TestDoctor_WorkerWithoutThePlugin_IsNamed(t *testing.T) {
	t.Parallel()
	l, namespace, queue := newLocks(t), newNamespace(t), testenv.TaskQueue(t)
	plugin := func() *worker.Plugin {
		p, err := worker.NewPlugin(worker.Options{Locker: l.Locker, Janitor: worker.JanitorOptions{Off: true}})
		require.NoError(t, err)
		return p
	}
	work := func(identity string, heartbeats time.Duration, o sdkworker.Options, plugins ...client.Plugin) (stop func()) {
		c, err := client.DialContext(t.Context(), client.Options{
			HostPort: testenv.TemporalAddress(t), Namespace: namespace, Identity: identity, Plugins: plugins, WorkerHeartbeatInterval: heartbeats,
		})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		w := sdkworker.New(c, queue, o)
		w.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: "A"})
		require.NoError(t, w.Start())
		return w.Stop
	}
	untilFound := func(want ...string) {
		t.Helper()
		var out string
		require.Eventually(t, func() bool {
			_, out, _ = l.lockstep(t, "doctor", "--namespace", namespace)
			require.NotContains(t, out, "does not list its workers", "this test needs the list: make stack-down stack-up, or see docs/stack.md")
			return !slices.ContainsFunc(want, func(text string) bool { return !strings.Contains(out, text) })
		}, within, 100*time.Millisecond, "%q was not found", want)
	}
	l.prints(t, "init")
	untilFound("warning  workers      Temporal knows of no worker with the plugin that polls")
	// The plugin on the client, the plugin on the worker alone, and an identity of the worker's own.
	defer work("by the client", time.Second, sdkworker.Options{}, plugin())()
	defer work("", time.Second, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin()}})()
	defer work("", time.Second, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin()}, Identity: "by the worker"})()
	untilFound("ok       workers      on 1 task queue every poller has Lockstep")

	// A worker that has no heartbeats may have the plugin.
	defer work("silent", -1, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin()}})()
	untilFound("unknown  workers      workers without heartbeats poll task queues of workers with Lockstep: "+queue+" (silent)\n", "repeat the check in five minutes")

	stop := work("a stranger", time.Second, sdkworker.Options{})
	untilFound("broken   workers      workers without Lockstep poll task queues of workers with it: "+queue+" (a stranger)\n", "install the plugin there, or stop them")
	stop()
	untilFound("unknown  workers      ", queue+" (silent)\n") // the stranger is still named as a poller
}

// TestDoctor_ServerWithoutListOfWorkers_IsUnknown has a server in front of Temporal that answers as 1.29 does by default, or one that lists
// workers but accepts no heartbeats.
func TestDoctor_ServerWithoutListOfWorkers_IsUnknown(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.prints(t, "init")
	for want, answer := range map[string]grpc.UnaryServerInterceptor{
		"the server does not list its workers: method ListWorkers not supported": func(
			ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
		) (any, error) {
			if _, is := req.(*workflowservice.ListWorkersRequest); is {
				return nil, serviceerror.ToStatus(serviceerror.NewUnimplemented("method ListWorkers not supported")).Err()
			}
			return handler(ctx, req)
		},
		"the server accepts no heartbeats of workers, and so does not know their plugins": func(
			ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
		) (any, error) {
			if _, is := req.(*workflowservice.ListWorkersRequest); is {
				return &workflowservice.ListWorkersResponse{}, nil
			}
			reply, err := handler(ctx, req)
			if d, is := reply.(*workflowservice.DescribeNamespaceResponse); is {
				d.GetNamespaceInfo().GetCapabilities().WorkerHeartbeats = false
			}
			return reply, err
		},
	} {
		front, err := proxy.NewWorkflowServiceProxyServer(proxy.WorkflowServiceProxyOptions{Client: testenv.Temporal(t).WorkflowService()})
		require.NoError(t, err)
		server := grpc.NewServer(grpc.UnaryInterceptor(answer))
		workflowservice.RegisterWorkflowServiceServer(server, front)
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(server.Stop)
		go func() { _ = server.Serve(listener) }() // it returns after Stop

		code, out, stderr := l.lockstep(t, "doctor", "--temporal-address", listener.Addr().String())
		require.Equal(t, 1, code, "unknown is a failure")
		require.Equal(t, "lockstep: unknown: workers\n", stderr)
		require.Contains(t, out, "unknown  workers      "+want+"\n")
		require.Contains(t, out, "set frontend.WorkerHeartbeatsEnabled and frontend.ListWorkersEnabled to true")
	}
}

// doorKeeper makes this test binary a worker that a test kills. The value is "database queue".
const doorKeeper = "LOCKSTEP_TEST_DOOR_KEEPER"

// runDoorKeeper serves the activities of a door until the process is killed, if the process was started for that. Its locks end
// 45 s later; the drill needs 20 s of that.
func runDoorKeeper() {
	database, queue, wanted := strings.Cut(os.Getenv(doorKeeper), " ")
	if !wanted {
		return
	}
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	m, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("LOCKSTEP_MONGODB_URI")))
	must(err)
	locker, err := lockcore.New(m.Database(database).Collection("locks"), lockcore.Config{TTL: 45 * time.Second})
	must(err)
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker, Janitor: worker.JanitorOptions{Off: true}})
	must(err)
	c, err := client.Dial(client.Options{HostPort: os.Getenv("TEMPORAL_ADDRESS")})
	must(err)
	d := &door{work: make(chan struct{})}
	w := sdkworker.New(c, queue, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}, Identity: "the keeper", DisableWorkflowWorker: true})
	w.RegisterActivity(d.Work)
	must(w.Run(make(chan any)))
	os.Exit(1)
}

// A drill: a worker is killed while its step holds the door.
func TestWhy_KilledWorker_AdvisesReleaseThatWorks(t *testing.T) {
	t.Parallel()
	d := openDoorWith(t, sdkworker.Options{LocalActivityWorkerOnly: true})
	keeper := exec.CommandContext(t.Context(), os.Args[0])
	keeper.Env = append(keeper.Environ(), append(servers(t), doorKeeper+"="+d.database+" "+d.queue)...)
	require.NoError(t, keeper.Start())
	killed := d.come(t, "Enter", lockcore.StateHolding)
	waits := d.come(t, "Enter", lockcore.StateWaiting)
	require.Eventually(t, func() bool { // it waits without a worker
		found, err := d.client.DescribeWorkflowExecution(t.Context(), waits.GetID(), "")
		return err == nil && slices.ContainsFunc(found.GetPendingActivities(), func(a *workflowpb.PendingActivityInfo) bool {
			return a.GetActivityType().GetName() == "lockstep.Wait" && a.GetAttempt() > 1
		})
	}, within, 50*time.Millisecond)
	require.NoError(t, keeper.Process.Kill())
	_ = keeper.Wait() // it was killed

	var why string
	require.Eventually(t, func() bool {
		why = d.prints(t, "why", waits.GetID())
		return strings.Contains(why, "nothing was heard of its worker the keeper for ")
	}, within, 500*time.Millisecond)
	_, repair, found := strings.Cut(why, "or now: lockstep ")
	require.True(t, found, why)
	repair, _, _ = strings.Cut(repair, "\n")
	again := d.worker(t, sdkworker.Options{DisableWorkflowWorker: true})
	require.NoError(t, again.Start())
	defer again.Stop()
	c := exec.CommandContext(t.Context(), "bash", "-c", "exec "+binary+" "+repair+" --now --yes") // copied from the advice
	c.Env = append(c.Environ(), servers(t)...)
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	close(d.work)
	require.NoError(t, waits.Get(t.Context(), nil))
	require.NoError(t, d.client.TerminateWorkflow(t.Context(), killed.GetID(), killed.GetRunID(), "a drill"))
}

// A drill: two workers of one namespace keep their locks in different collections.
func TestDoctor_WorkersOnDifferentCollections_AreFound(t *testing.T) {
	t.Parallel()
	l, queue := newLocks(t), testenv.TaskQueue(t)
	doctor := func() string {
		_, out, _ := l.lockstep(t, "doctor")
		return out
	}
	one := l.start(t, "worker", "--task-queue", queue)
	require.Eventually(t, func() bool { return strings.Contains(doctor(), "ok       janitor ") }, within, 500*time.Millisecond)
	require.Contains(t, doctor(), "ok       collections ")
	other := l.start(t, "worker", "--task-queue", queue, "--collection", "more")
	var found string
	require.Eventually(t, func() bool {
		found = doctor()
		return strings.Contains(found, `broken   collections  workers of this namespace also use the collection "more": the locks`)
	}, within, 500*time.Millisecond)
	require.Contains(t, found, "give all workers the same collection")

	other.interrupt(t)
	require.Zero(t, other.wait(t), &other.stderr)
	require.Eventually(t, func() bool { return strings.Contains(doctor(), "ok       collections ") }, within, 500*time.Millisecond)
	one.interrupt(t)
	require.Zero(t, one.wait(t), &one.stderr)
}

// A drill: the database is away for a while.
func TestDoctor_DatabaseAway_LocksRemain(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	holder := d.come(t, "Enter", lockcore.StateHolding)
	wire, uri := testenv.MongoByWire(t)
	env := append(servers(t), "LOCKSTEP_MONGODB_URI="+uri)
	wire.Cut()
	code, out, stderr := lockstep(t, env, "doctor", "--database", d.database)
	require.Equal(t, 1, code)
	require.Contains(t, out, "unknown  database     LOCKSTEP_MONGODB_URI: no database answers at ", stderr)
	wire.Mend()
	_, out, stderr = lockstep(t, env, "doctor", "--database", d.database)
	require.Regexp(t, `(?m)^(ok|warning) +writing `, out, stderr) // it warns on a slow machine
	code, out, stderr = lockstep(t, env, "show", "door", "--database", d.database)
	require.Zero(t, code, stderr)
	require.Contains(t, out, holder.GetID()+" holds door (exclusive)")
	close(d.work)
	require.NoError(t, holder.Get(t.Context(), nil))
}

func TestDoctor_SmallPool_IsWarning(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.prints(t, "init")
	given, err := url.Parse(os.Getenv(uriVariable))
	require.NoError(t, err)
	for size, want := range map[string]string{
		"":   "ok       connections  the URI allows each client 100 connections\n",
		"0":  "ok       connections  the URI does not limit the connections of a client\n",
		"30": "ok       connections  the URI allows each client 30 connections\n",
		"4":  "warning  connections  the URI limits each client to 4 connections\n",
	} {
		uri, query := *given, given.Query()
		if query.Del("maxPoolSize"); size != "" {
			query.Set("maxPoolSize", size)
		}
		uri.RawQuery = query.Encode()
		require.Contains(t, l.examined(t, "--mongodb-uri", uri.String()), want)
	}
}

func TestDoctor_DifferentLimitsOfASemaphore_AreFound(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	ask := func(lockID string, limit int) {
		_, err := l.TryEnter(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: lockID}, TTL: time.Hour, Resources: []lockcore.Resource{lockcore.SharedLimit("printer", limit)}})
		require.NoError(t, err)
	}
	ask("a", 2)
	ask("b", 2)
	require.Contains(t, l.examined(t), "ok       semaphores   all requests of a semaphore name the same limit\n")
	ask("c", 3)
	require.Contains(t, l.examined(t), `warning  semaphores   1 resource is requested with different limits, such as "printer" (limits 2, 3); 0 is none`)
}

func TestDoctor_Pools_AreChecked(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.prints(t, "init")
	require.Contains(t, l.examined(t), "ok       pools        there is none\n")
	l.prints(t, "pool", "phones", "phone-1")
	l.prints(t, "pool", "desks", "desk-1")
	l.poolRequest(t, "order-1", "phones", 0)
	l.poolRequest(t, "order-2", "phones", 0)
	require.Contains(t, l.examined(t), "ok       pools        2 have members in service, and share none\n")
	require.Contains(t, l.examined(t), "ok       policies     2 are set, and match", "an idle pool is not stored")
	l.prints(t, "pool", "desks", "--out", "desk-1", "--reason", "repair")
	l.prints(t, "pool", "phones", "--delete")
	found := l.examined(t)
	require.Contains(t, found, `warning  pools        1 has no member in service: "desks"; on 1 resource requests wait that are never granted: "phones", which is no pool`)
	require.Contains(t, found, "→ requests wait until lockstep pool NAME --in MEMBER --database "+l.database+"; make the pool, by lockstep pool NAME MEMBER... --database ")
	require.Contains(t, l.prints(t, "why", "order-2", "--no-temporal"), "phones: there is no such pool: an operator has removed it\n")

	l.ask(t, "printing-1", "p", "printers")
	l.ask(t, "printing-2", "p", "printers")
	l.prints(t, "pool", "printers", "printer-1")
	require.Contains(t, l.examined(t), `"printers", which is a pool, and asked for as exclusive`)

	twice := bson.D{{Key: "name", Value: "chairs"}, {Key: "members", Value: bson.A{bson.D{{Key: "name", Value: "desk-1"}}}}, {Key: "by", Value: "by hand"}, {Key: "at", Value: time.Now()}, {Key: "reason", Value: ""}}
	_, err := l.collection(t).UpdateByID(t.Context(), store.IdentityID, bson.D{{Key: "$push", Value: bson.D{{Key: "policies", Value: twice}}}})
	require.NoError(t, err)
	_, out, _ := l.lockstep(t, "doctor")
	require.Contains(t, out, `broken   pools        1 member is in several pools, which grant it independently of each other: "desk-1" ("desks", "chairs")`)
}

// A step under a rule waits in attempts. A step with a guard, and the same limit, is parked, which uses up none.
func TestDoctor_WaitsUseUpAttempts_AreNamed(t *testing.T) {
	t.Parallel()
	l, queue, c := newLocks(t), testenv.TaskQueue(t), testenv.Temporal(t)
	plugin, err := worker.NewPlugin(worker.Options{
		Locker: l.Locker, Janitor: worker.JanitorOptions{Off: true},
		Rules: []worker.Rule{worker.RuleFor("Ruled", func(string) []lockcore.Resource { return []lockcore.Resource{lockcore.Exclusive("r")} })},
	})
	require.NoError(t, err)
	w := sdkworker.New(c, queue, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context, activityType string) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			StartToCloseTimeout: within, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 5, InitialInterval: within},
		})
		if activityType == "Guarded" {
			ctx = workflows.Guard(ctx, lockcore.Exclusive("r"))
		}
		return workflow.ExecuteActivity(ctx, activityType, "").Get(ctx, nil)
	}, workflow.RegisterOptions{Name: "W"})
	for _, name := range []string{"Ruled", "Guarded"} {
		w.RegisterActivityWithOptions(func(context.Context, string) error { return nil }, activity.RegisterOptions{Name: name})
	}
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	holder := l.ask(t, "holder", "p", "r")
	waits := func(activityType, state string) client.WorkflowRun {
		run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue}, "W", activityType)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			d, err := c.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
			return err == nil && len(d.GetPendingActivities()) == 1 && d.GetPendingActivities()[0].GetActivityType().GetName() == state &&
				d.GetPendingActivities()[0].GetLastFailure().GetApplicationFailureInfo().GetType() == "lockstep.Busy"
		}, within, 20*time.Millisecond)
		return run
	}
	guarded := waits("Guarded", "lockstep.Wait")
	require.Contains(t, l.examined(t), "ok       attempts     no activity uses up its attempts by waiting\n")
	ruled := waits("Ruled", "Ruled")
	require.Regexp(t, `(?m)^warning  attempts     1 activity that may be attempted only a few times waits for a lock, such as Ruled \(\d+\) of "`+
		ruled.GetID()+`", in attempt [1-5] of 5\n +→ under a rule each wait uses up an attempt`, l.examined(t))
	require.NoError(t, l.Leave(t.Context(), holder))
	require.NoError(t, guarded.Get(t.Context(), nil))
	require.NoError(t, ruled.Get(t.Context(), nil))
}

func TestDoctor_SagaCommittedAfterALoss_IsNamed(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.prints(t, "init")
	require.Contains(t, l.examined(t), "ok       commits      no saga of the last 24 h committed after it had lost a lock\n")
	req := lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: "saga", Run: "run", Part: "p", Order: lockcore.Order{Schedule: 1, Attempt: 1}}, TTL: 100 * time.Millisecond, HoldTTL: 100 * time.Millisecond,
		Keep: true, Resources: []lockcore.Resource{lockcore.Exclusive("account/42")},
	}
	_, err := l.TryEnter(t.Context(), req)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := l.TryEnter(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "other"}, Resources: []lockcore.Resource{lockcore.Exclusive("account/42")}})
		return err == nil
	}, time.Minute, 50*time.Millisecond)
	missed, err := l.ReleaseCommitted(t.Context(), lockcore.Release{LockID: "saga", Run: "run", Resources: []string{"account/42"}, Order: lockcore.LastAttempt(1)})
	require.NoError(t, err)
	require.Len(t, missed, 1)
	const told = `saga of saga committed although it had lost account/42 at \S+ \S+ UTC: evicted by other\n`
	require.Regexp(t, `warning  commits      1 in 24 h came after a loss, such as: `+told, l.examined(t))
	require.Regexp(t, told, l.prints(t, "why", "saga"))
}

// All checks that can be made are made. The others are unknown, and the reason appears once.
func TestDoctor_ServerOrCollectionMissing_JudgesTheRest(t *testing.T) {
	t.Parallel()
	l, namespace := newLocks(t), newNamespace(t)
	l.prints(t, "init")
	db := testenv.Mongo(t).Client().Database(l.database)
	foreign := db.Collection("orders")
	_, err := foreign.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "order/1"}})
	require.NoError(t, err)
	const ofLocks, ofTemporal = "indexes, writing, janitor, orphans, commits, documents, deadlocks, semaphores, policies, pools, attempts", "Temporal API, janitor, collections, workers, orphans, attempts"
	for name, c := range map[string]struct{ args, once, see, stderr string }{
		"no database": {
			"--mongodb-uri mongodb://127.0.0.1:1/", "unknown  database     --mongodb-uri: no database answers at [127.0.0.1:1]", "unknown  collections  not checked: see database\n",
			"unknown: database, replica set, clocks, connections, collection, indexes, writing, janitor, collections, orphans, commits, documents, deadlocks, semaphores, policies, pools, attempts",
		},
		"no Temporal": {
			"--temporal-address 127.0.0.1:1", "unknown  Temporal     no Temporal server answers at 127.0.0.1:1", "unknown  collections  not checked: see Temporal\n",
			"unknown: Temporal, " + ofTemporal,
		},
		"neither": {
			"--mongodb-uri mongodb://127.0.0.1:1/ --temporal-address 127.0.0.1:1", "no database answers at", "unknown  janitor      not checked: see collection and Temporal\n",
			"unknown: database, replica set, clocks, connections, collection, indexes, writing, Temporal, Temporal API, janitor, collections, workers, orphans, commits, documents, deadlocks, semaphores, policies, pools, attempts",
		},
		"no namespace": {
			"--namespace nowhere", "broken   Temporal     the server does not know the namespace at", "unknown  workers      not checked: see Temporal\n",
			"broken: Temporal; unknown: " + ofTemporal,
		},
		"no collection": {
			"--collection nothing", `broken   collection   there is no collection of locks: database "` + l.database + `" has no collection "nothing", or it is empty`,
			"unknown  writing      not checked: see collection\n", "broken: collection; unknown: " + ofLocks,
		},
		"another's collection": {
			"--collection orders", `broken   collection   lockstep: the collection "orders" has another layout`, "unknown  writing      not checked: see collection\n",
			"broken: collection; unknown: " + ofLocks,
		},
	} {
		code, out, stderr := l.lockstep(t, append([]string{"doctor", "--namespace", namespace}, strings.Fields(c.args)...)...)
		require.Equal(t, 1, code, name)
		require.Equal(t, "lockstep: "+c.stderr+"\n", stderr, name)
		require.Regexp(t, `^((ok|warning|broken|unknown) .*\n( +→ .*\n)*){20}$`, out, name)
		require.Equal(t, 1, strings.Count(out, c.once), name+"\n"+out)
		require.Contains(t, out, c.see, name)
	}
	names, err := db.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{defaultCollection, "orders"}, names, "it makes no collection")
	n, err := foreign.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.EqualValues(t, 1, n, "it writes to no collection of others")
}
