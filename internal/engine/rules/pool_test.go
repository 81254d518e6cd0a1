package rules_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

func poolOf(name string, members ...string) *rules.PolicyChange {
	change := &rules.PolicyChange{PolicyID: rules.PolicyID{Name: name}, To: &rules.Policy{}, By: "ops", Reason: "a test"}
	for _, m := range members {
		change.To.Members = append(change.To.Members, rules.Member{Name: m})
	}
	return change
}

func TestPolicies_MemberOfTwoPools_IsRefused(t *testing.T) {
	t.Parallel()
	var policies rules.Policies
	require.NoError(t, policies.Change(poolOf("a", "m", "n")))
	require.ErrorContains(t, policies.Change(poolOf("b", "o", "m")), `remove it from the pool "a" first`)
	require.ErrorContains(t, policies.Change(poolOf("b", "o", "o")), `"o": want each member once`)
	require.ErrorContains(t, policies.Change(poolOf("b", "o", "")), "names of 1 byte")
	require.Len(t, policies.List, 1)
	require.NoError(t, policies.Change(poolOf("a", "n", "m")), "a pool may list its own members again")
	require.NoError(t, policies.Change(poolOf("b", "o")))
	require.NoError(t, policies.Change(poolOf("a", "n")))
	require.NoError(t, policies.Change(poolOf("b", "o", "m")))

	limited := poolOf("c", "p")
	limited.To.Limit = 1
	require.ErrorContains(t, policies.Change(limited), "a limit or an end")
	ends := poolOf("c", "p")
	ends.To.Until = &start
	require.ErrorContains(t, policies.Change(ends), "a limit or an end")
	prefix := poolOf("c", "p")
	prefix.Prefix = true
	require.ErrorContains(t, policies.Change(prefix), "none with a prefix")
}

// A grant on a crowded resource evicts all expired holds, but of a pool only one.
func TestAcquire_PoolWithManyExpiredHolds_EvictsOne(t *testing.T) {
	t.Parallel()
	var members []string
	for i := range rules.Crowd + 10 {
		members = append(members, fmt.Sprint("m", i))
	}
	var policies rules.Policies
	require.NoError(t, policies.Change(poolOf("r", members...)))
	settings := settings
	settings.Policies = &policies
	ask := func(lockID string) rules.Acquire {
		return rules.Acquire{Resource: "r", Call: lockID, Caller: rules.Caller{LockID: lockID, Part: "p", Order: 1}, Mode: rules.Pool, TTL: 10_000}
	}
	var d *rules.Document
	var r rules.Result
	for i := range members {
		d, r = ask(fmt.Sprint(i)).Apply(d, start, settings)
		require.Equal(t, rules.Granted, r.Outcome)
	}
	d, r = ask("other").Apply(d, start.Add(time.Minute), settings)
	require.Equal(t, rules.Granted, r.Outcome)
	require.Len(t, r.Expired, 1)
	require.Len(t, d.Entries, len(members))
}

// A build that does not know priorities may decide in a collection that never had a policy.
func TestAcquire_PriorityBeforeTheFirstPolicy_IsNotStored(t *testing.T) {
	t.Parallel()
	ask := func(lockID string, priority int64) rules.Acquire {
		return rules.Acquire{
			Resource: "r", Call: lockID, Caller: rules.Caller{LockID: lockID, Part: "p", Order: 1}, Mode: rules.Exclusive, TTL: 10_000,
			Queue: true, WaiterTTL: 10_000, MaxWaiters: 10, Priority: priority,
		}
	}
	order := func(settings rules.Settings) (lockIDs []string, priorities []int64) {
		var d *rules.Document
		for i, priority := range []int64{0, 3, 5, 1} {
			d, _ = ask(fmt.Sprint(i), priority).Apply(d, start, settings)
		}
		for _, w := range d.Waiters {
			lockIDs, priorities = append(lockIDs, w.LockID), append(priorities, w.Priority)
		}
		return lockIDs, priorities
	}
	lockIDs, priorities := order(settings)
	require.Equal(t, []string{"1", "2", "3"}, lockIDs)
	require.Equal(t, []int64{0, 0, 0}, priorities)

	settings := settings
	settings.Policies = &rules.Policies{} // its policies were removed
	lockIDs, priorities = order(settings)
	require.Equal(t, []string{"3", "1", "2"}, lockIDs)
	require.Equal(t, []int64{1, 0, 5}, priorities)
}
