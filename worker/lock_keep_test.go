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

// What a lock has already is extended by the wait for the rest.
func TestWhatIsHeldIsExtendedWhileTheRestIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	last := lockcore.Exclusive("account/2")
	b.workflow("lock", func(ctx workflow.Context) error {
		l := workflows.Locks{Resources: []lockcore.Resource{last, account}, HoldTTL: 9 * time.Second}
		return under(ctx, l, func(*workflows.Hold) error { return nil })
	})
	b.workflow("saga", func(ctx workflow.Context) error {
		l := workflows.Locks{Resources: []lockcore.Resource{last, account}, TTL: time.Second, HoldTTL: 9 * time.Second, Scope: workflows.ScopeSaga}
		return do(workflows.WithLocks(ctx, l), "Nothing")
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Nothing": nothing})
	for _, name := range []string{"lock", "saga"} {
		other := b.taken(t, last)
		run := b.start(t, name)
		b.untilParked(t, run)
		least := lockcore.Forever
		require.Eventually(t, func() bool {
			for s, err := range b.locker.Status(t.Context(), lockcore.Filter{Resource: account.Name, LockID: lockID(run)}) {
				if err != nil {
					return false
				}
				least = min(least, s.ExpiresIn)
				return s.ExpiresIn > least+time.Second
			}
			return false
		}, within, 50*time.Millisecond, "%s: the hold is not extended", name)
		require.NoError(t, other.Leave(t.Context()))
		_, err := b.end(t, run)
		require.NoError(t, err)
		b.requireFree(t, account.Name)
	}
}
