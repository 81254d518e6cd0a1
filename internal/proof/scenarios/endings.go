package scenarios

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// leaseScenarios are about renewals.
var leaseScenarios = []Scenario{
	{"renew/it extends the part by its own TTL, and its kept hold", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.pass(partTTL - time.Minute)
		d := s.renew(rules.Granted, "a", "p", 1)
		e := s.part(d.Document, "a", "p", 1)
		s.check(e.ExpiresAt.Sub(d.At) == partTTL && e.RenewedAt.Equal(d.At), "%v left, got %+v", partTTL, e)
		s.check(d.Kept("a").ExpiresAt.Sub(d.At) == holdTTL, "%v left of the hold, got %+v", holdTTL, d.Kept("a"))
	}},
	{"renew/a request with a shorter time does not shorten a kept hold", func(s *stage) {
		s.take("a", "p", 1, keep)
		a := s.ask(rules.Joined, "a", "q", 1, keep, short)
		left := a.Document.Kept("a").ExpiresAt.Sub(a.Document.At)
		s.check(left > partTTL, "more than %v, got %v", partTTL, left)
		s.leave("a", "q", 1, func(op *rules.Leave) { op.Keep, op.HoldTTL = true, time.Minute.Milliseconds() })
		a = s.ask(rules.Joined, "a", "r", 1, keep, short, within("w"))
		left = a.Document.Kept("a").ExpiresAt.Sub(a.Document.At)
		s.check(left > partTTL, "more than %v, got %v", partTTL, left)
	}},
	{"renew/a clock that runs backwards shortens no lease", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.pass(-partTTL / 2)
		before := s.stored()
		s.renew(rules.Granted, "a", "p", 1)
		for i, e := range s.entries(2) {
			s.check(e.ExpiresAt.Equal(before.Entries[i].ExpiresAt), "the end of %+v, got %v", before.Entries[i], e.ExpiresAt)
		}
	}},
	{"renew/a new TTL counts from now, even if it ends sooner", func(s *stage) {
		s.take("a", "p", 1, forever)
		for _, ttl := range []time.Duration{2 * partTTL, partTTL / 2} {
			d := s.renew(rules.Granted, "a", "p", 1, newTTL(ttl))
			e := s.part(d.Document, "a", "p", 1)
			s.check(e.TTL == ttl.Milliseconds() && e.ExpiresAt.Sub(d.At) == ttl, "%v left, got %+v", ttl, e)
		}
		s.pass(partTTL / 2)
		before := s.stored()
		s.renew(rules.Superseded, "a", "p", 1, newTTL(time.Minute))
		s.unchanged(before)
		s.renew(rules.Lost, "a", "p", 2, newTTL(time.Minute))
	}},
	{"renew/a part that is missing is lost, and nothing else is renewed", func(s *stage) {
		s.renew(rules.Lost, "a", "p", 1)
		s.take("a", "p", 2, shared, keep)
		s.take("b", "p", 2, shared)
		before := s.stored()
		s.renew(rules.Lost, "a", "p", 1)
		s.renew(rules.Lost, "a", "p", 3)
		s.renew(rules.Lost, "a", "q", 2)
		s.renew(rules.Lost, "x", "p", 2)
		s.unchanged(before)
		s.leave("a", "p", 2)
		s.renew(rules.Lost, "a", "p", 2)
	}},
	{"renew/a downgrade changes its own part, and what is kept if no other part runs", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.join("a", "q", 2, keep)
		s.join("a", "r", 3, keep)
		s.leave("a", "r", 3)
		e := s.part(s.renew(rules.Granted, "a", "p", 1, downgrade).Document, "a", "p", 1)
		s.check(e.Mode == rules.Shared && s.part(s.stored(), "a", "q", 2).Mode == rules.Exclusive, "a shared part, got %+v", e)
		s.check(s.entries(5)[4].Mode == rules.Exclusive, "what r kept to stay exclusive, got %+v", s.stored().Entries)
		s.leave("a", "q", 2)
		s.ask(rules.Busy, "b", "p", 1, shared) // what q and r keep is exclusive
		s.renew(rules.Granted, "a", "p", 1, downgrade)
		s.take("b", "p", 1, shared)
	}},
}

// leaveScenarios are about parts that end.
var leaveScenarios = []Scenario{
	{"leave/it ends only what it names", func(s *stage) {
		s.take("a", "p", 2, shared)
		s.join("a", "q", 2, shared)
		s.take("b", "p", 2, shared)
		s.wait(1, "c", "p", 2)
		s.wait(2, "c", "q", 2)
		before := s.stored()
		s.leave("a", "p", 1)
		s.leave("a", "p", 3)
		s.leave("a", "r", 2)
		s.leave("c", "p", 1)
		s.leave("a", "p", 2, waitingOnly)
		s.takeBack("a", "p", 2, "other")
		s.release("x", 9)
		after := s.stored()
		s.check(reflect.DeepEqual(before.Entries, after.Entries) && reflect.DeepEqual(before.Waiters, after.Waiters), "no change, got %+v", after)
		s.takeBack("a", "p", 2)
		s.renew(rules.Lost, "a", "p", 2)
		s.renew(rules.Granted, "a", "q", 2)
		s.takeBack("c", "p", 2, "other") // a waiter has no ID
		s.check(len(s.stored().Waiters) == 1 && s.stored().Waiters[0].Part == "q", "one part of c to wait, got %+v", s.stored().Waiters)
	}},
	{"leave/of waiting requests only, it ends waiters and claims", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.leave("b", "p", 1, waitingOnly)
		s.waiting()
		s.wait(1, "b", "p", 2)
		s.leave("a", "p", 1, waitingOnly)
		s.renew(rules.Granted, "a", "p", 1)
		s.leave("a", "p", 1)
		s.leave("b", "p", 2, waitingOnly)
		s.entries(0)
	}},
	{"take back/it ends what the call was granted, and nothing else", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.takeBack("a", "p", 1, "other")
		s.renew(rules.Granted, "a", "p", 1)
		s.join("a", "q", 2, keep)
		s.takeBack("a", "p", 1)
		s.renew(rules.Lost, "a", "p", 1)
		s.check(s.stored().Kept("a").ID == "a/q/2/k", "what q keeps, got %+v", s.stored().Entries)
		s.takeBack("a", "q", 2)
		s.entries(0)
	}},
	{"take back/a shared hold that was asked for in exclusive mode is shared again", func(s *stage) {
		for i, changes := range [][]with{{shared}, {shared, keep}} {
			s.resource += string(rune('0' + i))
			s.take("a", "p", 1, changes...)
			s.take("b", "p", 1, shared)
			s.leave("b", "p", 1)
			s.take("a", "q", 2, keep)
			s.ask(rules.Busy, "b", "p", 2, shared)
			s.takeBack("a", "q", 2)
			s.take("b", "p", 2, shared)
			s.check(s.part(s.stored(), "a", "p", 1).Mode == rules.Shared, "a shared part, got %+v", s.stored().Entries)
		}
	}},
	{"take back/it leaves the longer time of what others keep", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.leave("a", "p", 1)
		s.join("a", "q", 2, keep, short)
		s.takeBack("a", "q", 2)
		d := s.renewKept("a")
		s.check(d.Kept("a").TTL == holdTTL.Milliseconds() && d.Kept("a").ID == "a/p/1/s", "the settled entry, got %+v", d.Entries)
	}},
	{"take back/it does not forgive a loss", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.pass(holdTTL)
		s.take("b", "p", 1)
		s.leave("b", "p", 1)
		s.take("a", "q", 2, keep, reacquire)
		s.takeBack("a", "q", 2)
		s.ask(rules.Lost, "a", "r", 3, keep)
	}},
	{"take back/of the request that regained a hold, it is lost again for those that joined it", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"))
		s.force("a", "by hand")
		s.leave("a", "p", 1, of("one"))
		s.take("a", "c", 2, keep, reacquire, label("one"))
		s.join("a", "q", 3, keep, label("one"))
		s.verify(rules.Granted, "a", "one", 3)
		s.takeBack("a", "c", 2)
		s.verify(rules.Lost, "a", "one", 3)
	}},
	{"take back/it ends no hold, and no waiter of another order", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.join("a", "q", 2, keep)
		d := s.takeBack("a", "q", 2)
		s.check(len(d.HoldsEnded(d.Document)) == 0, "no hold to end, got %+v", d.Ended)
		s.wait(1, "b", "p", 1)
		s.takeBack("b", "p", 2)
		s.waiting("b")
		d = s.takeBack("a", "p", 1)
		s.check(len(d.HoldsEnded(d.Document)) == 1, "the hold to end, got %+v", d.Ended)
	}},
	{"take back/it comes too late for what has merged", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.leave("a", "p", 1)
		s.takeBack("a", "p", 1)
		s.ask(rules.Busy, "b", "p", 1)
		s.resource += "2"
		s.ask(rules.Granted, "a", "", 1, holdOnly)
		s.join("a", "q", 2, keep)
		s.takeBack("a", "", 1)
		s.leave("a", "q", 2)
		s.ask(rules.Busy, "b", "p", 1)
		s.check(len(s.entries(1)) == 1 && s.stored().Kept("a").FirstOrder == 1 && s.stored().Kept("a").Order == 2, "one hold, got %+v", s.stored().Entries)
	}},
	{"take back/of a part that was superseded, it ends the drain", func(s *stage) {
		s.take("a", "p", 1)
		s.join("a", "p", 2)
		s.takeBack("a", "p", 1)
		s.leave("a", "p", 2)
		s.take("b", "p", 1)
	}},
	{"kept/what parts keep merges when they end: the stronger mode, the longer time, all orders", func(s *stage) {
		began := *s.part(s.ask(rules.Granted, "b", "p", 1, keep, shared).Document, "b", "p", 1)
		s.leave("b", "p", 1)
		s.take("a", "p", 2, keep, shared, short)
		s.pass(time.Minute)
		s.join("a", "q", 3, keep, shared)
		s.leave("a", "p", 2)
		s.check(len(s.entries(4)) == 4, "a settled entry, got %+v", s.stored().Entries)
		s.release("b", 1)
		s.take("a", "r", 1, keep)
		s.leave("a", "q", 3)
		s.leave("a", "r", 1)
		k := s.entries(1)[0]
		s.check(k.ID == "a/p/2/s" && k.Mode == rules.Exclusive && k.TTL == holdTTL.Milliseconds() && k.FirstOrder == 1 && k.Order == 3, "one entry, got %+v", k)
		s.check(k.ExpiresAt.Sub(s.stored().At) > holdTTL-time.Minute/2 && s.stored().At.Sub(*k.CreatedAt) >= time.Minute && k.FirstFence > began.Fence, "the later end, and the earlier beginning, got %+v", k)
		s.ask(rules.Busy, "c", "p", 1, shared)
	}},
	{"kept/what never expires stays so, whatever merges first", func(s *stage) {
		endless := func(op *rules.Acquire) { op.HoldTTL = 0 }
		for i, changes := range [][]with{{endless, short}, {short, endless}} {
			s.resource += string(rune('0' + i))
			s.take("a", "p", 1, keep, changes[0])
			s.leave("a", "p", 1)
			s.join("a", "q", 2, keep, changes[1])
			s.leave("a", "q", 2)
			s.check(s.entries(1)[0].TTL == 0, "no end, got %+v", s.stored().Entries)
		}
	}},
	{"kept/a grant extends nothing of other lock IDs", func(s *stage) {
		s.take("a", "p", 1, keep, shared)
		before := s.stored().Kept("a").ExpiresAt
		s.pass(time.Minute)
		s.take("b", "p", 1, keep, shared)
		s.check(s.stored().Kept("a").ExpiresAt.Sub(before) < time.Minute, "no change, got %+v", s.stored().Entries)
	}},
	{"kept/a grant extends all that its lock ID keeps, each by its own time", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.leave("a", "p", 1)
		s.pass(holdTTL - partTTL/2)
		d := s.ask(rules.Joined, "a", "q", 2).Document
		s.check(d.Kept("a").ExpiresAt.Sub(d.At) == holdTTL, "%v left, got %+v", holdTTL, d.Entries)
		s.join("a", "r", 3, keep, short)
		s.pass(holdTTL - partTTL/2)
		d = s.ask(rules.Joined, "a", "s", 4).Document
		for _, e := range d.Entries {
			s.check(e.State != rules.StateKept || e.ExpiresAt.Sub(d.At) == time.Duration(e.TTL)*time.Millisecond, "its own time, got %+v", e)
		}
	}},
	{"kept/a hold that was regained began with the request that regained it", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"))
		s.join("a", "q", 2, keep, shared, label("one"), forever)
		s.leave("a", "p", 1, of("one"))
		s.pass(holdTTL)
		s.take("b", "p", 1, shared, label("one")) // evicts what p kept, and not q
		s.leave("b", "p", 1, of("one"))
		s.verify(rules.Lost, "a", "one", 2)
		s.ask(rules.Lost, "a", "r", 3, keep, label("one"))
		s.take("a", "c", 4, keep, reacquire, label("one"))
		s.verify(rules.Lost, "a", "one", 3)
		s.verify(rules.Granted, "a", "one", 4)
		s.leave("a", "c", 4, of("one"))
		s.leave("a", "q", 2, of("one"))
		s.verify(rules.Lost, "a", "one", 3)
		s.ask(rules.Lost, "a", "r", 5, keep, label("one"), heldSince(3))
		s.join("a", "r", 5, keep, label("one"), heldSince(4))
	}},
}

// renewKept verifies a hold of run "one" or renews it by a grant, and returns the document.
func (s *stage) renewKept(lockID string) *rules.Document {
	s.Helper()
	return s.verify(rules.Granted, lockID, "", rules.LastPlain).Document
}

// releaseScenarios are about holds that end, by their owner or by force.
var releaseScenarios = []Scenario{
	{"release/it ends kept holds, claims and waiters up to an order", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.leave("a", "p", 1)
		d := s.release("a", 1)
		s.check(len(d.Entries) == 0 && len(d.Released()) == 1, "the hold to end, got %+v", d.Result)
		s.take("b", "p", 1)
		s.wait(1, "a", "p", 2)
		s.leave("b", "p", 1)
		s.claimed("a", "p")
		s.release("a", 2)
		s.take("b", "p", 2)
		s.wait(1, "a", "p", 3)
		s.wait(2, "a", "q", 4)
		s.release("a", 3)
		s.check(len(s.stored().Waiters) == 1 && s.stored().Waiters[0].Part == "q", "one to wait, got %+v", s.stored().Waiters)
	}},
	{"release/it ends nothing of later orders or of other lock IDs", func(s *stage) {
		s.take("a", "p", 2, shared)
		s.join("a", "q", 5, shared)
		s.take("b", "p", 2, shared)
		s.wait(1, "b", "q", 2)
		s.wait(2, "a", "r", 5)
		s.release("a", 4)
		s.renew(rules.Granted, "a", "q", 5)
		s.renew(rules.Granted, "b", "p", 2)
		s.renew(rules.Lost, "a", "p", 2)
		s.waiting("b", "a")
	}},
	{"release/parts drain until they leave, except one that is known to have stopped", func(s *stage) {
		s.take("a", "p", 1)
		s.release("a", 1)
		s.renew(rules.Lost, "a", "p", 1)
		s.ask(rules.Busy, "b", "p", 1)
		s.leave("a", "p", 1)
		s.take("b", "p", 1)
		s.release("b", 1, stopped("p"))
		s.take("a", "q", 2)
	}},
	{"release/one record for each lock ID and run, of the greatest order", func(s *stage) {
		s.release("a", 5)
		s.release("a", 3)
		s.ask(rules.Superseded, "a", "p", 5)
		s.release("a", 6)
		s.release("a", 5, ofRun("one"))
		d := s.stored()
		s.check(slices.Equal(d.Releases, []rules.ReleaseRecord{{LockID: "a", Order: 6}, {LockID: "a", Label: "one", Order: 5}}), "two records, got %+v", d.Releases)
		s.ask(rules.Superseded, "a", "p", 6)
		s.ask(rules.Superseded, "a", "p", 5, label("one"))
		s.take("a", "p", 5, label("two"))
		s.release("a", 9, ofRun("two"))
		s.leave("a", "p", 5, of("two"))
		s.take("a", "p", 6, label("one"))
	}},
	{"release/of plain requests refuses none that comes later", func(s *stage) {
		s.take("b", "p", 1)
		s.wait(1, "a", "p", 1)
		s.release("a", rules.LastPlain)
		s.waiting()
		s.check(len(s.stored().Releases) == 0, "no record, got %+v", s.stored().Releases)
		s.wait(1, "a", "q", 1)
	}},
	{"release/of a run's requests with schedule 0 refuses those that come later", func(s *stage) {
		s.release("a", rules.LastPlain, ofRun("one"))
		s.ask(rules.Superseded, "a", "p", 1, label("one"))
	}},
	{"release/the number of records is bounded, the oldest go first", func(s *stage) {
		for i := range rules.MaxReleases + 1 {
			s.release(fmt.Sprint("a", i), 1)
		}
		d := s.stored()
		s.check(len(d.Releases) == rules.MaxReleases && d.Releases[0].LockID == "a1", "%d records, got %+v", rules.MaxReleases, d.Releases)
	}},
	{"release/of one hold by its first fence ends all parts of it, and serves the queue", func(s *stage) {
		first := s.take("a", "p", 1, keep).FirstFence
		s.join("a", "q", 2, keep, newFence)
		s.wait(1, "b", "p", 1)
		s.leave("a", "p", 1)
		s.release("a", 2, began(first), stopped("q"))
		s.claimed("b", "p")
		s.release("b", 9)
		s.take("a", "q", 2, keep) // no order is recorded
	}},
	{"release/of one hold by its first fence ends nothing that began later", func(s *stage) {
		first := s.take("a", "p", 1, keep).FirstFence
		s.release("a", 1, began(first), stopped("p"))
		second := s.take("a", "p", 1, keep)
		before := s.stored()
		s.release("a", 1, began(first), stopped("p"))
		s.release("a", 0, began(first), forced("by hand"), atOnce)
		s.unchanged(before)
		s.check(second.FirstFence > first, "a first fence above %d, got %+v", first, second)
	}},
	{"release/of one hold by its first fence lets its other parts drain", func(s *stage) {
		first := s.take("a", "p", 2).FirstFence
		s.join("a", "q", 1)
		s.release("a", 1, began(first), stopped("p")) // of another order
		s.renew(rules.Lost, "a", "p", 2)
		s.renew(rules.Lost, "a", "q", 1)
		s.ask(rules.Busy, "b", "p", 1)
		s.leave("a", "p", 2)
		s.ask(rules.Busy, "b", "p", 1)
		s.leave("a", "q", 1)
		s.take("b", "p", 1)
	}},
	{"force/the holder reads the reason, and its parts drain", func(s *stage) {
		s.take("a", "p", 7, keep)
		s.force("a", "by hand")
		s.ask(rules.Superseded, "a", "p", 7, keep)
		s.ask(rules.Busy, "b", "p", 1)
		r := s.ask(rules.Lost, "a", "q", 8, keep).LossEvidence("a", "", time.Time{})
		s.check(r != nil && r.Reason == "by hand", "the reason, got %+v", r)
		s.pass(partTTL)
		s.take("b", "p", 1)
	}},
	{"force/repeated, it finds draining parts, and leaves one record", func(s *stage) {
		first := s.take("a", "p", 1).FirstFence
		for range 2 {
			s.release("a", 0, began(first), forced("by hand"))
			s.ask(rules.Busy, "b", "p", 1)
		}
		s.release("a", 0, began(first), forced("its machine burnt down"), atOnce)
		s.take("b", "p", 1)
		s.check(len(s.stored().Evidence) == 1, "one record, got %+v", s.stored().Evidence)
		s.leave("b", "p", 1)
		first = s.take("a", "p", 2, forever, keep, reacquire).FirstFence
		s.release("a", 0, began(first), forced("its machine burnt down"), atOnce)
		s.take("b", "p", 2)
	}},
}

// expiryScenarios are about what time ends, and what it does not.
var expiryScenarios = []Scenario{
	{"expiry/an expired hold continues until another needs its room", func(s *stage) {
		first := s.take("a", "p", 1, keep)
		s.pass(2 * holdTTL)
		s.renew(rules.Granted, "a", "p", 1)
		s.pass(2 * holdTTL)
		s.check(s.join("a", "q", 1, keep).Fence == first.Fence, "fence %d", first.Fence)
	}},
	{"expiry/an exclusive hold that expired is evicted by any grant", func(s *stage) {
		for i, mode := range []with{keep, shared} {
			order := int64(i + 1)
			s.take("a", "p", order, reacquire)
			s.pass(partTTL)
			d := s.ask(rules.Granted, "b", "p", order, mode)
			s.check(len(d.Expired) == 1 && d.Expired[0].LockID == "a", "a to be evicted, got %+v", d.Expired)
			s.renew(rules.Lost, "a", "p", order)
			s.release("b", order, stopped("p"))
		}
	}},
	{"expiry/a shared hold that expired is evicted only if a limit needs its room", func(s *stage) {
		s.take("a", "p", 1, shared)
		s.pass(partTTL)
		s.take("b", "p", 1, shared)
		s.renew(rules.Granted, "a", "p", 1)
		s.pass(partTTL)
		s.take("c", "p", 1, limit(1))
		s.renew(rules.Lost, "a", "p", 1)
		s.renew(rules.Lost, "b", "p", 1)
	}},
	{"expiry/a part's end is not its hold's", func(s *stage) {
		s.take("a", "p", 1, shared, keep)
		s.take("b", "p", 1, shared, keep)
		s.pass(partTTL)
		s.take("c", "p", 1, limit(3))
		s.renew(rules.Granted, "a", "p", 1)
		s.check(s.stored().LossEvidence("b", "", time.Time{}) == nil, "no record, got %+v", s.stored().Evidence)
	}},
	{"expiry/all waiters that one write grants count against a limit", func(s *stage) {
		s.take("a", "p", 1, limit(3))
		s.take("b", "p", 1, limit(3), forever)
		s.take("c", "p", 1, limit(3), forever)
		s.wait(1, "d", "p", 1, limit(3))
		s.wait(2, "e", "p", 1, limit(3))
		s.pass(partTTL)
		s.leave("b", "p", 1)
		s.claimed("d", "p")
		s.claimed("e", "p")
		s.renew(rules.Lost, "a", "p", 1)
	}},
	{"expiry/a claim evicts shared holds, even if the same write lets its lock ID share", func(s *stage) {
		s.take("a", "p", 1, shared)
		s.wait(1, "b", "p", 1)
		s.wait(2, "c", "q", 1, shared)
		s.wait(3, "c", "p", 1)
		s.leave("b", "p", 1)
		s.claimed("c", "q")
		s.pass(partTTL)
		s.take("c", "q", 1, shared)
		s.claimed("c", "p")
		s.renew(rules.Lost, "a", "p", 1)
	}},
	{"expiry/a party with a living entry is one of those under a limit, and keeps its expired ones", func(s *stage) {
		s.take("a", "p", 1, shared)
		s.join("a", "q", 1, shared, forever)
		s.take("z", "p", 1, shared)
		s.pass(partTTL)
		s.take("b", "p", 1, limit(2))
		s.renew(rules.Granted, "a", "p", 1)
		s.renew(rules.Lost, "z", "p", 1)
	}},
	{"expiry/a part that has drained is not one of those under a limit", func(s *stage) {
		s.take("x", "p", 1, shared)
		s.take("a", "p", 1, shared)
		s.release("x", 1)
		s.pass(partTTL)
		s.take("b", "p", 1, limit(2))
		s.renew(rules.Granted, "a", "p", 1)
	}},
	{"expiry/a request that joins with a limit evicts nobody", func(s *stage) {
		s.take("b", "p", 1, shared)
		s.take("a", "p", 1, shared)
		s.pass(partTTL)
		s.join("a", "q", 1, limit(1))
		s.renew(rules.Granted, "b", "p", 1)
	}},
	{"expiry/shared holds that expired are evicted if they are a crowd", func(s *stage) {
		for i := range rules.Crowd - 1 {
			s.take(fmt.Sprint("a", i), "p", 1, shared)
		}
		s.pass(partTTL)
		d := s.ask(rules.Granted, "b", "p", 1, shared)
		s.check(len(d.Expired) == 0, "%d to stay, got %d that expired", rules.Crowd-1, len(d.Expired))
		s.renew(rules.Granted, "a0", "p", 1)
		d = s.ask(rules.Granted, "c", "p", 1, limit(1000))
		s.check(len(d.Expired) == rules.Crowd-2, "all but the living to be evicted, got %d", len(d.Expired))
		s.renew(rules.Lost, "a1", "p", 1)
		s.renew(rules.Granted, "a0", "p", 1)
	}},
	{"expiry/a request that queues is a sign of life of its kept hold", func(s *stage) {
		s.take("a", "p", 1, shared, keep)
		s.take("b", "p", 1, shared, forever)
		s.leave("a", "p", 1)
		s.pass(holdTTL - time.Minute)
		s.wait(1, "a", "q", 1, keep)
		s.pass(holdTTL - time.Minute)
		s.ask(rules.Busy, "c", "p", 1, limit(2))
	}},
	{"draining/a superseded part keeps others out as long as its lease", func(s *stage) {
		s.take("a", "p", 1)
		s.pass(partTTL / 2)
		s.join("a", "p", 2)
		s.release("a", 2, stopped("p"))
		s.ask(rules.Busy, "b", "p", 1)
		s.pass(partTTL / 2)
		s.take("b", "p", 1)
	}},
	{"draining/a part without a TTL keeps others out as long as it is trusted", func(s *stage) {
		for i, end := range []func(order int64){
			func(order int64) { s.release("a", order) },
			func(order int64) { s.join("a", "p", order+1); s.leave("a", "p", order+1) },
		} {
			order := int64(2*i + 1)
			s.take("a", "p", order, forever)
			end(order)
			s.ask(rules.Busy, "b", "p", order)
			s.pass(rules.EndlessTTL - time.Second)
			s.ask(rules.Busy, "b", "p", order)
			s.pass(time.Second)
			s.take("b", "p", order)
			s.leave("b", "p", order)
		}
	}},
	{"draining/a clock that runs backwards shortens no lease", func(s *stage) {
		s.take("a", "p", 1)
		s.pass(-partTTL / 2)
		until := s.stored().Entries[0].ExpiresAt
		s.release("a", 1)
		e := s.entries(1)[0]
		s.check(e.State == rules.StateDraining && e.ExpiresAt.Equal(until), "to drain until %v, got %+v", until, e)
		s.check(e.ID != "a/p/1", "another ID, so that no extension finds it, got %+v", e)
		s.takeBack("a", "p", 1)
		s.entries(0)
	}},
}

// evidenceScenarios are about what an evicted owner learns.
var evidenceScenarios = []Scenario{
	{"missed/a release after a commit records what was lost, for a day", func(s *stage) {
		first := s.take("a", "p", 2, keep, shared, label("one"))
		s.take("c", "p", 2, keep, shared, label("one"))
		s.force("a", "by hand")
		s.leave("a", "p", 2, of("one"))
		s.pass(time.Minute)
		lost := s.stored().LossEvidence("a", "one", time.Time{}).At
		s.release("a", 1, ofRun("one"), committed)   // of other requests
		s.release("a", 9, ofRun("other"), committed) // of another run
		s.release("c", 9, ofRun("one"), committed)
		s.check(len(s.stored().Missed) == 0, "nothing, got %+v", s.stored().Missed)
		d := s.release("a", 3, ofRun("one"), committed)
		s.release("a", 3, ofRun("one"), committed)
		missed := s.stored().Missed
		s.check(len(missed) == 1, "one loss, got %+v", missed)
		m := missed[0]
		s.check(m.LockID == "a" && m.Label == "one" && m.Order == 2 && m.UpTo == 3 && m.Fence == first.FirstFence && m.Reason == "by hand", "the loss, got %+v", m)
		s.check(m.At.Equal(lost) && m.ReleasedAt.Equal(d.At), "its times, got %+v", m)
		s.check(slices.Contains(s.stored().Attn, rules.AttnMissed), "a mark, got %v", s.stored().Attn)
		s.check(!s.stored().IdleAt.Before(d.At.Add(rules.Retention)), "the document to stay, got %v", s.stored().IdleAt)
		s.pass(rules.Retention - time.Minute)
		s.settle()
		s.check(len(s.stored().Missed) == 1, "the loss to stay, got %+v", s.stored())
		s.pass(time.Minute)
		s.settle()
		s.check(len(s.stored().Missed) == 0 && !slices.Contains(s.stored().Attn, rules.AttnMissed), "nothing, got %+v", s.stored())
	}},
	{"missed/a release records nothing unless the saga has committed, of losses that count", func(s *stage) {
		s.take("a", "p", 2, keep, label("one"))
		s.force("a", "by hand")
		s.leave("a", "p", 2, of("one"))
		s.release("a", 2, ofRun("one"))
		s.take("a", "p", 3, keep, label("one"))
		s.force("a", "by hand")
		s.leave("a", "p", 3, of("one"))
		s.release("a", 4, ofRun("one"), began(1), committed)
		s.take("a", "q", 4, keep, label("one"), reacquire)
		s.release("a", 4, ofRun("one"), began(s.stored().HoldFence("a")), committed) // it erases no evidence
		s.check(len(s.stored().Missed) == 0, "nothing, got %+v", s.stored().Missed)
		s.take("a", "q", 5, keep, label("one"), reacquire)
		s.leave("a", "q", 5, of("one"))
		s.release("a", 5, ofRun("one"), committed) // it has regained the hold
		s.check(len(s.stored().Missed) == 0, "nothing, got %+v", s.stored().Missed)
		s.pass(partTTL)
		s.take("b", "p", 1, keep)
		s.force("b", "by hand")
		s.leave("b", "p", 1)
		s.release("b", 9, committed) // a plain one
		s.check(len(s.stored().Missed) == 0, "nothing, got %+v", s.stored().Missed)
	}},
	{"missed/a document remembers the newest", func(s *stage) {
		for i := range int64(rules.MaxMissed + 2) {
			s.take("a", "p", i+1, keep, label("one"))
			s.force("a", "by hand")
			s.leave("a", "p", i+1, of("one"))
			s.release("a", i+1, ofRun("one"), committed)
		}
		missed := s.stored().Missed
		s.check(len(missed) == rules.MaxMissed && missed[0].Order == 3, "the newest %d, got %+v", rules.MaxMissed, missed)
	}},
	{"evidence/an evicted hold is lost until it is acquired again on purpose", func(s *stage) {
		first := s.take("a", "p", 1, keep)
		s.pass(holdTTL)
		s.take("b", "p", 1)
		s.leave("b", "p", 1)
		for order := range int64(3) {
			r := s.ask(rules.Lost, "a", "p", order+1, keep).LossEvidence("a", "", time.Time{})
			s.check(r != nil && r.By == "b" && r.Fence == first.Fence, "a record of b and fence %d, got %+v", first.Fence, r)
			s.renew(rules.Lost, "a", "p", order+1)
		}
		e := s.take("a", "p", 4, keep, reacquire)
		s.check(e.Fence > first.Fence && s.stored().Lost("a", "", time.Time{}) == nil, "a fence above %d and no evidence that counts, got %+v", first.Fence, e)
		s.release("a", 4, stopped("p"))
		s.take("a", "p", 5, keep)
	}},
	{"evidence/a release erases what was lost up to its order, whether or not it finds a hold", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.release("a", 1, stopped("p"))
		s.release("a", 1, stopped("p"))
		first := s.take("a", "p", 2, keep).FirstFence
		s.pass(holdTTL)
		s.take("b", "p", 1)
		s.check(s.stored().LostHold("a", first), "evidence, got %+v", s.stored().Evidence)
		s.release("a", 1) // a copy of the first one
		s.ask(rules.Lost, "a", "p", 3, keep)
		s.check(s.stored().Evidence[0].Order == 2, "its last order, got %+v", s.stored().Evidence)
		s.release("a", 2)
		s.check(s.stored().LossEvidence("a", "", time.Time{}) == nil, "no evidence, got %+v", s.stored().Evidence)
		s.ask(rules.Busy, "a", "p", 5, keep)
	}},
	{"evidence/one record of a hold has its last order", func(s *stage) {
		s.take("a", "p", 2, keep)
		s.join("a", "q", 5)
		s.pass(holdTTL)
		s.take("b", "p", 1)
		s.check(len(s.stored().Evidence) == 1 && s.stored().Evidence[0].Order == 5, "one record, got %+v", s.stored().Evidence)
	}},
	{"evidence/the last forced releases stay after it is gone", func(s *stage) {
		for i := range int64(rules.MaxForced + 1) {
			first := s.take("a", "p", i+1, keep, reacquire).FirstFence
			for range 2 { // the second is a copy of the first
				s.release("a", 0, began(first), forced(fmt.Sprint("because ", i)), atOnce)
			}
		}
		s.release("a", 9)
		d := s.stored()
		first, last := d.Forced[0], d.Forced[len(d.Forced)-1]
		s.check(len(d.Forced) == rules.MaxForced && d.LossEvidence("a", "", time.Time{}) == nil, "%d, and no evidence, got %+v", rules.MaxForced, d)
		s.check(first.Reason == "because 1" && last.Reason == fmt.Sprint("because ", rules.MaxForced), "the last ones, got %+v", d.Forced)
	}},
	{"evidence/a part that drains and is ended at once is a forced release too", func(s *stage) {
		first := s.take("a", "p", 1).FirstFence
		s.release("a", 0, began(first), forced("it hangs"))
		s.release("a", 0, began(first), forced("it hangs, again"))
		s.release("a", 0, began(first), forced("it is dead"), atOnce)
		d := s.stored()
		s.check(len(d.Forced) == 2 && d.Forced[1].Reason == "it is dead" && len(d.Evidence) == 1, "two, and one loss, got %+v", d)
	}},
	{"evidence/it is bounded, and says from when on it is complete", func(s *stage) {
		for i := range rules.MaxEvidence + 1 {
			s.take(fmt.Sprint("a", i), "p", 1)
			s.pass(partTTL)
		}
		b := s.take("b", "p", 1)
		d := s.stored()
		s.check(len(d.Evidence) == rules.MaxEvidence+1 && d.LostHold("a0", d.Evidence[0].Fence), "one more than the bound, got %d", len(d.Evidence))
		a0, start := d.Evidence[0].Fence, d.Evidence[0].At.Add(-partTTL)
		s.pass(partTTL)
		s.take("c", "p", 1)
		d = s.stored()
		s.check(!d.LostHold("a0", a0) && d.LostBefore("a0", a0, start.Add(-partTTL)), "that a0 may be lost, got %+v", d)
		s.check(d.LostHold("b", b.FirstFence) && !d.LostBefore("c", 1, d.At), "b lost, and not c, got %+v", d.Evidence)
		ago := d.Evidence[0].At.Sub(d.EvidenceSince)
		s.check(ago > partTTL/2 && ago < 2*partTTL, "complete since a0 was evicted, got %v before a1 was", ago)
	}},
	{"evidence/that of a new document is complete since the retention time before", func(s *stage) {
		first := s.take("a", "p", 1, forever).FirstFence
		d := s.stored()
		s.check(!d.LostBefore("a", first, d.At.Add(-23*time.Hour)), "proof that nothing was lost, got %+v", d)
		s.check(d.LostBefore("a", first, d.At.Add(-25*time.Hour)), "no proof, got %+v", d)
		s.pass(48 * time.Hour)
		s.renew(rules.Granted, "a", "p", 1)
		d = s.stored()
		s.check(d.At.Sub(d.EvidenceSince) > 71*time.Hour, "the time to stay, got %v ago", d.At.Sub(d.EvidenceSince))
	}},
}
