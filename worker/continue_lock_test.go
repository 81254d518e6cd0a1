package worker_test

import (
	"testing"

	enumspb "go.temporal.io/api/enums/v1"
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
	b.untilHeldBy(t, next)
	b.requireHolds(t, first, second)
	b.signal(t, next, "go on")
	b.requireFree(t, account.Name)
	b.requireHolds(t, first, second)
	b.signal(t, next, "go on")
	_, err := b.end(t, next)
	require.NoError(t, err)
	require.Equal(t, []string{"first", "second", "third"}, b.read())
	for _, e := range entries[1:] {
		require.Equal(t, next.GetRunID(), e.lease.Run)
	}
	b.requireFree(t, second.Name)
}

func (b *bundle) requireHolds(t *testing.T, run client.WorkflowRun, resources ...lockcore.Resource) {
	t.Helper()
	for _, r := range resources {
		require.Equal(t, []string{run.GetRunID()}, b.runs(t, r.Name))
	}
}

// The lock is lost before the hand-over: the run cannot continue as new, and says why.
func TestALockThatIsLostIsNotHandedOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		if _, err := workflows.Lock(ctx, lasting(account, second)); err != nil {
			return err
		}
		receive(ctx, "go on")
		return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "W"))
	})
	b.work(t, sdkworker.Options{}, nil)
	run := b.start(t, "W")
	b.untilHeldBy(t, run)
	b.forceRelease(t, run)
	b.signal(t, run, "go on")
	_, err := b.end(t, run)
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, b.status(t, run))
	b.requireFree(t, account.Name)
	b.requireFree(t, second.Name)
}

// A run that goes on with the locks of another is reset, and goes on with them.
func TestALockThatWasHandedOverStandsAfterAReset(t *testing.T) {
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
	b.untilHeldBy(t, run)
	b.requireHolds(t, first, second)
	b.signal(t, run, "go on")
	b.requireFree(t, account.Name)
	b.requireHolds(t, first, second)
	b.signal(t, run, "go on")
	_, err := b.end(t, run)
	require.NoError(t, err)
	b.requireFree(t, second.Name)
}
