package worker_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/internal/wire"

	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

func TestMain(m *testing.M) {
	wire.SetHoldTTL(0, wire.VerifyAfter()) // tests of losses have holds that last for less than a second
	if os.Getenv(childVariable) != "" {
		child()
		return
	}
	testenv.Main(m)
}

// within bounds what a test waits for: long, since machines are slow and only failures take it.
const within = 2 * time.Minute

// soon bounds what happens right after the end of a run: long enough for a busy machine, and shorter than the promises of the tests.
const soon = 20 * time.Second

// longer is a promise that no test outlives, and lookEvery how often one looks.
const (
	longer    = time.Hour
	lookEvery = 20 * time.Millisecond
)

// bundle has a test's own database, its task queue, and the workers on it.
type bundle struct {
	client client.Client
	locker *lockcore.Steps
	plugin *worker.Plugin
	queue  string
	// database is the address of the locks, for other processes.
	database string

	workflows map[string]any
	*events
}

// events is the log of a test.
type events struct {
	mu    sync.Mutex
	lines []string
}

func setup(t *testing.T, rules ...worker.Rule) *bundle {
	t.Helper()
	return setupWith(t, lockcore.Config{}, rules...)
}

func setupWith(t *testing.T, config lockcore.Config, rules ...worker.Rule) *bundle {
	t.Helper()
	db := testenv.Mongo(t)
	locker, err := lockcore.New(db.Collection(lockCollection), config)
	require.NoError(t, err)
	closeAtEnd(t, locker.Steps())
	// Without a janitor, which would mend what tests of other things break.
	plugin := newPlugin(t, worker.Options{Locker: locker, Rules: rules})
	c := testenv.Temporal(t)
	askForNamespace(t, c)
	return &bundle{
		client: c, locker: locker.Steps(), plugin: plugin, queue: testenv.TaskQueue(t), database: db.Name(),
		workflows: map[string]any{}, events: &events{},
	}
}

// closeAtEnd ends what a Locker still does when the test ends. What it cannot do within a second
// ends with its TTL.
func closeAtEnd(t *testing.T, l *lockcore.Steps) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.Close(ctx) // the test may have cut its database off
	})
}

const lockCollection = "locks"

var (
	// namespaceID is that of the namespace "default", which the first test asks for.
	namespaceID   string
	askNamespaces sync.Once
)

func askForNamespace(t *testing.T, c client.Client) {
	t.Helper()
	askNamespaces.Do(func() {
		answer, err := c.WorkflowService().DescribeNamespace(t.Context(), &workflowservice.DescribeNamespaceRequest{Namespace: "default"})
		require.NoError(t, err)
		namespaceID = answer.GetNamespaceInfo().GetId()
	})
	require.NotEmpty(t, namespaceID)
}

// work starts a worker with the plugin, the workflows so far, the bundle's own activities and the given ones, until the test ends.
func (b *bundle) work(t *testing.T, o sdkworker.Options, activities map[string]any) sdkworker.Worker {
	t.Helper()
	if o.Plugins == nil && o.LocalActivityWorkerOnly {
		b.plugin = newPlugin(t, worker.Options{Locker: b.locker.Locker, TaskQueue: b.queue})
	}
	if o.Plugins == nil {
		o.Plugins = []sdkworker.Plugin{b.plugin}
	}
	o.DeadlockDetectionTimeout = within // a second without an end is none on a machine that is busy
	w := sdkworker.New(b.client, b.queue, o)
	for name, fn := range b.workflows {
		if o.DisableWorkflowWorker {
			break
		}
		w.RegisterWorkflowWithOptions(fn, workflow.RegisterOptions{Name: name})
	}
	all := map[string]any{"Look": b.look, "Note": b.note, "Undo": b.undoes, "Refuse": refuse, "Nothing": nothing}
	maps.Copy(all, activities)
	for name, fn := range all {
		w.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return w
}

// serve starts a worker for the workflows so far and the bundle's own activities.
func (b *bundle) serve(t *testing.T) sdkworker.Worker {
	t.Helper()
	return b.work(t, sdkworker.Options{}, nil)
}

// run runs a workflow with the bundle's own activities to its end.
func (b *bundle) run(t *testing.T, fn func(ctx workflow.Context) error) ([]*historypb.HistoryEvent, error) {
	t.Helper()
	b.workflow("W", fn)
	b.serve(t)
	return b.end(t, b.start(t, "W"))
}

// on is the bundle with another task queue.
func (b *bundle) on(queue string) *bundle {
	return &bundle{client: b.client, plugin: b.plugin, locker: b.locker, queue: queue, database: b.database, workflows: b.workflows, events: b.events}
}

// reach replaces the bundle's client by one with these options.
func (b *bundle) reach(t *testing.T, o client.Options) {
	t.Helper()
	o.HostPort = testenv.TemporalAddress(t)
	c, err := client.Dial(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	b.client = c
}

// newPlugin returns a plugin without a janitor.
func newPlugin(t *testing.T, o worker.Options) *worker.Plugin {
	t.Helper()
	o.Janitor.Off = true
	plugin, err := worker.NewPlugin(o)
	require.NoError(t, err)
	return plugin
}

// workflow makes fn known under a name. Its activities have a minute, and are tried until it is over.
func (b *bundle) workflow(name string, fn func(ctx workflow.Context) error) {
	b.workflows[name] = func(ctx workflow.Context) error {
		return fn(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute}))
	}
}

// saga makes a workflow known that is a saga.
func (b *bundle) saga(name string, fn func(ctx workflow.Context, s *workflows.Saga) error) {
	b.workflow(name, func(ctx workflow.Context) error { return saga(ctx, fn) })
}

func (b *bundle) start(t *testing.T, name string) client.WorkflowRun {
	t.Helper()
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, name)
	require.NoError(t, err)
	return run
}

// end waits for the run, replays its history, and returns the history and the run's error.
func (b *bundle) end(t *testing.T, run client.WorkflowRun) ([]*historypb.HistoryEvent, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	result := run.Get(ctx, nil)
	require.NoError(t, ctx.Err(), "the workflow did not end")
	history := b.historyOf(t, run.GetID(), run.GetRunID())
	b.replay(t, history)
	return history.GetEvents(), result
}

// succeed requires that the runs end without an error.
func (b *bundle) succeed(t *testing.T, runs ...client.WorkflowRun) {
	t.Helper()
	for _, run := range runs {
		_, err := b.end(t, run)
		require.NoError(t, err)
	}
}

func (b *bundle) cancel(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	require.NoError(t, b.client.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
}

func (b *bundle) terminate(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	require.NoError(t, b.client.TerminateWorkflow(t.Context(), run.GetID(), "", "for the test"))
}

// historyOf returns the events of a run so far.
func (b *bundle) historyOf(t *testing.T, id, runID string) *historypb.History {
	t.Helper()
	history := &historypb.History{}
	for iter := b.client.GetWorkflowHistory(t.Context(), id, runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); iter.HasNext(); {
		event, err := iter.Next()
		require.NoError(t, err)
		history.Events = append(history.Events, event)
	}
	return history
}

// untilActivity waits until the run has an open activity that is as the test wants it.
func (b *bundle) untilActivity(t *testing.T, run client.WorkflowRun, is func(*workflowpb.PendingActivityInfo) bool, otherwise string) {
	t.Helper()
	require.Eventually(t, func() bool {
		d, err := b.client.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
		return err == nil && slices.ContainsFunc(d.GetPendingActivities(), is)
	}, within, lookEvery, otherwise)
}

func (b *bundle) replay(t *testing.T, history *historypb.History) {
	t.Helper()
	require.NoError(t, b.tryReplay(t, history))
}

func (b *bundle) tryReplay(t *testing.T, history *historypb.History) error {
	t.Helper()
	replayer, err := sdkworker.NewWorkflowReplayerWithOptions(sdkworker.WorkflowReplayerOptions{
		Plugins:                  []sdkworker.Plugin{worker.NewReplayPlugin()},
		DisableDeadlockDetection: true, // on a busy machine a workflow task may take longer than a second
	})
	require.NoError(t, err)
	for name, fn := range b.workflows {
		replayer.RegisterWorkflowWithOptions(fn, workflow.RegisterOptions{Name: name})
	}
	return replayer.ReplayWorkflowHistory(nil, history)
}

// write notes what happened, for a test to compare with what should have.
func (b *events) write(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, fmt.Sprintf(format, args...))
}

// writer returns a step that notes that it ran.
func (b *events) writer(line string) func(context.Context) error {
	return func(context.Context) error {
		b.write("%s", line)
		return nil
	}
}

func (b *events) read() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.lines...)
}

// untilWritten waits until n things have happened.
func (b *bundle) untilWritten(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(b.read()) >= n }, within, lookEvery, "fewer than %d things were written", n)
}

// listed returns what pick takes of each request for a resource that is in one state, in the order of Status.
func (b *bundle) listed(t *testing.T, resource string, state lockcore.State, pick func(lockcore.Status) string) (all []string) {
	t.Helper()
	for s, err := range b.locker.Status(t.Context(), lockcore.Filter{Resource: resource, States: []lockcore.State{state}}) {
		require.NoError(t, err)
		all = append(all, pick(s))
	}
	return all
}

func lockIDOf(s lockcore.Status) string { return s.LockID }
func runOf(s lockcore.Status) string    { return s.Run }

func (b *bundle) holders(t *testing.T, resource string) []string {
	t.Helper()
	return b.listed(t, resource, lockcore.StateHolding, lockIDOf)
}

func (b *bundle) waiters(t *testing.T, resource string) []string {
	t.Helper()
	return b.listed(t, resource, lockcore.StateWaiting, lockIDOf)
}

// runs returns the runs of the holders of a resource.
func (b *bundle) runs(t *testing.T, resource string) []string {
	t.Helper()
	return b.listed(t, resource, lockcore.StateHolding, runOf)
}

// isFree reports whether another party could acquire the resource now.
func (b *bundle) isFree(ctx context.Context, resource string) (bool, error) {
	leases, err := b.locker.TryEnter(ctx, lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: "somebody-" + rand.Text()}, Resources: []lockcore.Resource{lockcore.Exclusive(resource)},
	})
	switch {
	case err == nil:
		return true, b.locker.Leave(ctx, leases...)
	case lockcoreBusy(err):
		return false, nil
	default:
		return false, err
	}
}

// forceRelease ends the hold that a run's workflow has on the account.
func (b *bundle) forceRelease(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	r := lockcore.Release{LockID: lockID(run), Resources: []string{account.Name}, Force: true, Reason: "the test wants it"}
	for s, err := range b.locker.Status(t.Context(), lockcore.Filter{LockID: r.LockID, Resource: account.Name}) {
		require.NoError(t, err)
		if s.State == lockcore.StateHolding {
			r.FirstFence = s.FirstFence
		}
	}
	require.NoError(t, b.locker.Release(t.Context(), r))
}

// requireFree waits until another party can acquire a resource. Locks are released after their run has closed.
func (b *bundle) requireFree(t *testing.T, resource string) {
	t.Helper()
	require.Eventually(t, func() bool {
		free, err := b.isFree(t.Context(), resource)
		return err == nil && free
	}, soon, lookEvery, "%s is still locked", resource)
}

// untilBusy waits until an attempt of the run's step has found its lock busy.
func (b *bundle) untilBusy(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	b.untilActivity(t, run, isBusy, "no attempt found the lock busy")
}

func isBusy(a *workflowpb.PendingActivityInfo) bool {
	return a.GetLastFailure().GetApplicationFailureInfo().GetType() == "lockstep.Busy"
}

// failedAs requires the type of the application error with which a run, or a step, has failed.
func failedAs(t *testing.T, err error, failureType string) *temporal.ApplicationError {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, failureType, app.Type())
	return app
}
