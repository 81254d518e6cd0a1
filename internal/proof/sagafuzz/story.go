package main

import (
	"slices"
	"strings"
)

// Attempt is one execution of a step or a compensation, according to the log.
type Attempt struct {
	Record                  // of its entry
	begin, end, exit  int64 // 0 if it is not in the log
	trusted           int64 // see Record.Trusted
	held              []Held
	outcome, whatEnds string // the type of its exit's error, and of its end's
}

// key identifies the step in all runs of its workflow.
func (a *Attempt) key() string { return a.Workflow + " " + a.Call.Instance + " " + a.step() }

func (a *Attempt) step() string { return "step " + itoa(a.Call.Node.ID) }

// Scope is a saga with everything nested in it, a Lock, or a run's whole function, according to the log.
type Scope struct {
	workflow, run, name string
	leaving, returned   *Record // nil if they are not in the log
	locked              *Record // of a Lock
	handsOver           bool
}

// failed reports whether the scope's code failed. known is false if the log does not contain its end.
func (s *Scope) failed() (failed, known bool) {
	switch {
	case s.leaving == nil || s.handsOver:
		return false, false
	case s.leaving.Error != "":
		return true, true
	case s.returned == nil:
		return false, false
	}
	return s.returned.Error != "", true
}

func (s *Scope) isSaga() bool { return strings.Contains(s.name, ".") }

// Story is the content of a log.
type Story struct {
	Records []Record
	// plan is the plan that was played; empty if the checks need not know it.
	plan     Plan
	attempts []*Attempt // by entry
	scopes   []*Scope
	byScope  map[[2]string]*Scope // run, name
	// inScope contains the attempts of each scope that keeps locks, by run and name.
	inScope map[[2]string][]*Attempt
	// of contains the records by What, in time order. Records of workflow tasks that the server has not recorded are left out.
	of map[string][]*Record
	// recorded contains the workflow tasks of each run that the server has recorded, in order, and began the time of each run's first record.
	recorded map[string][]int64
	began    map[string]int64
	// resetFrom contains the run from which each run was reset.
	resetFrom map[string]string
	// left contains the scopes that a run has left for good, by run and name: the server has recorded the workflow task.
	left map[[2]string]bool
	// violations are the findings of the checks.
	violations []Violation
}

// Read returns the story of a log, which must be in time order.
func Read(records []Record) *Story {
	s := &Story{
		Records: records, byScope: map[[2]string]*Scope{}, of: map[string][]*Record{}, recorded: map[string][]int64{}, began: map[string]int64{},
		resetFrom: map[string]string{}, left: map[[2]string]bool{}, inScope: map[[2]string][]*Attempt{},
	}
	for i := range records {
		if r := &records[i]; r.What == Recorded {
			s.recorded[r.Run] = r.Tasks
		}
	}
	execs := map[string]*Attempt{}
	for i := range records {
		r := &records[i]
		if !s.happened(r) {
			continue
		}
		if _, seen := s.began[r.Run]; !seen && r.Run != "" {
			s.began[r.Run] = r.At
		}
		s.of[r.What] = append(s.of[r.What], r)
		switch r.What {
		case Enter:
			a, scope := &Attempt{Record: *r}, [2]string{r.Run, r.Call.Kept}
			execs[r.Exec], s.attempts, s.inScope[scope] = a, append(s.attempts, a), append(s.inScope[scope], a)
		case Begin, End, Exit:
			if a := execs[r.Exec]; a != nil {
				a.add(r)
			}
		case Locked, Leaving, HandOver, Returned:
			if r.What == Locked {
				locked := *r
				locked.Needs = withMembers(r.Needs, r.Held)
				r = &locked
			}
			if r.What == Leaving && slices.Contains(s.recorded[r.Run], r.Task) {
				s.left[[2]string{r.Run, r.Scope}] = true
			}
			if !s.endedBetween(r.Workflow, s.began[r.Run], r.At, "terminate", "reset", "restart") { // otherwise its process was suspended
				s.scope(r)
			}
		case Closed: // the end of a run is that of its root scope
			root := *r
			root.What, root.Scope = Returned, rootScope
			s.scope(&root)
		case Meddled:
			if r.Type == "reset" && r.Other != "" {
				s.resetFrom[r.Other] = r.Run
			}
		}
	}
	for _, a := range s.attempts {
		s.trust(a)
	}
	return s
}

// isCalm reports whether nothing has disturbed processes or the database.
func (s *Story) isCalm() bool {
	return len(s.of[Killed])+len(s.of[Stopped])+len(s.of[Slowed]) == 0 && !s.plan.Failovers
}

// meddled reports whether an operator acted on a workflow in one of the ways, or in any way if none is named.
func (s *Story) meddled(workflow string, ways ...string) bool {
	return slices.ContainsFunc(s.of[Meddled], func(r *Record) bool {
		return r.Workflow == workflow && (len(ways) == 0 || slices.Contains(ways, r.Type))
	})
}

// planID returns the ID that a workflow has in the plan.
func planID(workflow string) string {
	_, id, _ := strings.Cut(workflow, "_w")
	return "w" + id
}

// planned returns a workflow as it was planned; an empty one if the plan does not have it.
func (s *Story) planned(workflow string) *Workflow {
	id := planID(workflow)
	if i := slices.IndexFunc(s.plan.Workflows, func(w Workflow) bool { return w.ID == id }); i >= 0 {
		return &s.plan.Workflows[i]
	}
	return &Workflow{}
}

// endedBetween reports whether an operator has ended a run of the workflow between two times, in one of the ways.
func (s *Story) endedBetween(workflow string, from, to int64, ways ...string) bool {
	return slices.ContainsFunc(s.of[Meddled], func(r *Record) bool {
		return r.Workflow == workflow && r.Error == "" && slices.Contains(ways, r.Type) && from < r.At && r.At < to
	})
}

// happened reports whether a record counts: it was not written in a workflow task that the server did not record.
func (s *Story) happened(r *Record) bool {
	tasks, known := s.recorded[r.Run]
	return r.Task == 0 || !known || slices.Contains(tasks, r.Task)
}

// leftBefore reports whether a run begins, by a reset, after an earlier run has left the scope or has ended, by itself or by a
// termination. Then its locks were released, although the history of the new run has their acquisition.
func (s *Story) leftBefore(scope *Scope) bool {
	for old := s.resetFrom[scope.run]; old != ""; old = s.resetFrom[old] {
		terminated := s.endedBetween(scope.workflow, s.began[old], s.began[scope.run], "terminate")
		if terminated || s.left[[2]string{old, scope.name}] || s.left[[2]string{old, rootScope}] {
			return true
		}
	}
	return false
}

func (a *Attempt) add(r *Record) {
	switch r.What {
	case Begin:
		a.begin = r.At
		a.getMembers(r.Held)
	case End:
		a.end, a.trusted, a.whatEnds = r.At, r.Trusted, r.Type
	case Exit:
		a.exit, a.outcome = r.At, r.Type
	}
}

// scope stores a scope's record. A workflow task may have written it more than once; the earliest counts.
func (s *Story) scope(r *Record) {
	key := [2]string{r.Run, r.Scope}
	scope := s.byScope[key]
	if scope == nil {
		scope = &Scope{workflow: r.Workflow, run: r.Run, name: r.Scope}
		s.byScope[key] = scope
		s.scopes = append(s.scopes, scope)
	}
	switch {
	case r.What == Locked && scope.leaving == nil:
		scope.locked = r // the last: a workflow task whose worker is killed is carried out again
	case r.What == Returned && scope.returned == nil:
		scope.returned = r
	case (r.What == Leaving || r.What == HandOver) && scope.leaving == nil:
		scope.leaving, scope.handsOver = r, r.What == HandOver
	}
}

// trust determines the time until which an attempt trusted its locks. See the package documentation.
func (s *Story) trust(a *Attempt) {
	if a.begin == 0 || a.end != 0 {
		return
	}
	a.trusted = a.begin
	for _, r := range s.of[Killed] {
		if r.Other == a.Process {
			a.trusted = r.At
		}
	}
	for _, r := range s.of[Stopped] {
		if r.Other == a.Process && r.At > a.At {
			a.trusted = min(a.trusted, r.At)
		}
	}
}

// ran reports whether the attempt's code has run, under locks that it trusted.
func (a *Attempt) ran() bool { return a.begin != 0 && a.trusted >= a.begin }

// completed reports whether success was returned to Temporal.
func (a *Attempt) completed() bool { return a.exit != 0 && a.outcome == "" }

// stoppedBetween reports whether a process was stopped in a time.
func (s *Story) stoppedBetween(process string, from, to int64) bool {
	return slices.ContainsFunc(s.of[Stopped], func(r *Record) bool { return r.Other == process && from <= r.At && r.At <= to })
}
