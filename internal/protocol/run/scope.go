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
	held names
	// traces are names on which a step may have left a place in the queue that it could not give up. They are released at the
	// end, and keep no other scope's release from letting them go.
	traces names
	closed bool
	// parked are the steps that wait for their locks, and undoing says that those are not to run any more which do not undo others.
	parked  []*parking
	undoing bool
	// isLock says that the scope is that of locks around code.
	isLock bool
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

// hold notes what a step has left held.
func (c *Scope) hold(resources []lockcore.Resource) {
	for _, r := range resources {
		c.held.add(r.Name)
	}
}

// all are the names that the scope may have something on.
func (c *Scope) all() names {
	all := slices.Clone(c.wanted)
	for _, name := range c.traces {
		all.add(name)
	}
	return all
}

// close ends the scope and returns the names to release: all that its steps asked for, whether or not
// an acquire is known to have succeeded, but for what another scope in progress asked for too, since
// both hold it in the run's name. That one releases it.
func (c *Scope) close() []string {
	c.closed = true
	c.state.open = slices.DeleteFunc(c.state.open, func(o *Scope) bool { return o == c })
	var free []string
	for _, name := range c.all() {
		if !slices.ContainsFunc(c.state.open, func(o *Scope) bool { return o.wanted.has(name) }) {
			free = append(free, name)
		}
	}
	return free
}

// Release ends a saga's scope, and the waits of its steps, and lets go of its locks; see [ReleaseOptions].
func (c *Scope) Release(ctx workflow.Context, o ReleaseOptions) {
	c.closed = true
	c.endWaits(ctx)
	o.release(ctx, c.state, c.close(), c.held, false)
}

// ReleaseAll lets go, at the end of a run, of everything that it may hold, and of what the run that it continues has left.
func (s *State) ReleaseAll(ctx workflow.Context, o ReleaseOptions) {
	var all, held names
	for _, place := range s.places() {
		all.add(place.Resource)
	}
	for _, c := range s.open {
		c.closed = true
		for _, name := range c.held {
			held.add(name)
		}
		for _, name := range c.all() {
			all.add(name)
		}
	}
	o.release(ctx, s, all, held, s.continues)
}
