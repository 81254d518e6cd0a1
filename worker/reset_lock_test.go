package worker_test

import (
	"errors"
	"testing"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// lasting are locks around code that nobody who waits for their promise to end ever gets.
func lasting(resources ...lockcore.Resource) workflows.Locks {
	return workflows.Locks{Resources: resources, HoldTTL: longer}
}

// A lock around code of a later run does not wait for the promise of a closed one, either.
func TestALockOfALaterRunGetsWhatAClosedOneLeft(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return under(ctx, lasting(account), func(*workflows.Hold) error {
			err := say(ctx, "locked")
			receive(ctx, "go on")
			return err
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.note})
	o := client.StartWorkflowOptions{TaskQueue: b.queue, ID: b.queue}
	old, err := b.client.ExecuteWorkflow(t.Context(), o, "W")
	require.NoError(t, err)
	b.untilWritten(t, 1)
	b.terminate(t, old)
	run, err := b.client.ExecuteWorkflow(t.Context(), o, "W")
	require.NoError(t, err)
	b.untilWritten(t, 2)
	require.Equal(t, []string{lockID(run)}, b.holders(t, account.Name))
	b.signal(t, run, "go on")
	_, err = b.end(t, run)
	require.NoError(t, err)
	b.requireFree(t, account.Name)
}

// underALock takes the account, runs steps under the lock with a signal before each but the first, and releases it.
func underALock(guard func(workflow.Context) workflow.Context, steps ...string) func(ctx workflow.Context) error {
	return func(ctx workflow.Context) error {
		err := under(ctx, lasting(account), func(*workflows.Hold) error {
			for i, name := range steps {
				if i > 0 {
					receive(ctx, "go on")
				}
				if err := call(guard(ctx), name); err != nil {
					return err
				}
			}
			return nil
		})
		receive(ctx, "go on")
		return err
	}
}

// The new run takes the lock anew before its next activity, guarded or not, and holds it until the lock's release.
func TestALockIsTakenAnewAfterAReset(t *testing.T) {
	t.Parallel()
	guards := map[string]func(workflow.Context) workflow.Context{
		"guarded steps": func(ctx workflow.Context) workflow.Context { return workflows.Guard(ctx, account) },
		"another's":     func(ctx workflow.Context) workflow.Context { return workflows.Guard(ctx, second) },
		"plain":         func(ctx workflow.Context) workflow.Context { return ctx },
	}
	// The reset comes before the lock, right after the first step, or after a task that had nothing new.
	for at, n := range map[string]int{"before the lock": 1, "after the first step": 2, "later": 3} {
		for name, guard := range guards {
			t.Run(at+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				var entries []entry
				b.workflow("W", underALock(guard, "first", "second", "third"))
				b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
				old := b.start(t, "W")
				b.completed(t, old, 2)
				b.signal(t, old, "noise")
				b.completed(t, old, 3)
				run := b.reset(t, old, n)
				want := []string{"first", "second", "third"}
				if n == 1 {
					want = append([]string{"first"}, want...)
				}
				b.signal(t, run, "go on")
				b.untilWritten(t, len(want)-1)
				require.Equal(t, []string{lockID(run)}, b.holders(t, account.Name), "it was not taken anew, or the old one stands")
				sdkworker.PurgeStickyWorkflowCache()
				b.signal(t, run, "go on")
				b.untilWritten(t, len(want))
				b.untilFree(t, account.Name) // released while the run goes on
				b.signal(t, run, "go on")
				_, err := b.end(t, run)
				require.NoError(t, err)
				require.Equal(t, want, b.read())
			})
		}
	}
}

// Who got in between is waited for.
func TestALockThatIsTakenAnewWaitsForWhoGotInBetween(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var entries []entry
	b.workflow("W", underALock(func(ctx workflow.Context) workflow.Context { return ctx }, "first", "second", "third"))
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	run, somebody := b.resetBehind(t, b.start(t, "W"))
	b.untilParked(t, run)
	tasks := b.tasks(t, run)
	b.signal(t, run, "go on")
	b.completed(t, run, tasks+1)
	require.Equal(t, []string{"first"}, b.read())
	require.NoError(t, somebody.Leave(t.Context()))
	b.untilWritten(t, 2)
	require.Equal(t, []string{lockID(run)}, b.holders(t, account.Name))
	for range 2 {
		b.signal(t, run, "go on")
	}
	_, err := b.end(t, run)
	require.NoError(t, err)
	b.requireFree(t, account.Name)
}

// Steps that run side by side under a lock that is taken anew are all under it, and it is taken once.
func TestALockIsTakenAnewOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var entries []entry
	b.workflow("W", func(ctx workflow.Context) error {
		return under(ctx, lasting(account), func(*workflows.Hold) error {
			if err := call(ctx, "first"); err != nil {
				return err
			}
			receive(ctx, "go on")
			steps := make([]workflow.Future, 3)
			for i := range steps {
				steps[i] = workflow.ExecuteActivity(workflows.Guard(ctx, account), "Enter", "next")
			}
			var errs error
			for _, step := range steps {
				errs = errors.Join(errs, step.Get(ctx, nil))
			}
			return errs
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	_, run := b.startAndReset(t)
	b.signal(t, run, "go on")
	events, err := b.end(t, run)
	require.NoError(t, err)
	acquires := 0
	for _, e := range events {
		if m := e.GetMarkerRecordedEventAttributes(); m != nil && marker(t, m) == "local lockstep.Acquire" {
			acquires++
		}
	}
	require.Equal(t, 2, acquires) // that of the old run is one
	for _, e := range entries[1:] {
		require.Equal(t, lockID(run), e.lease.LockID)
		require.True(t, e.lease.Joined)
	}
	b.requireFree(t, account.Name)
}

// A run that was reset is reset: what its part of the history took anew is followed, and taken anew once more.
func TestALockIsTakenAnewAfterEachReset(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var entries []entry
	names := []string{"first", "second", "third", "fourth", "fifth"}
	b.workflow("W", underALock(func(ctx workflow.Context) workflow.Context { return ctx }, names...))
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	run := b.start(t, "W")
	for i := range names[1:] {
		b.untilWritten(t, i+1)
		run = b.reset(t, run, b.untilIdle(t, run))
		b.signal(t, run, "go on")
		if i+2 < len(names) {
			b.untilWritten(t, i+2)
			require.Equal(t, []string{lockID(run)}, b.holders(t, account.Name))
		}
	}
	b.untilFree(t, account.Name)
	b.signal(t, run, "go on")
	_, err := b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, names, b.read())
}

// untilIdle waits until a run has done all that it can, but for keeping locks alive, and says how many workflow tasks that were.
func (b *bundle) untilIdle(t *testing.T, run client.WorkflowRun) (tasks int) {
	t.Helper()
	require.Eventually(t, func() bool {
		tasks = 0
		open := 0
		for _, e := range b.historyOf(t, run.GetID(), run.GetRunID()).GetEvents() {
			if e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() == activities.KeepName {
				continue
			}
			switch e.GetEventType() {
			case enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
				tasks++
				open--
			case enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED, enumspb.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED:
				open--
			case enumspb.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED, enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
				open++
			}
		}
		return open == 0
	}, within, lookEvery, "the run does not come to rest")
	return tasks
}

// The keep-alive goes on with the lock that was taken anew, and what it finds before is no loss.
func TestAKeepAliveGoesOnAfterAReset(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		l := workflows.Locks{Resources: []lockcore.Resource{account}, HoldTTL: keptTTL, KeepAlive: true}
		return under(ctx, l, func(hold *workflows.Hold) error {
			err := say(ctx, "first")
			receive(ctx, "go on")
			err = errors.Join(err, say(ctx, "second"), workflow.Sleep(ctx, sleptThrough))
			if hold.Lost().IsReady() {
				err = errors.Join(err, hold.Lost().Get(ctx, nil), errors.New("lost"))
			}
			return errors.Join(err, do(ctx, "Look"))
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.note, "Look": b.look})
	_, run := b.startAndReset(t)
	b.signal(t, run, "go on")
	_, err := b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{"first", "second", "free: false"}, b.read())
	b.requireFree(t, account.Name)
}

// A saga whose locks are taken from the workflow takes all of them anew with its next step.
func TestLocksFromTheWorkflowAreTakenAnewAfterAReset(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var entries []entry
	b.workflow("W", func(ctx workflow.Context) error {
		return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
			step := func(r lockcore.Resource) workflow.Context {
				l := lasting(r)
				l.FromWorkflow = true
				return workflows.WithLocks(ctx, l)
			}
			if err := call(step(account), "first"); err != nil {
				return err
			}
			receive(ctx, "go on")
			if err := call(step(second), "second"); err != nil {
				return err
			}
			receive(ctx, "go on")
			return nil
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	_, run := b.startAndReset(t)
	b.signal(t, run, "go on")
	b.untilWritten(t, 2)
	b.requireHolds(t, run, account, second)
	b.signal(t, run, "go on")
	_, err := b.end(t, run)
	require.NoError(t, err)
	b.requireFree(t, account.Name)
	b.requireFree(t, second.Name)
}
