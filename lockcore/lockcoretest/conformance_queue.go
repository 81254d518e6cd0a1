package lockcoretest

import (
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// queueScenarios show how the queue is served.
var queueScenarios = []Scenario{
	{"settle/what is given up is granted to the head of the queue, who confirms it", func(s *stage) {
		first := s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.wait(2, "c", "p", 1)
		since := s.stored().Waiters[0].Since
		d := s.leave("a", "p", 1)
		s.check(d.Last.Length == 1, "one who still waits, got %d", d.Last.Length)
		c := s.claimed("b", "p")
		s.check(c.ExpiresAt.Sub(d.At) == claimTTL && c.Fence == 0, "a claim for %v without a fence, got %+v", claimTTL, c)
		s.outcome(s.ask("c", "p", 1, queue), rules.Queued)
		b := s.take("b", "p", 1)
		s.check(b.Fence > first.Fence, "a fence above %d, got %d", first.Fence, b.Fence)
		s.check(b.Since != nil && b.ClaimedAt != nil && !b.Since.After(since), "since when it waited and until when, got %+v", b)
	}},
	{"settle/consecutive shared requests are granted together, up to an exclusive one", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, shared)
		s.wait(2, "c", "p", 1, shared)
		s.wait(3, "d", "p", 1)
		s.wait(4, "e", "p", 1, shared)
		s.leave("a", "p", 1)
		d := s.stored()
		s.check(d.Claim("b", "p") != nil && d.Claim("c", "p") != nil && len(d.Entries) == 2, "claims of b and c, got %+v", d.Entries)
		s.check(len(d.Waiters) == 2 && d.Waiters[0].LockID == "d", "d and e to wait, got %+v", d.Waiters)
	}},
	{"settle/requests with a limit are granted while there is room", func(s *stage) {
		s.take("a", "p", 1)
		for i := range 3 {
			s.wait(int64(i+1), fmt.Sprint("b", i), "p", 1, limit(2))
		}
		s.leave("a", "p", 1)
		s.take("b0", "p", 1, limit(2))
		s.take("b1", "p", 1, limit(2))
		d := s.stored()
		s.check(len(d.Entries) == 2 && len(d.Waiters) == 1, "two to hold and one to wait, got %+v, %+v", d.Entries, d.Waiters)
		s.leave("b0", "p", 1)
		s.claimed("b2", "p")
	}},
	{"settle/as many requests with the same limit are granted in one write as there is room for", func(s *stage) {
		s.take("a", "p", 1)
		for i, n := range []int64{3, 3, 4, 4, 3} {
			s.wait(int64(i+1), fmt.Sprint("b", i), "p", 1, limit(n))
		}
		s.leave("a", "p", 1)
		d := s.stored()
		s.check(len(d.Entries) == 2 && len(d.Waiters) == 3, "two claims, got %+v", d.Entries)
		s.take("b0", "p", 1, limit(3))
		s.claimed("b2", "p")
		s.claimed("b3", "p")
		s.check(len(s.stored().Waiters) == 1, "one to wait, got %+v", s.stored().Waiters)
	}},
	{"settle/no request is granted with those ahead of it that asks for a smaller limit", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, limit(3))
		s.wait(2, "c", "p", 1, limit(2))
		s.wait(3, "d", "p", 1, limit(3))
		s.leave("a", "p", 1)
		s.check(len(s.stored().Entries) == 1, "one claim, got %+v", s.stored().Entries)
		s.take("b", "p", 1, limit(3))
		s.claimed("c", "p")
		s.check(s.stored().Claim("d", "p") == nil, "d to wait, got %+v", s.stored().Entries)
		s.take("c", "p", 1, limit(2))
		s.claimed("d", "p")
	}},
	{"settle/an expired hold goes if it would exceed the limit beside all who are granted at once", func(s *stage) {
		s.take("a", "p", 1, limit(3))
		s.take("b", "p", 1, limit(3), forever)
		s.take("c", "p", 1, limit(3), forever)
		s.wait(1, "d", "p", 1, limit(3))
		s.wait(2, "e", "p", 1, limit(3))
		s.pass(partTTL)
		s.leave("b", "p", 1)
		s.check(s.stored().Claim("d", "p") != nil && s.stored().Claim("e", "p") != nil, "claims of d and e, got %+v", s.stored().Entries)
		s.outcome(s.renew("a", "p", 1), rules.Lost)
	}},
	{"settle/many shared requests are granted, a bounded number in one write", func(s *stage) {
		s.take("a", "p", 1)
		for i := range rules.SettleMost + 1 {
			s.wait(int64(i+1), fmt.Sprint(i), "p", 1, shared)
		}
		s.leave("a", "p", 1)
		d := s.stored()
		s.check(len(d.Entries) == rules.SettleMost && len(d.Waiters) == 1, "%d claims, got %d", rules.SettleMost, len(d.Entries))
		s.take("0", "p", 1, shared)
		s.claimed(fmt.Sprint(rules.SettleMost), "p")
	}},
	{"settle/no claims beside an exclusive holder, not even its own", func(s *stage) {
		s.queueOfOne("l", "n")
		d := s.stored()
		s.check(d.Claim("l", "b") == nil && d.Claim("n", "p") == nil && len(d.Waiters) == 2, "b and n to wait, got %+v", d.Entries)
		s.join("l", "b", 1, shared)
		s.outcome(s.ask("n", "p", 1, shared, queue), rules.Queued)
		s.leave("l", "b", 1)
		s.leave("l", "a", 1)
		s.claimed("n", "p")
	}},
	{"settle/a claim beside its own exclusive hold that has expired stands alone: the hold may come back", func(s *stage) {
		s.queueOfOne("l", "n")
		s.pass(partTTL)
		s.outcome(s.withdraw("nobody", "p", 1), rules.Lost)
		s.claimed("l", "b")
		s.check(s.stored().Claim("n", "p") == nil, "n to wait, got %+v", s.stored().Entries)
		s.outcome(s.renew("l", "a", 1), rules.Granted)
		s.outcome(s.ask("n", "p", 1, shared), rules.Busy)
	}},
	{"settle/every write of a document serves its queue", func(s *stage) {
		base := s.resource
		for name, write := range map[string]func(){
			"acquire":  func() { s.outcome(s.ask("c", "p", 1), rules.Busy) },
			"renew":    func() { s.outcome(s.renew("nobody", "p", 1), rules.Lost) },
			"leave":    func() { s.outcome(s.leave("nobody", "p", 1), rules.Granted) },
			"release":  func() { s.outcome(s.release("nobody", 1), rules.Granted) },
			"withdraw": func() { s.outcome(s.withdraw("nobody", "p", 1), rules.Lost) },
		} {
			s.resource = base + "/" + name
			s.take("a", "p", 1)
			s.wait(1, "b", "p", 1)
			s.pass(partTTL)
			write()
			s.claimed("b", "p")
		}
	}},
	{"release/of a hold by its first fence serves the queue", func(s *stage) {
		first := s.take("a", "p", 1).FirstFence
		s.wait(1, "b", "p", 1)
		s.endHold("a", first, leaving("p", 1))
		s.claimed("b", "p")
	}},
	{"claim/it keeps others out, and the next in line is served when it lapses", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.wait(2, "c", "p", 1)
		s.leave("a", "p", 1)
		s.outcome(s.ask("d", "p", 1), rules.Busy)
		s.pass(claimTTL - time.Minute)
		s.outcome(s.ask("c", "p", 1), rules.Busy)
		s.pass(time.Minute)
		s.outcome(s.ask("d", "p", 1), rules.Busy)
		s.claimed("c", "p")
		s.take("c", "p", 2)
	}},
	{"claim/who slept through it is the first in the queue when it is heard of again", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.wait(2, "c", "p", 1)
		s.wait(3, "d", "p", 1)
		s.leave("a", "p", 1)
		s.pass(claimTTL)
		s.renew("nobody", "p", 1)
		s.take("c", "p", 1)
		s.wait(1, "b", "p", 1)
		s.check(s.stored().Waiters[1].LockID == "d", "d behind b, got %+v", s.stored().Waiters)
		s.leave("c", "p", 1)
		s.claimed("b", "p")
	}},
	{"claim/each that is slept through makes the next stand twice as long, up to four times the first", func(s *stage) {
		long := func(op *rules.Acquire) { op.WaiterTTL = 5 * claimTTL.Milliseconds() }
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, long)
		s.leave("a", "p", 1)
		for i, ttl := range []time.Duration{claimTTL, 2 * claimTTL, 4 * claimTTL, 4 * claimTTL} {
			c := s.claimed("b", "p")
			s.check(c.ExpiresAt.Sub(*c.ClaimedAt) == ttl, "a claim for %v, got %+v", ttl, c)
			if i == 3 {
				break
			}
			s.pass(ttl)
			s.take("c", "p", int64(i+1))
			s.wait(1, "b", "p", int64(i+2), long)
			s.wait(1, "b", "p", int64(i+2), long, refresh)
			s.leave("c", "p", int64(i+1))
		}
		s.take("b", "p", 9)
		s.leave("b", "p", 9)
		s.take("c", "p", 9)
		s.wait(1, "b", "p", 10)
		s.leave("c", "p", 9)
		c := s.claimed("b", "p")
		s.check(c.ExpiresAt.Sub(*c.ClaimedAt) == claimTTL, "a new request's claim for %v, got %+v", claimTTL, c)
	}},
	{"claim/who slept through one is granted by the second, though its slot comes as late as before", func(s *stage) {
		const late = claimTTL + claimTTL/2
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.leave("a", "p", 1)
		s.pass(late)
		s.take("c", "p", 1)
		s.wait(1, "b", "p", 2)
		s.wait(2, "d", "p", 1)
		s.leave("c", "p", 1)
		s.pass(late)
		s.outcome(s.ask("d", "p", 2), rules.Busy)
		s.take("b", "p", 3)
	}},
	{"claim/one for which there is no room any more under its limit is the first place in the queue again", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, limit(1))
		s.leave("a", "p", 1)
		s.claimed("b", "p")
		s.take("c", "p", 1, shared)
		s.wait(1, "b", "p", 1, limit(1))
		s.outcome(s.ask("d", "p", 1, shared), rules.Busy)
		s.leave("c", "p", 1)
		c := s.claimed("b", "p")
		s.check(c.ExpiresAt.Sub(*c.ClaimedAt) == claimTTL, "a claim for %v, got %+v", claimTTL, c)
		s.take("b", "p", 1, limit(1))
	}},
	{"claim/a refresh that finds it lapsed has one that stands twice as long", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.leave("a", "p", 1)
		s.pass(claimTTL)
		s.wait(1, "b", "p", 1, refresh)
		c := s.claimed("b", "p")
		s.check(c.ExpiresAt.Sub(*c.ClaimedAt) == 2*claimTTL, "a claim for %v, got %+v", 2*claimTTL, c)
		s.outcome(s.ask("b", "p", 1, refresh), rules.Busy)
		s.check(same(c, s.claimed("b", "p")), "the same claim, got %+v", s.stored().Entries)
	}},
	{"claim/a request that comes back with its claim lapsed and nobody in between is granted", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.leave("a", "p", 1)
		s.pass(claimTTL)
		s.take("b", "p", 2, queue)
	}},
	{"claim/those who slept through theirs are ahead of the queue in the order in which they come back", func(s *stage) {
		s.take("a", "p", 1)
		for i, lockID := range []string{"b", "c", "d"} {
			s.wait(int64(i+1), lockID, "p", 1, shared)
		}
		s.wait(4, "e", "p", 1)
		s.leave("a", "p", 1)
		s.pass(claimTTL)
		s.take("d", "p", 2, shared)
		s.wait(1, "c", "p", 2)
		s.wait(2, "b", "p", 2)
		s.wait(1, "c", "p", 3)
		s.leave("d", "p", 2)
		s.claimed("c", "p")
		s.check(s.stored().Waiters[0].LockID == "b" && s.stored().Waiters[1].LockID == "e", "b ahead of e, got %+v", s.stored().Waiters)
	}},
	{"claim/who comes back when its place is over queues behind the others", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.leave("a", "p", 1)
		s.pass(claimTTL)
		s.take("a", "p", 2, forever)
		s.wait(1, "c", "p", 1)
		s.pass(waiterTTL - claimTTL)
		s.wait(2, "b", "p", 2)
		s.check(!s.stored().Waiters[1].Ahead && s.stored().Waiters[1].ClaimTTL == 0, "a new place, got %+v", s.stored().Waiters)
	}},
	{"claim/one whose place is over does not let its request in ahead of the queue", func(s *stage) {
		s.take("a", "p", 1, shared)
		s.wait(1, "b", "p", 1)
		s.leave("a", "p", 1)
		s.pass(waiterTTL)
		s.take("a", "p", 2, shared)
		s.wait(1, "c", "p", 1)
		s.outcome(s.ask("b", "p", 2, shared), rules.Busy)
	}},
	{"claim/leaving gives it up to the next in line", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.wait(2, "c", "p", 1)
		s.leave("a", "p", 1)
		s.leave("b", "p", 1)
		s.claimed("c", "p")
		s.check(s.stored().Claim("b", "p") == nil, "no claim of b, got %+v", s.stored().Entries)
	}},
	{"claim/a later order confirms it", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.leave("a", "p", 1)
		s.take("b", "p", 5)
		s.check(len(s.stored().Entries) == 1, "one entry, got %+v", s.stored().Entries)
	}},
	{"queue/who is overdue is passed over, by those behind it and by newcomers, and keeps its place", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "late", "p", 1, heardIn(time.Minute))
		s.wait(2, "b", "p", 1)
		s.pass(2 * time.Minute)
		s.leave("a", "p", 1)
		s.check(s.stored().Claim("late", "p") == nil, "no claim of who is overdue, got %+v", s.stored().Entries)
		s.take("b", "p", 1)
		s.leave("b", "p", 1)
		s.take("c", "p", 1)
		s.wait(2, "d", "p", 1)
		s.wait(1, "late", "p", 1, refresh)
		s.leave("c", "p", 1)
		s.claimed("late", "p")
	}},
	{"queue/who does not say when it is heard of is not overdue while its place stands", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		w := s.stored().Waiters[0]
		s.check(w.OverdueAt.Equal(w.ExpiresAt), "it not to be overdue before %v, got %v", w.ExpiresAt, w.OverdueAt)
		s.wait(1, "b", "p", 1, heardIn(waiterTTL))
		w = s.stored().Waiters[0]
		s.check(w.OverdueAt.Equal(w.ExpiresAt), "it not to be overdue after %v, got %v", w.ExpiresAt, w.OverdueAt)
	}},
	{"queue/who is released leaves it", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.wait(2, "b", "q", 3)
		s.release("b", 2)
		d := s.stored()
		s.check(len(d.Waiters) == 1 && d.Waiters[0].Part == "q", "q to wait, got %+v", d.Waiters)
	}},
}

// queueOfOne makes one lock ID hold exclusively by its part a, and wait in shared mode with its part b, ahead of another.
func (s *stage) queueOfOne(lockID, other string) {
	s.Helper()
	s.take("m", "p", 1)
	s.wait(1, lockID, "a", 1)
	s.wait(2, lockID, "b", 1, shared)
	s.wait(3, other, "p", 1, shared)
	s.leave("m", "p", 1)
	s.take(lockID, "a", 1)
}
