package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// Violation is a broken guarantee.
type Violation struct {
	Check, Text string
	// Involved lists the workflows that it concerns. At is the time, or 0.
	Involved []string
	At       int64
}

// Check returns the violations that a log proves.
func Check(plan Plan, records []Record) []Violation {
	s := Read(records)
	s.plan = plan
	for _, check := range []func(){
		s.checkIsolation, s.checkFences, s.checkUndo, s.checkVain, s.checkAtomicity, s.checkLosses, s.checkPlaces,
		s.checkSignals, s.checkArguments, s.checkSkipped, s.checkBarred, s.checkUpdates, s.checkIgnored,
		s.checkMembers,
	} {
		check()
	}
	return s.violations
}

// found records a violation.
func (s *Story) found(check string, at int64, involved []string, format string, args ...any) {
	s.violations = append(s.violations, Violation{Check: check, At: at, Involved: involved, Text: fmt.Sprintf(format, args...)})
}

// excludes reports whether two claims on one resource must not overlap.
func excludes(a, b *Claim) bool {
	switch {
	case a.Shared && b.Shared, a.part == b.part, a.kept && b.kept && a.workflow == b.workflow:
		return false
	case a.kept || b.kept: // what a workflow keeps does not keep its own steps out
		return a.workflow != b.workflow
	}
	// Two steps that run: those of one run's saga are one party.
	return a.lockID != b.lockID
}

// checkIsolation finds claims that exclude each other and overlap, and semaphores with too many in them.
func (s *Story) checkIsolation() {
	for _, claims := range s.claims() {
		for i, c := range claims {
			for _, earlier := range claims[:i] {
				if earlier.to > c.from && excludes(earlier, c) {
					s.found("isolation", c.from, []string{earlier.workflow, c.workflow},
						"%s: %s of %s began while %s of %s had it", c.Name, c.what, c.workflow, earlier.what, earlier.workflow)
				}
			}
			if c.Limit == 0 {
				continue
			}
			if in, limit := within(claims[:i], c), s.limitOf(c); len(in) >= limit {
				s.found("limit", c.from, append(in, c.workflow),
					"%s: %s of %s began while %d others had it, of %d", c.Name, c.what, c.workflow, len(in), limit)
			}
		}
	}
}

// within returns the lock IDs that hold a semaphore when another claim begins, by workflow. A lock ID that holds it already
// joins.
func within(earlier []*Claim, c *Claim) (in []string) {
	seen := map[string]bool{}
	for _, e := range earlier {
		switch {
		case e.to <= c.from || seen[e.lockID] || e.kept && e.workflow == c.workflow:
		case e.lockID == c.lockID:
			return nil
		default:
			seen[e.lockID] = true
			in = append(in, e.workflow)
		}
	}
	if !c.kept && c.lockID == c.workflow {
		return nil // its saga's claim counts instead
	}
	return in
}

// checkFences finds grants with a fence that is not greater than an earlier grant's.
func (s *Story) checkFences() {
	type grant struct {
		*Attempt
		Held
	}
	byResource := map[string][]grant{}
	for _, a := range s.attempts {
		for _, h := range a.held {
			name := h.pool()
			byResource[name] = append(byResource[name], grant{a, h})
		}
	}
	for name, grants := range byResource {
		for i, later := range grants {
			// Who joins what its workflow has gets the fence of that hold. A repeated request is
			// not told that it joined.
			if later.Joined || slices.ContainsFunc(grants[:i], func(g grant) bool { return g.Workflow == later.Workflow && g.Fence == later.Fence }) {
				continue
			}
			for _, earlier := range grants {
				if earlier.begin < later.At && earlier.Fence >= later.Fence {
					s.found("fences", later.begin, []string{earlier.Workflow, later.Workflow},
						"%s: %s of %s has the fence %d, and %s of %s had %d before",
						name, later.step(), later.Workflow, later.Fence, earlier.step(), earlier.Workflow, earlier.Fence)
				}
			}
		}
	}
}

// checkUndo finds compensations that ran at the same time as their own step, and steps that ran after their compensation.
func (s *Story) checkUndo() {
	undos := map[string][]*Attempt{}
	for _, a := range s.attempts {
		if a.Undo && a.ran() {
			undos[a.key()] = append(undos[a.key()], a)
		}
	}
	for _, a := range s.attempts {
		if a.Undo || !a.ran() || a.Call.Node.Undo != "step" || len(a.held) == 0 {
			continue
		}
		for _, u := range undos[a.key()] {
			if s.began[u.Run] < s.began[a.Run] {
				continue // a later run does the step again
			}
			var text string
			switch {
			case a.begin < u.trusted && u.begin < a.trusted:
				text = "runs beside its step"
			case a.begin > u.begin:
				text = "ran before its step"
			default:
				continue
			}
			s.found("undo", u.begin, []string{a.Workflow},
				"%s: the compensation of %s (%s) %s (%s)", a.Workflow, a.step(), u.Exec, text, a.Exec)
		}
	}
}

// mayBeLate bounds the time after an attempt that found its locks busy in which its workflow may not know
// that it left a place.
const mayBeLate = int64(2 * time.Second)

// leavesWithin bounds the time from the end of a saga until its steps have left their queues. They leave
// by an activity for which the workflow does not wait.
const leavesWithin = int64(10 * time.Second)

// checkPlaces finds places and claims that steps have although their saga has ended.
func (s *Story) checkPlaces() {
	if !s.isCalm() {
		return
	}
	for _, scope := range s.scopes {
		if !scope.isSaga() || strings.Contains(scope.name, "/") || scope.leaving == nil || scope.returned == nil || s.isUnderWay(scope) || s.isBesideOthers(scope) {
			continue
		}
		before := map[string]bool{} // the steps that had a place when the saga ended
		for _, r := range s.of[Seen] {
			if r.Run == scope.run && r.At < scope.leaving.At {
				before[r.Scope] = true
			}
			if r.Run == scope.run && before[r.Scope] && scope.leaving.At+leavesWithin < r.Trusted {
				s.found("places", r.At, []string{scope.workflow},
					"%s: %s has a place long after saga %s has ended", scope.workflow, r.Scope, scope.name)
				break
			}
		}
	}
}

// isUnderWay reports whether an attempt of a step may have left a place when its saga was about to
// be undone, or later: it waits in its slot for a turn that is near, and may get it then.
func (s *Story) isUnderWay(scope *Scope) bool {
	return slices.ContainsFunc(s.attempts, func(a *Attempt) bool {
		vain := a.begin == 0 && (a.exit == 0 || a.exit > scope.leaving.At-mayBeLate)
		return a.Run == scope.run && !a.Undo && (vain || a.begin > scope.leaving.At)
	})
}

// isBesideOthers reports whether another saga of the run, such as one of an update, has steps and had not ended when a saga ended: the log does
// not record to which of them a queue position belongs.
func (s *Story) isBesideOthers(scope *Scope) bool {
	return slices.ContainsFunc(s.attempts, func(a *Attempt) bool {
		outermost, _, _ := strings.Cut(a.Call.Instance, "/")
		if a.Run != scope.run || outermost == "" || outermost == scope.name {
			return false
		}
		other := s.byScope[[2]string{a.Run, outermost}]
		return other == nil || other.leaving == nil || other.leaving.At > scope.leaving.At
	})
}

// enteredTooLate reports whether an attempt of a run took almost its TTL to enter. Nothing renews what it has acquired until it has everything.
func (s *Story) enteredTooLate(run string) bool {
	return slices.ContainsFunc(s.attempts, func(a *Attempt) bool {
		return a.Run == run && a.begin != 0 && a.begin-a.At > int64(partTTL-partTTL/5)
	})
}

// checkLosses finds outcomes of scopes that no fault explains.
func (s *Story) checkLosses() {
	for _, scope := range s.scopes {
		for _, r := range []*Record{scope.leaving, scope.returned} {
			again := r == scope.returned && r != nil && scope.leaving != nil && scope.leaving.Type == r.Type // a run's end records only "Failed"
			if r == nil || again || s.explained(scope, r) {
				continue
			}
			s.found("unexplained", r.At, []string{scope.workflow}, "%s: %s of scope %s: %s", scope.workflow, r.Type, scope.name, r.Error)
			break
		}
	}
}

// explained reports whether what a scope ended with is what the plan or its faults make of it.
func (s *Story) explained(scope *Scope, r *Record) bool {
	if s.plan.FailsOneIn > 0 && strings.Contains(r.Error, errConverter.Error()) {
		return true // the last attempt of a step could not read its arguments
	}
	switch r.Type {
	case "", "planned", "cancelled", "busy", "deadlock", "other": // "other" are a timeout and a termination
		return true
	case "lost", "superseded":
		return !s.isCalm() || s.meddled(scope.workflow) || strings.Contains(r.Error, "it could not be renewed in time") && s.enteredTooLate(scope.run)
	case wire.FailureEnded: // the run has ended before its update handler
		root := s.byScope[[2]string{scope.run, rootScope}]
		return root != nil && root.leaving != nil && root.leaving.At <= r.At
	case wire.FailureUnavailable: // the database was away for longer than a MaxWait
		return (s.plan.Failovers || len(s.plan.Slow) > 0) && s.planned(scope.workflow).isBounded()
	case "sagaerror":
		_, undone, _ := strings.Cut(r.Error, "it was not undone")
		return !s.isCalm() || strings.Contains(undone, "timeout (type: StartToClose)") || s.onlyVain(scope.run) ||
			s.isBroken(scope.workflow) && strings.Contains(undone, "since it was in a deadlock") // with another compensation
	}
	return false
}

// onlyVain reports whether the compensations of a run that failed are such as ended a deadlock, and
// may wait for what their saga never had: those of CompensateWith, and those of a run that was
// reset.
func (s *Story) onlyVain(run string) bool {
	for _, a := range s.attempts {
		if a.Run == run && a.Undo && a.exit != 0 && a.outcome != "" && a.outcome != "busy" &&
			(a.Call.Node.Undo != "with" && a.Call.Node.Undo != "saga" && s.resetFrom[run] == "" || a.outcome != "deadlock") {
			return false
		}
	}
	return true
}
