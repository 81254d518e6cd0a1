package scenarios

import (
	"fmt"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// acquireScenarios are about requests that are granted, join, or are refused.
var acquireScenarios = []Scenario{
	{"acquire/free resource is granted", func(s *stage) {
		a := s.ask(rules.Granted, "a", "p", 1)
		e := s.part(a.Document, "a", "p", 1)
		s.check(e.Fence >= a.At.UnixMilli() && e.Fence == a.Fence && e.Fence == e.FirstFence && e.Fence == e.LeastFence, "a fence not below the time, got %+v", e)
		s.check(e.ExpiresAt.Sub(a.At) == partTTL, "%v left, got %v", partTTL, e.ExpiresAt.Sub(a.At))
		s.check(e.Owner == "" && e.Host == "host" && e.Comment == "comment" && e.Trace == "trace", "the details of the request, got %+v", e)
		s.check(e.ID == "a/p/1" && e.CreatedAt != nil && e.CreatedAt.Equal(a.At), "the ID of the call and the time of the grant, got %+v", e)
		s.check(a.ID == s.resource && s.stored().IdleAt.After(e.ExpiresAt), "to be idle after %v, got %v", e.ExpiresAt, s.stored().IdleAt)
	}},
	{"acquire/exclusive part that has not expired keeps all others out", func(s *stage) {
		s.take("a", "p", 1)
		for _, mode := range []with{func(*rules.Acquire) {}, shared, limit(9)} {
			s.ask(rules.Busy, "b", "p", 1, mode)
			s.ask(rules.Busy, "b", "q", 1, mode, keep, reacquire, newFence)
		}
		before := s.stored()
		a := s.ask(rules.Busy, "b", "p", 1)
		s.check(a.Position == 0 && a.ReadOnly, "no position and no write, got %+v", a.Result)
		s.unchanged(before)
		s.pass(partTTL - time.Minute)
		s.ask(rules.Busy, "b", "p", 1)
		s.pass(time.Minute)
		s.take("b", "p", 1)
	}},
	{"acquire/shared goes with shared only", func(s *stage) {
		s.take("a", "p", 1, shared)
		s.take("b", "p", 1, shared)
		s.ask(rules.Busy, "a", "q", 1)
		s.ask(rules.Busy, "c", "p", 1)
		s.leave("a", "p", 1)
		s.leave("b", "p", 1)
		s.take("c", "p", 1)
		s.ask(rules.Busy, "a", "p", 2, shared)
	}},
	{"acquire/limit of the request counts other lock IDs once each", func(s *stage) {
		s.take("a", "p", 1, limit(2))
		s.join("a", "q", 1, limit(2))
		s.take("b", "p", 1, limit(2))
		s.ask(rules.Busy, "c", "p", 1, limit(2))
		s.take("c", "p", 1, limit(3), label("one"))
		s.join("c", "q", 1, limit(1), label("one")) // a limit is for new holds
		s.take("d", "p", 1, shared)
	}},
	{"acquire/limit counts claims and draining parts, but nothing that has expired", func(s *stage) {
		s.take("x", "p", 1)
		s.wait(1, "c", "p", 1, shared)
		s.leave("x", "p", 1)
		s.take("a", "p", 1, shared)
		s.take("b", "p", 1, shared)
		s.release("b", 1)
		s.ask(rules.Busy, "d", "p", 1, limit(3))
		s.take("d", "p", 1, limit(4))
		s.pass(claimTTL)
		s.take("e", "p", 1, limit(1))
		s.renew(rules.Lost, "a", "p", 1)
	}},
	{"acquire/hold without a TTL does not expire", func(s *stage) {
		e := s.take("a", "p", 1, forever)
		s.check(!e.ExpiresAt.Before(rules.Never), "no end, got %v", e.ExpiresAt)
		s.pass(24 * 365 * time.Hour)
		s.ask(rules.Busy, "b", "p", 1)
	}},
	{"acquire/kept hold outlives its parts by its own TTL", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.check(s.stored().IdleAt.After(s.stored().Kept("a").ExpiresAt), "to be idle later, got %+v", s.stored())
		s.leave("a", "p", 1)
		s.pass(holdTTL - 5*time.Minute)
		s.ask(rules.Busy, "b", "p", 1)
		s.join("a", "q", 1, keep)
		s.leave("a", "q", 1)
		s.pass(holdTTL)
		s.take("b", "p", 2)
	}},
	{"acquire/hold that is not kept ends with its last part", func(s *stage) {
		s.take("a", "p", 1)
		s.join("a", "q", 1)
		s.leave("a", "p", 1)
		s.ask(rules.Busy, "b", "p", 1)
		s.leave("a", "q", 1)
		s.take("b", "p", 1)
	}},
	{"again/the same call gets the same answer", func(s *stage) {
		first := s.take("a", "p", 1)
		s.pass(time.Minute)
		before := s.stored()
		again := s.part(s.ask(rules.Again, "a", "p", 1, newFence).Document, "a", "p", 1)
		s.check(again.Fence == first.Fence && again.ExpiresAt.Equal(before.Part("a", "p", 1).ExpiresAt), "the same lease, got %+v", again)
		s.unchanged(before)
		s.pass(-partTTL / 2) // a clock that runs backwards
		s.ask(rules.Again, "a", "p", 1)
		s.entries(1)
	}},
	{"again/another call with the same part and order is superseded", func(s *stage) {
		s.take("a", "p", 1)
		before := s.stored()
		s.ask(rules.Superseded, "a", "p", 1, call("other"))
		s.ask(rules.Superseded, "a", "p", 1, call("other"), shared, queue, reacquire)
		s.unchanged(before)
		s.pass(partTTL)
		s.join("a", "p", 1, call("other")) // the first one has expired
		s.ask(rules.Superseded, "a", "p", 1)
	}},
	{"again/the same call after its part expired joins, even if another waits", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.pass(partTTL)
		a := s.ask(rules.Joined, "a", "p", 1)
		s.check(s.part(a.Document, "a", "p", 1).ExpiresAt.After(a.At), "a lease, got %+v", a.Entries)
		s.wait(1, "b", "p", 1)
		s.entries(1)
	}},
	{"again/the same call after its part expired supersedes nothing", func(s *stage) {
		for i, change := range []with{shared, keep} {
			order := int64(i + 1)
			s.take("a", "p", order, change)
			for range 2 {
				s.pass(partTTL)
				s.join("a", "p", order, change)
			}
			s.release("a", order)
			s.pass(2 * partTTL)
		}
	}},
	{"join/another part has the fence of the hold", func(s *stage) {
		first := s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		second := s.join("a", "q", 1) // ahead of the queue
		s.check(second.Fence == first.Fence, "fence %d, got %d", first.Fence, second.Fence)
		third := s.join("a", "r", 1, newFence)
		s.check(third.Fence > first.Fence && third.FirstFence == first.Fence && third.LeastFence == first.Fence, "a new fence, got %+v", third)
		s.check(s.join("a", "s", 1).Fence == third.Fence, "the latest fence of the hold")
		s.renew(rules.Granted, "a", "p", 1)
	}},
	{"join/weaker mode does not weaken the hold", func(s *stage) {
		s.take("a", "p", 1)
		e := s.join("a", "q", 1, shared)
		s.check(e.Mode == rules.Shared, "its own mode, got %q", e.Mode)
		s.ask(rules.Busy, "b", "p", 1, shared)
		s.leave("a", "p", 1)
		s.take("b", "p", 1, shared)
	}},
	{"join/greater order supersedes the part with a new fence", func(s *stage) {
		first := s.take("a", "p", 1)
		third := s.join("a", "p", 3)
		s.check(third.Fence > first.Fence, "a fence above %d, got %d", first.Fence, third.Fence)
		s.renew(rules.Lost, "a", "p", 1)
		before := s.stored()
		s.ask(rules.Superseded, "a", "p", 2)
		s.ask(rules.Superseded, "a", "p", 1)
		s.unchanged(before)
		s.leave("a", "p", 3)
		s.renew(rules.Lost, "a", "p", 1)
	}},
	{"superseded/order of a release and all below it, for every part of that lock ID", func(s *stage) {
		s.take("a", "p", 1)
		s.release("a", 5)
		before := s.stored()
		s.ask(rules.Superseded, "a", "q", 5)
		s.ask(rules.Superseded, "a", "q", 5, keep, queue, reacquire)
		s.unchanged(before)
		s.take("a", "q", 6)
		s.release("a", 6, stopped("q"))
		s.leave("a", "p", 1)
		s.take("b", "p", 1)
	}},
	{"superseded/order below one that waits or has a claim", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 3)
		before := s.stored()
		s.ask(rules.Superseded, "b", "p", 2, queue)
		s.ask(rules.Superseded, "b", "p", 2)
		s.unchanged(before)
		s.leave("a", "p", 1)
		s.ask(rules.Superseded, "b", "p", 2)
		s.take("b", "p", 3)
	}},
	{"superseded/order of a part that was cut off", func(s *stage) {
		s.take("a", "p", 2)
		s.release("a", 0, began(s.stored().HoldFence("a")))
		s.ask(rules.Superseded, "a", "p", 2, queue)
		s.ask(rules.Superseded, "a", "p", 1, queue)
		s.take("a", "p", 3)
	}},
	{"lost/request that says it held, and does not hold", func(s *stage) {
		s.settle()
		s.ask(rules.Lost, "a", "p", 1, held)
		s.entries(0)
		s.take("a", "p", 1, held, reacquire, keep)
		s.join("a", "q", 1, held)
		s.join("a", "r", 1, heldSince(1))
	}},
	{"fence/it strictly increases over grants, upgrades, attempts and claims", func(s *stage) {
		var fence int64
		greater := func(e *rules.Entry) {
			s.Helper()
			s.check(e.Fence > fence, "a fence above %d, got %d", fence, e.Fence)
			fence = e.Fence
		}
		greater(s.take("a", "p", 1, shared))
		greater(s.take("b", "p", 1, shared))
		s.leave("b", "p", 1)
		greater(s.take("a", "q", 1))
		greater(s.join("a", "p", 2))
		greater(s.join("a", "r", 2, newFence))
		s.wait(1, "b", "p", 2)
		s.pass(partTTL)
		s.settle()
		greater(s.take("b", "p", 2))
		s.leave("b", "p", 2)
		for i := range int64(3) {
			greater(s.take("c", fmt.Sprint(i), 1))
			s.leave("c", fmt.Sprint(i), 1)
		}
	}},
	{"text/what a caller passes is stored as it is", func(s *stage) {
		base := s.resource
		for i, text := range []string{"$owner", "a.b", "$$NOW", "$$ROOT", "\x01\x7f", "{\"$literal\":1}", strings.Repeat("ü", 128), "..", "$"} {
			s.resource = fmt.Sprint(base, i, text)
			everywhere := func(op *rules.Acquire) { op.Owner, op.Host, op.Comment, op.Trace = text+"o", text, text, text }
			e := s.take(text, text, 1, everywhere)
			s.check(e.Owner == text+"o" && e.Host == text && e.Comment == text && e.Trace == text, "%q everywhere, got %+v", text, e)
			s.renew(rules.Granted, text, text, 1)
			s.wait(1, text+"2", text, 1, everywhere)
			w := s.stored().Waiters[0]
			s.check(w.LockID == text+"2" && w.Part == text && w.Owner == text+"o", "%q to wait, got %+v", text, w)
			s.withdraw(rules.Granted, text+"2", text, 1)
			s.force(text, text)
			d := s.stored()
			s.check(d.ID == s.resource && len(d.Evidence) == 1 && d.Evidence[0].LockID == text && d.Evidence[0].Reason == text, "a record of %q, got %+v", text, d.Evidence)
			s.leave(text, text, 1)
			s.entries(0)
		}
	}},
}

// upgradeScenarios are about lock IDs that hold shared and ask for more.
var upgradeScenarios = []Scenario{
	{"downgrade/what the part kept in its earlier entry is shared too", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.join("a", "p", 1, upgrades("a/p/1"), call("again"))
		s.renew(rules.Granted, "a", "p", 1, downgrade)
		s.take("b", "p", 1, shared)
	}},
	{"upgrade/a part with a stronger mode joins its hold with a new fence, ahead of the queue", func(s *stage) {
		first := s.take("a", "p", 1, shared, keep)
		s.wait(1, "b", "p", 1)
		second := s.take("a", "q", 1, keep)
		s.check(second.Fence > first.Fence && second.FirstFence == first.Fence, "a new fence, got %+v", second)
		s.check(s.stored().Part("a", "p", 1).Mode == rules.Shared, "the other part as it was, got %+v", s.stored().Entries)
		s.ask(rules.Busy, "c", "p", 1, shared)
	}},
	{"upgrade/upgrades queue first come, first served, also in a full queue", func(s *stage) {
		for _, lockID := range []string{"a", "b", "c"} {
			s.take(lockID, "p", 1, shared)
		}
		s.wait(1, "d", "p", 1, maxWaiters(1))
		s.wait(1, "a", "q", 1, maxWaiters(1))
		s.wait(2, "b", "q", 1, maxWaiters(1))
		s.wait(1, "a", "q", 2, maxWaiters(1))
		s.wait(3, "c", "q", 1, maxWaiters(1))
		s.ask(rules.Full, "e", "p", 1, queue, maxWaiters(1))
		s.leave("b", "p", 1)
		s.leave("c", "p", 1)
		s.claimed("a", "q")
	}},
	{"upgrade/with the part's own order it adds an exclusive entry to the part", func(s *stage) {
		first := s.take("a", "p", 1, shared)
		s.take("b", "p", 1, shared)
		s.wait(1, "a", "p", 1, upgrades("a/p/1"), call("u"))
		s.renew(rules.Granted, "a", "p", 1)
		s.pass(time.Minute)
		s.leave("b", "p", 1)
		e := s.take("a", "p", 1, upgrades("a/p/1"), call("u"))
		s.check(e.ID == "u" && e.Mode == rules.Exclusive && e.Fence > first.Fence && e.FirstFence == first.Fence, "the upgraded part, got %+v", e)
		s.check(!e.CreatedAt.After(*first.CreatedAt), "the time at which the hold began, got %+v", e)
		s.entries(2)
		s.ask(rules.Again, "a", "p", 1, upgrades("a/p/1"), call("u"))
		s.ask(rules.Superseded, "a", "p", 1) // a copy of the first request
		s.pass(time.Minute)
		d := s.renew(rules.Granted, "a", "p", 1)
		for _, e := range d.Entries {
			s.check(e.ExpiresAt.Sub(d.At) == partTTL, "both renewed, got %+v", d.Entries)
		}
		s.leave("a", "p", 1)
		s.entries(0)
		s.take("b", "p", 2)
	}},
	{"upgrade/the next attempt supersedes an upgraded part", func(s *stage) {
		s.take("a", "p", 1, shared)
		u := s.take("a", "p", 1, upgrades("a/p/1"), call("u"))
		second := s.join("a", "p", 2, shared)
		s.check(second.Fence > u.Fence, "a fence above %d, got %+v", u.Fence, second)
		s.renew(rules.Lost, "a", "p", 1)
		s.ask(rules.Superseded, "a", "p", 1, upgrades("a/p/1"), call("u"))
		s.leave("a", "p", 2)
		s.ask(rules.Busy, "b", "p", 1) // the first attempt drains
	}},
	{"upgrade/given up while it waits, the part stays as it was", func(s *stage) {
		s.take("a", "p", 1, shared)
		s.take("b", "p", 1, shared)
		s.wait(1, "a", "p", 1, upgrades("a/p/1"), call("u"))
		before := s.stored().Entries
		s.giveUp("a", "p", 1)
		s.waiting()
		s.renew(rules.Granted, "a", "p", 1)
		s.check(s.stored().Entries[1].ID == before[1].ID && s.stored().Part("a", "p", 1).ID == "a/p/1", "both parts, got %+v", s.stored().Entries)
		s.take("c", "p", 1, shared)
	}},
	{"upgrade/of a part that has ended is lost", func(s *stage) {
		s.take("a", "q", 1, shared)
		s.ask(rules.Lost, "a", "p", 1, upgrades("a/p/1"), call("u"))
		s.join("a", "p", 1, shared, call("other"))
		s.ask(rules.Superseded, "a", "p", 1, upgrades("a/p/1"), call("u"))
		s.pass(partTTL)
		s.ask(rules.Lost, "a", "p", 1, upgrades("a/p/1"), call("u"))
	}},
	{"upgrade/given up after the grant, the part is shared again under its old ID", func(s *stage) {
		s.take("a", "p", 1, shared, keep)
		s.take("a", "p", 1, upgrades("a/p/1"), call("u"), keep)
		s.wait(1, "b", "p", 1, shared)
		s.giveUp("a", "p", 1)
		e := s.stored().Part("a", "p", 1)
		s.check(e.ID == "a/p/1" && e.Mode == rules.Shared, "the part before its upgrade, got %+v", e)
		s.take("b", "p", 1, shared)
		s.giveUp("a", "p", 1) // again
		s.ask(rules.Again, "a", "p", 1, shared, keep)
		s.renew(rules.Granted, "b", "p", 1)
	}},
	{"upgrade/a downgrade leaves one entry of the part, with its fence", func(s *stage) {
		s.take("a", "p", 1, shared, keep)
		up := s.take("a", "p", 1, upgrades("a/p/1"), call("u"))
		d := s.renew(rules.Granted, "a", "p", 1, downgrade)
		s.check(len(d.Entries) == 2 && s.part(d.Document, "a", "p", 1).ID == "u" && s.part(d.Document, "a", "p", 1).Fence == up.Fence, "one part, got %+v", d.Entries)
		s.take("b", "p", 1, shared)
	}},
	{"upgrade/given up with a claim, the next waiter is served", func(s *stage) {
		s.take("a", "p", 1, shared)
		s.take("b", "p", 1, shared)
		s.wait(1, "a", "p", 1, upgrades("a/p/1"), call("u"))
		s.wait(2, "c", "p", 1, shared)
		s.leave("b", "p", 1)
		s.claimed("a", "p")
		s.giveUp("a", "p", 1)
		s.claimed("c", "p")
		s.renew(rules.Granted, "a", "p", 1)
	}},
	{"upgrade/giving up another call's upgrade changes nothing", func(s *stage) {
		s.take("a", "p", 1, shared)
		s.take("a", "p", 1, upgrades("a/p/1"), call("other"))
		before := s.stored()
		s.giveUp("a", "p", 1)
		s.unchanged(before)
	}},
}

// giveUp undoes the upgrade that the call "u" requested.
func (s *stage) giveUp(lockID, part string, order int64) {
	s.Helper()
	s.takeBack(lockID, part, order, "u")
}
