package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// operatorName is the name under which policies are changed.
const operatorName = "sagafuzz"

// membersOf returns the members that a Lock has.
func membersOf(hold *workflows.Hold) (all []Held) {
	for pool, member := range hold.Members() {
		all = append(all, Held{Resource: pool, Member: member})
	}
	slices.SortFunc(all, func(a, b Held) int { return cmp.Compare(a.Resource, b.Resource) })
	return all
}

// makePools makes the pools and the accounts of their members, or enables priorities.
func (p *play) makePools(ctx context.Context) error {
	for _, pool := range p.Pools {
		for _, m := range pool.Members {
			if err := p.accounts.create(ctx, accountOf(pool.Name, m)); err != nil {
				return err
			}
		}
		if err := p.locker.SetPolicy(ctx, lockcore.Policy{Name: pool.Name, Members: pool.Members, By: operatorName}); err != nil {
			return fmt.Errorf("pool %s: %w", pool.Name, err)
		}
	}
	if p.Priorities {
		return p.locker.EnablePriorities(ctx, operatorName, "as planned")
	}
	return nil
}

// changePools is the operator who changes members, and promotes waiters. An error is logged: what it has done is unknown then.
func (p *play) changePools(ctx context.Context, began time.Time) {
	for _, c := range p.PoolChanges {
		if !harness.Pause(ctx, time.Until(began.Add(c.At))) {
			return
		}
		r := &Record{What: Changed, At: time.Now().UnixNano(), Type: c.Kind, Other: accountOf(c.Pool, c.Member)}
		var err error
		if c.Kind == "promote" {
			r.Other, err = p.promote(ctx, c)
		} else {
			if err = p.accounts.create(ctx, r.Other); err == nil {
				err = p.locker.EditPolicy(ctx, lockcore.Policy{Name: c.Pool, By: operatorName, Reason: c.Kind}, c.edit)
			}
		}
		r.Trusted, r.Error = time.Now().UnixNano(), text(err)
		p.log.Write(r)
	}
}

// edit makes the change. It may be repeated.
func (c *PoolChange) edit(pool *lockcore.Policy) error {
	switch c.Kind {
	case "add":
		if !slices.Contains(pool.Members, c.Member) {
			pool.Members = append(pool.Members, c.Member)
		}
	case "out":
		if pool.Out == nil {
			pool.Out = map[string]string{}
		}
		pool.Out[c.Member] = "as planned"
	case "remove":
		pool.Members = slices.DeleteFunc(pool.Members, func(m string) bool { return m == c.Member })
		delete(pool.Out, c.Member)
	case "in":
		delete(pool.Out, c.Member)
	}
	return nil
}

// promote promotes one of the waiters of all resources, and returns its lock ID.
func (p *play) promote(ctx context.Context, c PoolChange) (lockID string, err error) {
	var waiting []lockcore.Status
	for s, err := range p.locker.Status(ctx, lockcore.Filter{Contended: true, States: []lockcore.State{lockcore.StateWaiting}}) {
		if err != nil {
			return "", err
		}
		waiting = append(waiting, s)
	}
	if len(waiting) == 0 {
		return "", nil
	}
	w := waiting[c.Pick%len(waiting)]
	_, err = p.locker.Promote(ctx, w.Resource, w.LockID) // false if it has got its lock since
	return w.LockID, err
}

// checkMembers finds writes that an account refused to its holder, scopes whose steps and compensations used two members of a pool, and
// members that were granted long after they had been taken out.
func (s *Story) checkMembers() {
	s.checkFenced()
	s.checkOneMember()
	s.checkOut()
}

// checkFenced finds attempts that still trusted their leases after an account had refused their write because another party had written.
func (s *Story) checkFenced() {
	execs := map[string]*Attempt{}
	for _, a := range s.attempts {
		execs[a.Exec] = a
	}
	for _, r := range s.of[Fenced] {
		a, by := execs[r.Exec], r.Held[0]
		if a == nil || a.trusted < r.At {
			continue
		}
		for _, o := range s.attempts {
			if o.Workflow != a.Workflow && o.begin != 0 && slices.ContainsFunc(o.held, func(h Held) bool {
				return h.Resource == accountOf(by.Resource, by.Member) && (h.Fence == by.Fence || h.Least == by.Fence)
			}) {
				s.found("fenced", r.At, []string{a.Workflow, o.Workflow},
					"%s: %s of %s (%s) wrote while %s of %s (%s) had it",
					accountOf(by.Resource, by.Member), o.step(), o.Workflow, o.Exec, a.step(), a.Workflow, a.Exec)
			}
		}
	}
}

// checkOneMember compares the members that the steps and compensations of one scope had. What a step alone has does not count.
func (s *Story) checkOneMember() {
	type use struct{ run, scope, pool string }
	first, of := map[use]*Attempt{}, map[use]string{}
	for _, a := range s.attempts {
		for i := range a.held {
			h := &a.held[i]
			if h.Member == "" || a.Call.Kept == "" {
				continue
			}
			u := use{a.Run, a.Call.Kept, h.pool()}
			if first[u] == nil {
				first[u], of[u] = a, h.Member
			}
			if of[u] != h.Member {
				s.found("member", a.begin, []string{a.Workflow}, "%s: %s (%s) had %s of %s, and %s (%s) of its scope had %s before",
					a.Workflow, a.step(), a.Exec, h.Member, u.pool, first[u].step(), first[u].Exec, of[u])
			}
		}
	}
}

// adoptWithin is the time within which all processes follow a change of a pool. A suspended process may write what it has decided before.
const adoptWithin = 10*time.Second + 5*time.Second

// checkOut finds members that were granted to a party that asked for the first time long after they had been taken out or removed. A party
// that had the member before may need it again.
func (s *Story) checkOut() {
	if len(s.of[Slowed]) > 0 || s.plan.Failovers {
		return // a decision may be old
	}
	for i, a := range s.attempts {
		for n := range a.held {
			h := &a.held[n]
			if h.Member == "" || h.Joined || a.Undo || s.meddled(a.Workflow) || s.hadMember(a, i, h) {
				continue
			}
			asked := a.At
			for _, o := range s.attempts[:i] {
				if o.Workflow == a.Workflow {
					asked = min(asked, o.At)
				}
			}
			if since := s.outSince(h.Resource, asked, a.begin); since != 0 {
				s.found("out", a.begin, []string{a.Workflow}, "%s: %s of %s (%s) got it, which was out of service for %v when it asked",
					h.Resource, a.step(), a.Workflow, a.Exec, time.Duration(asked-since).Round(time.Millisecond))
			}
		}
	}
}

// hadMember reports whether the attempt's workflow had the member before.
func (s *Story) hadMember(a *Attempt, index int, h *Held) bool {
	return slices.ContainsFunc(s.attempts[:index], func(o *Attempt) bool {
		return o.Workflow == a.Workflow && slices.ContainsFunc(o.held, func(had Held) bool { return had.Resource == h.Resource })
	}) || slices.ContainsFunc(s.of[Locked], func(r *Record) bool {
		return r.Workflow == a.Workflow && slices.ContainsFunc(r.Held, func(had Held) bool { return accountOf(had.Resource, had.Member) == h.Resource })
	})
}

// outSince returns the time since which a member was not in service, if all processes have followed that since before asked, and until begin; otherwise 0.
func (s *Story) outSince(member string, asked, begin int64) (since int64) {
	for _, r := range s.of[Changed] {
		switch {
		case r.Other != member || r.Type == "promote":
		case r.Error == "" && (r.Type == "out" || r.Type == "remove"):
			since = cmp.Or(since, r.Trusted)
		case r.At < begin:
			since = 0
		default:
			return s.followed(since, asked)
		}
	}
	return s.followed(since, asked)
}

func (s *Story) followed(since, asked int64) int64 {
	if since == 0 || since+adoptWithin.Nanoseconds() > asked {
		return 0
	}
	return since
}
