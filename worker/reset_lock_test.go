package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/workflows"
)

// lasting are locks around code whose holds do not expire during the test.
func lasting(resources ...lockcore.Resource) workflows.Locks {
	return workflows.Locks{Resources: resources, HoldTTL: longer}
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

// The lock is held, although others wait for it, until the new run releases it.
func TestLock_Reset_StaysHeld(t *testing.T) {
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
				somebody := <-queued // released while the run is open
				require.NoError(t, somebody.Leave(t.Context()))
				b.signal(t, run, "go on")
				b.succeed(t, run)
				require.Equal(t, want, b.read())
				b.requireFree(t, account.Name)
			})
		}
	}
}

// queues adds another party to the queue of the account, and sends when it is granted.
func (b *bundle) queues(t *testing.T) <-chan *lockcore.Session {
	t.Helper()
	got := make(chan *lockcore.Session, 1)
	go func() {
		defer close(got)
		s, err := b.locker.Acquire(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "somebody"}, Resources: []lockcore.Resource{account}})
		if err == nil {
			got <- s
		} else if t.Context().Err() == nil {
			t.Errorf("the one who stands in the queue: %v", err)
		}
	}()
	b.untilQueued(t, account.Name, 1)
	return got
}

// A run that was reset is reset twice more: the lock stays held, and the last run releases it.
func TestLock_ResetTwice_StaysHeld(t *testing.T) {
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
	b.succeed(t, run)
	require.Equal(t, names, b.read())
}

// untilIdle waits until a run has no more to do, and returns the number of its workflow tasks.
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

// A step that the run before a reset has scheduled may have run there, after the reset: where it finds its lock busy in the new
// run it is undone all the same. That it is follows from its failure, also after a second reset.
func TestReset_StepOfEarlierRun_IsUndone(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]workflows.Locks{"tried": {Try: true}, "waited": {MaxWait: time.Second}} {
		l.Resources = []lockcore.Resource{account}
		for _, resets := range []int{1, 2} {
			t.Run(name+map[int]string{1: " once", 2: " twice"}[resets], func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.workflow("W", func(ctx workflow.Context) error {
					err := saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
						o := workflow.GetActivityOptions(ctx)
						o.TaskQueue = b.queue + "-later"
						ctx = workflow.WithActivityOptions(ctx, o)
						return s.Step(workflows.WithLocks(ctx, l), "Do", "Undo").Get(ctx, nil)
					})
					if !errors.Is(err, lockcore.ErrBusy) {
						return errors.Join(err, errors.New("it was not busy"))
					}
					return nil
				})
				b.serve(t)
				run := b.start(t, "W")
				for range resets {
					b.untilEvent(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
					tasks := b.count(t, run, enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)
					b.signal(t, run, "noise")
					b.completed(t, run, tasks+1)
					run = b.reset(t, run, tasks+1)
				}
				other := b.taken(t, account)
				later := sdkworker.New(b.client, b.queue+"-later", sdkworker.Options{Plugins: []sdkworker.Plugin{b.plugin}, DisableWorkflowWorker: true})
				later.RegisterActivityWithOptions(nothing, activity.RegisterOptions{Name: "Do"})
				later.RegisterActivityWithOptions(func(context.Context) error {
					b.write("undone")
					return nil
				}, activity.RegisterOptions{Name: "Undo"})
				require.NoError(t, later.Start())
				t.Cleanup(later.Stop)
				b.untilUndoing(t, run)
				require.NoError(t, other.Leave(t.Context()))
				b.succeed(t, run)
				require.Equal(t, []string{"undone"}, b.read())
				b.requireFree(t, account.Name)
			})
		}
	}
}

// untilUndoing waits until the run has scheduled the undoing of its step.
func (b *bundle) untilUndoing(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, e := range b.historyOf(t, run.GetID(), run.GetRunID()).GetEvents() {
			if e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() == "Undo" {
				return true
			}
		}
		return false
	}, within, lookEvery, "it is not undone")
}

// heldInBetween is a saga that takes account/2 only after the first reset, and nothing after the second.
func heldInBetween(t *testing.T, b *bundle) (between, last client.WorkflowRun) {
	t.Helper()
	var entries []entry
	b.saga("W", func(ctx workflow.Context, _ *workflows.Saga) error {
		if err := call(workflows.Guard(ctx, account), "first"); err != nil {
			return err
		}
		receive(ctx, "go on")
		if err := call(workflows.Guard(ctx, second), "second"); err != nil {
			return err
		}
		receive(ctx, "end")
		return nil
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	_, between = b.startAndReset(t)
	b.signal(t, between, "go on")
	b.untilWritten(t, 2)
	last = b.reset(t, between, b.untilIdle(t, between))
	b.requireHolds(t, between, second)
	return between, last
}

// What the runs before the last reset hold is released at the end of the last, though no step of it asked for it.
func TestResetTwice_MiddleRunsHold_ReleasedAtEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, last := heldInBetween(t, b)
	b.signal(t, last, "end")
	b.succeed(t, last)
	b.requireFree(t, account.Name)
	b.requireFree(t, second.Name)
}

// The janitor keeps the hold as long as the last run, which has taken it over, is open.
func TestResetTwice_FirstRunsHold_ReleasedAtEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	between, last := heldInBetween(t, b)
	result := b.round(t)
	require.Equal(t, []int{2, 2, 0}, []int{result.Asked, result.Open, result.Released})
	b.requireHolds(t, between, second)
	b.terminate(t, last)
	result = b.round(t)
	require.Equal(t, []int{2, 2, 2}, []int{result.Asked, result.Closed, result.Released})
	b.requireFree(t, account.Name)
	b.requireFree(t, second.Name)
}

// The run that a reset has made uses a lock that the run before has lost: its history shows that it held it.
func TestReset_RunBeforeLostTheLock_NextStepIsLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var entries []entry
	b.saga("W", func(ctx workflow.Context, _ *workflows.Saga) error {
		if err := call(workflows.Guard(ctx, account), "step"); err != nil {
			return err
		}
		receive(ctx, "go on")
		return call(workflows.Guard(ctx, account), "step")
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	run := b.start(t, "W")
	b.untilWritten(t, 1)
	tasks := b.untilIdle(t, run)
	b.forceRelease(t, run)
	run = b.reset(t, run, tasks)
	b.signal(t, run, "go on")
	_, err := b.end(t, run)
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
	b.requireFree(t, account.Name)
}

// A run that uses no lock after its reset learns of an earlier loss by Verify, also of one of the run between two resets.
func TestResetTwice_LossOfTheRunBetween_VerifyFindsIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var entries []entry
	b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
		for i, then := range []string{"go on", "end"} {
			if err := call(workflows.Guard(ctx, []lockcore.Resource{second, account}[i]), "step"); err != nil {
				return err
			}
			receive(ctx, then)
		}
		return s.Verify(ctx)
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	run := b.start(t, "W")
	b.untilWritten(t, 1)
	run = b.reset(t, run, b.untilIdle(t, run))
	b.signal(t, run, "go on")
	b.untilWritten(t, 2)
	tasks := b.untilIdle(t, run)
	b.forceRelease(t, run)
	run = b.reset(t, run, tasks)
	b.signal(t, run, "end")
	_, err := b.end(t, run)
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
	b.requireFree(t, account.Name)
}

// A zombie is an attempt that a worker took before its run was reset, and that asks for its locks afterwards. It is refused,
// does not run, and changes nothing.
func TestReset_LateAttemptOfOldRun_ChangesNothing(t *testing.T) {
	t.Parallel()
	for name, resources := range map[string][]lockcore.Resource{
		"the old run has held it": {account, second}, "the old run has never held it": {second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zombieOfAReset(t, resources)
		})
	}
}

func zombieOfAReset(t *testing.T, resources []lockcore.Resource) {
	t.Helper()
	b := setup(t)
	z := &zombies{taken: make(chan struct{}), goes: make(chan struct{}), ended: make(chan error, 1)}
	b.saga("W", func(ctx workflow.Context, _ *workflows.Saga) error {
		if err := do(workflows.Guard(ctx, account), "First"); err != nil {
			return err
		}
		workflow.Go(ctx, func(ctx workflow.Context) { receive(ctx, "noise") })
		err := do(workflows.Guard(ctx, resources...), "Step")
		receive(ctx, "go on")
		return err
	})
	b.work(t, sdkworker.Options{Interceptors: []interceptor.WorkerInterceptor{z}}, map[string]any{
		"First": nothing, "Step": func(ctx context.Context) error {
			b.write("step of %s", activity.GetInfo(ctx).WorkflowExecution.RunID)
			return nil
		},
	})
	old := b.start(t, "W")
	<-z.taken
	b.signal(t, old, "noise")
	b.completed(t, old, 3)
	run := b.reset(t, old, 3)
	b.untilWritten(t, 1)
	require.Eventually(t, func() bool { return len(b.runs(t, second.Name)) == 1 }, within, lookEvery, "account/2 is not held")
	before := b.leases(t)
	close(z.goes)
	err := <-z.ended
	var other *lockcore.OtherRunError
	require.ErrorAs(t, workflows.LockError(err), &other)
	require.Equal(t, []string{old.GetRunID(), run.GetRunID()}, []string{other.Run, other.Other})
	app := failedAs(t, err, "lockstep.OtherRun")
	require.False(t, app.NonRetryable(), "Temporal's answer may have been an old one")
	require.Equal(t, before, b.leases(t))
	b.signal(t, run, "go on")
	b.succeed(t, run)
	require.Equal(t, []string{"step of " + run.GetRunID()}, b.read())
	b.requireFree(t, account.Name)
	b.requireFree(t, second.Name)
}

// leases returns the holders of each resource with their fences.
func (b *bundle) leases(t *testing.T) (all []string) {
	t.Helper()
	for s, err := range b.locker.Status(t.Context(), lockcore.Filter{}) {
		require.NoError(t, err)
		all = append(all, fmt.Sprintf("%s %s %s %s %d", s.Resource, s.State, s.LockID, s.Run, s.Fence))
	}
	return all
}

// zombies keeps the first attempt of Step from asking for its locks until it goes.
type zombies struct {
	interceptor.WorkerInterceptorBase
	once        sync.Once
	taken, goes chan struct{}
	ended       chan error
}

type zombie struct {
	interceptor.ActivityInboundInterceptorBase
	all *zombies
}

func (z *zombies) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &zombie{interceptor.ActivityInboundInterceptorBase{Next: next}, z}
}

func (z *zombie) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (result any, err error) {
	first := false
	if activity.GetInfo(ctx).ActivityType.Name == "Step" {
		z.all.once.Do(func() { first = true })
	}
	if !first {
		return z.Next.ExecuteActivity(ctx, in)
	}
	close(z.all.taken)
	<-z.all.goes
	result, err = z.Next.ExecuteActivity(ctx, in)
	z.all.ended <- err
	return result, err
}
