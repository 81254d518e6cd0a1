package inspect

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// mostBranches is how many waiters a tree of a forest shows beneath one party.
const mostBranches = 50

// Forest lists who waits for whom as trees, root blockers first. The root with the most waiters
// directly beneath it comes first. A party that waits for several is shown with its own waiters
// once. Parties that wait for each other in a circle, and for no other, stand beneath one of them.
func (s *Site) Forest(ctx context.Context) ([]*Node, error) {
	resources, err := s.Resources(ctx, lockcore.Filter{Contended: true})
	if err != nil {
		return nil, err
	}
	return graphOf(resources).forest(), nil
}

func (g *graph) forest() (roots []*Node) {
	f := forest{behind: map[tie][]link{}, shown: map[tie]bool{}}
	blocked := map[tie]bool{}
	for _, waits := range g.waits {
		for _, w := range waits {
			for _, h := range g.inTheWay(w) {
				t := tieOf(h)
				others := f.behind[t]
				if len(others) == 0 || others[len(others)-1].wait != w { // it may hold by several entries
					f.behind[t] = append(others, link{w, h})
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
	for _, parties := range []map[string][]tie{free, circles} {
		size := func(owner string) (n int) {
			for _, t := range parties[owner] {
				n += len(f.behind[t])
			}
			return n
		}
		owners := slices.SortedFunc(maps.Keys(parties), func(a, b string) int { return cmp.Or(cmp.Compare(size(b), size(a)), cmp.Compare(a, b)) })
		for _, owner := range owners {
			ties := slices.DeleteFunc(parties[owner], func(t tie) bool { return f.shown[t] })
			if len(ties) > 0 {
				root := &Node{Party: f.behind[ties[0]][0].hold.Party}
				f.grow(root, ties, nil)
				roots = append(roots, root)
			}
		}
	}
	return roots
}

type forest struct {
	// behind are the waits behind the entries that are tied to the same.
	behind map[tie][]link
	shown  map[tie]bool
}

// grow hangs beneath a party what waits behind what it has by some ties. above are those of the
// parties that it stands beneath.
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
	n.More = max(0, len(links)-mostBranches)
	above = append(slices.Clip(above), ties...)
	for _, l := range links[:len(links)-n.More] {
		n.Hold = cmp.Or(n.Hold, l.hold)
		child := &Node{Party: l.wait.Party, Wait: l.wait}
		n.Waiting = append(n.Waiting, child)
		own := tiesTo(l.wait)
		if child.Deadlock = slices.ContainsFunc(own, func(t tie) bool { return slices.Contains(above, t) }); !child.Deadlock {
			f.grow(child, own, above)
		}
	}
}
