package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// undoableSaga runs a saga whose steps are undone under the names of what they did.
func undoableSaga(ctx workflow.Context, fn func(ctx workflow.Context, step func(what string) error) error) error {
	return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
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
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.note, "Undo": b.undoes})
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
		err := workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			workflow.Go(ctx, func(ctx workflow.Context) {
				defer done.Done()
				late = undoableSaga(ctx, func(ctx workflow.Context, step func(string) error) error {
					err := step("inner")
					receive(ctx, "go on")
					return err
				})
			})
			s.Compensate(ctx, func(ctx workflow.Context) error {
				err := say(workflows.Unguarded(ctx), "compensating")
				done.Wait(ctx)
				return err
			})
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
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.note, "Undo": b.undoes})
	run := b.start(t, "W")
	b.untilWritten(t, 1)
	b.signal(t, run, "fail")
	b.untilWritten(t, 2)
	b.signal(t, run, "go on")
	_, err := b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{"inner", "compensating", "undid inner"}, b.read())
	b.requireFree(t, account.Name)
}

// A saga inside another fails while one of its steps waits for a lock.
func TestNestedSaga_FailsWhileAStepWaits_StepDoesNotRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return undoableSaga(ctx, func(ctx workflow.Context, step func(string) error) error {
			var waits workflow.Future
			err := workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
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
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.note, "Undo": b.undoes})
	other := b.taken(t, account2)
	run := b.start(t, "W")
	b.untilParked(t, run)
	b.signal(t, run, "fail")
	b.untilWritten(t, 1)
	require.NoError(t, other.Leave(t.Context()))
	_, err := b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{"outer"}, b.read())
	b.requireFree(t, account2.Name)
}

// Two sagas lock one account around code, and step on the other's: one gives way, and begins again without its lock.
func TestRunSaga_BeginsAgain_ReleasesItsLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	crossing := func(one, other lockcore.Resource) func(ctx workflow.Context) error {
		return func(ctx workflow.Context) error {
			return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
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
	require.Eventually(t, func() bool {
		_, err := b.locker.Core().BreakDeadlocks(t.Context())
		return err == nil && b.hasEnded(t, there) && b.hasEnded(t, back)
	}, within, 10*lookEvery, "the sagas do not end")
	for _, run := range []client.WorkflowRun{there, back} {
		_, err := b.end(t, run)
		require.NoError(t, err)
	}
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
		if err := hold.Check(ctx); err != nil {
			return err
		}
		if err := say(ctx, "locked"); err != nil {
			return err
		}
		receive(ctx, "go on")
		first, second := hold.Check(ctx), hold.Check(ctx)
		if !errors.Is(first, lockcore.ErrLost) || !errors.Is(second, lockcore.ErrLost) {
			return fmt.Errorf("not lost: %w", errors.Join(first, second))
		}
		if err := hold.Release(ctx); !errors.Is(err, lockcore.ErrLost) {
			return fmt.Errorf("not lost: %w", err)
		}
		return nil
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.note})
	run := b.start(t, "W")
	b.untilWritten(t, 1)
	b.requireHolds(t, run, account)
	b.forceRelease(t, run)
	b.signal(t, run, "go on")
	_, err := b.end(t, run)
	require.NoError(t, err)
	b.requireFree(t, account.Name)
}
