package scenarios

import (
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// queueScenarios are about positions in the queue, and about how it is served.
var queueScenarios = []Scenario{
	{"queue/first come, first served", func(s *stage) {
		s.take("a", "p", 1)
		for i := range 4 {
			s.wait(int64(i+1), fmt.Sprint("b", i), "p", 1)
		}
		s.leave("a", "p", 1)
		for i := range 4 {
			s.ask(rules.Busy, "late", "p", 1)
			s.take(fmt.Sprint("b", i), "p", 10)
			s.leave(fmt.Sprint("b", i), "p", 10)
		}
	}},
	{"queue/newcomer that would fit does not go ahead of a waiter", func(s *stage) {
		s.take("a", "p", 1, shared)
		s.wait(1, "b", "p", 1)
		s.ask(rules.Busy, "c", "p", 1, shared)
		s.wait(2, "d", "p", 1, shared)
		s.leave("a", "p", 1)
		s.ask(rules.Busy, "e", "p", 1)
		s.take("b", "p", 1)
	}},
	{"queue/repeated request keeps and refreshes its position", func(s *stage) {
		s.take("a", "p", 1, forever)
		s.wait(1, "b", "p", 1)
		s.wait(2, "c", "p", 1)
		since := s.stored().Waiters[0].Since
		s.pass(waiterTTL / 2)
		s.wait(1, "b", "p", 2)
		s.wait(2, "c", "p", 1)
		d := s.stored()
		s.check(d.Waiters[0].Order == 2 && !d.Waiters[0].Since.After(since), "b with order 2, waiting since before, got %+v", d.Waiters)
		s.pass(waiterTTL / 2)
		s.wait(1, "b", "p", 2)
	}},
	{"queue/full queue refuses newcomers only", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, maxWaiters(1))
		before := s.stored()
		a := s.ask(rules.Full, "c", "p", 1, queue, maxWaiters(1))
		s.check(a.Length == 1 && a.ReadOnly, "a queue of one, got %+v", a.Result)
		s.unchanged(before)
		s.wait(1, "b", "p", 1, maxWaiters(1))
	}},
	{"queue/waiter that was not refreshed leaves, and is not counted", func(s *stage) {
		s.take("a", "p", 1, forever)
		s.wait(1, "b", "p", 1, maxWaiters(1))
		s.pass(waiterTTL / 2)
		s.wait(2, "c", "p", 1)
		s.pass(waiterTTL / 2)
		s.wait(2, "d", "p", 1, maxWaiters(2))
		s.leave("a", "p", 1)
		s.claimed("c", "p")
		s.pass(2 * waiterTTL)
		s.take("e", "p", 1)
	}},
	{"queue/overdue waiter is passed over, and keeps its position", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "late", "p", 1, heardIn(time.Minute))
		s.wait(2, "b", "p", 1)
		s.pass(2 * time.Minute)
		s.leave("a", "p", 1)
		s.unclaimed("late", "p")
		s.take("b", "p", 1)
		s.leave("b", "p", 1)
		s.take("c", "p", 1)
		s.wait(2, "d", "p", 1)
		s.wait(1, "late", "p", 1, refresh)
		s.leave("c", "p", 1)
		s.claimed("late", "p")
	}},
	{"queue/a request that is granted leaves the queue, although it was passed over", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, heardIn(time.Minute))
		s.pass(2 * time.Minute)
		s.leave("a", "p", 1)
		s.take("b", "p", 2)
		s.waiting()
	}},
	{"queue/waiter is not overdue before it leaves the queue, unless it says when it is heard of", func(s *stage) {
		s.take("a", "p", 1)
		for _, changes := range [][]with{nil, {heardIn(waiterTTL)}} {
			s.wait(1, "b", "p", 1, changes...)
			w := s.stored().Waiters[0]
			s.check(w.OverdueAt.Equal(w.ExpiresAt), "overdue at %v, got %v", w.ExpiresAt, w.OverdueAt)
		}
	}},
	{"refresh/it takes no position, and grants nothing", func(s *stage) {
		s.take("a", "p", 1)
		s.ask(rules.Busy, "a", "q", 1, refresh)
		s.ask(rules.Busy, "b", "p", 1, refresh)
		s.waiting()
		s.wait(1, "b", "p", 1)
		s.wait(1, "b", "p", 1, refresh)
		s.leave("a", "p", 1)
		s.ask(rules.Busy, "b", "p", 1, refresh)
		s.claimed("b", "p")
		s.take("b", "p", 1)
		s.leave("b", "p", 1)
		s.ask(rules.Busy, "b", "p", 2, refresh)
		s.entries(0)
	}},
	{"settle/freed resource is granted to the head of the queue as a claim", func(s *stage) {
		first := s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.wait(2, "c", "p", 1)
		since := s.stored().Waiters[0].Since
		d := s.leave("a", "p", 1)
		s.check(d.Length == 1, "one waiter, got %d", d.Length)
		c := s.claimed("b", "p")
		s.check(c.ExpiresAt.Sub(d.At) == claimTTL && c.Fence == 0, "a claim for %v without a fence, got %+v", claimTTL, c)
		s.wait(1, "c", "p", 1)
		b := s.take("b", "p", 1)
		s.check(b.Fence > first.Fence, "a fence above %d, got %d", first.Fence, b.Fence)
		s.check(b.Since != nil && b.ClaimedAt != nil && !b.Since.After(since), "the time at which it queued, got %+v", b)
	}},
	{"settle/shared waiters are granted together, up to an exclusive one", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, shared)
		s.wait(2, "c", "p", 1, shared)
		s.wait(3, "d", "p", 1)
		s.wait(4, "e", "p", 1, shared)
		s.leave("a", "p", 1)
		s.claimed("b", "p")
		s.claimed("c", "p")
		s.waiting("d", "e")
	}},
	{"settle/waiters are granted together, each while there is room under its own limit", func(s *stage) {
		s.take("a", "p", 1)
		for i, n := range []int64{3, 3, 4, 4, 3, 5} {
			s.wait(int64(i+1), fmt.Sprint("b", i), "p", 1, limit(n))
		}
		s.leave("a", "p", 1)
		s.entries(4)
		s.waiting("b4", "b5") // b4 is not admitted, and b5 waits for it
	}},
	{"settle/one write grants a bounded number of claims", func(s *stage) {
		s.take("a", "p", 1)
		for i := range rules.SettleMost + 1 {
			s.wait(int64(i+1), fmt.Sprint(i), "p", 1, shared)
		}
		s.leave("a", "p", 1)
		s.entries(rules.SettleMost)
		s.take("0", "p", 1, shared)
		s.claimed(fmt.Sprint(rules.SettleMost), "p")
	}},
	{"settle/no other lock ID gets a claim while one holds exclusively", func(s *stage) {
		s.ownWaiter()
		s.unclaimed("n", "p")
		s.waiting("n")
		s.join("l", "b", 1, shared)
		s.wait(1, "n", "p", 1, shared)
		s.leave("l", "b", 1)
		s.leave("l", "a", 1)
		s.claimed("n", "p")
	}},
	{"settle/a claim evicts the exclusive part of a lock ID that has a claim too", func(s *stage) {
		s.ownWaiter()
		s.pass(partTTL)
		s.settle()
		s.claimed("l", "b")
		s.claimed("n", "p")
		s.renew(rules.Lost, "l", "a", 1)
		s.check(s.stored().LossEvidence("l", "", time.Time{}) != nil, "evidence, got %+v", s.stored().Evidence)
	}},
	{"settle/every write serves the queue", func(s *stage) {
		base := s.resource
		for name, write := range map[string]func(){
			"acquire":  func() { s.ask(rules.Lost, "c", "p", 1, held) },
			"renew":    func() { s.renew(rules.Lost, "nobody", "p", 1) },
			"leave":    func() { s.leave("nobody", "p", 1) },
			"release":  func() { s.release("nobody", 1) },
			"hold":     func() { s.release("nobody", 1, began(1)) },
			"verify":   func() { s.verify(rules.Lost, "nobody", "one", 1) },
			"raise":    func() { s.raise(rules.Granted, "nobody", 1) },
			"withdraw": func() { s.withdraw(rules.Lost, "nobody", "p", 1) },
			"give up":  func() { s.giveUp("nobody", "p", 1) },
			"settle":   func() { s.settle() },
		} {
			s.resource = base + "/" + name
			s.take("a", "p", 1)
			s.wait(1, "b", "p", 1)
			s.pass(partTTL)
			write()
			s.claimed("b", "p")
		}
	}},
	{"contended/a document is marked while it has more than plain holds", func(s *stage) {
		marked := func(want bool) {
			s.Helper()
			s.check(len(s.stored().Attn) > 0 == want, "the mark %v, got %+v", want, s.stored().Attn)
		}
		s.take("a", "p", 1)
		marked(false)
		s.wait(1, "b", "p", 1)
		marked(true)
		s.leave("a", "p", 1)
		marked(true) // a claim
		s.take("b", "p", 1)
		marked(false)
		s.join("b", "p", 2)
		marked(true) // a draining part
		s.leave("b", "p", 1)
		marked(false)
		s.leave("b", "p", 2)
		s.take("a", "p", 1, keep)
		marked(true)
		s.leave("a", "p", 1)
		s.renew(rules.Lost, "a", "p", 1)
		marked(true)
		s.release("a", 1)
		marked(false)
		s.take("a", "p", 2, keep)
		s.pass(holdTTL)
		s.take("b", "p", 3)
		s.leave("b", "p", 3)
		marked(false)
	}},
}

// ownWaiter makes lock ID l hold exclusively with part a, and wait shared with part b, ahead of n.
func (s *stage) ownWaiter() {
	s.Helper()
	s.take("m", "p", 1)
	s.wait(1, "l", "a", 1)
	s.wait(2, "l", "b", 1, shared)
	s.wait(3, "n", "p", 1, shared)
	s.leave("m", "p", 1)
	s.take("l", "a", 1)
}

// claimScenarios are about grants that are not confirmed yet.
var claimScenarios = []Scenario{
	{"claim/it keeps others out, and passes to the next waiter when it lapses", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.wait(2, "c", "p", 1)
		s.leave("a", "p", 1)
		s.ask(rules.Busy, "d", "p", 1)
		s.ask(rules.Busy, "d", "p", 1, shared)
		s.pass(claimTTL - time.Minute)
		s.ask(rules.Busy, "c", "p", 1)
		s.pass(time.Minute)
		s.ask(rules.Busy, "d", "p", 1)
		s.settle()
		s.claimed("c", "p")
		s.take("c", "p", 2)
	}},
	{"claim/a later order confirms it, even if it lapsed, unless another party was granted", func(s *stage) {
		for i, wait := range []time.Duration{0, claimTTL} {
			order := int64(10*i + 1)
			s.take("a", "p", order)
			s.wait(1, "b", "p", order)
			s.leave("a", "p", order)
			s.pass(wait)
			s.take("b", "p", order+5, queue)
			s.entries(1)
			s.leave("b", "p", order+5)
		}
	}},
	{"claim/leaving passes it to the next waiter", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.wait(2, "c", "p", 1)
		s.leave("a", "p", 1)
		s.leave("b", "p", 0) // an earlier attempt
		s.claimed("b", "p")
		s.leave("b", "p", 1)
		s.claimed("c", "p")
		s.unclaimed("b", "p")
	}},
	{"claim/one that lapsed makes its request the head of the queue", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.wait(2, "c", "p", 1)
		s.wait(3, "d", "p", 1)
		s.leave("a", "p", 1)
		s.pass(claimTTL)
		s.settle()
		s.take("c", "p", 1)
		s.wait(1, "b", "p", 1)
		s.waiting("b", "d")
		s.leave("c", "p", 1)
		s.claimed("b", "p")
	}},
	{"claim/requests whose claims lapsed queue ahead, in the order in which they return", func(s *stage) {
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
		s.waiting("b", "e")
	}},
	{"claim/each that lapses makes the next twice as long, up to four times the first", func(s *stage) {
		long := func(op *rules.Acquire) { op.WaiterTTL = 5 * claimTTL.Milliseconds() }
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, long)
		s.leave("a", "p", 1)
		for i, ttl := range []time.Duration{claimTTL, 2 * claimTTL, 4 * claimTTL, 4 * claimTTL} {
			s.claimedFor(ttl, "b")
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
		s.claimedFor(claimTTL, "b") // a new request
	}},
	{"claim/a refresh of a lapsed claim has one that is twice as long", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.leave("a", "p", 1)
		s.pass(claimTTL)
		s.wait(1, "b", "p", 1, refresh)
		s.claimedFor(2*claimTTL, "b")
		before := s.stored()
		s.ask(rules.Busy, "b", "p", 1, refresh)
		s.unchanged(before)
	}},
	{"claim/it keeps its room, although others were granted theirs under a greater limit", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, limit(1))
		s.leave("a", "p", 1)
		s.claimed("b", "p")
		s.take("c", "p", 1, shared)
		s.take("d", "p", 1, limit(3))
		s.take("b", "p", 1, limit(1))
	}},
	{"queue/a request that is refused because its hold was lost gives up its place and its claim", func(s *stage) {
		for i, claimed := range []bool{false, true} {
			s.resource += string(rune('0' + i))
			s.take("l", "p", 1, keep, shared)
			s.take("v", "p", 1, shared)
			s.wait(1, "l", "q", 2, keep)
			s.release("l", 0, began(s.stored().HoldFence("l")), forced("test"), atOnce)
			if claimed {
				s.leave("v", "p", 1)
				s.claimed("l", "q")
			}
			s.ask(rules.Lost, "l", "q", 3, keep, queue)
			s.waiting()
			s.unclaimed("l", "q")
		}
	}},
	{"queue/a hold within which a request is does not count when room is made for it", func(s *stage) {
		s.take("b", "p", 1, shared)
		s.ask(rules.Granted, "w", "p", 1, holdOnly, shared, label("one"))
		s.pass(partTTL + time.Minute)
		a := s.ask(rules.Granted, "w/1", "p", 1, limit(2), within("w"), label("one"))
		s.check(len(a.Expired) == 0, "nobody to be evicted, got %+v", a.Expired)
	}},
	{"claim/a request that needs more than its claim returns to the head of the queue", func(s *stage) {
		for i, more := range []with{func(*rules.Acquire) {}, limit(1)} {
			s.resource += string(rune('0' + i))
			s.take("a", "p", 1)
			s.wait(1, "b", "p", 1, limit(2))
			s.leave("a", "p", 1)
			s.take("c", "p", 1, shared)
			s.wait(1, "b", "p", 2, more)
			s.unclaimed("b", "p")
			s.ask(rules.Busy, "d", "p", 1, shared)
			s.leave("c", "p", 1)
			s.claimedFor(claimTTL, "b")
			s.take("b", "p", 2, more)
		}
	}},
	{"claim/one without a limit does not suffice for a request with one", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, shared)
		s.leave("a", "p", 1)
		s.take("c", "p", 1, shared)
		s.take("d", "p", 1, shared)
		s.wait(1, "b", "p", 2, limit(2))
	}},
	{"claim/one is not confirmed beside a part that was cut off", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, shared)
		s.leave("a", "p", 1)
		s.take("w", "p", 1, shared, label("one"))
		s.wait(1, "w", "p", 1, shared, label("two"), takeOver("one"))
		s.wait(1, "b", "p", 1, shared)
	}},
	{"claim/one that was passed has no room", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, limit(1))
		s.wait(2, "c", "p", 1, limit(1))
		s.leave("a", "p", 1)
		s.pass(claimTTL)
		s.settle()
		s.claimed("c", "p")
		s.check(s.claimed("b", "p").Passed, "a claim that is passed, got %+v", s.stored().Entries)
		s.wait(1, "b", "p", 1, limit(1))
	}},
	{"claim/one that has lapsed is confirmed beside holds that its mode admits", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, limit(1))
		s.leave("a", "p", 1)
		s.pass(claimTTL)
		s.take("b", "p", 1, limit(1))
	}},
	{"claim/one that has lapsed is passed by any grant, even if the clock is set back", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.leave("a", "p", 1)
		s.pass(claimTTL)
		c := s.take("c", "p", 1, short) // which waits for nobody: the claim has lapsed
		s.check(s.claimed("b", "p").Passed, "a claim that is passed, got %+v", s.stored().Entries)
		s.pass(-time.Minute)
		s.wait(1, "b", "p", 1)
		s.renew(rules.Granted, "c", "p", c.Order)
	}},
	{"claim/one whose position has expired too is gone", func(s *stage) {
		for i, before := range []func(){func() {}, func() { s.leave("nobody", "p", 1); s.entries(1) }} {
			s.resource += string(rune('0' + i))
			s.take("a", "p", 1, shared)
			s.wait(1, "b", "p", 1)
			s.leave("a", "p", 1)
			s.pass(claimTTL)
			s.take("a", "p", 2, forever, shared)
			s.wait(1, "c", "p", 1)
			s.pass(waiterTTL - claimTTL)
			s.ask(rules.Busy, "b", "p", 2, shared)
			before()
			s.wait(2, "b", "p", 2)
			w := s.stored().Waiters[1]
			s.check(!w.Ahead && w.ClaimTTL == 0, "a new waiter, got %+v", w)
		}
	}},
}

// claimedFor expects a claim of part p that lasts for a TTL.
func (s *stage) claimedFor(ttl time.Duration, lockID string) {
	s.Helper()
	c := s.claimed(lockID, "p")
	s.check(c.ExpiresAt.Sub(*c.ClaimedAt) == ttl, "a claim for %v, got %+v", ttl, c)
}

// deadlockScenarios are about waiters that are withdrawn.
var deadlockScenarios = []Scenario{
	{"withdraw/the part reads why until it leaves, whatever its order", func(s *stage) {
		s.take("a", "p", 1)
		for _, order := range []int64{1, 2} {
			s.wait(1, "b", "p", order)
			s.gone(s.withdraw(rules.Granted, "b", "p", order), "p")
			s.gone(s.withdraw(rules.Lost, "b", "p", order))
			for range 2 { // the first answer may be lost
				d := s.ask(rules.Deadlock, "b", "p", 2*order-1, queue)
				s.check(d.Note == "deadlock", "the verdict, got %+v", d.Result)
			}
			s.leave("b", "p", 2*order-1)
		}
		s.wait(1, "b", "p", 4)
		s.withdraw(rules.Granted, "b", "p", 4)
		s.leave("a", "p", 1)
		s.ask(rules.Deadlock, "b", "p", 5) // the resource is free
	}},
	{"withdraw/a victim gets no claim, and is not ahead of anybody", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.wait(2, "b", "q", 1)
		s.withdraw(rules.Granted, "b", "p", 1)
		s.withdraw(rules.Granted, "b", "q", 1)
		s.leave("a", "p", 1)
		s.entries(0)
		s.take("c", "p", 1)
		s.gone(s.leave("b", "p", 1))
		s.gone(s.release("b", 1))
		s.waiting()
		s.wait(1, "b", "p", 2)
		s.withdraw(rules.Granted, "b", "p", 2)
		s.pass(waiterTTL)
		s.take("b", "p", 3)
	}},
	{"withdraw/it takes neither a claim nor another order", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 2)
		s.gone(s.withdraw(rules.Lost, "b", "p", 1))
		s.withdraw(rules.Lost, "b", "p", 3)
		s.withdraw(rules.Lost, "b", "q", 2)
		s.leave("a", "p", 1)
		s.withdraw(rules.Lost, "b", "p", 2)
		s.take("b", "p", 2)
	}},
}

// gone expects that an operation ended the waiters and claims of these parts.
func (s *stage) gone(a *answer, parts ...string) []rules.Entry {
	s.Helper()
	ended := a.Withdrawn(a.At)
	got := []string{}
	for _, g := range ended {
		got = append(got, g.Part)
	}
	s.check(fmt.Sprint(got) == fmt.Sprint(parts), "the parts %v to be gone, got %+v", parts, a.Ended)
	return ended
}
