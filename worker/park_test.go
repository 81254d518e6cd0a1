package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	enumspb "go.temporal.io/api/enums/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

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
	closeAtEnd(t, locker)
	b.plugin, err = worker.NewPlugin(worker.Options{Locker: locker})
	require.NoError(t, err)
	return w
}

// A step that cannot reach the database parks, and says so. It has all its attempts when the database is back.
func TestAStepWaitsForADatabaseThatIsAway(t *testing.T) {
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
			if name != "lock" { // its pending activity says it
				require.Contains(t, b.details(t, run), "cannot be reached")
			}
			w.Mend()
			_, err := b.end(t, run)
			require.NoError(t, err)
			require.Equal(t, []string{"attempt 1"}, b.read())
			b.requireFree(t, account.Name)
		})
	}
}

// details are what Temporal's UI shows of a run.
func (b *bundle) details(t *testing.T, run client.WorkflowRun) string {
	t.Helper()
	answer, err := b.client.QueryWorkflow(t.Context(), run.GetID(), run.GetRunID(), "__temporal_workflow_metadata")
	require.NoError(t, err)
	var meta sdkpb.WorkflowMetadata
	require.NoError(t, answer.Get(&meta))
	return meta.GetCurrentDetails()
}

// A step that finds no room in the queue waits for it, with all its attempts, and is not undone.
func TestAStepWaitsForRoomInTheQueue(t *testing.T) {
	t.Parallel()
	b := setupWith(t, lockcore.Config{MaxWaiters: 1})
	b.workflow("W", func(ctx workflow.Context) error {
		return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflow.WithRetryPolicy(workflows.Guard(ctx, account), temporal.RetryPolicy{MaximumAttempts: 1})
			return s.Step(ctx, "Do", "Undo").Get(ctx, nil)
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{
		"Do":   func(context.Context) error { b.write("done"); return nil },
		"Undo": func(context.Context) error { b.write("undone"); return nil },
	})
	holds := b.taken(t, account)
	first := make(chan error, 1)
	go func() {
		s, err := b.locker.Core().Acquire(t.Context(), party.Request{LockID: "first", Resources: []lockcore.Resource{account}})
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
	_, err := b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{"done"}, b.read())
	b.requireFree(t, account.Name)
}

// A workflow that cancels its step's wait in the task in which it hears of the grant gives the grant up, whichever came first.
func TestAGrantThatComesWithACancellationIsGivenUp(t *testing.T) {
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
				b.work(t, sdkworker.Options{DisableWorkflowWorker: true}, map[string]any{"Nothing": nothing})
				decides := b.work(t, sdkworker.Options{LocalActivityWorkerOnly: true}, nil)
				other := b.taken(t, account)
				run := b.start(t, "W")
				b.untilParked(t, run)
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
				_, err := b.end(t, run)
				require.NoError(t, err)
			})
		}
	}
}

// untilEvents waits until the run's history has n events of a type.
func (b *bundle) untilEvents(t *testing.T, run client.WorkflowRun, kind enumspb.EventType, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		found := 0
		for _, e := range b.historyOf(t, run.GetID(), run.GetRunID()).GetEvents() {
			if e.GetEventType() == kind {
				found++
			}
		}
		return found >= n
	}, within, lookEvery, "the history has no %d events %s", n, kind)
}

func TestWait_HasTheHighestPriorityAndTheFairnessKeyOfItsStep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return do(workflow.WithPriority(workflows.Guard(ctx, account), temporal.Priority{PriorityKey: 2, FairnessKey: "tenant"}), "Nothing")
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Nothing": nothing})
	other := b.taken(t, account)
	run := b.start(t, "W")
	b.untilParked(t, run)
	require.NoError(t, other.Leave(t.Context()))
	events, err := b.end(t, run)
	require.NoError(t, err)
	waits := 0
	for _, e := range events {
		if a := e.GetActivityTaskScheduledEventAttributes(); a.GetActivityType().GetName() == "lockstep.Wait" {
			require.EqualValues(t, 1, a.GetPriority().GetPriorityKey())
			require.Equal(t, "tenant", a.GetPriority().GetFairnessKey())
			waits++
		}
	}
	require.Equal(t, 1, waits)
}

// A worker that runs no activities names the task queue of those that do.
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
	b.plugin, err = worker.NewPlugin(worker.Options{Locker: b.locker, TaskQueue: b.queue + "-locks", Janitor: worker.JanitorOptions{Off: true}})
	require.NoError(t, err)
	b.workflow("W", func(ctx workflow.Context) error {
		return under(ctx, workflows.Locks{Resources: []lockcore.Resource{account}}, func(*workflows.Hold) error { return nil })
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
