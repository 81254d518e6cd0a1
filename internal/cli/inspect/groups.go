package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Group is a set of root blockers, and the waits that all of them block, such as the holders of a semaphore and its queue.
type Group struct {
	Roots   []*Node
	Waiting []*Node
	// More is the number of other waiters that are not listed.
	More int
}

// Groups arranges blocking trees so that each wait is listed once. A root blocker is in several groups if it blocks some waits with others
// and some alone. A wait further down is listed below the first of its blockers.
func (s *Site) Groups(roots []*Node) (groups []Group) {
	blockers := map[any][]int{} // by waiter: the roots that block it
	for i, root := range roots {
		for _, child := range root.Waiting {
			blockers[child.waiter()] = append(blockers[child.waiter()], i)
		}
	}
	at, listed := map[string]int{}, map[any]bool{}
	for i, root := range roots {
		last := -1
		for _, child := range root.Waiting {
			behind := blockers[child.waiter()]
			key := fmt.Sprint(behind)
			g, known := at[key]
			if !known {
				g = len(groups)
				at[key] = g
				groups = append(groups, s.groupOf(roots, child.waiter(), behind))
			}
			if last = g; behind[0] == i {
				groups[g].Waiting = append(groups[g].Waiting, child)
				listed[child.waiter()] = true
			}
		}
		if last < 0 {
			groups = append(groups, Group{Roots: []*Node{root}})
			continue
		}
		groups[last].More = max(groups[last].More, root.More)
	}
	for _, g := range groups {
		for _, child := range g.Waiting {
			child.listOnce(listed)
		}
	}
	return groups
}

// waiter identifies a node below others: by its wait or, if it waits for a child workflow and not for a lock, by its party.
func (n *Node) waiter() any {
	if n.Wait == nil {
		return n.Party
	}
	return n.Wait
}

// groupOf returns a group of the root blockers of a waiter, without their waiters. Each has the hold that blocks it.
func (s *Site) groupOf(roots []*Node, waiter any, blockers []int) (g Group) {
	for _, i := range blockers {
		root := *roots[i]
		child := root.Waiting[slices.IndexFunc(root.Waiting, func(n *Node) bool { return n.waiter() == waiter })]
		if child.behind != nil && child.behind != root.Hold {
			if root.Hold = child.behind; root.Advice != "" {
				root.Advice = s.advise(&root) + root.earlierAttempt()
			}
		}
		root.Waiting, root.More = nil, 0
		g.Roots = append(g.Roots, &root)
	}
	return g
}

// listOnce removes the waits below a node that are listed already, counts them in Elsewhere, and marks the others as listed.
func (n *Node) listOnce(listed map[any]bool) {
	var first []*Node
	for _, child := range n.Waiting {
		if listed[child.waiter()] {
			n.Elsewhere++
			continue
		}
		listed[child.waiter()] = true
		child.listOnce(listed)
		first = append(first, child)
	}
	n.Waiting = first
}

// HoldersIn returns the holders of a resource of a complete listing, each with the advice of [Site.WhyIn] if it waits for nothing, and the
// root blockers of the holders that wait. Like WhyIn, it asks Temporal about the first ten workflows among all of them.
func (s *Site) HoldersIn(ctx context.Context, r *Resource, resources []Resource) (holders, above []*Node, err error) {
	g := graphOf(resources)
	g.asker = s.newAsker(maxDescribed)
	var free []*Node
	var paths []path
	followed := map[*Entry]bool{}
	for i := range r.Holders {
		n := &Node{Party: r.Holders[i].Party, Hold: &r.Holders[i]}
		holders = append(holders, n)
		waits, before := g.tiedTo(n.Hold), len(paths)
		if len(waits) == 0 && n.Hold.isWorkflows() {
			if paths, err = g.followChildren(ctx, n.Party, n.Hold.Run, paths); err != nil {
				return nil, nil, err
			}
		}
		if len(waits) == 0 && len(paths) == before {
			free = append(free, n)
		}
		for _, w := range waits {
			if followed[w] {
				continue
			}
			followed[w] = true
			if paths, err = g.follow(ctx, w, nil, paths); err != nil {
				return nil, nil, err
			}
		}
	}
	above = treesOf(paths)
	return holders, above, g.asker.describeRoots(ctx, slices.Concat(free, above))
}

// Stuck returns the root blockers of a complete listing that others wait for in vain until a person does something, with the advice of
// [Site.WhyIn]. It asks Temporal about the ten workflows with the most waiters. Deadlocks and orphans, which end by themselves, are not among
// them.
func (s *Site) Stuck(ctx context.Context, resources []Resource) ([]*Node, error) {
	roots := s.Forest(resources)
	err := s.newAsker(maxDescribed).describeRoots(ctx, roots)
	return slices.DeleteFunc(roots, func(n *Node) bool { return !n.stuck() }), err
}

// failedOften is the attempt from which on an activity that others wait for is reported.
const failedOften = 3

// stuck reports whether the workflow of a root blocker needs a person.
func (n *Node) stuck() bool {
	h, d := n.Hold, n.Doing
	switch {
	case h == nil || h.State != lockcore.StateHolding || d == nil || d.Reason != "":
		return false
	case d.Status == Unknown:
		return true
	case !d.open:
		return false
	case d.Status == "Paused" || d.TaskFailures > 0:
		return true
	}
	i := slices.IndexFunc(d.Activities, func(a Activity) bool { return !a.Waits })
	if i < 0 {
		return false
	}
	switch a := d.Activities[i]; a.State {
	case "paused":
		return true
	case "running":
		return slices.ContainsFunc(h.Running, func(r lockcore.Running) bool { return r.Silent > usualSilence(r) })
	case "in back-off":
		return a.Attempt >= failedOften
	default:
		return time.Since(a.Since) >= pickUp
	}
}

// Forgotten returns the waiters that are passed over because they do not ask again, and those that are never granted, each with the reason.
func (s *Site) Forgotten(resources []Resource) (waits []Forgotten) {
	for i := range resources {
		r := &resources[i]
		for j := range r.Waiters {
			if w := &r.Waiters[j]; w.reason() != "" {
				waits = append(waits, Forgotten{*w, w.reason()})
			}
		}
	}
	return waits
}

// Forgotten is a wait that no release ends.
type Forgotten struct {
	Entry
	Reason string
}

// reason describes why a waiter is not granted anything even if all holders release, or returns the empty string.
func (e *Entry) reason() string {
	p := e.Policy
	switch {
	case e.Overdue:
		return "overdue: passed over until it asks again"
	case p != nil && p.Unreadable:
		return "" // the doctor reports the policy
	case e.Mode == lockcore.ModePool && !isPool(p) && e.Member == "":
		return "there is no such pool: an operator has removed it"
	case e.Mode == lockcore.ModePool && isPool(p) && len(p.Out) == len(p.Members):
		return "no member of the pool is in service"
	case e.Mode != lockcore.ModePool && isPool(p):
		return "this is a pool, which grants only requests for a member"
	}
	return ""
}
