package worker_test

import (
	"testing"
	"time"

	historypb "go.temporal.io/api/history/v1"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

func TestWhatIsForTheOthersIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	resources := []lockcore.Resource{account}
	b.workflow("scope", func(ctx workflow.Context) error {
		_, err := workflows.Lock(ctx, workflows.Locks{Resources: resources, Scope: workflows.ScopeSaga})
		return err
	})
	odd := lockcore.Exclusive("\xff\xfe")
	b.workflow("name of a step", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account, odd), "Look") })
	b.workflow("name", func(ctx workflow.Context) error {
		_, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{odd}})
		return err
	})
	b.workflow("wait", func(ctx workflow.Context) error {
		return do(workflows.WithLocks(ctx, workflows.Locks{Resources: resources, MaxWait: -time.Second}), "Look")
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look})
	for name, field := range map[string]string{
		"scope":          "Locks.Scope",
		"name of a step": "Locks.Resources[1].Name", "name": "Locks.Resources[0].Name", "wait": "Locks.MaxWait",
	} {
		_, err := b.end(t, b.start(t, name))
		require.ErrorContains(t, err, field)
		require.Empty(t, b.read())
		b.requireFree(t, account.Name)
	}
}

func TestLocks_NegativeDuration_IsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	resources := []lockcore.Resource{account}
	for field, l := range map[string]workflows.Locks{
		"Locks.TTL": {Resources: resources, TTL: -time.Second}, "Locks.HoldTTL": {Resources: resources, HoldTTL: -time.Second},
		"Locks.MaxWait": {Resources: resources, MaxWait: -time.Second},
	} {
		b.workflow("step "+field, func(ctx workflow.Context) error { return do(workflows.WithLocks(ctx, l), "Look") })
		b.workflow("lock "+field, func(ctx workflow.Context) error {
			_, err := workflows.Lock(ctx, l)
			return err
		})
	}
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look})
	for _, field := range []string{"Locks.TTL", "Locks.HoldTTL", "Locks.MaxWait"} {
		for _, name := range []string{"step ", "lock "} {
			events, err := b.end(t, b.start(t, name+field))
			var invalid *lockcore.InvalidError
			require.ErrorAs(t, workflows.LockError(err), &invalid, name+field)
			require.Equal(t, field, invalid.Field)
			require.Equal(t, "-1s", invalid.Value)
			require.Equal(t, []string{"failed: lockstep.Invalid"}, commands(t, &historypb.History{Events: events}), "nothing was scheduled")
		}
	}
	require.Empty(t, b.read())
}

func TestAcquire_NegativeDuration_IsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, field := range []string{"ttl", "holdTtl"} {
		b.workflow(field, func(ctx workflow.Context) error {
			in := map[string]any{"resources": []lockcore.Resource{account}, "schedule": 1, "holdOnly": true, field: "-1s"}
			return workflow.ExecuteActivity(ctx, "lockstep.Acquire", in).Get(ctx, nil)
		})
	}
	b.work(t, sdkworker.Options{}, nil)
	for field, refused := range map[string]string{"ttl": "TTL", "holdTtl": "HoldTTL"} {
		_, err := b.end(t, b.start(t, field))
		var invalid *lockcore.InvalidError
		require.ErrorAs(t, workflows.LockError(err), &invalid, field)
		require.Equal(t, refused, invalid.Field)
		require.Equal(t, "-1s", invalid.Value)
	}
	b.requireFree(t, account.Name)
}
