package lockcoretest

import (
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// invariantScenarios show the invariants I1 to I5, as [Invariants] tells of them, where they are most easily broken.
var invariantScenarios = []Scenario{
	{"I1/nobody is let in beside an exclusive part that may trust", func(s *stage) {
		s.take("a", "p", 1)
		for _, mode := range []with{func(*rules.Acquire) {}, shared, limit(9)} {
			s.outcome(s.ask("b", "p", 1, mode), rules.Busy)
			s.outcome(s.ask("b", "q", 1, mode, keep, reacquire, newFence), rules.Busy)
		}
		s.pass(partTTL - time.Minute)
		s.outcome(s.ask("b", "p", 1), rules.Busy)
		s.pass(time.Minute)
		s.take("b", "p", 1)
	}},
	{"I1/an exclusive request is not let in beside parts that share", func(s *stage) {
		s.take("a", "p", 1, shared)
		s.take("b", "p", 1, shared)
		s.outcome(s.ask("a", "q", 1), rules.Busy)
		s.outcome(s.ask("c", "p", 1), rules.Busy)
		s.leave("b", "p", 1)
		s.take("a", "q", 1)
	}},
	{"I1/a part that was cut off still keeps others out", func(s *stage) {
		s.take("a", "p", 1)
		s.pass(partTTL / 2)
		s.join("a", "p", 2)
		// The second attempt has stopped; what became of the first one is unknown.
		s.release("a", 2, "p")
		s.outcome(s.ask("b", "p", 1), rules.Busy)
		s.pass(partTTL / 2)
		s.outcome(s.ask("b", "p", 1), rules.Granted)
		s.leave("b", "p", 1)
		s.take("a", "p", 3)
		s.release("a", 3)
		s.outcome(s.ask("b", "p", 2), rules.Busy)
		s.pass(partTTL)
		s.take("b", "p", 2)
	}},
	{"I1/a request that comes again after its end is granted anew and not told of a promise that is over", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.pass(partTTL)
		d := s.outcome(s.ask("a", "p", 1), rules.Joined)
		p := d.Part("a", "p", 1)
		s.check(p != nil && p.ExpiresAt.After(d.At), "the part that was answered for is not there, or has ended: %+v", d.Entries)
	}},
	{"I1/an expired hold does not come back beside whom it made room for", func(s *stage) {
		s.take("a", "p", 1)
		s.pass(partTTL)
		s.take("b", "p", 1)
		s.outcome(s.renew("a", "p", 1), rules.Lost)
		s.outcome(s.ask("a", "p", 2), rules.Busy)
	}},
	{"I1/an expired exclusive hold does not come back beside those who share", func(s *stage) {
		s.take("a", "p", 1)
		s.pass(partTTL)
		s.take("b", "p", 1, shared)
		s.outcome(s.renew("a", "p", 1), rules.Lost)
	}},
	{"I1/a claim keeps others out", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.leave("a", "p", 1)
		s.outcome(s.ask("c", "p", 1), rules.Busy)
		s.outcome(s.ask("c", "p", 1, shared), rules.Busy)
	}},
	{"I2/a limit counts all others that are live: holds, drains and claims", func(s *stage) {
		s.take("x", "p", 1)
		s.wait(1, "c", "p", 1, shared)
		s.leave("x", "p", 1)
		s.take("a", "p", 1, shared)
		s.take("b", "p", 1, shared)
		s.release("b", 1)
		s.outcome(s.ask("d", "p", 1, limit(3)), rules.Busy)
		s.take("d", "p", 1, limit(4))
	}},
	{"I2/a limit holds for those who wait", func(s *stage) {
		s.take("a", "p", 1, limit(1))
		s.wait(1, "b", "p", 1, limit(1))
		s.wait(2, "c", "p", 1, limit(1))
		s.leave("a", "p", 1)
		s.claimed("b", "p")
		s.check(s.stored().Claim("c", "p") == nil, "one claim, got %+v", s.stored().Entries)
	}},
	{"I2/what is dead takes no place", func(s *stage) {
		s.take("a", "p", 1, limit(2))
		s.take("b", "p", 1, limit(2))
		s.outcome(s.ask("c", "p", 1, limit(2)), rules.Busy)
		s.pass(partTTL)
		s.take("c", "p", 1, limit(2))
		s.take("d", "p", 1, limit(2))
		s.outcome(s.renew("a", "p", 1), rules.Lost)
	}},
	{"I3/fences strictly increase over grants, upgrades, retakes and claims", func(s *stage) {
		var fence int64
		greater := func(e *rules.Entry) {
			s.Helper()
			s.check(e.Fence > fence, "a fence above %d, got %d", fence, e.Fence)
			fence = e.Fence
		}
		greater(s.take("a", "p", 1, shared))
		greater(s.take("b", "p", 1, shared))
		s.leave("b", "p", 1)
		greater(s.take("a", "p", 1))
		greater(s.join("a", "p", 2))
		greater(s.join("a", "q", 2, newFence))
		s.wait(1, "b", "p", 2)
		s.pass(partTTL)
		s.renew("nobody", "p", 1)
		greater(s.take("b", "p", 2))
		s.leave("b", "p", 2)
		for i := range int64(3) {
			greater(s.take("c", fmt.Sprint(i), 1))
			s.leave("c", fmt.Sprint(i), 1)
		}
	}},
	{"I3/the fence is never below the time, so that it grows when a document was removed", func(s *stage) {
		d := s.outcome(s.ask("a", "p", 1), rules.Granted)
		s.check(d.Fence >= d.At.UnixMilli(), "a fence of %d or more, got %d", d.At.UnixMilli(), d.Fence)
	}},
	{"I4/who comes later and could go does not go ahead of who waits", func(s *stage) {
		s.take("a", "p", 1, shared)
		s.wait(1, "b", "p", 1)
		s.outcome(s.ask("c", "p", 1, shared), rules.Busy)
		s.wait(2, "d", "p", 1, shared)
		s.leave("a", "p", 1)
		s.outcome(s.ask("e", "p", 1), rules.Busy)
		s.take("b", "p", 1)
	}},
	{"I4/readers do not starve writers", func(s *stage) {
		s.take("r0", "p", 1, shared)
		s.wait(1, "writer", "p", 1)
		for i := range 5 {
			s.wait(int64(i+2), fmt.Sprint("r", i+1), "p", 1, shared)
		}
		s.leave("r0", "p", 1)
		d := s.stored()
		s.check(len(d.Entries) == 1 && d.Entries[0].LockID == "writer", "the writer's claim alone, got %+v", d.Entries)
	}},
	{"I4/the queue is served in its order", func(s *stage) {
		s.take("a", "p", 1)
		for i := range 4 {
			s.wait(int64(i+1), fmt.Sprint("b", i), "p", 1)
		}
		s.leave("a", "p", 1)
		for i := range 4 {
			s.outcome(s.ask("late", "p", 1), rules.Busy)
			s.take(fmt.Sprint("b", i), "p", 10)
			s.leave(fmt.Sprint("b", i), "p", 10)
		}
	}},
	{"I4/a request that is repeated keeps its place", func(s *stage) {
		s.take("a", "p", 1, forever)
		s.wait(1, "b", "p", 1)
		s.wait(2, "c", "p", 1)
		s.wait(1, "b", "p", 2)
		s.wait(2, "c", "p", 1)
	}},
	{"I5/renew, leave and withdraw touch only the part and order that they name", func(s *stage) {
		s.take("a", "p", 2, shared)
		s.join("a", "q", 2, shared)
		s.take("b", "p", 2, shared)
		s.wait(1, "c", "p", 2)
		s.wait(2, "c", "q", 2)
		before := s.stored()
		for _, name := range []struct {
			lockID, part string
			order        int64
		}{{"a", "p", 1}, {"a", "p", 3}, {"a", "r", 2}, {"x", "p", 2}} {
			s.outcome(s.renew(name.lockID, name.part, name.order), rules.Lost)
			s.withdraw(name.lockID, name.part, name.order)
			s.unchanged(before)
		}
		s.leave("a", "p", 1)
		s.leave("a", "r", 2)
		s.leave("c", "p", 1)
		s.release("x", 9)
		after := s.stored()
		s.check(same(before.Entries, after.Entries) && same(before.Waiters, after.Waiters), "nothing to change, got %+v", after)
		s.leave("a", "p", 2)
		s.outcome(s.renew("a", "q", 2), rules.Granted)
		s.outcome(s.renew("b", "p", 2), rules.Granted)
		s.outcome(s.withdraw("c", "p", 2), rules.Granted)
		s.check(s.stored().Tombstone("c", "p") != nil, "c to be taken out, got %+v", s.stored().Waiters)
		s.check(same(s.stored().Waiters[1], before.Waiters[1]), "the other part of c to wait, got %+v", s.stored().Waiters)
	}},
	{"I5/release touches only its lock ID, up to its order", func(s *stage) {
		s.take("a", "p", 2, shared)
		s.join("a", "q", 5, shared)
		s.take("b", "p", 2, shared)
		s.wait(1, "b", "q", 2)
		s.wait(2, "a", "r", 5)
		s.release("a", 4)
		s.outcome(s.renew("a", "q", 5), rules.Granted)
		s.outcome(s.renew("b", "p", 2), rules.Granted)
		s.outcome(s.renew("a", "p", 2), rules.Lost)
		s.check(len(s.stored().Waiters) == 2, "both to wait, got %+v", s.stored().Waiters)
	}},
}
