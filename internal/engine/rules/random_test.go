package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

const claimTTL = 20 * time.Second

var (
	start    = time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	settings = rules.Settings{ClaimTTL: claimTTL.Milliseconds()}
)

// random returns an operation of one of a few parties. All choices come from pick, so that a history
// can be repeated and shrunk. Orders grow with step, and many operations name existing entries.
func random(pick func(possibilities int) int, d *rules.Document, step int) rules.Op {
	lockID := []string{"w", "a", "w/1", "b"}[pick(4)]
	run := runOf(pick, lockID)
	part := []string{"p", "q"}[pick(2)]
	order := int64(1 + step/4 + pick(4))
	var e rules.Entry // one to name
	if len(d.Entries) > 0 {
		e = d.Entries[pick(len(d.Entries))]
	}
	switch pick(21) {
	default:
		return randomAcquire(pick, d, rules.Acquire{Resource: "r", Caller: rules.Caller{LockID: lockID, Run: run, Part: part, Order: order}})
	case 7, 8:
		return rules.Renew{Resource: "r", Caller: rules.Caller{LockID: lockID, Part: part, Order: order}, Downgrade: pick(3) == 1, TTL: []int64{0, 0, 5_000}[pick(3)]}
	case 9, 10:
		op := rules.Leave{Resource: "r", Caller: rules.Caller{LockID: lockID, Run: run, Part: part, Order: order}, QueueOnly: pick(4) == 1}
		op.Keep, op.HoldTTL = pick(6) == 1, 60_000
		if pick(2) == 1 && e.State == rules.StateRunning {
			op.LockID, op.Run, op.Part, op.Order = e.LockID, e.Run, e.Part, e.Order
		}
		return op
	case 11, 12:
		op := rules.Release{Resource: "r", LockID: lockID, Run: run, Order: order, Committed: pick(2) == 1}
		if pick(2) == 1 {
			op.Leaving = &part
		}
		return op
	case 13, 14:
		return endHold(pick, e, order)
	case 15:
		return rules.Withdraw{Resource: "r", Caller: rules.Caller{LockID: lockID, Part: part, Order: order}, Reason: "because"}
	case 16:
		run = []string{"one", "two"}[pick(2)]
		return rules.Verify{Resource: "r", LockID: "w", Run: run, TakeOver: []string{"", "one"}[pick(2)], Order: order, LostSince: []time.Time{{}, start, start.Add(20 * time.Second)}[pick(3)]}
	case 17:
		return rules.Raise{Resource: "r", LockID: "w", Run: []string{"one", "two"}[pick(2)], TakeOver: []string{"", "one"}[pick(2)], Saga: []string{"s", "s", "s/1"}[pick(3)], Order: order - 2}
	case 18:
		return rules.TakeBack{Resource: "r", Caller: e.Caller, Call: callID(&e)}
	case 19:
		return rules.Settle{Resource: "r"}
	case 20:
		return rules.Promote{Resource: "r", LockID: lockID}
	}
}

// callID returns the ID of the call that made an entry.
func callID(e *rules.Entry) string {
	for _, suffix := range []string{"/k", "/d", "/s"} {
		if call, ok := strings.CutSuffix(e.ID, suffix); ok {
			return call
		}
	}
	return e.ID
}

// runOf returns the run of an operation. The lock IDs of a workflow always have one.
func runOf(pick func(int) int, lockID string) string {
	if lockID != "w" && lockID != "w/1" {
		return ""
	}
	return []string{"one", "two", "one"}[pick(3)]
}

// endHold releases a hold by its first fence, usually one that exists or drains.
func endHold(pick func(int) int, e rules.Entry, order int64) rules.Release {
	op := rules.Release{Resource: "r", LockID: e.LockID, Run: e.Run, Order: order, FirstFence: max(1, e.FirstFence)}
	if pick(6) == 1 {
		op.Run = runOf(pick, e.LockID)
	}
	if pick(2) == 1 {
		op.Leaving, op.Order = &e.Part, e.Order
	}
	if pick(2) == 1 {
		op.Run, op.Leaving, op.Force, op.Reason, op.Now = "", nil, true, "because", pick(2) == 1
	}
	return op
}

func randomAcquire(pick func(int) int, d *rules.Document, op rules.Acquire) rules.Acquire {
	seldom := func() bool { return pick(6) == 1 }
	op.TTL = []int64{10_000, 30_000, 0}[pick(3)]
	if op.HoldTTL = op.TTL; op.TTL > 0 && pick(2) == 1 {
		op.HoldTTL = 60_000
	}
	op.Mode = []string{rules.Exclusive, rules.Shared, rules.Shared}[pick(3)]
	if op.Mode == rules.Shared {
		op.Limit = []int64{0, 0, 1, 2}[pick(4)]
	}
	if member := pick(10); (member > 0) == d.Policy.IsPool() { // mostly what the resource is
		op.Mode, op.Limit = rules.Pool, 0
	}
	op.Priority = []int64{0, 3, 1, 2, 5}[pick(5)]
	op.Call = fmt.Sprintf("%s/%s/%s/%d/%s/%d", op.LockID, op.Run, op.Part, op.Order, op.Mode, pick(2)) // of few, so that copies arrive
	op.Keep, op.Queue, op.WaiterTTL, op.MaxWaiters = pick(2) == 1, pick(3) > 0, []int64{40_000, 40_000, 3_600_000}[pick(3)], 3
	op.HoldOnly = op.Keep && seldom()
	op.NextRefresh = []int64{0, 2_000, 10_000}[pick(3)]
	op.Reacquire, op.NewFence, op.Refresh = seldom(), seldom(), seldom()
	if seldom() {
		op.LostSince = []time.Time{start, start.Add(20 * time.Second)}[pick(2)]
	}
	if seldom() {
		op.HeldSince = op.Order - int64(pick(2))
	}
	op.Owner, op.Host, op.Comment, op.Trace = []string{op.LockID, "saga"}[pick(2)], "host", "comment", "trace"
	if op.Run != "" {
		op.TakeOver, op.Saga = []string{"", "one", "two"}[pick(3)], []string{"", "s", "s/1", "s1"}[pick(4)]
		if op.LockID == "w/1" { // always, as a lock ID's enclosing lock ID does not change
			op.Within = "w"
		}
	}
	return op
}

// randomPolicies changes the policies of the resource r at times.
type randomPolicies struct {
	limit int64
	until time.Time
	// members are those of the pool that the resource is, and pools is set if it is one most of the time.
	members []rules.Member
	pools   bool
	list    *rules.Policies
}

// at returns the policies at a time.
func (p *randomPolicies) at(pick func(int) int, now time.Time) *rules.Policies {
	if pick(10) > 0 && (!p.pools || p.list != nil) {
		return p.list
	}
	p.limit, p.until, p.members, p.list = 0, time.Time{}, nil, nil
	one := rules.Policy{PolicyID: rules.PolicyID{Name: "r"}}
	if p.pools && pick(6) > 0 {
		for _, name := range []string{"m", "n", "o"}[:1+pick(3)] {
			if state := pick(6); state > 0 {
				p.members = append(p.members, rules.Member{Name: name, Out: state == 1})
			}
		}
		one.Members = p.members
	} else if p.limit = int64(pick(4)); p.limit > 0 && pick(2) == 1 {
		until := now.Add(time.Duration(1+pick(40)) * time.Second)
		p.until, one.Until = until, &until
	}
	if one.Limit = p.limit; p.limit > 0 || len(p.members) > 0 {
		p.list = &rules.Policies{List: []rules.Policy{one}}
	} else if pick(2) == 1 {
		p.list = &rules.Policies{} // its policies were removed
	}
	return p.list
}

// inForce returns the limit that is in force at a time, or 0.
func (p *randomPolicies) inForce(at time.Time) int64 {
	if !p.until.IsZero() && !p.until.After(at) {
		return 0
	}
	return p.limit
}

// backwards is the longest step by which a server's clock was seen to go back between two writes.
const backwards = 75 * time.Millisecond

func TestInvariants_RandomHistories(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { history(t, false) })
}

// A clock that runs backwards is rarely noticed, so more histories are played.
func TestInvariants_ClockRunsBackwards(t *testing.T) {
	t.Parallel()
	for range 5 {
		rapid.Check(t, func(t *rapid.T) { history(t, true) })
	}
}

func history(t *rapid.T, jumps bool) {
	pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }
	watch, d, now := newObserver(), &rules.Document{}, start
	policies := randomPolicies{pools: pick(2) == 1}
	for i := range rapid.IntRange(1, 60).Draw(t, "operations") {
		now = now.Add(time.Duration(pick(4)*pick(4)) * 2 * time.Second)
		if pick(30) == 1 { // so that waiters age
			now = now.Add(rules.PriorityAge)
		}
		at := now
		if jumps && pick(3) == 1 {
			at = now.Add(-time.Duration(1+pick(int(backwards.Milliseconds()))) * time.Millisecond)
		}
		op := random(pick, d, i)
		if a, ok := op.(rules.Acquire); ok {
			if p := d.Part(a.Caller); p != nil && pick(2) == 1 && a.Mode == rules.Exclusive {
				a.Upgrades = p.ID
				op = a
			}
		}
		settings := settings
		settings.Policies = policies.at(pick, at)
		after, result := op.Apply(d, at, settings)
		t.Logf("%v %s: %T %+v", at.Sub(start), result.Outcome, op, op)
		require.NoError(t, watch.check(&step{op, d, after, result, settings, policies.inForce(at), policies.members}))
		if _, settle := op.(rules.Settle); !settle && repeatable(op, after, &result) {
			once, _ := rules.Settle{Resource: "r"}.Apply(after, at, settings)
			twice, _ := op.Apply(after, at, settings)
			require.NoError(t, repeated(once, twice))
		}
		if a, ok := op.(rules.Acquire); ok && !(a.HoldOnly && len(result.Holds) > 0) && givesUp(&a, d, at, &result) {
			back, _ := rules.TakeBack{Resource: "r", Caller: a.Caller, Call: a.Call}.Apply(after, at, settings)
			settled, _ := rules.Settle{Resource: "r"}.Apply(d, at, settings)
			require.NoError(t, leftNoTrace(settled, back))
		}
		d = after
	}
}

// givesUp reports whether a request that is taken back must leave no trace (I14). The exceptions are the
// evictions of the request, a hold without a part that has merged, a take-over, the supersession of its part's own earlier attempt, and
// times.
func givesUp(op *rules.Acquire, before *rules.Document, now time.Time, r *rules.Result) bool {
	own := func(lockID, part, run string) bool {
		return lockID == op.LockID && (part == op.Part || run != op.Run)
	}
	replaces := slices.ContainsFunc(before.Waiters, func(w rules.Waiter) bool { return own(w.LockID, w.Part, w.Run) }) ||
		slices.ContainsFunc(before.Entries, func(e rules.Entry) bool {
			mine := own(e.LockID, e.Part, e.Run) && (op.Upgrades == "" || e.State == rules.StateClaimed)
			waits := e.LockID == op.LockID && e.Within != "" && e.State == rules.StateKept
			revived := e.LockID == op.LockID && e.State == rules.StateKept && !e.Alive(now) // by a grant, which extends what is kept
			return mine || waits || revived || callID(&e) == op.Call
		})
	if op.Run != "" && op.TakeOver != "" {
		return false // it may replace another run
	}
	if op.Mode == rules.Pool && slices.ContainsFunc(before.Waiters, func(w rules.Waiter) bool { return w.LockID == op.LockID }) {
		return false // which may be granted the member that the request was granted
	}
	return r.Outcome != rules.OtherRun && r.Outcome != rules.Again && !replaces && !op.Refresh && len(r.Expired) == 0
}

// repeatable reports whether a repetition must leave the same document. It need not if the answer is
// not stored, if the same write granted a claim to the request or a hold to a waiter, if it evicted the
// lock ID's own hold, or with HoldOnly, since the hold has the call's ID only if the call began it.
func repeatable(op rules.Op, after *rules.Document, r *rules.Result) bool {
	made := slices.ContainsFunc(after.Entries, func(e rules.Entry) bool {
		return e.State == rules.StateKept && e.ClaimedAt != nil && e.ClaimedAt.Equal(after.At)
	})
	evicted := slices.ContainsFunc(r.Expired, func(e rules.Entry) bool { return e.LockID == (&step{op: op}).lockID() })
	if r.ReadOnly || r.Outcome == rules.Busy || r.Outcome == rules.Full || made || evicted {
		return false
	}
	a, ok := op.(rules.Acquire)
	claimed := slices.ContainsFunc(after.Entries, func(e rules.Entry) bool { // it has the member that the part had lost
		return a.Mode == rules.Pool && r.Outcome == rules.Lost && e.State == rules.StateClaimed && e.LockID == a.LockID
	})
	return !ok || (after.Claim(a.Caller) == nil && !a.HoldOnly && !claimed)
}
