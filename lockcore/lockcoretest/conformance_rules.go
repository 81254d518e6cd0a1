package lockcoretest

import (
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// ruleScenarios show the rules of package engine one by one, where they grant.
var ruleScenarios = []Scenario{
	{"rule 1/the same part and order again gets the same answer", func(s *stage) {
		first := s.take("a", "p", 1)
		again := s.entry(s.outcome(s.ask("a", "p", 1), rules.Again), "a", "p", 1)
		s.check(again.Fence == first.Fence, "fence %d again, got %d", first.Fence, again.Fence)
		s.check(again.ExpiresAt.Equal(first.ExpiresAt), "the promise to end at %v as before, got %v", first.ExpiresAt, again.ExpiresAt)
		s.check(len(s.stored().Entries) == 1, "one entry, got %+v", s.stored().Entries)
	}},
	{"rule 1/the same part and order again gets a stronger mode where that is asked", func(s *stage) {
		s.take("a", "p", 1, shared)
		e := s.take("a", "p", 1)
		s.check(e.Mode == rules.Exclusive, "mode %q, got %q", rules.Exclusive, e.Mode)
	}},
	{"rule 3/another part of the lock ID joins its hold with its fence", func(s *stage) {
		first := s.take("a", "p", 1)
		second := s.join("a", "q", 1)
		s.check(second.Fence == first.Fence, "fence %d, got %d", first.Fence, second.Fence)
		s.outcome(s.renew("a", "p", 1), rules.Granted)
		s.outcome(s.renew("a", "q", 1), rules.Granted)
	}},
	{"rule 3/a weaker mode joins the stronger hold, which stays as strong", func(s *stage) {
		s.take("a", "p", 1)
		e := s.join("a", "q", 1, shared)
		s.check(e.Mode == rules.Exclusive, "mode %q, got %q", rules.Exclusive, e.Mode)
		s.outcome(s.ask("b", "p", 1, shared), rules.Busy)
	}},
	{"rule 3/a greater order supersedes the part with a new fence and cuts the older one off", func(s *stage) {
		first := s.take("a", "p", 1)
		second := s.join("a", "p", 2)
		s.check(second.Fence > first.Fence, "a fence above %d, got %d", first.Fence, second.Fence)
		s.outcome(s.renew("a", "p", 1), rules.Lost)
		s.outcome(s.renew("a", "p", 2), rules.Granted)
	}},
	{"rule 3/joining gives a new fence where that is asked", func(s *stage) {
		first := s.take("a", "p", 1)
		second := s.join("a", "q", 1, newFence)
		s.check(second.Fence > first.Fence, "a fence above %d, got %d", first.Fence, second.Fence)
		third := s.join("a", "r", 1)
		s.check(third.Fence == second.Fence, "the hold's fence %d, got %d", second.Fence, third.Fence)
	}},
	{"rule 3/joining goes ahead of the queue", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.join("a", "q", 1)
	}},
	{"rule 4/a lock ID that shares with nobody upgrades ahead of the queue", func(s *stage) {
		first := s.take("a", "p", 1, shared, keep)
		s.wait(1, "b", "p", 1)
		second := s.take("a", "q", 1, keep)
		s.check(second.Fence > first.Fence, "a fence above %d, got %d", first.Fence, second.Fence)
		d := s.stored()
		p := s.entry(d, "a", "p", 1)
		s.check(p.Mode == rules.Exclusive, "an upgrade of the whole hold, got %+v", p)
	}},
	{"rule 4/an upgrade waits for the others who share, ahead of the queue", func(s *stage) {
		s.take("a", "p", 1, shared)
		s.take("b", "p", 1, shared)
		s.wait(1, "c", "p", 1)
		s.wait(1, "a", "q", 1)
		s.leave("b", "p", 1)
		s.claimed("a", "q")
		s.take("a", "q", 1)
	}},
	{"rule 4/an upgrade converts the entry of its part, which stands while it waits and if it gives up", func(s *stage) {
		first := s.take("a", "p", 1, shared)
		s.take("b", "p", 1, shared)
		s.wait(1, "a", "p", 2, converts(1), held)
		s.outcome(s.renew("a", "p", 1), rules.Granted)
		s.giveUp("a", "p", 2, "")
		s.outcome(s.renew("a", "p", 1), rules.Granted)
		s.wait(1, "a", "p", 3, converts(1), held)
		s.leave("b", "p", 1)
		e := s.take("a", "p", 3, converts(1), held)
		s.check(e.Mode == rules.Exclusive && e.Fence > first.Fence && e.FirstFence == first.Fence, "the hold with a new fence, got %+v", e)
		s.check(e.CreatedAt != nil && !e.CreatedAt.After(*first.CreatedAt), "the time at which the hold began, got %+v", e)
		s.outcome(s.renew("a", "p", 1), rules.Lost)
		s.leave("a", "p", 3)
		s.take("b", "p", 2)
	}},
	{"rule 4/upgrades are ahead of the queue, first come first served among them, and also if it is full", func(s *stage) {
		for _, lockID := range []string{"a", "b", "c"} {
			s.take(lockID, "p", 1, shared)
		}
		s.wait(1, "d", "p", 1, room(1))
		s.wait(1, "a", "q", 1, room(1))
		s.wait(2, "b", "q", 1, room(1))
		s.wait(1, "a", "q", 2, room(1))
		s.outcome(s.ask("e", "p", 1, queue, room(1)), rules.Full)
		s.leave("b", "p", 1)
		s.leave("c", "p", 1)
		s.claimed("a", "q")
	}},
	{"rule 5/what is free is granted", func(s *stage) {
		d := s.outcome(s.ask("a", "p", 1), rules.Granted)
		e := s.entry(d, "a", "p", 1)
		s.check(e.Fence > 0 && e.Fence == d.Fence, "a fence, got %d of %d", e.Fence, d.Fence)
		s.check(e.ExpiresAt.Sub(d.At) == partTTL, "%v left, got %v", partTTL, e.ExpiresAt.Sub(d.At))
		s.check(e.Owner == "" && e.Host == "host" && e.Comment == "comment" && e.Trace == "trace", "what was told, got %+v", e)
		s.check(e.CreatedAt != nil && e.CreatedAt.Equal(d.At), "the time of the grant, got %v", e.CreatedAt)
		s.check(d.Seq == 1 && d.ID == s.resource, "the first write of %q, got %+v", s.resource, d)
		s.check(s.stored().IdleAt.After(e.ExpiresAt), "to be idle after %v, got %v", e.ExpiresAt, s.stored().IdleAt)
	}},
	{"rule 5/shared goes with shared, and with nothing else", func(s *stage) {
		s.take("a", "p", 1, shared)
		s.take("b", "p", 1, shared)
		s.outcome(s.ask("c", "p", 1), rules.Busy)
		s.leave("a", "p", 1)
		s.leave("b", "p", 1)
		s.take("c", "p", 1)
		s.outcome(s.ask("a", "p", 2, shared), rules.Busy)
	}},
	{"rule 5/a limit belongs to the request", func(s *stage) {
		s.take("a", "p", 1, limit(2))
		s.take("b", "p", 1, limit(2))
		s.outcome(s.ask("c", "p", 1, limit(2)), rules.Busy)
		s.take("c", "p", 1, limit(3))
		s.take("d", "p", 1, shared)
	}},
	{"rule 5/parts of one lock ID take one place of a limit", func(s *stage) {
		s.take("a", "p", 1, limit(2))
		s.join("a", "q", 1, limit(2))
		s.take("b", "p", 1, limit(2))
	}},
	{"rule 5/a hold without end has none", func(s *stage) {
		e := s.take("a", "p", 1, forever)
		s.check(!e.ExpiresAt.Before(rules.Never), "no end, got %v", e.ExpiresAt)
		s.pass(24 * 365 * time.Hour)
		s.outcome(s.ask("b", "p", 1), rules.Busy)
	}},
	{"rule 5/a hold that is kept stands without parts, for its own TTL", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.leave("a", "p", 1)
		s.pass(holdTTL - 5*time.Minute)
		s.outcome(s.ask("b", "p", 1), rules.Busy)
		s.join("a", "q", 1, keep)
		s.leave("a", "q", 1)
		s.pass(holdTTL)
		s.take("b", "p", 2)
	}},
	{"rule 5/a hold that is not kept ends with its last part", func(s *stage) {
		s.take("a", "p", 1)
		s.join("a", "q", 1)
		s.leave("a", "p", 1)
		s.outcome(s.ask("b", "p", 1), rules.Busy)
		s.leave("a", "q", 1)
		s.take("b", "p", 1)
	}},
}

// refusalScenarios show the rules where they refuse.
var refusalScenarios = []Scenario{
	{"rule 2/an order that left is refused and changes nothing", func(s *stage) {
		s.take("a", "p", 2)
		s.leave("a", "p", 2)
		before := s.stored()
		s.outcome(s.ask("a", "p", 1), rules.Superseded)
		s.outcome(s.ask("a", "p", 2), rules.Superseded)
		s.unchanged(before)
		s.take("a", "p", 3)
	}},
	{"rule 2/an order that left before it came is refused", func(s *stage) {
		s.leave("a", "p", 1)
		s.outcome(s.ask("a", "p", 1), rules.Superseded)
		s.take("a", "q", 1)
	}},
	{"rule 2/an order that was released is refused for every part", func(s *stage) {
		s.take("a", "p", 1)
		s.release("a", 5)
		before := s.stored()
		s.outcome(s.ask("a", "q", 5), rules.Superseded)
		s.unchanged(before)
		s.take("a", "q", 6)
	}},
	{"rule 2/an order that was superseded is refused and changes nothing", func(s *stage) {
		s.take("a", "p", 1)
		s.join("a", "p", 3)
		before := s.stored()
		s.outcome(s.ask("a", "p", 2), rules.Superseded)
		s.unchanged(before)
	}},
	{"rule 2/an order below one that waits, or was cut off, is refused and changes nothing", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 3)
		before := s.stored()
		s.outcome(s.ask("b", "p", 2, queue), rules.Superseded)
		s.outcome(s.ask("b", "p", 2), rules.Superseded)
		s.unchanged(before)
		s.endHold("a", s.stored().HoldFence("a"))
		for i := range rules.MaxReleased { // until nothing remembers that its hold was released
			s.leave("c", "p", int64(i))
		}
		s.outcome(s.ask("a", "p", 1, queue), rules.Superseded)
	}},
	{"rule 2/a lock ID's orders are its own", func(s *stage) {
		s.release("a", 5)
		s.take("b", "p", 1)
	}},
	{"rule 6/busy without a place in the queue, and nothing is taken", func(s *stage) {
		s.take("a", "p", 1)
		before := s.stored()
		d := s.outcome(s.ask("b", "p", 1), rules.Busy)
		s.check(d.Last.Position == 0, "no place, got %d", d.Last.Position)
		s.unchanged(before)
	}},
	{"rule 6/a place in the queue is kept and refreshed", func(s *stage) {
		s.take("a", "p", 1, forever)
		s.wait(1, "b", "p", 1)
		s.wait(2, "c", "p", 1)
		since := s.stored().Waiters[0].Since
		s.pass(waiterTTL / 2)
		s.wait(1, "b", "p", 2)
		d := s.stored()
		s.check(len(d.Waiters) == 2 && d.Last.Length == 2, "two who wait, got %+v", d.Waiters)
		b := d.Waiters[0]
		s.check(b.LockID == "b" && b.Order == 2 && !b.Since.After(since), "b's place with order 2, waiting since before, got %+v", b)
		s.check(b.ExpiresAt.After(d.Waiters[1].ExpiresAt), "b's place to be refreshed, got %+v", d.Waiters)
	}},
	{"rule 6/a full queue takes nobody, and refreshes who is in it", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, room(1))
		before := s.stored()
		d := s.outcome(s.ask("c", "p", 1, queue, room(1)), rules.Full)
		s.check(d.Last.Length == 1, "a queue of one, got %d", d.Last.Length)
		s.unchanged(before)
		s.wait(1, "b", "p", 1, room(1))
	}},
	{"rule 6/a refresh takes no place anew", func(s *stage) {
		before := s.take("a", "p", 1)
		d := s.outcome(s.ask("b", "p", 1, refresh), rules.Busy)
		s.check(len(s.stored().Waiters) == 0 && before.Fence == d.Fence, "no place, got %+v", s.stored().Waiters)
		s.leave("a", "p", 1)
		s.outcome(s.ask("b", "p", 1, refresh), rules.Busy)
		s.check(len(s.stored().Entries) == 0, "nothing held, got %+v", s.stored().Entries)
	}},
	{"rule 6/a refresh keeps a place, and neither joins nor confirms a claim", func(s *stage) {
		s.take("a", "p", 1)
		s.outcome(s.ask("a", "q", 1, refresh), rules.Busy)
		s.wait(1, "b", "p", 1)
		s.wait(1, "b", "p", 1, refresh)
		s.leave("a", "p", 1)
		s.outcome(s.ask("b", "p", 1, refresh), rules.Busy)
		s.claimed("b", "p")
		s.take("b", "p", 1)
	}},
	{"rule 6/a refresh takes a lapsed claim back to the head of the queue", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.leave("a", "p", 1)
		s.pass(claimTTL)
		s.wait(1, "b", "p", 1, refresh)
	}},
}
