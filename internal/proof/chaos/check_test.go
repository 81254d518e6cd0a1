package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

const ms = int64(time.Millisecond)

// sorted returns records in the order of time.
func sorted(records ...Record) []Record {
	slices.SortStableFunc(records, func(a, b Record) int { return int(a.At - b.At) })
	return records
}

// hold returns the records of one hold: asked for, granted and last trusted at some ms.
func hold(lockID, resource string, asked, at, trusted, fence int64, change ...func(*Record)) []Record {
	records := []Record{
		{What: Asked, At: asked * ms, LockID: lockID, Resource: resource},
		{What: Got, Began: asked * ms, At: at * ms, LockID: lockID, Resource: resource, Fence: fence},
		{What: Trusted, At: at * ms, LockID: lockID, Resource: resource},
		{What: Trusted, At: trusted * ms, LockID: lockID, Resource: resource},
	}
	for i := range records {
		for _, c := range change {
			c(&records[i])
		}
	}
	return records
}

func shared(r *Record) { r.Shared = true }

func permit(r *Record) { r.Shared, r.Limit = true, 1 }

func three(r *Record) { r.Shared, r.Limit = true, 3 }

// policy returns the records of a change that sets a limit, or removes it, and that the audit shows in the end.
func policy(key, name string, limit int, from, to int64, change ...func(*Policy)) []Record {
	p := &Policy{Name: name, Limit: limit}
	for _, c := range change {
		c(p)
	}
	return []Record{
		{What: Change, Key: key, Began: from * ms, At: to * ms, Result: done, Policy: p}, {What: Audited, Key: key, At: 90_000 * ms, Policy: &Policy{p.Name, p.Prefix, p.Limit, p.Until}},
	}
}

func prefix(p *Policy) { p.Prefix = true }

func until(at int64) func(*Policy) { return func(p *Policy) { p.Until = at * ms } }

// threeAt returns the records of three parties that hold permits from some time on.
func threeAt(at int64) []Record {
	return slices.Concat(hold("a", "z/0", at-10, at, at+500, 1, three), hold("b", "z/0", at-10, at, at+500, 2, three), hold("c", "z/0", at, at+100, at+500, 3, three))
}

// inVain returns the records of a request for a permit that waits for four seconds, while two parties hold one of three, and is refused.
func inVain(at int64, heard int64) []Record {
	records := []Record{{What: Asked, At: at * ms, LockID: "d", Resource: "z/0", Shared: true, Limit: 3, Result: queued}}
	for look := at + 100; look < at+4000; look += 500 {
		records = append(records, Record{What: Queue, Began: look * ms, At: (look + 10) * ms, Resource: "z/0", LockIDs: []string{"d"}, Heard: []int64{(look + heard) * ms}, Holders: 2})
	}
	return append(records, Record{What: Not, At: (at + 4100) * ms, LockID: "d", Result: refused})
}

func slot(n int) func(*Record) { return func(r *Record) { r.Slot = n } }

func use(at int64, op, lockID string, base, version int64) Record {
	return Record{What: Access, At: at * ms, Resource: "x/0", LockID: lockID, Error: op, Result: done, Base: base, Version: version}
}

// change returns the change of a register by a step of a saga's attempt, or by its compensation.
func change(at int64, attempt string, step int, undo bool) Record {
	return Record{What: Access, At: at * ms, Resource: fmt.Sprintf("x/%d", step), LockID: attempt, Error: "apply", Result: done,
		Key: fmt.Sprintf("%s/%d", attempt, step), Undo: undo}
}

// fault returns the records of a fault that acted.
func fault(number int, f Fault, from, to int64) []Record {
	return []Record{
		{What: Began, At: from * ms, Number: number, Fault: &f}, {What: Acted, At: to * ms, Number: number, Fault: &f},
		{What: Ended, At: to * ms, Number: number, Fault: &f},
	}
}

func operation(what, lockID string, from, to int64, result string, fence int64) Record {
	return Record{What: what, Began: from * ms, At: to * ms, LockID: lockID, Resource: "h/0/0", Result: result, Fence: fence}
}

// overtaking returns the records of c, which gets a lock before b, which waits and is heard of until some time.
func overtaking(heard int64) []Record {
	return slices.Concat(hold("a", "x/0", 0, 10, 130, 1), hold("b", "x/0", 100, 201, 300, 3, slot(2)), hold("c", "x/0", 125, 131, 200, 2),
		[]Record{{What: Queue, Began: 110 * ms, At: 120 * ms, Resource: "x/0", LockIDs: []string{"b"}, Heard: []int64{heard * ms}}})
}

func TestCheck_GoodHistories_HaveNoViolations(t *testing.T) {
	t.Parallel()
	waited := Record{What: Queue, Began: 110 * ms, At: 120 * ms, Resource: "x/0", LockIDs: []string{"b"}, Heard: []int64{1000 * ms}}
	for name, records := range map[string][]Record{
		"one after the other":                       slices.Concat(hold("a", "x/0", 0, 10, 100, 1), hold("b", "x/0", 5, 101, 200, 2)),
		"shared at once":                            slices.Concat(hold("a", "x/0", 0, 10, 100, 1, shared), hold("b", "x/0", 5, 50, 200, 2, shared)),
		"an answer that came after the lease's end": slices.Concat(hold("a", "x/0", 1, 50, 50, 1)[:2], hold("b", "x/0", 5, 20, 100, 2)),
		"permit after permit":                       slices.Concat(hold("a", "z/0", 0, 10, 100, 1, permit), hold("b", "z/0", 5, 101, 200, 2, permit)),
		"under a policy that is raised":             slices.Concat(policy("1", "z/0", 1, 0, 10), policy("2", "z/0", 3, 20_000, 20_010), threeAt(20_005)),
		"until a lower limit is in force":           slices.Concat(policy("1", "z/0", 2, 1000, 1010), threeAt(11_000)),
		"after a policy has ended":                  slices.Concat(policy("1", "z/0", 1, 0, 10, until(29_000)), threeAt(30_000)),
		"the name before the prefix":                slices.Concat(policy("1", "z/0", 3, 0, 10), policy("2", "z/", 1, 20, 30, prefix), threeAt(30_000)),
		"a policy that was removed":                 slices.Concat(policy("1", "z/0", 1, 0, 10), policy("2", "z/0", 0, 10_000, 10_010), threeAt(30_000)),
		"an unknown outcome":                        {{What: Change, Key: "1", Began: 0, At: 10 * ms, Result: unknown, Policy: &Policy{Name: "z/0", Limit: 1}}},
		"refused after a wait for room":             slices.Concat(policy("1", "z/0", 2, 0, 10), inVain(30_000, 1000)),
		"refused until a raise is in force":         slices.Concat(policy("1", "z/0", 2, 0, 10), policy("2", "z/0", 3, 29_000, 29_010), inVain(30_000, 1000)),
		"refused and not heard of":                  inVain(30_000, 5),
		"lost after a pause":                        slices.Concat(hold("a", "x/0", 0, 10, 100, 1), []Record{{What: Loss, At: 5000 * ms, LockID: "a", Resource: "x/0"}}),
		"lost by the own clock":                     slices.Concat(hold("a", "x/0", 0, 10, 100, 1), []Record{{What: Loss, At: 110 * ms, LockID: "a", Resource: "x/0", Error: ownClock}}),
		"attempts of a step":                        slices.Concat(hold("s#1@w.1", "x/0", 10, 10, 100, 1), hold("s#1@w.2", "x/0", 50, 50, 200, 2)),
		"in the queue's order": slices.Concat(hold("a", "x/0", 0, 10, 130, 1), hold("b", "x/0", 100, 131, 200, 2),
			hold("c", "x/0", 125, 201, 300, 3), []Record{waited}),
		"past a silent waiter": overtaking(130),
		"updates":              {use(1, "read", "a", 0, 0), use(2, "write", "a", 0, 0), use(3, "read", "b", 0, 1), use(4, "write", "b", 1, 1)},
		"sagas": {
			change(1, "s#1", 0, false), change(2, "s#1", 0, true), change(3, "s#2", 0, false), change(4, "s#2", 1, false),
			{What: Closed, At: 9 * ms, LockID: "s", Result: completed},
			change(5, "t#1", 0, true), change(6, "t#1", 0, false), {What: Closed, At: 9 * ms, LockID: "t", Result: "Failed", Undo: true}, // undone before it was applied
		},
		"a saga that lost a lock": slices.Concat(fault(0, Fault{Kind: Pause, Slot: clients}, 1, 8), []Record{{What: Closed, At: 9 * ms, LockID: "s", Result: "Failed", Error: wire.FailureLost}}),
		"no money lost":           {{What: Total, Base: 10, Version: 10}},
		"recovered":               slices.Concat(fault(0, Fault{Kind: Cut, Slot: 1}, 100, 200), []Record{{What: Probe, Slot: 1, Result: done, Began: 300 * ms, At: 900 * ms}}),
		"while commands are stuck": slices.Concat(fault(0, Fault{Kind: HalfOpen, Slot: 1, Silent: true}, 100, 200), fault(1, Fault{Kind: Cut, Slot: 1}, 250, 300),
			[]Record{{What: Probe, Slot: 1, Result: done, Began: 300 * ms, At: 13_000 * ms}}),
		"a fault of another connection": slices.Concat(fault(0, Fault{Kind: Cut, Slot: 6, Temporal: true}, 100, 200), []Record{{What: Over, At: 60_000 * ms}}),
		"linearizable": {
			operation(Try, "a", 0, 1, granted, 5), operation(Try, "b", 2, 3, refused, 0), operation(Renew, "a", 4, 5, granted, 5),
			operation(Release, "a", 6, 7, granted, 0), operation(Try, "c", 8, 9, granted, 6),
		},
		"taken without an answer": {operation(Try, "a", 0, 1, unknown, 0), operation(Try, "b", 2, 3, refused, 0), operation(Try, "c", 4, 5, granted, 2)},
		"expired":                 {operation(Try, "a", 0, 1, granted, 5), operation(Try, "b", 3000, 3001, granted, 6), operation(Renew, "a", 3002, 3003, lost, 5)},
		"killed":                  {operation(Try, "a", 0, 0, "", 0), operation(Try, "b", 2, 3, refused, 0)},
	} {
		require.Empty(t, read(sorted(records...)).Check(), name)
	}
}

// Each history breaks one guarantee, which its check must find.
func TestCheck_BadHistories_ShowTheirViolation(t *testing.T) {
	t.Parallel()
	jumped := overtaking(1000)
	for _, c := range []struct {
		check, name string
		records     []Record
	}{
		{"trust", "two exclusive holders", slices.Concat(hold("a", "x/0", 0, 10, 100, 1), hold("b", "x/0", 5, 50, 200, 2))},
		{"trust", "shared beside exclusive", slices.Concat(hold("a", "x/0", 0, 10, 100, 1), hold("b", "x/0", 5, 50, 200, 2, shared))},
		{"trust", "a client beside a saga", slices.Concat(hold("s#1@w.1", "x/0", 10, 10, 100, 1), hold("b", "x/0", 5, 50, 200, 2))},
		{"limits", "two with one permit", slices.Concat(hold("a", "z/0", 0, 10, 100, 1, permit), hold("b", "z/0", 5, 50, 200, 2, permit))},
		{"limits", "three under a limit of two", slices.Concat(policy("1", "z/0", 2, 1000, 1010), threeAt(21_100))},
		{"limits", "three under a prefix", slices.Concat(policy("1", "z/", 2, 1000, 1010, prefix), threeAt(21_100))},
		{"limits", "three before a policy ends", slices.Concat(policy("1", "z/0", 2, 1000, 1010, until(40_000)), threeAt(21_100))},
		{"limits", "three after a removal of another policy", slices.Concat(policy("1", "z/", 2, 0, 10, prefix), policy("2", "z/0", 6, 20, 30), policy("3", "z/0", 0, 1000, 1010), threeAt(21_100))},
		{"waiters", "a permit that nobody gets", inVain(30_000, 1000)},
		{"waiters", "a raise that nobody follows", slices.Concat(policy("1", "z/0", 2, 0, 10), policy("2", "z/0", 3, 19_000, 19_010), inVain(30_000, 1000))},
		{"losses", "a trusted lease that is lost", slices.Concat(hold("a", "x/0", 0, 10, 100, 1), []Record{{What: Loss, At: 110 * ms, LockID: "a", Resource: "x/0"}})},
		{"audit", "a change that is not recorded", policy("1", "z/0", 2, 0, 10)[:1]},
		{"audit", "a change that nobody made", policy("1", "z/0", 2, 0, 10)[1:]},
		{"audit", "another change than was made", slices.Concat(policy("1", "z/0", 2, 0, 10)[:1], policy("1", "z/0", 3, 0, 10)[1:])},
		{"fences", "a smaller fence later", slices.Concat(hold("a", "x/0", 0, 10, 100, 2), hold("b", "x/0", 101, 102, 200, 1))},
		{"fences", "a smaller fence of a step", slices.Concat(hold("a", "x/0", 0, 10, 100, 2), hold("s#1@w.1", "x/0", 101, 101, 200, 1))},
		{"fences", "a fence twice", slices.Concat(hold("a", "x/0", 0, 10, 100, 2), hold("b", "x/0", 5, 102, 200, 2))},
		{"order", "a later request first", jumped},
		{"lost updates", "a write on an old version", []Record{use(1, "read", "a", 0, 0), use(2, "read", "b", 0, 0), use(3, "write", "b", 0, 0), use(4, "write", "a", 0, 1)}},
		{"isolation", "a use in between", []Record{use(1, "apply", "a", 0, 0), use(2, "apply", "b", 0, 1), use(3, "apply", "a", 0, 2)}},
		{"order", "a later request first, and the earlier one never", slices.Concat(jumped[:3], jumped[6:], []Record{
			{What: Asked, At: 100 * ms, LockID: "b", Resource: "x/0", Slot: 2},
			{What: Queue, Began: 140 * ms, At: 150 * ms, Resource: "x/0", LockIDs: []string{"b"}, Heard: []int64{0}},
		})},
		{"sagas", "a saga that does not end", []Record{{What: Open, LockID: "s"}}},
		{"sagas", "a step that is not undone", []Record{change(1, "s#1", 0, false), {What: Closed, At: 9 * ms, LockID: "s", Result: "Failed", Undo: true}}},
		{"sagas", "the first step is undone first", []Record{
			change(1, "s#1", 0, false), change(2, "s#1", 1, false), change(3, "s#1", 0, true), change(4, "s#1", 1, true),
			{What: Closed, At: 9 * ms, LockID: "s", Result: "Failed", Undo: true},
		}},
		{"sagas", "a failure without a reason", []Record{{What: Closed, LockID: "s", Result: "Failed", Error: wire.FailureLost}}},
		{"sagas", "a success that should fail", []Record{change(1, "s#1", 0, false), change(2, "s#1", 1, false), {What: Closed, At: 9 * ms, LockID: "s", Result: completed, Undo: true}}},
		{"sagas", "a success with half of the steps", []Record{change(1, "s#1", 0, false), {What: Closed, At: 9 * ms, LockID: "s", Result: completed}}},
		{"crashes", "a process that ends", []Record{{What: Crashed, Process: "s6-7", Error: "exit status 2"}}},
		{"sagas", "money from nowhere", []Record{{What: Total, Base: 10, Version: 11}}},
		{"left locks", "a lock that is left", []Record{{What: Remains, Error: "a holds x/0"}}},
		{"recovery", "no success in time", slices.Concat(fault(0, Fault{Kind: Cut, Slot: 1}, 100, 200), []Record{{What: Probe, Slot: 1, Result: done, Began: 300 * ms, At: 4000 * ms}})},
		{"recovery", "no success after stuck commands", slices.Concat(fault(0, Fault{Kind: HalfOpen, Slot: 1, Silent: true}, 100, 200),
			[]Record{{What: Probe, Slot: 1, Result: done, Began: 300 * ms, At: 13_300 * ms}})},
		{"recovery", "no success at all", slices.Concat(fault(0, Fault{Kind: DatabaseRestart, Slot: -1}, 100, 200), []Record{{What: Over, At: 60_000 * ms}})},
		{"recovery", "no success that began after the fault", slices.Concat(fault(0, Fault{Kind: Pause, Slot: 1}, 100, 200),
			[]Record{{What: Probe, Slot: 1, Result: done, Began: 90 * ms, At: 210 * ms}, {What: Over, At: 60_000 * ms}})},
		{"recovery", "a process that stops to work without a fault", []Record{
			{What: Probe, Slot: 1, Result: done, At: 100 * ms}, {What: Over, At: 60_000 * ms},
		}},
		{"recovery", "a process that stops to work after a fault that did not act", slices.Concat(fault(0, Fault{Kind: Cut, Slot: 1}, 100, 200)[:1],
			[]Record{{What: Ended, At: 200 * ms}, {What: Over, At: 60_000 * ms}})},
		{"recovery", "a worker", slices.Concat(fault(0, Fault{Kind: Cut, Slot: clients}, 100, 200), []Record{{What: Over, At: 60_000 * ms}})},
		{"linearizability", "a lock that outlives its TTL", []Record{operation(Try, "a", 0, 1, granted, 5), operation(Try, "b", 4100, 4101, refused, 0)}},
		{"linearizability", "a lock without an answer that outlives its TTL", []Record{operation(Try, "a", 0, 1, unknown, 0), operation(Try, "b", 4100, 4101, refused, 0)}},
		{"linearizability", "a killed client's lock that outlives its TTL", []Record{
			operation(Try, "a", 0, 0, "", 0), {What: Dead, At: 10 * ms}, operation(Try, "b", 4100, 4101, refused, 0),
		}},
		{"linearizability", "granted twice", []Record{operation(Try, "a", 0, 1, granted, 5), operation(Try, "b", 2, 3, granted, 6)}},
		{"linearizability", "refused by nobody", []Record{operation(Try, "b", 2, 3, refused, 0)}},
		{"linearizability", "lost too early", []Record{operation(Try, "a", 0, 1, granted, 5), operation(Renew, "a", 500, 501, lost, 5)}},
		{"linearizability", "refused after the release", []Record{
			operation(Try, "a", 0, 1, granted, 5), operation(Release, "a", 2, 3, granted, 0), operation(Try, "b", 4, 5, refused, 0),
		}},
	} {
		var found []string
		for _, v := range read(sorted(c.records...)).Check() {
			found = append(found, v.Check)
		}
		require.Contains(t, found, c.check, c.name)
	}
	excused := append(jumped, fault(0, Fault{Kind: Pause, Slot: 2}, 150, 180)...)
	require.Empty(t, read(sorted(excused...)).Check(), "the queue may pass over a waiter that is stopped")
}

func TestNewPlan_AnySeed_HasThreeKindsAndIsPure(t *testing.T) {
	t.Parallel()
	for first := uint64(1); first < 100; first += 8 {
		all := map[Kind]bool{}
		for seed := first; seed < first+8; seed++ {
			plan := NewPlan(seed, 2*time.Minute)
			require.Equal(t, plan, NewPlan(seed, 2*time.Minute))
			own := map[Kind]bool{}
			for i := range plan {
				own[plan[i].Kind], all[plan[i].Kind] = true, true
				require.LessOrEqual(t, plan[i].At, 2*time.Minute)
			}
			require.GreaterOrEqual(t, len(own), 3, "seed %d", seed)
		}
		require.Len(t, all, len(kinds), "seeds %d to %d", first, first+7)
	}
}

func TestControls_EachKindAndCheck_HasOne(t *testing.T) {
	t.Parallel()
	var have []Kind
	alone := map[string]bool{}
	for _, c := range controls() {
		have = append(have, c.kind)
		require.NotEmpty(t, c.shows)
		for _, shown := range c.shows {
			require.True(t, slices.ContainsFunc(checks, func(check struct {
				name  string
				check func(*story) []string
			}) bool {
				return check.name == shown
			}), shown)
		}
		for _, f := range c.setup.Plan {
			require.Equal(t, c.kind, f.Kind)
			require.Less(t, f.At, c.setup.Long)
		}
		alone[c.shows[0]] = alone[c.shows[0]] || len(c.shows) == 1
	}
	require.Equal(t, kinds, have[:len(kinds)])
	for _, check := range checks {
		require.True(t, alone[check.name], "a control that only the check %q can show", check.name)
	}
}

func TestSummary_Line_CountsOnlyWhatActed(t *testing.T) {
	t.Parallel()
	records := fault(0, Fault{Kind: Cut, Slot: 1}, 100, 200)
	records = append(records, Record{What: Began, At: 300 * ms, Number: 1, Fault: &Fault{Kind: Slow, Slot: 2}},
		Record{What: Ended, At: 400 * ms, Number: 1}, Record{What: Probe, Slot: 1, Result: done, Began: 200 * ms, At: 700 * ms})
	line := summarize(read(records), nil).line(7, settings{long: time.Minute})
	require.Equal(t, "seed 7: 60 s, 6 clients, 2 workers; faults: cut 1 (1 had nothing to act on); 1 operations, 0 sagas, 0 histories (0 not decided), 0 policies;"+
		" 14 of 14 checks held; 1 of 2 recoveries seen, the longest 0.5 s (bound 3 s), with stuck commands 0.0 s (bound 13 s)", line)
	table := summarize(read(records), []Violation{{Check: "trust"}}).line(7, settings{long: time.Minute, markdown: true})
	require.Equal(t, "| 7 | cut 1 | 1 | 0 | 0 of 0 | 13 of 14 | 1 of 2 | 0.5 s | 0.0 s |", table)
	require.NotContains(t, line, "slow")
}
