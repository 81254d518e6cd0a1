package contention

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

const (
	// maxRoots bounds the trees, maxWaiters the branches of a node, and leastBranch is the share of
	// its root's time below which a branch is counted and not listed.
	maxRoots    = 50
	maxWaiters  = 20
	leastBranch = 0.01
	// maxTried bounds how many waits of one owner are looked at.
	maxTried = 64
)

// Root is an owner whose holds others waited for while these holds waited for nothing themselves:
// the root of a tree of blocking.
type Root struct {
	Owner        string `json:"owner"`
	WorkflowType string `json:"workflowType,omitempty"`
	// Caused is for how long others waited because of it, directly and through others, and Waits in
	// how many waits.
	Caused float64 `json:"caused"`
	Waits  int     `json:"waits"`
	// Hold is the one of its holds that caused most of that, -1 if it was not read, and Resource
	// what it held. Did says what it did.
	Hold     int    `json:"hold"`
	Resource string `json:"resource"`
	Did      string `json:"did"`
	// Waiters waited for it directly, those that cost most first; Omitted is how many more there
	// were.
	Waiters []Waiter `json:"waiters"`
	Omitted int      `json:"omitted,omitempty"`
}

// Waiter is an owner that waited for the one above it in a tree.
type Waiter struct {
	Owner        string `json:"owner"`
	WorkflowType string `json:"workflowType,omitempty"`
	Resource     string `json:"resource"`
	Step         string `json:"step,omitempty"`
	// Waited is for how long it waited because of the root, and Total the same with those that
	// waited for it meanwhile.
	Waited float64 `json:"waited"`
	Total  float64 `json:"total"`
	// Wait is the longest of its waits here.
	Wait    int      `json:"wait"`
	Waiters []Waiter `json:"waiters,omitempty"`
	Omitted int      `json:"omitted,omitempty"`
}

// guilt is what a root caused.
type guilt struct {
	owner  string
	length int64
	waits  int
	// byHold is the same by hold, and inCircle how much of it was waiting in a circle, which has no
	// root but where it is cut.
	byHold   map[int]int64
	inCircle int64
}

// findRoots sums up what each root caused.
func (a *analysis) findRoots() {
	all := map[string]*guilt{}
	for i := range a.waits {
		if a.stopped() {
			return
		}
		if !a.chosenWait(&a.waits[i]) {
			continue
		}
		seen := map[string]bool{}
		a.follow(i, func(e *ending) {
			g := all[e.owner]
			if g == nil {
				g = &guilt{owner: e.owner, byHold: map[int]int64{}}
				all[e.owner] = g
			}
			g.length += e.fresh
			if e.circle {
				g.inCircle += e.fresh
			} else {
				g.byHold[e.hold] += e.fresh
			}
			if !seen[e.owner] {
				g.waits++
				seen[e.owner] = true
			}
		})
	}
	roots := make([]*guilt, 0, len(all))
	for _, g := range all {
		roots = append(roots, g)
	}
	slices.SortFunc(roots, func(x, y *guilt) int {
		return cmp.Or(cmp.Compare(y.length, x.length), cmp.Compare(x.owner, y.owner))
	})
	a.roots = roots
}

// addRoots finds the roots, and makes the trees of the greatest.
func (a *analysis) addRoots(r *Report) {
	a.findRoots()
	roots := a.roots[:min(len(a.roots), maxRoots)]
	trees := map[string]*branch{}
	for _, g := range roots {
		trees[g.owner] = &branch{}
	}
	for i := range a.waits {
		if a.stopped() {
			return
		}
		if !a.chosenWait(&a.waits[i]) {
			continue
		}
		a.follow(i, func(e *ending) {
			if t := trees[e.owner]; t != nil {
				t.grow(a, e)
			}
		})
	}
	r.Roots = []Root{}
	for _, g := range roots {
		t := trees[g.owner]
		t.sum()
		root := Root{Owner: g.owner, Caused: seconds(g.length), Waits: g.waits, Hold: g.mainHold()}
		root.WorkflowType, root.Resource, root.Did = a.describe(g, root.Hold)
		root.Waiters, root.Omitted = t.waiters(a, int64(leastBranch*float64(g.length)))
		if root.Waiters == nil {
			root.Waiters = []Waiter{}
		}
		if root.Resource == "" && len(root.Waiters) > 0 {
			root.Resource = root.Waiters[0].Resource
		}
		r.Roots = append(r.Roots, root)
	}
}

// mainHold is the hold that caused most, -1 if it was not read.
func (g *guilt) mainHold() int {
	main, most := -1, int64(-1)
	for hold, length := range g.byHold {
		if length > most || length == most && hold < main {
			main, most = hold, length
		}
	}
	return main
}

// describe says of which type a root is, what it held, and what it did meanwhile.
func (a *analysis) describe(g *guilt, hold int) (workflowType, resource, did string) {
	if hold < 0 {
		if g.inCircle > 0 {
			return "", "", "waited itself, in a circle"
		}
		return "", "", "held what was waited for"
	}
	h := &a.holds[hold]
	did = fmt.Sprintf("held %s %s", h.Resource, duration(h.length()))
	step := h.stepDuring(h.interval)
	switch {
	case h.mostlyDead():
		did += ": " + h.WorkerDied.text()
	case h.Outcome == telemetry.OutcomeExpired:
		did += " until it expired"
	case step != nil && h.overlong(h.ran()):
		did += ", of which its steps ran " + duration(h.ran())
	case step != nil:
		did += ", in step " + step.Name
	}
	return h.WorkflowType, h.Resource, did
}

// branch is a node of a tree: a waiter, or the root.
type branch struct {
	own, total int64
	// wait is the longest of its own.
	wait int
	// below are those that waited for it, by owner and resource.
	below map[ownerAt]*branch
}

// grow adds a wait with those between it and the root.
func (b *branch) grow(a *analysis, e *ending) {
	for i := len(e.path) - 1; i >= 0; i-- {
		w := &a.waits[e.path[i]]
		at := ownerAt{w.owner, w.record.texts[textResource]}
		if b.below == nil {
			b.below = map[ownerAt]*branch{}
		}
		next := b.below[at]
		if next == nil {
			next = &branch{wait: e.path[i]}
			b.below[at] = next
		}
		if w.length() > a.waits[next.wait].length() {
			next.wait = e.path[i]
		}
		b = next
	}
	b.own += e.fresh
}

// sum sums up the totals.
func (b *branch) sum() int64 {
	b.total = b.own
	for _, below := range b.below {
		b.total += below.sum()
	}
	return b.total
}

// waiters are the branches that matter, and how many do not.
func (b *branch) waiters(a *analysis, least int64) (list []Waiter, omitted int) {
	all := make([]*branch, 0, len(b.below))
	for _, below := range b.below {
		if below.total > 0 && below.total >= least {
			all = append(all, below)
		}
	}
	slices.SortFunc(all, func(x, y *branch) int { return cmp.Or(cmp.Compare(y.total, x.total), cmp.Compare(x.wait, y.wait)) })
	all = all[:min(len(all), maxWaiters)]
	for _, below := range all {
		w := &a.waits[below.wait]
		next := Waiter{
			Owner: w.Owner, WorkflowType: w.WorkflowType, Resource: w.Resource, Step: w.Step,
			Waited: seconds(below.own), Total: seconds(below.total), Wait: below.wait,
		}
		next.Waiters, next.Omitted = below.waiters(a, least)
		list = append(list, next)
	}
	return list, len(b.below) - len(list)
}
