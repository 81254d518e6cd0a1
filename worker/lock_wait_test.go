package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// locksOnce registers W, which takes and releases locks.
func (b *bundle) locksOnce(l workflows.Locks) {
	b.workflow("W", func(ctx workflow.Context) error {
		return under(ctx, l, func(*workflows.Hold) error { return nil })
	})
}

// The process that frees the lock knows no workflows, and no worker watches: nobody completes the activity.
func TestLock_WakerDies_NextAttemptFindsTheHold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.locksOnce(locks(account))
	w := b.work(t, sdkworker.Options{}, nil)
	elsewhere, err := lockcore.New(testenv.Mongo(t).Client().Database(b.database).Collection(lockCollection), lockcore.Config{})
	require.NoError(t, err)
	closeAtEnd(t, elsewhere)
	holder, err := elsewhere.Core().TryAcquire(t.Context(), party.Request{LockID: "somebody", Resources: []lockcore.Resource{account}})
	require.NoError(t, err)
	run := b.start(t, "W")
	b.untilParked(t, run)
	w.Stop()
	require.NoError(t, holder.Leave(t.Context()))
	require.Equal(t, []string{runLock(run)}, b.holders(t, account.Name), "the hold is granted while no worker runs")
	plugin, err := worker.NewPlugin(worker.Options{Locker: elsewhere, Janitor: worker.JanitorOptions{Off: true}}) // whose process has watched nothing
	require.NoError(t, err)
	b.work(t, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}}, nil)
	events, err := b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, 1, scheduled(events, "lockstep.Acquire"))
	b.requireFree(t, account.Name)
}

// The worker that frees one of the locks completes the activity. Then the workflow asks for both.
func TestLock_SeveralResources_AsksUntilAllAreHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	held := make(chan []string, 1)
	b.workflow("W", func(ctx workflow.Context) error {
		return under(ctx, locks(account, second), func(*workflows.Hold) error { return do(ctx, "See") })
	})
	b.work(t, sdkworker.Options{}, map[string]any{"See": func(context.Context) error {
		held <- append(b.holders(t, account.Name), b.holders(t, second.Name)...)
		return nil
	}})
	one, two := b.taken(t, account), b.taken(t, second)
	run := b.start(t, "W")
	b.untilQueued(t, account.Name, 1)
	b.untilParked(t, run)
	require.NoError(t, one.Leave(t.Context()))
	b.untilQueued(t, second.Name, 1)
	require.Equal(t, []string{runLock(run)}, b.holders(t, account.Name), "it stands while the rest is waited for")
	require.NoError(t, two.Leave(t.Context()))
	events, err := b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{runLock(run), runLock(run)}, <-held)
	require.LessOrEqual(t, scheduled(events, "lockstep.Acquire"), 3)
	b.requireFree(t, account.Name)
	b.requireFree(t, second.Name)
}

func TestLock_WorkflowEndsWhileItWaits_LeavesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		workflow.Go(ctx, func(ctx workflow.Context) {
			if _, err := workflows.Lock(ctx, locks(account)); !errors.Is(err, lockcore.ErrEnded) {
				panic(fmt.Sprintf("not ended: %v", err))
			}
		})
		receive(ctx, "go")
		return nil
	})
	b.work(t, sdkworker.Options{}, nil)
	holder := b.taken(t, account)
	run := b.start(t, "W")
	b.untilParked(t, run)
	b.signal(t, run, "go")
	_, err := b.end(t, run)
	require.NoError(t, err)
	b.untilQueued(t, account.Name, 0)
	require.NoError(t, holder.Leave(t.Context()))
	b.requireFree(t, account.Name)
}

// The one that started last is told, and what it holds is released: the other one goes on.
func TestLock_TwoInADeadlock_OneIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cross := func(first, last lockcore.Resource) func(ctx workflow.Context) error {
		return func(ctx workflow.Context) error {
			return under(ctx, locks(first), func(*workflows.Hold) error {
				receive(ctx, "go")
				err := under(ctx, locks(last), func(*workflows.Hold) error { return nil })
				if errors.Is(err, lockcore.ErrDeadlock) {
					return say(ctx, "victim")
				}
				return errors.Join(err, say(ctx, "survivor"))
			})
		}
	}
	b.workflow("one", cross(account, second))
	b.workflow("two", cross(second, account))
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.note})
	runs := []client.WorkflowRun{b.start(t, "one"), b.start(t, "two")}
	for i, r := range []lockcore.Resource{account, second} {
		require.Eventually(t, func() bool { return len(b.holders(t, r.Name)) == 1 }, within, 20*time.Millisecond)
		b.untilEvent(t, runs[i], enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
	}
	for _, run := range runs {
		b.signal(t, run, "go")
	}
	for _, run := range runs {
		_, err := b.end(t, run)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"victim", "survivor"}, b.read())
	b.requireFree(t, account.Name)
	b.requireFree(t, second.Name)
}

// The new run has the activity of the one before, and waits in its own name.
func TestLock_ResetWhileItWaits_WaitsInTheNewRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return under(ctx, locks(account), func(*workflows.Hold) error {
			return say(ctx, workflow.GetInfo(ctx).WorkflowExecution.RunID)
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.note})
	holder := b.taken(t, account)
	old := b.start(t, "W")
	b.untilParked(t, old)
	run := b.reset(t, old, 1)
	b.untilParked(t, run)
	b.untilQueued(t, account.Name, 1)
	require.NoError(t, holder.Leave(t.Context()))
	events, err := b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{run.GetRunID()}, b.read())
	require.Equal(t, 1, scheduled(events, "lockstep.Acquire"))
	b.requireFree(t, account.Name)
}
