package lockcore

import (
	"cmp"
	"iter"
	"slices"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// waitGraph is the wait-for graph of documents with queues. Its nodes are waits: requests in a queue. Each leads to
// the waits of its obstacles, which are incompatible requests ahead of it in the queue, and holds that do not end
// before those waits do. A cycle has several owners, or is one wait that leads to itself. Its waits last forever.
// Edges are computed on demand, since a queue of n has n²/2.
type waitGraph struct {
	nodes []waitNode
	// waits are the nodes of each tie, in the order of the documents and queues.
	waits map[tie][]int
	// stack has, during a search, the visited nodes that are not finished. Each leads to the node that is visited now.
	stack []int
	// edge is an edge of a cycle, if a search has found one.
	edge [2]int
}

// waitNode is a wait: a request in a queue.
type waitNode struct {
	*rules.Waiter
	doc   *waitDocument
	owner string
	// party is the request, or the earlier one of its lock ID with whose grant it may join: giving up the request
	// itself would end no other wait of its lock ID. ahead is the number of the document's obstacles ahead of it.
	party rules.Party
	ahead int
	// joins is set if the party may join its own hold. Then it waits only for running parts.
	joins bool
	// skips is set if it is granted past the queue, since its party or what encloses it holds already.
	skips bool
	// number is the state of a search: the position in the stack, from 1, or one of those below.
	number int
}

const (
	unvisited = -1
	// finished nodes are in no cycle, or not in the search.
	finished = 0
)

// waitDocument is a document with the obstacles in it: first its holds, then its queue.
type waitDocument struct {
	*rules.Document
	obstacles []obstacle
	// skip is the number of leading obstacles whose waits are finished.
	skip int
}

// obstacle is an entry of a hold, or a waiter. It does not end before the waits of its tie do.
type obstacle struct {
	entry  *rules.Entry
	waiter *rules.Waiter
	tie    tie
}

// tie names the waits of an owner, or of one of its lock IDs or parts, or of a part for one resource. An owner is
// one thread of work, but a workflow runs steps at the same time: a running part of a workflow is tied only to the
// waits of its own step.
type tie struct{ owner, lockID, part, resource string }

// deadlocksIn finds the deadlocks in some documents: cycles of which no other one has only a part of the owners,
// or else only a part of the waits. Each has another victim. Without the victims' requests no cycle remains. The
// same documents give the same deadlocks in every process.
func deadlocksIn(docs []rules.Document) (found []Deadlock) {
	g := newWaitGraph(docs)
	rest := make([]int, len(g.nodes))
	for n := range rest {
		rest[n] = n
	}
	for {
		var cycle []int
		if cycle, rest = g.minimalCycle(rest); cycle == nil {
			return found
		}
		d := g.deadlock(cycle)
		found = append(found, d)
		rest = g.without(d.Waits[d.Victim].Owner, rest) // it releases everything
	}
}

// deadlock returns a cycle as a deadlock. It begins with the least owner.
func (g *waitGraph) deadlock(cycle []int) Deadlock {
	first := 0
	for i, n := range cycle {
		if g.nodes[n].owner < g.nodes[cycle[first]].owner {
			first = i
		}
	}
	waits := make([]Wait, len(cycle))
	for i := range cycle {
		next := cycle[(first+i+1)%len(cycle)]
		waits[i] = g.wait(cycle[(first+i)%len(cycle)], g.nodes[next].owner)
	}
	return Deadlock{Waits: waits, Victim: victimOf(waits)}
}

// wait returns a node as a wait for an owner.
func (g *waitGraph) wait(n int, owner string) Wait {
	w := &g.nodes[n]
	started := w.Since
	if w.Started != nil {
		started = *w.Started
	}
	return Wait{
		Resource: w.doc.ID, Owner: w.owner, LockID: w.LockID, Run: w.Run, Part: w.Part, Order: orderOf(w.Order), For: owner,
		Started: started.UTC(), NeverVictim: w.NeverVictim,
	}
}

// shows reports whether each wait of a deadlock exists, and waits for the next one.
func (g *waitGraph) shows(d Deadlock) bool {
	var among []int
	for n := range g.nodes {
		if slices.ContainsFunc(d.Waits, func(w Wait) bool { return g.wait(n, w.For) == w }) {
			among = append(among, n)
		}
	}
	cycle, _ := g.minimalCycle(among)
	return cycle != nil && slices.Equal(g.deadlock(cycle).Waits, d.Waits)
}

func newWaitGraph(docs []rules.Document) *waitGraph {
	g := &waitGraph{waits: map[tie][]int{}}
	for i := range docs {
		d := &waitDocument{Document: &docs[i]}
		g.addQueue(d, addHolds(d))
	}
	return g
}

// addHolds adds the holds of a document, and returns the strongest mode of each lock ID that holds. Claims and draining
// parts end by themselves.
func addHolds(d *waitDocument) (modes map[string]string) {
	modes = map[string]string{}
	kept := d.AllKept()
	for i := range d.Entries {
		e := &d.Entries[i]
		if !e.Holds() || !e.Alive(d.At) {
			continue
		}
		modes[e.LockID] = rules.Stronger(e.Mode, cmp.Or(modes[e.LockID], e.Mode))
		t := tie{owner: e.Owner}
		if e.CreatedAt == nil && kept[e.LockID] != nil {
			t.owner = kept[e.LockID].Owner
		}
		t.owner = cmp.Or(t.owner, e.LockID)
		if e.Run != "" && (e.State != rules.StateKept || e.Within != "") {
			t.lockID, t.part = e.LockID, e.Part
		}
		d.obstacles = append(d.obstacles, obstacle{entry: e, tie: t})
	}
	return modes
}

// addQueue adds the waits of a document. modes are those of the lock IDs that hold.
func (g *waitGraph) addQueue(d *waitDocument, modes map[string]string) {
	queue := d.Queue()
	leads := map[string][]waitNode{} // which others of their lock ID may join, at most two each
	for i := range d.Waiters {
		w := &d.Waiters[i]
		n := waitNode{Waiter: w, doc: d, owner: cmp.Or(w.Owner, w.LockID), party: w.Party(), ahead: len(d.obstacles)}
		mode, holds := modes[w.LockID]
		n.joins = holds && rules.Covers(mode, w.Mode)
		n.skips = queue.SkipsQueue(w.Party())
		lead := slices.IndexFunc(leads[w.LockID], func(l waitNode) bool { return rules.Covers(l.Mode, w.Mode) })
		switch {
		case n.joins:
		case lead >= 0:
			n.party, n.ahead = leads[w.LockID][lead].party, leads[w.LockID][lead].ahead
		default:
			n.party = effective(d.Document, n.party)
		}
		if lead < 0 && d.Precedes(w) {
			leads[w.LockID] = append(leads[w.LockID], n)
		}
		if !w.Waits(d.At) || queue.Next(w).Answer == rules.NextGo {
			continue
		}
		self := tie{n.owner, w.LockID, w.Part, d.ID}
		for _, t := range []tie{{n.owner, "", "", ""}, {n.owner, w.LockID, "", ""}, {n.owner, w.LockID, w.Part, ""}, self} {
			g.waits[t] = append(g.waits[t], len(g.nodes))
		}
		g.nodes = append(g.nodes, n)
		if d.Precedes(w) {
			d.obstacles = append(d.obstacles, obstacle{waiter: w, tie: self})
		}
	}
}

// effective returns the party of a request for a new hold: a limit of 1 counts as exclusive, and a pool of one as a demand
// for its member.
func effective(d *rules.Document, p rules.Party) rules.Party {
	if d.LimitFor(p.Limit) == 1 {
		p.Mode = rules.Exclusive
	}
	if p.Mode == rules.Pool && p.Member == "" && d.Policy.IsPool() && len(d.Policy.Members) == 1 {
		p.Member = d.Policy.Members[0].Name
	}
	return p
}

func excludes(p, other rules.Party) bool { return p.Excludes(other.Mode, other.Member) }

// waitsFor reports whether an obstacle must end before a wait does. Room under a limit of more than 1 does not count.
func (w *waitNode) waitsFor(o *obstacle) bool {
	if e := o.entry; e != nil {
		return e.Blocks(w.party, w.doc.At) && (!w.joins || e.State == rules.StateRunning)
	}
	return !w.skips && o.waiter.LockID != w.LockID && excludes(w.party, effective(w.doc.Document, o.waiter.Party()))
}

// edges iterates over the waits that must end before a wait does. If its own owner blocks it, it leads to itself, but
// not in a workflow, whose steps end by themselves.
func (g *waitGraph) edges(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		w := &g.nodes[n]
		for i := w.doc.skip; i < w.ahead; i++ {
			o := &w.doc.obstacles[i]
			if !w.waitsFor(o) {
				continue
			}
			to := g.waits[o.tie]
			if o.tie == (tie{owner: w.owner}) {
				if to = nil; w.Run == "" && o.entry.Run == "" {
					to = []int{n}
				}
			}
			for _, m := range to {
				if !yield(m) {
					return
				}
			}
		}
	}
}

// minimalCycle returns a minimal cycle among some waits, or nil, and the waits that may be in others.
func (g *waitGraph) minimalCycle(among []int) (cycle, rest []int) {
	cycle, rest = g.findCycle(among)
	within := slices.DeleteFunc(slices.Clone(rest), func(n int) bool { // the waits of its owners
		return !slices.ContainsFunc(cycle, func(m int) bool { return g.nodes[m].owner == g.nodes[n].owner })
	})
	for _, n := range cycle {
		if smaller, _ := g.minimalCycle(g.without(g.nodes[n].owner, within)); smaller != nil {
			return smaller, rest
		}
	}
	for i := range cycle {
		if smaller, _ := g.minimalCycle(slices.Delete(slices.Clone(cycle), i, i+1)); smaller != nil {
			return smaller, rest
		}
	}
	return cycle, rest
}

// without returns those of some waits that are not of an owner.
func (g *waitGraph) without(owner string, among []int) []int {
	return slices.DeleteFunc(slices.Clone(among), func(n int) bool { return g.nodes[n].owner == owner })
}

// findCycle returns a cycle among some waits, or nil, and the waits that may be in others.
func (g *waitGraph) findCycle(among []int) (cycle, rest []int) {
	g.begin(among, unvisited)
	defer g.begin(among, finished)
	for _, n := range among {
		if g.nodes[n].number == unvisited && g.visit(n) == found {
			rest = slices.DeleteFunc(slices.Clone(among), func(n int) bool { return g.nodes[n].number == finished })
			return g.way(g.edge[1], g.edge[0]), rest
		}
	}
	return nil, nil
}

// begin sets the number of some waits, and forgets the state of the search before.
func (g *waitGraph) begin(among []int, number int) {
	for _, n := range among {
		g.nodes[n].number, g.nodes[n].doc.skip = number, 0
	}
	g.stack = nil
}

// found is the result of visit if it has found an edge of a cycle.
const found = 0

// visit visits a node and those to which it leads. It returns the least number among those of the stack to which
// these lead, or found. This is Tarjan's search for strongly connected components, but it ends at the first edge
// between two owners, or of a node to itself, in one.
func (g *waitGraph) visit(n int) (least int) {
	g.stack = append(g.stack, n)
	w := &g.nodes[n]
	w.number, least = len(g.stack), len(g.stack)
	g.skipFinished(w.doc)
	for m := range g.edges(n) {
		to := &g.nodes[m]
		lowest := to.number
		if lowest == unvisited {
			if lowest = g.visit(m); lowest == found {
				return found
			}
		}
		switch {
		case to.number == finished:
		case to.owner != w.owner || m == n:
			g.edge = [2]int{n, m}
			return found
		default:
			least = min(least, lowest)
		}
	}
	if least == w.number {
		for _, m := range g.stack[least-1:] {
			g.nodes[m].number = finished
		}
		g.stack = g.stack[:least-1]
	}
	return least
}

// skipFinished skips the leading obstacles whose waits are finished. Otherwise each waiter would visit all holders.
func (g *waitGraph) skipFinished(d *waitDocument) {
	remains := func(n int) bool { return g.nodes[n].number != finished }
	for d.skip < len(d.obstacles) && !slices.ContainsFunc(g.waits[d.obstacles[d.skip].tie], remains) {
		d.skip++
	}
}

// way returns a shortest way between two waits that are not finished.
func (g *waitGraph) way(from, to int) []int {
	came := map[int]int{from: from} // the node from which each one was reached first
	for queue := []int{from}; queue[0] != to; queue = queue[1:] {
		for next := range g.edges(queue[0]) {
			if _, known := came[next]; !known && g.nodes[next].number != finished {
				came[next] = queue[0]
				queue = append(queue, next)
			}
		}
	}
	way := []int{to}
	for at := to; at != from; at = came[at] {
		way = append(way, came[at])
	}
	slices.Reverse(way)
	return way
}
