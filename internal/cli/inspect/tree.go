package inspect

import (
	"cmp"
	"slices"
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

// mostPaths bounds what is followed of a graph in which many hold together.
const mostPaths = 200

// path leads from a wait to what is in its way in the end.
type path struct {
	links []link
	// circle says that it comes back to one of its waits.
	circle bool
}

// above returns the trees that the waits stand in, root blockers first.
func (g *graph) above(waits []Entry) []*Node {
	var paths []path
	var walk func(w *Entry, before []link)
	walk = func(w *Entry, before []link) {
		blockers := g.inTheWay(w)
		if len(blockers) == 0 && len(before) > 0 {
			paths = append(paths, path{links: before})
		}
		for _, h := range blockers {
			if len(paths) >= mostPaths {
				return
			}
			links := append(slices.Clip(before), link{w, h})
			waits := g.tied(h)
			if len(waits) == 0 {
				paths = append(paths, path{links: links})
			}
			for _, next := range waits {
				if slices.ContainsFunc(links, func(l link) bool { return l.wait == next }) {
					paths = append(paths, path{links, true})
					continue
				}
				walk(next, links)
			}
		}
	}
	for i := range waits {
		if w := g.find(&waits[i]); w != nil {
			walk(w, nil)
		}
	}
	return treesOf(paths)
}

// find is the graph's own entry of a wait.
func (g *graph) find(w *Entry) *Entry {
	own := g.waits[w.Party.Owner]
	i := slices.IndexFunc(own, func(o *Entry) bool {
		return o.Resource == w.Resource && o.LockID == w.LockID && o.Part == w.Part && o.Order == w.Order
	})
	if i < 0 {
		return nil
	}
	return own[i]
}

// treesOf joins paths that have their ends in common.
func treesOf(paths []path) (roots []*Node) {
	for _, p := range paths {
		last := p.links[len(p.links)-1]
		at := find(&roots, last.hold.Party)
		at.Hold = cmp.Or(at.Hold, last.hold)
		at.Deadlock = at.Deadlock || p.circle
		for i := len(p.links) - 1; i >= 0; i-- {
			at = find(&at.Waiting, p.links[i].wait.Party)
			at.Wait = cmp.Or(at.Wait, p.links[i].wait)
			if i > 0 {
				at.Hold = cmp.Or(at.Hold, p.links[i-1].hold)
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
