package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Locks show that a party waits for another one only if it waits for a lock. A workflow that waits for a child workflow waits for the child's
// locks too, and if the child waits for a lock of its parent, neither can continue. The search for deadlocks reads only locks and cannot find
// that. So Why asks Temporal about the child workflows of a root blocker.

// maxGenerations bounds the child workflows of child workflows that are asked about.
const maxGenerations = 5

// asker asks Temporal about workflow runs of a site, about each once.
type asker struct {
	site *Site
	// left is the number of runs that it may still ask about.
	left  int
	known map[[2]string]*Doing // by workflow ID and run
}

func (s *Site) newAsker(limit int) *asker {
	return &asker{site: s, left: limit, known: map[[2]string]*Doing{}}
}

// ask returns the state of a run of a party that is a workflow of the site's namespace, or of its current run if run is empty. It returns nil for
// other parties, and if it may not ask any more.
func (a *asker) ask(ctx context.Context, p Party, run string) (*Doing, error) {
	if !a.canAsk(p) {
		return nil, nil
	}
	key := [2]string{p.Workflow, run}
	if d, known := a.known[key]; known || a.left == 0 {
		return d, nil
	}
	a.left--
	d, err := a.site.ask(ctx, p.Workflow, run)
	if err != nil {
		return nil, err
	}
	a.known[key] = d
	return d, nil
}

// canAsk reports whether a party is a workflow of the site's namespace, and Temporal may be asked.
func (a *asker) canAsk(p Party) bool {
	t := a.site.Temporal
	return t.Service != nil && p.Workflow != "" && p.Namespace == t.NamespaceID
}

// child is an open child workflow.
type child struct{ workflow, run string }

// awaits returns the open child workflows of a run that can wait for nothing else but a timer or a signal, or nil.
func (d *Doing) awaits() []child {
	if d == nil || !d.open || d.Status == "Paused" || d.TaskFailures > 0 || len(d.Activities) > 0 {
		return nil
	}
	return d.children
}

// childWait is a lock for which a child workflow of a workflow waits, or a child of that one and so on. via has the workflow IDs from the child to
// the workflow that waits.
type childWait struct {
	wait *Entry
	via  []string
}

// childWaits returns the waits of the open child workflows of a run of a party, and of their child workflows.
func (g *graph) childWaits(ctx context.Context, p Party, run string) ([]childWait, error) {
	if g.asker == nil {
		return nil, nil
	}
	d, err := g.asker.ask(ctx, p, run)
	if err != nil {
		return nil, err
	}
	return g.waitsOf(ctx, p.Namespace, d.awaits(), nil)
}

func (g *graph) waitsOf(ctx context.Context, namespace string, children []child, via []string) (found []childWait, err error) {
	if len(via) == maxGenerations {
		return nil, nil
	}
	for _, c := range children {
		chain := append(slices.Clip(via), c.workflow)
		own := g.ofWorkflow[wire.Run{Namespace: namespace, WorkflowID: c.workflow}.Owner()]
		for _, w := range own {
			found = append(found, childWait{w, chain})
		}
		if len(own) > 0 {
			continue
		}
		d, err := g.asker.ask(ctx, Party{Workflow: c.workflow, Namespace: namespace}, c.run)
		if err != nil {
			return nil, err
		}
		deeper, err := g.waitsOf(ctx, namespace, d.awaits(), chain)
		if err != nil {
			return nil, err
		}
		found = append(found, deeper...)
	}
	return found, nil
}

// aboveChildren returns the blocking trees that contain the waits of the child workflows of a party that waits for no lock itself.
func (g *graph) aboveChildren(ctx context.Context, p Party) ([]*Node, error) {
	paths, err := g.followChildren(ctx, p, "", nil)
	return treesOf(paths), err
}

// followChildren appends the paths that begin with the waits of the child workflows of a run of a party.
func (g *graph) followChildren(ctx context.Context, p Party, run string, paths []path) ([]path, error) {
	waits, err := g.childWaits(ctx, p, run)
	if err != nil {
		return nil, err
	}
	for _, c := range waits {
		first := len(paths)
		if paths, err = g.follow(ctx, c.wait, nil, paths); err != nil {
			return nil, err
		}
		for i := range paths[first:] {
			paths[first+i].parent, paths[first+i].via = p, c.via
		}
	}
	return paths, nil
}

// ForChild describes the wait for a child workflow. It returns the empty string if there is none.
func (n *Node) ForChild() string {
	if len(n.Children) == 0 {
		return ""
	}
	return "waits for its child workflow " + strings.Join(n.Children, ", which waits for its child workflow ")
}

// adviseFamily returns the advice about a workflow for whose lock another workflow waits, for which it probably waits itself.
func (s *Site) adviseFamily(relative, waits string) string {
	return fmt.Sprintf("%s waits for its lock, perhaps behind others: if it waits for that workflow, neither can continue, and no search for "+
		"deadlocks finds it. Release the lock before the other workflow starts, or leave it out of that. To end it now: %s",
		relative, s.temporalCommand("workflow", "cancel", "--workflow-id", waits))
}

// adviseParent returns the advice about an open workflow with open child workflows.
func (s *Site) adviseParent(children []child) string {
	first := children[0].workflow
	of := "its child workflow " + first
	if more := len(children) - 1; more > 0 {
		of += fmt.Sprintf(" and %d more", more)
	}
	return "it waits for " + of + ": " + s.Command([]string{"why"}, first)
}

// adviseSelf returns the advice about a party that no other party blocks. Of its holds it chooses one that others wait for.
func (s *Site) adviseSelf(why *Why, resources []Resource) string {
	if len(why.Waits)+len(why.Holds) == 0 && why.Doing.waitsElsewhere() {
		return "it waits for a lock that is not in this collection: name the one of its workers by --database and --collection"
	}
	n := &Node{Party: why.Party, Doing: why.Doing}
	isWaitedFor := map[string]bool{}
	for i := range resources {
		isWaitedFor[resources[i].Name] = len(resources[i].Waiters) > 0
	}
	for i := range why.Holds {
		switch h := &why.Holds[i]; {
		case h.State == lockcore.StateDraining:
			n.draining = cmp.Or(n.draining, h)
		case n.Hold == nil, isWaitedFor[h.Resource] && !isWaitedFor[n.Hold.Resource]:
			n.Hold = h
		}
	}
	if n.Hold == nil || n.draining != nil && n.draining.Resource != n.Hold.Resource {
		n.Hold, n.draining = cmp.Or(n.Hold, n.draining), nil
	}
	return s.advise(n) + n.earlierAttempt()
}

// waitsElsewhere reports whether a workflow that waits for nothing in this collection waits for a lock.
func (d *Doing) waitsElsewhere() bool {
	return d != nil && d.open && slices.ContainsFunc(d.Activities, func(a Activity) bool {
		return a.Waits && a.State == "in back-off" && (a.isBusy || a.Failure == "")
	})
}
