package inspect

import (
	"cmp"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Node is a party in a blocking tree: those beneath it wait for it.
type Node struct {
	Party Party `json:"party"`
	// Wait is what it waits for, beneath the party that is in its way; missing at a root.
	Wait *Entry `json:"wait,omitempty"`
	// Hold is what it has, or the place in the queue, by which it is in the way of those beneath it.
	Hold *Entry `json:"hold,omitempty"`
	// Deadlock says that it waits, through others, for one of those beneath it.
	Deadlock bool `json:"deadlock,omitempty"`
	// Doing is what Temporal says of a root's workflow.
	Doing *Doing `json:"doing,omitempty"`
	// Advice is one line on what to do about a root.
	Advice  string  `json:"advice,omitempty"`
	Waiting []*Node `json:"waiting,omitempty"`
	// More is how many others wait for it that are not listed.
	More int `json:"more,omitempty"`
}

// graph is who waits for what, as it was listed.
type graph struct {
	resources map[string]*Resource
	// waits are by owner.
	waits map[string][]*Entry
}

func graphOf(resources []Resource) *graph {
	g := &graph{resources: map[string]*Resource{}, waits: map[string][]*Entry{}}
	for i := range resources {
		r := &resources[i]
		g.resources[r.Name] = r
		for j := range r.Waiters {
			w := &r.Waiters[j]
			g.waits[w.Party.Owner] = append(g.waits[w.Party.Owner], w)
		}
	}
	return g
}

// link is one step from who waits to who is in the way.
type link struct{ wait, hold *Entry }

// mostPaths bounds what is followed of a graph in which many hold together.
const mostPaths = 200

// above returns the trees in which the owner waits, root blockers first.
func (g *graph) above(owner string) []*Node {
	var paths [][]link
	var walk func(owner string, path []link)
	walk = func(owner string, path []link) {
		ends := true
		for _, w := range g.waits[owner] {
			for _, h := range g.inTheWay(w) {
				if len(paths) == mostPaths {
					return
				}
				ends = false
				next := append(slices.Clip(path), link{w, h})
				if slices.ContainsFunc(next, func(l link) bool { return l.wait.Party.Owner == h.Party.Owner }) {
					paths = append(paths, next) // a circle
					continue
				}
				walk(h.Party.Owner, next)
			}
		}
		if ends && len(path) > 0 {
			paths = append(paths, path)
		}
	}
	walk(owner, nil)
	return treesOf(paths)
}

// treesOf joins paths that have their ends in common.
func treesOf(paths [][]link) (roots []*Node) {
	for _, path := range paths {
		last := path[len(path)-1]
		at := find(&roots, last.hold.Party)
		at.Hold = cmp.Or(at.Hold, last.hold)
		at.Deadlock = at.Deadlock || slices.ContainsFunc(path, func(l link) bool { return l.wait.Party.Owner == at.Party.Owner })
		for i := len(path) - 1; i >= 0; i-- {
			at = find(&at.Waiting, path[i].wait.Party)
			at.Wait = cmp.Or(at.Wait, path[i].wait)
			if i > 0 {
				at.Hold = cmp.Or(at.Hold, path[i-1].hold)
			}
		}
	}
	return roots
}

func find(nodes *[]*Node, p Party) *Node {
	for _, n := range *nodes {
		if n.Party.Owner == p.Owner {
			return n
		}
	}
	n := &Node{Party: p}
	*nodes = append(*nodes, n)
	return n
}

// inTheWay lists who keeps a waiter out: holders that its mode does not go with, or if there are
// none the waiter before it in the queue.
func (g *graph) inTheWay(w *Entry) []*Entry {
	r := g.resources[w.Resource]
	others := func(e *Entry) bool { return e.LockID != w.LockID && e.Party.Owner != w.Party.Owner }
	var out, sharing []*Entry
	for i := range r.Holders {
		h := &r.Holders[i]
		switch {
		case !others(h) || h.ExpiresIn <= 0:
		case h.Mode == lockcore.ModeExclusive || w.Mode == lockcore.ModeExclusive:
			out = append(out, h)
		default:
			sharing = append(sharing, h)
		}
	}
	if len(out) == 0 && w.Limit > 0 && len(sharing) >= w.Limit {
		out = sharing
	}
	if len(out) > 0 {
		return out
	}
	var before *Entry
	for i := range r.Waiters {
		if e := &r.Waiters[i]; others(e) && !e.Overdue && e.Position < w.Position {
			before = e
		}
	}
	if before == nil {
		return nil
	}
	return []*Entry{before}
}

// silentFor is for how long a holder may be silent before that is worth a word: it is renewed at a
// third of its TTL.
func silentFor(e *Entry) time.Duration {
	if e.ExpiresIn == lockcore.Forever {
		return time.Minute
	}
	return max(10*time.Second, (e.Silent+e.ExpiresIn)/2)
}
