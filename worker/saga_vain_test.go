package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// meeting returns a step that notes its name, and that the first two meet in.
func (b *bundle) meeting() func(context.Context, string) error {
	var came atomic.Int32
	both := make(chan struct{})
	return func(ctx context.Context, name string) error {
		if came.Add(1) == 2 {
			close(both)
		}
		select {
		case <-both:
			b.write("did %s", name)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Two sagas lock the same accounts in opposite orders. The compensation of the step that never ran must not ask for the lock for
// which the step waited in vain, or both would wait for ever.
func TestSagasInOppositeDirectionsEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	transfer := func(accounts ...lockcore.Resource) func(ctx workflow.Context) error {
		return func(ctx workflow.Context) error {
			return workflows.RunSaga(ctx, workflows.SagaOptions{DeadlockRetries: 10}, func(ctx workflow.Context, s *workflows.Saga) error {
				for _, r := range accounts {
					ctx := workflows.Guard(ctx, r)
					if err := s.Step(ctx, "Meet", "Undo", r.Name).Get(ctx, nil); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	b.workflow("there", transfer(account, account2))
	b.workflow("back", transfer(account2, account))
	b.work(t, sdkworker.Options{}, map[string]any{
		"Meet": b.meeting(), "Undo": func(_ context.Context, name string) error { b.write("undid %s", name); return nil },
	})
	for _, run := range []client.WorkflowRun{b.start(t, "there"), b.start(t, "back")} {
		_, err := b.end(t, run)
		require.NoError(t, err, "it was undone, and began again")
	}
	balance := map[string]int{}
	for _, line := range b.read() {
		balance[line]++
	}
	for _, name := range []string{account.Name, account2.Name} {
		require.Equal(t, 2, balance["did "+name]-balance["undid "+name], "%v", b.read())
		b.requireFree(t, name)
	}
	require.Positive(t, balance["undid "+account.Name]+balance["undid "+account2.Name], "they did not meet")
}

// A step that gives up its wait ends its saga then, and not when the lock is free: it is not undone, since it never ran.
func TestAStepThatGivesUpItsWaitIsNotUndone(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]workflows.Locks{
		"max wait": {MaxWait: time.Second}, "try": {Try: true}, "cancel": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			l.Resources = []lockcore.Resource{account}
			b.workflow("W", func(ctx workflow.Context) error {
				return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
					return s.Step(workflows.WithLocks(ctx, l), "Look", "Look").Get(ctx, nil)
				})
			})
			b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look})
			other := b.taken(t, account)
			run := b.start(t, "W")
			if name == "cancel" {
				b.untilParked(t, run)
				require.NoError(t, b.client.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
			}
			_, err := b.end(t, run) // while the lock is held
			require.Equal(t, name == "cancel", temporal.IsCanceledError(err), "%v", err)
			require.Equal(t, name != "cancel", lockcoreBusy(workflows.LockError(err)), "%v", err)
			require.Empty(t, b.read())
			require.NoError(t, other.Leave(t.Context()))
			b.requireFree(t, account.Name)
		})
	}
}

// What CompensateWith registered always runs: which step it undoes is not said.
func TestWhatCompensateWithRegisteredRunsThoughItsStepNeverRan(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			s.CompensateWith(workflows.Guard(ctx, account), "Look")
			return do(workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, Try: true}), "Look")
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look})
	other := b.taken(t, account)
	run := b.start(t, "W")
	b.untilParked(t, run) // the compensation, for the step tried
	require.NoError(t, other.Leave(t.Context()))
	_, err := b.end(t, run)
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrBusy)
	require.Equal(t, []string{"free: false"}, b.read())
	b.requireFree(t, account.Name)
}

// A step under the lock that has run, and then failed, is undone.
func TestAStepThatRanAndFailedIsUndone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			s.CompensateWith(ctx, "Look")
			return do(ctx, "Refuse")
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look, "Refuse": refuse})
	_, err := b.end(t, b.start(t, "W"))
	require.ErrorContains(t, err, "no money")
	require.Equal(t, []string{"free: false"}, b.read())
}

// Two steps are cancelled in the moment in which they find their locks busy, so that their
// workflows do not hear of it. Their compensations would wait for each other: the one that is to
// give up asks the database, which knows that its step never ran.
func TestACompensationInADeadlockWhoseStepNeverRanHasNothingToUndo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	crossed := func(own, others lockcore.Resource) func(ctx workflow.Context) error {
		return func(ctx workflow.Context) error {
			return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
				if err := s.Step(workflows.Guard(ctx, own), "Meet", "Undo", own.Name).Get(ctx, nil); err != nil {
					return err
				}
				inner, cancel := workflow.WithCancel(workflows.Guard(ctx, others))
				vain := s.Step(inner, "Never", "Undo", "never")
				workflow.GetSignalChannel(ctx, "go on").Receive(ctx, nil)
				cancel()
				return vain.Get(ctx, nil)
			})
		}
	}
	b.workflow("A", crossed(account, account2))
	b.workflow("B", crossed(account2, account))
	b.work(t, sdkworker.Options{}, map[string]any{
		"Meet": b.meeting(), "Undo": func(_ context.Context, name string) error { b.write("undid %s", name); return nil },
		"Never": func(context.Context) error { return errors.New("it ran") },
	})
	runs := []client.WorkflowRun{b.start(t, "A"), b.start(t, "B")}
	for _, run := range runs {
		b.untilActivity(t, run, func(a *workflowpb.PendingActivityInfo) bool {
			return a.GetActivityType().GetName() == "Never" && a.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED
		}, "the step did not begin")
		b.signal(t, run, "go on")
	}
	for _, run := range runs {
		_, err := b.end(t, run)
		require.True(t, temporal.IsCanceledError(err), "it was undone: %v", err)
	}
	for _, r := range []lockcore.Resource{account, account2} {
		require.Contains(t, b.read(), "undid "+r.Name)
		b.requireFree(t, r.Name)
	}
}

// Compensations that wait for each other, and that nobody else can make room for: one fails, and its saga tells so. The other goes on.
func TestACircleOfCompensationsEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	crossed := func(own, others lockcore.Resource) func(ctx workflow.Context) error {
		return func(ctx workflow.Context) error {
			err := workflows.RunSaga(ctx, workflows.SagaOptions{DeadlockRetries: 3}, func(ctx workflow.Context, s *workflows.Saga) error {
				s.CompensateWith(workflows.Guard(ctx, own), "Undo", "own")
				s.CompensateWith(workflows.Guard(ctx, own, others), "Undo", "both")
				if err := workflow.ExecuteActivity(workflows.Guard(ctx, own), "Meet", own.Name).Get(ctx, nil); err != nil {
					return err
				}
				return temporal.NewNonRetryableApplicationError("no money", "NoMoney", nil)
			})
			var failed *workflows.SagaError
			if !errors.As(err, &failed) {
				return err
			}
			var deadlock *lockcore.DeadlockError
			return temporal.NewNonRetryableApplicationError(err.Error(), "NotUndone", nil, errors.As(failed.Compensations[0], &deadlock))
		}
	}
	b.workflow("A", crossed(account, account2))
	b.workflow("B", crossed(account2, account))
	var undone atomic.Int32
	b.work(t, sdkworker.Options{}, map[string]any{
		"Meet": b.meeting(), "Undo": func(context.Context, string) error { undone.Add(1); return nil },
	})
	failed := 0
	for _, run := range []client.WorkflowRun{b.start(t, "A"), b.start(t, "B")} {
		_, err := b.end(t, run)
		require.Error(t, err)
		var app *temporal.ApplicationError
		require.ErrorAs(t, err, &app)
		if app.Type() == "NotUndone" {
			var isDeadlock bool
			require.NoError(t, app.Details(&isDeadlock))
			require.True(t, isDeadlock, "%v", err)
			require.ErrorContains(t, err, "compensations failed: compensation 2 (Undo)")
			failed++
		}
	}
	require.Equal(t, 1, failed)
	require.EqualValues(t, 3, undone.Load(), "all but the one that was given up")
	b.requireFree(t, account.Name) // what a request that was given up may have got is given back within a second, or after that
	b.requireFree(t, account2.Name)
}
