package contention

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

const (
	// maxRoots bounds the trees, and maxWaiters the branches of a node. A branch of less than the share leastBranch of its root's time is
	// counted and not listed.
	maxRoots    = 50
	maxWaiters  = 20
	leastBranch = 0.01
	// maxDepth bounds the waits on a path, and maxEndings the paths that are followed from one wait.
	maxDepth   = 16
	maxEndings = 1000
)

// ending is the end of a path from a wait, over the waits of those in its way, to a root.
type ending struct {
	// path begins with the wait, and ends with the wait that the root was in the way of.
	path []*wait
	// owner is the root, and hold its hold, -1 if it was not read.
	owner string
	hold  int
	// fresh is the part of the wait that the root explains on this path and on no earlier one.
	fresh int64
	// cycle is set if the root waited too, for an owner on the path.
	cycle bool
}

// walk follows one wait to its roots.
type walk struct {
	*analysis
	path    []*wait
	covered map[string]*coverage // by root
	endings int
	visit   func(*ending)
}

// follow calls visit with the roots of a wait. While a hold in its way was tied to another wait, that wait is followed; for the rest of
// the time the owner of the hold is the root.
func (a *analysis) follow(first *wait, visit func(*ending)) {
	w := walk{analysis: a, path: []*wait{first}, covered: map[string]*coverage{}, visit: visit}
	w.followWait(first.interval, nil)
}

// followWait follows the blockers of the last wait on the path, during a time. The owner of that wait is by, unless the wait is the
// first: then it is nil. What no hold explains ends with by, and so does what would close a cycle.
func (w *walk) followWait(at interval, by *Blocker) {
	last := w.path[len(w.path)-1]
	before := w.path[:len(w.path)-1]
	until := at.from
	for i := range last.Blockers {
		b := &last.Blockers[i]
		part := last.blockedDuring(b).with(at)
		if part.length() == 0 {
			continue
		}
		w.end(before, by, interval{until, part.from}, false)
		until = max(until, part.to)
		switch {
		case b.Hold < 0:
			w.end(w.path, b, part, false)
		case by != nil && w.closesCycle(w.holds[b.Hold]):
			w.end(before, by, part, true)
		default:
			w.followHold(b, part)
		}
	}
	w.end(before, by, interval{until, at.to}, false)
}

// followHold follows the waits to which a blocker's hold was tied, during a time.
func (w *walk) followHold(b *Blocker, at interval) {
	h := w.holds[b.Hold]
	until := at.from
	if len(w.path) < maxDepth && w.endings < maxEndings && !w.closesCycle(h) {
		for _, next := range w.waitsDuring(h, at) {
			part := next.with(interval{until, at.to})
			if part.length() == 0 {
				continue
			}
			w.end(w.path, b, interval{until, part.from}, false)
			w.path = append(w.path, next)
			w.followWait(part, b)
			w.path = w.path[:len(w.path)-1]
			until = part.to
		}
	}
	w.end(w.path, b, interval{until, at.to}, false)
}

// closesCycle reports whether a hold is tied to a wait on the path.
func (w *walk) closesCycle(h *hold) bool {
	return slices.ContainsFunc(w.path, h.tiedTo)
}

func (w *walk) end(path []*wait, by *Blocker, at interval, cycle bool) {
	if by == nil || at.length() == 0 {
		return
	}
	w.endings++
	if fresh := entry(w.covered, by.Owner).add(at); fresh > 0 {
		w.visit(&ending{path: path, owner: by.Owner, hold: by.Hold, fresh: fresh, cycle: cycle})
	}
}

// guilt sums up the waiting that a root caused.
type guilt struct {
	owner  string
	length int64
	waits  int
	// lastWait is the wait that was counted last.
	lastWait *wait
	// byHold is length by hold, without inCycle: a cycle has no root except where it is cut.
	byHold  map[int]int64
	inCycle int64
}

// followAll calls visit with the roots of all waits that the report is about.
func (a *analysis) followAll(visit func(*ending)) {
	for _, w := range a.waits {
		if a.stopped() {
			return
		}
		if w.chosen {
			a.follow(w, visit)
		}
	}
}

// findRoots sums up what each root caused.
func (a *analysis) findRoots() {
	all := map[string]*guilt{}
	a.followAll(func(e *ending) {
		g := all[e.owner]
		if g == nil {
			g = &guilt{owner: e.owner, byHold: map[int]int64{}}
			all[e.owner] = g
		}
		g.length += e.fresh
		if e.cycle {
			g.inCycle += e.fresh
		} else {
			g.byHold[e.hold] += e.fresh
		}
		if g.lastWait != e.path[0] {
			g.lastWait = e.path[0]
			g.waits++
		}
	})
	a.roots = slices.SortedFunc(maps.Values(all), func(x, y *guilt) int {
		return cmp.Or(cmp.Compare(y.length, x.length), cmp.Compare(x.owner, y.owner))
	})
}

// addRoots finds the roots, and makes the trees of the greatest.
func (a *analysis) addRoots() {
	a.findRoots()
	roots := a.roots[:min(len(a.roots), maxRoots)]
	trees := map[string]*branch{}
	for _, g := range roots {
		trees[g.owner] = &branch{}
	}
	a.followAll(func(e *ending) {
		if t := trees[e.owner]; t != nil {
			t.grow(e)
		}
	})
	for _, g := range roots {
		t := trees[g.owner]
		t.sum()
		root := Root{Owner: g.owner, Caused: seconds(g.length), Waits: g.waits, Hold: g.mainHold()}
		a.describe(&root, g)
		root.Waiters, root.Omitted = t.waiters(int64(leastBranch * float64(g.length)))
		switch {
		case len(root.Waiters) == 0:
			root.Waiters = []Waiter{}
		case root.Resource == "":
			root.Resource = root.Waiters[0].Resource
		}
		a.report.Roots = append(a.report.Roots, root)
	}
}

// mainHold returns the hold that caused most, -1 if it was not read.
func (g *guilt) mainHold() int {
	main, most := -1, int64(-1)
	for hold, length := range g.byHold {
		if length > most || length == most && hold < main {
			main, most = hold, length
		}
	}
	return main
}

// describe sets a root's type, what it held, and what it did in that time.
func (a *analysis) describe(r *Root, g *guilt) {
	if r.Hold < 0 {
		r.Did = "held what was waited for"
		if g.inCycle > 0 {
			r.Did = "waited itself, in a circle"
		}
		return
	}
	h := a.holds[r.Hold]
	r.WorkflowType, r.Resource = h.WorkflowType, h.Resource
	r.Did = fmt.Sprintf("held %s %s", h.Resource, duration(h.length()))
	step := h.stepDuring(h.interval)
	switch {
	case h.mostlyDead():
		r.Did += ": " + h.WorkerDied.text()
	case h.Outcome == telemetry.OutcomeExpired:
		r.Did += " until it expired"
	case step != nil && h.overlong(h.ran()):
		r.Did += ", of which its steps ran " + duration(h.ran())
	case h.holdOnly() != nil:
		r.Did += ", by " + h.holdOnly().Name + " of the workflow"
	case step != nil:
		r.Did += ", in step " + step.Name
	}
}

type ownerAt struct{ owner, resource string }

// branch is a node of a tree: a waiter, or the root.
type branch struct {
	own, total int64
	wait       *wait // the longest of its own waits
	// below are its own waiters, by owner and resource.
	below map[ownerAt]*branch
}

// grow adds the time of an ending to the last waiter on its path from the root.
func (b *branch) grow(e *ending) {
	for _, w := range slices.Backward(e.path) {
		at := ownerAt{w.Owner, w.Resource}
		if b.below == nil {
			b.below = map[ownerAt]*branch{}
		}
		next := b.below[at]
		if next == nil {
			next = &branch{wait: w}
			b.below[at] = next
		}
		if w.length() > next.wait.length() {
			next.wait = w
		}
		b = next
	}
	b.own += e.fresh
}

func (b *branch) sum() int64 {
	b.total = b.own
	for _, below := range b.below {
		b.total += below.sum()
	}
	return b.total
}

// waiters returns the branches that have at least the time least, and the number of the others.
func (b *branch) waiters(least int64) (list []Waiter, omitted int) {
	all := make([]*branch, 0, len(b.below))
	for _, below := range b.below {
		if below.total > 0 && below.total >= least {
			all = append(all, below)
		}
	}
	slices.SortFunc(all, func(x, y *branch) int {
		return cmp.Or(cmp.Compare(y.total, x.total), cmp.Compare(x.wait.place, y.wait.place))
	})
	all = all[:min(len(all), maxWaiters)]
	for _, below := range all {
		w := below.wait
		next := Waiter{
			Owner: w.Owner, WorkflowType: w.WorkflowType, Resource: w.Resource, Step: w.Step,
			Waited: seconds(below.own), Total: seconds(below.total), Wait: w.place,
		}
		next.Waiters, next.Omitted = below.waiters(least)
		list = append(list, next)
	}
	return list, len(b.below) - len(list)
}
