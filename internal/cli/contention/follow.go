package contention

import (
	"slices"
	"sort"
)

const (
	// maxDepth bounds how many wait for one another in a path, and maxEndings how many roots of one
	// wait are followed.
	maxDepth   = 16
	maxEndings = 1000
)

// ending is where a path of blocking ends, from a wait over the waits of those in its way to a
// root.
type ending struct {
	// path begins with the wait, and ends with the wait that the root itself was in the way of.
	path []int
	// owner is the root's, and hold its hold, -1 if it was not read.
	owner string
	hold  int
	// fresh is how much of the wait the root explains here that it had not explained before.
	fresh int64
	// circle says that the root waited too, for one that stands in the path already.
	circle bool
}

// walk follows one wait.
type walk struct {
	a       *analysis
	path    []int
	covered map[string]*coverage
	count   int
	visit   func(*ending)
}

// follow finds the roots of a wait. While a hold in its way was tied to a wait, that wait is a part
// of the path; for the rest of the time the owner of the hold is the root.
func (a *analysis) follow(first int, visit func(*ending)) {
	w := &a.waits[first]
	to := walk{a: a, path: []int{first}, covered: map[string]*coverage{}, visit: visit}
	to.blockers(w.interval, nil)
}

// blockers follows those in the way of the last wait of the path, at a time. What no hold explains
// is left to by, whose wait it is.
func (to *walk) blockers(at interval, by *Blocker) {
	w := &to.a.waits[to.path[len(to.path)-1]]
	until := at.from
	for i := range w.Blockers {
		b := &w.Blockers[i]
		part := w.during(b).with(at)
		if part.length() == 0 {
			continue
		}
		if part.from > until {
			to.back(by, interval{until, part.from}, false)
		}
		until = max(until, part.to)
		switch {
		case b.Hold < 0:
			to.end(to.path, b, part, false)
		case by != nil && to.closes(&to.a.holds[b.Hold]):
			to.back(by, part, true)
		default:
			to.blocker(b, part)
		}
	}
	if until < at.to {
		to.back(by, interval{until, at.to}, false)
	}
}

// blocker follows the waits to which a blocker's hold was tied, at a time.
func (to *walk) blocker(b *Blocker, at interval) {
	h := &to.a.holds[b.Hold]
	until := at.from
	if len(to.path) < maxDepth && to.count < maxEndings && !to.closes(h) {
		for _, i := range to.a.waitsDuring(to.a.tied(h), at) {
			part := to.a.waits[i].with(interval{until, at.to})
			if part.length() == 0 {
				continue
			}
			to.end(to.path, b, interval{until, part.from}, false)
			to.path = append(to.path, int(i))
			to.blockers(part, b)
			to.path = to.path[:len(to.path)-1]
			until = part.to
		}
	}
	to.end(to.path, b, interval{until, at.to}, false)
}

// closes reports whether a hold closes a circle: it is tied to a wait in the path.
func (to *walk) closes(h *hold) bool {
	return slices.ContainsFunc(to.path, func(i int) bool { return h.tiedTo(&to.a.waits[i]) })
}

// back ends a path one step before its last wait: with the owner of that wait.
func (to *walk) back(by *Blocker, at interval, circle bool) {
	if by != nil {
		to.end(to.path[:len(to.path)-1], by, at, circle)
	}
}

func (to *walk) end(path []int, b *Blocker, at interval, circle bool) {
	if at.length() == 0 {
		return
	}
	to.count++
	if fresh := cover(to.covered, b.Owner).add(at); fresh > 0 {
		to.visit(&ending{path: path, owner: b.Owner, hold: b.Hold, fresh: fresh, circle: circle})
	}
}

// waitDuring is, of waits in the order of their starts, the one that lasted longest within a time,
// and for how long; -1 if none did.
func (a *analysis) waitDuring(waits []int32, at interval) (found int, most int64) {
	found = -1
	for _, i := range a.waitsDuring(waits, at) {
		if n := a.waits[i].with(at).length(); n >= most {
			found, most = int(i), n
		}
	}
	return found, most
}

// waitsDuring are those of waits, in the order of their starts, that lasted within a time, of the
// latest that were tried.
func (a *analysis) waitsDuring(waits []int32, at interval) (found []int32) {
	begun := sort.Search(len(waits), func(i int) bool { return a.waits[waits[i]].from >= at.to })
	for _, i := range waits[max(begun-maxTried, 0):begun] {
		if a.waits[i].with(at).length() > 0 {
			found = append(found, i)
		}
	}
	return found
}
