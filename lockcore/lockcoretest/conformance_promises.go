package lockcoretest

import (
	"fmt"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// promiseScenarios show the invariants I6 to I10 where they are most easily broken. I7, that what is said stands on a
// majority, is between an engine and its store.
var promiseScenarios = []Scenario{
	{"I6/every operation may be repeated, and ends as if it had run once", func(s *stage) {
		s.take("a", "p", 1, keep)
		before := s.stored()
		s.outcome(s.ask("a", "p", 1, keep, newFence), rules.Again)
		s.check(same(before.Entries[1:], s.stored().Entries[1:]) && before.Fence == s.stored().Fence, "one grant, got %+v", s.stored())
		s.wait(1, "b", "p", 1)
		s.wait(1, "b", "p", 1)
		s.check(len(s.stored().Waiters) == 1, "one place, got %+v", s.stored().Waiters)
		s.join("a", "p", 2, keep)
		before = s.stored()
		s.outcome(s.ask("a", "p", 2, keep), rules.Again)
		s.check(before.Fence == s.stored().Fence && len(before.Entries) == len(s.stored().Entries), "one part, got %+v", s.stored().Entries)
		for _, twice := range []func(){
			func() { s.leave("a", "p", 2) },
			func() { s.withdraw("b", "p", 1) },
			func() { s.release("a", 3) },
			func() { s.force("a", "by hand") },
		} {
			twice()
			before = s.stored()
			twice()
			after := s.stored()
			s.must(Repeated(atRest(before), atRest(after)))
		}
	}},
	{"I6/a late copy of a request changes nothing", func(s *stage) {
		s.take("a", "p", 1)
		s.join("a", "p", 2)
		s.outcome(s.ask("a", "p", 1), rules.Superseded)
		s.leave("a", "p", 2)
		s.pass(partTTL)
		s.take("b", "p", 1)
		before := s.stored()
		s.outcome(s.ask("a", "p", 1, queue), rules.Superseded)
		s.outcome(s.ask("a", "p", 2, queue), rules.Superseded)
		s.unchanged(before)
	}},
	{"I6/a request that comes too late after it was issued is refused, though nothing remembers it", func(s *stage) {
		s.take("b", "p", 1)
		s.leave("b", "p", 1)
		before := s.stored()
		late := issued(before.At.Add(-rules.CommandTimeout - time.Second))
		for _, changes := range [][]with{{late}, {late, shared}, {late, keep, queue}} {
			s.outcome(s.ask("a", "p", 1, changes...), rules.Late)
			s.unchanged(before)
		}
		s.take("a", "p", 1, issued(s.stored().At.Add(-time.Second)))
		s.outcome(s.ask("a", "q", 1, issued(s.stored().At.Add(-time.Hour)), keep), rules.Late)
		s.check(len(s.stored().Entries) == 1, "one part, got %+v", s.stored().Entries)
	}},
	{"I6/a late copy of what ends a request leaves the later ones", func(s *stage) {
		s.take("a", "p", 1)
		s.leave("a", "p", 1)
		s.take("a", "p", 2)
		s.leave("a", "p", 1)
		s.release("a", 1)
		s.outcome(s.renew("a", "p", 2), rules.Granted)
	}},
	{"I6/what ended is remembered while not too much has ended since", func(s *stage) {
		s.leave("a", "p", 1)
		for i := range rules.MaxReleased - 1 {
			s.leave("b", fmt.Sprint(i), 1)
		}
		s.outcome(s.ask("a", "p", 1), rules.Superseded)
		s.check(len(s.stored().Released) == rules.MaxReleased, "%d records, got %d", rules.MaxReleased, len(s.stored().Released))
		s.leave("b", "p", 1)
		s.check(len(s.stored().Released) == rules.MaxReleased, "%d records, got %d", rules.MaxReleased, len(s.stored().Released))
	}},
	{"I8/a part that was reported lost is not renewed again", func(s *stage) {
		s.take("a", "p", 1)
		s.join("a", "p", 2)
		s.outcome(s.renew("a", "p", 1), rules.Lost)
		s.leave("a", "p", 2)
		s.outcome(s.renew("a", "p", 1), rules.Lost)
		s.take("a", "p", 3)
		s.outcome(s.renew("a", "p", 1), rules.Lost)
		s.outcome(s.ask("a", "p", 1), rules.Superseded)
	}},
	{"I8/a hold that was displaced is reported lost each time, until it is taken anew", func(s *stage) {
		first := s.take("a", "p", 1, keep)
		s.pass(holdTTL)
		s.take("b", "p", 1)
		s.leave("b", "p", 1)
		for order := range int64(3) {
			s.outcome(s.ask("a", "p", order+1, keep), rules.Lost)
			s.outcome(s.renew("a", "p", order+1), rules.Lost)
		}
		e := s.take("a", "p", 4, keep, reacquire)
		s.check(e.Fence > first.Fence, "a fence above %d, got %d", first.Fence, e.Fence)
	}},
	{"I8/records of displaced holds are bounded, the oldest go first", func(s *stage) {
		for i := range rules.MaxEvicted + 1 {
			s.take(fmt.Sprint("a", i), "p", 1)
			s.pass(partTTL)
		}
		b := s.take("b", "p", 1)
		d := s.stored()
		s.check(len(d.Evicted) == rules.MaxEvicted+1 && d.LostHold("a0", d.Evicted[0].Fence), "what one write adds on top, got %+v", d.Evicted)
		a0, began := d.Evicted[0].Fence, d.Evicted[0].At.Add(-partTTL)
		s.pass(partTTL)
		s.take("c", "p", 1)
		d = s.stored()
		s.check(d.LostBefore("a0", a0, began), "no proof that a0, which began at %v, was not lost, got %+v", began, d)
		s.check(d.LostHold("b", b.FirstFence) && !d.LostBefore("c", 1, d.At), "b alone lost, got %+v", d.Evicted)
		s.check(len(d.Evicted) == rules.MaxEvicted+1 && d.Evicted[0].LockID == "a1", "%d records from a1 on, got %+v", rules.MaxEvicted+1, d.Evicted)
		ago := d.Evicted[0].At.Sub(d.EvidenceSince)
		s.check(ago > partTTL/2 && ago < 2*partTTL, "complete since a0 was displaced, got %v before a1 was", ago)
	}},
	{"I8/evidence of a new document is complete since a day ago, and stays so while none is forgotten", func(s *stage) {
		first := s.take("a", "p", 1, forever).FirstFence
		d := s.stored()
		s.check(d.At.Sub(d.EvidenceSince) < 25*time.Hour && d.At.Sub(d.EvidenceSince) > 23*time.Hour, "a day, got %v", d.At.Sub(d.EvidenceSince))
		s.check(!d.LostBefore("a", first, d.At.Add(-23*time.Hour)), "proof that nothing was lost, got %+v", d)
		s.check(d.LostBefore("a", first, d.At.Add(-25*time.Hour)), "no proof, got %+v", d)
		s.pass(48 * time.Hour)
		s.renew("a", "p", 1)
		d = s.stored()
		s.check(d.At.Sub(d.EvidenceSince) > 71*time.Hour, "since a day before the document, got %v", d.At.Sub(d.EvidenceSince))
	}},
	{"I9/a dead holder delays others no longer than its own TTL", func(s *stage) {
		s.take("a", "p", 1)
		s.pass(partTTL - time.Minute)
		s.outcome(s.ask("b", "p", 1), rules.Busy)
		s.pass(time.Minute)
		s.take("b", "p", 1)
	}},
	{"I9/a dead waiter delays nobody", func(s *stage) {
		s.take("a", "p", 1, forever)
		s.wait(1, "b", "p", 1)
		s.pass(waiterTTL / 2)
		s.wait(2, "c", "p", 1)
		s.pass(waiterTTL / 2)
		s.leave("a", "p", 1)
		s.claimed("c", "p")
		s.check(s.stored().Claim("b", "p") == nil, "no claim of b, got %+v", s.stored().Entries)
	}},
	{"I9/dead waiters do not keep newcomers out, nor count in the queue", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, room(1))
		s.pass(waiterTTL)
		s.renew("a", "p", 1)
		s.wait(1, "c", "p", 1, room(1))
		s.pass(waiterTTL)
		s.take("d", "p", 1)
	}},
	{"I9/a dead claim delays others no longer than the claim's TTL", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.leave("a", "p", 1)
		s.pass(claimTTL)
		s.take("c", "p", 1)
	}},
	{"I9/a dead claim of who slept through one before delays others no longer than it stands itself", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.leave("a", "p", 1)
		s.pass(claimTTL)
		s.take("c", "p", 1)
		for range 3 { // it is b who has to come back
			s.outcome(s.ask("d", "p", 1), rules.Busy)
		}
		s.wait(1, "b", "p", 2)
		s.wait(2, "d", "p", 2)
		s.leave("c", "p", 1)
		s.pass(2*claimTTL - time.Minute)
		s.outcome(s.ask("d", "p", 2), rules.Busy)
		s.wait(1, "d", "p", 2)
		s.pass(time.Minute)
		s.renew("nobody", "p", 1)
		d := s.claimed("d", "p")
		s.check(d.ExpiresAt.Sub(*d.ClaimedAt) == claimTTL, "a claim for %v, got %+v", claimTTL, d)
	}},
	{"I9/a dead claim whose place is given up goes", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.leave("a", "p", 1)
		s.pass(waiterTTL)
		s.leave("nobody", "p", 1)
		s.check(len(s.stored().Entries) == 0, "nothing held, got %+v", s.stored().Entries)
	}},
	{"I10/what a caller passes is stored as it is, and names nothing", func(s *stage) {
		base := s.resource
		for i, text := range []string{"$owner", "a.b", "$$NOW", "$$ROOT", "$t.id", "\x01\x7f", "{\"$literal\":1}", strings.Repeat("ü", 256), "..", "$"} {
			s.resource = fmt.Sprint(base, i, text)
			s.spell(text)
		}
	}},
}

// spell passes one text everywhere, and looks for it in what is stored.
func (s *stage) spell(text string) {
	s.Helper()
	everywhere := func(op *rules.Acquire) { op.Owner, op.Host, op.Comment, op.Trace = text+"o", text, text, text }
	e := s.take(text, text, 1, everywhere)
	s.check(e.Owner == text+"o" && e.Host == text && e.Comment == text && e.Trace == text, "%q everywhere, got %+v", text, e)
	s.outcome(s.renew(text, text, 1), rules.Granted)
	s.wait(1, text+"2", text, 1, everywhere)
	d := s.stored()
	s.check(d.ID == s.resource && len(d.Waiters) == 1, "one waiter of %q, got %+v", s.resource, d)
	w := d.Waiters[0]
	s.check(w.LockID == text+"2" && w.Part == text && w.Owner == text+"o", "%q to wait, got %+v", text, w)
	s.withdraw(text+"2", text, 1)
	s.outcome(s.ask(text+"2", text, 1), rules.Deadlock)
	s.force(text, text)
	d = s.stored()
	s.check(len(d.Evicted) == 1 && d.Evicted[0].LockID == text && d.Evicted[0].Reason == text, "a record of %q, got %+v", text, d.Evicted)
	s.check(len(d.Released) == 1 && *d.Released[0].Part == text && d.Released[0].LockID == text && d.Released[0].Reason == text, "a record of %q, got %+v", text, d.Released)
	s.leave(text, text, 1)
	s.check(len(s.stored().Entries) == 0, "nothing held, got %+v", s.stored().Entries)
}
