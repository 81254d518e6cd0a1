package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/proof/scenarios"
)

// The longest names fill a document long before the queue is full.
func TestAcquire_DocumentWithoutRoom_IsFull(t *testing.T) {
	t.Parallel()
	now := time.Now()
	acquire := func(lockID string, mode string) rules.Acquire {
		long := strings.Repeat("x", 512)
		return rules.Acquire{
			Resource: "r", Call: lockID, Caller: rules.Caller{LockID: lockID + strings.Repeat("y", 1400), Run: long, Part: long, Order: 1, Saga: long, Within: strings.Repeat("w", 1500)},
			Owner: long, Mode: mode, Queue: true, TTL: 1000, HoldTTL: 1000, WaiterTTL: 60_000, MaxWaiters: 5000,
		}
	}
	for name, mode := range map[string]string{"waiters": rules.Exclusive, "holders": rules.Shared} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, result := acquire("holder", mode).Apply(nil, now, settings)
			require.Equal(t, rules.Granted, result.Outcome)
			d, _ = acquire("other/0", mode).Apply(d, now, settings)
			n := 1
			for ; d.Bytes() < rules.MaxBytes-20<<10; n++ { // until it is almost full
				if mode == rules.Exclusive {
					d.Waiters = append(d.Waiters, d.Waiters[0])
					d.Waiters[n].LockID = fmt.Sprint("other/", n, d.Waiters[0].LockID)
				} else {
					d.Entries = append(d.Entries, d.Entries[1])
					d.Entries[n+1].LockID = fmt.Sprint("other/", n, d.Entries[1].LockID)
				}
			}
			require.Greater(t, n, 1000)
			for ; result.Outcome != rules.Full; n++ {
				require.Less(t, n, 5000)
				d, result = acquire(fmt.Sprint("other/", n), mode).Apply(d, now, settings)
			}
			require.True(t, result.ReadOnly)
			require.Less(t, d.Bytes(), rules.MaxBytes+16<<10)

			next := acquire("holder", mode)
			next.Part = "next step"
			d, result = next.Apply(d, now, settings)
			require.Equal(t, rules.Joined, result.Outcome, "others wait for the holder")
			_, result = acquire("other/0", mode).Apply(d, now, settings)
			require.NotEqual(t, rules.Full, result.Outcome, "a waiter keeps its position")
			d, result = rules.Leave{Resource: "r", Caller: rules.Caller{LockID: next.LockID, Part: next.Part, Order: 1}}.Apply(d, now, settings)
			require.Equal(t, rules.Granted, result.Outcome)
			require.Less(t, d.Bytes(), rules.MaxBytes+16<<10)
		})
	}
}

// A queued request asks again with a greater order, for several resources at once. That command conflicts,
// and what it may have done is undone. Its earlier position in the queue must remain.
func TestTakeBack_OfACall_KeepsEarlierWaiter(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	ask := func(lockID, call string, order int64) rules.Acquire {
		return rules.Acquire{
			Resource: "r", Call: call, Caller: rules.Caller{LockID: lockID, Part: "p", Order: order}, Mode: rules.Exclusive, TTL: 60_000, HoldTTL: 60_000,
			Queue: true, WaiterTTL: 60_000, MaxWaiters: 10,
		}
	}
	d, _ := ask("a", "a1", 1).Apply(nil, now, settings)
	d, queued := ask("b", "b1", 1).Apply(d, now, settings)
	require.Equal(t, rules.Queued, queued.Outcome)
	d, _ = rules.TakeBack{Resource: "r", Caller: rules.Caller{LockID: "b", Part: "p", Order: 2}, Call: "b2"}.Apply(d, now, settings)
	require.Len(t, d.Waiters, 1)
	d, _ = rules.TakeBack{Resource: "r", Caller: rules.Caller{LockID: "b", Part: "p", Order: 1}, Call: "b1"}.Apply(d, now, settings)
	require.Empty(t, d.Waiters)
}

func TestScenarios(t *testing.T) {
	for _, s := range scenarios.All() {
		t.Run(s.Name, func(t *testing.T) {
			s.Run(t, scenarios.NewRules(), "r")
		})
	}
}

func TestScenarios_NamesAreUnique(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, s := range scenarios.All() {
		require.False(t, names[s.Name], "two scenarios named %q", s.Name)
		require.Contains(t, s.Name, "/")
		require.Less(t, len(strings.Fields(s.Name)), 20, s.Name)
		names[s.Name] = true
	}
}
