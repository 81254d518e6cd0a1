package rules_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// A bar cuts off both entries of a part, or none: the request for an upgrade need not name the saga.
func TestUpgrade_OfAStep_BelongsToItsSaga(t *testing.T) {
	t.Parallel()
	now := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	op := rules.Acquire{
		Resource: "r", Call: "shared", Caller: rules.Caller{LockID: "w/1", Run: "run", Part: "p", Order: 1, Saga: "s", Within: "w"}, Mode: rules.Shared, TTL: 10_000,
	}
	d, _ := op.Apply(nil, now, settings)
	op.Call, op.Upgrades, op.Mode, op.Saga, op.Within = "exclusive", "shared", rules.Exclusive, "", ""
	d, result := op.Apply(d, now, settings)
	require.Equal(t, rules.Granted, result.Outcome)
	d, result = rules.Raise{Resource: "r", LockID: "w", Run: "run", Saga: "s", Order: 1}.Apply(d, now, settings)
	require.Equal(t, rules.Busy, result.Outcome)
	require.Len(t, d.Entries, 2)
	for _, e := range d.Entries {
		require.True(t, e.CutOff, "%+v", e)
	}
}

// Holders that ask again have room in a full queue: those in it wait for them.
func TestUpgrade_QueueIsFull_Queues(t *testing.T) {
	t.Parallel()
	now := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	op := rules.Acquire{
		Resource: "r", Call: "a", Caller: rules.Caller{LockID: "a", Part: "p", Order: 1}, Mode: rules.Shared, TTL: 10_000, Queue: true, WaiterTTL: 10_000, MaxWaiters: 1,
	}
	d, _ := op.Apply(nil, now, settings)
	other := op
	other.Call, other.LockID = "b", "b"
	d, _ = other.Apply(d, now, settings)
	other.Call, other.LockID, other.Mode = "c", "c", rules.Exclusive
	d, result := other.Apply(d, now, settings)
	require.Equal(t, rules.Queued, result.Outcome)
	op.Call, op.Upgrades, op.Mode = "upgrade", "a", rules.Exclusive
	_, result = op.Apply(d, now, settings)
	require.Equal(t, rules.Queued, result.Outcome)
}

// If a claim has a greater limit than the request, the request queues. It must not ask again at once.
func TestAcquire_ClaimNoLongerFits_Queues(t *testing.T) {
	t.Parallel()
	now := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	d := &rules.Document{ID: "r", Fence: 3}
	for _, lockID := range []string{"a", "b", "c"} {
		d.Entries = append(d.Entries, rules.Entry{
			ID: lockID, Caller: rules.Caller{LockID: lockID, Part: "p", Order: 1}, Mode: rules.Shared, State: rules.StateRunning, ExpiresAt: now.Add(time.Minute),
		})
	}
	expiry := now.Add(time.Minute)
	d.Entries = append(d.Entries, rules.Entry{
		Caller: rules.Caller{LockID: "w", Part: "p", Order: 1}, Mode: rules.Shared, Limit: 5, State: rules.StateClaimed, ExpiresAt: expiry, QueuedUntil: &expiry, Since: &now, ClaimedAt: &now,
	})
	_, result := rules.Acquire{
		Resource: "r", Call: "w", Caller: rules.Caller{LockID: "w", Part: "p", Order: 1}, Mode: rules.Shared, Limit: 3, TTL: 10_000, Queue: true, WaiterTTL: 10_000, MaxWaiters: 9,
	}.Apply(d, now, settings)
	require.Equal(t, rules.Queued, result.Outcome)
}
