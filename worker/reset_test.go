package worker_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// reset makes a new run out of a run's history until its n-th workflow task, which the new run does again.
func (b *bundle) reset(t *testing.T, run client.WorkflowRun, n int) client.WorkflowRun {
	t.Helper()
	var at int64
	for _, event := range b.historyOf(t, run.GetID(), run.GetRunID()).GetEvents() {
		if n > 0 && event.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			n--
			at = event.GetEventId()
		}
	}
	require.Zero(t, n, "the history is too short")
	answer, err := b.client.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: "default", WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: run.GetID(), RunId: run.GetRunID()},
		Reason: "test", RequestId: rand.Text(), WorkflowTaskFinishEventId: at, ResetReapplyType: enumspb.RESET_REAPPLY_TYPE_NONE, //nolint:staticcheck // the newer field lists what to leave out
	})
	require.NoError(t, err)
	return b.client.GetWorkflow(t.Context(), run.GetID(), answer.GetRunId())
}

// startAndReset starts W, and resets it when its first step is done, so that the outcome is there to be dealt with again.
func (b *bundle) startAndReset(t *testing.T) (old, run client.WorkflowRun) {
	t.Helper()
	old = b.start(t, "W")
	b.completed(t, old, 2)
	return old, b.reset(t, old, 2)
}

// completed waits until n workflow tasks of a run have been done.
func (b *bundle) completed(t *testing.T, run client.WorkflowRun, n int) {
	t.Helper()
	b.untilEvents(t, run, enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED, n)
}

// threeSteps is a saga that takes the account in its first step, and only account/2 in the second; it waits for a signal
// after each but the last.
func threeSteps(ctx workflow.Context) error {
	return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
		if err := call(workflows.Guard(ctx, account), "first"); err != nil {
			return err
		}
		receive(ctx, "go on")
		if err := call(workflows.Guard(ctx, second), "second"); err != nil {
			return err
		}
		receive(ctx, "go on")
		return call(workflows.Guard(ctx, account), "third")
	})
}

// A saga is reset between two steps: the new run takes over what the old one holds, and others stay out.
func TestReset_BetweenSteps_OthersStayOut(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{
		// The reset comes right after the first step, whose outcome both runs have, or after a task that had nothing new.
		"at the task of its outcome": 2,
		"later":                      3,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var entries []entry
			b.workflow("W", threeSteps)
			b.workflow("other", func(ctx workflow.Context) error { return call(workflows.Guard(ctx, account), "other") })
			b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
			old := b.start(t, "W")
			b.completed(t, old, 2)
			b.signal(t, old, "noise")
			b.completed(t, old, 3)
			other := b.start(t, "other")
			b.untilParked(t, other)
			run := b.reset(t, old, n)
			b.signal(t, run, "go on")
			b.untilWritten(t, 2)
			b.requireHolds(t, old, account)
			b.requireHolds(t, run, second)
			sdkworker.PurgeStickyWorkflowCache()
			b.signal(t, run, "go on")
			b.succeed(t, run)
			b.succeed(t, other)
			require.Equal(t, []string{"first", "second", "third", "other"}, b.read())
			first, third := entries[0].lease, entries[2].lease
			require.Equal(t, []string{old.GetRunID(), run.GetRunID()}, []string{first.Run, third.Run})
			require.True(t, third.Joined)
			require.Equal(t, first.FirstFence, third.FirstFence)
			require.Greater(t, third.Fence, first.Fence)
			b.requireFree(t, account.Name)
			b.requireFree(t, second.Name)
		})
	}
}

// Temporal does not say at once which run is the current one: the step waits, and uses none of its attempts.
func TestReset_CurrentRunUnknown_StepWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var refused atomic.Int64
	b.intercept(t, func(_ context.Context, req any) error {
		if _, ok := req.(*workflowservice.DescribeWorkflowExecutionRequest); ok && refused.Add(1) == 1 {
			return status.Error(codes.PermissionDenied, "not now")
		}
		return nil
	})
	b.saga("W", func(ctx workflow.Context, _ *workflows.Saga) error {
		if err := call(workflows.Guard(ctx, account), "first"); err != nil {
			return err
		}
		receive(ctx, "go on")
		return call(workflows.Guard(workflow.WithRetryPolicy(ctx, temporal.RetryPolicy{MaximumAttempts: 1}), account), "second")
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(new([]entry))})
	_, run := b.startAndReset(t)
	b.signal(t, run, "go on")
	b.succeed(t, run)
	require.Equal(t, []string{"first", "second"}, b.read())
	require.Greater(t, refused.Load(), int64(1), "it was asked again")
}

// The saga had ended: its locks were released, and the reset takes them again.
func TestReset_SagaHadEnded_AcquiresAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var entries []entry
	b.workflow("W", threeSteps)
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	old := b.start(t, "W")
	b.completed(t, old, 2)
	b.signal(t, old, "go on")
	b.untilWritten(t, 2)
	b.signal(t, old, "go on")
	b.succeed(t, old)
	b.requireFree(t, account.Name)
	run := b.reset(t, old, 2)
	b.signal(t, run, "go on")
	b.untilWritten(t, 4)
	b.signal(t, run, "go on")
	b.succeed(t, run)
	require.Equal(t, []string{"first", "second", "third", "second", "third"}, b.read())
	b.requireFree(t, account.Name)
}

// The step runs while its run is reset: the new run has it still to do, in its own name, and only when the old attempt has
// left.
func TestReset_StepRuns_NewAttemptRunsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []string
	entered, leave := make(chan struct{}), make(chan struct{})
	b.saga("W", func(ctx workflow.Context, _ *workflows.Saga) error {
		ctx = workflows.Guard(ctx, account)
		if err := do(ctx, "First"); err != nil {
			return err
		}
		workflow.Go(ctx, func(ctx workflow.Context) { receive(ctx, "noise") })
		return do(ctx, "Step")
	})
	b.work(t, sdkworker.Options{}, map[string]any{"First": nothing, "Step": func(ctx context.Context) error {
		b.mu.Lock()
		ids = append(ids, activities.Leases(ctx)[0].Run)
		n := len(ids)
		b.mu.Unlock()
		if n == 1 {
			close(entered)
			<-leave // it does not look at its context
		}
		b.write("step %d", n)
		return nil
	}})
	old := b.start(t, "W")
	<-entered
	b.signal(t, old, "noise")
	b.completed(t, old, 3)
	run := b.reset(t, old, 3)
	b.untilParked(t, run)
	close(leave)
	b.succeed(t, run)
	require.Equal(t, []string{"step 1", "step 2"}, b.read())
	require.Equal(t, []string{old.GetRunID(), run.GetRunID()}, ids)
	b.requireFree(t, account.Name)
}

// A waiting run is reset: its request leaves the queue, and the new run enqueues its own.
func TestReset_RunWaits_WaitsAgain(t *testing.T) {
	t.Parallel()
	b := setupWith(t, lockcore.Config{ClaimTTL: longer / 4, WaiterTTL: longer})
	var entries []entry
	b.workflow("W", func(ctx workflow.Context) error { return call(workflows.Guard(ctx, account), "step") })
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	somebody := b.taken(t, account)
	old := b.start(t, "W")
	b.untilParked(t, old)
	b.signal(t, old, "noise")
	b.completed(t, old, 3)
	run := b.reset(t, old, 3)
	require.Eventually(t, func() bool {
		return slices.Equal(b.listed(t, account.Name, lockcore.StateWaiting, runOf), []string{run.GetRunID()})
	}, within, lookEvery, "the new run does not wait alone")
	require.NoError(t, somebody.Leave(t.Context()))
	b.succeed(t, run)
	require.Equal(t, run.GetRunID(), entries[0].lease.Run)
	b.requireFree(t, account.Name)
}

// A run to which locks were handed over is reset: the new one holds them.
func TestReset_RunContinuedAnother_Holds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var entries []entry
	b.workflow("W", handsOver(func(ctx workflow.Context) error {
		receive(ctx, "go on")
		if err := call(workflows.Guard(ctx, second), "second"); err != nil {
			return err
		}
		receive(ctx, "go on")
		return call(workflows.Guard(ctx, account), "third")
	}))
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	first := b.start(t, "W")
	next := b.untilContinued(t, first)
	b.completed(t, next, 1)
	run := b.reset(t, next, 1)
	b.signal(t, run, "go on")
	b.untilWritten(t, 2)
	require.Eventually(t, func() bool { return len(b.holders(t, second.Name)) == 1 }, within, lookEvery, "account/2 is not held")
	b.requireHolds(t, first, account)
	b.signal(t, run, "go on")
	require.NoError(t, b.last(t, run))
	require.Equal(t, run.GetRunID(), entries[2].lease.Run)
	require.True(t, entries[2].lease.Joined)
	b.requireFree(t, account.Name)
	b.requireFree(t, second.Name)
}

// A step had waited in vain before the reset, so that it was not undone. It is not undone by the new run's replay either.
func TestReset_WaitHadTimedOut_WaitsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		err := saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, MaxWait: time.Second})
			return s.Step(ctx, "Look", "Look").Get(ctx, nil)
		})
		if !lockcoreBusy(err) {
			return errors.Join(err, errors.New("not busy"))
		}
		receive(ctx, "go on")
		return nil
	})
	b.serve(t)
	somebody := b.taken(t, account)
	old := b.start(t, "W")
	b.untilEvent(t, old, enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED)
	tasks := 0
	require.Eventually(t, func() bool {
		tasks = b.untilIdle(t, old)
		return len(b.waiters(t, account.Name)) == 0
	}, within, lookEvery, "it still waits")
	require.NoError(t, somebody.Leave(t.Context()))
	run := b.reset(t, old, tasks)
	b.signal(t, run, "go on")
	b.succeed(t, run)
	require.Empty(t, b.read())
}

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
func TestActivityReset_StepHadRun_IsUndone(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]workflows.Locks{
		"waits": {MaxWait: time.Second}, "tries": {Try: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			l.Resources = []lockcore.Resource{account}
			b.workflow("W", func(ctx workflow.Context) error {
				return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
					ctx = workflow.WithRetryPolicy(ctx, temporal.RetryPolicy{InitialInterval: time.Hour})
					return s.Step(workflows.WithLocks(ctx, l), "Fail", "Undo").Get(ctx, nil)
				})
			})
			b.work(t, sdkworker.Options{}, map[string]any{
				"Fail": func(context.Context) error { b.write("ran"); return errors.New("fails") },
				"Undo": b.writer("undone"),
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
			require.Eventually(t, func() bool {
				h := commands(b.historyOf(t, run.GetID(), run.GetRunID()))
				return slices.Contains(h, "Undo")
			}, within, lookEvery, "the saga does not fail")
			require.NoError(t, other.Leave(t.Context()))
			_, err := b.end(t, run)
			require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
			require.Equal(t, []string{"ran", "undone"}, b.read())
		})
	}
}

// A step whose lock remembers its earlier attempts is tried until it is in front of them, and then runs.
func TestActivityReset_StepRunsAgain(t *testing.T) {
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
			b.succeed(t, run)
			b.requireFree(t, account.Name)
		})
	}
}

// The attempt that was reset is deaf and outlives its timeout, and the next one has its number:
// each has a part of its own.
func TestActivityReset_SameAttemptNumber_HasAnotherPart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			StartToCloseTimeout: time.Second, RetryPolicy: &temporal.RetryPolicy{InitialInterval: 2 * time.Second},
		})
		return do(workflows.WithLocks(ctx, locks(account)), "Deaf")
	})
	goes, looked := make(chan struct{}), make(chan error, 1)
	b.work(t, sdkworker.Options{}, map[string]any{"Deaf": func(ctx context.Context) error {
		if b.write("ran"); len(b.read()) > 1 {
			return nil
		}
		<-goes // it does not look at ctx
		free, err := b.isFree(context.WithoutCancel(ctx), account.Name)
		if valid := activities.Leases(ctx)[0].Valid(); valid && free || err != nil {
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

// untilFailed waits until the attempt of Fail that has begun is over, and no other has begun.
func (b *bundle) untilFailed(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	b.untilActivity(t, run, func(a *workflowpb.PendingActivityInfo) bool {
		return a.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED && a.GetLastFailure().GetMessage() == "fails"
	}, "the attempt is not over")
}
