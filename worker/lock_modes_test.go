package worker_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

var book = lockcore.Shared("book")

// peek is a step that notes whether somebody else could read the book.
func (b *bundle) peek(ctx context.Context) error {
	leases, err := b.locker.Enter(ctx, lockcore.Request{LockID: "reader-" + rand.Text(), Resources: []lockcore.Resource{book}}, false)
	if lockcoreBusy(err) {
		b.write("readable: false")
		return nil
	}
	if err != nil {
		return err
	}
	b.write("readable: true")
	return b.locker.Leave(ctx, leases...)
}

func TestUpgradeWaitsForReadersAndDowngradeLetsThemIn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return under(ctx, locks(book, lockcore.Shared("appendix")), func(hold *workflows.Hold) error {
			before, _ := hold.Fence(book.Name)
			err := errors.Join(do(ctx, "Peek"), hold.Upgrade(ctx))
			after, _ := hold.Fence(book.Name)
			if after <= before {
				err = errors.Join(err, errors.New("an upgrade without a new fence"))
			}
			return errors.Join(err, do(ctx, "Peek"), hold.Downgrade(ctx), do(ctx, "Peek"))
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Peek": b.peek})
	other := b.taken(t, book)
	run := b.start(t, "W")
	b.untilParked(t, run)
	require.Equal(t, []string{"readable: true"}, b.read())
	require.NoError(t, other.Leave(t.Context()))
	_, err := b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{"readable: true", "readable: false", "readable: true"}, b.read())
	b.requireFree(t, book.Name)
	b.requireFree(t, "appendix")
}

func TestTwoThatShareAndBothUpgradeAreADeadlock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return under(ctx, locks(book, lockcore.Shared("appendix")), func(hold *workflows.Hold) error {
			err := say(ctx, "shares")
			receive(ctx, "go on")
			err = errors.Join(err, hold.Upgrade(ctx))
			var deadlock *lockcore.DeadlockError
			if errors.As(err, &deadlock) {
				return say(ctx, "gives up")
			}
			return errors.Join(err, say(ctx, "alone"))
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.note})
	runs := []client.WorkflowRun{b.start(t, "W"), b.start(t, "W")}
	b.untilWritten(t, 2)
	for _, run := range runs {
		b.signal(t, run, "go on")
	}
	for _, run := range runs {
		_, err := b.end(t, run)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"shares", "shares", "gives up", "alone"}, b.read())
	b.requireFree(t, book.Name)
	b.requireFree(t, "appendix")
}

// An upgrade that is given up leaves the lock as it was: shared, and not queued for more.
func TestAnUpgradeThatFailsLeavesTheLockShared(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		l := locks(book, lockcore.Shared("appendix"))
		l.Try = true
		return under(ctx, l, func(hold *workflows.Hold) error {
			if err := hold.Upgrade(ctx); !errors.Is(err, lockcore.ErrBusy) {
				return fmt.Errorf("not busy: %w", err)
			}
			return do(ctx, "Peek")
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Peek": func(ctx context.Context) error {
		for s, err := range b.locker.Status(ctx, lockcore.Filter{Resource: "appendix"}) {
			if err != nil {
				return err
			}
			b.write("appendix: %s", s.Mode)
		}
		return b.peek(ctx)
	}})
	other := b.taken(t, book)
	_, err := b.end(t, b.start(t, "W"))
	require.NoError(t, err)
	require.Equal(t, []string{"appendix: shared", "readable: true"}, b.read())
	require.NoError(t, other.Leave(t.Context()))
	b.requireFree(t, book.Name)
}

func TestWhatIsForTheOthersIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	resources := []lockcore.Resource{account}
	b.workflow("scope", func(ctx workflow.Context) error {
		_, err := workflows.Lock(ctx, workflows.Locks{Resources: resources, Scope: workflows.ScopeSaga})
		return err
	})
	b.workflow("from the workflow", func(ctx workflow.Context) error {
		_, err := workflows.Lock(ctx, workflows.Locks{Resources: resources, FromWorkflow: true})
		return err
	})
	b.workflow("keep-alive", func(ctx workflow.Context) error {
		return do(workflows.WithLocks(ctx, workflows.Locks{Resources: resources, KeepAlive: true}), "Look")
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
		"scope": "Locks.Scope", "from the workflow": "Locks.FromWorkflow", "keep-alive": "Locks.KeepAlive",
		"name of a step": "Locks.Resources[1].Name", "name": "Locks.Resources[0].Name", "wait": "Locks.MaxWait",
	} {
		_, err := b.end(t, b.start(t, name))
		require.ErrorContains(t, err, field)
		require.Empty(t, b.read())
		b.requireFree(t, account.Name)
	}
}
