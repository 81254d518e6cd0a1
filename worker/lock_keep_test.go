package worker_test

import (
	"errors"
	"testing"
	"time"

	workflowpb "go.temporal.io/api/workflow/v1"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// keptTTL is how long a hold stands without its keep-alive, and sleptThrough is longer. The hold is extended every third of it,
// also by a machine that is busy for some seconds.
const (
	keptTTL      = 6 * time.Second
	sleptThrough = 8 * time.Second
)

func TestKeepAliveKeepsOthersOutForLongerThanTheHoldTTL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("first", func(ctx workflow.Context) error {
		l := workflows.Locks{Resources: []lockcore.Resource{account}, HoldTTL: 8 * time.Second, KeepAlive: true}
		return under(ctx, l, func(hold *workflows.Hold) error {
			err := errors.Join(say(ctx, "locked"), workflow.Sleep(ctx, 18*time.Second), say(ctx, "done"))
			if hold.Lost().IsReady() {
				err = errors.Join(err, hold.Lost().Get(ctx, nil))
			}
			return err
		})
	})
	b.workflow("second", func(ctx workflow.Context) error {
		return under(ctx, locks(account), func(*workflows.Hold) error { return say(ctx, "second") })
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.note})
	first := b.start(t, "first")
	b.untilWritten(t, 1)
	second := b.start(t, "second")
	b.untilParked(t, second)
	_, err := b.end(t, first)
	require.NoError(t, err)
	_, err = b.end(t, second)
	require.NoError(t, err)
	require.Equal(t, []string{"locked", "done", "second"}, b.read())
	b.requireFree(t, account.Name)
}

// Nothing of a terminated workflow runs: its keep-alive is told by its next heartbeat, long before the HoldTTL ends.
func TestATerminatedWorkflowsLocksAreFreedByTheirKeepAlive(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		l := workflows.Locks{Resources: []lockcore.Resource{account}, HoldTTL: lockcore.Forever, KeepAlive: true}
		return under(ctx, l, func(*workflows.Hold) error {
			return errors.Join(say(ctx, "locked"), workflow.Sleep(ctx, time.Hour))
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.note})
	run := b.start(t, "W")
	b.untilWritten(t, 1)
	b.untilActivity(t, run, func(a *workflowpb.PendingActivityInfo) bool { return a.GetLastHeartbeatTime() != nil }, "the keep-alive has given no heartbeat")
	free, err := b.isFree(t.Context(), account.Name)
	require.NoError(t, err)
	require.False(t, free)
	b.terminate(t, run)
	require.Eventually(t, func() bool {
		free, err := b.isFree(t.Context(), account.Name)
		return err == nil && free
	}, within, 100*time.Millisecond, "the locks of a terminated workflow still stand")
}

func TestKeepAliveTellsALoss(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		l := workflows.Locks{Resources: []lockcore.Resource{account}, HoldTTL: 9 * time.Second, KeepAlive: true}
		return under(ctx, l, func(hold *workflows.Hold) error {
			err := say(ctx, "locked")
			selector := workflow.NewSelector(ctx)
			selector.AddFuture(workflow.NewTimer(ctx, time.Hour), func(workflow.Future) { err = errors.New("nobody told") })
			selector.AddFuture(hold.Lost(), func(f workflow.Future) {
				var lost *lockcore.LostError
				if !errors.As(f.Get(ctx, nil), &lost) {
					err = errors.New("not lost")
					return
				}
				err = say(ctx, lost.Reason)
			})
			selector.Select(ctx)
			return err
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.note})
	run := b.start(t, "W")
	b.untilWritten(t, 1)
	_, err := b.locker.ForceRelease(t.Context(), lockcore.ForceRelease{LockID: lockID(run), Resources: []string{account.Name}, Reason: "the test wants it"})
	require.NoError(t, err)
	_, err = b.end(t, run)
	require.NoError(t, err)
	require.Contains(t, b.read()[1], "the test wants it")
}

// A keep-alive ends when its lock is released, and what it finds then is no loss.
func TestAKeepAliveEndsWithItsLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		var lost workflow.Future
		l := workflows.Locks{Resources: []lockcore.Resource{account}, HoldTTL: 9 * time.Second, KeepAlive: true}
		err := under(ctx, l, func(hold *workflows.Hold) error {
			lost = hold.Lost()
			return say(ctx, "locked")
		})
		receive(ctx, "go on")
		return errors.Join(err, lost.Get(ctx, nil))
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.note})
	run := b.start(t, "W")
	require.Eventually(t, func() bool {
		d, err := b.client.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
		free, freeErr := b.isFree(t.Context(), account.Name)
		return err == nil && freeErr == nil && free && len(b.read()) == 1 && len(d.GetPendingActivities()) == 0
	}, within, 50*time.Millisecond, "the keep-alive goes on after the release")
	b.signal(t, run, "go on")
	_, err := b.end(t, run)
	require.NoError(t, err)
}

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
