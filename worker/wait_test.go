package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// taken is another party's hold on a resource, until the test releases it.
func (b *bundle) taken(t *testing.T, resource lockcore.Resource) *party.Session {
	t.Helper()
	s, err := b.locker.TryAcquire(t.Context(), party.Request{LockID: "somebody", Resources: []lockcore.Resource{resource}})
	require.NoError(t, err)
	return s
}

// untilQueued waits until the queue of a resource has n requests.
func (b *bundle) untilQueued(t *testing.T, resource string, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		waiting := 0
		for s, err := range b.locker.Status(t.Context(), lockcore.Filter{Resource: resource, States: []lockcore.State{lockcore.StateWaiting}}) {
			if err != nil {
				return false
			}
			_ = s
			waiting++
		}
		return waiting == n
	}, within, 20*time.Millisecond, "%d do not wait for %s", n, resource)
}

// untilParked waits until an attempt of the activity by which the run waits has failed.
func (b *bundle) untilParked(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	b.untilActivity(t, run, func(a *workflowpb.PendingActivityInfo) bool {
		waits := a.GetActivityType().GetName() == "lockstep.Wait" || a.GetActivityType().GetName() == "lockstep.Acquire"
		return waits && isBusy(a)
	}, "the workflow does not wait")
}

func TestWait_Busy_TakesNoSlotAndIsWoken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Look") })
	b.work(t, sdkworker.Options{MaxConcurrentActivityExecutionSize: 1}, map[string]any{"Look": b.look})
	other := b.taken(t, account)
	first := b.start(t, "W")
	b.untilParked(t, first)
	var runs []client.WorkflowRun
	for i := range 5 {
		runs = append(runs, b.start(t, "W"))
		b.untilQueued(t, account.Name, i+2)
	}
	require.NoError(t, other.Leave(t.Context()))
	for _, run := range append(runs, first) {
		events, err := b.end(t, run)
		require.NoError(t, err)
		require.LessOrEqual(t, countEvents(events), 24)
	}
	require.Equal(t, []string{"free: false", "free: false", "free: false", "free: false", "free: false", "free: false"}, b.read())
	b.requireFree(t, account.Name)
}

func TestWait_SeveralWaiters_KeepTheirOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Note") })
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.noteRun})
	other := b.taken(t, account)
	var want []string
	var runs []client.WorkflowRun
	for i := range 8 {
		run := b.start(t, "W")
		runs, want = append(runs, run), append(want, run.GetRunID())
		b.untilQueued(t, account.Name, i+1)
	}
	require.NoError(t, other.Leave(t.Context()))
	for _, run := range runs {
		_, err := b.end(t, run)
		require.NoError(t, err)
	}
	require.Equal(t, want, b.read())
}

func (b *bundle) noteRun(ctx context.Context) error {
	b.write("%s", runID(ctx))
	return nil
}

func TestWait_Cancelled_LeavesTheQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Nothing") })
	b.work(t, sdkworker.Options{}, map[string]any{"Nothing": nothing})
	other := b.taken(t, account)
	run := b.start(t, "W")
	b.untilParked(t, run)
	require.NoError(t, b.client.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
	_, err := b.end(t, run)
	require.True(t, temporal.IsCanceledError(err), "%v", err)
	b.untilQueued(t, account.Name, 0)
	require.NoError(t, other.Leave(t.Context()))
	b.requireFree(t, account.Name)
}

func TestWait_MaxWaitOver_ErrorNamesTheHolder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		err := do(workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, MaxWait: time.Second}), "Nothing")
		var busy *lockcore.BusyError
		if !asError(err, &busy) {
			return fmt.Errorf("not busy: %w", err)
		}
		b.write("%s at %d", busy.Holders[0].LockID, busy.Position)
		return nil
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Nothing": nothing})
	other := b.taken(t, account)
	_, err := b.end(t, b.start(t, "W"))
	require.NoError(t, err)
	require.Contains(t, b.read(), "somebody at 1")
	b.untilQueued(t, account.Name, 0)
	require.NoError(t, other.Leave(t.Context()))
}

func TestWait_IsShownInCurrentDetails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		workflow.SetCurrentDetails(ctx, "mine")
		err := do(workflows.Guard(ctx, account), "Nothing")
		b.write("after: %s", workflow.GetCurrentDetails(ctx))
		return err
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Nothing": nothing})
	other := b.taken(t, account)
	run := b.start(t, "W")
	b.untilParked(t, run)
	meta, err := b.client.QueryWorkflow(t.Context(), run.GetID(), run.GetRunID(), "__temporal_workflow_metadata")
	require.NoError(t, err)
	var details sdkpb.WorkflowMetadata
	require.NoError(t, meta.Get(&details))
	require.Contains(t, details.GetCurrentDetails(), "mine")
	require.Contains(t, details.GetCurrentDetails(), account.Name)
	require.Contains(t, details.GetCurrentDetails(), "somebody")
	require.NoError(t, other.Leave(t.Context()))
	_, err = b.end(t, run)
	require.NoError(t, err)
	require.Contains(t, b.read(), "after: mine")
}

func runID(ctx context.Context) string { return activity.GetInfo(ctx).WorkflowExecution.RunID }

func asError[T error](err error, target *T) bool { return errors.As(err, target) }

// Steps of one saga that wait side by side: the first is granted a claim, and the others, who may join it, get none.
func TestWait_StepsOfOneSaga_GrantedTogether(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			steps := make([]workflow.Future, 3)
			for i := range steps {
				steps[i] = workflow.ExecuteActivity(ctx, "Meet")
			}
			for _, step := range steps {
				if err := step.Get(ctx, nil); err != nil {
					return err
				}
			}
			return nil
		})
	})
	inside, all := make(chan struct{}, 3), make(chan struct{})
	b.work(t, sdkworker.Options{}, map[string]any{"Meet": func(ctx context.Context) error {
		inside <- struct{}{}
		select {
		case <-all: // none ends before all have come
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	other := b.taken(t, account)
	run := b.start(t, "W")
	b.untilQueued(t, account.Name, 3)
	require.NoError(t, other.Leave(t.Context()))
	for range 3 {
		<-inside
	}
	close(all)
	_, err := b.end(t, run)
	require.NoError(t, err)
}

func TestWait_SagaCancelledBeforeGrant_UndoesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			return s.Step(workflows.Guard(ctx, account), "Look", "Look").Get(ctx, nil)
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look})
	other := b.taken(t, account)
	run := b.start(t, "W")
	b.untilParked(t, run)
	require.NoError(t, b.client.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
	_, err := b.end(t, run) // while the lock is held
	require.True(t, temporal.IsCanceledError(err), "%v", err)
	require.Empty(t, b.read())
	require.NoError(t, other.Leave(t.Context()))
}

// What a workflow returns is recorded as what it is, whatever type it has in workflow code.
func TestWait_ReturnedLockError_KeepsItsFailureType(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return do(workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, MaxWait: time.Second}), "Nothing")
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Nothing": nothing})
	other := b.taken(t, account)
	events, err := b.end(t, b.start(t, "W"))
	require.Error(t, err)
	failure := events[len(events)-1].GetWorkflowExecutionFailedEventAttributes().GetFailure()
	require.Equal(t, "lockstep.Busy", failure.GetApplicationFailureInfo().GetType())
	require.NoError(t, other.Leave(t.Context()))
}

// No worker looks when the wait is over.
func TestMaxWait_NoWorkerPolls_EndsTheWait(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		_, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, MaxWait: 5 * time.Second})
		var busy *lockcore.BusyError
		if !errors.As(err, &busy) || busy.Holders[0].LockID != "somebody" {
			return fmt.Errorf("not busy: %w", err)
		}
		return nil
	})
	b.work(t, sdkworker.Options{LocalActivityWorkerOnly: true}, nil)
	asks := b.work(t, sdkworker.Options{DisableWorkflowWorker: true}, nil)
	other := b.taken(t, account)
	run := b.start(t, "W")
	t.Cleanup(func() { _ = b.client.TerminateWorkflow(context.Background(), run.GetID(), "", "the test is over") }) // where it does not end
	b.untilParked(t, run)
	asks.Stop()
	_, err := b.end(t, run)
	require.NoError(t, err)
	b.work(t, sdkworker.Options{DisableWorkflowWorker: true}, nil)
	b.untilQueued(t, account.Name, 0)
	require.NoError(t, other.Leave(t.Context()))
	b.requireFree(t, account.Name)
}

// A step waits, runs for longer than its MaxWait, fails, and waits again for the one that came in between.
func TestMaxWait_RunBetweenWaits_DoesNotCount(t *testing.T) {
	t.Parallel()
	const maxWait = 5 * time.Second
	b, queued := setup(t), make(chan struct{})
	b.workflow("W", func(ctx workflow.Context) error {
		return do(workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, MaxWait: maxWait}), "Do")
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Do": func(context.Context) error {
		b.write("runs")
		if len(b.read()) > 1 {
			return nil
		}
		<-queued
		<-time.After(maxWait + time.Second)
		return errLate
	}})
	first := b.taken(t, account)
	run := b.start(t, "W")
	b.untilParked(t, run)
	require.NoError(t, first.Leave(t.Context()))
	b.untilWritten(t, 1)
	second := make(chan *party.Session, 1)
	go func() {
		s, err := b.locker.Acquire(t.Context(), party.Request{LockID: "second", Resources: []lockcore.Resource{account}})
		assert.NoError(t, err)
		second <- s
	}()
	b.untilQueued(t, account.Name, 1)
	close(queued)
	s := <-second
	b.untilEvents(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED, 2)
	require.NoError(t, s.Leave(t.Context()))
	_, err := b.end(t, run)
	require.NoError(t, err)
	require.Len(t, b.read(), 2)
}

func TestWait_NoWorkerPolls_IsWoken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return under(ctx, locks(account), func(*workflows.Hold) error { return nil })
	})
	b.work(t, sdkworker.Options{LocalActivityWorkerOnly: true}, nil)
	asks := b.work(t, sdkworker.Options{DisableWorkflowWorker: true}, nil)
	other := b.taken(t, account)
	run := b.start(t, "W")
	t.Cleanup(func() { _ = b.client.TerminateWorkflow(context.Background(), run.GetID(), "", "the test is over") }) // where it does not end
	b.untilActivity(t, run, isBusy, "the workflow does not wait")
	asks.Stop()
	require.NoError(t, other.Leave(t.Context()))
	b.untilEvents(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, 1)
	b.work(t, sdkworker.Options{DisableWorkflowWorker: true}, nil)
	_, err := b.end(t, run)
	require.NoError(t, err)
	b.requireFree(t, account.Name)
}

// A wait in the middle of a step is another scheduling of it: what names it to the outside must not be what Temporal counts.
func TestWait_BetweenTwoAttempts_StepRunsAgain(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]string{"default": "", "explicit": "mine"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.workflow("W", func(ctx workflow.Context) error {
				ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
					StartToCloseTimeout: time.Minute, ActivityID: id, RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second},
				})
				return do(workflows.Guard(ctx, account), "Half")
			})
			ids, queued := make(chan string, 2), make(chan struct{})
			var failed atomic.Bool
			b.work(t, sdkworker.Options{}, map[string]any{"Half": func(ctx context.Context) error {
				info := activity.GetInfo(ctx)
				b.write("attempt %d, half way: %v", info.Attempt, activity.HasHeartbeatDetails(ctx))
				ids <- info.ActivityID
				activity.RecordHeartbeat(ctx, "half way")
				<-queued
				if !failed.Swap(true) {
					return errors.New("failed half way")
				}
				return nil
			}})
			run := b.start(t, "W")
			b.untilWritten(t, 1)
			others := make(chan *party.Session, 1)
			go func() {
				other, err := b.locker.Acquire(t.Context(), party.Request{LockID: "somebody", Resources: []lockcore.Resource{account}})
				if err == nil {
					others <- other
				}
			}()
			b.untilQueued(t, account.Name, 1)
			close(queued)
			other := <-others
			b.untilParked(t, run)
			require.NoError(t, other.Leave(t.Context()))
			_, err := b.end(t, run)
			require.NoError(t, err)
			require.Equal(t, []string{"attempt 1, half way: false", "attempt 1, half way: false"}, b.read())
			first, second := <-ids, <-ids
			if id != "" {
				require.Equal(t, []string{id, id}, []string{first, second})
				return
			}
			require.NotEqual(t, first, second)
		})
	}
}

func TestMaxWait_Forever_WaitsAsLongAsItTakes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	forever := workflows.Locks{Resources: []lockcore.Resource{account}, MaxWait: lockcore.Forever}
	b.workflow("step", func(ctx workflow.Context) error { return do(workflows.WithLocks(ctx, forever), "Do") })
	b.workflow("lock", func(ctx workflow.Context) error {
		return under(ctx, forever, func(*workflows.Hold) error { return nil })
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Do": nothing})
	for _, name := range []string{"step", "lock"} {
		other := b.taken(t, account)
		run := b.start(t, name)
		b.untilParked(t, run)
		require.NoError(t, other.Leave(t.Context()))
		_, err := b.end(t, run)
		require.NoError(t, err)
		b.requireFree(t, account.Name)
	}
}
