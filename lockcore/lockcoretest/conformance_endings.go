package lockcoretest

import (
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// endingScenarios show how holds, claims and places are ended.
var endingScenarios = []Scenario{
	{"renew/it extends the part by its own TTL, and its hold with it", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.pass(partTTL - time.Minute)
		d := s.outcome(s.renew("a", "p", 1), rules.Granted)
		e := s.entry(d, "a", "p", 1)
		s.check(e.ExpiresAt.Sub(d.At) == partTTL && e.RenewedAt != nil && e.RenewedAt.Equal(d.At), "%v left, got %+v", partTTL, e)
		for _, e := range d.Entries {
			s.check(e.State != rules.StateKept || e.ExpiresAt.Sub(d.At) == holdTTL, "%v left of the hold, got %+v", holdTTL, e)
		}
	}},
	{"renew/one that began before the grant shortens no promise", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.pass(-partTTL / 2)
		before := s.stored()
		lasts := func() {
			s.Helper()
			for i, e := range s.stored().Entries {
				s.check(e.ExpiresAt.Equal(before.Entries[i].ExpiresAt), "the end of %+v, got %v", before.Entries[i], e.ExpiresAt)
			}
		}
		s.outcome(s.renew("a", "p", 1), rules.Granted)
		lasts()
		renewed, err := s.h.RenewAll(s.Context(), renewals([]string{s.resource}, "a", "p", 1))
		s.must(err)
		s.check(same(renewed, []bool{true}), "it to be renewed, got %v", renewed)
		lasts()
		s.outcome(s.ask("a", "p", 1, keep), rules.Again)
		lasts()
	}},
	{"renew/a new TTL counts from now, if it is shorter too", func(s *stage) {
		for i, ttl := range []time.Duration{2 * partTTL, partTTL / 2} {
			s.take("a", "p", int64(i+1), forever)
			d := s.outcome(s.retime("a", "p", int64(i+1), ttl), rules.Granted)
			e := s.entry(d, "a", "p", int64(i+1))
			s.check(e.TTL == ttl.Milliseconds() && e.ExpiresAt.Sub(d.At) == ttl, "%v left, got %+v", ttl, e)
			d = s.outcome(s.retime("a", "p", int64(i+1), time.Minute), rules.Granted)
			e = s.entry(d, "a", "p", int64(i+1))
			s.check(e.ExpiresAt.Sub(d.At) == time.Minute, "a minute left, got %+v", e)
			s.release("a", int64(i+1), "p")
		}
	}},
	{"renew/a new TTL is not for what has expired", func(s *stage) {
		s.take("a", "p", 1)
		s.pass(partTTL)
		before := s.stored()
		s.outcome(s.retime("a", "p", 1, time.Minute), rules.Superseded)
		s.unchanged(before)
		s.outcome(s.retime("a", "p", 2, time.Minute), rules.Lost)
	}},
	{"renew/what is not there is lost", func(s *stage) {
		s.outcome(s.renew("a", "p", 1), rules.Lost)
		s.take("a", "p", 1)
		s.outcome(s.renew("a", "p", 2), rules.Lost)
		s.outcome(s.renew("a", "q", 1), rules.Lost)
		s.outcome(s.renew("b", "p", 1), rules.Lost)
		s.leave("a", "p", 1)
		s.outcome(s.renew("a", "p", 1), rules.Lost)
	}},
	{"renew/a downgrade lets those who share in", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.wait(1, "b", "p", 1, shared)
		e := s.entry(s.outcome(s.downgrade("a", "p", 1), rules.Granted), "a", "p", 1)
		s.check(e.Mode == rules.Shared, "a shared part, got %+v", e)
		s.take("b", "p", 1, shared)
		s.outcome(s.ask("c", "p", 1), rules.Busy)
	}},
	{"renew/a hold with other parts is not downgraded", func(s *stage) {
		s.take("a", "p", 1)
		s.join("a", "q", 1)
		e := s.entry(s.outcome(s.downgrade("a", "p", 1), rules.Granted), "a", "p", 1)
		s.check(e.Mode == rules.Exclusive, "an exclusive part, got %+v", e)
		s.outcome(s.ask("b", "p", 1, shared), rules.Busy)
	}},
	{"leave/it ends the part, and tells of the hold that ended with it", func(s *stage) {
		e := s.take("a", "p", 1)
		d := s.outcome(s.leave("a", "p", 1), rules.Granted)
		s.check(len(d.Entries) == 0 && len(d.Last.Released()) == 1 && d.Last.Released()[0].Fence == e.Fence, "the hold with fence %d to end, got %+v", e.Fence, d.Last)
		d = s.outcome(s.leave("a", "p", 1), rules.Granted)
		s.check(len(d.Last.Released()) == 0, "nothing more to end, got %+v", d.Last)
	}},
	{"leave/it takes back a request with the hold that it made, where that is asked", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.undo("a", "p", 1)
		s.take("b", "p", 1)
	}},
	{"leave/it takes back no hold that others use, nor one that it had no part in", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.join("a", "q", 1, keep)
		s.undo("a", "q", 1)
		s.outcome(s.renew("a", "p", 1), rules.Granted)
		s.leave("a", "p", 1)
		s.undo("a", "r", 1)
		s.outcome(s.ask("b", "p", 1), rules.Busy)
	}},
	{"release/it ends holds, claims and places up to an order", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.leave("a", "p", 1)
		d := s.release("a", 1)
		s.check(len(d.Entries) == 0 && len(d.Last.Released()) == 1, "the hold to end, got %+v", d)
		s.take("b", "p", 1)
		s.wait(1, "a", "p", 2)
		s.leave("b", "p", 1)
		s.claimed("a", "p")
		s.release("a", 2)
		s.take("b", "p", 2)
		s.wait(1, "a", "p", 3)
		s.release("a", 3)
		s.check(len(s.stored().Waiters) == 0, "nobody to wait, got %+v", s.stored().Waiters)
	}},
	{"release/what was asked for later stands", func(s *stage) {
		s.take("a", "p", 2)
		before := s.stored()
		s.release("a", 1)
		s.check(same(before.Entries, s.stored().Entries), "the hold to stand, got %+v", s.stored().Entries)
	}},
	{"release/a part that is known to have stopped does not drain", func(s *stage) {
		s.take("a", "p", 1)
		s.release("a", 1, "p")
		s.take("b", "p", 1)
	}},
	{"release/forced, it ends everything, and the holder is told why", func(s *stage) {
		s.take("a", "p", 7, keep)
		s.leave("a", "p", 7)
		s.force("a", "by hand")
		d := s.outcome(s.ask("a", "q", 8, keep), rules.Lost)
		r := d.EvictedRecord("a", "")
		s.check(r != nil && r.Reason == "by hand", "the reason, got %+v", r)
	}},
	{"release/forced, it tells the parts that ran why", func(s *stage) {
		s.take("a", "p", 7)
		s.force("a", "by hand")
		d := s.outcome(s.ask("a", "p", 7), rules.Superseded)
		by, _ := d.Overtaker("a", "", "p", 7)
		s.check(by.Reason == "by hand", "the reason, got %+v", by)
	}},
	{"release/of a hold by its first fence, a repetition ends nothing that began later", func(s *stage) {
		first := s.take("a", "p", 1, keep).FirstFence
		s.endHold("a", first, leaving("p", 1))
		second := s.take("a", "q", 1, keep)
		before := s.stored()
		s.endHold("a", first, leaving("p", 1))
		s.endHold("a", first, forced("by hand"), atOnce)
		s.unchanged(before)
		s.check(second.FirstFence > first, "a first fence above %d, got %+v", first, second)
	}},
	{"release/of a hold by its first fence ends all that entered it, whatever their fences", func(s *stage) {
		first := s.take("a", "p", 1, keep).FirstFence
		q := s.join("a", "q", 1, keep, newFence)
		s.check(q.FirstFence == first && q.Fence > first, "the first fence %d and a new one, got %+v", first, q)
		s.leave("a", "p", 1)
		s.endHold("a", first, leaving("q", 1))
		s.outcome(s.ask("a", "q", 1, keep), rules.Superseded)
		s.take("b", "p", 1)
	}},
	{"release/of a hold by its first fence lets its other parts drain", func(s *stage) {
		first := s.take("a", "p", 1).FirstFence
		s.join("a", "q", 1)
		s.endHold("a", first, leaving("p", 1))
		s.outcome(s.renew("a", "q", 1), rules.Lost)
		s.outcome(s.ask("b", "p", 1), rules.Busy)
	}},
	{"release/of a hold by its first fence lets a part of another order drain", func(s *stage) {
		first := s.take("a", "p", 2).FirstFence
		s.endHold("a", first, leaving("p", 1))
		s.outcome(s.renew("a", "p", 2), rules.Lost)
		s.outcome(s.ask("b", "p", 1), rules.Busy)
	}},
	{"release/of a hold by its first fence ends nothing of the one that the same request began anew", func(s *stage) {
		first := s.take("a", "p", 1).FirstFence
		s.pass(partTTL)
		s.take("b", "p", 1)
		s.leave("b", "p", 1)
		s.take("a", "p", 1)
		before := s.stored()
		s.endHold("a", first, leaving("p", 1))
		s.unchanged(before)
	}},
	{"release/of a hold by its first fence lets parts drain, and finds them again while they do", func(s *stage) {
		first := s.take("a", "p", 1).FirstFence
		s.endHold("a", first, forced("by hand"))
		s.outcome(s.ask("b", "p", 1), rules.Busy)
		s.endHold("a", first, forced("by hand"))
		s.outcome(s.ask("b", "p", 1), rules.Busy)
		s.endHold("a", first, forced("its machine burnt down"), atOnce)
		s.take("b", "p", 1)
		s.check(len(s.stored().Evicted) == 1, "one record, got %+v", s.stored().Evicted)
	}},
	{"release/forced at once, it waits for no part, though it had been promised hours", func(s *stage) {
		first := s.take("a", "p", 1, forever, keep).FirstFence
		s.endHold("a", first, forced("its machine burnt down"), atOnce)
		s.take("b", "p", 1)
	}},
	{"release/it says whether there was evidence of a loss, which ends with it, also when it is repeated", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.release("a", 1, "p")
		s.release("a", 1, "p")
		d := s.stored()
		s.check(!d.LostUpTo("a", "", 1), "a release that was repeated, and no loss, got %+v", d.Released)
		first := s.take("a", "p", 2, keep).FirstFence
		s.pass(holdTTL)
		s.take("b", "p", 1)
		d = s.stored()
		s.check(d.LostHold("a", first) && !d.Evicted[0].At.IsZero() && !d.Evicted[0].At.After(d.At), "evidence, got %+v", d.Evicted)
		s.outcome(s.ask("a", "p", 3, keep), rules.Lost)
		s.release("a", 4)
		s.release("a", 4)
		d = s.stored()
		s.check(d.LostUpTo("a", "", 4) && !d.LostUpTo("a", "", 1), "a loss, got %+v", d.Released)
		s.outcome(s.ask("a", "p", 5, keep), rules.Busy)
	}},
	{"release/repeated, it does not forgive what was lost since", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.release("a", 1, "p")
		s.take("a", "p", 2, keep)
		s.force("a", "by hand")
		s.release("a", 1, "p")
		d := s.stored()
		s.check(!d.LostUpTo("a", "", 1), "no loss up to order 1, got %+v", d.Released)
		s.outcome(s.ask("a", "p", 3, keep), rules.Lost)
	}},
	{"leave/it gives up a place or a claim for somebody else, and no part that runs", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.giveUp("b", "p", 1, "by hand")
		d := s.outcome(s.ask("b", "p", 1, queue), rules.Superseded)
		by, _ := d.Overtaker("b", "", "p", 1)
		s.check(by.Reason == "by hand", "the reason, got %+v", by)
		before := s.stored()
		s.giveUp("a", "p", 1, "by hand")
		s.check(same(before.Entries, s.stored().Entries), "a to hold as before, got %+v", s.stored().Entries)
	}},
	{"leave/it takes back no hold that another request has entered since, though that has left", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.join("a", "q", 1, keep)
		s.leave("a", "q", 1)
		s.undo("a", "p", 1)
		s.outcome(s.ask("b", "p", 1), rules.Busy)
		s.join("a", "r", 1, keep, held)
	}},
	{"leave/what a later attempt takes back is not what an earlier one made", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.leave("a", "p", 1)
		s.join("a", "p", 2, keep)
		s.undo("a", "p", 2)
		s.outcome(s.ask("b", "p", 1), rules.Busy)
	}},
	{"evidence/the answer to a request that is busy says what became of its party's hold", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.leave("a", "p", 1)
		s.force("a", "by hand")
		s.take("b", "p", 1)
		for _, queued := range []bool{false, true} {
			d := s.ask("a", "q", 1, func(op *rules.Acquire) { op.Queue = queued })
			s.check(d.Last.Evidence, "evidence, got %+v", d)
			s.check(!d.EvidenceSince.IsZero(), "since when it is complete")
		}
	}},
	{"evidence/what became of another run, whose place alone was taken over, says nothing of this one", func(s *stage) {
		s.take("b", "p", 1)
		s.wait(1, "a", "step", 1, keep, label("one"))
		for order := range int64(2) {
			d := s.outcome(s.ask("a", "its step", order+1, keep, queue, label("two"), takeOver("one")), rules.Queued)
			s.check(!d.Last.Evidence, "no evidence about run two, got %+v", d)
		}
		s.leave("b", "p", 1)
		s.take("a", "its step", 3, keep, queue, label("two"))
		s.leaveOf("a", "two", "its step", 3)
		s.force("a", "by hand")
		s.take("b", "p", 2)
		d := s.outcome(s.ask("a", "later", 1, label("two")), rules.Busy)
		s.check(d.Last.Evidence, "evidence about run two, got %+v", d)
		d = s.outcome(s.ask("a", "later", 1, label("three")), rules.Busy)
		s.check(!d.Last.Evidence, "no evidence about run three, got %+v", d)
	}},
	{"withdraw/it takes one request out of the queue, and its part is told why until it leaves, whatever its order", func(s *stage) {
		s.take("a", "p", 1)
		for _, order := range []int64{1, 2} {
			s.wait(1, "b", "p", order)
			s.outcome(s.withdraw("b", "p", order), rules.Granted)
			s.outcome(s.withdraw("b", "p", order), rules.Lost)
			for range 2 { // the first answer may be lost
				d := s.outcome(s.ask("b", "p", 2*order-1, queue), rules.Deadlock)
				s.check(d.Last.Note == "deadlock", "the verdict, got %+v", d.Last)
			}
			s.leave("b", "p", 2*order-1)
			s.outcome(s.ask("b", "p", 2*order-1, queue), rules.Superseded)
		}
		s.wait(1, "b", "p", 4)
	}},
	{"withdraw/its verdict is not forgotten, whatever else ends before it is read", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.withdraw("b", "p", 1)
		for range 2 { // and whatever ends before it is read again, after a lost answer
			for i := range rules.MaxReleased + 1 {
				s.leave(fmt.Sprint("other", i), "p", 1)
			}
			s.outcome(s.ask("b", "p", 1, queue), rules.Deadlock)
		}
	}},
	{"withdraw/who was taken out of the queue gets no claim, is in nobody's way, and may leave", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.wait(2, "b", "q", 1)
		s.withdraw("b", "p", 1)
		s.withdraw("b", "q", 1)
		s.leave("a", "p", 1)
		s.check(len(s.stored().Entries) == 0, "no claim, got %+v", s.stored().Entries)
		s.take("c", "p", 1)
		s.gone(s.leave("b", "p", 1))
		s.gone(s.release("b", 1))
		s.check(len(s.stored().Waiters) == 0, "nothing of b, got %+v", s.stored().Waiters)
		s.wait(1, "b", "p", 2)
		s.withdraw("b", "p", 2)
		s.pass(waiterTTL)
		s.outcome(s.ask("b", "p", 3), rules.Granted)
	}},
	{"withdraw/its part is told also if nobody holds any more", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.withdraw("b", "p", 1)
		s.leave("a", "p", 1)
		s.outcome(s.ask("b", "p", 2), rules.Deadlock)
	}},
	{"withdraw/it takes away neither a claim nor another order's place", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 2)
		s.outcome(s.withdraw("b", "p", 1), rules.Lost)
		s.outcome(s.withdraw("b", "p", 3), rules.Lost)
		s.leave("a", "p", 1)
		s.outcome(s.withdraw("b", "p", 2), rules.Lost)
		s.take("b", "p", 2)
	}},
}
