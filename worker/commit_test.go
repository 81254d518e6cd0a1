package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// brief is a lock on the account that stands for a moment after the last sign of life.
var brief = workflows.Locks{Resources: []lockcore.Resource{account}, TTL: 300 * time.Millisecond, HoldTTL: 300 * time.Millisecond}

// goBetween has another party take the account as soon as the run's promise on it has ended, and lets it go; then the run goes on.
func (b *bundle) goBetween(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	require.Eventually(t, func() bool { return len(b.holders(t, account.Name)) == 1 }, within, lookEvery, "it holds nothing")
	other, err := b.locker.Core().Acquire(t.Context(), party.Request{LockID: "other", Resources: []lockcore.Resource{account}})
	require.NoError(t, err)
	require.NoError(t, other.Leave(t.Context()))
	b.signal(t, run, "go on")
}

func TestALockThatWasLostFailsItsRelease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		hold, err := workflows.Lock(ctx, brief)
		if err != nil {
			return err
		}
		receive(ctx, "go on")
		return hold.Release(ctx)
	})
	b.work(t, sdkworker.Options{}, nil)
	run := b.start(t, "W")
	b.goBetween(t, run)
	_, err := b.end(t, run)
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
	b.requireFree(t, account.Name)
}

func TestALockThatWasLostAndIsNotReleasedFailsTheWorkflow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		if _, err := workflows.Lock(ctx, brief); err != nil {
			return err
		}
		receive(ctx, "go on")
		return nil
	})
	b.work(t, sdkworker.Options{}, nil)
	run := b.start(t, "W")
	b.goBetween(t, run)
	_, err := b.end(t, run)
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
	_ = failedAs(t, err, "lockstep.Lost")
	b.requireFree(t, account.Name)
}

func TestASagaMayCommitAfterALoss(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{GoOnAfterLoss: true}, func(ctx workflow.Context, s *workflows.Saga) error {
			if err := s.Step(workflows.WithLocks(ctx, brief), "Note", "Undo", "step").Get(ctx, nil); err != nil {
				return err
			}
			receive(ctx, "go on")
			return s.Step(workflows.WithLocks(ctx, brief), "Note", "Undo", "step 2").Get(ctx, nil)
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.note, "Undo": b.undoes})
	run := b.start(t, "W")
	b.goBetween(t, run)
	_, err := b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{"step", "step 2"}, b.read())
	b.requireFree(t, account.Name)
}

func TestASagaWhoseLockWasLostIsUndone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			if err := s.Step(workflows.WithLocks(ctx, brief), "Note", "Undo", "step").Get(ctx, nil); err != nil {
				return err
			}
			receive(ctx, "go on")
			return nil
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.note, "Undo": b.undoes})
	run := b.start(t, "W")
	b.goBetween(t, run)
	_, err := b.end(t, run)
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
	require.Equal(t, []string{"step", "undid step"}, b.read())
	b.requireFree(t, account.Name)
}

func (b *bundle) undoes(_ context.Context, what string) error {
	b.write("undid %s", what)
	return nil
}

// The worker that runs the step knows nothing of locks: nobody was kept out.
func TestAStepThatAWorkerWithoutThePluginRanIsFoundAtTheCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			return s.Step(workflows.Guard(ctx, account), "Note", "Undo", "step").Get(ctx, nil)
		})
	})
	b.work(t, sdkworker.Options{LocalActivityWorkerOnly: true}, nil)
	b.work(t, sdkworker.Options{DisableWorkflowWorker: true, Plugins: []sdkworker.Plugin{}}, map[string]any{"Note": b.note, "Undo": b.undoes})
	_, err := b.end(t, b.start(t, "W"))
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
	require.Equal(t, []string{"step", "undid step"}, b.read())
	b.requireFree(t, account.Name)
}

// Two sagas lock one account, and the worker that runs the second one's step has its locks in another database: it must not run it
// beside the first. A worker with the workflow's database does.
func TestAWorkerWithItsLocksElsewhereIsRefused(t *testing.T) {
	t.Parallel()
	b, astray := setup(t), setup(t)
	elsewhere := b.queue + "-elsewhere"
	step := func(queue string) func(ctx workflow.Context) error {
		return func(ctx workflow.Context) error {
			return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
				ctx = workflow.WithTaskQueue(workflows.Guard(ctx, account), queue)
				if err := s.Step(ctx, "Note", "Undo", queue).Get(ctx, nil); err != nil {
					return err
				}
				receive(ctx, "go on")
				return nil
			})
		}
	}
	b.workflow("first", step(b.queue))
	b.workflow("second", step(elsewhere))
	steps := map[string]any{"Note": b.note, "Undo": b.undoes}
	b.work(t, sdkworker.Options{}, steps)
	astray.queue = elsewhere
	astray.work(t, sdkworker.Options{DisableWorkflowWorker: true}, steps)
	first := b.start(t, "first")
	b.untilWritten(t, 1)
	second := b.start(t, "second")
	b.untilActivity(t, second, func(a *workflowpb.PendingActivityInfo) bool {
		return a.GetLastFailure().GetApplicationFailureInfo().GetType() == "lockstep.OtherCollection"
	}, "the step was not refused")
	require.Equal(t, []string{b.queue}, b.read())
	b.signal(t, first, "go on")
	_, err := b.end(t, first)
	require.NoError(t, err)
	own := sdkworker.New(b.client, elsewhere, sdkworker.Options{DisableWorkflowWorker: true, Plugins: []sdkworker.Plugin{b.plugin}})
	for name, fn := range steps {
		own.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	require.NoError(t, own.Start())
	t.Cleanup(own.Stop)
	b.signal(t, second, "go on")
	_, err = b.end(t, second)
	require.NoError(t, err)
	require.Equal(t, []string{b.queue, elsewhere}, b.read())
}
