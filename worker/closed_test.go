package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// briefly is the account in scope saga, with promises that end soon after the last sign of life.
var briefly = workflows.Locks{Resources: []lockcore.Resource{account}, TTL: 2 * time.Second, HoldTTL: 5 * time.Second}

// runTimeout is long enough for a run to take its first step on a machine that is busy.
const runTimeout = 10 * time.Second

// holds is a saga that takes the account in its first step and then waits for a signal.
func holds(l workflows.Locks) func(ctx workflow.Context) error {
	return func(ctx workflow.Context) error {
		return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
			if err := do(workflows.WithLocks(ctx, l), "Look"); err != nil {
				return err
			}
			receive(ctx, "go on")
			return nil
		})
	}
}

// No code of a terminated or timed-out run runs again. Its holds last until their TTL ends.
func TestClosedRun_LeftHold_LastsForHoldTTL(t *testing.T) {
	t.Parallel()
	for name, timeout := range map[string]time.Duration{"terminated": 0, "timed out": runTimeout} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.workflow("W", holds(briefly))
			b.workflow("other", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Look") })
			b.serve(t)
			run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue, WorkflowRunTimeout: timeout}, "W")
			require.NoError(t, err)
			b.untilWritten(t, 1)
			if timeout == 0 {
				b.terminate(t, run)
			}
			_, err = b.end(t, run)
			require.Error(t, err)
			ended := time.Now()
			require.Equal(t, []string{lockID(run)}, b.holders(t, account.Name)) // until another request evicts it
			b.succeed(t, b.start(t, "other"))
			t.Logf("the next one was done %v after the end", time.Since(ended))
			b.requireFree(t, account.Name)
		})
	}
}

// A later run of the same workflow knows that the earlier one is closed, and does not wait for its promise to end.
func TestClosedRun_LeftAHold_LaterRunAcquiresIt(t *testing.T) {
	t.Parallel()
	look := lockAround(lasting(account), func(ctx workflow.Context) error {
		err := do(ctx, "Look")
		receive(ctx, "go on")
		return err
	})
	for name, tc := range map[string]struct {
		fn func(ctx workflow.Context) error
		client.StartWorkflowOptions
	}{
		"saga, started again after termination": {fn: holds(lasting(account))},
		"Lock, started again after termination": {fn: look},
		"saga, retried after a timeout": {holds(lasting(account)), client.StartWorkflowOptions{
			WorkflowRunTimeout: runTimeout, RetryPolicy: &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, MaximumAttempts: 2},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.workflow("W", tc.fn)
			b.serve(t)
			tc.TaskQueue, tc.ID = b.queue, b.queue
			run, err := b.client.ExecuteWorkflow(t.Context(), tc.StartWorkflowOptions, "W")
			require.NoError(t, err)
			b.untilWritten(t, 1)
			if tc.RetryPolicy == nil {
				b.terminate(t, run)
				_, err = b.client.ExecuteWorkflow(t.Context(), tc.StartWorkflowOptions, "W")
				require.NoError(t, err)
			}
			b.untilWritten(t, 2)
			b.requireHolds(t, b.current(t, run), account)
			b.signal(t, run, "go on")
			require.NoError(t, b.last(t, run))
			b.requireFree(t, account.Name)
		})
	}
}

// A step outlives its saga or its run: because it ignores its cancellation, because a terminated run does not cancel its activities, or
// because an update's step runs when the run ends. Others stay out until it has returned.
func TestStep_OutlivesItsLocks_OthersStayOut(t *testing.T) {
	t.Parallel()
	inSaga := func(l workflows.Locks) func(ctx workflow.Context) error {
		return func(ctx workflow.Context) error {
			return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error { return do(workflows.WithLocks(ctx, l), "Step") })
		}
	}
	inUpdate := func(ctx workflow.Context) error {
		err := workflow.SetUpdateHandler(ctx, "pay", func(ctx workflow.Context) error {
			return do(workflows.WithLocks(withOptions(ctx), saved(account)), "Step")
		})
		receive(ctx, "go on")
		return err
	}
	for name, tc := range map[string]struct {
		fn  func(ctx workflow.Context) error
		end func(b *bundle, t *testing.T, run client.WorkflowRun)
	}{
		"terminated run": {inSaga(briefly), (*bundle).terminate}, // until its hold's TTL has ended too
		"cancelled saga": {inSaga(locks(account)), func(b *bundle, t *testing.T, run client.WorkflowRun) {
			b.cancel(t, run)
			_, err := b.end(t, run)
			require.True(t, temporal.IsCanceledError(err), "%v", err)
		}},
		"update": {inUpdate, func(b *bundle, t *testing.T, run client.WorkflowRun) {
			b.signal(t, run, "go on")
			b.succeed(t, run)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			entered, leave := make(chan struct{}), make(chan struct{})
			b.workflow("W", tc.fn)
			b.workflow("other", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Other") })
			b.work(t, sdkworker.Options{}, map[string]any{
				"Step":  func(context.Context) error { close(entered); <-leave; b.write("step"); return nil },
				"Other": b.writer("other"),
			})
			run := b.start(t, "W")
			if name == "update" {
				_, err := b.client.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
					WorkflowID: run.GetID(), RunID: run.GetRunID(), UpdateName: "pay", WaitForStage: client.WorkflowUpdateStageAccepted,
				})
				require.NoError(t, err)
			}
			<-entered
			tc.end(b, t, run)
			other := b.start(t, "other")
			b.untilParked(t, other)
			require.Empty(t, b.read())
			close(leave)
			b.succeed(t, other)
			require.Equal(t, []string{"step", "other"}, b.read())
			b.requireFree(t, account.Name)
		})
	}
}

// The cancellation and the grant meet: whichever comes first, nothing stays, and the next run is not kept waiting.
func TestWait_CancelledAsItIsGranted_LeavesNothing(t *testing.T) {
	t.Parallel()
	for name, fn := range map[string]func(ctx workflow.Context) error{
		"saga": func(ctx workflow.Context) error {
			return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
				return do(workflows.Guard(ctx, account), "Nothing")
			})
		},
		"Lock": lockAround(locks(account), func(ctx workflow.Context) error { return workflow.Sleep(ctx, time.Second) }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupWith(t, lockcore.Config{ClaimTTL: longer / 4, WaiterTTL: longer, HoldTTL: longer})
			b.workflow("W", fn)
			b.serve(t)
			for range 6 {
				run, other := b.parked(t, "W")
				cancelled := make(chan error, 1)
				go func() { cancelled <- b.client.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()) }()
				require.NoError(t, other.Leave(t.Context()))
				require.NoError(t, <-cancelled)
				_, _ = b.end(t, run) // cancelled, or done before it heard
				b.requireFree(t, account.Name)
				require.Empty(t, b.waiters(t, account.Name))
			}
		})
	}
}

// The grant to a run that is gone is given back at once, and the next in line is served.
func TestTerminatedRun_Waiting_IsSkipped(t *testing.T) {
	t.Parallel()
	b := setupWith(t, lockcore.Config{ClaimTTL: longer / 4, WaiterTTL: longer})
	b.workflow("W", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Look") })
	b.serve(t)
	somebody := b.taken(t, account)
	gone := b.start(t, "W")
	b.untilParked(t, gone)
	next := b.start(t, "W")
	b.untilParked(t, next)
	b.terminate(t, gone)
	began := time.Now()
	require.NoError(t, somebody.Leave(t.Context()))
	b.succeed(t, next)
	t.Logf("the next in line was done after %v", time.Since(began))
	b.requireFree(t, account.Name)
}

func TestSaga_CancelledBeforeFirstStep_RequestsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.saga("W", func(ctx workflow.Context, _ *workflows.Saga) error {
		ctx.Done().Receive(ctx, nil)
		return do(workflows.Guard(ctx, account), "Look")
	})
	b.serve(t)
	somebody := b.taken(t, account)
	run := b.start(t, "W")
	b.cancel(t, run)
	_, err := b.end(t, run)
	require.True(t, temporal.IsCanceledError(err), "%v", err)
	require.Empty(t, b.read())
	require.Empty(t, b.waiters(t, account.Name))
	require.NoError(t, somebody.Leave(t.Context()))
}

// Eviction ends the coroutines of a run and runs its deferred functions. Nothing is released, and the run continues on a worker.
func TestCacheEviction_ReleasesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.saga("W", func(ctx workflow.Context, _ *workflows.Saga) error {
		defer b.write("deferred")
		ctx = workflows.Guard(ctx, account)
		if err := do(ctx, "Nothing"); err != nil {
			return err
		}
		receive(ctx, "go on")
		return do(ctx, "Nothing")
	})
	b.serve(t)
	run := b.start(t, "W")
	b.completed(t, run, 2)
	sdkworker.PurgeStickyWorkflowCache()
	b.untilWritten(t, 1)
	require.Equal(t, []string{lockID(run)}, b.holders(t, account.Name))
	b.signal(t, run, "go on")
	b.succeed(t, run)
	b.requireFree(t, account.Name)
}

// A panic in workflow code fails the workflow task, which Temporal retries. The run keeps its locks until then, and the
// repaired code still holds them.
func TestPanic_CodeIsRepaired_RunStillHolds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	testenv.AllowFailedTasks(t, b.queue, "broken")
	var broken atomic.Bool
	broken.Store(true)
	panicked := make(chan struct{}, 100)
	b.saga("W", func(ctx workflow.Context, _ *workflows.Saga) error {
		ctx = workflows.Guard(ctx, account)
		if err := do(ctx, "Nothing"); err != nil {
			return err
		}
		if broken.Load() {
			panicked <- struct{}{}
			panic("broken")
		}
		return do(ctx, "Look")
	})
	b.serve(t)
	run := b.start(t, "W")
	<-panicked
	<-panicked
	require.Equal(t, []string{lockID(run)}, b.holders(t, account.Name))
	broken.Store(false)
	b.succeed(t, run)
	require.Equal(t, []string{"free: false"}, b.read())
	b.requireFree(t, account.Name)
}

// If a panic fails the workflow, no code is left to release its locks.
func TestPanic_FailsRun_HoldsLast(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.saga("W", func(ctx workflow.Context, _ *workflows.Saga) error {
		if err := do(workflows.WithLocks(ctx, briefly), "Nothing"); err != nil {
			return err
		}
		panic("broken")
	})
	b.work(t, sdkworker.Options{WorkflowPanicPolicy: sdkworker.FailWorkflow}, nil)
	run := b.start(t, "W")
	var failed *temporal.PanicError
	require.ErrorAs(t, run.Get(t.Context(), nil), &failed)
	ended := time.Now()
	b.requireFree(t, account.Name)
	t.Logf("free %v after the end", time.Since(ended))
}
