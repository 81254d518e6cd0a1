package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

func itoa(n int) string { return strconv.Itoa(n) }

// Claim asserts that a party had a resource during a time, at least.
type Claim struct {
	Need
	workflow string
	// lockID is the party: the workflow, or a step of scope step.
	lockID string
	// part identifies the claimant. Claims of one part do not exclude each other.
	part     string
	kept     bool
	from, to int64
	what     string
}

// claims returns the claims of all parties, by resource.
func (s *Story) claims() map[string][]*Claim {
	all := map[string][]*Claim{}
	add := func(c *Claim) {
		if c.from != 0 && c.from <= c.to {
			all[c.Name] = append(all[c.Name], c)
		}
	}
	for _, a := range s.attempts {
		if !a.ran() {
			continue
		}
		s.running(a, add)
	}
	for _, c := range s.kept() {
		add(c)
	}
	for _, c := range s.verifiedClaims() {
		add(c)
	}
	for _, scope := range s.scopes {
		if scope.locked != nil && scope.leaving != nil && !s.toldLost(scope) && !s.leftBefore(scope) {
			for _, n := range scope.locked.Needs {
				add(&Claim{
					Need: n, workflow: scope.workflow, lockID: scope.workflow, kept: true, part: scope.run + " Lock " + scope.name,
					from: scope.locked.At, to: scope.leaving.At, what: "Lock " + scope.name,
				})
			}
		}
	}
	for _, claims := range all {
		slices.SortFunc(claims, func(a, b *Claim) int { return cmp.Compare(a.from, b.from) })
	}
	return all
}

// running adds the claims of an attempt.
func (s *Story) running(a *Attempt, add func(*Claim)) {
	what := fmt.Sprintf("%s attempt %d (%s)", a.step(), a.Attempt, a.Exec)
	if a.Undo {
		what = "undo of " + what
	}
	step := Claim{
		workflow: a.Workflow, lockID: a.Workflow + "/" + a.step(), part: fmt.Sprint(a.Run, a.key(), a.Undo),
		from: a.begin, to: a.trusted, what: what,
	}
	for _, n := range a.Call.Node.Needs {
		c := step
		c.Need = n
		if a.Call.Kept != "" {
			c.lockID = a.Workflow
		}
		add(&c)
	}
	if a.Undo {
		return // compensations are of another type, without a rule
	}
	for _, n := range a.Call.Node.Rule {
		c := step
		c.Need = n
		add(&c)
	}
}

// kept returns the claims of sagas, and of steps whose locks are kept until the run's end: one for each
// scope, resource and mode.
func (s *Story) kept() []*Claim {
	type key struct {
		run, scope string
		need       Need
	}
	found := map[key]*Claim{}
	var all []*Claim
	for _, a := range s.attempts {
		failedAlone := a.Call.Node.Ignores && !a.completed() // its saga may commit without a question about it
		if !a.ran() || failedAlone || a.Call.Kept == "" || s.stoppedBetween(a.Process, a.At, a.begin) {
			continue
		}
		for _, n := range a.Call.Node.Needs {
			k := key{a.Run, a.Call.Kept, n}
			c := found[k]
			if c == nil {
				c = &Claim{
					Need: n, workflow: a.Workflow, lockID: a.Workflow, kept: true, part: a.Run + " saga " + k.scope,
					from: a.begin, what: "scope " + k.scope,
				}
				found[k] = c
				all = append(all, c)
			}
		}
	}
	for k, c := range found {
		c.to = s.keptUntil(k.run, k.scope)
		if sc := s.byScope[[2]string{k.run, k.scope}]; sc != nil && s.short(k.run, k.scope)[k.need.Name] {
			if failed, known := sc.failed(); failed || !known {
				c.to = min(c.to, s.lastBegin(k.run, k.scope, k.need)) // only its undos show whether a failing saga holds its locks
			}
		}
		if c.to >= c.from {
			s.extend(c, k.run, k.scope)
		}
	}
	return all
}

// keptUntil returns the time until which a scope had its locks at least. It is 0 if a loss was reported to the scope or found
// by its compensations, because the time of the loss is unknown.
func (s *Story) keptUntil(run, scope string) (until int64) {
	sc := s.byScope[[2]string{run, scope}]
	if sc != nil {
		if s.toldLost(sc) {
			return 0
		}
		if sc.leaving != nil {
			until = sc.leaving.At
		}
	}
	if s.tookAgain(run, scope) {
		return 0
	}
	for _, a := range s.attempts {
		if a.Run != run || a.Call.Kept != scope || a.begin == 0 {
			continue
		}
		if a.outcome == "lost" || a.whatEnds == "lost" || sc == nil && s.isBroken(a.Workflow) {
			return 0
		}
		if a.Undo && a.completed() && !s.stoppedBetween(a.Process, a.At, a.begin) {
			until = max(until, a.begin)
		}
	}
	return until
}

// tookAgain reports whether a compensation of a scope acquired a resource again because a step's short
// HoldTTL had ended. The saga fails anyway, and need not report that loss.
func (s *Story) tookAgain(run, scope string) bool {
	short := s.short(run, scope)
	return slices.ContainsFunc(s.attempts, func(a *Attempt) bool {
		return a.Run == run && a.Call.Kept == scope && a.Undo &&
			slices.ContainsFunc(a.held, func(h Held) bool { return !h.Joined && short[h.Resource] })
	})
}

// short returns the resources that a scope keeps with a HoldTTL that ends if no janitor runs for a few
// seconds.
func (s *Story) short(run, scope string) map[string]bool {
	short := map[string]bool{}
	for _, a := range s.attempts {
		if a.Run == run && a.Call.Kept == scope && a.Call.Node.HoldTTL > 0 {
			for _, n := range a.Call.Node.Needs {
				short[n.Name] = true
			}
		}
	}
	return short
}

// lastBegin returns the time at which the last attempt of a scope began that needs a resource.
func (s *Story) lastBegin(run, scope string, need Need) (last int64) {
	for _, a := range s.attempts {
		if a.Run == run && a.Call.Kept == scope && slices.Contains(a.Call.Node.Needs, need) {
			last = max(last, a.begin)
		}
	}
	return last
}

// toldLost reports whether a loss was reported to a scope. A scope that fails anyway need not report the
// loss of a hold that an operator has broken.
func (s *Story) toldLost(scope *Scope) bool {
	if failed, known := scope.failed(); s.isBroken(scope.workflow) && (failed || !known || s.commitsUnasked(scope)) {
		return true
	}
	lost := func(r *Record) bool { return r != nil && (r.Type == "lost" || r.Type == "sagaerror") }
	return lost(scope.leaving) || lost(scope.returned)
}

// commitsUnasked reports whether a scope ended so soon after the latest use of one of its locks that it committed without asking the database.
func (s *Story) commitsUnasked(scope *Scope) bool {
	if scope.leaving == nil {
		return false
	}
	last := int64(0)
	for _, a := range s.attempts {
		if a.Run == scope.run && a.Call.Kept == scope.name {
			last = max(last, a.begin)
		}
	}
	if scope.locked != nil {
		last = max(last, scope.locked.At)
	}
	for _, asked := range s.verifiedQuestions(scope.run, scope.name) {
		last = max(last, asked.At)
	}
	return scope.leaving.At-last <= verifyAfter.Nanoseconds()
}

func (s *Story) isBroken(workflow string) bool { return s.meddled(workflow, "break") }

// extend extends a claim to the run that continues as new and was handed the locks, until that run's first step on the
// resource. A scope of that run whose steps have requested the resource, and never began, releases it at its end.
func (s *Story) extend(c *Claim, run, scope string) {
	sc := s.byScope[[2]string{run, scope}]
	if sc == nil || !sc.handsOver {
		return
	}
	released := int64(math.MaxInt64)
	for _, a := range s.attempts {
		if a.Workflow != c.workflow || s.began[a.Run] <= s.began[run] || a.At < c.to {
			continue
		}
		if sc := s.byScope[[2]string{a.Run, a.Call.Kept}]; a.begin == 0 && sc != nil && sc.leaving != nil &&
			slices.ContainsFunc(a.Call.Node.Needs, func(n Need) bool { return n.Name == c.Name }) {
			released = min(released, sc.leaving.At)
		}
		if a.outcome == "lost" || s.meddled(c.workflow) {
			return // this may not be the run to which the locks were handed over
		}
		if a.begin != 0 && slices.ContainsFunc(a.held, func(h Held) bool { return h.Resource == c.Name }) {
			c.to = max(c.to, min(a.begin, released))
			return
		}
	}
}
