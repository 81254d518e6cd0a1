package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// The SDK sends all activities in a session to the session's worker, which need not know of locks. Those by which the
// workflow takes, keeps and releases its own go to the workflow's workers. (Local ones fail here.)
func TestLocksAroundASessionNeedNothingOfItsWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		elsewhere := workflow.WithTaskQueue(ctx, b.queue+"-elsewhere")
		session, err := workflow.CreateSession(elsewhere, &workflow.SessionOptions{CreationTimeout: time.Minute, ExecutionTimeout: time.Hour})
		if err != nil {
			return err
		}
		l := workflows.Locks{Resources: []lockcore.Resource{account}}
		err = under(session, l, func(*workflows.Hold) error {
			return errors.Join(say(session, "in"), say(session, "out"))
		})
		workflow.CompleteSession(session)
		return err
	})
	without, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1").SetServerSelectionTimeout(50 * time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { _ = without.Disconnect(context.Background()) })
	locker, err := lockcore.New(without.Database("none").Collection(lockCollection), lockcore.Config{})
	require.NoError(t, err)
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker, TaskQueue: b.queue})
	require.NoError(t, err)
	b.work(t, sdkworker.Options{LocalActivityWorkerOnly: true, Plugins: []sdkworker.Plugin{plugin}}, nil)
	b.work(t, sdkworker.Options{DisableWorkflowWorker: true}, nil)
	w := sdkworker.New(b.client, b.queue+"-elsewhere", sdkworker.Options{EnableSessionWorker: true, DisableWorkflowWorker: true})
	w.RegisterActivityWithOptions(b.note, activity.RegisterOptions{Name: "Note"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)

	other := b.taken(t, account)
	run := b.start(t, "W")
	b.untilParked(t, run)
	require.NoError(t, other.Leave(t.Context()))
	b.untilWritten(t, 1)
	b.requireHolds(t, run, account)
	events, err := b.end(t, run)
	require.NoError(t, err)
	ours := map[string]int{}
	for _, e := range events {
		if a := e.GetActivityTaskScheduledEventAttributes(); a.GetTaskQueue().GetName() == b.queue {
			ours[a.GetActivityType().GetName()]++
		}
	}
	require.Equal(t, map[string]int{"lockstep.Acquire": 1, "lockstep.Release": 2}, ours)
	require.Equal(t, []string{"in", "out"}, b.read())
	b.requireFree(t, account.Name)
}

// Who cancels a wait in a session cancels the activity by which the workflow waits.
func TestAWaitInASessionIsCancelled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		session, err := workflow.CreateSession(ctx, &workflow.SessionOptions{CreationTimeout: time.Minute, ExecutionTimeout: time.Hour})
		if err != nil {
			return err
		}
		waits, cancel := workflow.WithCancel(session)
		workflow.Go(ctx, func(ctx workflow.Context) {
			receive(ctx, "go on")
			cancel()
		})
		_, err = workflows.Lock(waits, locks(account))
		workflow.CompleteSession(session)
		if !temporal.IsCanceledError(err) {
			return errors.Join(err, errors.New("it was not cancelled"))
		}
		return nil
	})
	b.work(t, sdkworker.Options{EnableSessionWorker: true}, nil)
	other := b.taken(t, account)
	run := b.start(t, "W")
	b.untilParked(t, run)
	b.signal(t, run, "go on")
	_, err := b.end(t, run)
	require.NoError(t, err)
	b.untilQueued(t, account.Name, 0)
	require.NoError(t, other.Leave(t.Context()))
	b.requireFree(t, account.Name)
}
