package main

import (
	"cmp"
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
	Records  []Record
	attempts []*Attempt // by entry
	scopes   []*Scope
	byScope  map[[2]string]*Scope // run, name
	// stops contains the times at which each process was stopped, in order, and killed the time at which it was killed.
	stops  map[string][]int64
	killed map[string]int64
	// resetFrom contains the run from which each run was reset.
	resetFrom map[string]string
	// terminated contains the times at which an operator terminated each workflow.
	terminated map[string][]int64
	// left contains the scopes that a run has left for good, by run and name: the server has recorded the workflow task.
	left map[[2]string]bool
	// order numbers runs in the order of their first records.
	order map[string]int
	// meddled contains the operator's actions on each workflow.
	meddled map[string][]string
	// began contains the time of each run's first record. ended contains the times at which an operator ended the
	// workflow's runs.
	began map[string]int64
	ended map[string][]int64
	// seen contains the waiters and claims of steps.
	seen []*Record
	calm bool
	// failovers is set if the database failed over during the run. bounded contains the workflows, by their IDs in the plan, in which
	// a wait has a MaxWait.
	failovers bool
	bounded   map[string]bool
	// slow is set if the database was slow at times, and conversionsFail if some conversions of the workers' data converters failed.
	slow, conversionsFail bool
	// recorded contains the workflow tasks of each run that the server has recorded, in order; closed the end of each workflow.
	recorded map[string][]int64
	closed   map[string]*Record
	// signals contains the signals that were sent, heard the received ones by workflow and ID, drained the end of each run.
	signals []*Record
	heard   map[[2]string]bool
	drained []*Record
	// skips contains the Locks that were left out, and holds the holds on resources of such Locks.
	skips, holds []*Record
	// updates contains the outcomes of updates. asked and verified contain the questions of workflow code and their good answers.
	updates, asked, verified []*Record
	// ignored contains the failures of steps after which the code has continued.
	ignored []*Record
	// violations are the findings of the checks.
	violations []Violation
}

// Read returns the story of a log, which must be in time order.
func Read(records []Record) *Story {
	s := &Story{
		Records: records, byScope: map[[2]string]*Scope{}, stops: map[string][]int64{}, killed: map[string]int64{},
		resetFrom: map[string]string{}, left: map[[2]string]bool{}, order: map[string]int{}, meddled: map[string][]string{}, calm: true,
		began: map[string]int64{}, ended: map[string][]int64{}, recorded: map[string][]int64{}, closed: map[string]*Record{},
		heard: map[[2]string]bool{}, terminated: map[string][]int64{}, bounded: map[string]bool{},
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
		if _, seen := s.order[r.Run]; !seen && r.Run != "" {
			s.order[r.Run], s.began[r.Run] = len(s.order), r.At
		}
		switch r.What {
		case Enter:
			execs[r.Exec] = &Attempt{Record: *r}
			s.attempts = append(s.attempts, execs[r.Exec])
		case Begin, End, Exit:
			if a := execs[r.Exec]; a != nil {
				a.add(r)
			}
		case Locked, Leaving, HandOver, Returned:
			if r.What == Leaving && slices.Contains(s.recorded[r.Run], r.Task) {
				s.left[[2]string{r.Run, r.Scope}] = true
			}
			if !s.isPast(r) {
				s.scope(r)
			}
		case Closed: // the end of a run is that of its root scope
			root := *r
			root.What, root.Scope = Returned, rootScope
			s.scope(&root)
			s.closed[r.Workflow] = r
		case Killed:
			s.killed[r.Other], s.calm = r.At, false
		case Stopped:
			s.stops[r.Other], s.calm = append(s.stops[r.Other], r.At), false
		case Meddled:
			s.meddle(r)
		default:
			s.keep(r)
		}
	}
	for _, a := range s.attempts {
		s.trust(a)
	}
	return s
}

// meddle stores an operator's action.
func (s *Story) meddle(r *Record) {
	s.meddled[r.Workflow] = append(s.meddled[r.Workflow], r.Type)
	if r.Error == "" && (r.Type == "terminate" || r.Type == "reset" || r.Type == "restart") {
		s.ended[r.Workflow] = append(s.ended[r.Workflow], r.At)
	}
	if r.Error == "" && r.Type == "terminate" {
		s.terminated[r.Workflow] = append(s.terminated[r.Workflow], r.At)
	}
	if r.Type == "reset" && r.Other != "" {
		s.resetFrom[r.Other] = r.Run
	}
}

// keep stores a record that only one check uses.
func (s *Story) keep(r *Record) {
	switch r.What {
	case Seen:
		s.seen = append(s.seen, r)
	case Signalled:
		s.signals = append(s.signals, r)
	case Heard:
		s.heard[[2]string{r.Workflow, r.Other}] = true
	case Drained:
		s.drained = append(s.drained, r)
	case Skipped:
		s.skips = append(s.skips, r)
	case Holds:
		s.holds = append(s.holds, r)
	case Updated:
		s.updates = append(s.updates, r)
	case Asked:
		s.asked = append(s.asked, r)
	case Verified:
		s.verified = append(s.verified, r)
	case Ignored:
		s.ignored = append(s.ignored, r)
	case Slowed:
		s.calm = false
	}
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
		terminated := slices.ContainsFunc(s.terminated[scope.workflow], func(at int64) bool { return s.began[old] < at && at < s.began[scope.run] })
		if terminated || s.left[[2]string{old, scope.name}] || s.left[[2]string{old, rootScope}] {
			return true
		}
	}
	return false
}

// isPast reports whether a record was written after its run was ended, for example by a process that was
// stopped in between.
func (s *Story) isPast(r *Record) bool {
	return slices.ContainsFunc(s.ended[r.Workflow], func(at int64) bool { return s.began[r.Run] < at && at < r.At })
}

func (a *Attempt) add(r *Record) {
	switch r.What {
	case Begin:
		a.begin, a.held = r.At, r.Held
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
	switch {
	case a.begin == 0:
	case a.end == 0:
		if killed, ok := s.killed[a.Process]; ok {
			a.trusted = killed
		} else {
			a.trusted = a.begin
		}
		for _, stop := range s.stops[a.Process] {
			if stop > a.At {
				a.trusted = min(a.trusted, stop)
			}
		}
	}
}

// ran reports whether the attempt's code has run, under locks that it trusted.
func (a *Attempt) ran() bool { return a.begin != 0 && a.trusted >= a.begin }

// completed reports whether success was returned to Temporal.
func (a *Attempt) completed() bool { return a.exit != 0 && a.outcome == "" }

// stoppedBetween reports whether a process was stopped in a time.
func (s *Story) stoppedBetween(process string, from, to int64) bool {
	return slices.ContainsFunc(s.stops[process], func(at int64) bool { return from <= at && at <= to })
}

// since reports whether a run is the other, or came later.
func (s *Story) since(run, other string) bool { return cmp.Compare(s.order[run], s.order[other]) >= 0 }
