package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// lookAs is a step that notes its name, whether somebody else could have the account, and its fence.
func (b *bundle) lookAs(fences map[string]int64) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		free, err := b.isFree(ctx, account.Name)
		b.mu.Lock()
		fences[name], _ = activities.Fence(ctx, account.Name)
		b.mu.Unlock()
		b.write("%s, free: %v", name, free)
		return err
	}
}

func refuse(context.Context) error {
	return temporal.NewNonRetryableApplicationError("no money", "NoMoney", nil)
}

func (b *bundle) status(t *testing.T, run client.WorkflowRun) enumspb.WorkflowExecutionStatus {
	t.Helper()
	d, err := b.client.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
	require.NoError(t, err)
	return d.GetWorkflowExecutionInfo().GetStatus()
}

func TestCompensationRunsUnderTheLocksInReverseOrder(t *testing.T) {
	t.Parallel()
	b, fences := setup(t), map[string]int64{}
	b.workflow("W", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			s.CompensateWith(ctx, "Look", "undo 1")
			if err := workflow.ExecuteActivity(ctx, "Look", "1").Get(ctx, nil); err != nil {
				return err
			}
			s.CompensateWith(ctx, "Look", "undo 2")
			return do(ctx, "Refuse")
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.lookAs(fences), "Refuse": refuse})
	run := b.start(t, "W")
	_, err := b.end(t, run)
	_ = failedAs(t, err, "NoMoney")
	require.Equal(t, []string{"1, free: false", "undo 2, free: false", "undo 1, free: false"}, b.read())
	require.Greater(t, fences["undo 2"], fences["1"])
	require.Greater(t, fences["undo 1"], fences["undo 2"])
	b.requireFree(t, account.Name)
}

func TestAFailingCompensationDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			s.CompensateWith(ctx, "Look")
			s.CompensateWith(ctx, "Refuse")
			return do(ctx, "Refuse")
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look, "Refuse": refuse})
	run := b.start(t, "W")
	_, err := b.end(t, run)
	require.ErrorContains(t, err, "compensation 2 (Refuse)")
	require.Equal(t, []string{"free: false"}, b.read())
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, b.status(t, run))
	b.requireFree(t, account.Name)
}

func TestACancelledSagaIsCompensatedAndReleased(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			s.CompensateWith(ctx, "Look")
			if err := do(ctx, "Look"); err != nil {
				return err
			}
			return workflow.Sleep(ctx, time.Hour)
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look})
	run := b.start(t, "W")
	b.untilWritten(t, 1)
	require.NoError(t, b.client.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
	_, err := b.end(t, run)
	require.True(t, temporal.IsCanceledError(err), "%v", err)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, b.status(t, run))
	require.Equal(t, []string{"free: false", "free: false"}, b.read())
	b.requireFree(t, account.Name)
}

// Isolation is broken by force between two steps: the next step is told before it runs, and the
// compensation waits until it can have the lock again.
func TestALossBetweenStepsIsToldAndCompensationTakesTheLockAnew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			s.CompensateWith(ctx, "Write", "undo")
			if err := workflow.ExecuteActivity(ctx, "Write", "first").Get(ctx, nil); err != nil {
				return err
			}
			workflow.GetSignalChannel(ctx, "go on").Receive(ctx, nil)
			return workflow.ExecuteActivity(ctx, "Write", "second").Get(ctx, nil)
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Write": func(_ context.Context, what string) error { b.write("%s", what); return nil }})
	run := b.start(t, "W")
	b.untilWritten(t, 1)
	require.NoError(t, b.locker.Core().Release(t.Context(), party.Release{
		LockID: lockID(run), Run: run.GetRunID(), Resources: []string{account.Name}, Order: party.LastAttempt(1),
	}))
	intruder, err := b.locker.Core().Acquire(t.Context(), request("intruder"))
	require.NoError(t, err)
	require.NoError(t, b.client.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "go on", nil))
	b.untilBusy(t, run)
	b.write("intruder")
	require.NoError(t, intruder.Release(t.Context()))
	_, err = b.end(t, run)
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
	require.Equal(t, []string{"first", "intruder", "undo"}, b.read())
	b.requireFree(t, account.Name)
}

// A cancellation that finds the step waiting for its lock: nothing was taken, and nothing must be left in the queue.
func TestACancelledWaitLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			return do(workflows.Guard(ctx, account), "Look")
		})
	})
	b.workflow("step", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Look") })
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look})
	holder, err := b.locker.Core().Acquire(t.Context(), request("holder"))
	require.NoError(t, err)
	for _, name := range []string{"W", "step"} {
		run := b.start(t, name)
		b.untilBusy(t, run)
		require.NoError(t, b.client.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
		_, err = b.end(t, run)
		require.True(t, temporal.IsCanceledError(err), "%v", err)
	}
	require.NoError(t, holder.Release(t.Context()))
	b.requireFree(t, account.Name)
	require.Empty(t, b.read())
}

func TestContinueAsNewReleases(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		if workflow.GetInfo(ctx).ContinuedExecutionRunID != "" {
			return do(ctx, "Look")
		}
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			s.CompensateWith(ctx, "Refuse")
			if err := do(workflows.Guard(ctx, account), "Look"); err != nil {
				return err
			}
			return workflow.NewContinueAsNewError(ctx, "W")
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look, "Refuse": refuse})
	_, err := b.end(t, b.start(t, "W"))
	require.NoError(t, err)
	require.Equal(t, []string{"free: false", "free: true"}, b.read())
}

func TestAWorkflowThatFailsWithoutASagaReleasesScopeSaga(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: request("").Resources, Scope: workflows.ScopeSaga})
		return errors.Join(do(ctx, "Look"), do(workflows.Unguarded(ctx), "Look"), do(ctx, "Refuse"))
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look, "Refuse": refuse})
	_, err := b.end(t, b.start(t, "W"))
	require.ErrorContains(t, err, "no money")
	require.Equal(t, []string{"free: false", "free: false"}, b.read())
	b.requireFree(t, account.Name)
}
