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
	behind := map[string][]link{} // by the owner that is in the way
	blocked := map[string]bool{}
	for owner, waits := range g.waits {
		for _, w := range waits {
			for _, h := range g.inTheWay(w) {
				others := behind[h.Party.Owner]
				if len(others) == 0 || others[len(others)-1].wait != w { // it may hold by several entries
					behind[h.Party.Owner] = append(others, link{w, h})
				}
				blocked[owner] = true
			}
		}
	}
	owners := slices.SortedFunc(maps.Keys(behind), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(behind[b]), len(behind[a])), cmp.Compare(a, b))
	})
	shown := map[string]bool{}
	var grow func(n *Node, path []string)
	grow = func(n *Node, path []string) {
		if shown[n.Party.Owner] {
			return
		}
		shown[n.Party.Owner] = true
		links := behind[n.Party.Owner]
		slices.SortFunc(links, func(a, b link) int {
			return cmp.Or(cmp.Compare(b.wait.For, a.wait.For), cmp.Compare(a.wait.Party.Owner, b.wait.Party.Owner))
		})
		n.More = max(0, len(links)-mostBranches)
		path = append(slices.Clip(path), n.Party.Owner)
		for _, l := range links[:len(links)-n.More] {
			n.Hold = cmp.Or(n.Hold, l.hold)
			child := &Node{Party: l.wait.Party, Wait: l.wait}
			n.Waiting = append(n.Waiting, child)
			if child.Deadlock = slices.Contains(path, child.Party.Owner); !child.Deadlock {
				grow(child, path)
			}
		}
	}
	for _, circles := range []bool{false, true} {
		for _, owner := range owners {
			if blocked[owner] == circles && !shown[owner] {
				root := &Node{Party: behind[owner][0].hold.Party}
				grow(root, nil)
				roots = append(roots, root)
			}
		}
	}
	return roots
}
