package lockcore

import (
	"cmp"
	"maps"
	"slices"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// waitGraph is what the documents with queues say of who waits for whom. Its edges are not written down: in a
// queue of n that want a resource alone there are n²/2 of them.
type waitGraph struct {
	docs []engine.Document
	// holders are the owners of what is held and alive, by document and entry.
	holders [][]party
	// waits are an owner's places.
	waits map[string][]place
}

// party is one that holds or waits.
type party struct{ lockID, owner, mode string }

// place is a waiter of a document.
type place struct{ doc, waiter int }

// deadlocksIn finds a shortest cycle through each owner that is in one, each once. The same documents give the same
// cycles, whoever looks.
func deadlocksIn(docs []engine.Document) []Deadlock {
	g, starts := newWaitGraph(docs)
	var out []Deadlock
	covered := map[string]bool{}
	for _, owner := range starts {
		if covered[owner] {
			continue
		}
		if waits := g.cycleThrough(owner); waits != nil {
			for _, w := range waits {
				covered[w.Owner] = true
			}
			out = append(out, Deadlock{Waits: waits, Victim: victimOf(waits)})
		}
	}
	return out
}

// newWaitGraph also returns the owners that hold and wait: there is one in every deadlock.
func newWaitGraph(docs []engine.Document) (g *waitGraph, holdAndWait []string) {
	g = &waitGraph{docs: docs, holders: make([][]party, len(docs)), waits: map[string][]place{}}
	holding := map[string]bool{}
	for i := range docs {
		d := &docs[i]
		owners := map[string]string{}
		for _, e := range d.Held {
			owners[e.LockID] = cmp.Or(owners[e.LockID], e.Owner)
		}
		for _, e := range d.Held {
			// What drains ends by itself.
			if e.ExpiresAt.After(d.At) && e.State != engine.Draining {
				p := party{e.LockID, cmp.Or(owners[e.LockID], e.LockID), e.Mode}
				g.holders[i] = append(g.holders[i], p)
				holding[p.owner] = true
			}
		}
		for j, w := range d.Waiters {
			if w.Waits(d.At) {
				owner := cmp.Or(w.Owner, w.LockID)
				g.waits[owner] = append(g.waits[owner], place{i, j})
			}
		}
	}
	for owner := range maps.Keys(g.waits) {
		if holding[owner] {
			holdAndWait = append(holdAndWait, owner)
		}
	}
	slices.Sort(holdAndWait)
	return g, holdAndWait
}

// cycleThrough walks the graph breadth first until it is back at the owner.
func (g *waitGraph) cycleThrough(owner string) []Wait {
	came := map[string]Wait{} // the edge by which each owner was reached first
	// Those ahead of an exclusive waiter need to be looked at once.
	seen := make([]int, len(g.docs))
	queue := []string{owner}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, p := range g.waits[at] {
			for _, other := range g.inTheWay(p, seen) {
				w := g.wait(p, at, other)
				if other == owner {
					path := []Wait{w}
					for path[0].Owner != owner {
						path = slices.Insert(path, 0, came[path[0].Owner])
					}
					return path
				}
				if _, known := came[other]; !known && other != at {
					came[other] = w
					queue = append(queue, other)
				}
			}
		}
	}
	return nil
}

// inTheWay lists the owners that a waiter waits for: holders whose mode does not go together with its own, and such
// waiters ahead, but for those that were listed before. Waiting for room under a limit makes no edge.
func (g *waitGraph) inTheWay(p place, seen []int) []string {
	d := &g.docs[p.doc]
	w := &d.Waiters[p.waiter]
	self := cmp.Or(w.Owner, w.LockID)
	var out []string
	add := func(o party) {
		if o.lockID != w.LockID && o.owner != self && !engine.Compatible(o.mode, w.Mode) {
			out = append(out, o.owner)
		}
	}
	for _, h := range g.holders[p.doc] {
		add(h)
	}
	for j := seen[p.doc]; j < p.waiter; j++ {
		if a := &d.Waiters[j]; a.Waits(d.At) && !a.Overdue(d.At) {
			add(party{a.LockID, cmp.Or(a.Owner, a.LockID), a.Mode})
		}
	}
	if w.Mode == engine.Exclusive {
		seen[p.doc] = max(seen[p.doc], p.waiter)
	}
	return out
}

func (g *waitGraph) wait(p place, owner, other string) Wait {
	d := &g.docs[p.doc]
	q := &d.Waiters[p.waiter]
	w := Wait{
		Resource: d.ID, Owner: owner, LockID: q.LockID, Part: q.Part, Order: orderOf(q.Order), For: other, Started: q.Since, NeverVictim: q.Safe,
	}
	if q.Started != nil {
		w.Started = *q.Started
	}
	return w
}

// victimOf is the wait that has to end. Where all are those of requests that never are victims it is one of them
// nevertheless: none of them would ever get its lock.
func victimOf(waits []Wait) int {
	spared := slices.ContainsFunc(waits, func(w Wait) bool { return !w.NeverVictim })
	victim := -1
	for i, w := range waits {
		if w.NeverVictim && spared {
			continue
		}
		if victim < 0 || cmp.Or(w.Started.Compare(waits[victim].Started), cmp.Compare(w.Owner, waits[victim].Owner)) > 0 {
			victim = i
		}
	}
	return victim
}
