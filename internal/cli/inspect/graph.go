package inspect

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Node is a party in a blocking tree. The parties below it wait for it.
type Node struct {
	Party Party `json:"party"`
	// Wait is its wait for the party above it. Roots have none.
	Wait *Entry `json:"wait,omitempty"`
	// Children has the IDs of the child workflow for which it waits instead of for a lock, of the child workflow for which that one waits, and so
	// on. The last one is above it, or below a root.
	Children []string `json:"children,omitempty"`
	// Hold is the hold, or the wait ahead in the queue, with which it blocks the nodes below it.
	Hold *Entry `json:"hold,omitempty"`
	// Deadlock is set if it waits, perhaps through others, for a party below it.
	Deadlock bool `json:"deadlock,omitempty"`
	// Doing describes the workflow of a root.
	Doing *Doing `json:"doing,omitempty"`
	// Advice is one line on what to do about a root.
	Advice  string  `json:"advice,omitempty"`
	Waiting []*Node `json:"waiting,omitempty"`
	// More is the number of other waiters that are not listed.
	More int `json:"more,omitempty"`
	// Elsewhere is the number of other waiters that [Site.Groups] lists elsewhere.
	Elsewhere int `json:"-"`
	// draining is an earlier attempt of the holder, which was cut off.
	draining *Entry
	// relative is another workflow with its owner that waits for its lock. No search for deadlocks finds that: one owner is one party.
	relative string
	// behind is the entry of the party above that blocks Wait.
	behind *Entry
}

// graph has the waits of a listing.
type graph struct {
	entries map[obstacle][]*Entry
	waits   map[string][]*Entry // by owner
	// ofWorkflow has the waits of each workflow, by the owner that it is by default.
	ofWorkflow map[string][]*Entry
	// asker asks Temporal about child workflows. Without one, only locks count.
	asker *asker
}

// obstacle names an entry as Status.BlockedBy does.
type obstacle struct {
	resource, lockID, part string
	state                  lockcore.State
}

func graphOf(resources []Resource) *graph {
	g := &graph{entries: map[obstacle][]*Entry{}, waits: map[string][]*Entry{}, ofWorkflow: map[string][]*Entry{}}
	for i := range resources {
		r := &resources[i]
		for j := range r.Holders {
			g.add(&r.Holders[j])
		}
		for j := range r.Waiters {
			w := &r.Waiters[j]
			g.add(w)
			g.waits[w.Party.Owner] = append(g.waits[w.Party.Owner], w)
			if p := w.Party; p.Workflow != "" {
				of := wire.Run{Namespace: p.Namespace, WorkflowID: p.Workflow}.Owner()
				g.ofWorkflow[of] = append(g.ofWorkflow[of], w)
			}
		}
	}
	return g
}

func (g *graph) add(e *Entry) {
	o := obstacle{e.Resource, e.LockID, e.Part, e.State}
	g.entries[o] = append(g.entries[o], e)
}

// link is an edge of the graph: the hold, or the wait ahead in the queue, blocks the wait. via is the way to the next wait if the holder itself
// waits for no lock, but for a child workflow.
type link struct {
	wait, hold *Entry
	via        []string
}

// blockers lists the entries that block a waiter, by the rules with which locks are granted.
func (g *graph) blockers(w *Entry) (found []*Entry) {
	for _, o := range w.BlockedBy {
		found = append(found, g.entries[obstacle{w.Resource, o.LockID, o.Part, o.State}]...)
	}
	return found
}

// tie identifies the waits that must end before an entry can end: all waits of an owner, those of a lock ID, or a
// single wait. A claim and a hold that drains end by themselves, so each is tied to nothing but itself.
type tie struct {
	owner, lockID string
	wait, self    *Entry
}

// tieOf returns the tie of an entry that blocks others. A party of plain Go is one thread of work, and so is a workflow
// with the locks that it keeps. A step waits only for the rest of its own locks.
func tieOf(e *Entry) tie {
	switch {
	case e.State == lockcore.StateWaiting:
		return tie{wait: e}
	case e.State != lockcore.StateHolding:
		return tie{self: e}
	case e.Run == "", e.isWorkflows():
		return tie{owner: e.Party.Owner}
	default:
		return tie{lockID: e.LockID}
	}
}

// tiesTo returns the ties of all entries that cannot end before a wait has ended.
func tiesTo(w *Entry) []tie {
	return []tie{{owner: w.Party.Owner}, {lockID: w.LockID}, {wait: w}}
}

// tiedTo lists the waits that must end before an entry can end.
func (g *graph) tiedTo(e *Entry) (waits []*Entry) {
	t := tieOf(e)
	switch {
	case t.wait != nil:
		return []*Entry{t.wait}
	case t.self != nil:
		return nil
	}
	for _, w := range g.waits[e.Party.Owner] {
		if t.owner != "" || t.lockID == w.LockID {
			waits = append(waits, w)
		}
	}
	return waits
}

// maxPaths bounds the search in a graph with many holders per resource.
const maxPaths = 200

// path leads from a wait to a root blocker, or back to one of its own waits.
type path struct {
	links    []link
	circular bool
	// ofOne is set if a single wait, of a workflow, is the whole circle, because it has the owner of the holder.
	ofOne bool
	// parent waits for the first wait's workflow, which is a child workflow of its own, by way of via.
	parent Party
	via    []string
}

// above returns the blocking trees that contain the waits, one for each root blocker.
func (g *graph) above(ctx context.Context, waits []Entry) ([]*Node, error) {
	var paths []path
	var err error
	for i := range waits {
		if w := g.find(&waits[i]); w != nil {
			if paths, err = g.follow(ctx, w, nil, paths); err != nil {
				return nil, err
			}
		}
	}
	return treesOf(paths), nil
}

// find returns the graph's own entry of a wait, or nil.
func (g *graph) find(w *Entry) *Entry {
	for _, o := range g.waits[w.Party.Owner] {
		if o.Resource == w.Resource && o.LockID == w.LockID && o.Part == w.Part && o.Order == w.Order {
			return o
		}
	}
	return nil
}

// follow appends the paths that begin with some links and continue with a wait.
func (g *graph) follow(ctx context.Context, w *Entry, before []link, paths []path) ([]path, error) {
	blockers := g.blockers(w)
	if len(blockers) == 0 && len(before) > 0 {
		paths = append(paths, path{links: before})
	}
	for _, e := range blockers {
		if len(paths) >= maxPaths {
			break
		}
		waits, err := g.waitsBefore(ctx, e)
		if err != nil {
			return nil, err
		}
		if len(waits) == 0 {
			paths = append(paths, path{links: append(slices.Clip(before), link{wait: w, hold: e})})
		}
		for _, next := range waits {
			links := append(slices.Clip(before), link{w, e, next.via})
			if slices.ContainsFunc(links, func(l link) bool { return l.wait == next.wait }) {
				paths = append(paths, path{links: links, circular: true, ofOne: next.wait == w && w.Run != "" && next.via == nil})
			} else if paths, err = g.follow(ctx, next.wait, links, paths); err != nil {
				return nil, err
			}
		}
	}
	return paths, nil
}

// waitsBefore lists the waits that must end before an entry can end: those of its party, or else, of a hold that a workflow keeps, those of its
// child workflows.
func (g *graph) waitsBefore(ctx context.Context, e *Entry) (all []childWait, err error) {
	for _, w := range g.tiedTo(e) {
		all = append(all, childWait{wait: w})
	}
	if len(all) == 0 && e.isWorkflows() {
		return g.childWaits(ctx, e.Party, e.Run)
	}
	return all, nil
}

// treesOf merges paths that end in the same parties.
func treesOf(paths []path) (roots []*Node) {
	for _, p := range paths {
		last := p.links[len(p.links)-1]
		root := findOrAdd(&roots, last.hold.Party)
		if last.hold.State == lockcore.StateDraining {
			root.draining = last.hold
		}
		if root.Hold == nil || root.Hold == root.draining {
			root.Hold = last.hold
		}
		if root.Deadlock = root.Deadlock || p.circular; p.circular && root.Children == nil {
			root.Children = last.via
		}
		if p.ofOne {
			root.relative = last.wait.Party.Workflow
		}
		at := root
		for i := len(p.links) - 1; i >= 0; i-- {
			at = findOrAdd(&at.Waiting, p.links[i].wait.Party)
			if at.Wait == nil {
				at.Wait, at.behind = p.links[i].wait, p.links[i].hold
			}
			if i == 0 {
				break
			}
			if before := p.links[i-1]; before.via != nil {
				at = findOrAdd(&at.Waiting, before.hold.Party)
				at.Children = before.via
			}
			at.Hold = cmp.Or(at.Hold, p.links[i-1].hold)
		}
		if p.via != nil && p.parent.Owner != root.Party.Owner {
			findOrAdd(&at.Waiting, p.parent).Children = p.via
		}
	}
	return roots
}

func findOrAdd(nodes *[]*Node, p Party) *Node {
	for _, n := range *nodes {
		if n.Party.Owner == p.Owner {
			return n
		}
	}
	n := &Node{Party: p}
	*nodes = append(*nodes, n)
	return n
}

// maxBranches is the number of waiters that a tree of the forest shows below one party.
const maxBranches = 50

// Forest arranges all waits of a listing as trees, root blockers first. The root with the most direct waiters comes
// first. A party with several waits has its own waiters below the first of them only. Parties that wait for each other
// in a circle, and for no other party, are below one of them.
func (s *Site) Forest(resources []Resource) (roots []*Node) {
	g := graphOf(resources)
	f := forest{behind: map[tie][]link{}, shown: map[tie]bool{}}
	blocked := map[tie]bool{}
	for _, waits := range g.waits {
		for _, w := range waits {
			for _, e := range g.blockers(w) {
				t := tieOf(e)
				links := f.behind[t]
				if len(links) == 0 || links[len(links)-1].wait != w { // a party may block with several entries
					f.behind[t] = append(links, link{wait: w, hold: e})
				}
				for _, own := range tiesTo(w) {
					blocked[own] = true
				}
			}
		}
	}
	free, circles := map[string][]tie{}, map[string][]tie{} // by owner
	for t, links := range f.behind {
		owner := links[0].hold.Party.Owner
		if blocked[t] {
			circles[owner] = append(circles[owner], t)
		} else {
			free[owner] = append(free[owner], t)
		}
	}
	return append(f.roots(free), f.roots(circles)...)
}

// forest is the state while trees are built.
type forest struct {
	// behind has the waits that are blocked by entries with the same tie.
	behind map[tie][]link
	// shown has the ties whose waits are in a tree already.
	shown map[tie]bool
}

// roots returns a tree for each owner that has ties which no tree shows yet.
func (f *forest) roots(ties map[string][]tie) (roots []*Node) {
	direct := map[string]int{}
	for owner, own := range ties {
		for _, t := range own {
			direct[owner] += len(f.behind[t])
		}
	}
	owners := slices.SortedFunc(maps.Keys(ties), func(a, b string) int { return cmp.Or(cmp.Compare(direct[b], direct[a]), cmp.Compare(a, b)) })
	for _, owner := range owners {
		own := slices.DeleteFunc(ties[owner], func(t tie) bool { return f.shown[t] })
		if len(own) > 0 {
			root := &Node{Party: f.behind[own[0]][0].hold.Party}
			f.grow(root, own, nil)
			roots = append(roots, root)
		}
	}
	return roots
}

// grow adds the waits behind some ties of a party below it. above has the ties of the parties above, to find circles.
func (f *forest) grow(n *Node, ties, above []tie) {
	var links []link
	for _, t := range ties {
		if !f.shown[t] {
			links = append(links, f.behind[t]...)
			f.shown[t] = true
		}
	}
	slices.SortFunc(links, func(a, b link) int {
		return cmp.Or(cmp.Compare(b.wait.For, a.wait.For), cmp.Compare(a.wait.Party.Owner, b.wait.Party.Owner))
	})
	n.More = max(0, len(links)-maxBranches)
	above = append(slices.Clip(above), ties...)
	for _, l := range links[:len(links)-n.More] {
		n.Hold = cmp.Or(n.Hold, l.hold)
		child := &Node{Party: l.wait.Party, Wait: l.wait, behind: l.hold}
		n.Waiting = append(n.Waiting, child)
		own := tiesTo(l.wait)
		child.Deadlock = slices.ContainsFunc(own, func(t tie) bool { return slices.Contains(above, t) })
		if !child.Deadlock {
			f.grow(child, own, above)
		}
	}
}
