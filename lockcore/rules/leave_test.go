package rules_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// A request that is queued asks again with a greater order, for several resources at once. That command
// conflicts, and what it may have done is taken back. The position in the queue remains.
func TestLeaveOfACall_KeepsAnEarlierPosition(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	ask := func(lockID, call string, order int64) rules.Acquire {
		return rules.Acquire{
			Resource: "r", Call: call, LockID: lockID, Part: "p", Order: order, Mode: rules.Exclusive, TTL: 60_000, HoldTTL: 60_000,
			Queue: true, WaiterTTL: 60_000, MaxWaiters: 10,
		}
	}
	d, _ := ask("a", "a1", 1).Apply(nil, now)
	d, queued := ask("b", "b1", 1).Apply(d, now)
	require.Equal(t, rules.Queued, queued.Outcome)
	d, _ = rules.Leave{Resource: "r", LockID: "b", Part: "p", Order: 2, Call: "b2"}.Apply(d, now)
	require.Len(t, d.Waiters, 1)
	d, _ = rules.Leave{Resource: "r", LockID: "b", Part: "p", Order: 1, Call: "b1"}.Apply(d, now)
	require.Empty(t, d.Waiters)
}
