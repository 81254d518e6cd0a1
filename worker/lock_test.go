package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// under runs fn while the workflow holds what l asks for.
func under(ctx workflow.Context, l workflows.Locks, fn func(hold *workflows.Hold) error) error {
	hold, err := workflows.Lock(ctx, l)
	if err != nil {
		return err
	}
	err = fn(hold)
	if lost := hold.Release(ctx); err == nil {
		err = lost
	}
	return err
}

func locks(resources ...lockcore.Resource) workflows.Locks {
	return workflows.Locks{Resources: resources}
}

// note is a step that notes what it is given.
func (b *bundle) note(_ context.Context, what string) error {
	b.write("%s", what)
	return nil
}

func say(ctx workflow.Context, what string) error {
	return workflow.ExecuteActivity(workflows.Unguarded(ctx), "Note", what).Get(ctx, nil)
}

func TestLock_Uncontended_AddsSixEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("plain", func(ctx workflow.Context) error { return do(ctx, "Look") })
	b.workflow("locked", func(ctx workflow.Context) error {
		return under(ctx, locks(account, lockcore.Shared("rates")), func(*workflows.Hold) error { return do(ctx, "Look") })
	})
	b.serve(t)
	plain, err := b.end(t, b.start(t, "plain"))
	require.NoError(t, err)
	locked, err := b.end(t, b.start(t, "locked"))
	require.NoError(t, err)
	require.Equal(t, countEvents(plain)+6, countEvents(locked)) // an activity and a workflow task
	require.Equal(t, []string{"free: true", "free: false"}, b.read())
	b.requireFree(t, account.Name)
	b.requireFree(t, "rates")
}

func TestLock_SignalsTimersSteps_StaysHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("first", func(ctx workflow.Context) error {
		return under(ctx, locks(account), func(*workflows.Hold) error {
			// A step of the same run joins, and leaves the lock standing when it has returned.
			err := do(workflows.Guard(ctx, account), "Look")
			receive(ctx, "go on")
			return errors.Join(err, workflow.Sleep(ctx, 10*time.Millisecond), do(ctx, "Look"))
		})
	})
	b.workflow("second", func(ctx workflow.Context) error {
		return under(ctx, locks(account), func(*workflows.Hold) error { return say(ctx, "second") })
	})
	b.serve(t)
	first := b.start(t, "first")
	b.untilWritten(t, 1)
	second := b.start(t, "second")
	b.untilParked(t, second)
	b.signal(t, first, "go on")
	b.succeed(t, first, second)
	require.Equal(t, []string{"free: false", "free: false", "second"}, b.read())
	b.requireFree(t, account.Name)
}

func TestLock_AndSaga_ReleasedWithLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	saga := func(ctx workflow.Context, fn func(ctx workflow.Context) error) error {
		return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error { return fn(ctx) })
	}
	free := func(ctx workflow.Context) error {
		receive(ctx, "free")
		return nil
	}
	b.workflow("lock in saga", func(ctx workflow.Context) error {
		return errors.Join(saga(ctx, func(ctx workflow.Context) error {
			err := do(workflows.Guard(ctx, account), "Look")
			return errors.Join(err, under(ctx, locks(account), func(*workflows.Hold) error { return do(ctx, "Look") }), do(ctx, "Look"))
		}), free(ctx))
	})
	b.workflow("saga in lock", func(ctx workflow.Context) error {
		return errors.Join(under(ctx, locks(account), func(*workflows.Hold) error {
			err := saga(ctx, func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Look") })
			return errors.Join(err, do(ctx, "Look"), under(ctx, locks(account), func(*workflows.Hold) error { return nil }), do(ctx, "Look"))
		}), free(ctx))
	})
	b.serve(t)
	for i, name := range []string{"lock in saga", "saga in lock"} {
		run := b.start(t, name)
		b.untilWritten(t, 3*i+3)
		b.requireFree(t, account.Name) // while the run is open
		b.signal(t, run, "free")
		b.succeed(t, run)
		require.Equal(t, []string{"free: false", "free: false", "free: false"}, b.read()[3*i:], name)
	}
}

// The lock is released by force: the next step that joins it fails before it runs, and succeeds under a lock acquired again.
func TestLock_Lost_StepUnderItFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		joins := workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, Scope: workflows.ScopeSaga})
		err := under(ctx, locks(account), func(*workflows.Hold) error {
			err := say(ctx, "locked")
			receive(ctx, "go on")
			return errors.Join(err, do(joins, "Look"))
		})
		if !errors.Is(err, lockcore.ErrLost) {
			return fmt.Errorf("not lost: %w", err)
		}
		return under(ctx, locks(account), func(*workflows.Hold) error { return do(joins, "Look") })
	})
	b.serve(t)
	run := b.start(t, "W")
	b.untilWritten(t, 1)
	b.forceRelease(t, run)
	b.signal(t, run, "go on")
	b.succeed(t, run)
	require.Equal(t, []string{"locked", "free: false"}, b.read())
	b.requireFree(t, account.Name)
}

// locksOnce registers W, which takes and releases locks.
func (b *bundle) locksOnce(l workflows.Locks) {
	b.workflow("W", func(ctx workflow.Context) error {
		return under(ctx, l, func(*workflows.Hold) error { return nil })
	})
}

// The process that frees the lock does not know Temporal, and no worker watches: no process completes the activity.
func TestLock_WakerDies_NextAttemptFindsTheHold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.locksOnce(locks(account))
	w := b.serve(t)
	elsewhere, err := lockcore.New(testenv.Mongo(t).Client().Database(b.database).Collection(lockCollection), lockcore.Config{})
	require.NoError(t, err)
	closeAtEnd(t, elsewhere.Steps())
	holder, err := elsewhere.TryAcquire(t.Context(), lockcore.Request{LockID: "somebody", Resources: []lockcore.Resource{account}})
	require.NoError(t, err)
	run := b.start(t, "W")
	b.untilParked(t, run)
	w.Stop()
	require.NoError(t, holder.Leave(t.Context()))
	require.Equal(t, []string{runLock(run)}, b.holders(t, account.Name), "the hold is granted while no worker runs")
	plugin := newPlugin(t, worker.Options{Locker: elsewhere}) // whose process has watched nothing
	later := b.on(b.queue)
	later.reach(t, client.Options{Plugins: []client.Plugin{plugin}})
	later.work(t, sdkworker.Options{Plugins: []sdkworker.Plugin{}}, nil)
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

// The workflow that started last gets the deadlock error and releases what it holds; the other one continues.
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
	b.serve(t)
	runs := []client.WorkflowRun{b.start(t, "one"), b.start(t, "two")}
	for i, r := range []lockcore.Resource{account, second} {
		require.Eventually(t, func() bool { return len(b.holders(t, r.Name)) == 1 }, within, 20*time.Millisecond)
		b.untilEvent(t, runs[i], enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
	}
	for _, run := range runs {
		b.signal(t, run, "go")
	}
	b.succeed(t, runs...)
	require.Equal(t, []string{"victim", "survivor"}, b.read())
	b.requireFree(t, account.Name)
	b.requireFree(t, second.Name)
}

// The new run has the activity of the one before, and waits in its own name.
func TestLock_ResetWhileWaiting_WaitsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return under(ctx, locks(account), func(*workflows.Hold) error {
			return say(ctx, workflow.GetInfo(ctx).WorkflowExecution.RunID)
		})
	})
	b.serve(t)
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
