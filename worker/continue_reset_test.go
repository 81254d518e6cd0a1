package worker_test

import (
	"errors"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// A run that was reset hands its locks over before it has taken them anew: the next run takes them, at its next step.
func TestWhatARunLacksAfterAResetIsTakenAnewByTheNextRun(t *testing.T) {
	t.Parallel()
	again := func(ctx workflow.Context) bool { return workflow.GetInfo(ctx).ContinuedExecutionRunID != "" }
	next := func(ctx workflow.Context) error {
		receive(ctx, "go on")
		err := call(workflows.Guard(ctx, second), "second")
		receive(ctx, "go on")
		return err
	}
	first := func(ctx, guarded workflow.Context) error {
		if err := call(guarded, "first"); err != nil {
			return err
		}
		receive(ctx, "go on")
		return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "W"))
	}
	for name, fn := range map[string]func(ctx workflow.Context) error{
		"of a lock": func(ctx workflow.Context) error {
			if again(ctx) {
				return next(ctx)
			}
			if _, err := workflows.Lock(ctx, lasting(account)); err != nil {
				return err
			}
			return first(ctx, ctx)
		},
		"of a saga": func(ctx workflow.Context) error {
			return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
				if again(ctx) {
					return next(ctx)
				}
				return first(ctx, workflows.Guard(ctx, account))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var entries []entry
			b.workflow("W", fn)
			steps := map[string]any{"Enter": b.enters(&entries)}
			w := b.work(t, sdkworker.Options{}, steps)
			old := b.start(t, "W")
			b.completed(t, old, 2)
			w.Stop() // so that the hand-over comes first
			run := b.reset(t, old, 2)
			b.signal(t, run, "go on")
			b.work(t, sdkworker.Options{}, steps)
			heir := b.untilContinued(t, run)
			b.signal(t, heir, "go on")
			b.untilWritten(t, 2)
			require.Equal(t, []string{lockID(run)}, b.holders(t, account.Name), "it is nobody's, or still %s", lockID(old))
			b.signal(t, heir, "go on")
			_, err := b.end(t, heir)
			require.NoError(t, err)
			b.replayRun(t, run)
			b.requireFree(t, account.Name)
			b.requireFree(t, second.Name)
		})
	}
}

// An activity that the next run schedules by name, for its own lock ID, does not end what the run before has handed over.
func TestWhatWasHandedOverIsNoFormerRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var entries []entry
	b.workflow("W", handsLocksOver(func(ctx workflow.Context) error {
		byName := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}})
		err := workflow.ExecuteActivity(byName, activities.AcquireName, activities.AcquireParams{
			Resources: []lockcore.Resource{account}, Part: "by name", Schedule: 1, HoldOnly: true, Try: true,
		}).Get(ctx, nil)
		if !errors.Is(workflows.LockError(err), lockcore.ErrBusy) {
			return errors.Join(err, errors.New("it was not busy"))
		}
		return call(workflows.Guard(ctx, account), "second")
	}))
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	first := b.start(t, "W")
	_, err := b.end(t, b.untilContinued(t, first))
	require.NoError(t, err)
	require.Equal(t, lockID(first), entries[1].lease.LockID)
	require.True(t, entries[1].lease.Joined)
	b.requireFree(t, account.Name)
}

// A lock that is handed over is kept alive as before, until the next run's own lock on the resource takes it over.
func TestALockThatWasHandedOverIsKeptAlive(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := workflows.Locks{Resources: []lockcore.Resource{account, second}, HoldTTL: keptTTL, KeepAlive: true}
	b.workflow("W", func(ctx workflow.Context) error {
		if workflow.GetInfo(ctx).ContinuedExecutionRunID == "" {
			if _, err := workflows.Lock(ctx, l); err != nil {
				return err
			}
			return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "W"))
		}
		err := errors.Join(workflow.Sleep(ctx, sleptThrough), do(ctx, "Look"))
		return errors.Join(err, under(ctx, lasting(second), func(*workflows.Hold) error {
			return errors.Join(workflow.Sleep(ctx, sleptThrough), do(ctx, "Look"))
		}))
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look})
	run := b.start(t, "W")
	_, err := b.end(t, b.untilContinued(t, run))
	require.NoError(t, err)
	require.Equal(t, []string{"free: false", "free: false"}, b.read())
	b.requireFree(t, account.Name)
	b.requireFree(t, second.Name)
}

// After a reset of the next run the lock is taken anew with the promise that it had.
func TestALockThatWasHandedOverKeepsItsPromiseAfterAReset(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var entries []entry
	b.workflow("W", handsLocksOver(func(ctx workflow.Context) error {
		receive(ctx, "go on")
		err := call(ctx, "second")
		receive(ctx, "go on")
		return err
	}))
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	next := b.untilContinued(t, b.start(t, "W"))
	b.completed(t, next, 1)
	run := b.reset(t, next, 1)
	b.signal(t, run, "go on")
	b.untilWritten(t, 2)
	for s, err := range b.locker.Status(t.Context(), lockcore.Filter{Resource: account.Name, States: []lockcore.State{lockcore.StateHolding}}) {
		require.NoError(t, err)
		require.Equal(t, lockID(run), s.LockID)
		require.Greater(t, s.ExpiresIn, longer/2)
	}
	b.signal(t, run, "go on")
	_, err := b.end(t, run)
	require.NoError(t, err)
	b.requireFree(t, account.Name)
}
