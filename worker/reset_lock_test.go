package worker_test

import (
	"testing"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

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
	require.Equal(t, []string{run.GetRunID()}, b.runs(t, account.Name))
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

// The lock stands, whoever waits for it, until the new run releases it.
func TestALockStandsAfterAReset(t *testing.T) {
	t.Parallel()
	guards := map[string]func(workflow.Context) workflow.Context{
		"guarded steps": func(ctx workflow.Context) workflow.Context { return workflows.Guard(ctx, account) },
		"another's":     func(ctx workflow.Context) workflow.Context { return workflows.Guard(ctx, second) },
		"plain":         func(ctx workflow.Context) workflow.Context { return ctx },
	}
	// The reset comes before the lock, right after the first step, or after a task that had nothing new.
	for at, n := range map[string]int{"before the lock": 1, "after the first step": 3, "later": 4} {
		for name, guard := range guards {
			t.Run(at+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				var entries []entry
				b.workflow("W", underALock(guard, "first", "second", "third"))
				b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
				old := b.start(t, "W")
				b.completed(t, old, 3)
				b.signal(t, old, "noise")
				b.completed(t, old, 4)
				queued := b.queues(t)
				run := b.reset(t, old, n)
				want := []string{"first", "second", "third"}
				if n == 1 {
					want = append([]string{"first"}, want...)
				}
				b.signal(t, run, "go on")
				b.untilWritten(t, len(want)-1)
				require.Empty(t, queued, "somebody got in between")
				sdkworker.PurgeStickyWorkflowCache()
				b.signal(t, run, "go on")
				b.untilWritten(t, len(want))
				somebody := <-queued // released while the run goes on
				require.NoError(t, somebody.Leave(t.Context()))
				b.signal(t, run, "go on")
				_, err := b.end(t, run)
				require.NoError(t, err)
				require.Equal(t, want, b.read())
				b.requireFree(t, account.Name)
			})
		}
	}
}

// queues has somebody stand in the queue of the account, and tells when they have got it.
func (b *bundle) queues(t *testing.T) <-chan *party.Session {
	t.Helper()
	got := make(chan *party.Session, 1)
	go func() {
		defer close(got)
		s, err := b.locker.Core().Acquire(t.Context(), party.Request{LockID: "somebody", Resources: []lockcore.Resource{account}})
		if err == nil {
			got <- s
		} else if t.Context().Err() == nil {
			t.Errorf("the one who stands in the queue: %v", err)
		}
	}()
	b.untilQueued(t, account.Name, 1)
	return got
}

// A run that was reset is reset, and again: the lock stands, and the last run releases it.
func TestALockStandsAfterEachReset(t *testing.T) {
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
			require.Len(t, b.holders(t, account.Name), 1)
		}
	}
	b.requireFree(t, account.Name)
	b.signal(t, run, "go on")
	_, err := b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, names, b.read())
}

// untilIdle waits until a run has done all that it can, and says how many workflow tasks that were.
func (b *bundle) untilIdle(t *testing.T, run client.WorkflowRun) (tasks int) {
	t.Helper()
	require.Eventually(t, func() bool {
		tasks = 0
		open := 0
		for _, e := range b.historyOf(t, run.GetID(), run.GetRunID()).GetEvents() {
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
