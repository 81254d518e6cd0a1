package run

import (
	"errors"
	"slices"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Scope is the life of locks that outlive a step: a saga's, a run's, or that of locks around code.
type Scope struct {
	state *State
	// wanted are the names that any step of the scope has asked for, or may have left something on.
	wanted names
	// held are the names that a step is known to have left held.
	held names
	// traces are names on which a step whose locks end with it may have left something. They are released at the end, and
	// keep nobody else's release from letting them go.
	traces names
	// asked says, in the order of the names, how each was asked for last.
	asked []lockcore.Resource
	// lacks are the names that the run before a reset held, and this one does not yet.
	lacks names
	// lost are those of held of which a step was told that they are lost. They stay so in a run that is made by a reset.
	lost   names
	closed bool
	// parked are the steps that wait for their locks, and undoing says that those are not to run any more which do not undo others.
	parked  []*parking
	undoing bool
	// lock is set where the scope is that of locks around code, which whatever runs meanwhile is under.
	lock *Lock
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

func (n *names) remove(name string) {
	if i, found := slices.BinarySearch(*n, name); found {
		*n = slices.Delete(*n, i, i+1)
	}
}

// Open begins a scope for a saga; [Scope.Release] ends it. The first one gets what a saga of the run before handed over.
func (s *State) Open() *Scope {
	if scope := s.handedScope; scope != nil {
		s.handedScope = nil
		return scope
	}
	return s.newScope()
}

func (s *State) newScope() *Scope {
	scope := &Scope{state: s}
	s.open = append(s.open, scope)
	return scope
}

func (c *Scope) trace(resources []lockcore.Resource) {
	for _, r := range resources {
		c.traces.add(r.Name)
		c.ask(r)
	}
}

func (c *Scope) want(resources []lockcore.Resource) {
	for _, r := range resources {
		c.wanted.add(r.Name)
		c.ask(r)
	}
}

func (c *Scope) ask(r lockcore.Resource) {
	r.Held = false
	i, found := slices.BinarySearchFunc(c.asked, r.Name, byName)
	if found {
		c.asked[i] = r
		return
	}
	c.asked = slices.Insert(c.asked, i, r)
}

// drop forgets a name.
func (c *Scope) drop(name string) {
	c.wanted.remove(name)
	c.held.remove(name)
	c.lacks.remove(name)
	c.lost.remove(name)
	if i, found := slices.BinarySearchFunc(c.asked, name, byName); found {
		c.asked = slices.Delete(c.asked, i, i+1)
	}
}

func byName(r lockcore.Resource, name string) int { return strings.Compare(r.Name, name) }

// mostResources is how many resources a request may have.
const mostResources = 100

// missing are the resources that the run before a reset held, as far as they fit beside those that a step asks for.
func (c *Scope) missing(own []lockcore.Resource) (more []lockcore.Resource) {
	for _, name := range c.lacks {
		if slices.ContainsFunc(own, func(r lockcore.Resource) bool { return r.Name == name }) {
			continue
		}
		if len(own)+len(more) >= mostResources {
			break
		}
		if i, found := slices.BinarySearchFunc(c.asked, name, byName); found {
			more = append(more, c.asked[i])
		}
	}
	return more
}

// hold notes what a step has left held. One that the run before a reset scheduled may have run in either run.
func (c *Scope) hold(resources []lockcore.Resource, past bool) {
	for _, r := range resources {
		switch {
		case !past:
			c.held.add(r.Name)
			c.lacks.remove(r.Name)
			c.lost.remove(r.Name)
		case !c.held.has(r.Name):
			c.lacks.add(r.Name)
		}
	}
}

// lose notes that somebody was told of a loss, where that is what err says.
func (s *State) lose(err error) {
	var lost *lockcore.LostError
	if !errors.As(protocol.LockError(err), &lost) {
		return
	}
	for _, c := range s.open {
		if c.held.has(lost.Resource) || c.lacks.has(lost.Resource) {
			c.lost.add(lost.Resource)
			c.held.add(lost.Resource)
			c.lacks.remove(lost.Resource)
		}
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
	c.state.look()
	o.release(ctx, c.state, c.close(), c.held)
}

// ReleaseAll lets go, at the end of a run, of everything that it may hold.
func (s *State) ReleaseAll(ctx workflow.Context, o ReleaseOptions) {
	s.look()
	var all, held names
	if places := s.places(); len(places) > 0 && endsWaits(ctx) {
		for _, place := range places {
			all.add(place.Resource)
		}
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
	o.release(ctx, s, all, held)
}
