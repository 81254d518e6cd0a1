package worker_test

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// A step hangs, and its run is reset, twice. The step of the last run fails, and what undoes it writes. Then the steps of the runs
// before wake up: they are the same step, and what they write comes too late.
func TestWhatUndoesAStepBarsTheSameStepOfTheRunsBefore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	accounts := testenv.Mongo(t).Collection("accounts")
	_, err := accounts.InsertOne(t.Context(), bson.M{"_id": "1"})
	require.NoError(t, err)
	write := func(lease lockcore.Lease, by string) error {
		return lockcore.UpdateFenced(context.Background(), accounts, lease, bson.M{"_id": "1"}, bson.M{"$set": bson.M{"by": by}})
	}
	b.workflow("W", func(ctx workflow.Context) error {
		return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, TTL: time.Second})
			if err := do(ctx, "First"); err != nil {
				return err
			}
			workflow.Go(ctx, func(ctx workflow.Context) { receive(ctx, "noise") })
			return s.Step(ctx, "Write", "UndoWrite").Get(ctx, nil)
		})
	})
	const hang = 2
	wake, late := make(chan struct{}), make(chan error, hang)
	b.work(t, sdkworker.Options{}, map[string]any{
		"First": nothing,
		"Write": func(ctx context.Context) error {
			lease := activities.Leases(ctx)[0]
			b.write("write")
			if len(b.read()) > hang {
				return temporal.NewNonRetryableApplicationError("no money", "NoMoney", nil)
			}
			<-wake // it does not look at its context
			late <- write(lease, "late")
			return nil
		},
		"UndoWrite": func(ctx context.Context) error { return write(activities.Leases(ctx)[0], "undo") },
	})
	run := b.start(t, "W")
	for n := 1; n <= hang; n++ {
		b.untilWritten(t, n)
		b.signal(t, run, "noise")
		b.completed(t, run, 3)
		run = b.reset(t, run, 3)
	}
	_, err = b.end(t, run)
	require.ErrorContains(t, err, "no money")
	close(wake)
	for range hang {
		require.ErrorAs(t, <-late, new(*lockcore.FencedError))
	}
	var found struct{ By string }
	require.NoError(t, accounts.FindOne(t.Context(), bson.M{"_id": "1"}).Decode(&found))
	require.Equal(t, "undo", found.By)
}
