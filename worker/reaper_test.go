package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/internal/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// reaping is a bundle with a worker, and the workflows that the reaper's tests use: "Hold" keeps the account for ever
// and stays open, "Stay" stays open, "End" ends, and "Again" continues as new once and stays open then.
func reaping(t *testing.T) *bundle {
	t.Helper()
	return reapingOn(setup(t))
}

func reapingOn(b *bundle) *bundle {
	stay := func(ctx workflow.Context) { workflow.GetSignalChannel(ctx, "end").Receive(ctx, nil) }
	b.workflow("Hold", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, HoldTTL: lockcore.Forever})
			err := do(ctx, "Note")
			stay(ctx)
			return err
		})
	})
	b.workflow("Stay", func(ctx workflow.Context) error {
		stay(ctx)
		return nil
	})
	b.workflow("End", func(workflow.Context) error { return nil })
	b.workflow("Again", func(ctx workflow.Context) error {
		if workflow.GetInfo(ctx).ContinuedExecutionRunID == "" {
			return workflow.NewContinueAsNewError(ctx, "Again")
		}
		stay(ctx)
		return nil
	})
	return b
}

func (b *bundle) reap(t *testing.T) activities.ReapResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	result, err := worker.RunReaper(ctx, b.client, worker.ReaperOptions{TaskQueue: b.queue})
	require.NoError(t, err)
	return result
}

// held lists who has what, and how.
func (b *bundle) held(t *testing.T) []string {
	t.Helper()
	all := []string{}
	for s, err := range b.locker.Status(t.Context(), lockcore.Filter{}) {
		require.NoError(t, err)
		all = append(all, fmt.Sprintf("%s %s %s", s.Resource, s.State, s.LockID))
	}
	return all
}

// hold makes a hold without end in the name of a run.
func (b *bundle) hold(t *testing.T, lockID, run string, resources ...string) {
	t.Helper()
	for _, name := range resources {
		leases, err := b.locker.Enter(t.Context(), lockcore.Request{
			LockID: lockID, Run: run, Resources: []lockcore.Resource{lockcore.Exclusive(name)}, Part: "p", Order: lockcore.Order{Schedule: 1, Attempt: 1},
			Keep: true, HoldTTL: lockcore.Forever,
		}, false)
		require.NoError(t, err)
		require.NoError(t, b.locker.Leave(t.Context(), leases...))
	}
}

func (b *bundle) ended(t *testing.T) client.WorkflowRun {
	t.Helper()
	run := b.start(t, "End")
	require.NoError(t, run.Get(t.Context(), nil))
	return run
}

func TestLocksOfATerminatedWorkflowAreFreeAfterOneReap(t *testing.T) {
	t.Parallel()
	b := reaping(t)
	b.work(t, sdkworker.Options{}, map[string]any{"Note": func(context.Context) error { b.write("entered"); return nil }})
	holder := b.start(t, "Hold")
	b.untilWritten(t, 1)
	waiter := b.start(t, "Hold")
	b.untilParked(t, waiter)

	require.Equal(t, activities.ReapResult{Listed: 2, Runs: 2, Asked: 2, Open: 2}, b.reap(t))
	require.Len(t, b.held(t), 2)

	// One that waits has gone: its place goes, and nothing else.
	b.terminate(t, waiter)
	require.Equal(t, activities.ReapResult{Listed: 2, Runs: 2, Asked: 2, Open: 1, Closed: 1, Released: 1}, b.reap(t))
	require.Equal(t, []string{"account/1 holding " + lockID(holder)}, b.held(t))

	// The holder has gone, and one that waits gets the lock at once.
	next := b.start(t, "Hold")
	b.untilParked(t, next)
	b.terminate(t, holder)
	require.Equal(t, activities.ReapResult{Listed: 2, Runs: 2, Asked: 2, Open: 1, Closed: 1, Released: 1}, b.reap(t))
	b.untilWritten(t, 2)
	b.terminate(t, next)
	require.Equal(t, 1, b.reap(t).Released)
	b.requireFree(t, account.Name)
	require.Equal(t, activities.ReapResult{}, b.reap(t))
}

func TestAPartThatStillTrustsDrainsWhenItsWorkflowIsReaped(t *testing.T) {
	t.Parallel()
	b := reaping(t)
	b.work(t, sdkworker.Options{}, nil)
	run := b.ended(t)
	req := request(lockID(run))
	req.Keep, req.Run = true, run.GetRunID()
	leases, err := b.locker.Enter(t.Context(), req, false)
	require.NoError(t, err)
	require.Equal(t, 1, b.reap(t).Released)
	free, err := b.isFree(t.Context(), account.Name)
	require.NoError(t, err)
	require.False(t, free, "its process may still trust the lock")
	_, err = b.locker.Renew(t.Context(), leases...)
	require.Error(t, err)
	_, err = b.locker.Enter(t.Context(), lockcore.Request{
		LockID: leases[0].LockID, Run: leases[0].Run, Resources: []lockcore.Resource{account}, Part: "late", Order: lockcore.Order{Schedule: 1_700_000_000, Attempt: 1},
	}, false)
	require.ErrorIs(t, err, lockcore.ErrSuperseded, "a closed run never acquires again")
	require.NoError(t, b.locker.Leave(t.Context(), leases...))
	b.requireFree(t, account.Name)
}

// Its locks would else stand for MissingAfter, or for ever where their HoldTTL has no end.
func TestARunThatWasDeletedWhileOpenIsReleasedByTheNextReap(t *testing.T) {
	t.Parallel()
	b := reaping(t)
	b.work(t, sdkworker.Options{}, nil)
	for name, workflowID := range map[string]string{"short": "deleted-" + b.queue, "hashed": strings.Repeat("x", 600) + b.queue} {
		run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: workflowID, TaskQueue: b.queue}, "Stay")
		require.NoError(t, err)
		b.hold(t, lockID(run), run.GetRunID(), name)
		require.Eventually(t, func() bool { return b.reap(t).Open == 1 }, within, 100*time.Millisecond, "visibility never tells of it")

		_, err = b.client.WorkflowService().DeleteWorkflowExecution(t.Context(), &workflowservice.DeleteWorkflowExecutionRequest{
			Namespace: "default", WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: run.GetID(), RunId: run.GetRunID()},
		})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, err := b.client.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
			var gone *serviceerror.NotFound
			return errors.As(err, &gone)
		}, within, 20*time.Millisecond, "it is not deleted")
		require.Equal(t, activities.ReapResult{Listed: 1, Runs: 1, Asked: 1, Closed: 1, Released: 1}, b.reap(t), name)
		b.requireFree(t, name)
	}
}

// Nothing is released for somebody who cannot be asked about.
func TestWhatCannotBeAskedAboutIsNotReaped(t *testing.T) {
	t.Parallel()
	b := reaping(t)
	b.work(t, sdkworker.Options{}, nil)
	run := b.ended(t)
	name := func(namespaceID string) string {
		return protocol.Run{Namespace: namespaceID, WorkflowID: run.GetID()}.LockID()
	}
	const noRun = "11111111-2222-4333-8444-555555555555"
	b.hold(t, name(noRun), run.GetRunID(), "of another namespace")
	b.hold(t, name(namespaceID+"0"), run.GetRunID(), "of a namespace whose ID begins alike")
	b.hold(t, "plain Go", "", "of nobody")
	b.hold(t, name(namespaceID), "no-run-ID", "of a run that cannot be")
	b.hold(t, name(namespaceID)+"x", "", "of a name made by hand")
	b.hold(t, name(namespaceID), noRun, "of a run that is missing")
	b.hold(t, protocol.Run{Namespace: namespaceID, WorkflowID: strings.Repeat("/", 1000)}.LockID(), run.GetRunID(), "of a hash")
	before := b.held(t)
	require.Len(t, before, 7)
	require.Equal(t, activities.ReapResult{Listed: 4, Runs: 4, Asked: 2, Unknown: 3, Missing: 1}, b.reap(t))
	require.Equal(t, before, b.held(t))

	// A run that its namespace does not know is gone when its locks were silent for long enough, and only that.
	missing, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, workflows.ReapName,
		map[string]any{"missingAfter": "1ms"})
	require.NoError(t, err)
	var result activities.ReapResult
	require.NoError(t, missing.Get(t.Context(), &result))
	require.Equal(t, activities.ReapResult{Listed: 4, Runs: 4, Asked: 2, Unknown: 3, Closed: 1, Released: 1}, result)
	require.Len(t, b.held(t), 6)
	b.requireFree(t, "of a run that is missing")
}

func TestARunThatContinuedAsNewKeepsItsLocksUntilItsSuccessorHasEnded(t *testing.T) {
	t.Parallel()
	b := reaping(t)
	b.work(t, sdkworker.Options{}, nil)
	id := "again-" + b.queue
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue, ID: id}, "Again")
	require.NoError(t, err)
	first := lockID(run)
	require.Eventually(t, func() bool {
		d, err := b.client.DescribeWorkflowExecution(t.Context(), id, "")
		return err == nil && d.GetWorkflowExecutionInfo().GetExecution().GetRunId() != run.GetRunID()
	}, within, 10*time.Millisecond, "it did not continue as new")
	b.hold(t, first, run.GetRunID(), account.Name)
	require.Equal(t, activities.ReapResult{Listed: 1, Runs: 1, Asked: 1, Open: 1}, b.reap(t))
	b.terminate(t, run)
	require.Equal(t, activities.ReapResult{Listed: 1, Runs: 1, Asked: 1, Closed: 1, Released: 1}, b.reap(t))
	b.requireFree(t, account.Name)

	// Another workflow with the same ID is no successor.
	_, err = b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue, ID: id}, "Again")
	require.NoError(t, err)
	b.hold(t, first, run.GetRunID(), "another account")
	require.Equal(t, 1, b.reap(t).Released)
	b.requireFree(t, "another account")
}

// describes is a client that counts the questions about workflows, and fails those that fail says.
func describes(t *testing.T, fail func(*workflowservice.DescribeWorkflowExecutionRequest) error) (client.Client, *atomic.Int64) {
	t.Helper()
	var n atomic.Int64
	quiet := log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	c, err := client.Dial(client.Options{HostPort: testenv.TemporalAddress(t), Logger: quiet, ConnectionOptions: client.ConnectionOptions{
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(
			ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			if r, ok := req.(*workflowservice.DescribeWorkflowExecutionRequest); ok {
				n.Add(1)
				if err := fail(r); err != nil {
					return err
				}
			}
			return invoker(ctx, method, req, reply, cc, opts...)
		})},
	}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c, &n
}

func TestEachRunIsAskedAboutOnceHoweverManyLocksItHas(t *testing.T) {
	t.Parallel()
	b := reaping(t)
	c, asked := describes(t, func(*workflowservice.DescribeWorkflowExecutionRequest) error { return nil })
	b.client = c
	b.work(t, sdkworker.Options{}, nil)
	for i := range 20 {
		run := b.ended(t)
		for j := range 10 {
			b.hold(t, lockID(run), run.GetRunID(), fmt.Sprintf("%d/%d", i, j))
		}
	}
	before := asked.Load()
	require.Equal(t, activities.ReapResult{Listed: 200, Runs: 20, Asked: 20, Closed: 20, Released: 200}, b.reap(t))
	require.LessOrEqual(t, asked.Load()-before, int64(20))
	require.Empty(t, b.held(t))
}

func TestAQuestionThatIsRefusedOrFailsReleasesNothing(t *testing.T) {
	t.Parallel()
	b := reaping(t)
	c, _ := describes(t, func(r *workflowservice.DescribeWorkflowExecutionRequest) error {
		switch r.GetExecution().GetWorkflowId() {
		case "refused":
			return status.Error(codes.PermissionDenied, "not yours")
		case "broken":
			return status.Error(codes.FailedPrecondition, "broken")
		}
		return nil
	})
	b.client = c
	b.work(t, sdkworker.Options{}, nil)
	for _, id := range []string{"refused", "broken"} {
		b.hold(t, protocol.Run{Namespace: namespaceID, WorkflowID: id}.LockID(), "1", id)
	}
	result := b.reap(t)
	require.Equal(t, []int{2, 2, 0}, []int{result.Runs, result.Failed, result.Released})
	require.Len(t, b.held(t), 2)
}
