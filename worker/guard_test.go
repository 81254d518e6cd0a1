package worker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

var account = lockcore.Exclusive("account/1")

func lockcoreBusy(err error) bool { return errors.Is(err, lockcore.ErrBusy) }

func do(ctx workflow.Context, name string) error {
	return workflow.ExecuteActivity(ctx, name).Get(ctx, nil)
}

func nothing(context.Context) error { return nil }

// lockID is the lock ID of a workflow of this test, whichever of its runs.
func lockID(run client.WorkflowRun) string {
	return wire.Run{Namespace: namespaceID, WorkflowID: run.GetID(), RunID: run.GetRunID()}.LockID()
}

// owner is that of a workflow.
func owner(workflowID string) string {
	return wire.Run{Namespace: namespaceID, WorkflowID: workflowID}.Owner()
}

func TestAGuardAddsNoEventAndASagaAddsOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	steps := func(ctx workflow.Context) error { return errors.Join(do(ctx, "A"), do(ctx, "B"), do(ctx, "A")) }
	b.workflow("unguarded", steps)
	b.workflow("guarded", func(ctx workflow.Context) error { return steps(workflows.Guard(ctx, account)) })
	b.workflow("saga", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account, lockcore.Shared("rates"))
			s.CompensateWith(ctx, "B")
			return steps(ctx)
		})
	})
	b.workflow("unlocked saga", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error { return steps(ctx) })
	})
	b.work(t, sdkworker.Options{}, map[string]any{"A": nothing, "B": nothing})
	count := map[string]int{}
	for name := range b.workflows {
		events, err := b.end(t, b.start(t, name))
		require.NoError(t, err)
		count[name] = countEvents(events)
	}
	require.Equal(t, count["unguarded"], count["guarded"])
	require.Equal(t, count["unguarded"], count["unlocked saga"])
	require.Equal(t, count["unguarded"]+1, count["saga"])
	b.requireFree(t, account.Name)
}

// countEvents counts a history's events, but for those of workflow tasks that a busy machine let time out.
func countEvents(events []*historypb.HistoryEvent) int {
	n := 0
	for _, e := range events {
		switch e.GetEventType() {
		case enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
			n += 3 // scheduled, started, completed
		case enumspb.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED, enumspb.EVENT_TYPE_WORKFLOW_TASK_STARTED,
			enumspb.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT, enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED:
		default:
			n++
		}
	}
	return n
}

func TestScopeStepFreesTheLocksAfterTheStep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return errors.Join(do(workflows.Guard(ctx, account), "Look"), do(ctx, "Look"))
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look})
	_, err := b.end(t, b.start(t, "W"))
	require.NoError(t, err)
	require.Equal(t, []string{"free: false", "free: true"}, b.read())
}

// look is a step that notes whether somebody else could have the account.
func (b *bundle) look(ctx context.Context) error {
	free, err := b.isFree(ctx, account.Name)
	b.write("free: %v", free)
	return err
}

func TestASagaKeepsOthersOutBetweenItsSteps(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("saga", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			if err := do(ctx, "First"); err != nil {
				return err
			}
			workflow.GetSignalChannel(ctx, "go on").Receive(ctx, nil)
			return do(ctx, "Second")
		})
	})
	b.workflow("other", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Other") })
	entered := make(chan struct{})
	b.work(t, sdkworker.Options{}, map[string]any{
		"First":  func(context.Context) error { b.write("first"); close(entered); return nil },
		"Second": func(context.Context) error { b.write("second"); return nil },
		"Other":  func(context.Context) error { b.write("other"); return nil },
	})
	saga := b.start(t, "saga")
	<-entered
	other := b.start(t, "other")
	b.untilBusy(t, other)
	require.NoError(t, b.client.SignalWorkflow(t.Context(), saga.GetID(), saga.GetRunID(), "go on", nil))
	_, err := b.end(t, saga)
	require.NoError(t, err)
	_, err = b.end(t, other)
	require.NoError(t, err)
	require.Equal(t, []string{"first", "second", "other"}, b.read())
}

func TestManyWorkflowsCountWithoutLosingOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const many = 8
	var balance, seen int
	b.workflow("W", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			var read int
			if err := workflow.ExecuteActivity(ctx, "Read").Get(ctx, &read); err != nil {
				return err
			}
			return workflow.ExecuteActivity(ctx, "Write", read+1).Get(ctx, nil)
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{
		"Read":  func(context.Context) (int, error) { b.mu.Lock(); defer b.mu.Unlock(); seen++; return balance, nil },
		"Write": func(_ context.Context, v int) error { b.mu.Lock(); defer b.mu.Unlock(); balance = v; return nil },
	})
	runs := make([]client.WorkflowRun, 0, many)
	for range many {
		runs = append(runs, b.start(t, "W"))
	}
	for _, run := range runs {
		_, err := b.end(t, run)
		require.NoError(t, err)
	}
	require.Equal(t, many, balance)
	require.Equal(t, many, seen)
}

func TestALostLockCancelsTheStepAndReachesTheWorkflowTyped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var told, released bool
	b.workflow("W", func(ctx workflow.Context) error {
		ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, TTL: 3 * time.Second})
		err := do(ctx, "Stuck")
		var lost *lockcore.LostError
		told = errors.As(err, &lost) && lost.Resource == account.Name
		return err
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Stuck": func(ctx context.Context) error {
		lease := activities.Leases(ctx)[0]
		if err := b.locker.Core().Release(ctx, party.Release{LockID: lease.LockID, Resources: []string{account.Name}, Order: lease.Order}); err != nil {
			return err
		}
		<-ctx.Done()
		released = errors.Is(context.Cause(ctx), lockcore.ErrLost)
		return ctx.Err()
	}})
	_, err := b.end(t, b.start(t, "W"))
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
	require.True(t, told)
	require.True(t, released)
}

func TestWaitingInVainIsATypedErrorAndLeavesTheQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var busy *lockcore.BusyError
	failed, once := make(chan struct{}), sync.Once{}
	b.workflow("W", func(ctx workflow.Context) error {
		ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, MaxWait: time.Second})
		err := do(ctx, "A")
		errors.As(err, &busy)
		once.Do(func() { close(failed) }) // a replay comes by again
		workflow.GetSignalChannel(ctx, "go on").Receive(ctx, nil)
		return err
	})
	b.work(t, sdkworker.Options{}, map[string]any{"A": nothing})
	holder, err := b.locker.Core().Acquire(t.Context(), party.Request{LockID: "holder", Owner: "alice", Resources: []lockcore.Resource{account}})
	require.NoError(t, err)
	run := b.start(t, "W")
	<-failed
	require.NoError(t, holder.Release(t.Context()))
	// Nobody stands in the queue any more to whom the lock would go first, though the workflow has not ended.
	b.requireFree(t, account.Name)
	require.NoError(t, b.client.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "go on", nil))
	_, err = b.end(t, run)
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrBusy)
	require.NotNil(t, busy)
	require.Equal(t, "alice", busy.Holders[0].Owner)
}

// A retry policy that names lockstep.Busy asks once, and leaves no place in a queue.
func TestAStepMayTryOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	failed, once := make(chan struct{}), sync.Once{}
	b.workflow("W", func(ctx workflow.Context) error {
		ctx = workflow.WithRetryPolicy(workflows.Guard(ctx, account), temporal.RetryPolicy{NonRetryableErrorTypes: []string{"lockstep.Busy"}})
		err := do(ctx, "A")
		once.Do(func() { close(failed) }) // a replay comes by again
		workflow.GetSignalChannel(ctx, "go on").Receive(ctx, nil)
		return err
	})
	b.work(t, sdkworker.Options{}, map[string]any{"A": nothing})
	holder, err := b.locker.Core().Acquire(t.Context(), request("holder"))
	require.NoError(t, err)
	run := b.start(t, "W")
	<-failed
	require.NoError(t, holder.Release(t.Context()))
	b.requireFree(t, account.Name)
	require.NoError(t, b.client.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "go on", nil))
	_, err = b.end(t, run)
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrBusy)
}

func TestAResultThatIsPendingIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Pending") })
	b.work(t, sdkworker.Options{}, map[string]any{"Pending": func(context.Context) error { return activity.ErrResultPending }})
	_, err := b.end(t, b.start(t, "W"))
	_ = failedAs(t, err, "lockstep.ResultPending")
	b.requireFree(t, account.Name)
}

func TestAnUpdateHandlerMayRunGuardedSteps(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		ended := false
		err := workflow.SetUpdateHandler(ctx, "pay", func(uctx workflow.Context) error {
			uctx = workflow.WithActivityOptions(uctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
			err := do(workflows.Guard(uctx, account), "Look")
			ended = true
			return err
		})
		if err != nil {
			return err
		}
		return workflow.Await(ctx, func() bool { return ended })
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look})
	run := b.start(t, "W")
	handle, err := b.client.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: run.GetID(), RunID: run.GetRunID(), UpdateName: "pay", WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	require.NoError(t, err)
	require.NoError(t, handle.Get(t.Context(), nil))
	_, err = b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{"free: false"}, b.read())
}

func TestAHistoryRecordedWithoutLockstepReplaysWithIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error { return errors.Join(do(ctx, "A"), do(ctx, "A")) })
	b.work(t, sdkworker.Options{Plugins: []sdkworker.Plugin{}}, map[string]any{"A": nothing})
	events, err := b.end(t, b.start(t, "W"))
	require.NoError(t, err)
	for _, e := range events {
		require.NotEqual(t, enumspb.EVENT_TYPE_MARKER_RECORDED, e.GetEventType())
	}
}
