package worker_test

import (
	"errors"
	"testing"

	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// handsLocksOver is a workflow whose first run takes the account and account/2 around code, and whose second runs fn.
func handsLocksOver(fn func(ctx workflow.Context) error) func(ctx workflow.Context) error {
	return func(ctx workflow.Context) error {
		if workflow.GetInfo(ctx).ContinuedExecutionRunID != "" {
			return fn(ctx)
		}
		if _, err := workflows.Lock(ctx, lasting(account, second)); err != nil {
			return err
		}
		if err := call(ctx, "first"); err != nil {
			return err
		}
		return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "W"))
	}
}

// locksAgain takes the account around code in the run that continues another, and releases it before that ends.
func locksAgain(ctx workflow.Context) error {
	if err := call(workflows.Guard(ctx, account), "second"); err != nil {
		return err
	}
	err := under(ctx, lasting(account), func(*workflows.Hold) error {
		receive(ctx, "go on")
		return call(workflows.Guard(ctx, account), "third")
	})
	receive(ctx, "go on")
	return err
}

// The next run's own lock is what the lock of the run before was: its release lets it go. What it does not take stays
// until its end.
func TestALockThatWasHandedOverIsReleasedByTheNextRunsLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var entries []entry
	b.workflow("W", handsLocksOver(locksAgain))
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	first := b.start(t, "W")
	next := b.untilContinued(t, first)
	b.untilWritten(t, 2)
	b.requireHolds(t, first, account, second)
	b.signal(t, next, "go on")
	b.untilFree(t, account.Name)
	b.requireHolds(t, first, second)
	b.signal(t, next, "go on")
	_, err := b.end(t, next)
	require.NoError(t, err)
	require.Equal(t, []string{"first", "second", "third"}, b.read())
	for _, e := range entries[1:] {
		require.Equal(t, lockID(first), e.lease.LockID)
		require.True(t, e.lease.Joined, "it was taken anew")
	}
	b.requireFree(t, second.Name)
}

func (b *bundle) requireHolds(t *testing.T, run client.WorkflowRun, resources ...lockcore.Resource) {
	t.Helper()
	for _, r := range resources {
		require.Equal(t, []string{lockID(run)}, b.holders(t, r.Name))
	}
}

// It is lost meanwhile, and the next run's lock is told so.
func TestALossOfALockThatWasHandedOverIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var entries []entry
	b.workflow("W", handsLocksOver(func(ctx workflow.Context) error {
		receive(ctx, "go on")
		return locksAgain(ctx)
	}))
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	first := b.start(t, "W")
	next := b.untilContinued(t, first)
	_, err := b.locker.ForceRelease(t.Context(), lockcore.ForceRelease{LockID: lockID(first), Resources: []string{account.Name}, Reason: "test"})
	require.NoError(t, err)
	b.signal(t, next, "go on")
	_, err = b.end(t, next)
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
	b.requireFree(t, account.Name)
	b.requireFree(t, second.Name)
}

// A run to which locks around code were handed over is reset: it takes them anew in its own name.
func TestALockThatWasHandedOverIsTakenAnewAfterAReset(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var entries []entry
	b.workflow("W", handsLocksOver(func(ctx workflow.Context) error {
		receive(ctx, "go on")
		return locksAgain(ctx)
	}))
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	first := b.start(t, "W")
	next := b.untilContinued(t, first)
	b.completed(t, next, 1)
	run := b.reset(t, next, 1)
	b.signal(t, run, "go on")
	b.untilWritten(t, 2)
	b.requireHolds(t, run, account, second)
	b.signal(t, run, "go on")
	b.untilFree(t, account.Name)
	b.requireHolds(t, run, second)
	b.signal(t, run, "go on")
	_, err := b.end(t, run)
	require.NoError(t, err)
	b.requireFree(t, second.Name)
}

// A loss is told once; who asks again begins anew, as without a hand-over.
func TestALockThatWasHandedOverAndLostCanBeHadAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var entries []entry
	b.workflow("W", handsLocksOver(func(ctx workflow.Context) error {
		receive(ctx, "go on")
		if _, err := workflows.Lock(ctx, lasting(account)); !errors.Is(err, lockcore.ErrLost) {
			return errors.Join(err, errors.New("the loss was not told"))
		}
		return under(ctx, lasting(account), func(*workflows.Hold) error { return call(workflows.Guard(ctx, account, second), "second") })
	}))
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	first := b.start(t, "W")
	next := b.untilContinued(t, first)
	_, err := b.locker.ForceRelease(t.Context(), lockcore.ForceRelease{LockID: lockID(first), Resources: []string{account.Name}, Reason: "test"})
	require.NoError(t, err)
	b.signal(t, next, "go on")
	_, err = b.end(t, next)
	require.NoError(t, err)
	require.Equal(t, []string{"first", "second"}, b.read())
	b.requireFree(t, account.Name)
	b.requireFree(t, second.Name)
}
