package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// behindAWire has the bundle's workers reach their database by a wire.
func (b *bundle) behindAWire(t *testing.T) *testenv.Wire {
	t.Helper()
	w, uri := testenv.MongoByWire(t)
	c, err := mongo.Connect(options.Client().ApplyURI(uri).SetDirect(true))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Disconnect(context.Background()) }) // the wire may be cut
	locker, err := lockcore.New(c.Database(b.database).Collection(lockCollection), lockcore.Config{})
	require.NoError(t, err)
	closeAtEnd(t, locker.Steps())
	b.plugin, err = worker.NewPlugin(worker.Options{Locker: locker})
	require.NoError(t, err)
	return w
}

// A step that cannot reach the database parks, and its failure gives that as the reason. It has all its attempts when the database is back.
func TestPark_DatabaseDown_StepWaits(t *testing.T) {
	t.Parallel()
	for name, fn := range map[string]func(ctx workflow.Context) error{
		"step": func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Do") },
		"step with a short heartbeat timeout": func(ctx workflow.Context) error {
			return do(workflow.WithHeartbeatTimeout(workflows.Guard(ctx, account), 4*time.Second), "Do")
		},
		"lock": func(ctx workflow.Context) error {
			return under(ctx, locks(account), func(*workflows.Hold) error { return do(ctx, "Do") })
		},
		"gives up": func(ctx workflow.Context) error {
			return do(workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, MaxWait: 15 * time.Second}), "Do")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			w := b.behindAWire(t)
			b.workflow("W", func(ctx workflow.Context) error {
				return fn(workflow.WithRetryPolicy(ctx, temporal.RetryPolicy{MaximumAttempts: 1}))
			})
			b.work(t, sdkworker.Options{}, map[string]any{"Do": func(ctx context.Context) error {
				b.write("attempt %d", activity.GetInfo(ctx).Attempt)
				return nil
			}})
			w.Cut()
			run := b.start(t, "W")
			waits := "lockstep.Wait"
			if name == "lock" {
				waits = "lockstep.Acquire"
			}
			if name == "gives up" {
				_, err := b.end(t, run)
				app := failedAs(t, err, "lockstep.Unavailable")
				require.Contains(t, app.Message(), "cannot be reached")
				require.Empty(t, b.read())
				return
			}
			b.untilActivity(t, run, func(a *workflowpb.PendingActivityInfo) bool {
				f := a.GetLastFailure()
				return a.GetActivityType().GetName() == waits && f.GetApplicationFailureInfo().GetType() == "lockstep.Unavailable" &&
					strings.Contains(f.GetMessage(), "cannot be reached")
			}, "the step does not wait for the database")
			w.Mend()
			b.succeed(t, run)
			require.Equal(t, []string{"attempt 1"}, b.read())
			b.requireFree(t, account.Name)
		})
	}
}

// The database does not answer for longer than MaxWait. The server ends the request when its next attempt would come too late.
func TestLock_DatabaseAwayForMaxWait_Ends(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.behindAWire(t)
	b.workflow("W", func(ctx workflow.Context) error {
		_, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, MaxWait: time.Second})
		return err
	})
	b.serve(t)
	w.Cut()
	_, err := b.end(t, b.start(t, "W"))
	require.ErrorContains(t, err, "cannot be reached")
}

// A step that finds no room in the queue waits for it, with all its attempts, and is not undone.
func TestPark_QueueFull_StepWaitsForRoom(t *testing.T) {
	t.Parallel()
	b := setupWith(t, lockcore.Config{MaxWaiters: 1})
	b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflow.WithRetryPolicy(workflows.Guard(ctx, account), temporal.RetryPolicy{MaximumAttempts: 1})
		return s.Step(ctx, "Do", "Undo").Get(ctx, nil)
	})
	b.work(t, sdkworker.Options{}, map[string]any{
		"Do":   b.writer("done"),
		"Undo": b.writer("undone"),
	})
	holds := b.taken(t, account)
	first := make(chan error, 1)
	go func() {
		s, err := b.locker.Acquire(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "first"}, Resources: []lockcore.Resource{account}})
		if err == nil {
			err = s.Leave(t.Context())
		}
		first <- err
	}()
	b.untilQueued(t, account.Name, 1)
	run := b.start(t, "W")
	b.untilActivity(t, run, func(a *workflowpb.PendingActivityInfo) bool {
		return a.GetActivityType().GetName() == "lockstep.Wait" && a.GetAttempt() > 2 && strings.Contains(a.GetLastFailure().GetMessage(), "queue is full")
	}, "the step does not wait for room")
	require.NoError(t, holds.Leave(t.Context()))
	require.NoError(t, <-first)
	b.succeed(t, run)
	require.Equal(t, []string{"done"}, b.read())
	b.requireFree(t, account.Name)
}

// A workflow that cancels its step's wait in the task in which it hears of the grant gives the grant up, whichever came first.
func TestPark_CancelledAsItIsGranted_GrantIsReturned(t *testing.T) {
	t.Parallel()
	for _, scope := range []workflows.Scope{workflows.ScopeStep, workflows.ScopeSaga} {
		for _, grantFirst := range []bool{true, false} {
			t.Run(string(scope), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.workflow("W", func(ctx workflow.Context) error {
					own, cancel := workflow.WithCancel(ctx)
					step := workflow.ExecuteActivity(workflows.WithLocks(own, workflows.Locks{Resources: []lockcore.Resource{account}, Scope: scope}), "Nothing")
					receive(ctx, "cancel")
					cancel()
					if err := step.Get(ctx, nil); !temporal.IsCanceledError(err) {
						return errors.Join(errors.New("not cancelled"), err)
					}
					receive(ctx, "end")
					return nil
				})
				b.work(t, sdkworker.Options{DisableWorkflowWorker: true}, nil)
				decides := b.work(t, sdkworker.Options{LocalActivityWorkerOnly: true}, nil)
				run, other := b.parked(t, "W")
				decides.Stop()
				both := []func(){
					func() {
						require.NoError(t, other.Leave(t.Context()))
						b.untilEvents(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, 1)
					},
					func() { b.signal(t, run, "cancel") },
				}
				if !grantFirst {
					both[0], both[1] = both[1], both[0]
				}
				both[0]()
				both[1]()
				b.work(t, sdkworker.Options{LocalActivityWorkerOnly: true}, nil)
				b.requireFree(t, account.Name)
				b.signal(t, run, "end")
				b.succeed(t, run)
			})
		}
	}
}

// untilEvents waits until the run's history has n events of a type.
func (b *bundle) untilEvents(t *testing.T, run client.WorkflowRun, kind enumspb.EventType, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return b.count(t, run, kind) >= n }, within, lookEvery, "the history has no %d events %s", n, kind)
}

// count counts the events of a type in the run's history.
func (b *bundle) count(t *testing.T, run client.WorkflowRun, kind enumspb.EventType) (n int) {
	t.Helper()
	for _, e := range b.historyOf(t, run.GetID(), run.GetRunID()).GetEvents() {
		if e.GetEventType() == kind {
			n++
		}
	}
	return n
}

func TestWait_HasItsStepsPriority(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return do(workflow.WithPriority(workflows.Guard(ctx, account), temporal.Priority{PriorityKey: 2, FairnessKey: "tenant"}), "Nothing")
	})
	b.serve(t)
	run, other := b.parked(t, "W")
	require.NoError(t, other.Leave(t.Context()))
	events, err := b.end(t, run)
	require.NoError(t, err)
	waits := 0
	for _, e := range events {
		if a := e.GetActivityTaskScheduledEventAttributes(); a.GetActivityType().GetName() == "lockstep.Wait" {
			require.EqualValues(t, 2, a.GetPriority().GetPriorityKey())
			require.Equal(t, "tenant", a.GetPriority().GetFairnessKey())
			waits++
		}
	}
	require.Equal(t, 1, waits)
}

// A worker that runs no activities must name the task queue of workers that do.
func TestTaskQueue_LocalActivityWorkerOnly_IsRequired(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.PanicsWithError(t, `lockstep: invalid worker.Options.TaskQueue "": want a task queue whose workers run activities and have Lockstep: `+
		`this worker has LocalActivityWorkerOnly`, func() {
		sdkworker.New(b.client, b.queue, sdkworker.Options{LocalActivityWorkerOnly: true, Plugins: []sdkworker.Plugin{b.plugin}})
	})
}

func TestTaskQueue_Given_ActivitiesRunThere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var err error
	b.plugin = newPlugin(t, worker.Options{Locker: b.locker.Locker, TaskQueue: b.queue + "-locks"})
	b.workflow("W", func(ctx workflow.Context) error {
		return under(ctx, locks(account), func(*workflows.Hold) error { return nil })
	})
	b.work(t, sdkworker.Options{LocalActivityWorkerOnly: true, Plugins: []sdkworker.Plugin{b.plugin}}, nil)
	locks := sdkworker.New(b.client, b.queue+"-locks", sdkworker.Options{Plugins: []sdkworker.Plugin{b.plugin}, DisableWorkflowWorker: true})
	require.NoError(t, locks.Start())
	t.Cleanup(locks.Stop)
	events, err := b.end(t, b.start(t, "W"))
	require.NoError(t, err)
	for _, e := range events {
		if a := e.GetActivityTaskScheduledEventAttributes(); a != nil {
			require.Equal(t, b.queue+"-locks", a.GetTaskQueue().GetName())
			require.EqualValues(t, 1, a.GetPriority().GetPriorityKey())
		}
	}
	b.requireFree(t, account.Name)
}

// Other work takes a worker's only slot whenever the waiting step could still use its claim, and keeps it for at most a second after
// that. The slot is free when others have just been granted the lock. Each claim that the step misses is followed by a claim that lasts
// twice as long, until one is still valid when the slot is free.
func TestPark_NoSlotForLong_StillRuns(t *testing.T) {
	t.Parallel()
	b := setupWith(t, lockcore.Config{ClaimTTL: 300 * time.Millisecond})
	b.workflow("Late", func(ctx workflow.Context) error {
		return workflow.ExecuteActivity(workflows.Guard(ctx, account), "Note", workflow.GetInfo(ctx).WorkflowExecution.RunID).Get(ctx, nil)
	})
	b.workflow("Load", func(ctx workflow.Context) error { return again(ctx, "Take") })
	b.workflow("Rival", func(ctx workflow.Context) error { return again(workflows.Guard(ctx, account), "Use") })
	b.work(t, sdkworker.Options{MaxConcurrentActivityExecutionSize: 1}, map[string]any{"Take": b.takeSlot})
	var rivals atomic.Int64
	queue := b.elsewhere(t, map[string]any{"Use": func(ctx context.Context) error {
		rivals.Add(1)
		select { // longer than a step waits inline
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
		}
		return ctx.Err()
	}})

	other := b.taken(t, account)
	late := b.start(t, "Late")
	b.untilParked(t, late)
	load := b.start(t, "Load")
	b.terminateAtEnd(t, load)
	b.untilActivity(t, load, func(a *workflowpb.PendingActivityInfo) bool {
		return a.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED
	}, "the slot was not taken")
	for range 2 { // one alone may come too late for the slot
		b.terminateAtEnd(t, b.start(t, "Load"))
	}
	for range 2 {
		rival, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue}, "Rival")
		require.NoError(t, err)
		b.terminateAtEnd(t, rival)
	}
	b.untilQueued(t, account.Name, 3)
	require.NoError(t, other.Leave(t.Context()))

	began := time.Now()
	events, err := b.end(t, late)
	require.NoError(t, err)
	steps := scheduled(events, "Note")
	t.Logf("after %v: %d events, the step scheduled %d times, others let in %d times", time.Since(began), len(events), steps, rivals.Load())
	require.Equal(t, []string{late.GetRunID()}, b.read())
	require.Less(t, steps, 12, "the history grows")
	require.Positive(t, rivals.Load(), "nobody else was let in, so nothing is shown")
}

// takeSlot is an activity that occupies its slot until another party has just entered the account, or a claim to it is a second old.
func (b *bundle) takeSlot(ctx context.Context) error {
	filter := lockcore.Filter{Resource: account.Name, States: []lockcore.State{lockcore.StateHolding, lockcore.StateClaimed}}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		for s, err := range b.locker.Status(ctx, filter) {
			switch {
			case err != nil:
				return err
			case s.ExpiresIn <= 0:
			case s.State == lockcore.StateHolding && s.LockID != "somebody" && s.Silent < 500*time.Millisecond,
				s.State == lockcore.StateClaimed && s.Silent >= time.Second:
				return nil
			}
		}
	}
}

// again does a step for as long as the workflow is not terminated.
func again(ctx workflow.Context, name string) error {
	for {
		if err := do(ctx, name); err != nil {
			return err
		}
	}
}

// elsewhere starts a second worker, with a task queue of its own, until the test ends.
func (b *bundle) elsewhere(t *testing.T, activities map[string]any) (queue string) {
	t.Helper()
	queue = b.queue + "-elsewhere"
	w := sdkworker.New(b.client, queue, sdkworker.Options{Plugins: []sdkworker.Plugin{b.plugin}})
	for name, fn := range b.workflows {
		w.RegisterWorkflowWithOptions(fn, workflow.RegisterOptions{Name: name})
	}
	for name, fn := range activities {
		w.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return queue
}

// terminateAtEnd ends a run that does not end by itself.
func (b *bundle) terminateAtEnd(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	t.Cleanup(func() {
		require.NoError(t, b.client.TerminateWorkflow(context.Background(), run.GetID(), "", "the test has ended"))
	})
}

// scheduled counts how often an activity was scheduled.
func scheduled(events []*historypb.HistoryEvent, name string) int {
	n := 0
	for _, e := range events {
		if e.GetEventType() == enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED && e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() == name {
			n++
		}
	}
	return n
}

var shelf = lockcore.Exclusive("shelf")

// A step has the account and waits for the shelf. The account is released by force, so the step fails
// when it is granted the shelf. It must not keep others out of the shelf until its saga ends.
func TestGuard_OneOfTwoLost_LeavesTheOthersQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.saga("W", func(ctx workflow.Context, _ *workflows.Saga) error {
		err := do(workflows.Guard(ctx, account, shelf), "Nothing")
		b.write("%v", err)
		receive(ctx, "go on")
		return err
	})
	b.serve(t)
	other := b.taken(t, shelf)
	run := b.start(t, "W")
	b.untilParked(t, run)
	b.forceRelease(t, run)
	require.NoError(t, other.Leave(t.Context()))
	b.untilWritten(t, 1)
	require.Contains(t, b.read()[0], "lost its lock")
	b.requireFree(t, shelf.Name)
	require.Empty(t, b.waiters(t, shelf.Name))
	b.signal(t, run, "go on")
	_, err := b.end(t, run)
	require.ErrorContains(t, err, "lost its lock")
}
