package lockcoretest

import (
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// toldScenarios show what those who trace waits are told: whose end let a waiter in, and which places and claims were
// given up.
var toldScenarios = []Scenario{
	{"after/a claim tells of the hold whose end let it in, and the part that confirms it keeps that", func(s *stage) {
		a := s.take("a", "p", 1, owner("saga"))
		s.wait(1, "b", "p", 1, shared)
		s.wait(2, "c", "p", 1, shared)
		s.leave("a", "p", 1)
		want := rules.Ended{LockID: "a", Fence: a.Fence, Owner: "saga", Trace: "trace"}
		s.after(s.claimed("b", "p"), &want)
		s.after(s.claimed("c", "p"), &want)
		s.after(s.take("b", "p", 1, shared), &want)
		s.after(s.entry(s.outcome(s.ask("b", "p", 1, shared), rules.Again), "b", "p", 1), &want)
		s.after(s.join("b", "q", 1, shared), nil)
		s.after(s.take("c", "p", 2, shared, keep), &want)
	}},
	{"after/a kept hold has the fence with which it began, and the trace of who entered last", func(s *stage) {
		a := s.take("a", "p", 1, keep, owner("saga"))
		b := s.join("a", "q", 2, keep, newFence, func(op *rules.Acquire) { op.Trace = "later" })
		s.check(b.Fence > a.Fence, "a fence above %d, got %d", a.Fence, b.Fence)
		s.join("a", "r", 1, keep, func(op *rules.Acquire) { op.Trace = "latest" }) // the part q is now ahead of the hold
		s.wait(1, "b", "p", 1)
		s.leave("a", "p", 1)
		s.leave("a", "r", 1)
		s.release("a", 2, "q")
		s.after(s.claimed("b", "p"), &rules.Ended{LockID: "a", Fence: a.Fence, Owner: "saga", Trace: "latest"})
	}},
	{"after/a hold that expired and makes room is told like one that was released", func(s *stage) {
		a := s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.pass(partTTL)
		s.outcome(s.renew("nobody", "p", 1), rules.Lost)
		s.after(s.claimed("b", "p"), &rules.Ended{LockID: "a", Fence: a.Fence, Trace: "trace"})
	}},
	{"after/a part that was cut off and leaves is told", func(s *stage) {
		a := s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.release("a", 1)
		s.check(s.stored().Claim("b", "p") == nil, "b to wait for the part of a")
		s.leave("a", "p", 1)
		s.after(s.claimed("b", "p"), &rules.Ended{LockID: "a", Fence: a.Fence, Trace: "trace"})
	}},
	{"after/a part of a kept hold that was cut off and leaves is told, with its own trace", func(s *stage) {
		a := s.take("a", "p", 1, keep, owner("saga"))
		s.wait(1, "b", "p", 1)
		s.release("a", 1)
		s.leave("a", "p", 1)
		s.after(s.claimed("b", "p"), &rules.Ended{LockID: "a", Fence: a.Fence, Trace: "trace"})
	}},
	{"after/a downgrade that lets others in is told", func(s *stage) {
		a := s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, shared)
		s.downgrade("a", "p", 1)
		want := rules.Ended{LockID: "a", Fence: a.Fence, Trace: "trace"}
		s.after(s.claimed("b", "p"), &want)
		s.after(s.take("b", "p", 1, shared), &want)
	}},
	{"after/a downgrade that comes again ended nothing", func(s *stage) {
		a := s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, shared, limit(2))
		s.wait(2, "c", "p", 1, shared) // of another limit: a later write serves it
		s.downgrade("a", "p", 1)
		s.after(s.claimed("b", "p"), &rules.Ended{LockID: "a", Fence: a.Fence, Trace: "trace"})
		s.downgrade("a", "p", 1)
		s.after(s.claimed("c", "p"), nil)
	}},
	{"after/nothing is told where no hold ended in the write that made the claim", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.release("a", 1)
		s.pass(partTTL) // what drained has run out
		s.outcome(s.renew("nobody", "p", 1), rules.Lost)
		s.after(s.claimed("b", "p"), nil)
		s.after(s.take("b", "p", 1), nil)
	}},
	{"after/a claim that was slept through stands for whoever it kept waiting to see", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, owner("saga"))
		s.wait(2, "c", "p", 1)
		s.leave("a", "p", 1)
		s.pass(claimTTL)
		s.outcome(s.renew("nobody", "p", 1), rules.Lost)
		s.after(s.claimed("c", "p"), nil)
		s.after(s.take("c", "p", 1), nil)
		b := s.claimed("b", "p")
		s.check(b.Owner == "saga" && !b.ExpiresAt.After(*s.stored().Part("c", "p", 1).ClaimedAt), "the claim of b, which ended before that of c began, got %+v", b)
	}},
	{"after/who goes back to the queue from a claim is told anew", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.leave("a", "p", 1)
		s.pass(claimTTL)
		c := s.take("c", "p", 1)
		s.wait(1, "b", "p", 1)
		s.leave("c", "p", 1)
		s.after(s.claimed("b", "p"), &rules.Ended{LockID: "c", Fence: c.Fence, Trace: "trace"})
	}},
	{"gone/a leave tells of the place that it gives up, once", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 2, shared, owner("saga"))
		s.wait(2, "b", "q", 2, shared)
		since := s.stored().Waiters[0].Since
		s.gone(s.leave("b", "p", 1))
		g := s.gone(s.leave("b", "p", 2), "p")[0]
		s.check(g.LockID == "b" && g.Order == 2 && g.Mode == rules.Shared && g.Owner == "saga" && g.Since.Equal(since), "the place of b, got %+v", g)
		s.check(g.ClaimedAt == nil && g.After == nil, "no claim, got %+v", g)
		s.gone(s.leave("b", "p", 2))
	}},
	{"gone/a leave tells of the claim that it gives up, lapsed or not", func(s *stage) {
		a := s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, owner("saga"))
		s.wait(2, "c", "p", 1)
		s.gone(s.leave("a", "p", 1))
		c := s.claimed("b", "p")
		g := s.gone(s.leave("b", "p", 2), "p")[0]
		s.check(g.LockID == "b" && g.Order == 1 && g.Mode == rules.Exclusive && g.Owner == "saga", "the claim of b, got %+v", g)
		s.check(g.Since.Equal(*c.Since) && g.ClaimedAt != nil && g.ClaimedAt.Equal(*c.ClaimedAt), "its times, got %+v", g)
		s.check(g.After != nil && g.After.LockID == "a" && g.After.Fence == a.Fence, "what let it in, got %+v", g.After)
		s.after(s.claimed("c", "p"), nil)
		s.pass(claimTTL)
		s.gone(s.leave("c", "p", 1), "p")
	}},
	{"gone/a release tells of every place and claim that it gives up, up to its order", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.wait(2, "b", "q", 2)
		s.wait(3, "b", "r", 3)
		s.wait(4, "c", "p", 1)
		s.leave("a", "p", 1)
		g := s.gone(s.release("b", 2), "p", "q")
		s.check(g[0].ClaimedAt != nil && g[1].ClaimedAt == nil, "a claim and a place, got %+v", g)
		s.claimed("b", "r")
		s.gone(s.giveUp("c", "p", 1, "by hand"), "p")
		s.gone(s.giveUp("b", "r", 3, "by hand"), "r")
		s.gone(s.release("b", 9))
	}},
	{"gone/a withdrawal tells of the place that it takes away", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 2)
		s.gone(s.withdraw("b", "p", 1))
		s.gone(s.withdraw("b", "p", 2), "p")
		s.gone(s.withdraw("b", "p", 2))
	}},
	{"gone/places that nobody refreshed are not told, nor is a claim that was confirmed", func(s *stage) {
		s.take("a", "p", 1, forever)
		s.wait(1, "b", "p", 1)
		s.wait(2, "c", "p", 1)
		s.pass(waiterTTL - time.Minute)
		s.wait(2, "c", "p", 1)
		s.pass(time.Minute)
		s.gone(s.release("b", 1))
		s.gone(s.leave("a", "p", 1))
		d := s.ask("c", "p", 1)
		s.gone(*s.outcome(d, rules.Granted))
		s.wait(1, "d", "p", 1)
		s.gone(s.leave("c", "p", 1))
		s.pass(waiterTTL)
		s.gone(s.leave("d", "p", 1))
	}},
}

func owner(name string) with { return func(op *rules.Acquire) { op.Owner = name } }

// after fails the scenario unless an entry tells of this hold, or of none.
func (s *stage) after(e *rules.Entry, want *rules.Ended) {
	s.Helper()
	s.check(same(e.After, want), "%q to come after %+v, got %+v", e.LockID, want, e.After)
}

// gone fails the scenario unless the write gave up these parts' places and claims.
func (s *stage) gone(d rules.Document, parts ...string) []rules.Entry {
	s.Helper()
	got := []string{}
	for _, g := range d.Last.Gone(d.At) {
		got = append(got, g.Part)
	}
	s.check(same(got, append([]string{}, parts...)), "the parts %v to be gone, got %+v", parts, d.Last.Ended)
	return d.Last.Gone(d.At)
}
