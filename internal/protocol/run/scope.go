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
	// held is what completed steps have used, and left held.
	held uses
	// traces are names on which a step may have left a place in the queue that it could not give up. They are released at the
	// end, and keep no other scope's release from letting them go.
	traces names
	closed bool
	// parked are the steps that wait for their locks, and undoing says that those are not to run any more which do not undo others.
	parked  []*parking
	undoing bool
	// goesOn says that the saga takes anew what it has lost.
	goesOn bool
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

// GoOn says that the saga takes anew what it has lost.
func (c *Scope) GoOn() { c.goesOn = true }

// uses are resources that completed steps have used, in the order of their names, each with the number of the first such step's
// scheduling.
type uses []protocol.Use

func (u uses) find(name string) (int, bool) {
	return slices.BinarySearchFunc(u, name, func(own protocol.Use, name string) int { return strings.Compare(own.Resource, name) })
}

func (u uses) has(name string) bool {
	_, found := u.find(name)
	return found
}

func (u *uses) add(use protocol.Use) {
	i, found := u.find(use.Resource)
	if !found {
		*u = slices.Insert(*u, i, use)
		return
	}
	(*u)[i].Schedule = min((*u)[i].Schedule, use.Schedule)
}

// besides are the names that are not among others, which are sorted.
func (u uses) besides(others names) (rest []string) {
	for _, use := range u {
		if !others.has(use.Resource) {
			rest = append(rest, use.Resource)
		}
	}
	return rest
}

// Open begins a scope for a saga; [Scope.Commit] or [Scope.Release] ends it.
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

// hold notes what a step has used and left held.
func (c *Scope) hold(g *protocol.Guard) {
	for _, r := range g.Resources {
		c.held.add(protocol.Use{Resource: r.Name, Schedule: g.Schedule})
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

// free are the names to release: all that the scope's steps asked for, whether or not an acquire is known to have succeeded, but
// for what another scope in progress asked for too, since both hold it in the workflow's name. That one releases it.
func (c *Scope) free() (free []string) {
	for _, name := range c.all() {
		if !slices.ContainsFunc(c.state.open, func(o *Scope) bool { return o != c && o.wanted.has(name) }) {
			free = append(free, name)
		}
	}
	return free
}

// Commit ends the waits of a saga's steps, makes sure that the saga holds what its steps have used, and lets go; see
// [ReleaseOptions]. If something was lost the error matches lockcore.ErrLost, and the scope goes on with what it holds. After
// any other outcome the scope has ended.
func (c *Scope) Commit(ctx workflow.Context, o ReleaseOptions) error { return c.end(ctx, o, true) }

// Release is Commit without making sure.
func (c *Scope) Release(ctx workflow.Context, o ReleaseOptions) error { return c.end(ctx, o, false) }

func (c *Scope) end(ctx workflow.Context, o ReleaseOptions, verified bool) error {
	c.closed = true
	c.endWaits(ctx)
	return c.state.inTurn(ctx, func() error {
		what := letGo{names: c.free()}
		if verified {
			what.used = c.held
		}
		err := o.release(ctx, c.state, what)
		if errors.Is(err, lockcore.ErrLost) {
			c.closed = false
			return err
		}
		c.state.open = slices.DeleteFunc(c.state.open, func(o *Scope) bool { return o == c })
		return err
	})
}

// End lets go, at the end of a run, of everything that it may hold, and of what the run that it continues has left. err is that
// of the run. If the run has not failed, and something was lost, it is the error of that instead.
func (s *State) End(ctx workflow.Context, err error) error {
	return s.inTurn(ctx, func() error {
		var all names
		var held uses
		for _, place := range s.places() {
			all.add(place.Resource)
		}
		for _, c := range s.open {
			c.closed = true
			for _, use := range c.held {
				held.add(use)
			}
			for _, name := range c.all() {
				all.add(name)
			}
		}
		if again := (*workflow.ContinueAsNewError)(nil); err == nil || errors.As(err, &again) {
			lost := ReleaseOptions{}.release(ctx, s, letGo{all, held, s.continues})
			if !errors.Is(lost, lockcore.ErrLost) {
				return err
			}
			err = lost
		}
		_ = ReleaseOptions{}.release(ctx, s, letGo{names: all, all: s.continues}) // it is logged
		return err
	})
}
