package scenarios

import (
	"reflect"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// spanScenarios are about the facts for the spans of waits: the hold whose end let a waiter in, and the
// waiters and claims that an operation ended.
var spanScenarios = []Scenario{
	{"after/a claim names the hold whose end let it in, also when it is confirmed", func(s *stage) {
		a := s.take("a", "p", 1, owner("saga"))
		s.wait(1, "b", "p", 1, shared)
		s.wait(2, "c", "p", 1, shared)
		s.leave("a", "p", 1)
		want := rules.EndedHold{LockID: "a", Fence: a.Fence, Owner: "saga", Trace: "trace"}
		s.after(s.claimed("b", "p"), &want)
		s.after(s.claimed("c", "p"), &want)
		s.after(s.take("b", "p", 1, shared), &want)
		s.after(s.part(s.ask(rules.Again, "b", "p", 1, shared).Document, "b", "p", 1), &want)
		s.after(s.join("b", "q", 1, shared), nil)
		s.after(s.take("c", "p", 2, shared, keep), &want)
	}},
	{"after/a kept hold has its first fence, and the trace of the request that entered last", func(s *stage) {
		a := s.take("a", "p", 1, keep, owner("saga"))
		s.join("a", "q", 2, keep, newFence, func(op *rules.Acquire) { op.Trace = "later" })
		s.join("a", "r", 3, keep, func(op *rules.Acquire) { op.Trace = "latest" })
		s.wait(1, "b", "p", 1)
		s.leave("a", "p", 1)
		s.leave("a", "r", 3)
		s.release("a", 3, func(op *rules.Release) { op.Order = 2 })
		s.unclaimed("b", "p")
		s.leave("a", "q", 2)
		s.release("a", 3)
		s.after(s.claimed("b", "p"), &rules.EndedHold{LockID: "a", Fence: a.Fence, Owner: "saga", Trace: "latest"})
	}},
	{"after/an expired hold that is evicted", func(s *stage) {
		a := s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.pass(partTTL)
		s.settle()
		s.after(s.claimed("b", "p"), &rules.EndedHold{LockID: "a", Fence: a.Fence, Trace: "trace"})
	}},
	{"after/a draining part that leaves", func(s *stage) {
		for i, change := range []with{shared, keep} {
			a := s.take("a", "p", int64(2*i+1), change)
			s.wait(1, "b", "p", int64(i+1))
			s.release("a", int64(2*i+1))
			s.unclaimed("b", "p")
			s.leave("a", "p", int64(2*i+1))
			s.after(s.claimed("b", "p"), &rules.EndedHold{LockID: "a", Fence: a.Fence, Trace: "trace"})
			s.leave("b", "p", int64(i+1))
		}
	}},
	{"after/a hold that is downgraded, once", func(s *stage) {
		a := s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, shared, limit(2))
		s.wait(2, "c", "p", 1, shared)
		s.wait(3, "d", "p", 1, shared, heardIn(time.Minute)) // overdue at the downgrade
		s.pass(2 * time.Minute)
		s.renew(rules.Granted, "a", "p", 1, downgrade)
		want := &rules.EndedHold{LockID: "a", Fence: a.Fence, Trace: "trace"}
		s.after(s.claimed("b", "p"), want)
		s.after(s.claimed("c", "p"), want)
		s.wait(1, "d", "p", 1, shared, refresh)
		s.renew(rules.Granted, "a", "p", 1, downgrade)
		s.after(s.claimed("d", "p"), nil)
		s.after(s.take("b", "p", 1, shared), want)
	}},
	{"gone/a leave reports the waiter or the claim that it ends, once", func(s *stage) {
		a := s.take("a", "p", 1)
		s.wait(1, "b", "p", 2, owner("saga"))
		s.wait(2, "b", "q", 2, shared)
		s.gone(s.leave("b", "p", 1))
		g := s.gone(s.leave("b", "q", 2), "q")[0]
		s.check(g.LockID == "b" && g.Order == 2 && g.Mode == rules.Shared && g.Since != nil && g.ClaimedAt == nil && g.Predecessor == nil, "a waiter, got %+v", g)
		s.gone(s.leave("b", "q", 2))
		s.gone(s.leave("a", "p", 1))
		g = s.gone(s.leave("b", "p", 3), "p")[0]
		s.check(g.Order == 2 && g.Owner == "saga" && g.Since != nil && g.ClaimedAt != nil && g.Predecessor.Fence == a.Fence, "a claim, got %+v", g)
	}},
	{"gone/a release reports all waiters and claims up to its order", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.wait(2, "b", "q", 2)
		s.wait(3, "b", "r", 3)
		s.wait(4, "c", "p", 1)
		s.leave("a", "p", 1)
		g := s.gone(s.release("b", 2), "p", "q")
		s.check(g[0].ClaimedAt != nil && g[1].ClaimedAt != nil, "two claims of one lock ID, got %+v", g)
		s.claimed("b", "r")
		s.gone(s.leave("c", "p", 1, waitingOnly), "p")
		s.gone(s.leave("b", "r", 3, waitingOnly), "r")
		s.gone(s.release("b", 9))
	}},
	{"gone/waiters that expired and claims that were confirmed are not reported", func(s *stage) {
		s.take("a", "p", 1, forever)
		s.wait(1, "b", "p", 1)
		s.wait(2, "c", "p", 1)
		s.pass(waiterTTL - time.Minute)
		s.wait(2, "c", "p", 1)
		s.pass(time.Minute)
		s.gone(s.release("b", 1))
		s.gone(s.leave("a", "p", 1))
		s.gone(s.ask(rules.Granted, "c", "p", 1))
		s.wait(1, "d", "p", 1)
		s.gone(s.leave("c", "p", 1))
		s.pass(waiterTTL)
		s.gone(s.leave("d", "p", 1))
	}},
}

// after expects that an entry names this hold.
func (s *stage) after(e *rules.Entry, want *rules.EndedHold) {
	s.Helper()
	s.check(reflect.DeepEqual(e.Predecessor, want), "%q to come after %+v, got %+v", e.LockID, want, e.Predecessor)
}
