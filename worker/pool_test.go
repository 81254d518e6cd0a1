package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

var phones = lockcore.Pool("phones")

// pool makes phones a pool of these members.
func (b *bundle) pool(t *testing.T, members ...string) {
	t.Helper()
	require.NoError(t, b.locker.SetPolicy(t.Context(), lockcore.Policy{Name: phones.Name, Members: members, By: "test"}))
}

// onPhone are activities that note what they do, and on which phone.
func (b *bundle) onPhone() map[string]any {
	return map[string]any{"Use": func(ctx context.Context, what string) error {
		member, _ := activities.Member(ctx, phones.Name)
		b.write("%s %s", what, member)
		if what == "break" {
			return temporal.NewNonRetryableApplicationError("broken", "Broken", nil)
		}
		return nil
	}}
}

// All steps of a saga, and their compensations, get its phone; another workflow meanwhile gets another one.
func TestPool_Saga_StepsAndCompensationsShareTheMember(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.pool(t, "one", "two")
	b.saga("undone", func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflows.Guard(ctx, phones)
		if err := s.Step(ctx, "Use", "Use", "book").Get(ctx, nil); err != nil {
			return err
		}
		receive(ctx, "go on")
		return s.Step(ctx, "Use", "Use", "break").Get(ctx, nil)
	})
	b.workflow("other", func(ctx workflow.Context) error {
		ctx = workflows.Guard(ctx, phones)
		return errors.Join(workflow.ExecuteActivity(ctx, "Use", "other").Get(ctx, nil), workflow.ExecuteActivity(ctx, "Use", "again").Get(ctx, nil))
	})
	b.work(t, sdkworker.Options{}, b.onPhone())
	run := b.start(t, "undone")
	b.untilWritten(t, 1)
	b.succeed(t, b.start(t, "other"))
	b.signal(t, run, "go on")
	_, err := b.end(t, run)
	require.ErrorContains(t, err, "broken")
	require.Equal(t, []string{"book one", "other two", "again two", "break one", "break one", "book one"}, b.read())
	b.untilReturned(t)
}

// A workflow that holds a phone names it. The next one waits, is woken with the phone, and the one after it, too.
func TestPool_Lock_NamesItsMember(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.pool(t, "one")
	b.workflow("W", func(ctx workflow.Context) error {
		return under(ctx, locks(phones, account), func(hold *workflows.Hold) error {
			members := hold.Members()
			err := workflow.ExecuteActivity(workflows.Guard(ctx, phones), "Use", fmt.Sprint("step ", len(members))).Get(ctx, nil)
			return errors.Join(err, say(ctx, members[phones.Name]))
		})
	})
	b.workflow("alone", func(ctx workflow.Context) error {
		return under(ctx, locks(phones), func(hold *workflows.Hold) error { return say(ctx, hold.Members()[phones.Name]) })
	})
	b.work(t, sdkworker.Options{}, b.onPhone())
	held, err := b.locker.Acquire(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "other"}, Resources: []lockcore.Resource{phones}})
	require.NoError(t, err)
	var runs []client.WorkflowRun
	for i, name := range []string{"W", "alone"} {
		runs = append(runs, b.start(t, name))
		b.untilQueued(t, phones.Name, i+1)
	}
	require.NoError(t, held.Leave(t.Context()))
	b.succeed(t, runs...)
	require.Equal(t, []string{"step 1 one", "one", "one"}, b.read())
	b.untilReturned(t)
}

// untilReturned waits until no phone is in use.
func (b *bundle) untilReturned(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return len(b.holders(t, phones.Name)) == 0 }, soon, lookEvery)
}

// priorities lists those of the queue of phones.
func (b *bundle) priorities(t *testing.T) (priorities []int) {
	t.Helper()
	for s, err := range b.locker.Status(t.Context(), lockcore.Filter{Resource: phones.Name, States: []lockcore.State{lockcore.StateWaiting}}) {
		require.NoError(t, err)
		priorities = append(priorities, s.Priority)
	}
	return priorities
}

// A pool that an operator has not made yet is waited for, like a database that is away.
func TestPool_IsMissing_StepWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		ctx = workflows.Guard(workflow.WithRetryPolicy(ctx, temporal.RetryPolicy{MaximumAttempts: 1}), phones)
		return workflow.ExecuteActivity(ctx, "Use", "use").Get(ctx, nil)
	})
	b.work(t, sdkworker.Options{}, b.onPhone())
	run := b.start(t, "W")
	b.untilScheduled(t, run, "lockstep.Wait")
	b.pool(t, "one")
	b.succeed(t, run)
	require.Equal(t, []string{"use one"}, b.read())
}

func (b *bundle) untilScheduled(t *testing.T, run client.WorkflowRun, activityType string) {
	t.Helper()
	require.Eventually(t, func() bool {
		iter := b.client.GetWorkflowHistory(t.Context(), run.GetID(), run.GetRunID(), false, 0)
		for iter.HasNext() {
			e, err := iter.Next()
			require.NoError(t, err)
			if e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() == activityType {
				return true
			}
		}
		return false
	}, within, lookEvery)
}

// The name of a pool admits no other mode: the step fails, and nothing is held.
func TestPool_ExclusiveRequest_Fails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.pool(t, "one")
	_, err := b.run(t, func(ctx workflow.Context) error {
		return do(workflows.Guard(ctx, account, lockcore.Exclusive(phones.Name)), "Look")
	})
	require.ErrorContains(t, err, "lockcore.Pool")
	require.Empty(t, b.read())
	b.untilReturned(t)
	b.requireFree(t, account.Name)
}

func TestPool_Rule_StepGetsAMember(t *testing.T) {
	t.Parallel()
	b := setup(t, worker.RuleFor("Use", func(string) []lockcore.Resource { return []lockcore.Resource{phones} }))
	b.pool(t, "one")
	b.workflow("W", func(ctx workflow.Context) error { return workflow.ExecuteActivity(ctx, "Use", "use").Get(ctx, nil) })
	b.work(t, sdkworker.Options{}, b.onPhone())
	b.succeed(t, b.start(t, "W"))
	require.Equal(t, []string{"use one"}, b.read())
}

// A step waits with the priority of its activity, or else of its workflow; a Lock with that of its context, or else of its workflow.
func TestPriority_StepsAndLocks_HaveTheirActivitys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.pool(t, "one")
	use := func(ctx workflow.Context) error { return workflow.ExecuteActivity(ctx, "Use", "use").Get(ctx, nil) }
	with := func(ctx workflow.Context, key int) workflow.Context {
		return workflow.WithPriority(ctx, temporal.Priority{PriorityKey: key})
	}
	lock := func(ctx workflow.Context) error {
		return under(ctx, locks(phones), func(*workflows.Hold) error { return nil })
	}
	b.workflow("step 1", func(ctx workflow.Context) error { return use(with(workflows.Guard(ctx, phones), 1)) })
	b.workflow("lock 2", func(ctx workflow.Context) error { return lock(with(ctx, 2)) })
	b.workflow("step 4", func(ctx workflow.Context) error { return use(workflows.Guard(ctx, phones)) })
	b.workflow("lock 5", lock)
	b.workflow("step 3", func(ctx workflow.Context) error { return use(workflows.Guard(ctx, phones)) })
	b.work(t, sdkworker.Options{}, b.onPhone())
	held, err := b.locker.Acquire(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "other"}, Resources: []lockcore.Resource{phones}})
	require.NoError(t, err)
	var runs []client.WorkflowRun
	for i, name := range []string{"lock 5", "step 4", "step 3", "lock 2", "step 1"} {
		o := client.StartWorkflowOptions{TaskQueue: b.queue}
		if i < 2 {
			o.Priority = temporal.Priority{PriorityKey: 5 - i}
		}
		run, err := b.client.ExecuteWorkflow(t.Context(), o, name)
		require.NoError(t, err)
		runs = append(runs, run)
		b.untilQueued(t, phones.Name, i+1)
	}
	priorities := b.priorities(t)
	require.True(t, slices.IsSorted(priorities), "%v", priorities)
	require.Equal(t, []int{1, 2, 3, 4, 5}, priorities)
	require.NoError(t, held.Leave(t.Context()))
	b.succeed(t, runs...)
	b.untilReturned(t)
}

// A hundred workflows wait. One that is urgent comes last, and gets the lock first.
func TestPriority_UrgentWorkflowAmongHundred_IsNext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.locker.EnablePriorities(t.Context(), "test", "a test"))
	b.workflow("W", func(ctx workflow.Context) error {
		return workflow.ExecuteActivity(workflows.Guard(ctx, account), "Note", workflow.GetInfo(ctx).WorkflowExecution.ID[:1]).Get(ctx, nil)
	})
	b.serve(t)
	held, err := b.locker.Acquire(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "other"}, Resources: []lockcore.Resource{account}})
	require.NoError(t, err)
	var runs []client.WorkflowRun
	begin := func(name string, priority int) {
		run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
			ID: name + b.queue, TaskQueue: b.queue, Priority: temporal.Priority{PriorityKey: priority},
		}, "W")
		require.NoError(t, err)
		runs = append(runs, run)
	}
	for i := range 100 {
		begin(fmt.Sprint("normal ", i), 0)
	}
	b.untilQueued(t, account.Name, 100)
	begin("urgent", 1)
	b.untilQueued(t, account.Name, 101)
	require.NoError(t, held.Leave(t.Context()))
	b.succeed(t, runs...)
	require.Equal(t, "u", b.read()[0])
	require.Len(t, b.read(), 101)
}
