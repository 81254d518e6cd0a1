package ui

import (
	"context"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// listing has all resources, and the types of the workflows that hold them, by run, as far as they are known.
type listing struct {
	all   []inspect.Resource
	types map[string]string
}

func (s *server) readResources(ctx context.Context) (l listing, err error) {
	if l.all, err = s.Resources(ctx, lockcore.Filter{}); err != nil {
		return l, err
	}
	l.types = s.typesOf(ctx, l.all[:min(len(l.all), maxResources)], s.list.latest().types)
	return l, nil
}

const (
	// maxTyped is the number of workflow runs that one listing asks Temporal about. The next listing asks about others.
	maxTyped = 20
	// typesTimeout bounds these questions, because the list is shown without the types too.
	typesTimeout = 300 * time.Millisecond
)

// typesOf returns the types of the workflows that hold resources, by run. A run keeps its type, so it asks Temporal only
// about the runs that are not in known.
func (s *server) typesOf(ctx context.Context, resources []inspect.Resource, known map[string]string) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, typesTimeout)
	defer cancel()
	types, asked := map[string]string{}, 0
	for i := range resources {
		for _, h := range resources[i].Holders {
			if s.Temporal.Service == nil || h.Party.Workflow == "" || h.Party.Namespace != s.Temporal.NamespaceID {
				continue
			}
			if name, found := known[h.Run]; found {
				types[h.Run] = name
				continue
			}
			if _, found := types[h.Run]; found || asked == maxTyped {
				continue
			}
			asked++
			d, err := s.Describe(ctx, h.Party.Workflow, h.Run)
			if err != nil {
				asked = maxTyped
				continue
			}
			types[h.Run] = d.Type // empty if Temporal does not know the run
		}
	}
	return types
}
