package scenarios

import (
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// Damaged returns a document that no operation writes, with entries of unknown states, claims and waiters
// without times, and negative orders and limits. All choices come from pick. A process that reads such a
// document must not panic.
func Damaged(pick func(possibilities int) int, now time.Time) *rules.Document {
	at := func() time.Time {
		return []time.Time{{}, rules.LongAgo, now.Add(-time.Hour), now, now.Add(time.Minute), rules.Never}[pick(6)]
	}
	maybe := func() *time.Time {
		if pick(2) == 0 {
			return nil
		}
		t := at()
		return &t
	}
	number := func() int64 { return []int64{-1 << 63, -1, 0, 1, 2, 5_000, 1<<63 - 1}[pick(7)] }
	text := func() string { return []string{"", "w", "a", "\x00", "w/1"}[pick(5)] }
	mode := func() string { return []string{rules.Exclusive, rules.Shared, "", "other"}[pick(4)] }
	d := &rules.Document{ID: "r", At: now, Fence: number(), EvidenceSince: at(), IdleAt: at()}
	for range pick(6) {
		states := []string{rules.StateClaimed, rules.StateDraining, rules.StateRunning, rules.StateKept, "", "z"}
		e := rules.Entry{
			ID: text(), Caller: rules.Caller{LockID: text(), Run: text(), Part: text(), Order: number(), Saga: text(), Within: text()}, Mode: mode(), State: states[pick(6)], Fence: number(),
			FirstFence: number(), LeastFence: number(), FirstOrder: number(), CutOff: pick(2) == 1, TTL: number(),
			ExpiresAt: at(), RenewedAt: maybe(), Since: maybe(), ClaimedAt: maybe(), QueuedUntil: maybe(), ClaimTTL: number(), CreatedAt: maybe(),
			Owner: text(), Limit: number(), Trace: text(),
		}
		if pick(2) == 1 {
			e.Predecessor = &rules.EndedHold{LockID: text(), Fence: number()}
		}
		d.Entries = append(d.Entries, e)
	}
	for range pick(5) {
		w := rules.Waiter{
			Caller: rules.Caller{LockID: text(), Run: text(), Part: text(), Order: number(), Saga: text(), Within: text()}, Mode: mode(), Limit: number(), Owner: text(),
			Started: maybe(), Since: at(), ExpiresAt: at(), OverdueAt: at(), Verdict: text(), Ahead: pick(2) == 1, ClaimTTL: number(),
		}
		if pick(3) == 1 {
			w.Hold = &rules.WaitingHold{ID: text(), TTL: number()}
		}
		d.Waiters = append(d.Waiters, w)
	}
	for range pick(3) {
		d.Evidence = append(d.Evidence, rules.Evidence{LockID: text(), Run: text(), To: text(), Fence: number(), At: at()})
		d.Releases = append(d.Releases, rules.ReleaseRecord{LockID: text(), Run: text(), Order: number()})
		d.Bars = append(d.Bars, rules.Bar{LockID: text(), Run: text(), Saga: text(), Order: number()})
	}
	for range pick(2) {
		d.Missed = append(d.Missed, rules.Missed{LockID: text(), Run: text(), Order: number(), Fence: number(), At: at(), ReleasedAt: at()})
	}
	for i := range d.Entries {
		e := &d.Entries[i]
		for range pick(3) {
			e.Bars = append(e.Bars, rules.Bar{LockID: text(), Run: text(), Saga: text(), Order: number()})
		}
	}
	return d
}

// AllOps returns one operation of each kind, of a party that may be in a damaged document.
func AllOps(pick func(possibilities int) int) []rules.Op {
	text := func() string { return []string{"w", "a", "w/1", ""}[pick(4)] }
	lockID, run, part, order := text(), text(), text(), int64(pick(3))-1
	acquire := rules.Acquire{
		Policy: Policy, Resource: "r", Call: text(), Caller: rules.Caller{LockID: lockID, Run: run, Part: part, Order: order, Saga: text(), Within: text()}, TakeOver: text(),
		Mode: []string{rules.Exclusive, rules.Shared}[pick(2)], Limit: int64(pick(3)), TTL: int64(pick(2)) * 1000,
		Keep: pick(2) == 1, HoldOnly: pick(3) == 1, HeldSince: int64(pick(2)), Reacquire: pick(2) == 1, Queue: pick(3) > 0, Refresh: pick(3) == 1,
		Upgrades: text(), WaiterTTL: 1000, MaxWaiters: int64(pick(3)),
	}
	acquire.HoldOnly = acquire.HoldOnly && acquire.Keep
	return []rules.Op{
		acquire,
		rules.Renew{Policy: Policy, Resource: "r", Caller: rules.Caller{LockID: lockID, Part: part, Order: order}, Downgrade: pick(2) == 1, TTL: int64(pick(2))},
		rules.Leave{Policy: Policy, Resource: "r", Caller: rules.Caller{LockID: lockID, Run: run, Part: part, Order: order}, Keep: pick(2) == 1},
		rules.TakeBack{Policy: Policy, Resource: "r", Caller: rules.Caller{LockID: lockID, Part: part, Order: order}, Call: text()},
		rules.Release{Policy: Policy, Resource: "r", LockID: lockID, Run: run, Order: order, Committed: true},
		rules.Release{Policy: Policy, Resource: "r", LockID: lockID, FirstFence: 1, Force: pick(2) == 1, Now: pick(2) == 1, Leaving: &part},
		rules.Withdraw{Policy: Policy, Resource: "r", Caller: rules.Caller{LockID: lockID, Part: part, Order: order}, Reason: "because"},
		rules.Verify{Policy: Policy, Resource: "r", LockID: lockID, Run: run, TakeOver: text(), Order: order, LostSince: rules.LongAgo},
		rules.Raise{Policy: Policy, Resource: "r", LockID: lockID, Run: run, TakeOver: text(), Saga: text(), Order: order},
		rules.Settle{Policy: Policy, Resource: "r"},
	}
}
