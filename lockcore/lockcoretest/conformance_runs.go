package lockcoretest

import (
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

func label(l string) with       { return func(op *rules.Acquire) { op.Label = l } }
func takeOver(l string) with    { return func(op *rules.Acquire) { op.TakeOver = l } }
func undoes(part string) with   { return func(op *rules.Acquire) { op.Undo = []string{part} } }
func within(lockID string) with { return func(op *rules.Acquire) { op.Within = lockID } }

func (s *stage) leaveOf(lockID, label, part string, order int64) rules.Document {
	s.Helper()
	d, err := s.h.Leave(s.Context(), rules.Leave{Policy: policy, Resource: s.resource, LockID: lockID, Label: label, Part: part, Order: order})
	s.must(err)
	return d
}

// releaseUsed releases what a run has used by an order.
func (s *stage) releaseUsed(lockID, label string, order, used int64) rules.Document {
	s.Helper()
	d, err := s.h.Release(s.Context(), rules.Release{Policy: policy, Resource: s.resource, LockID: lockID, Label: label, Order: order, Used: used})
	s.must(err)
	return d
}

func (s *stage) releaseOf(lockID, label string, order, first int64) rules.Document {
	s.Helper()
	op := rules.Release{Policy: policy, Resource: s.resource, LockID: lockID, Label: label, Order: order, FirstFence: first}
	d, err := s.h.Release(s.Context(), op)
	s.must(err)
	return d
}

// runScenarios show the runs of a workflow, of which one after the other speaks for its party.
var runScenarios = []Scenario{
	{"run/another run of the party is answered with the label of the one that speaks, and changes nothing", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"))
		for _, changes := range [][]with{{label("two")}, {label("two"), keep, queue}, {label("two"), takeOver("three"), undoes("p")}} {
			before := s.stored()
			d := s.outcome(s.ask("a", "q", 1, changes...), rules.OtherRun)
			s.check(d.Last.Note == "one", "the label, got %q", d.Last.Note)
			s.unchanged(before)
		}
		s.pass(2 * holdTTL) // it stands until another needs the room
		s.outcome(s.ask("a", "q", 1, label("two")), rules.OtherRun)
	}},
	{"run/a place in the queue speaks for its run", func(s *stage) {
		s.take("b", "p", 1)
		s.wait(1, "a", "p", 1, label("one"))
		s.outcome(s.ask("a", "q", 1, label("two"), queue), rules.OtherRun)
		s.outcome(s.ask("a", "q", 1, label("two"), takeOver("one"), queue), rules.Queued)
		s.outcome(s.ask("a", "p", 2, label("one"), queue), rules.OtherRun)
		s.leave("b", "p", 1)
		s.claimed("a", "q")
	}},
	{"run/the next run goes on with what the one before keeps, under a new fence and the same first one", func(s *stage) {
		first := s.take("a", "p", 1, keep, label("one"))
		s.leaveOf("a", "one", "p", 1)
		next := s.join("a", "q", 1, keep, label("two"), takeOver("one"))
		s.check(next.Fence > first.Fence && next.FirstFence == first.FirstFence, "a new fence, got %+v after %+v", next, first)
		s.outcome(s.ask("b", "p", 1), rules.Busy)
	}},
	{"run/a running part of the run before keeps its own party out until it has left", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"))
		s.outcome(s.ask("a", "q", 1, keep, queue, label("two"), takeOver("one")), rules.Queued)
		s.outcome(s.ask("b", "p", 1), rules.Busy)
		s.outcome(s.renew("a", "p", 1), rules.Lost)
		s.leaveOf("a", "one", "p", 1)
		s.join("a", "q", 1, keep, queue, label("two"))
	}},
	{"run/a running part of the run before keeps its own party out no longer than it may trust", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"))
		s.outcome(s.ask("a", "q", 1, keep, queue, label("two"), takeOver("one")), rules.Queued)
		s.pass(partTTL)
		s.join("a", "q", 1, keep, queue, label("two"))
	}},
	{"run/a label that was replaced never returns", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"))
		s.leaveOf("a", "one", "p", 1)
		s.join("a", "q", 1, keep, label("two"), takeOver("one"))
		before := s.stored()
		d := s.outcome(s.ask("a", "p", 2, keep, label("one"), takeOver("two")), rules.OtherRun)
		s.check(d.Last.Note == "two", "the label, got %q", d.Last.Note)
		s.unchanged(before)
		s.releaseOf("a", "two", 9, 0)
		s.outcome(s.ask("a", "p", 2, keep, label("one")), rules.OtherRun)
	}},
	{"run/a release of the run before ends nothing of the next", func(s *stage) {
		first := s.take("a", "p", 1, keep, label("one"))
		s.leaveOf("a", "one", "p", 1)
		s.join("a", "q", 1, keep, label("two"), takeOver("one"))
		before := s.stored()
		s.releaseOf("a", "one", 9, first.FirstFence)
		s.check(same(before.Entries, s.stored().Entries), "the hold to stand, got %+v", s.stored().Entries)
		s.releaseOf("a", "one", 9, 0)
		s.check(same(before.Entries, s.stored().Entries), "the hold to stand, got %+v", s.stored().Entries)
		s.outcome(s.ask("a", "r", 1, keep, label("two")), rules.Joined)
		s.releaseOf("a", "two", 9, 0)
		s.check(s.stored().HoldFence("a") == 0, "no hold, got %+v", s.stored().Entries)
	}},
	{"run/a release of the run before, by the fence of the next one's hold, ends nothing", func(s *stage) {
		first := s.take("a", "p", 1, label("two")).FirstFence
		before := s.stored()
		s.endHold("a", first, leaving("p", 1), func(op *rules.Release) { op.Label = "one" })
		s.unchanged(before)
		s.endHold("a", first, leaving("p", 1), func(op *rules.Release) { op.Label = "two" })
		s.take("b", "p", 1)
	}},
	{"run/the release of the next run ends what it took over, though its numbers begin anew", func(s *stage) {
		s.take("a", "p", 50, keep, label("one"))
		s.leaveOf("a", "one", "p", 50)
		s.join("a", "q", 1, keep, label("two"), takeOver("one"))
		s.leaveOf("a", "two", "q", 1)
		s.releaseOf("a", "two", 1, 0)
		s.check(s.stored().HoldFence("a") == 0, "no hold, got %+v", s.stored().Entries)
	}},
	{"used/what is kept is released, and that is known; the repetition ends nothing that was taken since", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"))
		s.leaveOf("a", "one", "p", 1)
		d := s.releaseUsed("a", "one", 5, 1)
		s.check(d.Last.Outcome == rules.Granted && len(d.Last.Released()) == 1, "one hold to be released, got %+v", d.Last)
		after := s.stored()
		s.check(after.HasCommitted("a", "one", 5) && len(after.Entries) == 0, "a commit, and no hold, got %+v", after)
		s.outcome(s.ask("a", "p", 1, keep, label("one")), rules.Superseded)
		s.take("b", "p", 1)
		s.wait(1, "a", "q", 6, keep, label("one"))
		before := s.stored()
		s.outcome(s.releaseUsed("a", "one", 5, 1), rules.Lost)
		s.unchanged(before)
	}},
	{"used/what is not kept, began later, or is another run's stands, and nothing is remembered", func(s *stage) {
		for name, changes := range map[string][]with{"begun later": {keep, label("one")}, "another run's": {keep, label("two")}, "not kept": {label("one")}} {
			s.resource += "/" + name
			s.take("a", "p", 3, changes...)
			before := s.stored()
			s.outcome(s.releaseUsed("a", "one", 5, 2), rules.Lost)
			s.unchanged(before)
		}
	}},
	{"used/the next in line is served", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"))
		s.leaveOf("a", "one", "p", 1)
		s.wait(1, "b", "p", 1)
		s.outcome(s.releaseUsed("a", "one", 5, 1), rules.Granted)
		s.claimed("b", "p")
	}},
	{"used/a release of what is not kept serves the queue", func(s *stage) {
		s.take("b", "p", 1)
		s.wait(1, "c", "p", 1)
		s.pass(partTTL)
		s.outcome(s.releaseUsed("a", "one", 5, 1), rules.Lost)
		s.claimed("c", "p")
	}},
	{"used/what was evicted is lost, and stays so", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"))
		s.leaveOf("a", "one", "p", 1)
		s.pass(holdTTL)
		s.take("b", "p", 1)
		s.outcome(s.releaseUsed("a", "one", 5, 1), rules.Lost)
		s.outcome(s.ask("a", "q", 6, keep, label("one")), rules.Lost)
	}},
	{"used/parts of what is released drain, places of its run go, and the next is served", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"))
		s.wait(1, "b", "p", 1)
		s.outcome(s.releaseUsed("a", "one", 5, 1), rules.Granted)
		s.outcome(s.renew("a", "p", 1), rules.Lost)
		s.outcome(s.ask("b", "p", 1, queue), rules.Queued)
		s.leaveOf("a", "one", "p", 1)
		s.claimed("b", "p")
	}},
	{"run/a release by a run is known also after many others", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"))
		s.releaseOf("a", "one", 1, 0)
		for order := range int64(2 * rules.MaxReleased) {
			s.releaseOf("b", "two", order+1, 0)
		}
		s.releaseOf("a", "one", 1, 0) // again
		d := s.stored()
		s.check(d.HasCommitted("a", "one", 1) && !d.HasCommitted("a", "two", 1) && !d.HasCommitted("a", "one", 2), "one of a, got %+v", d.Commits)
		s.check(len(d.Commits) == 2*rules.MaxReleased+1, "each once, got %+v", d.Commits)
		for order := range int64(2 * rules.MaxCommits) {
			s.releaseOf("b", "two", 100+order, 0)
		}
		s.check(len(s.stored().Commits) == rules.MaxCommits, "a bounded number, got %d", len(s.stored().Commits))
	}},
	{"run/a kept hold has the least order of the requests that entered it, of any run", func(s *stage) {
		kept := func() rules.Entry {
			s.Helper()
			for _, e := range s.stored().Entries {
				if e.State == rules.StateKept {
					return e
				}
			}
			return rules.Entry{}
		}
		s.take("a", "p", 2, keep, label("one"))
		s.join("a", "q", 3, keep, label("one"))
		s.check(kept().FirstOrder == 2 && kept().Order == 3, "2 and 3, got %+v", kept())
		s.join("a", "s", 1, keep, label("one"))
		s.check(kept().FirstOrder == 1 && kept().Order == 3, "1 and 3, got %+v", kept())
		s.leaveOf("a", "one", "p", 2)
		s.leaveOf("a", "one", "q", 3)
		s.leaveOf("a", "one", "s", 1)
		s.join("a", "r", 4, keep, label("two"), takeOver("one"))
		s.check(kept().FirstOrder == 1 && kept().Order == 4, "1 and 4, got %+v", kept())
	}},
	{"run/a kept hold is marked as handed over until another run takes it over", func(s *stage) {
		handed := func() (marks []bool) {
			s.Helper()
			for _, e := range s.stored().Entries {
				marks = append(marks, e.HandedOver)
			}
			return marks
		}
		handOver := func(op *rules.Acquire) { op.Refresh, op.HandOver = true, true }
		s.take("a", "p", 1, keep, label("one"))
		s.leaveOf("a", "one", "p", 1)
		s.outcome(s.ask("a", "", 2, keep, label("two"), handOver), rules.OtherRun)
		s.check(slices.Equal(handed(), []bool{false}), "no mark by another run, got %v", handed())
		s.outcome(s.ask("a", "", 2, keep, label("one"), handOver), rules.Busy)
		s.check(slices.Equal(handed(), []bool{true}), "a mark, got %v", handed())
		s.join("a", "q", 1, keep, label("two"), takeOver("one"))
		s.check(slices.Equal(handed(), []bool{false, false}), "no mark, got %v", handed())
	}},
	{"run/a loss is told to the run that lost, and not to the next", func(s *stage) {
		s.take("a", "p", 1, keep, label("one"))
		s.force("a", "by hand")
		s.outcome(s.ask("a", "q", 1, keep, label("one")), rules.Lost)
		s.leaveOf("a", "one", "p", 1)
		s.take("a", "r", 1, keep, label("two"))
		s.outcome(s.ask("a", "q", 1, keep, label("one"), takeOver("two")), rules.Lost)
	}},
	{"run/a forced release matches what was cut off of the hold", func(s *stage) {
		e := s.take("a", "p", 1, keep, label("one"))
		s.outcome(s.ask("a", "q", 1, keep, label("two"), takeOver("one")), rules.Busy)
		s.endHold("a", e.FirstFence, forced("by hand"), atOnce)
		s.take("b", "p", 1)
	}},
	{"undo/a compensation waits for its own step, though its party holds", func(s *stage) {
		for lockID, mode := range map[string]with{"a": keep, "b": shared} {
			s.take(lockID, "step", 1, keep, mode, label("one"))
			s.join(lockID, "parallel", 1, keep, mode, label("one"))
			s.outcome(s.ask(lockID, "undo", 1, keep, mode, queue, label("one"), undoes("step")), rules.Queued)
			s.outcome(s.renew(lockID, "parallel", 1), rules.Granted)
			s.outcome(s.renew(lockID, "step", 1), rules.Lost)
			s.leaveOf(lockID, "one", "step", 1)
			s.join(lockID, "undo", 1, keep, mode, queue, label("one"), undoes("step"))
			s.releaseOf(lockID, "one", 9, 0)
			s.pass(time.Hour)
		}
	}},
	{"undo/a step that is undone comes too late, whatever its order, also one that drained before", func(s *stage) {
		s.take("a", "step", 1, keep, label("one"))
		s.join("a", "step", 2, keep, label("one"))
		s.outcome(s.ask("a", "undo", 1, keep, queue, label("one"), undoes("step")), rules.Queued)
		s.outcome(s.ask("a", "step", 3, keep, queue, label("one")), rules.Superseded)
		s.leaveOf("a", "one", "step", 2)
		s.outcome(s.ask("a", "undo", 1, keep, queue, label("one"), undoes("step")), rules.Queued)
		s.leaveOf("a", "one", "step", 1)
		s.join("a", "undo", 1, keep, queue, label("one"), undoes("step"))
		s.outcome(s.ask("a", "step", 4, keep, queue, label("one")), rules.Superseded)
	}},
	{"undo/a step that is undone comes too late also if nobody holds any more", func(s *stage) {
		s.take("a", "undo", 1, label("one"), undoes("step"))
		s.leaveOf("a", "one", "undo", 1)
		s.outcome(s.ask("a", "step", 4, label("one")), rules.Superseded)
	}},
	{"undo/places and claims of the step go, and its compensation waits like others", func(s *stage) {
		s.take("b", "p", 1)
		s.wait(1, "a", "step", 1, keep, label("one"))
		s.wait(1, "a", "undo", 1, keep, label("one"), undoes("step"))
		s.leave("b", "p", 1)
		s.claimed("a", "undo")
		s.wait(1, "c", "p", 1)
		d := s.outcome(s.ask("a", "again", 1, keep, queue, label("one"), undoes("undo")), rules.Queued)
		s.check(len(d.Last.Gone(d.At)) == 1 && d.Last.Gone(d.At)[0].Part == "undo", "the claim to go, got %+v", d.Last.Ended)
	}},
	{"within/what a workflow keeps does not keep its own step out, and nobody else gets in", func(s *stage) {
		s.take("w", "saga", 1, keep, label("one"))
		s.outcome(s.ask("w/1", "", 1, label("one"), within("w")), rules.Busy) // the running part does
		s.leaveOf("w", "one", "saga", 1)
		s.take("w/1", "", 1, label("one"), within("w"))
		s.outcome(s.ask("w/2", "", 1, label("one"), within("w")), rules.Busy)
		s.outcome(s.ask("b", "p", 1), rules.Busy)
		s.outcome(s.ask("w", "saga2", 1, keep, label("one")), rules.Busy)
		s.leaveOf("w/1", "one", "", 1)
		s.join("w", "saga2", 1, keep, label("one"))
	}},
	{"within/what a workflow keeps does not count under the limit of its own step", func(s *stage) {
		s.take("w", "saga", 1, keep, limit(1), label("one"))
		s.leaveOf("w", "one", "saga", 1)
		s.take("w/1", "", 1, label("one"), within("w"), limit(1))
		s.outcome(s.ask("w/2", "", 1, label("one"), within("w"), limit(1)), rules.Busy)
	}},
	{"within/the step goes ahead of the queue as long as its workflow keeps the resource", func(s *stage) {
		s.take("w", "saga", 1, keep, shared, label("one"))
		s.leaveOf("w", "one", "saga", 1)
		s.take("r", "p", 1, shared)
		s.wait(1, "b", "p", 1)
		s.wait(1, "w/1", "", 1, label("one"), within("w"))
		s.leave("r", "p", 1)
		s.take("w/1", "", 1, label("one"), within("w"), queue)
	}},
	{"within/what has expired goes when another takes the resource alone, though a step of its workflow is first in the queue", func(s *stage) {
		s.take("w", "saga", 1, shared, label("one"))
		s.pass(partTTL)
		s.take("b", "p", 1, shared)
		s.wait(1, "w/1", "", 1, label("one"), within("w"))
		s.take("b", "p", 2)
		s.outcome(s.renew("w", "saga", 1), rules.Lost)
	}},
	{"within/after its step the workflow goes on with a fence above that", func(s *stage) {
		s.take("w", "saga", 1, keep, label("one"))
		s.leaveOf("w", "one", "saga", 1)
		step := s.take("w/1", "", 1, label("one"), within("w"))
		s.leaveOf("w/1", "one", "", 1)
		next := s.join("w", "saga2", 2, keep, label("one"))
		s.check(next.Fence > step.Fence, "a fence above %d, got %d", step.Fence, next.Fence)
		beside := s.join("w", "saga3", 3, keep, label("one"))
		s.check(beside.Fence == next.Fence, "fence %d, got %d", next.Fence, beside.Fence)
	}},
	{"within/a step displaces nothing of its own workflow, though a part of it has died", func(s *stage) {
		s.take("w", "saga", 1, keep, label("one"))
		s.pass(partTTL)
		s.take("w/1", "", 1, label("one"), within("w"))
		s.check(s.stored().EvictedRecord("w", "") == nil && s.stored().HoldFence("w") > 0, "the hold to stand, got %+v", s.stored())
	}},
}
