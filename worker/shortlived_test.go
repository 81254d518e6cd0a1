package worker_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// during runs a worker with a Locker of its own, as a process does that is started when there is work, and stops it after do.
func (b *bundle) during(t *testing.T, do func()) {
	t.Helper()
	c, err := mongo.Connect(options.Client().ApplyURI(testenv.MongoURI(t)))
	require.NoError(t, err)
	l, err := lockcore.New(c.Database(b.database).Collection(lockCollection), lockcore.Config{})
	require.NoError(t, err)
	plugin, err := worker.NewPlugin(worker.Options{Locker: l, Janitor: worker.JanitorOptions{Off: true}})
	require.NoError(t, err)
	w := b.work(t, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}}, map[string]any{"Note": b.note})
	do()
	w.Stop()
	ctx := context.WithoutCancel(t.Context())
	require.NoError(t, l.Close(ctx))
	require.NoError(t, c.Disconnect(ctx))
}

// Workers that run only while there is work: the holds of a saga, and the place of a step that waits, stand while no worker
// runs, and a worker that stops has released what is due.
func TestWorkersThatStopWhenIdle_LocksStandInBetween(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("Saga", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			if err := s.Step(workflows.Guard(ctx, account), "Note", "Note", "saga").Get(ctx, nil); err != nil {
				return err
			}
			receive(ctx, "go on")
			return nil
		})
	})
	b.workflow("Waiter", func(ctx workflow.Context) error {
		return workflow.ExecuteActivity(workflows.Guard(ctx, account), "Note", "waiter").Get(ctx, nil)
	})
	saga := b.start(t, "Saga")
	b.during(t, func() { b.untilWritten(t, 1) })
	waiter := b.start(t, "Waiter")
	b.during(t, func() { b.untilParked(t, waiter) })
	b.requireHolds(t, saga, account)
	b.signal(t, saga, "go on")
	b.during(t, func() {
		_, err := b.end(t, saga)
		require.NoError(t, err)
	})
	b.during(t, func() {
		_, err := b.end(t, waiter)
		require.NoError(t, err)
	})
	require.Equal(t, []string{"saga", "waiter"}, b.read())
	free, err := b.isFree(t.Context(), account.Name)
	require.NoError(t, err)
	require.True(t, free, "the worker has left before it stopped")
}
