package worker_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

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
					s.CompensateWith(ctx, "Undo", r.Name)
					if err := workflow.ExecuteActivity(ctx, "Meet", r.Name).Get(ctx, nil); err != nil {
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
					ctx = workflows.WithLocks(ctx, l)
					s.CompensateWith(ctx, "Look")
					return do(ctx, "Look")
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

// undoAccount registers a compensation under the account's lock, and triesInVain is a step that does not get it.
func undoAccount(ctx workflow.Context, s *workflows.Saga) {
	s.CompensateWith(workflows.Guard(ctx, account), "Undo")
}

func triesInVain(ctx workflow.Context, of ...lockcore.Resource) error {
	return do(workflows.WithLocks(ctx, workflows.Locks{Resources: of, Try: true}), "Do")
}

// mayHaveRun are sagas of which something may have run that "Undo" undoes.
var mayHaveRun = map[string]func(ctx workflow.Context, s *workflows.Saga) error{
	"an activity without a guard": func(ctx workflow.Context, s *workflows.Saga) error {
		undoAccount(ctx, s)
		return errors.Join(do(ctx, "Do"), triesInVain(ctx, account))
	},
	"a local activity without a guard": func(ctx workflow.Context, s *workflows.Saga) error {
		undoAccount(ctx, s)
		local := workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: time.Minute})
		return errors.Join(workflow.ExecuteLocalActivity(local, "Do").Get(ctx, nil), triesInVain(ctx, account))
	},
	"a child workflow": func(ctx workflow.Context, s *workflows.Saga) error {
		undoAccount(ctx, s)
		return errors.Join(workflow.ExecuteChildWorkflow(ctx, "Child").Get(ctx, nil), triesInVain(ctx, account))
	},
	"a signal": func(ctx workflow.Context, s *workflows.Saga) error {
		undoAccount(ctx, s)
		return errors.Join(workflow.SignalExternalWorkflow(ctx, "nobody", "", "noted", nil).Get(ctx, nil), triesInVain(ctx, account))
	},
	"a request to cancel": func(ctx workflow.Context, s *workflows.Saga) error {
		undoAccount(ctx, s)
		return errors.Join(workflow.RequestCancelExternalWorkflow(ctx, "nobody", "").Get(ctx, nil), triesInVain(ctx, account))
	},
	"another guarded step": func(ctx workflow.Context, s *workflows.Saga) error {
		undoAccount(ctx, s)
		return errors.Join(do(workflows.Guard(ctx, account2), "Do"), triesInVain(ctx, account))
	},
	"another guarded step that failed": func(ctx workflow.Context, s *workflows.Saga) error {
		undoAccount(ctx, s)
		return errors.Join(do(workflows.Guard(ctx, account2), "Refuse"), triesInVain(ctx, account))
	},
	"another step that is pending": func(ctx workflow.Context, s *workflows.Saga) error {
		undoAccount(ctx, s)
		workflow.ExecuteActivity(workflows.Guard(ctx, account2), "Do")
		return triesInVain(ctx, account)
	},
	"a step before it, under other locks": func(ctx workflow.Context, s *workflows.Saga) error {
		err := do(workflows.Guard(ctx, account2), "Do")
		undoAccount(ctx, s) // of that step, by a saga that registers afterwards
		return errors.Join(err, triesInVain(ctx, account))
	},
	"a step before it, without a guard": func(ctx workflow.Context, s *workflows.Saga) error {
		s.CompensateWith(workflows.Guard(ctx, account2), "Do")
		err := do(ctx, "Do")
		undoAccount(ctx, s)
		return errors.Join(err, triesInVain(ctx, account))
	},
	"a step before it, under one of its locks": func(ctx workflow.Context, s *workflows.Saga) error {
		s.CompensateWith(workflows.Guard(ctx, account2), "Do")
		err := do(workflows.Guard(ctx, account2), "Do")
		both := []lockcore.Resource{account, account2}
		s.CompensateWith(workflows.Guard(ctx, both...), "Undo")
		return errors.Join(err, triesInVain(ctx, both...))
	},
	"a step under other locks in vain": func(ctx workflow.Context, s *workflows.Saga) error {
		s.CompensateWith(workflows.Guard(ctx, account2), "Undo")
		return triesInVain(ctx, account)
	},
	"no step": func(ctx workflow.Context, s *workflows.Saga) error {
		undoAccount(ctx, s)
		s.CompensateWith(workflows.Guard(ctx, account), "Do") // which is that of the step
		return triesInVain(ctx, account)
	},
	"code": func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflows.Guard(ctx, account)
		s.Compensate(ctx, func(ctx workflow.Context) error { return do(ctx, "Undo") })
		return triesInVain(ctx, account)
	},
	"no locks": func(ctx workflow.Context, s *workflows.Saga) error {
		s.CompensateWith(ctx, "Undo")
		return triesInVain(ctx, account)
	},
}

// A compensation is kept wherever it may be for something that ran, though a step since its registration tried its lock in vain.
func TestACompensationOfWhatMayHaveRunIsKept(t *testing.T) {
	t.Parallel()
	for name, fn := range mayHaveRun {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.workflow("W", func(ctx workflow.Context) error {
				return saga(ctx, fn)
			})
			b.workflow("Child", func(workflow.Context) error { return nil })
			b.work(t, sdkworker.Options{}, map[string]any{
				"Do": nothing, "Refuse": refuse, "Undo": func(context.Context) error { b.write("undone"); return nil },
			})
			other := b.taken(t, account)
			run := b.start(t, "W")
			require.Eventually(t, func() bool {
				return slices.Contains(commands(t, b.historyOf(t, run.GetID(), run.GetRunID())), "Undo")
			}, within, lookEvery, "the compensation was dropped")
			require.NoError(t, other.Leave(t.Context()))
			_, err := b.end(t, run)
			require.ErrorContains(t, err, "is busy for", "the step did not try in vain")
			require.Equal(t, []string{"undone"}, b.read())
			b.requireFree(t, account.Name)
		})
	}
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
			require.ErrorContains(t, err, "it was not undone: compensation 2 (Undo)")
			failed++
		}
	}
	require.Equal(t, 1, failed)
	require.EqualValues(t, 3, undone.Load(), "all but the one that was given up")
	b.requireFree(t, account.Name)
	b.requireFree(t, account2.Name)
}
