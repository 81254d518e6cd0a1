package worker_test

import (
	"testing"
	"time"

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
