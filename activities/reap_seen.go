package activities

import (
	"context"
	"maps"
	"sync"

	"go.temporal.io/api/workflowservice/v1"
)

// sightings are the runs that a worker's last reap saw open, or an earlier one if that could not ask. It is memory of
// the process alone: a worker that has just started has seen nothing, and waits for MissingAfter.
type sightings struct {
	mu sync.Mutex
	// open has the IDs of their workflows, by lock ID, which may have only a hash of them.
	open map[string]string
}

func (s *sightings) of(lockID string) (workflowID string, seen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	workflowID, seen = s.open[lockID]
	return workflowID, seen
}

// replace forgets the runs that have no locks any more, so it is never larger than a list of them.
func (s *sightings) replace(open map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = maps.Clone(open)
}

// wasDeleted tells whether a run that its namespace does not know was there, and can only have been deleted since: in a replicated
// namespace another cluster may have become the active one, which has not heard of the run yet.
func (r *reap) wasDeleted(ctx context.Context, lockID, namespace string) bool {
	_, seen := r.seen.of(lockID)
	return seen && !r.isReplicated(ctx, namespace)
}

// isReplicated asks once for each namespace. One that cannot be asked about counts as replicated.
func (r *reap) isReplicated(ctx context.Context, namespace string) bool {
	r.mu.Lock()
	replicated, known := r.replicated[namespace]
	r.mu.Unlock()
	if known {
		return replicated
	}
	answer, err := r.temporal.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	replicated = err != nil || answer.GetIsGlobalNamespace()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replicated[namespace] = replicated
	return replicated
}
