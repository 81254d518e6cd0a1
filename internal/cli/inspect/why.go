package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Why is why a party waits.
type Why struct {
	Party Party `json:"party"`
	// Waits are its own, and Holds what it has: of a party that waits, only what is waited for or kept.
	// Doing is what Temporal says of it, if it is a workflow.
	Waits []Entry `json:"waits,omitempty"`
	Holds []Entry `json:"holds,omitempty"`
	Doing *Doing  `json:"doing,omitempty"`
	// Roots are the root blockers, with those who wait for them down to the party.
	Roots []*Node `json:"roots,omitempty"`
}

// Temporal is whom to ask about workflows.
type Temporal struct {
	Service                Frontend
	Namespace, NamespaceID string
}

// Frontend is what is asked of Temporal's service.
type Frontend interface {
	currentrun.Describer
	GetSystemInfo(ctx context.Context, in *workflowservice.GetSystemInfoRequest, opts ...grpc.CallOption) (*workflowservice.GetSystemInfoResponse, error)
	DescribeTaskQueue(ctx context.Context, in *workflowservice.DescribeTaskQueueRequest, opts ...grpc.CallOption) (*workflowservice.DescribeTaskQueueResponse, error)
	ListWorkers(ctx context.Context, in *workflowservice.ListWorkersRequest, opts ...grpc.CallOption) (*workflowservice.ListWorkersResponse, error)
}

// Why looks up why a workflow waits, or another owner. Of a name that is not known it has no Waits and
// no Holds.
func (s *Site) Why(ctx context.Context, name string) (Why, error) {
	why, err := s.whyOf(ctx, name)
	if err != nil {
		return Why{}, err
	}
	// What is waited for is found by an index. Everything is read only for a party that waits for nothing.
	var resources []Resource
	asked := why.Party
	for _, contended := range []bool{true, false} {
		why.Party = asked
		if resources, err = s.Resources(ctx, lockcore.Filter{Contended: contended}); err != nil {
			return Why{}, err
		}
		if why.take(resources); len(why.Waits) > 0 {
			break
		}
	}
	why.Roots = graphOf(resources).above(why.Waits)
	return why, s.askAbout(ctx, why.Roots, len(why.Roots))
}

// Known reports whether the party has or wants a lock, or is a workflow that Temporal knows.
func (w *Why) Known() bool {
	return len(w.Waits)+len(w.Holds) > 0 || (w.Doing != nil && w.Doing.Status != Unknown)
}

// take takes in what the party has among the resources: as a workflow, or if that has nothing, as
// plain Go names it.
func (w *Why) take(resources []Resource) {
	w.Waits, w.Holds = nil, nil
	plain := Party{Name: w.Party.Name, Owner: w.Party.Name}
	for _, p := range []Party{w.Party, plain} {
		for i := range resources {
			for _, e := range slices.Concat(resources[i].Holders, resources[i].Waiters) {
				switch {
				case !e.isOf(p):
				case e.State == lockcore.StateWaiting:
					w.Waits = append(w.Waits, e)
				default:
					w.Holds = append(w.Holds, e)
				}
			}
		}
		if len(w.Waits)+len(w.Holds) > 0 {
			w.Party = p
			break
		}
	}
	longest := func(a, b Entry) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Resource, b.Resource)) }
	slices.SortStableFunc(w.Waits, longest)
	slices.SortStableFunc(w.Holds, longest)
}

// isOf reports whether an entry is a party's: in its name, or for it as its owner. A workflow without
// a namespace may be of any.
func (e *Entry) isOf(p Party) bool {
	named := p.Workflow != "" && e.Party.Workflow == p.Workflow && (p.Namespace == "" || e.Party.Namespace == p.Namespace)
	return named || e.Party.Owner == p.Owner || e.LockID == p.Owner
}

// String says what an entry is, without its party.
func (e *Entry) String() string {
	text := e.Mode.String()
	if e.Limit > 0 {
		text += fmt.Sprintf(" with limit %d", e.Limit)
	}
	switch e.State {
	case lockcore.StateWaiting:
		return fmt.Sprintf("waits for %s (%s) for %s, place %d", plain(e.Resource), text, Short(e.For), e.Position)
	case lockcore.StateClaimed:
		return fmt.Sprintf("was granted %s (%s) %s ago, and has not taken it up yet", plain(e.Resource), text, Short(e.For))
	case lockcore.StateDraining:
		return fmt.Sprintf("leaves %s (%s), draining for %s more", plain(e.Resource), text, Short(e.ExpiresIn))
	default:
		return fmt.Sprintf("holds %s (%s) for %s", plain(e.Resource), text, Short(e.For))
	}
}
