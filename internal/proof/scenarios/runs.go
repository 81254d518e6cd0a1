package scenarios

import (
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// runScenarios are about the runs of a workflow, one of which represents its party.
var runScenarios = []Scenario{
	{"run/another run of the party is refused with the label of the current one", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"))
		for _, changes := range [][]with{{label("two")}, {label("two"), keep, queue}, {label("two"), takeOver("three")}} {
			before := s.stored()
			d := s.ask(rules.OtherRun, "a", "q", 1, changes...)
			s.check(d.Note == "one" && d.ReadOnly, "the label, got %+v", d.Result)
			s.unchanged(before)
		}
		s.pass(2 * holdTTL)
		s.ask(rules.OtherRun, "a", "q", 1, label("two"))
	}},
	{"run/a waiter represents its run", func(s *stage) {
		s.take("b", "p", 1)
		s.wait(1, "a", "p", 1, label("one"))
		s.ask(rules.OtherRun, "a", "q", 1, label("two"), queue)
		s.wait(1, "a", "q", 1, label("two"), takeOver("one"))
		s.ask(rules.OtherRun, "a", "p", 2, label("one"), queue)
		s.release("a", 9, ofRun("one"))
		s.waiting("a")
		s.leave("b", "p", 1)
		s.claimed("a", "q")
	}},
	{"take-over/a kept hold continues with new fences, and the same first one", func(s *stage) {
		first := s.take("a", "p", 50, keep, label("one"))
		s.check(first.LeastFence == first.FirstFence, "the first fence to be the least, got %+v", first)
		s.leave("a", "p", 50, of("one"))
		next := s.join("a", "q", 1, keep, label("two"), takeOver("one"))
		s.check(next.Fence > first.Fence && next.FirstFence == first.FirstFence && next.LeastFence == next.Fence, "new fences, got %+v after %+v", next, first)
		k := s.stored().Kept("a")
		s.check(k.LeastFence == next.Fence && k.FirstOrder == 0 && k.Order == 1, "the kept hold like its part, got %+v", k)
		later := s.join("a", "r", 2, keep, newFence, label("two"))
		s.check(later.Fence > next.Fence && later.LeastFence == next.LeastFence, "the least fence to stay, got %+v", later)
		s.ask(rules.Busy, "b", "p", 1)
		s.release("a", 2, ofRun("two")) // orders of the new run are its own
		s.check(s.stored().HoldFence("a") == 0, "no hold, got %+v", s.stored().Entries)
	}},
	{"take-over/a running part keeps its own party out until it leaves or expires", func(s *stage) {
		for i, end := range []func(){func() { s.leave("a", "p", 1, of("one")) }, func() { s.pass(partTTL) }} {
			s.resource += string(rune('0' + i))
			s.take("a", "p", 1, keep, label("one"))
			s.ask(rules.Queued, "a", "q", 1, keep, queue, label("two"), takeOver("one"))
			s.ask(rules.Busy, "b", "p", 1)
			s.renew(rules.Lost, "a", "p", 1)
			s.leave("a", "p", 1) // a leave without the label does not name it
			s.ask(rules.Queued, "a", "q", 1, keep, queue, label("two"))
			end()
			s.join("a", "q", 1, keep, queue, label("two"))
		}
	}},
	{"take-over/a replaced run never returns", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"))
		s.leave("a", "p", 1, of("one"))
		s.join("a", "q", 1, keep, label("two"), takeOver("one"))
		before := s.stored()
		d := s.ask(rules.OtherRun, "a", "p", 2, keep, label("one"), takeOver("two"))
		s.check(d.Note == "two", "the label, got %q", d.Note)
		s.verify(rules.OtherRun, "a", "one", 1)
		s.raise(rules.OtherRun, "a", 1)
		s.unchanged(before)
		s.release("a", 9, ofRun("two"))
		s.ask(rules.OtherRun, "a", "p", 2, keep, label("one"))
	}},
	{"take-over/a release of the replaced run ends nothing", func(s *stage) {
		first := s.take("a", "p", 1, keep, label("one"))
		s.leave("a", "p", 1, of("one"))
		s.join("a", "q", 1, keep, label("two"), takeOver("one"))
		before := s.stored()
		s.release("a", 9, ofRun("one"), began(first.FirstFence))
		s.unchanged(before)
		s.release("a", 9, ofRun("one"))
		s.join("a", "r", 1, keep, label("two"))
		s.release("a", 9, ofRun("two"), began(first.FirstFence))
		s.check(s.stored().HoldFence("a") == 0, "no hold, got %+v", s.stored().Entries)
	}},
	{"take-over/a forced release matches parts that were cut off", func(s *stage) {
		e := s.take("a", "p", 1, keep, label("one"))
		s.ask(rules.Busy, "a", "q", 1, label("two"), takeOver("one"))
		s.release("a", 0, began(e.FirstFence), forced("by hand"), atOnce)
		s.take("b", "p", 1)
	}},
	{"take-over/a release of the replaced run forgives its loss only", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"))
		s.force("a", "by hand")
		s.wait(1, "a", "q", 1, label("two"), takeOver("one"))
		s.release("a", 9, ofRun("one"))
		s.check(s.stored().LossEvidence("a", "", time.Time{}) == nil, "no evidence, got %+v", s.stored().Evidence)
		s.leave("a", "q", 1, of("two"))
		s.ask(rules.OtherRun, "a", "p", 10, label("one"))
	}},
	{"run/only the run that lost its hold learns it", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"))
		s.force("a", "by hand")
		s.ask(rules.Lost, "a", "q", 1, keep, label("one"))
		s.leave("a", "p", 1, of("one"))
		s.take("a", "r", 1, keep, label("two"))
		s.ask(rules.Lost, "a", "q", 1, keep, label("one"), takeOver("two"))
		d := s.stored()
		s.check(d.LossEvidence("a", "one", time.Time{}) != nil && d.LossEvidence("a", "two", time.Time{}) == nil, "evidence for run one, got %+v", d.Evidence)
	}},
	{"run/a release of another run erases no evidence of this one", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"))
		s.force("a", "by hand")
		s.release("a", 9, ofRun("two"))
		s.ask(rules.Lost, "a", "q", 1, keep, label("one"))
	}},
	{"run/a kept hold has the least order of the requests that entered it", func(s *stage) {
		for _, step := range []struct {
			part        string
			order       int64
			first, last int64
		}{{"p", 2, 2, 2}, {"q", 3, 2, 3}, {"r", 1, 1, 3}} {
			s.do(map[bool]rules.Outcome{true: rules.Granted, false: rules.Joined}[step.part == "p"], s.request("a", step.part, step.order, keep, label("one")))
			k := s.stored().Kept("a")
			s.check(k.FirstOrder == step.first && k.Order == step.last, "%d and %d, got %+v", step.first, step.last, k)
		}
	}},
}

// verifyScenarios are about what a saga verifies before it decides that it has succeeded.
var verifyScenarios = []Scenario{
	{"verify/it renews what the run keeps, and releases nothing", func(s *stage) {
		s.take("a", "p", 3, keep, label("one"))
		s.wait(1, "b", "p", 1)
		s.leave("a", "p", 3, of("one"))
		for range 3 { // it may be repeated
			s.pass(holdTTL - waiterTTL/2)
			d := s.verify(rules.Granted, "a", "one", 5)
			s.check(d.Kept("a").ExpiresAt.Sub(d.At) == holdTTL && len(d.Ended) == 0, "the hold to be renewed, got %+v", d.Entries)
		}
		s.unclaimed("b", "p")
	}},
	{"verify/a hold that is missing or that began later is lost", func(s *stage) {
		s.verify(rules.Lost, "a", "one", 5)
		s.take("a", "p", 6, keep, label("one"))
		s.verify(rules.Lost, "a", "one", 5)
		s.verify(rules.Granted, "a", "one", 6)
		s.leave("a", "p", 6, of("one"))
		s.pass(holdTTL)
		s.take("b", "p", 1)
		s.verify(rules.Lost, "a", "one", 6)
		s.verify(rules.Lost, "a", "one", 6)
		s.ask(rules.Lost, "a", "q", 7, keep, label("one"))
	}},
	{"verify/a hold of another run is refused, unless it is taken over", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"))
		before := s.stored()
		d := s.verify(rules.OtherRun, "a", "two", 1)
		s.check(d.Note == "one", "the label, got %q", d.Note)
		s.unchanged(before)
		s.pass(partTTL)
		s.verify(rules.Granted, "a", "two", 1, func(op *rules.Verify) { op.TakeOver = "one" })
		s.check(s.entries(1)[0].Label == "two", "run two, got %+v", s.stored().Entries)
		s.verify(rules.Granted, "a", "two", 0) // it is older than every use of this run
	}},
	{"verify/losses of other runs count from a time on, and those of other lock IDs do not", func(s *stage) {
		s.take("a", "p", 1, keep, shared, label("one"))
		s.take("b", "p", 1, keep, shared, label("one"))
		s.force("a", "by hand")
		s.leave("a", "p", 1, of("one"))
		s.pass(time.Minute)
		lost := s.stored().LossEvidence("a", "one", time.Time{}).At
		since := func(t time.Time) func(*rules.Verify) { return func(op *rules.Verify) { op.LostSince = t } }
		s.take("a", "q", 2, keep, shared, label("two")) // its first use outlives the loss
		s.join("a", "r", 1, keep, shared, label("two"))
		s.verify(rules.Granted, "a", "two", 1, since(lost))
		s.ask(rules.Joined, "a", "t", 3, keep, shared, label("two"), lostSince(lost))
		s.force("a", "by hand")
		for _, part := range []string{"q", "r", "t"} {
			s.leave("a", part, map[string]int64{"q": 2, "r": 1, "t": 3}[part], of("two"))
		}
		again := s.stored().LossEvidence("a", "two", time.Time{}).At
		s.verify(rules.Lost, "a", "three", 1, since(again))
		s.ask(rules.Lost, "a", "q", 1, keep, shared, label("three"), lostSince(again))
		s.ask(rules.Busy, "a", "q", 1, keep, label("three"), lostSince(again.Add(time.Millisecond)))
		s.ask(rules.Granted, "a", "q", 1, keep, shared, label("three"), lostSince(again), reacquire)
		s.verify(rules.Granted, "a", "three", 1, since(again))
		s.verify(rules.Granted, "b", "one", 1, since(lost))
	}},
	{"verify/a hold that lives on with a loss of another run has lost it, until it regains it", func(s *stage) {
		s.take("a", "p", 1, keep, shared, forever, label("one"))
		s.take("a", "q", 2, keep, label("one"))
		s.leave("a", "q", 2, of("one"))
		s.pass(holdTTL)
		s.take("b", "p", 1, shared) // what q kept is evicted, and p lives
		since := func(op *rules.Verify) { op.LostSince = rules.LongAgo }
		overtakes := func(label string) func(*rules.Verify) { return func(op *rules.Verify) { op.TakeOver = label } }
		s.verify(rules.Granted, "a", "two", 2, overtakes("one"))
		s.verify(rules.Lost, "a", "two", 2, since)
		s.pass(time.Minute)
		s.ask(rules.Lost, "a", "r", 1, keep, shared, label("two"), lostSince(rules.LongAgo))
		s.join("a", "r", 1, keep, shared, label("two"), lostSince(rules.LongAgo), reacquire)
		s.verify(rules.Granted, "a", "two", 1, since)
		s.verify(rules.Granted, "a", "three", 1, since, overtakes("two")) // numbers are those of the document
	}},
}

// compensationScenarios are about requests that undo others.
var compensationScenarios = []Scenario{
	{"undo/a compensation waits for its own step, though its party holds", func(s *stage) {
		for lockID, mode := range map[string]with{"a": keep, "b": shared} {
			s.take(lockID, "step", 1, keep, mode, label("one"), saga("s"))
			s.join(lockID, "parallel", 1, keep, mode, label("one"))
			s.raise(rules.Busy, lockID, 1)
			s.ask(rules.Queued, lockID, "undo", 2, keep, mode, queue, label("one"), saga("s"))
			s.renew(rules.Granted, lockID, "parallel", 1)
			s.renew(rules.Lost, lockID, "step", 1)
			s.leave(lockID, "step", 1, of("one"))
			s.join(lockID, "undo", 2, keep, mode, queue, label("one"), saga("s"))
			s.release(lockID, 9, ofRun("one"))
			s.pass(time.Hour)
		}
	}},
	{"undo/later attempts of the step are refused, and earlier ones that drain are waited for", func(s *stage) {
		s.take("a", "step", 1, keep, label("one"), saga("s"))
		s.join("a", "step", 2, keep, label("one"), saga("s"))
		s.raise(rules.Busy, "a", 4)
		s.ask(rules.Superseded, "a", "step", 3, keep, queue, label("one"), saga("s"))
		s.leave("a", "step", 2, of("one"))
		s.raise(rules.Busy, "a", 4)
		s.ask(rules.Queued, "a", "undo", 5, keep, queue, label("one"), saga("s"))
		s.leave("a", "step", 1, of("one"))
		s.raise(rules.Granted, "a", 4)
		s.join("a", "undo", 5, keep, queue, label("one"), saga("s"))
		s.ask(rules.Superseded, "a", "step", 4, keep, queue, label("one"), saga("s"))
	}},
	{"raise/the sagas inside the saga are barred too, and no others", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"), saga("2/5"))
		s.join("a", "q", 1, keep, label("one"), saga("21"))
		s.raise(rules.Busy, "a", 2, ofSaga("2"))
		s.renew(rules.Lost, "a", "p", 1)
		s.renew(rules.Granted, "a", "q", 1)
		s.leave("a", "p", 1, of("one"))
		s.ask(rules.Superseded, "a", "p", 2, keep, label("one"), saga("2/5/1"))
		s.ask(rules.Superseded, "a", "p", 2, keep, label("one"), saga("2"))
		s.join("a", "p", 2, keep, label("one"), saga("21/5"))
		s.join("a", "r", 2, keep, label("one"))
		s.raise(rules.Busy, "a", 1, ofSaga("21/5"), func(op *rules.Raise) { op.Order = 2 })
		s.renew(rules.Granted, "a", "q", 1) // of the saga around it
	}},
	{"raise/what replaced runs requested in sagas inside the saga is cut off", func(s *stage) {
		s.take("a", "p", 7, keep, label("zero"), saga("s/1"), shared)
		s.raise(rules.Busy, "a", 2, replaces("zero"))
		s.leave("a", "p", 7, of("zero"))
		s.raise(rules.Granted, "a", 2)
	}},
	{"raise/the bar of a party that keeps the resource is not dropped by those of others", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"), saga("s"))
		s.leave("a", "p", 1, of("one"))
		s.raise(rules.Granted, "a", 2)
		s.check(len(s.stored().Kept("a").Bars) == 1 && len(s.stored().Bars) == 0, "the bar in the hold, got %+v", s.stored())
		s.raise(rules.Granted, "c", 2)
		for i := range rules.MaxBars {
			s.raise(rules.Granted, fmt.Sprint("b", i), 2)
		}
		s.ask(rules.Superseded, "a", "p", 2, keep, label("one"), saga("s"))
		s.check(len(s.bars("c")) == 0 && len(s.bars("b0")) == 1, "the newest %d bars, got %+v", rules.MaxBars, s.stored().Bars)
	}},
	{"raise/a hold remembers its newest bars, and none that another one covers", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"))
		s.leave("a", "p", 1, of("one"))
		for i := range rules.MaxHoldBars + 1 {
			s.raise(rules.Granted, "a", 2, ofSaga(fmt.Sprint("s/", i)))
		}
		s.check(len(s.bars("a")) == rules.MaxHoldBars, "%d bars, got %+v", rules.MaxHoldBars, s.bars("a"))
		s.ask(rules.Superseded, "a", "p", 2, keep, label("one"), saga("s/1"))
		s.join("a", "q", 2, keep, label("one"), saga("s/0")) // its bar was the oldest
		s.leave("a", "q", 2, of("one"))
		s.raise(rules.Granted, "a", 5, ofSaga("s/1"))
		s.raise(rules.Granted, "a", 3)
		s.check(len(s.bars("a")) == 2, "two bars, got %+v", s.bars("a"))
		s.raise(rules.Granted, "a", 2, ofSaga("s/2"))
		s.raise(rules.Granted, "a", 2)
		s.check(len(s.bars("a")) == 2, "no bar that is covered, got %+v", s.bars("a"))
	}},
	{"raise/a bar is remembered once", func(s *stage) {
		s.raise(rules.Granted, "a", 1)
		s.take("a", "p", 3, keep, label("one"))
		s.raise(rules.Granted, "a", 2)
		s.check(len(s.bars("a")) == 1, "one bar, got %+v", s.stored())
		s.join("a", "q", 3, keep, label("one"))
		s.raise(rules.Granted, "a", 2, ofSaga("t"))
		s.check(len(s.bars("a")) == 2, "two bars, got %+v", s.stored())
		s.raise(rules.Granted, "b", 2)
		s.raise(rules.Granted, "b", 2, func(op *rules.Raise) { op.Label = "two" })
		s.check(len(s.bars("b")) == 2, "two bars, got %+v", s.stored())
	}},
	{"raise/a bar outlives the hold, however it ends", func(s *stage) {
		for i, end := range []func(first int64){
			func(int64) { s.pass(holdTTL); s.take("b", "p", 1); s.leave("b", "p", 1) }, // evicted
			func(first int64) { s.release("a", 0, began(first), forced("by hand")) },
			func(first int64) { s.release("a", 9, began(first), ofRun("one")) },
			func(int64) { s.release("a", 3, ofRun("one")) }, // up to an earlier order
			func(int64) { s.takeBack("a", "p", 1) },
		} {
			s.resource += string(rune('0' + i))
			s.ask(rules.Granted, "a", "p", 1, holdOnly, label("one"), saga("s"))
			s.raise(rules.Granted, "a", 9)
			end(s.stored().HoldFence("a"))
			s.check(s.stored().Kept("a") == nil && len(s.stored().Bars) == 1, "the bar alone, got %+v", s.stored())
			s.ask(rules.Superseded, "a", "q", 9, label("one"), saga("s"))
		}
	}},
	{"raise/a bar ends with a release up to its order", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"), saga("s"))
		s.leave("a", "p", 1, of("one"))
		s.raise(rules.Granted, "a", 2)
		s.release("a", 2, ofRun("one"))
		s.check(len(s.bars("a")) == 0, "no bar, got %+v", s.bars("a"))
		s.ask(rules.Superseded, "a", "p", 2, label("one"), saga("s"))
	}},
	{"raise/a bar stays with what is left of its hold", func(s *stage) {
		s.take("a", "p", 1, keep, shared, label("one"), saga("s"))
		s.join("a", "q", 3, keep, shared, label("one"), saga("s"))
		s.raise(rules.Busy, "a", 2)
		s.takeBack("a", "q", 3)
		s.check(len(s.stored().Bars) == 0 && len(s.bars("a")) == 1, "the bar in the hold, got %+v", s.stored())
		s.ask(rules.Superseded, "a", "r", 2, keep, shared, label("one"), saga("s"))
	}},
	{"raise/a step's own bars outlive what it keeps while it waits", func(s *stage) {
		s.take("w/1", "", 1, keep, label("one"), within("w"))
		s.leave("w/1", "", 1, of("one"), keeping)
		s.raise(rules.Granted, "w/1", 1)
		s.ask(rules.Joined, "w/1", "", 2, label("one"), within("w"))
		s.check(len(s.bars("w/1")) == 1, "the bar, got %+v", s.stored())
	}},
	{"raise/the bar draws the fence of the compensations, once", func(s *stage) {
		step := s.take("a", "step", 1, keep, label("one"), saga("s"))
		s.raise(rules.Busy, "a", 2)
		k := *s.stored().Kept("a")
		s.check(k.Fence > step.Fence && k.LeastFence == k.Fence && k.FirstFence == step.FirstFence && s.stored().Fence == k.Fence, "a new fence, got %+v", k)
		s.leave("a", "step", 1, of("one"))
		s.raise(rules.Granted, "a", 2)
		s.raise(rules.Granted, "a", 1)
		undo := s.join("a", "undo", 3, keep, label("one"), saga("s"))
		s.check(undo.Fence == k.Fence && undo.LeastFence == k.Fence, "the fence of the bar, got %+v", undo)
		s.leave("a", "undo", 3, of("one"))
		s.raise(rules.Granted, "a", 4)
		s.check(s.stored().Kept("a").Fence > k.Fence, "another fence for another bar, got %+v", s.stored().Kept("a"))
	}},
	{"raise/the least fence stays while other parts of the party may write", func(s *stage) {
		s.take("a", "step", 1, keep, shared, label("one"), saga("s"))
		other := s.join("a", "other", 1, keep, shared, label("one"))
		stranger := s.take("b", "p", 1, keep, shared, label("one"), saga("s"))
		s.raise(rules.Busy, "a", 2)
		k, b := s.stored().Kept("a"), s.stored().Kept("b")
		s.check(k.Fence > other.Fence && k.LeastFence == other.LeastFence, "a new fence, and the least one as before, got %+v", k)
		s.check(b.Fence == stranger.Fence && b.LeastFence == stranger.LeastFence, "no change of another party, got %+v", b)
		s.renew(rules.Granted, "b", "p", 1)
		s.leave("a", "other", 1, of("one"))
		s.raise(rules.Busy, "a", 3) // b's part does not count
		s.check(s.stored().Kept("a").LeastFence == s.stored().Kept("a").Fence, "the least fence, got %+v", s.stored().Kept("a"))
	}},
	{"raise/parts of the saga up to the order are cut off, and waited for", func(s *stage) {
		for i, end := range []func(){func() { s.leave("a", "p", 2, of("one")) }, func() { s.pass(partTTL) }} {
			s.resource += string(rune('0' + i))
			s.take("a", "p", 2, keep, label("one"), saga("s"))
			s.join("a", "q", 3, keep, label("one"), saga("s"))
			s.join("a", "r", 1, keep, label("one"), saga("other"))
			s.join("a", "t", 1, keep, label("one"))
			d := s.raise(rules.Busy, "a", 2)
			s.check(!d.ReadOnly, "a write, got %+v", d.Result)
			s.renew(rules.Lost, "a", "p", 2)
			for part, order := range map[string]int64{"q": 3, "r": 1, "t": 1} {
				s.renew(rules.Granted, "a", part, order)
			}
			s.raise(rules.Busy, "a", 2)
			end()
			s.raise(rules.Granted, "a", 2)
			k := s.stored().Kept("a")
			s.check(k.ExpiresAt.Sub(s.stored().At) > holdTTL-time.Minute, "the hold to be renewed, got %+v", k)
		}
	}},
	{"raise/requests up to the order are refused, those of a restart are granted", func(s *stage) {
		s.raise(rules.Granted, "a", 2)
		s.raise(rules.Granted, "a", 1) // lowers nothing
		for range 2 {
			s.ask(rules.Superseded, "a", "p", 2, keep, queue, label("one"), saga("s"))
			d := s.ask(rules.Superseded, "a", "q", 1, label("one"), saga("s"))
			by, _ := d.SupersededBy(rules.Request{LockID: "a", Label: "one", Saga: "s", Part: "q", Order: 1})
			s.check(by == rules.Supersession{Order: 2, Released: true, Reason: rules.ReasonBarred}, "the bar, got %+v", by)
		}
		s.take("a", "p", 3, label("one"), saga("s"))
		s.join("a", "q", 1, label("one"), saga("other"))
		s.leave("a", "p", 3, of("one"))
		s.leave("a", "q", 1, of("one"))
		s.take("a", "p", 1, label("two"), saga("s"))
		s.leave("a", "p", 1, of("two"))
		s.take("b", "p", 1, label("one"), saga("s"))
	}},
	{"raise/waiters and claims of the saga end", func(s *stage) {
		s.take("b", "p", 1)
		s.wait(1, "a", "p", 2, label("one"), saga("s"))
		s.wait(2, "a", "q", 3, label("one"), saga("s"))
		s.wait(3, "w", "p", 2, label("one"), saga("s"), within("a"))
		s.gone(s.raise(rules.Granted, "a", 2), "p", "p")
		s.waiting("a")
		s.leave("b", "p", 1)
		s.claimed("a", "q")
		s.gone(s.raise(rules.Granted, "a", 3), "q")
		s.entries(0)
	}},
	{"raise/a waiter that slept through its claim, and was refreshed, is still of its saga", func(s *stage) {
		s.take("b", "p", 1)
		s.wait(1, "a", "p", 2, label("one"), saga("s"))
		s.leave("b", "p", 1)
		s.claimed("a", "p")
		s.pass(claimTTL)
		s.take("b", "p", 2)
		s.wait(1, "a", "p", 2, refresh, label("one"))
		s.gone(s.raise(rules.Granted, "a", 2), "p")
	}},
	{"raise/scope steps within the lock ID are barred too", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"), saga("s"))
		s.leave("a", "p", 1, of("one"))
		s.take("a/1", "", 2, label("one"), saga("s"), within("a"))
		s.raise(rules.Busy, "a", 2)
		s.renew(rules.Lost, "a/1", "", 2)
		s.ask(rules.Superseded, "a/2", "", 2, label("one"), saga("s"), within("a"))
		s.leave("a/1", "", 2, of("one"))
		s.raise(rules.Granted, "a", 2)
		s.take("a/2", "", 3, label("one"), saga("s"), within("a"))
	}},
	{"hold only/one that is granted within an expired part of the surrounding lock ID ends that part", func(s *stage) {
		s.take("w", "p", 1, label("one"))
		s.wait(1, "w/1", "", 2, keep, label("one"), within("w"), holdOnly)
		s.pass(partTTL)
		s.settle()
		s.check(len(s.stored().Entries) == 1 && s.stored().Kept("w/1") != nil, "the hold alone, got %+v", s.stored().Entries)
		s.renew(rules.Lost, "w", "p", 1)
	}},
	{"raise/parts of the saga that a replaced run requested are cut off, and waited for", func(s *stage) {
		s.take("a", "p", 7, keep, label("zero"), saga("s"), shared)
		s.take("a/1", "", 8, label("zero"), saga("s"), within("a"), shared)
		s.take("a/2", "", 9, label("zero"), saga("other"), within("a"), shared)
		s.raise(rules.Busy, "a", 2, replaces("zero"))
		s.renew(rules.Lost, "a", "p", 7)
		s.renew(rules.Lost, "a/1", "", 8)
		s.renew(rules.Granted, "a/2", "", 9)
		s.leave("a", "p", 7, of("zero"))
		s.raise(rules.Busy, "a", 2)
		s.leave("a/1", "", 8, of("zero"))
		s.raise(rules.Granted, "a", 2)
	}},
	{"raise/a replaced run of which only a step runs, or only a claim was left, is known", func(s *stage) {
		s.take("a/1", "", 8, label("zero"), saga("s"), within("a"), shared, forever)
		s.raise(rules.Busy, "a", 2, replaces("zero"))
		s.resource += "2"
		s.take("b", "p", 1)
		s.wait(1, "a", "p", 7, label("zero"), shared)
		s.leave("b", "p", 1)
		s.claimed("a", "p")
		s.take("a/1", "", 8, label("zero"), saga("s"), within("a"), shared, forever)
		s.pass(claimTTL)
		s.raise(rules.Busy, "a", 2)
	}},
	{"raise/a take-over ends the bars of the run before", func(s *stage) {
		s.raise(rules.Granted, "a", 9, ofSaga("t"))
		s.take("a", "p", 3, keep, label("one"))
		s.leave("a", "p", 3, of("one"))
		s.raise(rules.Granted, "a", 9)
		s.raise(rules.Granted, "b", 9)
		s.join("a", "p", 2, keep, label("two"), takeOver("one"), saga("s"))
		s.check(len(s.bars("a")) == 0 && len(s.bars("b")) == 1, "no bar of a, got %+v", s.stored())
		s.raise(rules.Busy, "a", 9, func(op *rules.Raise) { op.Label = "two" })
		s.check(len(s.bars("a")) == 1, "one bar, got %+v", s.bars("a"))
	}},
	{"raise/repeated, it cuts off a part once", func(s *stage) {
		s.take("a", "p", 2, keep, label("one"), saga("s"), forever, func(op *rules.Acquire) { op.HoldTTL = holdTTL.Milliseconds() })
		s.pass(time.Minute)
		s.raise(rules.Busy, "a", 2)
		drains := func(left time.Duration) {
			s.Helper()
			d := s.stored()
			for _, e := range d.Entries {
				s.check(e.State == rules.StateKept || (e.CutOff && e.ExpiresAt.Sub(d.At) <= left), "to drain for %v, got %+v", left, e)
			}
		}
		drains(rules.EndlessTTL)
		s.pass(rules.EndlessTTL / 2)
		d := s.raise(rules.Busy, "a", 2)
		s.check(len(d.Ended) == 0, "nothing more to end, got %+v", d.Ended)
		drains(rules.EndlessTTL / 2)
		s.check(len(s.bars("a")) == 1, "one bar, got %+v", s.bars("a"))
	}},
}

// withinScenarios are about requests within a kept hold of another lock ID.
var withinScenarios = []Scenario{
	{"within/a kept hold is not in the way of its own step, but keeps others out", func(s *stage) {
		s.take("w", "saga", 1, keep, label("one"))
		s.ask(rules.Busy, "w/1", "", 1, label("one"), within("w")) // the running part is in the way
		s.leave("w", "saga", 1, of("one"))
		step := s.take("w/1", "", 1, label("one"), within("w"))
		s.ask(rules.Busy, "w/2", "", 1, label("one"), within("w"))
		s.ask(rules.Busy, "b", "p", 1)
		s.ask(rules.Busy, "w", "saga2", 1, keep, label("one"))
		s.leave("w/1", "", 1, of("one"))
		next := s.join("w", "saga2", 2, keep, label("one"))
		s.check(next.Fence > step.Fence, "a fence above %d, got %d", step.Fence, next.Fence)
		s.check(s.join("w", "saga3", 3, keep, label("one")).Fence == next.Fence, "fence %d", next.Fence)
		s.leave("w", "saga2", 2, of("one"))
		s.leave("w", "saga3", 3, of("one"))
		s.take("w/1", "", 2, shared, label("one"), within("w"))
		s.ask(rules.Busy, "w", "saga4", 4, keep, label("one"))
		s.join("w", "saga4", 4, keep, shared, label("one")) // shared with its own step
	}},
	{"within/what a step keeps ends with its part, and stands for longer while the step waits", func(s *stage) {
		step := []with{keep, short, label("one"), within("w")}
		ends := func(a *answer, want time.Duration) {
			k := a.Document.Kept("w/1")
			s.check(k != nil && k.ExpiresAt.Sub(a.Document.At) == want && k.TTL == want.Milliseconds(), "%v left, got %+v", want, k)
		}
		ends(s.ask(rules.Granted, "w/1", "", 1, step...), partTTL)
		s.leave("w/1", "", 2, of("one"), keeping) // of another request
		s.leave("w/1", "", 2, of("one"))
		s.check(s.stored().Kept("w/1").TTL == partTTL.Milliseconds(), "no change, got %+v", s.stored())
		ends(s.leave("w/1", "", 1, of("one"), keeping), holdTTL)
		s.pass(partTTL)
		s.ask(rules.Busy, "b", "p", 1)
		ends(s.ask(rules.Joined, "w/1", "", 2, step...), partTTL)
		s.pass(partTTL)
		s.take("b", "p", 1)
	}},
	{"within/a kept hold does not count under the limit of its own step", func(s *stage) {
		s.take("w", "saga", 1, keep, limit(1), label("one"))
		s.leave("w", "saga", 1, of("one"))
		s.take("w/1", "", 1, label("one"), within("w"), limit(1))
		s.ask(rules.Busy, "w/2", "", 1, label("one"), within("w"), limit(1))
	}},
	{"within/a step goes ahead of the queue while its workflow keeps the resource", func(s *stage) {
		s.take("w", "saga", 1, keep, shared, label("one"))
		s.leave("w", "saga", 1, of("one"))
		s.take("r", "p", 1, shared)
		s.wait(1, "b", "p", 1)
		s.wait(1, "w/1", "", 1, label("one"), within("w"))
		s.leave("r", "p", 1)
		s.take("w/1", "", 1, label("one"), within("w"), queue)
	}},
	{"within/an expired part of the workflow is evicted for others, though its step is the first waiter", func(s *stage) {
		s.take("w", "saga", 1, shared, label("one"))
		s.pass(partTTL)
		s.take("b", "p", 1, shared)
		s.wait(1, "w/1", "", 1, label("one"), within("w"))
		s.take("b", "p", 2)
		s.renew(rules.Lost, "w", "saga", 1)
	}},
	{"within/a step evicts expired parts of its workflow, but neither others nor the kept hold", func(s *stage) {
		s.take("w", "saga", 1, keep, shared, label("one"))
		s.take("w/1", "", 1, shared, label("one"), within("w"))
		s.renew(rules.Granted, "w", "saga", 1)
		s.pass(partTTL)
		s.take("w/2", "", 1, label("one"), within("w"))
		s.renew(rules.Lost, "w", "saga", 1)
		s.check(s.stored().LossEvidence("w", "", time.Time{}) == nil && s.stored().Kept("w") != nil, "the hold to stay, got %+v", s.stored())
	}},
	{"within/a step leaves the expired entries that its workflow keeps beside living ones", func(s *stage) {
		s.take("w", "p", 1, keep, short, shared, label("one"))
		s.join("w", "q", 2, keep, shared, label("one"), forever)
		s.pass(partTTL)
		s.take("w/1", "", 3, shared, label("one"), within("w"))
		s.renew(rules.Lost, "w", "p", 1)
		s.check(s.stored().Kept("w").FirstOrder == 1, "all that was kept, got %+v", s.stored().Entries)
	}},
	{"within/a claim ends expired parts of the workflow as a grant does, and is made alone", func(s *stage) {
		s.take("w", "saga", 1, keep, label("one"))
		s.wait(1, "w/1", "", 1, shared, label("one"), within("w"))
		s.wait(2, "b", "p", 1, shared)
		s.pass(partTTL)
		s.settle()
		s.claimed("w/1", "")
		s.unclaimed("b", "p")
		s.renew(rules.Lost, "w", "saga", 1)
		s.check(s.stored().LossEvidence("w", "", time.Time{}) == nil && s.stored().Kept("w") != nil, "the hold to stay, got %+v", s.stored())
	}},
	{"within/an expired step does not return beside its workflow", func(s *stage) {
		s.take("w", "saga", 1, keep, label("one"))
		for i, mode := range []with{keep, shared} {
			s.leave("w", "saga", int64(i+1), of("one"))
			s.take("w/1", "", int64(i+1), mode, reacquire, label("one"), within("w"), func(op *rules.Acquire) { op.HoldTTL = op.TTL })
			s.pass(partTTL)
			s.join("w", "saga", int64(i+2), keep, label("one"))
			s.renew(rules.Lost, "w/1", "", int64(i+1))
		}
	}},
}

// holdScenarios are about requests for a kept hold without a part.
var holdScenarios = []Scenario{
	{"hold only/free resource is kept without a part", func(s *stage) {
		d := s.ask(rules.Granted, "a", "p", 1, holdOnly)
		k := d.Kept("a")
		s.check(len(d.Entries) == 1 && k.ID == "a/p/1" && k.Fence > 0 && k.ExpiresAt.Sub(d.At) == holdTTL, "a kept hold, got %+v", d.Entries)
		s.ask(rules.Again, "a", "p", 1, holdOnly)
		s.ask(rules.Joined, "a", "p", 1, holdOnly, call("other"))
		s.takeBack("a", "p", 1) // another call has joined
		s.ask(rules.Busy, "b", "p", 1)
	}},
	{"hold only/the release that frees the resource makes the hold of the waiter", func(s *stage) {
		first := s.take("a", "p", 1, owner("saga"))
		s.wait(1, "b", "p", 1, holdOnly, label("one"), saga("s"), owner("lock"))
		s.wait(2, "c", "p", 1)
		s.wait(1, "b", "p", 1, refresh, label("one")) // changes neither the hold nor the saga
		d := s.leave("a", "p", 1)
		k := d.Kept("b")
		s.check(k != nil && k.ID == "b/p/1" && k.Fence > first.Fence && k.FirstFence == k.Fence && k.LeastFence == k.Fence && k.Fence == d.Fence, "a hold with a new fence, got %+v", k)
		s.check(k.ExpiresAt.Sub(d.At) == holdTTL && k.Label == "one" && k.Saga == "s" && k.Owner == "lock" && k.Host == "host" && k.Trace == "trace" && k.FirstOrder == 1, "the request's details, got %+v", k)
		s.check(k.Since != nil && k.ClaimedAt.Equal(d.At) && k.CreatedAt.Equal(d.At) && k.Predecessor.LockID == "a", "its times, got %+v", k)
		s.check(len(d.Holds) == 1 && d.Holds[0].ID == k.ID && d.Holds[0].Part == "p" && d.Holds[0].Predecessor.LockID == "a" && k.Part == "", "the hold and its waiter's part, got %+v", d.Holds)
		s.waiting("c")
		s.pass(claimTTL)
		s.ask(rules.Busy, "c", "p", 1)
		s.ask(rules.Again, "b", "p", 1, holdOnly, queue, label("one"))
		s.takeBack("b", "p", 1)
		s.claimed("c", "p")
	}},
	{"hold only/the next attempt joins the hold, with its order", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 3, holdOnly, label("one"))
		s.leave("a", "p", 1)
		s.ask(rules.Joined, "b", "p", 4, holdOnly, queue, label("one"))
		s.check(s.stored().Kept("b").FirstOrder == 3, "the hold since order 3, got %+v", s.stored().Entries)
		k := s.stored().Kept("b")
		s.check(k.FirstOrder == 3 && k.Order == 4 && k.FirstFence == k.Fence, "the same hold, got %+v", k)
		s.verify(rules.Granted, "b", "one", 3)
		s.release("b", 4, ofRun("one"))
		s.entries(0)
	}},
	{"hold only/a hold that was lost is granted again at once, with its evidence dropped", func(s *stage) {
		s.take("a", "p", 1, label("one"), keep)
		s.force("a", "by hand")
		s.leave("a", "p", 1, of("one"))
		s.take("b", "p", 1)
		s.ask(rules.Lost, "a", "q", 2, holdOnly, queue, label("one"))
		s.wait(1, "a", "q", 2, holdOnly, label("one"), reacquire)
		s.leave("b", "p", 1)
		s.join("a", "r", 3, keep, label("one"))
	}},
	{"hold only/shared waiters are granted their holds together", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, holdOnly, shared)
		s.wait(2, "c", "p", 1, holdOnly, shared)
		s.wait(3, "d", "p", 1, holdOnly)
		s.leave("a", "p", 1)
		d := s.stored()
		s.check(d.Kept("b") != nil && d.Kept("c") != nil && d.Kept("b").Fence != d.Kept("c").Fence, "two holds, got %+v", d.Entries)
		s.release("b", 1)
		s.release("c", 1)
		s.check(s.stored().Kept("d") != nil, "a hold of d, got %+v", s.stored().Entries)
	}},
	{"hold only/a lock ID that holds already is granted its upgrade at once", func(s *stage) {
		first := s.take("a", "p", 1, shared, keep)
		s.take("b", "p", 1, shared)
		s.wait(1, "a", "q", 2, holdOnly)
		s.check(len(s.leave("b", "p", 1).Holds) == 1, "a hold")
		s.ask(rules.Again, "a", "q", 2, holdOnly)
		k := s.stored().Kept("a")
		s.check(k.Mode == rules.Exclusive && k.FirstFence == first.FirstFence && k.Fence > first.Fence, "the same hold, exclusive, got %+v", k)
		s.entries(3)
		s.takeBack("a", "q", 2)
		s.take("b", "p", 2, shared)
	}},
	{"hold only/one within another lock ID merges like any", func(s *stage) {
		s.ask(rules.Granted, "w/1", "p", 1, holdOnly, label("one"), within("w"))
		s.ask(rules.Joined, "w/1", "p", 2, holdOnly, label("one"), within("w"))
		s.leave("w/1", "p", 9, of("one"))
		s.check(s.stored().Kept("w/1").FirstOrder == 1, "both, got %+v", s.stored().Entries)
	}},
	{"hold only/a hold that is granted while settling lasts as long as its document", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1, holdOnly, func(op *rules.Acquire) { op.HoldTTL = 0 })
		s.leave("a", "p", 1)
		d := s.stored()
		s.check(!d.IdleAt.Before(rules.Never), "never to be idle, got %v", d.IdleAt)
	}},
}
