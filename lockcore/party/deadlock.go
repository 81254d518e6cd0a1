package party

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Wait is an edge of the wait-for graph: a request in a queue, and the owner for which it waits.
type Wait struct {
	Resource string `json:"resource"`
	// Owner is the owner of the waiting request, which LockID, Run, Part and Order name. For is the owner of
	// a hold that blocks it, or of a request ahead of it in the queue.
	Owner  string `json:"owner"`
	LockID string `json:"lockId"`
	Run    string `json:"run,omitempty"`
	Part   string `json:"part,omitempty"`
	Order  Order  `json:"order"`
	For    string `json:"for"`
	// Started is the request's, or the time at which it queued. NeverVictim is the request's.
	Started     time.Time `json:"started"`
	NeverVictim bool      `json:"neverVictim,omitempty"`
}

// Deadlock is a cycle of waits: each waits for the owner of the next.
type Deadlock struct {
	Waits []Wait `json:"waits"`
	// Victim is the index of the wait that must end: the owner that started last, and of several the one
	// with the greatest name. Requests with NeverVictim are excluded, unless all have set it.
	Victim int `json:"victim"`
}

// String describes the cycle of waits.
func (d Deadlock) String() string {
	parts := make([]string, len(d.Waits))
	for i, w := range d.Waits {
		parts[i] = fmt.Sprintf("%s waits for %s on %s", w.Owner, w.For, w.Resource)
	}
	return strings.Join(parts, ", ")
}

// Deadlocks returns the cycles in the current wait-for graph: for each owner in a cycle a shortest one through
// it, each once. A wait for room under a limit of more than 1 is not an edge, since any of several holders may
// end it.
//
// It reads all documents with a queue, but not at one moment: a cycle is certain only when it is found twice,
// and then it lasts until a request gives up.
func (l *Locker) Deadlocks(ctx context.Context) ([]Deadlock, error) {
	var docs []rules.Document
	for d, err := range l.list(ctx, rules.Query{Waiting: true}) {
		if errors.Is(err, ErrDamaged) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("lockstep: read the queues: %w", err)
		}
		docs = append(docs, d)
	}
	return deadlocksIn(docs), nil
}

// BreakDeadlocks ends the current deadlocks: it withdraws the victim of each from the queue, if it still
// waits, and returns the deadlocks that it ended. The victim gets ErrDeadlock from its Acquire, from Recheck,
// and from the next Enter of its part on that resource, with any order. After that Enter it may queue again.
// Lockers with waiters do this in the background.
func (l *Locker) BreakDeadlocks(ctx context.Context) ([]Deadlock, error) {
	first, err := l.Deadlocks(ctx)
	if err != nil || len(first) == 0 {
		return nil, err
	}
	// Documents are read one by one, so a search can find waits that did not exist at the same time. Few of
	// these are found twice.
	second, err := l.Deadlocks(ctx)
	if err != nil {
		return nil, err
	}
	var broken []Deadlock
	var errs []error
	victims := map[Wait]bool{}
	for _, d := range second {
		v := d.Waits[d.Victim]
		v.For = ""
		if victims[v] || !slices.ContainsFunc(first, func(f Deadlock) bool { return slices.Equal(f.Waits, d.Waits) }) {
			continue
		}
		victims[v] = true
		if exists, err := l.stillExists(ctx, d); !exists {
			errs = append(errs, err)
			continue
		}
		ended, err := l.withdraw(ctx, d.Waits[d.Victim], d.String())
		errs = append(errs, err)
		if ended {
			broken = append(broken, d)
		}
	}
	return broken, errors.Join(errs...)
}

// stillExists reports whether all waits of a deadlock exist after an acknowledged write to each of its
// documents, the victim's last. The searches may have read old documents of different times, and so waits that
// never existed together. A wait that they have read, and that still exists, existed all the time in between.
func (l *Locker) stillExists(ctx context.Context, d Deadlock) (bool, error) {
	var docs []rules.Document
	names := make([]string, len(d.Waits))
	for i := range d.Waits {
		names[i] = d.Waits[(d.Victim+1+i)%len(d.Waits)].Resource
	}
	for i, name := range names {
		if slices.Contains(names[i+1:], name) {
			continue
		}
		a, err := l.do(ctx, "settle", Order{}, l.call(ctx, rules.Settle{Policy: l.cfg.policy(), Resource: name}, ending{}))
		if err != nil {
			return false, err
		}
		docs = append(docs, *a.After)
	}
	return newWaitGraph(docs).shows(d), nil
}

// deadlockReason begins the reason with which a victim is withdrawn. The victim recognizes it.
const deadlockReason = "deadlock: "

// withdraw withdraws a victim from the queue, and reports whether it still waited.
func (l *Locker) withdraw(ctx context.Context, w Wait, cycle string) (bool, error) {
	const most = 1024 // of a record that every write of the document carries along
	reason := deadlockReason + cycle
	if len(reason) > most {
		reason = strings.ToValidUTF8(reason[:most], "") + "…"
	}
	op := rules.Withdraw{
		Policy: l.cfg.policy(), Resource: w.Resource, LockID: w.LockID, Part: w.Part, Order: w.Order.number(), Reason: reason,
	}
	victim := Lease{Resource: w.Resource, LockID: w.LockID, Part: w.Part, Order: w.Order}
	cycle = strings.TrimPrefix(reason, deadlockReason)
	a, err := l.end(ctx, telemetry.SpanDeadlock, victim, ending{cycle: cycle, owner: w.Owner}, op)
	if err != nil || a.Outcome != rules.Granted { // another process has ended the deadlock
		return false, err
	}
	l.tel.count(ctx, l.tel.deadlocks, w.Resource)
	return true, nil
}

// waitGraph is the wait-for graph of documents with queues. Its nodes are positions in queues. A node waits
// for those ahead of it in its queue, and for each node to which a hold that blocks it is tied: such a hold
// does not end while that node waits. Nodes in a cycle wait forever. Edges are computed on demand, since a
// queue of n has n²/2.
type waitGraph struct {
	docs []rules.Document
	// owners are the owners of entries, by document and entry.
	owners [][]string
	// leads are, by document and waiter, the indexes of the earlier waiters that a waiter will join once they
	// are granted, or -1.
	leads [][]int
	// waits are the nodes of each owner, in the order of the documents and queues.
	waits map[string][]place
}

type place struct{ doc, waiter int }

// deadlocksIn finds for each owner in a cycle a shortest cycle, each once. The same documents give the same
// cycles in every process.
func deadlocksIn(docs []rules.Document) []Deadlock {
	g := newWaitGraph(docs)
	var out []Deadlock
	covered := map[string]bool{}
	for _, start := range g.starts() {
		if covered[g.owner(start)] {
			continue
		}
		if waits := g.cycleThrough(start); waits != nil {
			for _, w := range waits {
				covered[w.Owner] = true
			}
			out = append(out, Deadlock{Waits: waits, Victim: victimOf(waits)})
		}
	}
	return out
}

func newWaitGraph(docs []rules.Document) *waitGraph {
	g := &waitGraph{docs: docs, owners: make([][]string, len(docs)), leads: make([][]int, len(docs)), waits: map[string][]place{}}
	for i := range docs {
		d := &docs[i]
		g.owners[i], g.leads[i] = ownersOf(d), leadsOf(d)
		queue := d.Queue()
		for j := range d.Waiters {
			w := &d.Waiters[j]
			if w.Waits(d.At) && queue.Next(w).Answer != rules.NextGo {
				p := place{i, j}
				g.waits[g.owner(p)] = append(g.waits[g.owner(p)], p)
			}
		}
	}
	return g
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

// starts returns the waits to which holds are tied, by owner. Every deadlock contains one.
func (g *waitGraph) starts() []place {
	var out []place
	for i := range g.docs {
		for j := range g.docs[i].Entries {
			out = append(out, g.tied(i, j)...)
		}
	}
	slices.SortFunc(out, func(a, b place) int {
		return cmp.Or(cmp.Compare(g.owner(a), g.owner(b)), cmp.Compare(a.doc, b.doc), cmp.Compare(a.waiter, b.waiter))
	})
	return slices.Compact(out)
}

func (g *waitGraph) waiter(p place) *rules.Waiter { return &g.docs[p.doc].Waiters[p.waiter] }

func (g *waitGraph) owner(p place) string {
	w := g.waiter(p)
	return cmp.Or(w.Owner, w.LockID)
}

// tied returns the waits to which an entry is tied: the entry does not end before they do. These are all waits
// of its owner, which is one thread of work. A running part of a workflow is tied only to the waits of its own
// step, and what a step within the workflow keeps to those of that step. Draining parts and claims end by
// themselves.
func (g *waitGraph) tied(doc, entry int) []place {
	e := &g.docs[doc].Entries[entry]
	if !e.Holds() || !e.Alive(g.docs[doc].At) {
		return nil
	}
	waits := g.waits[g.owners[doc][entry]]
	if e.Label == "" || (e.State == rules.StateKept && e.Within == "") {
		return waits
	}
	return slices.DeleteFunc(slices.Clone(waits), func(p place) bool {
		w := g.waiter(p)
		return w.LockID != e.LockID || (w.Part != e.Part && e.State != rules.StateKept)
	})
}

func (g *waitGraph) cycleThrough(start place) []Wait {
	came := map[place]place{} // the node from which each node was reached first
	// seen has for each queue the number of waiters that were visited as being ahead of another.
	seen := make([]int, len(g.docs))
	queue := []place{start}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, next := range g.waitedFor(at, seen) {
			if next == start {
				return g.path(came, start, at)
			}
			if _, known := came[next]; !known && next != at {
				came[next] = at
				queue = append(queue, next)
			}
		}
	}
	return nil
}

func (g *waitGraph) path(came map[place]place, start, last place) []Wait {
	var out []Wait
	next := start
	for at := last; ; at = came[at] {
		out = append(out, g.wait(at, next))
		if next = at; at == start {
			break
		}
	}
	slices.Reverse(out)
	return out
}

// waitedFor returns the waits that must end before the wait at p does, except those ahead of it that were
// returned before. A party that may join its own hold waits only for running parts that block it. A waiter that
// will join an earlier one of its lock ID waits for what that one waits for: giving up itself would end no
// wait. Room under a limit of more than 1 makes no edge.
func (g *waitGraph) waitedFor(p place, seen []int) []place {
	d, w, self := &g.docs[p.doc], g.waiter(p), g.owner(p)
	party := w.Party()
	joins := d.Covered(party)
	if lead := g.leads[p.doc][p.waiter]; lead >= 0 && !joins {
		return g.waitedFor(place{p.doc, lead}, seen)
	}
	if party.Limit == 1 && !joins { // a limit is for new holds
		party.Mode = rules.Exclusive
	}
	var out []place
	for i := range d.Entries {
		e := &d.Entries[i]
		if g.owners[p.doc][i] != self && e.Blocks(party, d.At) && (!joins || e.State == rules.StateRunning) {
			out = append(out, g.tied(p.doc, i)...)
		}
	}
	if joins {
		return out
	}
	for i := seen[p.doc]; i < p.waiter; i++ {
		if a := (place{p.doc, i}); d.Precedes(g.waiter(a)) && g.owner(a) != self && g.waiter(a).LockID != w.LockID {
			out = append(out, a)
		}
	}
	seen[p.doc] = max(seen[p.doc], p.waiter)
	return out
}

// shows reports whether each wait of a deadlock exists, and waits for the next one.
func (g *waitGraph) shows(d Deadlock) bool {
	for i := range d.Waits {
		at, next := g.placeOf(d.Waits[i]), g.placeOf(d.Waits[(i+1)%len(d.Waits)])
		if at == nil || next == nil || !slices.Contains(g.waitedFor(*at, make([]int, len(g.docs))), *next) {
			return false
		}
	}
	return true
}

// placeOf returns the position of a wait, or nil.
func (g *waitGraph) placeOf(w Wait) *place {
	for _, p := range g.waits[w.Owner] {
		known := g.wait(p, p)
		sameTime := known.Started.Equal(w.Started) // one of them may have been stored in between
		if known.For, known.Started = w.For, w.Started; known == w && sameTime {
			return &p
		}
	}
	return nil
}

func (g *waitGraph) wait(p, next place) Wait {
	q := g.waiter(p)
	w := Wait{
		Resource: g.docs[p.doc].ID, Owner: g.owner(p), LockID: q.LockID, Run: q.Label, Part: q.Part, Order: orderOf(q.Order), For: g.owner(next),
		Started: q.Since, NeverVictim: q.NeverVictim,
	}
	if q.Started != nil {
		w.Started = *q.Started
	}
	return w
}

// victimOf returns the index of the wait that must end: see Deadlock.Victim.
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
