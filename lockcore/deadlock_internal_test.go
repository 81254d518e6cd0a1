package lockcore

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

var situationAt = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// situation generates documents as they are when some owners hold and wait. The owners a, b and c are plain programs,
// each with two lock IDs; v and w are workflows, each with a saga, a child with the same owner, and two steps with
// lock IDs of their own.
func situation(t *rapid.T, limits []int64) []rules.Document {
	type requester struct {
		lockID, owner, run, part, within string
		kept                             bool
	}
	var all []requester
	for _, o := range []string{"a", "b", "c"} {
		all = append(all, requester{lockID: o, owner: o, part: "p"}, requester{lockID: o + "2", owner: o, part: "p"})
	}
	for _, o := range []string{"v", "w"} {
		all = append(all,
			requester{o, o, "run", "s1", "", true}, requester{o, o, "run", "s2", "", true}, requester{o + "/child", o, "run", "s1", "", true},
			requester{o + "/s1", o, "run", "s1", o, false}, requester{o + "/s2", o, "run", "s2", o, false})
	}
	among := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }
	mode := func() (string, int64) {
		if among(2) == 0 {
			return rules.Exclusive, 1
		}
		return rules.Shared, limits[among(len(limits))]
	}
	// Few of them take part in one situation, so that many wait for each other.
	few := make([]requester, 3+among(4))
	for i := range few {
		few[i] = all[among(len(all))]
	}
	docs := make([]rules.Document, 2+among(3))
	for i := range docs {
		d := &docs[i]
		d.ID, d.At = fmt.Sprint("r", i), situationAt
		for range 1 + among(3) {
			r := few[among(len(few))]
			e := rules.Entry{
				ID: fmt.Sprint(len(d.Entries)), Caller: rules.Caller{LockID: r.lockID, Run: r.run, Part: r.part, Order: 1}, Owner: r.owner, CreatedAt: &situationAt,
				ExpiresAt: situationAt.Add(time.Minute), QueuedUntil: &situationAt, State: rules.StateRunning,
			}
			e.Mode, e.Limit = mode()
			if !d.Admits(rules.Party{LockID: e.LockID, Mode: e.Mode, Limit: e.Limit, Within: r.within}) {
				continue
			}
			switch n := among(30); {
			case n == 27:
				e.State = rules.StateDraining
			case n == 28:
				e.State = rules.StateClaimed
			case n == 29:
				e.ExpiresAt = situationAt.Add(-time.Second)
			case n%2 == 0 && r.kept:
				e.State, e.Part = rules.StateKept, ""
			}
			d.Entries = append(d.Entries, e)
		}
		for range 1 + among(4) {
			r := few[among(len(few))]
			if slices.ContainsFunc(d.Waiters, func(w rules.Waiter) bool { return w.LockID == r.lockID && w.Part == r.part }) {
				continue
			}
			w := rules.Waiter{
				Caller: rules.Caller{LockID: r.lockID, Run: r.run, Part: r.part, Order: 2, Within: r.within}, Owner: r.owner, Since: situationAt.Add(time.Duration(among(9))),
				ExpiresAt: situationAt.Add(time.Hour), OverdueAt: situationAt.Add(time.Hour), NeverVictim: among(6) == 0,
			}
			w.Mode, w.Limit = mode()
			switch among(30) {
			case 28:
				w.OverdueAt = situationAt
			case 29:
				w.Verdict = "deadlock: earlier"
			}
			d.Waiters = append(d.Waiters, w)
		}
	}
	return docs
}

// modelWait is a wait of the model: the simplest reading of what a wait waits for, without a thought for its cost.
type modelWait struct {
	*rules.Waiter
	d     *rules.Document
	owner string
}

type model []modelWait

func modelOf(docs []rules.Document) (m model) {
	for i := range docs {
		d := &docs[i]
		for j := range d.Waiters {
			if w := &d.Waiters[j]; w.Waits(d.At) && rules.Next(d, w).Answer != rules.NextGo {
				m = append(m, modelWait{w, d, w.Owner})
			}
		}
	}
	return m
}

// covered reports whether the lock ID has a live hold that suffices for a wait.
func (w *modelWait) covered() bool {
	return slices.ContainsFunc(w.d.Entries, func(e rules.Entry) bool {
		return e.BelongsTo(w.LockID) && e.Holds() && e.Alive(w.d.At) && rules.Covers(e.Mode, w.Mode)
	})
}

// request returns the request for whose grant a wait waits: its own, or the first one ahead of the same lock ID that
// covers it.
func (w *modelWait) request() *rules.Waiter {
	for i := range w.d.Waiters {
		a := &w.d.Waiters[i]
		if a == w.Waiter {
			break
		}
		if w.d.Precedes(a) && a.LockID == w.LockID && rules.Covers(a.Mode, w.Mode) && !w.covered() {
			return a
		}
	}
	return w.Waiter
}

// skips reports whether a wait is granted past the queue.
func (w *modelWait) skips() bool {
	return w.d.HeldByEnclosing(w.Party()) || slices.ContainsFunc(w.d.Entries, func(e rules.Entry) bool { return e.LockID == w.LockID && e.Holds() })
}

// blockers returns the entries that must end before a wait does.
func (w *modelWait) blockers() (out []*rules.Entry) {
	party, joins := w.request().Party(), w.covered()
	if party.Limit == 1 && !joins {
		party.Mode = rules.Exclusive
	}
	for i := range w.d.Entries {
		e := &w.d.Entries[i]
		if e.Blocks(party, w.d.At) && e.Holds() && (!joins || e.State == rules.StateRunning) {
			out = append(out, e)
		}
	}
	return out
}

// needs reports whether an entry ends only after a wait.
func needs(e *rules.Entry, of *modelWait) bool {
	switch {
	case !e.Holds() || !e.Alive(situationAt) || e.Owner != of.owner:
		return false
	case e.Run == "" || e.State == rules.StateKept:
		return true
	}
	return e.LockID == of.LockID && e.Part == of.Part
}

// leads reports whether a wait waits for another one.
func (m model) leads(from, to *modelWait) bool {
	for _, e := range from.blockers() {
		own := e.Owner == from.owner && (e.Run == "" || e.State == rules.StateKept)
		if needs(e, to) && !own {
			return true
		}
	}
	if from.d != to.d || from.skips() || !from.d.Precedes(to.Waiter) || to.LockID == from.LockID {
		return false
	}
	for i := range from.d.Waiters {
		switch &from.d.Waiters[i] {
		case from.request():
			return false
		case to.Waiter:
			shared := from.request().Mode == rules.Shared && from.request().Limit != 1 && to.Mode == rules.Shared && to.Limit != 1
			return !shared
		}
	}
	return false
}

// alone reports whether a wait waits for its own owner.
func (w *modelWait) alone() bool {
	return slices.ContainsFunc(w.blockers(), func(e *rules.Entry) bool { return e.Owner == w.owner && e.Run == "" && w.Run == "" })
}

// hasCycle reports whether some waits of some owners wait for each other.
func (m model) hasCycle(among func(*modelWait) bool) bool {
	n := len(m)
	reaches := make([][]bool, n)
	for i := range m {
		if among(&m[i]) && m[i].alone() {
			return true
		}
		reaches[i] = make([]bool, n)
		for j := range m {
			reaches[i][j] = among(&m[i]) && among(&m[j]) && m.leads(&m[i], &m[j])
		}
	}
	for k := range n {
		for i := range n {
			for j := range n {
				reaches[i][j] = reaches[i][j] || (reaches[i][k] && reaches[k][j])
			}
		}
	}
	for i := range n {
		for j := range n {
			if reaches[i][j] && reaches[j][i] && m[i].owner != m[j].owner {
				return true
			}
		}
	}
	return false
}

func (m model) find(w Wait) *modelWait {
	for i := range m {
		if m[i].d.ID == w.Resource && m[i].LockID == w.LockID && m[i].Part == w.Part {
			return &m[i]
		}
	}
	return nil
}

// requireMinimal checks that a deadlock exists, and that no part of its owners are in one.
func requireMinimal(t require.TestingT, m model, d Deadlock) {
	owners := map[string]bool{}
	for i, w := range d.Waits {
		from, to := m.find(w), m.find(d.Waits[(i+1)%len(d.Waits)])
		require.NotNil(t, from, "%s: no such wait on %s", d, w.Resource)
		require.Equal(t, from.owner, w.Owner)
		if len(d.Waits) > 1 {
			require.True(t, m.leads(from, to), "%s: not for %s", d, to.LockID)
		} else {
			require.True(t, from.alone(), d.String())
		}
		owners[w.Owner] = true
	}
	for left := range owners {
		within := func(w *modelWait) bool { return owners[w.owner] && w.owner != left }
		require.False(t, m.hasCycle(within), "%s: there is a deadlock without %s", d, left)
	}
	for left := range d.Waits {
		rest := slices.Delete(slices.Clone(d.Waits), left, left+1)
		within := func(w *modelWait) bool {
			return slices.ContainsFunc(rest, func(r Wait) bool { return m.find(r) == w })
		}
		require.False(t, m.hasCycle(within), "%s: there is a deadlock without the wait %d", d, left)
	}
}

// withdrawn returns the documents after the victims of some deadlocks have left.
func withdrawn(docs []rules.Document, found []Deadlock) []rules.Document {
	docs = slices.Clone(docs)
	for i := range docs {
		docs[i].Waiters = slices.DeleteFunc(slices.Clone(docs[i].Waiters), func(w rules.Waiter) bool {
			return slices.ContainsFunc(found, func(d Deadlock) bool {
				v := d.Waits[d.Victim]
				return v.Resource == docs[i].ID && v.LockID == w.LockID && v.Part == w.Part
			})
		})
	}
	return docs
}

// checkOften checks a property in some thousand situations, since few have a deadlock of several shapes.
func checkOften(t *testing.T, property func(*rapid.T)) {
	for range 30 {
		rapid.Check(t, property)
	}
}

// Every deadlock that is found exists and is minimal, and after the victims have left there is none.
func TestDeadlocks_RandomSituations_AreMinimalAndEnd(t *testing.T) {
	t.Parallel()
	checkOften(t, func(t *rapid.T) {
		docs := situation(t, []int64{0, 1, 2})
		for round := 0; ; round++ {
			m := modelOf(docs)
			found := deadlocksIn(docs)
			victims := map[string]bool{}
			for _, d := range found {
				requireMinimal(t, m, d)
				victims[d.Waits[d.Victim].Owner] = true
				require.True(t, newWaitGraph(docs).shows(d), d.String())
			}
			require.Len(t, victims, len(found), "each deadlock has another victim")
			require.False(t, m.hasCycle(func(w *modelWait) bool { return !victims[w.owner] }), "a deadlock was not found")
			if len(found) == 0 {
				break
			}
			docs = withdrawn(docs, found)
		}
	})
}

// play lets everything happen that can: holds end that are not tied to a wait, and waiters that are admitted are granted. It returns the
// documents in which nothing happens any longer.
func play(docs []rules.Document) []rules.Document {
	for happens := true; happens; {
		happens = false
		m := modelOf(docs)
		for i := range docs {
			d := &docs[i]
			before := len(d.Entries)
			d.Entries = slices.DeleteFunc(slices.Clone(d.Entries), func(e rules.Entry) bool {
				return !slices.ContainsFunc(m, func(w modelWait) bool { return needs(&e, &w) })
			})
			happens = happens || len(d.Entries) < before
			head := slices.IndexFunc(d.Waiters, func(w rules.Waiter) bool { return d.Precedes(&w) })
			for j := range d.Waiters {
				w := d.Waiters[j]
				if !w.Waits(d.At) || (!d.Joins(w.Party()) && (!d.Admits(w.Party()) || (head >= 0 && j > head))) {
					continue
				}
				d.Waiters = slices.Delete(slices.Clone(d.Waiters), j, j+1)
				d.Entries = append(d.Entries, rules.Entry{
					Caller: rules.Caller{LockID: w.LockID, Run: w.Run, Part: w.Part}, Owner: w.Owner, Mode: w.Mode, Limit: w.Limit, State: rules.StateRunning,
					CreatedAt: &situationAt, ExpiresAt: situationAt.Add(time.Minute),
				})
				happens = true
				break
			}
		}
	}
	return docs
}

// Whenever nothing happens any longer although requests wait, a deadlock is found, until all have ended. Only what a
// workflow holds against itself is assumed to end.
func TestDeadlocks_NothingHappens_IsFound(t *testing.T) {
	t.Parallel()
	checkOften(t, func(t *rapid.T) {
		docs := situation(t, []int64{0, 1})
		for {
			docs = play(docs)
			m := modelOf(docs)
			found := deadlocksIn(docs)
			switch {
			case len(m) == 0:
				return
			case len(found) > 0:
				docs = withdrawn(docs, found)
			case !endsByItself(docs, m):
				t.Fatalf("nothing happens, and no deadlock is found:\n%s", describe(docs))
			}
		}
	})
}

// endsByItself ends an entry that blocks its own workflow.
func endsByItself(docs []rules.Document, m model) bool {
	for i := range m {
		w := &m[i]
		for _, e := range w.blockers() {
			if e.Owner == w.owner && e.Run != "" {
				w.d.Entries = slices.DeleteFunc(slices.Clone(w.d.Entries), func(o rules.Entry) bool { return reflect.DeepEqual(o, *e) })
				return true
			}
		}
	}
	return false
}

// Four times as many holders and waiters may cost about four times as much, not sixteen times: each holder of x, for
// which many wait, waits in the queue of y.
func TestDeadlocks_ManyHoldersAndWaiters_CostTheirSum(t *testing.T) {
	situation := func(n int) []rules.Document {
		x, y := manyShared(n), manyShared(n)
		for i := range n {
			y.Waiters[i].LockID = x.Entries[i].LockID
			y.Entries[i].LockID = fmt.Sprint("other", i)
		}
		y.ID = "y"
		return []rules.Document{*x, *y}
	}
	few, many := situation(250), situation(1000)
	small := allocated(func() { deadlocksIn(few) })
	large := allocated(func() { require.Empty(t, deadlocksIn(many)) })
	require.Less(t, large, 8*small)
}

func describe(docs []rules.Document) string {
	var b strings.Builder
	for i := range docs {
		for _, e := range docs[i].Entries {
			fmt.Fprintf(&b, "%s: %s of %s %s %s %d part %s\n", docs[i].ID, e.LockID, e.Owner, e.State, e.Mode, e.Limit, e.Part)
		}
		for _, w := range docs[i].Waiters {
			fmt.Fprintf(&b, "%s: %s of %s waits %s %d part %s\n", docs[i].ID, w.LockID, w.Owner, w.Mode, w.Limit, w.Part)
		}
	}
	return b.String()
}

// TestDeadlocks_Situations_NamesMinimalCycles has the situations that went wrong.
func TestDeadlocks_Situations_NamesMinimalCycles(t *testing.T) {
	t.Parallel()
	type who struct{ lockID, owner, run, part, mode string }
	for name, c := range map[string]struct {
		held, waiting map[string][]who
		want          []string
	}{
		"a waiter ahead of a deadlocked one is not refused": {
			map[string][]who{"x": {{lockID: "a"}}, "y": {{lockID: "b"}}, "z": {{lockID: "0"}}},
			map[string][]who{"x": {{lockID: "0"}, {lockID: "b"}}, "y": {{lockID: "a"}}},
			[]string{"a waits for b on y, b waits for a on x"},
		},
		"an owner that waits for itself under another lock ID": {
			map[string][]who{"x": {{lockID: "job/1", owner: "job"}}},
			map[string][]who{"x": {{lockID: "job/2", owner: "job"}}},
			[]string{"job waits for job on x"},
		},
		"two steps of one workflow that want one resource": {
			map[string][]who{"x": {{lockID: "w/1", owner: "w", run: "r", part: "1"}}},
			map[string][]who{"x": {{lockID: "w/2", owner: "w", run: "r", part: "2"}}},
			nil,
		},
		"a deadlock through two steps of one workflow": {
			map[string][]who{
				"x": {{lockID: "w/1", owner: "w", run: "r", part: "1"}}, "y": {{lockID: "w/2", owner: "w", run: "r", part: "2"}}, "z": {{lockID: "b"}},
			},
			map[string][]who{
				"y": {{lockID: "w/1", owner: "w", run: "r", part: "1"}}, "z": {{lockID: "w/2", owner: "w", run: "r", part: "2"}}, "x": {{lockID: "b"}},
			},
			[]string{"b waits for w on x, w waits for w on y, w waits for b on z"},
		},
		"a reader behind one that waits for its workflow's child": {
			map[string][]who{"x": {{lockID: "w/child", owner: "w", run: "r"}}},
			map[string][]who{"x": {{lockID: "b", mode: rules.Shared}, {lockID: "w", run: "r", part: "1", mode: rules.Shared}}},
			nil,
		},
		"a reader ahead of a reader": {
			map[string][]who{"x": {{lockID: "a"}}, "y": {{lockID: "c", mode: rules.Shared}}, "z": {{lockID: "b"}}},
			map[string][]who{"x": {{lockID: "b", mode: rules.Shared}, {lockID: "c", mode: rules.Shared}}, "z": {{lockID: "a"}}},
			[]string{"a waits for b on z, b waits for a on x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var docs []rules.Document
			for _, r := range slices.Sorted(maps.Keys(c.held)) {
				d := rules.Document{ID: r, At: situationAt}
				for _, w := range c.held[r] {
					state := rules.StateRunning
					if w.run != "" && w.part == "" {
						state = rules.StateKept
					}
					d.Entries = append(d.Entries, rules.Entry{
						Caller: rules.Caller{LockID: w.lockID, Run: w.run, Part: w.part}, Owner: w.owner, Mode: cmp.Or(w.mode, rules.Exclusive), State: state,
						CreatedAt: &situationAt, ExpiresAt: situationAt.Add(time.Minute),
					})
				}
				for i, w := range c.waiting[r] {
					d.Waiters = append(d.Waiters, rules.Waiter{
						Caller: rules.Caller{LockID: w.lockID, Run: w.run, Part: w.part}, Owner: w.owner, Mode: cmp.Or(w.mode, rules.Exclusive),
						Since: situationAt.Add(time.Duration(i)), ExpiresAt: situationAt.Add(time.Hour), OverdueAt: situationAt.Add(time.Hour),
					})
				}
				docs = append(docs, d)
			}
			var got []string
			for _, d := range deadlocksIn(docs) {
				got = append(got, d.String())
			}
			require.Equal(t, c.want, got)
		})
	}
}
