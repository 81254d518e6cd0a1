package worker_test

import (
	"testing"
	"time"

	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/workflows"
)

// A parent holds a lock and waits for its child, whose step, or whose lock around code, wants the same one: the child is told by name.
func TestAChildThatWaitsForALockOfItsParentIsToldSo(t *testing.T) {
	t.Parallel()
	wanted := locks(account)
	wanted.MaxWait = time.Second
	for name, child := range map[string]func(ctx workflow.Context) error{
		"step": func(ctx workflow.Context) error { return do(workflows.WithLocks(ctx, wanted), "Look") },
		"lock": func(ctx workflow.Context) error {
			_, err := workflows.Lock(ctx, wanted)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.workflow("child", child)
			b.workflow("parent", func(ctx workflow.Context) error {
				return under(ctx, locks(account), func(*workflows.Hold) error {
					return workflow.ExecuteChildWorkflow(ctx, "child").Get(ctx, nil)
				})
			})
			b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look})
			run := b.start(t, "parent")
			_, err := b.end(t, run)
			require.True(t, lockcoreBusy(workflows.LockError(err)), "%v", err)
			require.ErrorContains(t, err, "it is held by the workflow \""+run.GetID()+"\", an ancestor of this one")
			require.Empty(t, b.read())
		})
	}
}
