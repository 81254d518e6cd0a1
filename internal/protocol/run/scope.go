package run

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Scope is the life of locks that outlive a step: a saga's, a run's, or that of locks around code.
type Scope struct {
	state *State
	// wanted are the names that any step of the scope has asked for, or may have left something on.
	wanted names
	// held are the names that a step is known to have left held.
	held   names
	closed bool
	// lock says that the scope is that of locks around code, which whatever runs meanwhile is under.
	lock bool
}

// names is a sorted set of resource names: workflow code must not depend on the order of a map.
type names []string

func (n *names) add(name string) {
	if i, found := slices.BinarySearch(*n, name); !found {
		*n = slices.Insert(*n, i, name)
	}
}

func (n names) has(name string) bool {
	_, found := slices.BinarySearch(n, name)
	return found
}

// Open begins a scope for a saga; [Scope.Release] ends it.
func (s *State) Open() *Scope {
	scope := &Scope{state: s}
	s.open = append(s.open, scope)
	return scope
}

func (c *Scope) want(resources []lockcore.Resource) {
	for _, r := range resources {
		c.wanted.add(r.Name)
	}
}

// close ends the scope and returns the names to release: all that its steps asked for, whether or not
// an acquire is known to have succeeded, but for what another scope in progress asked for too, since
// both hold it in the run's name. That one releases it.
func (c *Scope) close() []string {
	c.closed = true
	c.state.open = slices.DeleteFunc(c.state.open, func(o *Scope) bool { return o == c })
	var free []string
	for _, name := range c.wanted {
		if !slices.ContainsFunc(c.state.open, func(o *Scope) bool { return o.wanted.has(name) }) {
			free = append(free, name)
		}
	}
	return free
}

// Release ends a saga's scope and lets go of its locks; see [ReleaseOptions].
func (c *Scope) Release(ctx workflow.Context, o ReleaseOptions) {
	o.release(ctx, c.close(), c.state.schedule)
}

// ReleaseAll lets go, at the end of a run, of everything that it may hold.
func (s *State) ReleaseAll(ctx workflow.Context, o ReleaseOptions) {
	var all names
	for _, c := range s.open {
		c.closed = true
		for _, name := range c.wanted {
			all.add(name)
		}
	}
	o.release(ctx, all, s.schedule)
}
