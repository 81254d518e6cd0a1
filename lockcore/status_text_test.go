package lockcore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

// says compares the text of a status of account/42, after each change to base, with the wanted text.
func says(t *testing.T, base lockcore.Status, texts map[string]func(*lockcore.Status)) {
	t.Helper()
	for want, change := range texts {
		s := base
		s.Resource, s.Since = "account/42", time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)
		change(&s)
		require.Equal(t, `"account/42": `+want, fmt.Sprint(s))
	}
}

// A person who reads a status has to act on it: everything that a forced release or a withdrawal
// needs is in the text.
func TestStatusString_Hold_ShowsEverythingToActOn(t *testing.T) {
	t.Parallel()
	hold := lockcore.Holder{LockID: "pay/1", Owner: "pay/1", Mode: lockcore.ModeExclusive, Fence: 3, FirstFence: 3, State: lockcore.StateHolding}
	says(t, lockcore.Status{Holder: hold}, map[string]func(*lockcore.Status){
		`held by "pay/1" (exclusive, first fence 3) since 2026-01-02T03:04:05Z, for another 25s unless renewed; heard of 5s ago`: func(s *lockcore.Status) {
			s.Silent, s.ExpiresIn = 5*time.Second, 25*time.Second+1
		},
		`held by "pay/1" of "transfer-7" on worker-1:4711 (exclusive, first fence 3) since 2026-01-02T03:04:05Z, ` +
			`for another 10m unless renewed; heard of 5s ago; comment "debit"`: func(s *lockcore.Status) {
			s.Silent, s.Owner, s.Host, s.Comment, s.ExpiresIn = 5*time.Second, "transfer-7", "worker-1:4711", "debit", 10*time.Minute
		},
		`held by "pay/1" (shared with limit 4, first fence 3, latest 7) since 2026-01-02T03:04:05Z, for another 1s unless renewed`: func(s *lockcore.Status) {
			s.Mode, s.Limit, s.Fence, s.ExpiresIn = lockcore.ModeShared, 4, 7, time.Second
		},
		`held by "pay/1" (exclusive, first fence 3) since 2026-01-02T03:04:05Z, no end; heard of 50h ago`: func(s *lockcore.Status) {
			s.Silent, s.ExpiresIn = 50*time.Hour, lockcore.Forever
		},
		`held by "pay/1" (exclusive, first fence 3) since 2026-01-02T03:04:05Z, expired 1m ago; heard of 1m30s ago`: func(s *lockcore.Status) {
			s.Silent, s.ExpiresIn = 90*time.Second, -time.Minute-2*time.Millisecond
		},
		`held by "pay/1" (exclusive, first fence 3) since 2026-01-02T03:04:05Z, kept while the workflow is open; heard of 5s ago`: func(s *lockcore.Status) {
			s.Silent, s.Run, s.Kept, s.ExpiresIn = 5*time.Second, "run-1", true, time.Hour
		},
		`held by "pay/1" (exclusive, first fence 3) since 2026-01-02T03:04:05Z, kept while its step waits for other resources; heard of 5s ago`: func(s *lockcore.Status) {
			s.Silent, s.Run, s.Within, s.Kept, s.ExpiresIn = 5*time.Second, "run-1", "pay", true, time.Hour
		},
	})
	hold.State = lockcore.StateDraining
	says(t, lockcore.Status{Holder: hold}, map[string]func(*lockcore.Status){
		`draining for another 12s: "pay/1" (exclusive, part "p", first fence 3) since 2026-01-02T03:04:05Z, was cut off`: func(s *lockcore.Status) {
			s.Part, s.ExpiresIn = "p", 12*time.Second
		},
		`drained just now: "pay/1" (exclusive, first fence 3), was cut off`: func(s *lockcore.Status) {
			s.Since, s.ExpiresIn = time.Time{}, 0
		},
		`draining until it leaves: "pay/1" (exclusive, first fence 3), was cut off`: func(s *lockcore.Status) {
			s.Since, s.ExpiresIn = time.Time{}, lockcore.Forever
		},
	})
}

func TestStatusString_Waiter_ShowsEverythingToActOn(t *testing.T) {
	t.Parallel()
	claimed := lockcore.Holder{LockID: "pay/1", Owner: "pay/1", Mode: lockcore.ModeExclusive, State: lockcore.StateClaimed, Part: "p"}
	says(t, lockcore.Status{Holder: claimed}, map[string]func(*lockcore.Status){
		`granted to "pay/1" (exclusive, part "p") at 2026-01-02T03:04:05Z, lapses in 20s unless confirmed`: func(s *lockcore.Status) {
			s.ExpiresIn = 20 * time.Second
		},
		`granted to "pay/1" (exclusive, part "p") at 2026-01-02T03:04:05Z, lapsed 300ms ago`: func(s *lockcore.Status) {
			s.ExpiresIn = -300 * time.Millisecond
		},
	})
	waiter := lockcore.Holder{LockID: "b", Owner: "b", Mode: lockcore.ModeExclusive, State: lockcore.StateWaiting, Part: "p"}
	says(t, lockcore.Status{Position: 1, Holder: waiter}, map[string]func(*lockcore.Status){
		`waiting at position 3 for 2h: "b" of "saga-2" (exclusive, part "3/Debit", order 4.2) since 2026-01-02T03:04:05Z, ` +
			`it leaves the queue in 4m40s unless it asks again`: func(s *lockcore.Status) {
			s.Part, s.Order, s.Position, s.Owner = "3/Debit", lockcore.Order{Schedule: 4, Attempt: 2}, 3, "saga-2"
			s.Silent, s.ExpiresIn = 2*time.Hour, 4*time.Minute+40*time.Second
		},
		`waiting at position 1 for 5m: "b" (exclusive, part "p", order 0.0) since 2026-01-02T03:04:05Z, ` +
			`overdue: passed over until it asks again, it leaves the queue in 55m`: func(s *lockcore.Status) {
			s.Overdue, s.Silent, s.ExpiresIn = true, 5*time.Minute, 55*time.Minute
		},
		`waiting at position 1 for 12h: "b" (shared with limit 2, part "p", order 0.0) since 2026-01-02T03:04:05Z, it left the queue 2h ago`: func(s *lockcore.Status) {
			s.Mode, s.Limit, s.Silent, s.ExpiresIn = lockcore.ModeShared, 2, 11*time.Hour+40*time.Minute, -2*time.Hour
		},
	})
}

func TestBusyError_Holders_ReadLikeStatus(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	holder := lockcore.Holder{LockID: "a", Owner: "saga", Mode: lockcore.ModeShared, Fence: 3, FirstFence: 3, Since: since, ExpiresIn: lockcore.Forever}
	const words = `held by "a" of "saga" (shared, first fence 3) since 2026-01-02T03:04:05Z, no end`
	draining := lockcore.Holder{LockID: "b", Mode: lockcore.ModeExclusive, Fence: 2, State: lockcore.StateDraining, ExpiresIn: 12 * time.Second}
	for name, c := range map[string]struct {
		err  lockcore.BusyError
		want string
	}{
		"held":         {lockcore.BusyError{Holders: []lockcore.Holder{holder}}, words},
		"others ahead": {lockcore.BusyError{}, `others are ahead in the queue`},
		"two": {
			lockcore.BusyError{Holders: []lockcore.Holder{holder, draining}},
			words + `; draining for another 12s: "b" (exclusive, fence 2), was cut off`,
		},
		"a crowd": {
			lockcore.BusyError{Holders: []lockcore.Holder{holder, holder, holder, holder, holder}},
			words + "; " + words + "; " + words + "; and 2 more",
		},
	} {
		c.err.Resource, c.err.LockID = "r", "me"
		require.EqualError(t, &c.err, `lockstep: "r" is busy for "me": `+c.want, name)
		c.err.Position, c.err.Waiting = 2, 7
		require.EqualError(t, &c.err, `lockstep: "r" is busy for "me" (position 2 of 7 in the queue): `+c.want, name)
		c.err.Position, c.err.Full = 0, true
		require.EqualError(t, &c.err, `lockstep: "r" is busy for "me" (its queue is full: 7 wait): `+c.want, name)
	}
}

// The error of a request for a member names the held members and the members out of service.
func TestBusyError_Pool_NamesItsMembers(t *testing.T) {
	t.Parallel()
	l := newLocker(t, lockcoretest.NewStore(time.Now), lockcore.Config{})
	require.NoError(t, l.SetPolicy(t.Context(), lockcore.Policy{
		Name: "phones", Members: []string{"phone-1", "phone-2", "phone-3"}, Out: map[string]string{"phone-2": "display broken", "phone-3": ""},
	}))
	enter(t, l, endless("a", lockcore.Pool("phones")))
	_, err := l.TryEnter(t.Context(), endless("b", lockcore.Pool("phones")))
	require.ErrorContains(t, err, `: 2 of 3 members are out of service: "phone-2" (display broken), "phone-3"; held by "a" on `)
	require.ErrorContains(t, err, ` (pool member "phone-1", first fence `)
	_, err = l.TryEnter(t.Context(), endless("b", lockcore.Exclusive("phones")))
	require.Error(t, err)
	require.NotContains(t, err.Error(), "out of service")
}

// A workflow is named by its workflow ID, as lockstep ps names it. Lock IDs of other namespaces, and plain ones, are
// shown as they are.
func TestErrors_Workflows_AreNamedByWorkflowID(t *testing.T) {
	t.Parallel()
	const ns, elsewhere = "0b6d4e1c-96d3-4cf6-b0bb-6f3f2d5c7a11/", "7d1f8a52-0c4e-4a7d-8f1e-2b9c3d4e5f60/"
	const part = "5f8a1f0e-7c1d-4c57-9a53-0d3b5a0b8f21/1/Debit"
	me, other, tenants := ns+"transfer%2F7", ns+"transfer-8/1%2FDebit", ns+"invoices/7"
	holder := func(lockID, owner, run string) []lockcore.Holder {
		return []lockcore.Holder{{LockID: lockID, Owner: owner, Run: run, State: lockcore.StateHolding, Kept: run != "", ExpiresIn: time.Hour}}
	}
	const kept = " (exclusive), kept while the workflow is open"
	for want, err := range map[string]error{
		`lockstep: "r" is busy for "transfer/7": held by "transfer-8"` + kept: &lockcore.BusyError{
			Resource: "r", LockID: me, Holders: holder(other, ns+"transfer-8", "r")},
		`lockstep: "r" is busy for "transfer/7": held by "` + elsewhere + `transfer%2F7"` + kept: &lockcore.BusyError{
			Resource: "r", LockID: me, Holders: holder(elsewhere+"transfer%2F7", "", "r")},
		`lockstep: "r" is busy for "` + tenants + `": held by "` + tenants + `8" (exclusive), for another 1h unless renewed`: &lockcore.BusyError{
			Resource: "r", LockID: tenants, Holders: holder(tenants+"8", "", "")},
		`lockstep: "transfer/7" lost its lock on "r" to "transfer-8"`: &lockcore.LostError{Resource: "r", LockID: me, Part: part, By: other},
		`lockstep: "transfer-8" lost its lock on "r"`:                 &lockcore.LostError{Resource: "r", LockID: other, Part: part},
		`lockstep: "` + tenants + `" lost its lock on "r"`:            &lockcore.LostError{Resource: "r", LockID: tenants, Part: "p"},
		`lockstep: "pay/1" lost its lock on "r" to "50%2F"`:           &lockcore.LostError{Resource: "r", LockID: "pay/1", By: "50%2F"},
		`lockstep: "transfer/7" gave up waiting for "r", since it was in a deadlock: ` +
			`transfer/7 waits for ` + elsewhere + `b on r, ` + elsewhere + `b waits for transfer/7 on ` + ns + `q, ` + ns + `c wai…`: &lockcore.DeadlockError{
			Resource: "r", LockID: me, Part: part,
			Cycle: me + " waits for " + elsewhere + "b on r, " + elsewhere + "b waits for " + me + " on " + ns + "q, " + ns + "c wai…",
		},
	} {
		require.EqualError(t, err, want)
	}
}

// A person who waits must see the limit that an operator has set: the one that the program asked for is not in force.
func TestTexts_PolicySetsLimit_NameIt(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	l := newLocker(t, lockcoretest.NewStore(clock.Now), lockcore.Config{})
	for _, id := range []string{"a", "b"} {
		enter(t, l, endless(id, lockcore.SharedLimit("partner/acme", 3)))
	}
	require.NoError(t, l.SetPolicy(t.Context(), lockcore.Policy{Name: "partner/", Prefix: true, Limit: 2, Until: clock.Now().Add(time.Hour)}))
	const inForce = `limit 2 by policy partner/*, until 2026-01-02 04:04:05 UTC; the request asked for 3`
	_, err := l.TryEnter(t.Context(), endless("c", lockcore.SharedLimit("partner/acme", 3)))
	require.ErrorContains(t, err, `"partner/acme" is busy for "c" (as of 2026-01-02 03:04:05 UTC): `+inForce+`; held by "a" on `)
	_, err = l.TryEnter(t.Context(), endless("c", lockcore.SharedLimit("partner/acme", 2)))
	require.ErrorContains(t, err, `UTC): limit 2 by policy partner/*, until 2026-01-02 04:04:05 UTC; held by "a"`)
	_, err = l.TryEnter(t.Context(), endless("c", lockcore.Exclusive("partner/acme")))
	require.ErrorContains(t, err, `UTC): held by "a"`)
	queue(t, l, numbered("d", lockcore.SharedLimit("partner/acme", 3)))
	found := statuses(t, l, lockcore.Filter{})
	require.Len(t, found, 3)
	for _, s := range found {
		require.Contains(t, s.String(), "; "+inForce)
	}
	s := found[0]
	s.Policy = &lockcore.Policy{Name: "\x1b[2J\n", Limit: 1}
	requirePrintable(t, s)
	s.Policy.Unreadable = true
	require.Contains(t, s.String(), `; the policy \x1b[2J\n, which sets its limit, cannot be decoded`)
}

// A request that names a run is a workflow's, and its step's name is left out.
func TestEnter_StepOfWorkflow_IsBusyUnderItsWorkflowID(t *testing.T) {
	t.Parallel()
	l := newLocker(t, lockcoretest.NewStore(time.Now), lockcore.Config{})
	enter(t, l, endless("a", lockcore.Exclusive("r")))
	const step = "0b6d4e1c-96d3-4cf6-b0bb-6f3f2d5c7a11/transfer-8/Debit"
	for run, want := range map[string]string{"": step, "run": "transfer-8"} {
		_, err := l.TryEnter(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: step, Run: run, Part: "p", Order: lockcore.Order{Attempt: 1}}, Resources: []lockcore.Resource{lockcore.Exclusive("r")}})
		require.ErrorContains(t, err, `"r" is busy for "`+want+`"`)
	}
}

// What the texts are made of comes from the document.
func TestStatusString_Resource_ReadsLikeAList(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	mem := lockcoretest.NewStore(clock.Now)
	l := newLocker(t, mem, lockcore.Config{Host: "host:1"})
	leases := enter(t, l, endless("a", lockcore.Exclusive("r")))
	wait := lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: "b", Part: "3/Debit", Order: lockcore.Order{Schedule: 4, Attempt: 2}}, Owner: "saga", Resources: []lockcore.Resource{lockcore.Exclusive("r")},
	}
	clock.Advance(10 * time.Second)
	_, err := l.Enter(t.Context(), wait)
	require.EqualError(t, err, fmt.Sprintf(`lockstep: "r" is busy for "b" (position 1 of 1 in the queue, as of 2026-01-02 03:04:15 UTC): `+
		`held by "a" on host:1 (exclusive, first fence %d) since 2026-01-02T03:04:05Z, no end`, leases[0].Fence))
	queue(t, l, numbered("c", lockcore.Exclusive("r")))
	list := func() []string {
		var got []string
		for _, s := range statuses(t, l, lockcore.Filter{}) {
			got = append(got, s.String())
		}
		return got
	}
	const (
		first  = `"b" of "saga" (exclusive, part "3/Debit", order 4.2) since 2026-01-02T03:04:15Z, `
		second = `"c" (exclusive, part "p", order 1.1) since 2026-01-02T03:04:15Z, `
	)
	held := fmt.Sprintf(`"r": held by "a" on host:1 (exclusive, first fence %d) since 2026-01-02T03:04:05Z, no end; heard of `, leases[0].Fence)
	clock.Advance(20 * time.Second)
	require.Equal(t, []string{
		held + "30s ago",
		`"r": waiting at position 1 for 20s: ` + first + "it leaves the queue in 24h unless it asks again",
		`"r": waiting at position 2 for 20s: ` + second + "it leaves the queue in 24h unless it asks again",
	}, list())

	withdraw := rules.Withdraw{Resource: "r", Caller: rules.Caller{LockID: "b", Part: wait.Part, Order: 4<<32 | 2}, Reason: "a deadlock"}
	err = change(t.Context(), mem, withdraw)
	require.NoError(t, err)
	clock.Advance(4*time.Minute + 40*time.Second)
	require.Equal(t, []string{
		held + "5m10s ago",
		`"r": waiting at position 1 for 5m: ` + second + "overdue: passed over until it asks again, it leaves the queue in 24h",
	}, list(), "who was taken out of the queue has no position, and counts for none behind it")
}

// An exclusive request is stored with the limit 1, which no caller asked for.
func TestStatus_ExclusiveClaim_HasNoLimit(t *testing.T) {
	t.Parallel()
	l := newLocker(t, lockcoretest.NewStore(time.Now), lockcore.Config{})
	leases := enter(t, l, endless("a", lockcore.Exclusive("r")))
	queue(t, l, numbered("b", lockcore.Exclusive("r")))
	require.NoError(t, l.Leave(t.Context(), leases...))
	claim := statuses(t, l, lockcore.Filter{})[0]
	require.Equal(t, lockcore.StateClaimed, claim.State)
	require.Zero(t, claim.Limit)
	require.Contains(t, claim.String(), "(exclusive, part")
}
