package worker_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// resetActivities has a run's activities of a type tried at once, and counted from 1 again.
func (b *bundle) resetActivities(t *testing.T, run client.WorkflowRun, activityType string) {
	t.Helper()
	_, err := b.client.WorkflowService().ResetActivity(t.Context(), &workflowservice.ResetActivityRequest{
		Namespace: "default", Execution: &commonpb.WorkflowExecution{WorkflowId: run.GetID(), RunId: run.GetRunID()},
		Activity: &workflowservice.ResetActivityRequest_Type{Type: activityType}, Identity: "test",
	})
	require.NoError(t, err)
}

// An operator breaks a step's lock, and resets its activity, whose first attempt has run: the attempt that finds the lock busy
// then is the first again, and what the one before did is undone nevertheless.
func TestAStepThatRanBeforeItsActivityWasResetIsUndone(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]workflows.Locks{
		"waits": {MaxWait: time.Second}, "tries": {Try: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			l.Resources = []lockcore.Resource{account}
			b.workflow("W", func(ctx workflow.Context) error {
				return workflows.RunSaga(ctx, workflows.SagaOptions{GoOnAfterLoss: true}, func(ctx workflow.Context, s *workflows.Saga) error {
					ctx = workflow.WithRetryPolicy(ctx, temporal.RetryPolicy{InitialInterval: time.Hour})
					return s.Step(workflows.WithLocks(ctx, l), "Fail", "Undo").Get(ctx, nil)
				})
			})
			b.work(t, sdkworker.Options{}, map[string]any{
				"Fail": func(context.Context) error { b.write("ran"); return errors.New("fails") },
				"Undo": func(context.Context) error { b.write("undone"); return nil },
			})
			run := b.start(t, "W")
			b.untilWritten(t, 1)
			b.untilFailed(t, run)
			b.forceRelease(t, run)
			for range 20 { // endings are remembered a few at a time, and evidence is not among them
				b.requireFree(t, account.Name)
			}
			other := b.taken(t, account)
			b.resetActivities(t, run, "Fail")
			require.Eventually(t, func() bool { // the lock is busy, and the step given up
				h := commands(t, b.historyOf(t, run.GetID(), run.GetRunID()))
				return slices.Contains(h, "Undo") || slices.Contains(h, "failed: lockstep.Busy")
			}, within, lookEvery, "the saga does not fail")
			require.NoError(t, other.Leave(t.Context()))
			_, err := b.end(t, run)
			require.ErrorIs(t, workflows.LockError(err), lockcore.ErrBusy)
			require.Equal(t, []string{"ran", "undone"}, b.read())
		})
	}
}

// A step whose lock remembers its earlier attempts is tried until it is in front of them, and then runs.
func TestAStepWhoseActivityIsResetRunsAgain(t *testing.T) {
	t.Parallel()
	for _, scope := range []workflows.Scope{workflows.ScopeStep, workflows.ScopeSaga} {
		t.Run(string(scope), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.workflow("W", func(ctx workflow.Context) error {
				ctx = workflow.WithRetryPolicy(ctx, temporal.RetryPolicy{InitialInterval: time.Hour})
				return do(workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, Scope: scope}), "Fail")
			})
			b.work(t, sdkworker.Options{}, map[string]any{"Fail": func(context.Context) error {
				b.write("ran")
				if len(b.read()) < 3 {
					return errors.New("fails")
				}
				return nil
			}})
			run := b.start(t, "W")
			for n := range 2 {
				b.untilWritten(t, n+1)
				b.untilFailed(t, run)
				b.resetActivities(t, run, "Fail")
			}
			_, err := b.end(t, run)
			require.NoError(t, err)
			b.requireFree(t, account.Name)
		})
	}
}

// The attempt that was reset is deaf and outlives its timeout, and the next one has its number:
// each has a part of its own.
func TestAnAttemptDoesNotShareThePartOfOneThatHadItsNumber(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			StartToCloseTimeout: time.Second, RetryPolicy: &temporal.RetryPolicy{InitialInterval: 2 * time.Second},
		})
		return do(workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}}), "Deaf")
	})
	goes, looked := make(chan struct{}), make(chan error, 1)
	b.work(t, sdkworker.Options{}, map[string]any{"Deaf": func(ctx context.Context) error {
		if b.write("ran"); len(b.read()) > 1 {
			return nil
		}
		<-goes // it does not look at ctx
		busy, valid := b.isBusy(t, account.Name), activities.Leases(ctx)[0].Valid()
		if valid && !busy {
			looked <- errors.New("it trusts its lock, which is free")
		}
		close(looked)
		return nil
	}})
	run := b.start(t, "W")
	b.untilActivity(t, run, func(a *workflowpb.PendingActivityInfo) bool {
		return a.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED && a.GetAttempt() > 1
	}, "the attempt is not over")
	b.resetActivities(t, run, "Deaf")
	require.NoError(t, run.Get(t.Context(), nil))
	close(goes)
	require.NoError(t, <-looked)
}

// isBusy reports whether another party cannot have a resource.
func (b *bundle) isBusy(t *testing.T, name string) bool {
	t.Helper()
	s, err := b.locker.Core().TryAcquire(context.WithoutCancel(t.Context()), party.Request{LockID: "looks", Resources: []lockcore.Resource{lockcore.Exclusive(name)}})
	if err != nil {
		return errors.Is(err, lockcore.ErrBusy)
	}
	return s.Release(context.WithoutCancel(t.Context())) != nil
}

// untilFailed waits until the attempt of Fail that has begun is over, and no other has begun.
func (b *bundle) untilFailed(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	b.untilActivity(t, run, func(a *workflowpb.PendingActivityInfo) bool {
		return a.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED && a.GetLastFailure().GetMessage() == "fails"
	}, "the attempt is not over")
}

// A step that does not wait, and finds its lock busy at once, has nothing to undo, and its undoing does not wait for the lock.
func TestAStepThatTriedInVainIsNotUndone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, Try: true})
			return s.Step(ctx, "Look", "Look").Get(ctx, nil)
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look})
	other := b.taken(t, account)
	_, err := b.end(t, b.start(t, "W")) // while the lock is held
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrBusy)
	require.Empty(t, b.read())
	require.NoError(t, other.Leave(t.Context()))
}
