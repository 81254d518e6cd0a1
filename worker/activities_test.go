package worker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/workflows"
)

// A workflow that knows nothing but names and JSON.
func TestActivities_CalledByName_LockForAnyLanguage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		var got map[string]any
		call := func(name string, in map[string]any) error {
			return workflow.ExecuteActivity(ctx, name, in).Get(ctx, &got)
		}
		resources := []map[string]any{{"name": "account/1"}, {"name": "seats", "mode": "S", "limit": 3}}
		if err := call("lockstep.Acquire", map[string]any{"resources": resources, "schedule": 1, "ttl": "20s", "holdTtl": "1m"}); err != nil {
			return err
		}
		leases := got["leases"]
		if err := call("lockstep.Renew", map[string]any{"leases": leases}); err != nil {
			return err
		}
		if err := do(ctx, "Look"); err != nil {
			return err
		}
		if err := call("lockstep.Leave", map[string]any{"leases": leases}); err != nil {
			return err
		}
		if err := do(ctx, "Look"); err != nil {
			return err
		}
		if err := call("lockstep.Release", map[string]any{"resources": []string{"account/1", "seats"}, "schedule": 1}); err != nil {
			return err
		}
		if err := do(ctx, "Look"); err != nil {
			return err
		}
		// Once released, what was asked for before comes too late; and bad input is refused.
		err := call("lockstep.Acquire", map[string]any{"resources": resources, "schedule": 1})
		if !errors.Is(workflows.LockError(err), lockcore.ErrSuperseded) {
			return errors.Join(errors.New("a late acquire was not refused"), err)
		}
		err = call("lockstep.Acquire", map[string]any{"resources": []map[string]any{{"name": ""}}, "schedule": 2})
		if !errors.Is(workflows.LockError(err), lockcore.ErrInvalid) {
			return errors.Join(errors.New("an empty name was not refused"), err)
		}
		return call("lockstep.Acquire", map[string]any{"resources": resources, "schedule": 3, "holdOnly": true})
	})
	b.serve(t)
	run := b.start(t, "W")
	b.succeed(t, run)
	require.Equal(t, []string{"free: false", "free: false", "free: true"}, b.read())
	// A hold without a part goes as soon as it is released.
	free, err := b.isFree(t.Context(), account.Name)
	require.NoError(t, err)
	require.False(t, free)
	require.NoError(t, b.locker.Release(t.Context(), lockcore.Release{LockID: lockID(run), Run: run.GetRunID(), Resources: []string{account.Name}, Order: lockcore.LastAttempt(3)}))
	b.requireFree(t, account.Name)
}

// Without park, without Wait: the activity is tried until it holds the lock. The victim of a deadlock must receive the error, or its next
// attempt would queue in the same circle.
func TestAcquire_RetriedInDeadlock_IsToldOfIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	call := func(ctx workflow.Context, name string, in map[string]any) error {
		return workflow.ExecuteActivity(ctx, name, in).Get(ctx, nil)
	}
	both := func(first, second string) func(workflow.Context) error {
		return func(ctx workflow.Context) error {
			take := func(name string, schedule int) error {
				return call(ctx, "lockstep.Acquire", map[string]any{"resources": []map[string]any{{"name": name}}, "schedule": schedule, "holdOnly": true})
			}
			err := take(first, 1)
			if err == nil {
				receive(ctx, "go on")
				err = take(second, 2)
			}
			return errors.Join(err, call(ctx, "lockstep.Release", map[string]any{"resources": []string{first, second}, "schedule": 2}))
		}
	}
	b.workflow("A", both("a", "b"))
	b.workflow("B", both("b", "a"))
	b.serve(t)
	older := b.start(t, "A")
	require.Eventually(t, func() bool { return len(b.holders(t, "a")) == 1 }, within, 10*time.Millisecond, "a is not held")
	younger := b.start(t, "B")
	require.Eventually(t, func() bool { return len(b.holders(t, "b")) == 1 }, within, 10*time.Millisecond, "b is not held")
	b.signal(t, older, "go on")
	b.untilQueued(t, "b", 1)
	b.signal(t, younger, "go on")

	_, err := b.end(t, younger)
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.ErrorContains(t, err, "deadlock")
	b.succeed(t, older)
	b.requireFree(t, "a")
	b.requireFree(t, "b")
}
