package lockcoretest

import (
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// passingScenarios show what the passing of time ends, and what it does not.
var passingScenarios = []Scenario{
	{"expiry/an expired hold stands until somebody needs the room: its owner goes on", func(s *stage) {
		first := s.take("a", "p", 1, keep)
		s.pass(time.Hour)
		s.outcome(s.renew("a", "p", 1), rules.Granted)
		s.pass(time.Hour)
		e := s.join("a", "q", 1, keep)
		s.check(e.Fence == first.Fence, "fence %d, got %d", first.Fence, e.Fence)
	}},
	{"expiry/a request is not overtaken by a copy of itself that came when its part had expired", func(s *stage) {
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
	{"expiry/one that was displaced leaves a record of who came", func(s *stage) {
		e := s.take("a", "p", 1, keep)
		s.pass(holdTTL)
		d := s.outcome(s.ask("b", "p", 1), rules.Granted)
		s.check(len(d.Last.Expired) > 0 && d.Last.Expired[0].LockID == "a", "a to expire, got %+v", d.Last.Expired)
		s.leave("b", "p", 1)
		r := s.outcome(s.ask("a", "q", 1, keep), rules.Lost).EvictedRecord("a", "")
		s.check(r != nil && r.By == "b" && r.Fence == e.Fence, "a record of b and fence %d, got %+v", e.Fence, r)
	}},
	{"expiry/a claim displaces as well, and names who waited", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.wait(1, "b", "p", 1)
		s.pass(holdTTL - waiterTTL/2)
		s.wait(1, "b", "p", 1)
		s.pass(waiterTTL / 2)
		s.renew("nobody", "p", 1)
		s.claimed("b", "p")
		r := s.stored().EvictedRecord("a", "")
		s.check(r != nil && r.By == "b", "a record of b, got %+v", r)
	}},
	{"expiry/shared holds that have expired stand beside others who share", func(s *stage) {
		s.take("a", "p", 1, shared)
		s.pass(partTTL)
		s.take("b", "p", 1, shared)
		s.outcome(s.renew("a", "p", 1), rules.Granted)
	}},
	{"expiry/shared holds that have expired go where they would exceed a limit", func(s *stage) {
		s.take("a", "p", 1, limit(1))
		s.pass(partTTL)
		s.take("b", "p", 1, limit(1))
		s.outcome(s.renew("a", "p", 1), rules.Lost)
	}},
	{"expiry/shared holds that have expired go where a claim wants the room, though the same write lets its party in to share", func(s *stage) {
		s.take("a", "p", 1, shared)
		s.wait(1, "b", "p", 1)
		s.wait(2, "c", "q", 1, shared)
		s.wait(3, "c", "p", 1)
		s.leave("b", "p", 1)
		s.claimed("c", "q")
		s.pass(partTTL)
		s.take("c", "q", 1, shared)
		s.claimed("c", "p")
		s.outcome(s.renew("a", "p", 1), rules.Lost)
	}},
	{"expiry/shared holds that have expired go where they are a crowd, and not before", func(s *stage) {
		for i := range rules.Crowd - 1 {
			s.take(fmt.Sprint("a", i), "p", 1, shared)
		}
		s.pass(partTTL)
		d := s.outcome(s.ask("b", "p", 1, shared), rules.Granted)
		s.check(len(d.Last.Expired) == 0, "that %d stand, got %d that expired", rules.Crowd-1, len(d.Last.Expired))
		s.outcome(s.renew("a0", "p", 1), rules.Granted)
		d = s.outcome(s.ask("c", "p", 1, shared), rules.Granted)
		s.check(len(d.Last.Expired) == rules.Crowd-2, "all but the living to expire, got %d", len(d.Last.Expired))
		s.outcome(s.renew("a1", "p", 1), rules.Lost)
		for _, lockID := range []string{"a0", "b", "c"} {
			s.outcome(s.renew(lockID, "p", 1), rules.Granted)
		}
		r := s.stored().EvictedRecord(fmt.Sprint("a", rules.Crowd-2), "")
		s.check(r != nil && r.By == "c", "a record of c, got %+v", r)
	}},
	{"expiry/a part's end is not its hold's: the next attempt goes on", func(s *stage) {
		s.take("a", "p", 1, shared, keep)
		s.take("b", "p", 1, shared, keep)
		s.pass(partTTL)
		s.take("c", "p", 1, limit(3))
		s.outcome(s.renew("a", "p", 1), rules.Granted)
		r := s.stored().EvictedRecord("b", "")
		s.check(r == nil, "no record of a hold that stands, got %+v", r)
	}},
	{"expiry/the same part and order again after its end goes on with a promise, though somebody waits", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		s.pass(partTTL)
		d := s.ask("a", "p", 1)
		e := s.entry(&d, "a", "p", 1)
		s.check(e.ExpiresAt.After(d.At), "a promise, got %+v", e)
		s.outcome(s.ask("b", "p", 1, queue), rules.Queued)
	}},
	{"draining/a superseded part keeps others out as long as it may trust, though the hold is gone", func(s *stage) {
		s.take("a", "p", 1)
		s.join("a", "p", 2)
		s.leave("a", "p", 2)
		s.outcome(s.ask("b", "p", 1), rules.Busy)
		s.pass(partTTL)
		s.take("b", "p", 1)
	}},
	{"draining/a released part keeps others out until it leaves", func(s *stage) {
		s.take("a", "p", 1)
		s.release("a", 1)
		s.outcome(s.renew("a", "p", 1), rules.Lost)
		s.outcome(s.ask("b", "p", 1), rules.Busy)
		s.leave("a", "p", 1)
		s.take("b", "p", 1)
	}},
	{"draining/a part whose hold was released by force keeps others out", func(s *stage) {
		s.take("a", "p", 1)
		s.force("a", "by hand")
		s.outcome(s.ask("b", "p", 1), rules.Busy)
		s.pass(partTTL)
		s.take("b", "p", 1)
	}},
	{"draining/a command that began before the grant cuts nothing off its promise", func(s *stage) {
		s.take("a", "p", 1)
		s.pass(-partTTL / 2)
		until := s.stored().Entries[0].ExpiresAt
		s.release("a", 1)
		e := s.stored().Entries[0]
		s.check(e.State == rules.StateDraining && e.ExpiresAt.Equal(until), "it to drain until %v, got %+v", until, e)
	}},
	{"draining/its own lock ID is not kept out", func(s *stage) {
		s.take("a", "p", 1)
		s.release("a", 1)
		s.take("a", "q", 2)
	}},
	{"draining/a part without end that is cut off keeps others out as long as it may trust", func(s *stage) {
		s.take("a", "p", 1, forever)
		s.release("a", 1)
		s.outcome(s.ask("b", "p", 1), rules.Busy)
		s.pass(rules.EndlessTTL - time.Second)
		s.outcome(s.ask("b", "p", 2), rules.Busy)
		s.pass(time.Second)
		s.take("b", "p", 3)
	}},
	{"draining/a part without end that is superseded keeps others out as long as it may trust", func(s *stage) {
		s.take("a", "p", 1, forever)
		s.join("a", "p", 2)
		s.leave("a", "p", 2)
		s.outcome(s.ask("b", "p", 1), rules.Busy)
		s.pass(rules.EndlessTTL)
		s.take("b", "p", 2)
	}},
	{"lost/who knows that it held, and does not any more, is told", func(s *stage) {
		s.outcome(s.ask("a", "p", 1, held), rules.Lost)
		s.check(len(s.stored().Entries) == 0, "nothing held, got %+v", s.stored().Entries)
		s.take("a", "p", 1, held, reacquire)
		s.join("a", "q", 1, held)
	}},
	{"lost/who asks to take it anew is granted, and the record goes", func(s *stage) {
		s.take("a", "p", 1, keep)
		s.pass(holdTTL)
		s.take("b", "p", 1)
		s.leave("b", "p", 1)
		s.take("a", "p", 2, keep, reacquire)
		s.release("a", 2, "p")
		s.take("a", "p", 3, keep)
	}},
	{"kept/that somebody came is a sign of life, whatever the answer", func(s *stage) {
		s.take("a", "p", 1, shared, keep)
		s.take("b", "p", 1, shared, forever)
		s.leave("a", "p", 1)
		s.pass(holdTTL - time.Minute)
		s.outcome(s.ask("a", "q", 1, keep), rules.Busy)
		s.pass(holdTTL - time.Minute)
		s.outcome(s.ask("c", "p", 1, limit(2)), rules.Busy)
	}},
}
