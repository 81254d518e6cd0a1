package fenced_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/examples/fenced"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const product = "teapot"

// The results of the attempts.
const stale, fresh = 100, 200

// stall makes the first attempt sleep until a later one has written. It returns the final price and the error of the first
// attempt's write.
func stall(t *testing.T, careless bool) (cents int64, zombie error) {
	t.Helper()
	db, queue, c := testenv.Mongo(t), testenv.TaskQueue(t), testenv.Temporal(t)
	wake, wrote := make(chan struct{}), make(chan error, 1)
	prices := &fenced.Prices{
		Coll: db.Collection("prices"), Careless: careless,
		Compute: func(_ context.Context, attempt int32) int64 {
			if attempt > 1 {
				return fresh
			}
			<-wake
			return stale
		},
		Wrote: func(attempt int32, err error) {
			if attempt == 1 {
				wrote <- err
			}
		},
	}
	_, err := prices.Coll.InsertOne(t.Context(), fenced.Price{Product: product})
	require.NoError(t, err)
	locker, err := lockcore.New(db.Collection("locks"), lockcore.Config{})
	require.NoError(t, err)
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker})
	require.NoError(t, err)
	w := sdkworker.New(c, queue, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}})
	w.RegisterWorkflow(fenced.Reprice)
	w.RegisterActivity(prices)
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)

	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue}, fenced.Reprice, product)
	require.NoError(t, err)
	err = run.Get(t.Context(), nil)
	close(wake)
	require.NoError(t, err)
	select {
	case zombie = <-wrote:
	case <-time.After(2 * time.Minute):
		t.Fatal("the first attempt did not wake up")
	}
	var price fenced.Price
	require.NoError(t, prices.Coll.FindOne(t.Context(), bson.D{{Key: "_id", Value: product}}).Decode(&price))
	return price.Cents, zombie
}

func TestSet_LostLease_IsRefused(t *testing.T) {
	t.Parallel()
	cents, zombie := stall(t, false)
	require.ErrorIs(t, zombie, lockcore.ErrFenced)
	require.EqualValues(t, fresh, cents)
}

// The control: without the fence, the stale price remains.
func TestSet_WithoutFence_LateWriterWins(t *testing.T) {
	t.Parallel()
	cents, zombie := stall(t, true)
	require.NoError(t, zombie)
	require.EqualValues(t, stale, cents)
}
