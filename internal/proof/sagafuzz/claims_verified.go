package main

import "slices"

// verifiedClaims returns what good answers of Verify prove: from the first step that used a lock, or from the grant of a Lock, until the
// question no other party had it. That holds even if the lock was lost later, when other claims of the scope do not count. Runs that a
// reset has created are excluded, because they count a lock as held that the run before them has released.
func (s *Story) verifiedClaims() (all []*Claim) {
	for _, scope := range s.scopes {
		if s.resetFrom[scope.run] != "" {
			continue
		}
		var until int64
		for _, asked := range s.verifiedQuestions(scope.run, scope.name) {
			until = max(until, asked.At)
		}
		claim := Claim{workflow: scope.workflow, lockID: scope.workflow, kept: true, to: until}
		if scope.locked != nil {
			claim.part, claim.what, claim.from = scope.run+" Lock "+scope.name, "Lock "+scope.name+", which was verified,", scope.locked.At
			for _, claim.Need = range scope.locked.Needs {
				all = append(all, copied(claim))
			}
			continue
		}
		claim.part, claim.what = scope.run+" saga "+scope.name, "scope "+scope.name+", which was verified,"
		for need, from := range s.firstUses(scope.run, scope.name, until) {
			claim.Need, claim.from = need, from
			all = append(all, copied(claim))
		}
	}
	return all
}

func copied(c Claim) *Claim { return &c }

// verifiedQuestions returns the questions of a scope to which the answer was nil.
func (s *Story) verifiedQuestions(run, scope string) (all []*Record) {
	for _, asked := range s.of[Asked] {
		if asked.Run == run && asked.Scope == scope && slices.ContainsFunc(s.of[Verified], func(r *Record) bool {
			return r.Run == run && r.Scope == scope && r.Other == asked.Other && r.At >= asked.At
		}) {
			all = append(all, asked)
		}
	}
	return all
}

// firstUses returns when the first step of a scope began on each of its resources that had completed before a time.
func (s *Story) firstUses(run, scope string, before int64) map[Need]int64 {
	first := map[Need]int64{}
	for _, a := range s.attempts {
		if a.Run != run || a.Call.Kept != scope || a.Undo || !a.ran() || !a.completed() || a.exit >= before || s.stoppedBetween(a.Process, a.At, a.begin) {
			continue
		}
		for _, n := range a.Call.Node.Needs {
			if from, known := first[n]; !known || a.begin < from {
				first[n] = a.begin
			}
		}
	}
	return first
}
