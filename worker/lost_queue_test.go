package worker_test

import (
	"testing"

	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

var shelf = lockcore.Exclusive("shelf")

// A step has the account and waits for the shelf. The account is released by force, so the step fails
// when its turn has come at the shelf. It must not keep others out of the shelf until its saga ends.
func TestAStepThatLostOneLockGivesUpItsPlaceForAnother(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			err := do(workflows.Guard(ctx, account, shelf), "Nothing")
			b.write("%v", err)
			workflow.GetSignalChannel(ctx, "go on").Receive(ctx, nil)
			return err
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Nothing": nothing})
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
