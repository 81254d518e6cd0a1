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
	// asked is a time before the grant.
	asked int64
	what  string
}

// claims returns the claims of all parties, by resource.
func (s *Story) claims() map[string][]*Claim {
	all := map[string][]*Claim{}
	add := func(c Claim) {
		if c.from != 0 && c.from <= c.to {
			all[c.Name] = append(all[c.Name], &c)
		}
	}
	for _, a := range s.attempts {
		if a.ran() {
			s.running(a, add)
		}
	}
	s.kept(add)
	for _, scope := range s.scopes {
		s.verified(scope, add)
		if scope.locked != nil && scope.leaving != nil && !s.toldLost(scope) && !s.leftBefore(scope) {
			for _, n := range scope.locked.Needs {
				add(keptClaim(n, scope.workflow, scope.run, "Lock "+scope.name, scope.locked.At, scope.leaving.At))
			}
		}
	}
	for _, claims := range all {
		slices.SortFunc(claims, func(a, b *Claim) int { return cmp.Compare(a.from, b.from) })
	}
	return all
}

func keptClaim(n Need, workflow, run, what string, from, to int64) Claim {
	return Claim{Need: n, workflow: workflow, lockID: workflow, kept: true, part: run + " " + what, from: from, to: to, what: what}
}

// running adds the claims of an attempt.
func (s *Story) running(a *Attempt, add func(Claim)) {
	what := fmt.Sprintf("%s attempt %d (%s)", a.step(), a.Attempt, a.Exec)
	if a.Undo {
		what = "undo of " + what
	}
	step := Claim{
		workflow: a.Workflow, lockID: a.Workflow + "/" + a.step(), part: fmt.Sprint(a.Run, a.key(), a.Undo),
		from: a.begin, to: a.trusted, asked: s.askedFirst(a), what: what,
	}
	for _, n := range a.Call.Node.Needs {
		c := step
		c.Need = n
		if a.Call.Kept != "" {
			c.lockID = a.Workflow
		}
		add(c)
	}
	if a.Undo {
		return // compensations are of another type, without a rule
	}
	for _, n := range a.Call.Node.Rule {
		c := step
		c.Need = n
		add(c)
	}
}

// kept adds the claims of sagas, and of steps whose locks are kept until the run's end: one for each
// scope, resource and mode.
func (s *Story) kept(add func(Claim)) {
	type key struct {
		scope [2]string
		need  Need
	}
	found := map[key]bool{}
	for _, a := range s.attempts {
		failedAlone := a.Call.Node.Ignores && !a.completed() // its saga may commit without a question about it
		if !a.ran() || failedAlone || a.Call.Kept == "" || s.stoppedBetween(a.Process, a.At, a.begin) {
			continue
		}
		for _, n := range a.Call.Node.Needs {
			k := key{[2]string{a.Run, a.Call.Kept}, n}
			if found[k] {
				continue
			}
			found[k] = true
			c := keptClaim(n, a.Workflow, a.Run, "scope "+a.Call.Kept, a.begin, s.keptUntil(k.scope, n))
			c.asked = s.askedFirst(a)
			if c.to >= c.from {
				s.extend(&c, a.Run, a.Call.Kept)
			}
			add(c)
		}
	}
}

// keptUntil returns the time until which a scope had a resource at least. It is 0 if a loss was reported to the scope or found
// by its compensations, because the time of the loss is unknown.
func (s *Story) keptUntil(scope [2]string, need Need) (until int64) {
	sc := s.byScope[scope]
	if sc != nil && s.toldLost(sc) {
		return 0
	}
	if sc != nil && sc.leaving != nil {
		until = sc.leaving.At
	}
	short := map[string]bool{} // the resources that it keeps with a HoldTTL that ends if no janitor runs for a few seconds
	for _, a := range s.inScope[scope] {
		for _, n := range a.Call.Node.Needs {
			short[n.Name] = short[n.Name] || a.Call.Node.HoldTTL > 0
		}
	}
	var last int64 // when the last attempt began that needs the resource
	for _, a := range s.inScope[scope] {
		// The saga fails anyway, and need not report the end of a short HoldTTL.
		tookAgain := a.Undo && slices.ContainsFunc(a.held, func(h Held) bool { return !h.Joined && short[h.Resource] })
		switch {
		case a.begin == 0:
			continue
		case tookAgain, a.outcome == "lost", a.whatEnds == "lost", sc == nil && s.isBroken(a.Workflow):
			return 0
		case a.Undo && a.completed() && !s.stoppedBetween(a.Process, a.At, a.begin):
			until = max(until, a.begin)
		}
		if slices.Contains(a.Call.Node.Needs, need) {
			last = max(last, a.begin)
		}
	}
	if sc != nil && short[need.Name] {
		if failed, known := sc.failed(); failed || !known {
			return min(until, last) // only its undos show whether a failing saga holds its locks
		}
	}
	return until
}

// verified adds what good answers of Verify prove: from the first step that used a lock, or from the grant of a Lock, until the
// question no other party had it. That holds even if the lock was lost later, when other claims of the scope do not count. Runs that a
// reset has created are excluded, because they count a lock as held that the run before them has released.
func (s *Story) verified(scope *Scope, add func(Claim)) {
	until := s.verifiedAt(scope)
	if until == 0 || s.resetFrom[scope.run] != "" {
		return
	}
	what, first := "scope ", map[Need]int64{}
	if scope.locked != nil {
		what = "Lock "
		for _, n := range scope.locked.Needs {
			first[n] = scope.locked.At
		}
	} else {
		for _, a := range s.inScope[[2]string{scope.run, scope.name}] {
			if a.Undo || !a.ran() || !a.completed() || a.exit >= until || s.stoppedBetween(a.Process, a.At, a.begin) {
				continue
			}
			for _, n := range a.Call.Node.Needs {
				if from, known := first[n]; !known || a.begin < from {
					first[n] = a.begin
				}
			}
		}
	}
	for need, from := range first {
		c := keptClaim(need, scope.workflow, scope.run, what+scope.name, from, until)
		c.what += ", which was verified,"
		add(c)
	}
}

// verifiedAt returns the time of the latest question of a scope to which the answer was nil; 0 if there is none.
func (s *Story) verifiedAt(scope *Scope) (last int64) {
	for _, asked := range s.of[Asked] {
		if asked.Run == scope.run && asked.Scope == scope.name && slices.ContainsFunc(s.of[Verified], func(r *Record) bool {
			return r.Run == asked.Run && r.Scope == asked.Scope && r.Other == asked.Other && r.At >= asked.At
		}) {
			last = max(last, asked.At)
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
	last := s.verifiedAt(scope)
	for _, a := range s.inScope[[2]string{scope.run, scope.name}] {
		last = max(last, a.begin)
	}
	if scope.locked != nil {
		last = max(last, scope.locked.At)
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
