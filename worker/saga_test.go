package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/workflows"
)

// lookAs is a step that records its name, whether another party could acquire the account, and its fence.
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

func TestSaga_StepFails_CompensatesInReverseUnderLocks(t *testing.T) {
	t.Parallel()
	b, fences := setup(t), map[string]int64{}
	b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflows.Guard(ctx, account)
		if err := s.CompensateWith(ctx, "Look", "undo 1"); err != nil {
			return err
		}
		if err := workflow.ExecuteActivity(ctx, "Look", "1").Get(ctx, nil); err != nil {
			return err
		}
		if err := s.CompensateWith(ctx, "Look", "undo 2"); err != nil {
			return err
		}
		return do(ctx, "Refuse")
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

func TestSaga_CompensationFails_OthersRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflows.Guard(ctx, account)
		if err := s.CompensateWith(ctx, "Look"); err != nil {
			return err
		}
		if err := s.CompensateWith(ctx, "Refuse"); err != nil {
			return err
		}
		return do(ctx, "Refuse")
	})
	b.serve(t)
	run := b.start(t, "W")
	_, err := b.end(t, run)
	require.ErrorContains(t, err, "compensation 2 (Refuse)")
	require.Equal(t, []string{"free: false"}, b.read())
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, b.status(t, run))
	b.requireFree(t, account.Name)
}

func TestSaga_Cancelled_IsCompensatedAndReleased(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflows.Guard(ctx, account)
		if err := s.CompensateWith(ctx, "Look"); err != nil {
			return err
		}
		if err := do(ctx, "Look"); err != nil {
			return err
		}
		return workflow.Sleep(ctx, time.Hour)
	})
	b.serve(t)
	run := b.start(t, "W")
	b.untilWritten(t, 1)
	b.cancel(t, run)
	_, err := b.end(t, run)
	require.True(t, temporal.IsCanceledError(err), "%v", err)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, b.status(t, run))
	require.Equal(t, []string{"free: false", "free: false"}, b.read())
	b.requireFree(t, account.Name)
}

// Isolation is broken by force between two steps: the next step fails before it runs, and the
// compensation waits until it can have the lock again.
func TestSaga_LossBetweenSteps_CompensationReacquires(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflows.Guard(ctx, account)
		if err := s.CompensateWith(ctx, "Write", "undo"); err != nil {
			return err
		}
		if err := workflow.ExecuteActivity(ctx, "Write", "first").Get(ctx, nil); err != nil {
			return err
		}
		receive(ctx, "go on")
		return workflow.ExecuteActivity(ctx, "Write", "second").Get(ctx, nil)
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Write": func(_ context.Context, what string) error { b.write("%s", what); return nil }})
	run := b.start(t, "W")
	b.untilWritten(t, 1)
	require.NoError(t, b.locker.Release(t.Context(), lockcore.Release{
		LockID: lockID(run), Run: run.GetRunID(), Resources: []string{account.Name}, Order: lockcore.LastAttempt(1),
	}))
	intruder, err := b.locker.Acquire(t.Context(), request("intruder"))
	require.NoError(t, err)
	b.signal(t, run, "go on")
	b.untilBusy(t, run)
	b.write("intruder")
	require.NoError(t, intruder.Release(t.Context()))
	_, err = b.end(t, run)
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
	require.Equal(t, []string{"first", "intruder", "undo"}, b.read())
	b.requireFree(t, account.Name)
}

func TestSaga_ContinueAsNew_Releases(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		if workflow.GetInfo(ctx).ContinuedExecutionRunID != "" {
			return do(ctx, "Look")
		}
		return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			if err := s.CompensateWith(ctx, "Refuse"); err != nil {
				return err
			}
			if err := do(workflows.Guard(ctx, account), "Look"); err != nil {
				return err
			}
			return workflow.NewContinueAsNewError(ctx, "W")
		})
	})
	b.serve(t)
	b.succeed(t, b.start(t, "W"))
	require.Equal(t, []string{"free: false", "free: true"}, b.read())
}

func TestRun_FailsOutsideSaga_ReleasesAll(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(ctx workflow.Context) (workflow.Context, error){
		"scope saga": func(ctx workflow.Context) (workflow.Context, error) {
			return workflows.WithLocks(ctx, saved(account)), nil
		},
		"Lock": func(ctx workflow.Context) (workflow.Context, error) {
			_, err := workflows.Lock(ctx, locks(account))
			return ctx, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			_, err := b.run(t, func(ctx workflow.Context) error {
				ctx, err := take(ctx)
				return errors.Join(err, do(ctx, "Look"), do(workflows.Unguarded(ctx), "Look"), do(ctx, "Refuse"))
			})
			require.ErrorContains(t, err, "no money")
			require.Equal(t, []string{"free: false", "free: false"}, b.read())
			b.requireFree(t, account.Name)
		})
	}
}

var errLate = errors.New("too late")

// Whether its saga fails or succeeds, and wherever its locks are taken, a step that waits when the saga's function returns does
// not run afterwards, is not undone, and leaves nothing.
func TestSaga_EndsWhileStepWaits_StepDoesNotRun(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		locks  workflows.Locks
		result error
		undoes bool // by a compensation of its own
		want   []string
	}{
		"undone":            {workflows.Locks{}, errLate, false, []string{"undo"}},
		"undone, own":       {workflows.Locks{}, errLate, true, []string{"undo"}},
		"undone, in step":   {workflows.Locks{Scope: workflows.ScopeStep}, errLate, false, []string{"undo"}},
		"committed":         {workflows.Locks{}, nil, false, nil},
		"committed, own":    {workflows.Locks{}, nil, true, nil},
		"committed in step": {workflows.Locks{Scope: workflows.ScopeStep}, nil, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			tc.locks.Resources = []lockcore.Resource{account}
			b.workflow("W", func(ctx workflow.Context) error {
				var step workflow.Future
				err := saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
					if err := s.CompensateWith(workflows.Unguarded(ctx), "Undo"); err != nil {
						return err
					}
					if tc.undoes {
						step = s.Step(workflows.WithLocks(ctx, tc.locks), "Do", "Undo")
					} else {
						step = workflow.ExecuteActivity(workflows.WithLocks(ctx, tc.locks), "Do")
					}
					receive(ctx, "waits")
					return tc.result
				})
				if left := step.Get(ctx, nil); !errors.Is(err, tc.result) || !errors.Is(left, lockcore.ErrEnded) {
					return fmt.Errorf("saga: %w, step: %w", err, left)
				}
				return nil
			})
			b.work(t, sdkworker.Options{}, b.writes())
			run, other := b.parked(t, "W")
			b.signal(t, run, "waits")
			b.succeed(t, run)
			require.Equal(t, tc.want, b.read())
			b.untilQueued(t, account.Name, 0)
			require.NoError(t, other.Leave(t.Context()))
			b.requireFree(t, account.Name)
		})
	}
}

// A run that ends in whatever way leaves the queues in which it waits. The next in the queue need not wait for a grant to lapse.
func TestRun_EndsWhileStepWaits_LeavesTheQueue(t *testing.T) {
	t.Parallel()
	waits := map[string]func(ctx workflow.Context) error{
		"scope step": func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Do") },
		"scope saga": func(ctx workflow.Context) error { return do(workflows.WithLocks(ctx, saved(account)), "Do") },
		"Lock": func(ctx workflow.Context) error {
			_, err := workflows.Lock(ctx, locks(account))
			return err
		},
	}
	for name, end := range map[string]func(ctx workflow.Context) error{
		"completed": func(workflow.Context) error { return nil },
		"continued": func(ctx workflow.Context) error { return workflow.NewContinueAsNewError(ctx, "Next") },
		"handed over": func(ctx workflow.Context) error {
			return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "Next"))
		},
	} {
		for what, wait := range waits {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.workflow("Next", func(ctx workflow.Context) error { return workflow.Sleep(ctx, longer) })
				b.workflow("W", func(ctx workflow.Context) error {
					workflow.Go(ctx, func(ctx workflow.Context) {
						if err := wait(ctx); !errors.Is(err, lockcore.ErrEnded) {
							panic(fmt.Sprintf("not ended: %v", err))
						}
					})
					receive(ctx, "waits")
					return end(ctx)
				})
				b.work(t, sdkworker.Options{}, b.writes())
				run, other := b.parked(t, "W")
				t.Cleanup(func() { _ = b.client.TerminateWorkflow(context.Background(), run.GetID(), "", "the test is over") })
				b.signal(t, run, "waits")
				history := b.untilClosed(t, run)
				b.untilQueued(t, account.Name, 0)
				b.replay(t, history)
				require.NoError(t, other.Leave(t.Context()))
				b.requireFree(t, account.Name)
				require.Empty(t, b.read())
			})
		}
	}
}

// untilClosed waits for the end of this run, not of the runs that continue it.
func (b *bundle) untilClosed(t *testing.T, run client.WorkflowRun) *historypb.History {
	t.Helper()
	require.Eventually(t, func() bool { return b.hasEnded(t, run) }, within, lookEvery, "the run did not end")
	return b.historyOf(t, run.GetID(), run.GetRunID())
}

// undoableSaga runs a saga whose steps are undone under the names of what they did.
func undoableSaga(ctx workflow.Context, fn func(ctx workflow.Context, step func(what string) error) error) error {
	return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
		guarded := workflows.Guard(ctx, account)
		return fn(ctx, func(what string) error { return s.Step(guarded, "Note", "Undo", what).Get(ctx, nil) })
	})
}

var errRefused = errors.New("refused")

// A saga that has succeeded inside another is undone with that one, in its own order.
func TestNestedSaga_OuterFails_IsUndoneWithIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return undoableSaga(ctx, func(ctx workflow.Context, step func(string) error) error {
			inner := undoableSaga(ctx, func(_ workflow.Context, step func(string) error) error {
				return errors.Join(step("2"), step("3"))
			})
			undone := undoableSaga(ctx, func(_ workflow.Context, step func(string) error) error {
				return errors.Join(step("4"), errRefused)
			})
			return errors.Join(step("1"), inner, undone, step("5"), errRefused)
		})
	})
	b.serve(t)
	_, err := b.end(t, b.start(t, "W"))
	require.ErrorContains(t, err, errRefused.Error())
	require.Equal(t, []string{"2", "3", "4", "undid 4", "1", "5", "undid 5", "undid 1", "undid 3", "undid 2"}, b.read())
	b.requireFree(t, account.Name)
}

// The outer saga fails while the inner one still works in another coroutine.
func TestNestedSaga_OuterCompensates_IsUndone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		var late error
		done := workflow.NewWaitGroup(ctx)
		done.Add(1)
		err := saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			workflow.Go(ctx, func(ctx workflow.Context) {
				defer done.Done()
				late = undoableSaga(ctx, func(ctx workflow.Context, step func(string) error) error {
					err := step("inner")
					receive(ctx, "go on")
					return err
				})
			})
			err := s.Compensate(ctx, func(ctx workflow.Context) error {
				err := say(workflows.Unguarded(ctx), "compensating")
				done.Wait(ctx)
				return err
			})
			if err != nil {
				return err
			}
			receive(ctx, "fail")
			return errRefused
		})
		if !errors.Is(late, lockcore.ErrEnded) {
			return fmt.Errorf("the inner saga ended with %w", late)
		}
		if !errors.Is(err, errRefused) {
			return fmt.Errorf("the outer saga ended with %w", err)
		}
		return nil
	})
	b.serve(t)
	run := b.start(t, "W")
	b.untilWritten(t, 1)
	b.signal(t, run, "fail")
	b.untilWritten(t, 2)
	b.signal(t, run, "go on")
	b.succeed(t, run)
	require.Equal(t, []string{"inner", "compensating", "undid inner"}, b.read())
	b.requireFree(t, account.Name)
}

// A saga inside another fails while one of its steps waits for a lock.
func TestNestedSaga_FailsWhileWaiting_StepDoesNotRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return undoableSaga(ctx, func(ctx workflow.Context, step func(string) error) error {
			var waits workflow.Future
			err := saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
				waits = s.Step(workflows.Guard(ctx, account2), "Note", "Undo", "waits")
				receive(ctx, "fail")
				return errRefused
			})
			if !errors.Is(err, errRefused) {
				return err
			}
			if err := waits.Get(ctx, nil); !errors.Is(err, lockcore.ErrEnded) {
				return fmt.Errorf("the step ended with %w", err)
			}
			return step("outer")
		})
	})
	b.serve(t)
	other := b.taken(t, account2)
	run := b.start(t, "W")
	b.untilParked(t, run)
	b.signal(t, run, "fail")
	b.untilWritten(t, 1)
	require.NoError(t, other.Leave(t.Context()))
	b.succeed(t, run)
	require.Equal(t, []string{"outer"}, b.read())
	b.requireFree(t, account2.Name)
}

// Two sagas each hold a Lock on one account and run a step on the other's: one is the victim, and begins again without its lock.
func TestRunSaga_BeginsAgain_ReleasesItsLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	crossing := func(one, other lockcore.Resource) func(ctx workflow.Context) error {
		return func(ctx workflow.Context) error {
			return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
				hold, err := workflows.Lock(ctx, locks(one))
				if err != nil {
					return err
				}
				if s.Attempt() == 1 {
					if err := say(workflows.Unguarded(ctx), "locked"); err != nil {
						return err
					}
					receive(ctx, "go on")
				}
				if err := do(workflows.Guard(ctx, other), "Look"); err != nil {
					return err
				}
				return hold.Release(ctx)
			})
		}
	}
	b.workflow("there", crossing(account, account2))
	b.workflow("back", crossing(account2, account))
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.note, "Look": func(context.Context) error { return nil }})
	there, back := b.start(t, "there"), b.start(t, "back")
	b.untilWritten(t, 2)
	b.signal(t, there, "go on")
	b.signal(t, back, "go on")
	b.breakDeadlocks(t, 10*lookEvery, there, back)
	b.succeed(t, there, back)
	b.requireFree(t, account.Name)
	b.requireFree(t, account2.Name)
}

// A workflow asks whether it still holds its lock.
func TestHoldCheck_LostLock_SaysSo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		hold, err := workflows.Lock(ctx, locks(account))
		if err != nil {
			return err
		}
		if err := hold.Verify(ctx); err != nil {
			return err
		}
		if err := say(ctx, "locked"); err != nil {
			return err
		}
		receive(ctx, "go on")
		first, second := hold.Verify(ctx), hold.Verify(ctx)
		if !errors.Is(first, lockcore.ErrLost) || !errors.Is(second, lockcore.ErrLost) {
			return fmt.Errorf("not lost: %w", errors.Join(first, second))
		}
		if err := hold.Release(ctx); !errors.Is(err, lockcore.ErrLost) {
			return fmt.Errorf("not lost: %w", err)
		}
		return nil
	})
	b.serve(t)
	run := b.start(t, "W")
	b.untilWritten(t, 1)
	b.requireHolds(t, run, account)
	b.forceRelease(t, run)
	b.signal(t, run, "go on")
	b.succeed(t, run)
	b.requireFree(t, account.Name)
}
