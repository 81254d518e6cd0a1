package worker_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

func request(lockID string) lockcore.StepRequest {
	return lockcore.StepRequest{Caller: lockcore.Caller{LockID: lockID}, Resources: []lockcore.Resource{account}}
}

// childVariable makes this test binary a worker process that the test kills. It names the Temporal server,
// MongoDB, database and task queue, separated by blanks.
const childVariable = "LOCKSTEP_TEST_CHILD"

// childTraces is the folder that the child writes its spans to, if it is set.
const childTraces = "LOCKSTEP_TEST_CHILD_TRACES"

const (
	enteredLine = "entered with fence "
	endedLine   = "ended by "
)

// child serves the activity Step, which reports that it has entered and never returns, and Watch, which reports it too and
// returns when its context ends, with what it knows of why.
func child() {
	var address, uri, database, queue string
	if _, err := fmt.Sscan(os.Getenv(childVariable), &address, &uri, &database, &queue); err != nil {
		panic(err)
	}
	o, config := client.Options{HostPort: address}, lockcore.Config{}
	if folder := os.Getenv(childTraces); folder != "" {
		provider, tracing, err := tracedTo(context.Background(), folder, "child")
		if err != nil {
			panic(err)
		}
		o.Interceptors, config.TracerProvider = []interceptor.ClientInterceptor{tracing}, provider
	}
	c, err := client.Dial(o)
	if err != nil {
		panic(err)
	}
	m, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		panic(err)
	}
	locker, err := lockcore.New(m.Database(database).Collection(lockCollection), config)
	if err != nil {
		panic(err)
	}
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker})
	if err != nil {
		panic(err)
	}
	// With its only slot taken it asks for no more, so that nothing is given to it while it is paused.
	w := sdkworker.New(c, queue, sdkworker.Options{
		Plugins: []sdkworker.Plugin{plugin}, DisableWorkflowWorker: true, MaxConcurrentActivityExecutionSize: 1,
	})
	w.RegisterActivityWithOptions(func(ctx context.Context) error {
		fence, _ := activities.Fence(ctx, account.Name)
		fmt.Println(enteredLine, fence)
		select {} // a process that hangs, until it is killed
	}, activity.RegisterOptions{Name: "Step"})
	w.RegisterActivityWithOptions(func(ctx context.Context) error {
		fence, _ := activities.Fence(ctx, account.Name)
		fmt.Println(enteredLine, fence)
		<-ctx.Done()
		fmt.Println(endedLine, context.Cause(ctx))
		return nil
	}, activity.RegisterOptions{Name: "Watch"})
	if err := w.Run(nil); err != nil {
		panic(err)
	}
}

// startChild starts the worker process; the test must kill it.
func startChild(t *testing.T, b *bundle, environment ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), environment...), fmt.Sprintf("%s=%s %s %s %s", childVariable,
		testenv.TemporalAddress(t), testenv.MongoURI(t), b.database, b.queue))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return cmd, bufio.NewReader(out)
}

// untilLine reads until a line that has the words, and returns what follows them.
func untilLine(t *testing.T, out *bufio.Reader, words string) string {
	t.Helper()
	for {
		line, err := out.ReadString('\n')
		require.NoError(t, err)
		if _, rest, ok := strings.Cut(line, words); ok {
			return rest
		}
	}
}

func TestKilledWorker_StepIsRetried_OthersStayOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.saga("saga", func(ctx workflow.Context, _ *workflows.Saga) error {
		// The killed attempt may trust its lease for the TTL, and keeps others out so long after the release too.
		ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, TTL: 3 * time.Second})
		err := do(workflow.WithStartToCloseTimeout(ctx, 4*time.Second), "Step")
		receive(ctx, "go on") // the other one is queued
		return err
	})
	b.workflow("other", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Other") })
	// This process runs the workflows; the first attempt of the step can only run in the other one.
	b.work(t, sdkworker.Options{LocalActivityWorkerOnly: true}, nil)
	cmd, out := startChild(t, b)
	saga := b.start(t, "saga")
	var killed int64
	_, err := fmt.Sscan(untilLine(t, out, enteredLine), &killed)
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())

	var next int64
	b.work(t, sdkworker.Options{DisableWorkflowWorker: true}, map[string]any{
		"Step": func(ctx context.Context) error {
			next, _ = activities.Fence(ctx, account.Name)
			b.write("attempt %d", activity.GetInfo(ctx).Attempt)
			return nil
		},
		"Other": b.writer("other"),
	})
	other := b.start(t, "other")
	b.untilBusy(t, other)
	b.signal(t, saga, "go on")
	b.succeed(t, saga)
	b.succeed(t, other)
	require.Equal(t, []string{"attempt 2", "other"}, b.read())
	require.Greater(t, next, killed)
}
