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
	mu   sync.Mutex
	open map[string]bool // by lock ID and run
}

func (s *sightings) has(lockID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[lockID]
}

// replace forgets the runs that have no locks any more, so it is never larger than a list of them.
func (s *sightings) replace(open map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = maps.Clone(open)
}

// wasDeleted reports whether a run that the namespace does not know was there, and can only have been deleted since: if the
// namespace is replicated, another cluster may have become the active one, which has not heard of the run yet.
func (r *reap) wasDeleted(ctx context.Context, key string) bool {
	return r.seen.has(key) && !r.isReplicated(ctx)
}

// isReplicated asks once. A namespace that cannot be asked about counts as replicated.
func (r *reap) isReplicated(ctx context.Context) bool {
	r.mu.Lock()
	known := r.replicated
	r.mu.Unlock()
	if known != nil {
		return *known
	}
	answer, err := r.temporal.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: r.namespace})
	replicated := err != nil || answer.GetIsGlobalNamespace()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replicated = &replicated
	return replicated
}
