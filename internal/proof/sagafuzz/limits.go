package main

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// LimitChange is an operator's change of the limit of a semaphore.
type LimitChange struct {
	At   time.Duration
	Name string
	// Limit is the new limit; 0 removes it. Lasts, unless it is 0, is the time after which it ends.
	Limit int
	Lasts time.Duration `json:",omitempty"`
}

// limitsChange draws the changes of limits, in one seed of two. It draws from a source of its own, so that the rest of the plans of known
// seeds stays. A limit lasts longer than the processes may follow the one before, so that it is checked.
func (p *planner) limitsChange(plan *Plan) {
	p.Rand = rand.New(rand.NewPCG(plan.Seed, 0x1171)) //nolint:gosec // it must be the same each time
	if p.one(2) {
		return
	}
	for at := p.span(0, 2000); len(plan.Limits) < 6; at += p.span(4000, 14000) {
		name := p.semaphore()
		c := LimitChange{At: at, Name: name.Name, Limit: []int{1, 1, name.Limit + 2, 0}[p.IntN(4)]}
		if c.Limit > 0 && p.one(3) {
			c.Lasts = p.span(2000, 15000)
		}
		plan.Limits = append(plan.Limits, c)
	}
}

// changeLimits is the operator who changes limits.
func (p *play) changeLimits(ctx context.Context, began time.Time) {
	for _, c := range p.Limits {
		if !harness.Pause(ctx, time.Until(began.Add(c.At))) {
			return
		}
		r := Record{What: Limited, At: time.Now().UnixNano(), Needs: []Need{{Name: c.Name, Shared: true, Limit: c.Limit}}}
		policy := lockcore.Policy{Name: c.Name, Limit: c.Limit, By: "sagafuzz"}
		var err error
		if c.Lasts > 0 {
			policy.Until = time.Now().Add(c.Lasts)
			r.Until = policy.Until.UnixNano()
		}
		if c.Limit > 0 {
			err = p.locker.SetPolicy(ctx, policy)
		} else {
			err = p.locker.RemovePolicy(ctx, policy)
		}
		r.Trusted, r.Error = time.Now().UnixNano(), text(err) // ErrNoPolicy, and what a failover causes
		p.log.Write(&r)
	}
}

// followWithin is the time within which all processes follow a change of a limit.
const followWithin = 10 * time.Second

// limitOf returns the greatest limit that may have been followed when a semaphore was granted for a claim: since its party asked for
// it first.
func (s *Story) limitOf(c *Claim) int {
	follow := followWithin
	if len(s.of[Stopped]) > 0 { // a process decides, is suspended, and writes
		follow += 5 * time.Second
	}
	if len(s.of[Slowed]) > 0 { // its write is slow
		follow += 10 * time.Second
	}
	since := c.asked - follow.Nanoseconds()
	if s.meddled(c.workflow) { // another run may have asked
		since = 0
	}
	type state struct {
		limit    int
		from, to int64
	}
	states := []state{{c.Limit, 0, math.MaxInt64}}
	for _, r := range s.of[Limited] {
		n := r.Needs[0]
		if n.Name != c.Name {
			continue
		}
		for i := range states {
			if r.Error == "" {
				states[i].to = min(states[i].to, r.Trusted)
			}
		}
		next := state{n.Limit, r.At, math.MaxInt64}
		if r.Until != 0 {
			next.to = r.Until
			states = append(states, state{c.Limit, r.Until, math.MaxInt64})
		}
		if n.Limit == 0 {
			next.limit = c.Limit
		}
		states = append(states, next)
	}
	limit := 0
	for _, st := range states {
		if st.to >= since && st.from <= c.from {
			limit = max(limit, st.limit)
		}
	}
	return limit
}

// askedFirst returns the time at which an attempt of the scope, or of the step if it alone has its locks, asked for them first.
func (s *Story) askedFirst(a *Attempt) int64 {
	first := a.At
	for _, o := range s.inScope[[2]string{a.Run, a.Call.Kept}] {
		if a.Call.Kept != "" || o.key() == a.key() {
			first = min(first, o.At)
		}
	}
	return first
}
