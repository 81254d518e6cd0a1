package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/workflows"
)

// taken is another party's hold on a resource, until the test releases it.
func (b *bundle) taken(t *testing.T, resource lockcore.Resource) *lockcore.Session {
	t.Helper()
	s, err := b.locker.TryAcquire(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "somebody"}, Resources: []lockcore.Resource{resource}})
	require.NoError(t, err)
	return s
}

// parked starts a workflow that waits for the account, which another party holds.
func (b *bundle) parked(t *testing.T, name string) (client.WorkflowRun, *lockcore.Session) {
	t.Helper()
	other := b.taken(t, account)
	run := b.start(t, name)
	b.untilParked(t, run)
	return run, other
}

// untilQueued waits until the queue of a resource has n requests.
func (b *bundle) untilQueued(t *testing.T, resource string, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(b.waiters(t, resource)) == n }, within, lookEvery, "%d do not wait for %s", n, resource)
}

// untilParked waits until an attempt of the activity by which the run waits has failed.
func (b *bundle) untilParked(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	b.untilActivity(t, run, func(a *workflowpb.PendingActivityInfo) bool {
		waits := a.GetActivityType().GetName() == "lockstep.Wait" || a.GetActivityType().GetName() == "lockstep.Acquire"
		return waits && isBusy(a)
	}, "the workflow does not wait")
}

// lockAround holds a lock while it calls fn.
func lockAround(l workflows.Locks, fn func(ctx workflow.Context) error) func(ctx workflow.Context) error {
	return func(ctx workflow.Context) error {
		return under(ctx, l, func(*workflows.Hold) error { return fn(ctx) })
	}
}

func TestWait_SeveralWaiters_GrantedInOrderWithoutASlot(t *testing.T) {
	t.Parallel()
	noteRun := func(ctx workflow.Context) error {
		return workflow.ExecuteActivity(ctx, "Note", workflow.GetInfo(ctx).WorkflowExecution.RunID).Get(ctx, nil)
	}
	for name, tc := range map[string]struct {
		fn   func(ctx workflow.Context) error
		most int // events
	}{
		"step": {func(ctx workflow.Context) error { return noteRun(workflows.Guard(ctx, account)) }, 24},
		"Lock": {lockAround(locks(account), noteRun), 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.workflow("W", tc.fn)
			b.work(t, sdkworker.Options{MaxConcurrentActivityExecutionSize: 1}, nil)
			other := b.taken(t, account)
			var want []string
			var runs []client.WorkflowRun
			for i := range 6 {
				run := b.start(t, "W")
				runs, want = append(runs, run), append(want, run.GetRunID())
				b.untilQueued(t, account.Name, i+1)
			}
			b.untilParked(t, runs[0])
			require.NoError(t, other.Leave(t.Context()))
			for _, run := range runs {
				events, err := b.end(t, run)
				require.NoError(t, err)
				require.LessOrEqual(t, countEvents(events), tc.most)
			}
			require.Equal(t, want, b.read())
			b.requireFree(t, account.Name)
		})
	}
}

// The workflow has the first lock and waits for the second one when it is cancelled.
func TestWait_Cancelled_LeavesNothing(t *testing.T) {
	t.Parallel()
	for name, fn := range map[string]func(ctx workflow.Context) error{
		"step": func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account, account2), "Look") },
		"saga": func(ctx workflow.Context) error {
			return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
				return s.Step(workflows.Guard(ctx, account, account2), "Look", "Look").Get(ctx, nil)
			})
		},
		"Lock": lockAround(locks(account2, account), func(ctx workflow.Context) error { return do(ctx, "Look") }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.workflow("W", fn)
			b.serve(t)
			other := b.taken(t, account2)
			run := b.start(t, "W")
			b.untilParked(t, run)
			require.Len(t, b.holders(t, account.Name), 1)
			b.cancel(t, run)
			_, err := b.end(t, run)
			require.True(t, temporal.IsCanceledError(err), "%v", err)
			b.requireFree(t, account.Name)
			b.untilQueued(t, account2.Name, 0)
			require.NoError(t, other.Leave(t.Context()))
			b.requireFree(t, account2.Name)
			require.Empty(t, b.read())
		})
	}
}

// A workflow that gave up has left the queue, although it has not ended.
func TestWait_GivenUp_ErrorNamesTheHolder(t *testing.T) {
	t.Parallel()
	step := func(l workflows.Locks) func(ctx workflow.Context) error {
		return func(ctx workflow.Context) error { return do(workflows.WithLocks(ctx, l), "Nothing") }
	}
	lock := func(l workflows.Locks) func(ctx workflow.Context) error {
		l.Resources = append(l.Resources, lockcore.Exclusive("account/0"))
		return lockAround(l, func(workflow.Context) error { return nil })
	}
	try := workflows.Locks{Resources: []lockcore.Resource{account}, Try: true}
	short := workflows.Locks{Resources: []lockcore.Resource{account}, MaxWait: time.Second}
	for name, fn := range map[string]func(ctx workflow.Context) error{
		"step, try": step(try), "step, max wait": step(short), "Lock, try": lock(try), "Lock, max wait": lock(short),
		"step whose policy does not retry": func(ctx workflow.Context) error {
			return step(locks(account))(workflow.WithRetryPolicy(ctx, temporal.RetryPolicy{NonRetryableErrorTypes: []string{"lockstep.Busy"}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.workflow("W", func(ctx workflow.Context) error {
				err := fn(ctx)
				if busy := new(lockcore.BusyError); errors.As(err, &busy) {
					_ = say(ctx, busy.Holders[0].LockID)
				}
				receive(ctx, "go on")
				return err
			})
			b.serve(t)
			other := b.taken(t, account)
			run := b.start(t, "W")
			b.untilWritten(t, 1)
			require.Equal(t, []string{"somebody"}, b.read())
			b.untilQueued(t, account.Name, 0)
			require.NoError(t, other.Leave(t.Context()))
			b.requireFree(t, account.Name)
			b.requireFree(t, "account/0")
			b.signal(t, run, "go on")
			events, err := b.end(t, run)
			require.ErrorIs(t, workflows.LockError(err), lockcore.ErrBusy)
			require.Contains(t, commands(&historypb.History{Events: events}), "failed: lockstep.Busy")
		})
	}
}

// The process that frees the lock, or the server when MaxWait is over, ends the wait.
func TestWait_NoWorkerPolls_Ends(t *testing.T) {
	t.Parallel()
	for name, maxWait := range map[string]time.Duration{"woken": 0, "max wait": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			l := workflows.Locks{Resources: []lockcore.Resource{account}, MaxWait: maxWait}
			b.workflow("W", lockAround(l, func(workflow.Context) error { return nil }))
			b.work(t, sdkworker.Options{LocalActivityWorkerOnly: true}, nil)
			asks := b.work(t, sdkworker.Options{DisableWorkflowWorker: true}, nil)
			run, other := b.parked(t, "W")
			t.Cleanup(func() { _ = b.client.TerminateWorkflow(context.Background(), run.GetID(), "", "the test is over") }) // where it does not end
			asks.Stop()
			if maxWait == 0 {
				require.NoError(t, other.Leave(t.Context()))
				b.untilEvents(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, 1)
				b.work(t, sdkworker.Options{DisableWorkflowWorker: true}, nil)
				b.succeed(t, run)
			} else {
				_, err := b.end(t, run)
				var busy *lockcore.BusyError
				require.ErrorAs(t, workflows.LockError(err), &busy)
				require.Equal(t, "somebody", busy.Holders[0].LockID)
				b.work(t, sdkworker.Options{DisableWorkflowWorker: true}, nil)
				b.untilQueued(t, account.Name, 0)
				require.NoError(t, other.Leave(t.Context()))
			}
			b.requireFree(t, account.Name)
		})
	}
}

// Steps of one saga that wait side by side: the first is granted a claim, and the others, who may join it, get none.
func TestWait_StepsOfOneSaga_GrantedTogether(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.saga("W", func(ctx workflow.Context, _ *workflows.Saga) error {
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
	b.succeed(t, run)
}

// A step waits, runs for longer than its MaxWait, fails, and waits again for a holder that acquired the lock in between.
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
	second := make(chan *lockcore.Session, 1)
	go func() {
		s, err := b.locker.Acquire(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "second"}, Resources: []lockcore.Resource{account}})
		assert.NoError(t, err)
		second <- s
	}()
	b.untilQueued(t, account.Name, 1)
	close(queued)
	s := <-second
	b.untilEvents(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED, 2)
	require.NoError(t, s.Leave(t.Context()))
	b.succeed(t, run)
	require.Len(t, b.read(), 2)
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
			others := make(chan *lockcore.Session, 1)
			go func() {
				other, err := b.locker.Acquire(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "somebody"}, Resources: []lockcore.Resource{account}})
				if err == nil {
					others <- other
				}
			}()
			b.untilQueued(t, account.Name, 1)
			close(queued)
			other := <-others
			b.untilParked(t, run)
			require.NoError(t, other.Leave(t.Context()))
			b.succeed(t, run)
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
		run, other := b.parked(t, name)
		require.NoError(t, other.Leave(t.Context()))
		b.succeed(t, run)
		b.requireFree(t, account.Name)
	}
}
