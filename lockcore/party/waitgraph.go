package party

import (
	"cmp"
	"iter"
	"slices"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// waitGraph is the wait-for graph of documents with queues. Its nodes are waits. A wait leads to each
// incompatible one ahead of it in its queue, and to each wait to which a hold that blocks it is tied: such a hold
// does not end before that wait does. The waits of a cycle wait forever. Edges are computed on demand, since a
// queue of n has n²/2.
type waitGraph struct {
	nodes []waitNode
	// waits are the nodes of each owner, in the order of the documents and queues.
	waits map[string][]int
}

// waitNode is a wait: a request in a queue.
type waitNode struct {
	*rules.Waiter
	doc   *waitDocument
	owner string
	// party is the request, or the earlier one of its lock ID with whose grant it may join, and which waits for
	// the first waiters of doc.ahead. Giving up the request itself would end no other wait of its lock ID. A limit
	// of 1 counts as exclusive.
	party rules.Party
	ahead int
	// joins is set if the party may join its own hold. Then it waits only for running parts that block it.
	joins bool
	// alone is set if the request waits for its own owner under another lock ID, so that it is a cycle alone.
	// Requests with a run do not count: steps of one workflow end by themselves.
	alone bool
	// number and depth are the state of a search: the order of the visit, 0 if it is finished or excluded, and 1 + the
	// position in the path to the current node.
	number, depth int
}

// waitDocument is a document with its entries to which waits are tied, and the nodes of its queue for which
// others wait.
type waitDocument struct {
	*rules.Document
	tied  []tiedEntry
	ahead []int
	// finishedTied and finishedAhead are the numbers of leading elements that a search need not visit again.
	finishedTied, finishedAhead int
}

// tiedEntry is an entry that does not end before some waits do.
type tiedEntry struct {
	*rules.Entry
	owner string
	waits []int
	// all is set if these are all waits of the owner.
	all bool
}

// unvisited is the number of a node that a search must visit.
const unvisited = -1

// deadlocksIn finds the deadlocks in some documents: cycles of which no other one has only a part of the owners,
// or else only a part of the waits. Each has another victim. Without the victims' requests no cycle would remain,
// except those of one workflow, whose steps end by themselves. The same documents give the same deadlocks in every
// process.
func deadlocksIn(docs []rules.Document) []Deadlock {
	g := newWaitGraph(docs)
	var out []Deadlock
	victims := map[string]bool{} // an owner that is refused releases everything
	report := func(cycle []int) {
		d := g.deadlock(cycle)
		out, victims[d.Waits[d.Victim].Owner] = append(out, d), true
	}
	rest := make([]int, len(g.nodes))
	for n := range rest {
		if rest[n] = n; g.nodes[n].alone && !victims[g.nodes[n].owner] {
			report([]int{n})
		}
	}
	for {
		rest = slices.DeleteFunc(rest, func(n int) bool { return victims[g.nodes[n].owner] })
		var cycle []int
		if cycle, rest = g.minimalCycle(rest); cycle == nil {
			return out
		}
		report(cycle)
	}
}

// deadlock returns a cycle as a deadlock. It begins with the least owner.
func (g *waitGraph) deadlock(cycle []int) Deadlock {
	first := slices.IndexFunc(cycle, func(n int) bool {
		return !slices.ContainsFunc(cycle, func(m int) bool { return g.nodes[m].owner < g.nodes[n].owner })
	})
	cycle = slices.Concat(cycle[first:], cycle[:first])
	waits := make([]Wait, len(cycle))
	for i, n := range cycle {
		waits[i] = g.wait(n, cycle[(i+1)%len(cycle)])
	}
	return Deadlock{Waits: waits, Victim: victimOf(waits)}
}

func newWaitGraph(docs []rules.Document) *waitGraph {
	g := &waitGraph{waits: map[string][]int{}}
	all := make([]*waitDocument, len(docs))
	for i := range docs {
		all[i] = &waitDocument{Document: &docs[i]}
		g.addQueue(all[i])
	}
	for _, d := range all { // when all waits are known
		owners := ownersOf(d.Document)
		for j := range d.Entries {
			e := tiedEntry{Entry: &d.Entries[j], owner: owners[j]}
			if e.waits, e.all = g.tied(d, &e); len(e.waits) > 0 {
				d.tied = append(d.tied, e)
			}
			for _, n := range e.waits {
				w := &g.nodes[n]
				w.alone = w.alone || (w.doc == d && w.owner == e.owner && w.Label == "" && e.Label == "" && w.blockedBy(&e))
			}
		}
	}
	return g
}

// addQueue adds the waits of a document.
func (g *waitGraph) addQueue(d *waitDocument) {
	held := map[string]string{} // the strongest mode of each lock ID
	for i := range d.Entries {
		if e := &d.Entries[i]; e.Holds() && e.Alive(d.At) {
			held[e.LockID] = rules.Stronger(e.Mode, cmp.Or(held[e.LockID], e.Mode))
		}
	}
	queue := d.Queue()
	leads := leadsOf(d.Document)
	ahead := make([]int, len(d.Waiters)) // the number of nodes ahead of each waiter
	for j := range d.Waiters {
		w := &d.Waiters[j]
		ahead[j] = len(d.ahead)
		if !w.Waits(d.At) || queue.Next(w).Answer == rules.NextGo {
			continue
		}
		n := waitNode{Waiter: w, doc: d, owner: cmp.Or(w.Owner, w.LockID), party: w.Party(), ahead: ahead[j]}
		mode, holds := held[w.LockID]
		if n.joins = holds && rules.Covers(mode, w.Mode); !n.joins {
			if lead := leads[j]; lead >= 0 {
				n.party, n.ahead = d.Waiters[lead].Party(), ahead[lead]
			}
			n.party.Mode = effectiveMode(n.party.Mode, n.party.Limit)
		}
		if d.Precedes(w) {
			d.ahead = append(d.ahead, len(g.nodes))
		}
		g.waits[n.owner] = append(g.waits[n.owner], len(g.nodes))
		g.nodes = append(g.nodes, n)
	}
}

// effectiveMode returns the mode of a request for a new hold.
func effectiveMode(mode string, limit int64) string {
	if limit == 1 {
		return rules.Exclusive
	}
	return mode
}

// ownersOf returns the owners of the entries of a document. A part without an owner has that of the kept hold.
func ownersOf(d *rules.Document) []string {
	kept := map[string]string{}
	for _, e := range d.Entries {
		if e.State == rules.StateKept {
			kept[e.LockID] = e.Owner
		}
	}
	owners := make([]string, len(d.Entries))
	for j, e := range d.Entries {
		if e.CreatedAt == nil {
			e.Owner = cmp.Or(e.Owner, kept[e.LockID])
		}
		owners[j] = cmp.Or(e.Owner, e.LockID)
	}
	return owners
}

// leadsOf returns for each waiter the first one ahead of it that has the same lock ID and a mode that covers its
// own, or -1.
func leadsOf(d *rules.Document) []int {
	leads := make([]int, len(d.Waiters))
	ahead := map[string][]int{} // candidates by lock ID, at most two each
	for j := range d.Waiters {
		w := &d.Waiters[j]
		leads[j] = -1
		for _, i := range slices.Backward(ahead[w.LockID]) {
			if rules.Covers(d.Waiters[i].Mode, w.Mode) {
				leads[j] = i
			}
		}
		if leads[j] < 0 && d.Precedes(w) {
			ahead[w.LockID] = append(ahead[w.LockID], j)
		}
	}
	return leads
}

// tied returns the waits to which an entry is tied: the entry does not end before they do. These are all waits
// of its owner, which is one thread of work. A running part of a workflow is tied only to the waits of its own
// step, and what a step within the workflow keeps to those of that step. Draining parts and claims end by
// themselves.
func (g *waitGraph) tied(d *waitDocument, e *tiedEntry) (waits []int, all bool) {
	if !e.Holds() || !e.Alive(d.At) {
		return nil, false
	}
	waits = g.waits[e.owner]
	if e.Label == "" || (e.State == rules.StateKept && e.Within == "") {
		return waits, true
	}
	return slices.DeleteFunc(slices.Clone(waits), func(n int) bool {
		w := &g.nodes[n]
		return w.LockID != e.LockID || (w.Part != e.Part && e.State != rules.StateKept)
	}), false
}

// blockedBy reports whether an entry must end before a wait does.
func (w *waitNode) blockedBy(e *tiedEntry) bool {
	return e.Blocks(w.party, w.doc.At) && (!w.joins || e.State == rules.StateRunning)
}

// edges iterates over the waits that must end before a wait does. A hold of its own owner that is tied to all its
// waits makes none: see alone. Room under a limit of more than 1 makes none either.
func (g *waitGraph) edges(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		w := &g.nodes[n]
		for i := w.doc.finishedTied; i < len(w.doc.tied); i++ {
			e := &w.doc.tied[i]
			if (e.all && e.owner == w.owner) || !w.blockedBy(e) {
				continue
			}
			for _, to := range e.waits {
				if !yield(to) {
					return
				}
			}
		}
		for i := w.doc.finishedAhead; i < w.ahead && !w.joins; i++ {
			a := &g.nodes[w.doc.ahead[i]]
			if a.LockID != w.LockID && !rules.Compatible(effectiveMode(a.Mode, a.Limit), w.party.Mode) && !yield(w.doc.ahead[i]) {
				return
			}
		}
	}
}

// minimalCycle returns a minimal cycle of several owners among some waits, or nil, and the waits that may be in
// others.
func (g *waitGraph) minimalCycle(among []int) (cycle, rest []int) {
	set, rest := g.connected(among)
	if set == nil {
		return nil, nil
	}
	cycle = g.shortest(set)
	owner := func(n int) string { return g.nodes[n].owner }
	owners := map[string]bool{}
	for _, n := range cycle {
		owners[owner(n)] = true
	}
	within := slices.DeleteFunc(slices.Clone(rest), func(n int) bool { return !owners[owner(n)] })
	for _, n := range cycle {
		others := slices.DeleteFunc(slices.Clone(within), func(m int) bool { return owner(m) == owner(n) })
		if smaller, _ := g.minimalCycle(others); smaller != nil {
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

// connected returns waits of several owners of which each leads to all others, or nil, and the waits among which
// there may be more. It is Tarjan's search for strongly connected components, which stops at the first cycle.
func (g *waitGraph) connected(among []int) (set, rest []int) {
	s := tarjan{g: g}
	g.restart(among, unvisited)
	for _, n := range among {
		if g.nodes[n].number == unvisited {
			if s.visit(n); s.found != nil {
				rest = slices.DeleteFunc(slices.Clone(among), func(n int) bool { return g.nodes[n].number == 0 })
				break
			}
		}
	}
	g.restart(among, 0)
	return s.found, rest
}

// restart sets the number of some waits, and begins with all edges again.
func (g *waitGraph) restart(among []int, number int) {
	for _, n := range among {
		w := &g.nodes[n]
		w.number, w.depth, w.doc.finishedTied, w.doc.finishedAhead = number, 0, 0, 0
	}
}

type tarjan struct {
	g *waitGraph
	// path leads to the current node. stack also has the visited nodes that lead to one of the path.
	path, stack []int
	visits      int
	found       []int
}

// visit visits a node and those to which it leads. It returns the least number among the nodes of the stack to
// which they lead.
func (s *tarjan) visit(n int) (least int) {
	w := &s.g.nodes[n]
	s.path, s.stack, s.visits = append(s.path, n), append(s.stack, n), s.visits+1
	w.number, w.depth = s.visits, len(s.path)
	least, first := w.number, len(s.stack)-1
	s.g.skipFinished(w.doc)
	for m := range s.g.edges(n) {
		switch to := &s.g.nodes[m]; {
		case to.number == unvisited:
			least = min(least, s.visit(m))
		case to.number > 0:
			least = min(least, to.number)
			if to.depth > 0 {
				s.find(s.path[to.depth-1:])
			}
		}
		if s.found != nil {
			return least
		}
	}
	s.path, w.depth = s.path[:len(s.path)-1], 0
	if least == w.number {
		component := s.stack[first:]
		if s.find(component); s.found == nil {
			for _, m := range component {
				s.g.nodes[m].number = 0
			}
			s.stack = s.stack[:first]
		}
	}
	return least
}

// find sets found to nodes of which each leads to all others, if they have several owners.
func (s *tarjan) find(set []int) {
	owner := s.g.nodes[set[0]].owner
	if slices.ContainsFunc(set, func(n int) bool { return s.g.nodes[n].owner != owner }) {
		s.found = slices.Sorted(slices.Values(set))
	}
}

// skipFinished skips the leading elements of a document whose waits are all finished or excluded. Otherwise each
// waiter would visit all holders.
func (g *waitGraph) skipFinished(d *waitDocument) {
	remains := func(n int) bool { return g.nodes[n].number != 0 }
	for d.finishedTied < len(d.tied) && !slices.ContainsFunc(d.tied[d.finishedTied].waits, remains) {
		d.finishedTied++
	}
	for d.finishedAhead < len(d.ahead) && !remains(d.ahead[d.finishedAhead]) {
		d.finishedAhead++
	}
}

// shortest returns a cycle of several owners in a strongly connected set of waits: an edge between two owners, and
// a shortest way back.
func (g *waitGraph) shortest(set []int) []int {
	for _, start := range set {
		for next := range g.edges(start) {
			if _, inSet := slices.BinarySearch(set, next); inSet && g.nodes[next].owner != g.nodes[start].owner {
				return append(g.way(next, start, set), start)
			}
		}
	}
	return nil
}

// way returns a shortest way between two waits of a set, without its end.
func (g *waitGraph) way(from, to int, set []int) (way []int) {
	came := map[int]int{} // the node from which each one was reached first
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		for next := range g.edges(queue[0]) {
			_, inSet := slices.BinarySearch(set, next)
			if _, known := came[next]; inSet && !known && next != from {
				came[next] = queue[0]
				queue = append(queue, next)
			}
		}
	}
	for at := to; at != from; {
		at = came[at]
		way = append(way, at)
	}
	slices.Reverse(way)
	return way
}

// shows reports whether each wait of a deadlock exists, and waits for the next one.
func (g *waitGraph) shows(d Deadlock) bool {
	for i := range d.Waits {
		at, next := g.find(d.Waits[i]), g.find(d.Waits[(i+1)%len(d.Waits)])
		switch {
		case at < 0, next < 0:
			return false
		case len(d.Waits) == 1:
			return g.nodes[at].alone
		case !slices.Contains(slices.Collect(g.edges(at)), next):
			return false
		}
	}
	return true
}

// find returns a wait, or -1.
func (g *waitGraph) find(w Wait) int {
	for _, n := range g.waits[w.Owner] {
		known := g.wait(n, n)
		sameTime := known.Started.Equal(w.Started) // one of them may have been stored in between
		if known.For, known.Started = w.For, w.Started; known == w && sameTime {
			return n
		}
	}
	return -1
}

func (g *waitGraph) wait(n, next int) Wait {
	q := &g.nodes[n]
	w := Wait{
		Resource: q.doc.ID, Owner: q.owner, LockID: q.LockID, Run: q.Label, Part: q.Part, Order: orderOf(q.Order), For: g.nodes[next].owner,
		Started: q.Since, NeverVictim: q.NeverVictim,
	}
	if q.Started != nil {
		w.Started = *q.Started
	}
	return w
}
