package inspect

import (
	"context"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// mostAsked is about how many root blockers WhyIn asks Temporal.
const mostAsked = 10

// WhyIn is Why in what Resources listed before, of everything: it reads nothing more of the locks.
// It asks Temporal about the first ten workflows among the root blockers; the others have neither
// Doing nor Advice. So many people may look at one listing, again and again.
func (s *Site) WhyIn(ctx context.Context, name string, resources []Resource) (Why, error) {
	why, err := s.whyOf(ctx, name)
	if err != nil {
		return Why{}, err
	}
	why.take(resources)
	why.Roots = graphOf(resources).above(why.Waits)
	return why, s.askAbout(ctx, why.Roots, mostAsked)
}

// ForestIn is Forest in what Resources listed before.
func (s *Site) ForestIn(resources []Resource) []*Node { return graphOf(resources).forest() }

// whyOf is the beginning of Why: who is asked about, and what Temporal says of it.
func (s *Site) whyOf(ctx context.Context, name string) (why Why, err error) {
	why.Party = Party{Name: name, Workflow: name, Owner: name}
	if s.Temporal.Service != nil {
		run := wire.Run{Namespace: s.Temporal.NamespaceID, WorkflowID: name}
		why.Party = Party{Name: name, Workflow: name, Namespace: run.Namespace, Owner: run.Owner()}
		why.Doing, err = s.ask(ctx, name, "")
	}
	return why, err
}

// askAbout asks Temporal about root blockers that are workflows of its namespace, but about no more
// than most of them, and says what to do about all but those that were left out.
func (s *Site) askAbout(ctx context.Context, roots []*Node, most int) error {
	asked := 0
	for _, root := range roots {
		p, h := root.Party, root.Hold
		if s.Temporal.Service == nil || p.Workflow == "" || p.Namespace != s.Temporal.NamespaceID {
			root.Advice = s.advise(root)
			continue
		}
		if asked++; asked > most {
			continue
		}
		run := ""
		if h != nil {
			run = h.Run
		}
		var err error
		if root.Doing, err = s.ask(ctx, p.Workflow, run); err != nil {
			return err
		}
		root.Advice = s.advise(root)
	}
	return nil
}
