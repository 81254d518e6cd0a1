package worker_test

import (
	"context"
	"errors"
	"testing"

	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// A transfer from an account to itself names the account twice.
func TestGuard_SameNameTwice_TakesTheStrongerLock(t *testing.T) {
	t.Parallel()
	b := setup(t, worker.RuleFor("Ruled", func(any) []lockcore.Resource {
		return []lockcore.Resource{account, lockcore.Shared(account.Name)}
	}))
	b.workflow("guard", func(ctx workflow.Context) error {
		return errors.Join(
			do(workflows.Guard(ctx, account, account), "Look"),
			do(workflows.Guard(ctx, lockcore.Shared(account.Name), account, lockcore.SharedLimit(account.Name, 3)), "Look"),
		)
	})
	b.workflow("saga", func(ctx workflow.Context) error {
		return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
			return do(workflows.Guard(ctx, account, account), "Look")
		})
	})
	b.workflow("lock", func(ctx workflow.Context) error {
		return under(ctx, workflows.Locks{Resources: []lockcore.Resource{lockcore.Shared(account.Name), account}}, func(*workflows.Hold) error { return do(ctx, "Look") })
	})
	b.workflow("rule", func(ctx workflow.Context) error { return do(ctx, "Ruled") })
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look, "Ruled": b.look})
	for _, name := range []string{"guard", "saga", "lock", "rule"} {
		_, err := b.end(t, b.start(t, name))
		require.NoError(t, err, name)
		b.requireFree(t, account.Name)
	}
	require.Equal(t, []string{"free: false", "free: false", "free: false", "free: false", "free: false"}, b.read())
}

func TestGuard_SameNameTwiceOnceInvalid_IsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	invalid := lockcore.Resource{Name: account.Name, Mode: "Z"}
	b.workflow("guard", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account, invalid), "Run") })
	b.workflow("lock", func(ctx workflow.Context) error {
		return under(ctx, locks(account, invalid), func(*workflows.Hold) error { return nil })
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Run": func(context.Context) error { b.write("ran"); return nil }})
	for _, name := range []string{"guard", "lock"} {
		_, err := b.end(t, b.start(t, name))
		var refused *lockcore.InvalidError
		require.ErrorAs(t, workflows.LockError(err), &refused, name)
		require.Contains(t, refused.Field, "Mode", name)
		require.Equal(t, `"Z"`, refused.Value, name)
	}
	require.Empty(t, b.read())
}
