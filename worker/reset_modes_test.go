package worker_test

import (
	"bytes"
	"errors"
	"log/slog"
	"sync"
	"testing"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// The first thing after a reset is a change of mode: the lock is taken anew before it, and kept alive as before.
func TestALockThatChangesItsModeAfterAResetIsKeptAlive(t *testing.T) {
	t.Parallel()
	modes := map[string]func(h *workflows.Hold, ctx workflow.Context) error{
		"upgraded": (*workflows.Hold).Upgrade, "downgraded": (*workflows.Hold).Downgrade,
	}
	for name, change := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			resource := account
			if name == "upgraded" {
				resource = lockcore.Shared(account.Name)
			}
			b.workflow("W", func(ctx workflow.Context) error {
				l := workflows.Locks{Resources: []lockcore.Resource{resource}, HoldTTL: keptTTL, KeepAlive: true}
				return under(ctx, l, func(hold *workflows.Hold) error {
					if err := say(ctx, "first"); err != nil {
						return err
					}
					receive(ctx, "go on")
					err := errors.Join(change(hold, ctx), workflow.Sleep(ctx, sleptThrough))
					if hold.Lost().IsReady() {
						err = errors.Join(err, hold.Lost().Get(ctx, nil), errors.New("lost"))
					}
					return errors.Join(err, do(ctx, "Look"))
				})
			})
			b.work(t, sdkworker.Options{}, map[string]any{"Note": b.note, "Look": b.look})
			old, run := b.startAndReset(t)
			b.signal(t, run, "go on")
			events, err := b.end(t, run)
			require.NoError(t, err)
			require.Equal(t, []string{"first", "free: false"}, b.read())
			require.NotEqual(t, old.GetRunID(), run.GetRunID())
			keeps := 0
			for _, e := range events {
				if e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() == activities.KeepName {
					keeps++
				}
			}
			require.Equal(t, 2, keeps) // that of the old run is one
			b.requireFree(t, account.Name)
		})
	}
}

// A lock that is kept alive is taken anew at once after a reset, whatever the workflow waits for.
func TestALockThatIsKeptAliveIsTakenAnewWithoutAnActivity(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return under(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, HoldTTL: keptTTL, KeepAlive: true}, func(hold *workflows.Hold) error {
			receive(ctx, "go on")
			err := workflow.Sleep(ctx, sleptThrough)
			if hold.Lost().IsReady() {
				err = errors.Join(err, hold.Lost().Get(ctx, nil), errors.New("lost"))
			}
			return errors.Join(err, do(ctx, "Look"))
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look})
	old := b.start(t, "W")
	b.completed(t, old, 1)
	b.signal(t, old, "noise")
	b.completed(t, old, 2)
	run := b.reset(t, old, 2)
	b.untilHeldBy(t, run)
	b.signal(t, run, "go on")
	_, err := b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{"free: false"}, b.read())
	b.requireFree(t, account.Name)
}

// What runs beside an upgrade that waits when the run is reset waits for it, and both get what they want.
func TestAnActivityBesideAnUpgradeAfterAResetWaitsForIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return under(ctx, lasting(lockcore.Shared(account.Name)), func(hold *workflows.Hold) error {
			upgraded := workflow.NewChannel(ctx)
			workflow.Go(ctx, func(ctx workflow.Context) { upgraded.Send(ctx, hold.Upgrade(ctx) == nil) })
			receive(ctx, "go on")
			err := call(ctx, "beside")
			var ok bool
			upgraded.Receive(ctx, &ok)
			if !ok {
				err = errors.Join(err, errors.New("not upgraded"))
			}
			return errors.Join(err, do(ctx, "Look"))
		})
	})
	var entries []entry
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries), "Look": b.look})
	other, err := b.locker.TryAcquire(t.Context(), lockcore.Request{LockID: "somebody", Resources: []lockcore.Resource{lockcore.Shared(account.Name)}})
	require.NoError(t, err)
	old := b.start(t, "W")
	b.untilParked(t, old)
	n := b.tasks(t, old)
	b.signal(t, old, "noise")
	b.completed(t, old, n+1)
	run := b.reset(t, old, n+1)
	b.untilQueued(t, account.Name, 1)
	b.signal(t, run, "go on")
	require.NoError(t, other.Leave(t.Context()))
	_, err = b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{"beside", "free: false"}, b.read())
	b.requireFree(t, account.Name)
}

// A loss that was told stays one after a reset.
func TestALossThatWasToldIsNotForgottenAfterAReset(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return under(ctx, lasting(account), func(*workflows.Hold) error {
			err := call(ctx, "first")
			for range 2 {
				receive(ctx, "go on")
				if lost := call(workflows.Guard(ctx, account), "under it"); !errors.Is(lost, lockcore.ErrLost) {
					err = errors.Join(err, lost, errors.New("the loss was not told"))
				}
			}
			return err
		})
	})
	var entries []entry
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	old := b.start(t, "W")
	b.untilWritten(t, 1)
	_, err := b.locker.ForceRelease(t.Context(), lockcore.ForceRelease{LockID: lockID(old), Resources: []string{account.Name}, Reason: "test"})
	require.NoError(t, err)
	b.signal(t, old, "go on")
	b.untilEvent(t, old, enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED)
	run := b.reset(t, old, b.untilIdle(t, old))
	b.signal(t, run, "go on")
	_, err = b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{"first"}, b.read())
	b.requireFree(t, account.Name)
}

// text is a text that several write.
type text struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.Write(p)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.String()
}

// A wait, a keep-alive, and a lock that is released right after a reset, are nothing to warn of.
func TestNothingIsWarnedOfWithoutAReason(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var out text
	c, err := client.NewClientFromExisting(b.client, client.Options{
		Logger: log.NewStructuredLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))),
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	b.client = c
	b.workflow("Waits", func(ctx workflow.Context) error {
		return under(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, KeepAlive: true}, func(*workflows.Hold) error { return nil })
	})
	b.workflow("W", func(ctx workflow.Context) error {
		return under(ctx, lasting(account), func(*workflows.Hold) error {
			err := call(ctx, "first")
			receive(ctx, "go on")
			return err
		})
	})
	var entries []entry
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	other := b.taken(t, account)
	waits := b.start(t, "Waits")
	b.untilParked(t, waits)
	require.NoError(t, other.Leave(t.Context()))
	require.NoError(t, waits.Get(t.Context(), nil))
	_, run := b.startAndReset(t)
	b.signal(t, run, "go on")
	require.NoError(t, run.Get(t.Context(), nil))
	require.NotContains(t, out.String(), "session")
	require.NotContains(t, out.String(), "lockstep:")
	b.requireFree(t, account.Name)
}
