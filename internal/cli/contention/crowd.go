package contention

import (
	"cmp"
	"slices"
	"sort"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// crowd is those holds of a lane that may stand beside one another, as the shared ones do, in the order of their starts. Behind a long queue many of them
// were in the way of each who waited: such a wait is summed up with the others like it, so that no pair of a wait and a hold has to be looked at.
type crowd struct {
	holds []int32
	// times are when each was in the way, and ended are places in the order of their ends.
	times []interval
	ended []int32
	// highest is, of each place, the greatest fence up to it.
	highest []int64
	// ends finds those that stood at a time, latest those that stood longest after it, and longest those that stood longest in all.
	ends            tree
	latest, longest places
	byOwner, byID   parties
	// covered is when one of them was in the way at least, and claimed how much of that it had been granted to a waiter; inRow and claimedInRow
	// are how much of these one of the row was in the way too.
	covered, claimed, inRow, claimedInRow *strip
	// waits are those that count and are summed up.
	waits []interval
}

const (
	// fewInCrowd is how many are looked at one by one in any case.
	fewInCrowd = 8
	// maxClipped bounds how many are looked at beside those that are kept, since they stood longer than the wait lasted.
	maxClipped = 64
)

// makeCrowd takes the shared holds. It returns the others, in their order. Who has one of the row too is left to the others: what an owner has to
// answer for counts once if its holds overlap.
func (a *analysis) makeCrowd(holds []int32, r *row, claims *strip) (c *crowd, others []int32) {
	c = &crowd{}
	for _, i := range holds {
		h := &a.holds[i]
		if h.Mode != lockcore.ModeShared.String() || h.reach <= h.from || of(r.byOwner, h.owner, section{0, len(r.holds)}).count() > 0 {
			others = append(others, i)
			continue
		}
		c.holds = append(c.holds, i)
	}
	n := len(c.holds)
	c.times, c.ended, c.highest = make([]interval, n), make([]int32, n), make([]int64, n)
	var owners, ids []owned
	var highest int64
	for i, j := range c.holds {
		h := &a.holds[j]
		highest = max(highest, h.key.fence)
		c.times[i], c.ended[i], c.highest[i] = h.inTheWay(), int32(i), highest
		owners, ids = append(owners, owned{h.owner, int32(i)}), append(ids, owned{h.key.lockID, int32(i)})
	}
	slices.SortFunc(c.ended, func(x, y int32) int { return cmp.Or(cmp.Compare(c.times[x].to, c.times[y].to), cmp.Compare(x, y)) })
	c.ends = newTree(n, func(i int) int64 { return c.times[i].to })
	c.latest = newPlaces(n, func(i int) int64 { return c.times[i].to })
	c.longest = newPlaces(n, func(i int) int64 { return c.times[i].length() })
	c.byOwner, c.byID = newParties(owners, c.times), newParties(ids, c.times)
	row := newStrip(r.times)
	c.covered = newStrip(c.times)
	c.claimed, c.inRow = c.covered.with(claims), c.covered.with(row)
	c.claimedInRow = c.claimed.with(row)
	return c, others
}

// parties are places in the order of whose they are, and, of each, the latest end of those of the same up to it.
type parties struct {
	places []owned
	until  []int64
}

func newParties(places []owned, times []interval) parties {
	p := parties{places, make([]int64, len(places))}
	slices.SortFunc(places, compareOwned)
	for i, o := range places {
		p.until[i] = times[o.place].to
		if i > 0 && places[i-1].by == o.by {
			p.until[i] = max(p.until[i], p.until[i-1])
		}
	}
	return p
}

// stood reports whether one of a party's before a place stood beyond a time.
func (p *parties) stood(by sym, before int, after int64) bool {
	own := of(p.places, by, section{0, before})
	return own.count() > 0 && p.until[own.hi-1] > after
}

// inCrowd adds those of the crowd that were in a wait's way. Where there are many, and all that touch it were, they are summed: count says how many they
// are, and only the longest, and the last to end, are added. Else they are looked at one by one, and more says how many of them were not.
func (a *analysis) inCrowd(l *lane, w *wait, found []candidate, keep int) (all []candidate, count, more int) {
	c := l.crowd
	begun := sort.Search(len(c.times), func(i int) bool { return c.times[i].from >= w.to })
	gone := sort.Search(len(c.ended), func(i int) bool { return c.times[c.ended[i]].to > w.from })
	closing := sort.Search(len(c.ended), func(i int) bool { return c.times[c.ended[i]].to > w.to })
	if begun-gone < fewInCrowd || closing == gone || !a.allInTheWay(c, w, begun) || !c.mark(a, w, found, begun) {
		all, more = a.inferred(l, w, found, c.holds, &c.ends)
		return all, 0, more
	}
	known := len(found)
	add := func(place int32) {
		hold := c.holds[place]
		if !slices.ContainsFunc(found[:known], func(f candidate) bool { return f.hold == hold }) {
			found = append(found, candidate{interval: c.times[place].with(w.interval), hold: hold, summed: true})
		}
	}
	last := c.ended[closing-1]
	add(last)
	for i := range found[:known] {
		if found[i].named != nil {
			keep-- // it goes before those that are not named
		}
	}
	if keep > 0 {
		c.longestIn(w, begun, keep, func(place int32) {
			if place != last {
				add(place)
			}
		})
	}
	if a.chosenWait(w) {
		c.waits = append(c.waits, w.interval)
	}
	return found, begun - gone, 0
}

// longestIn gives those that were longest in a wait's way, of those before a place: of each kind as many as are kept, or a few more.
func (c *crowd) longestIn(w *wait, begun, keep int, add func(place int32)) {
	stood := sort.Search(begun, func(i int) bool { return c.times[i].from >= w.from })
	left := keep
	c.latest.most(section{0, stood}, func(place int) bool {
		if c.times[place].to <= w.from {
			return false
		}
		add(int32(place)) //nolint:gosec // as many as holds
		left--
		return left > 0
	})
	left, clipped := keep, 0
	c.longest.most(section{stood, begun}, func(place int) bool {
		add(int32(place))                                     //nolint:gosec // as many as holds
		if c.times[place].to > w.to && clipped < maxClipped { // it is longer than it was in the way
			clipped++
			return true
		}
		left--
		return left > 0
	})
}

// allInTheWay reports whether all of the crowd that touch a wait were in its way: those before a place had begun when it ended.
func (a *analysis) allInTheWay(c *crowd, w *wait, begun int) bool {
	fence := cmp.Or(w.record.fence, w.record.hold)
	switch {
	case w.length() == 0 || c.byID.stood(w.record.texts[textLockID], begun, w.from):
		return false
	case w.Mode == lockcore.ModeShared.String() && !w.record.limited:
		return false
	}
	return !a.letIn(w.record) || fence == 0 || c.highest[begun-1] < fence
}

// mark marks those that were found of the crowd as summed. It marks nothing and says no if one of them does not touch the wait, or if
// another one is of an owner who has one of the crowd too.
func (c *crowd) mark(a *analysis, w *wait, found []candidate, begun int) bool {
	for _, really := range []bool{false, true} {
		for i := range found {
			f := &found[i]
			if f.hold < 0 || f.summed {
				continue
			}
			if _, ok := slices.BinarySearch(c.holds, f.hold); !ok {
				if c.byOwner.stood(a.holds[f.hold].owner, begun, w.from) {
					return false
				}
				continue
			}
			if f.length() == 0 {
				return false
			}
			f.summed = really
		}
	}
	return true
}

// cover is for how long, within a time, one of the crowd was in the way, and how much of that had been granted to a waiter; without when one
// of the row was, which is beside it.
func (c *crowd) cover(at, beside interval) (length, claimed int64) {
	both := at.with(beside)
	return c.covered.cover(at) - c.inRow.cover(both), c.claimed.cover(at) - c.claimedInRow.cover(both)
}

// blameCrowd adds the waits that are summed to what the crowd's holds and their owners have to answer for.
func (a *analysis) blameCrowd(c *crowd) {
	if len(c.waits) == 0 {
		return
	}
	queue := newQueueing(c.waits)
	for i, j := range c.holds {
		a.holds[j].blocked += queue.during(c.times[i])
	}
	for _, s := range c.stays() {
		a.ledger.sum(s.owner, queue.during(s.interval), queue.met(s))
	}
}

// stay is when an owner had at least one of a crowd, and before is when its last one had ended, 0 for the first.
type stay struct {
	interval
	owner  sym
	before int64
}

// stays are in the order of their starts.
func (c *crowd) stays() []stay {
	var all []stay
	for i, o := range c.byOwner.places {
		at := c.times[o.place]
		next := stay{interval: at, owner: o.by}
		if i > 0 && c.byOwner.places[i-1].by == o.by {
			last := &all[len(all)-1]
			if at.from <= last.to {
				last.to = max(last.to, at.to)
				continue
			}
			next.before = last.to
		}
		all = append(all, next)
	}
	slices.SortFunc(all, func(x, y stay) int { return cmp.Or(cmp.Compare(x.from, y.from), cmp.Compare(x.owner, y.owner)) })
	return all
}

// queueing is who waited when.
type queueing struct {
	starts, ends waiting
	// byEnd are the waits in the order of their ends; the first of them, left many, are in over.
	byEnd []interval
	left  int
	over  counts // by the place of their starts
}

// waiting is times in their order, and the sum of those before each.
type waiting struct{ times, sums []int64 }

func newWaiting(times []int64) waiting {
	slices.Sort(times)
	w := waiting{times, make([]int64, len(times)+1)}
	for i, t := range times {
		w.sums[i+1] = w.sums[i] + t // what does not fit is made up for when they are subtracted
	}
	return w
}

// before is how many are before a time.
func (w *waiting) before(at int64) int {
	i, _ := slices.BinarySearch(w.times, at)
	return i
}

// since is, of all before a time, for how long in sum.
func (w *waiting) since(at int64) int64 {
	n := w.before(at)
	return int64(n)*at - w.sums[n]
}

func newQueueing(waits []interval) *queueing {
	starts, ends := make([]int64, len(waits)), make([]int64, len(waits))
	for i, w := range waits {
		starts[i], ends[i] = w.from, w.to
	}
	q := &queueing{starts: newWaiting(starts), ends: newWaiting(ends), byEnd: slices.Clone(waits), over: newCounts(len(waits))}
	slices.SortFunc(q.byEnd, func(x, y interval) int { return cmp.Compare(x.to, y.to) })
	return q
}

// during is for how long, in sum, they waited within a time.
func (q *queueing) during(at interval) int64 {
	until := func(t int64) int64 { return q.starts.since(t) - q.ends.since(t) }
	return until(at.to) - until(at.from)
}

// met is how many waits met a stay, and not the one before, of the same owner. Stays come in the order of their starts.
func (q *queueing) met(s stay) int {
	for ; q.left < len(q.byEnd) && q.byEnd[q.left].to <= s.from; q.left++ {
		q.over.add(q.starts.before(q.byEnd[q.left].from), 1)
	}
	earlier := q.starts.before(s.before)
	return q.starts.before(s.to) - q.left - (earlier - q.over.before(earlier))
}
