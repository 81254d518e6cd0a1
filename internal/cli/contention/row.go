package contention

import (
	"cmp"
	"slices"
	"sort"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// row is those holds of a lane that follow one another, each alone and with a greater fence than the one before. Behind a long queue nearly
// all do, and each was in the way of all who queued: a wait has a range of them, and its sums come from those up to each place, so that no
// pair of a wait and a hold has to be looked at.
type row struct {
	holds []int32
	// times are when each was in the way, and fences rise with them.
	times  []interval
	fences []int64
	// length and claimed are, of all before a place, for how long they were in the way, and how much of that had been granted to a waiter.
	length, claimed []int64
	longest         places
	// byOwner and byLockID are places in the order of these, and owned is, of all before one in byOwner, for how long they were in the way.
	byOwner, byLockID []owned
	owned             []int64
	// waits are the ranges of those waits that count.
	waits []section
}

// section is the places from lo up to, and without, hi.
type section struct{ lo, hi int }

func (s section) count() int { return max(s.hi-s.lo, 0) }

type owned struct {
	by    sym
	place int32
}

func compareOwned(x, y owned) int {
	return cmp.Or(cmp.Compare(x.by, y.by), cmp.Compare(x.place, y.place))
}

// makeRow takes as many holds of a lane as it can: always the next to end. It returns the others, in their order.
func (a *analysis) makeRow(holds []int32, claims *strip) (r *row, others []int32) {
	r = &row{}
	byEnd := slices.Clone(holds)
	slices.SortStableFunc(byEnd, func(x, y int32) int { return cmp.Compare(a.holds[x].reach, a.holds[y].reach) })
	taken := map[int32]bool{}
	var until, fence int64
	for _, i := range byEnd {
		h := &a.holds[i]
		if h.Mode == lockcore.ModeShared.String() || h.reach <= h.from || h.from < until || h.key.fence <= fence {
			continue
		}
		until, fence = h.reach, h.key.fence
		taken[i] = true
		r.holds = append(r.holds, i)
	}
	for _, i := range holds {
		if !taken[i] {
			others = append(others, i)
		}
	}
	r.sum(a, claims)
	return r, others
}

// sum makes what sums come from.
func (r *row) sum(a *analysis, claims *strip) {
	n := len(r.holds)
	r.times, r.fences = make([]interval, n), make([]int64, n)
	r.length, r.claimed, r.owned = make([]int64, n+1), make([]int64, n+1), make([]int64, n+1)
	r.byOwner, r.byLockID = make([]owned, n), make([]owned, n)
	for i, j := range r.holds {
		h := &a.holds[j]
		r.times[i], r.fences[i] = h.inTheWay(), h.key.fence
		r.length[i+1] = r.length[i] + r.times[i].length()
		r.claimed[i+1] = r.claimed[i] + claims.cover(r.times[i])
		r.byOwner[i], r.byLockID[i] = owned{h.owner, int32(i)}, owned{h.key.lockID, int32(i)}
	}
	slices.SortFunc(r.byOwner, compareOwned)
	slices.SortFunc(r.byLockID, compareOwned)
	for i, o := range r.byOwner {
		r.owned[i+1] = r.owned[i] + r.times[o.place].length()
	}
	r.longest = newPlaces(n, func(i int) int64 { return r.times[i].length() })
}

// during are those that were in the way at a time.
func (r *row) during(at interval) section {
	return section{
		sort.Search(len(r.times), func(i int) bool { return r.times[i].to > at.from }),
		sort.Search(len(r.times), func(i int) bool { return r.times[i].from >= at.to }),
	}
}

// of are those places in a list that are of a party, and in a section.
func of(list []owned, by sym, in section) section {
	search := func(place int) int {
		i, _ := slices.BinarySearchFunc(list, owned{by, int32(place)}, compareOwned) //nolint:gosec // as many as holds
		return i
	}
	return section{search(in.lo), search(max(in.hi, in.lo))}
}

// cover is for how long, within a time, one of a section was in the way, and how much of that had been granted to a waiter.
func (r *row) cover(in section, at interval, claims *strip) (length, claimed int64) {
	during := r.during(at)
	lo, hi := max(in.lo, during.lo), min(in.hi, during.hi)
	if lo >= hi {
		return 0, 0
	}
	length, claimed = r.length[hi]-r.length[lo], r.claimed[hi]-r.claimed[lo]
	for _, out := range []interval{{r.times[lo].from, at.from}, {at.to, r.times[hi-1].to}} { // what stands out at either end
		length -= out.length()
		claimed -= claims.cover(out)
	}
	return length, claimed
}

// coverOf is for how long, within a time, one of an owner's in a section was in the way.
func (r *row) coverOf(owner sym, in section, at interval) int64 {
	during := r.during(at)
	own := of(r.byOwner, owner, section{max(in.lo, during.lo), min(in.hi, during.hi)})
	if own.count() == 0 {
		return 0
	}
	first, last := r.times[r.byOwner[own.lo].place], r.times[r.byOwner[own.hi-1].place]
	return r.owned[own.hi] - r.owned[own.lo] - interval{first.from, at.from}.length() - interval{at.to, last.to}.length()
}

// strip is times that do not touch, in their order, and how long those before each lasted.
type strip struct {
	times  []interval
	length []int64
}

// newStrip joins times that overlap. They are in the order of their starts.
func newStrip(times []interval) *strip {
	s := &strip{length: []int64{0}}
	for _, t := range times {
		if n := len(s.times); n > 0 && t.from <= s.times[n-1].to {
			s.times[n-1].to = max(s.times[n-1].to, t.to)
			continue
		}
		s.times = append(s.times, t)
	}
	for i, t := range s.times {
		s.length = append(s.length, s.length[i]+t.length())
	}
	return s
}

// cover is how much of a time they are.
func (s *strip) cover(at interval) int64 {
	if at.length() == 0 {
		return 0
	}
	lo := sort.Search(len(s.times), func(i int) bool { return s.times[i].to > at.from })
	hi := sort.Search(len(s.times), func(i int) bool { return s.times[i].from >= at.to })
	if lo >= hi {
		return 0
	}
	return s.length[hi] - s.length[lo] - interval{s.times[lo].from, at.from}.length() - interval{at.to, s.times[hi-1].to}.length()
}

// with is what both have in common.
func (s *strip) with(o *strip) *strip {
	var both []interval
	for i, j := 0, 0; i < len(s.times) && j < len(o.times); {
		x, y := s.times[i], o.times[j]
		if common := x.with(y); common.length() > 0 {
			both = append(both, common)
		}
		if x.to < y.to {
			i++
		} else {
			j++
		}
	}
	return newStrip(both)
}
