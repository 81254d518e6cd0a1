package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// workflowRun is a run of a workflow in a log.
type workflowRun struct{ workflow, id string }

var (
	w1 = workflowRun{"f_w1", "r1"}
	w2 = workflowRun{"f_w2", "r2"}

	account = Need{Name: "account"}
	ofTwo   = Need{Name: "account", Shared: true, Limit: 2}
)

const gaveUpInDeadlock = "it was not undone: a step gave up waiting, since it was in a deadlock"

// twoSteps is the plan of a workflow with a saga of two steps.
var twoSteps = Plan{Workflows: []Workflow{{ID: "w1", Input: Input{Body: Node{Kind: Saga, ID: 1, Children: []Node{
	{Kind: Step, ID: 2, Undo: "step"}, {Kind: Step, ID: 3, Undo: "step"},
}}}}}}

// join makes a log of records, each a millisecond after the one before. Attempts trust their locks until
// their end.
func join(parts ...[]Record) []Record {
	log := slices.Concat(parts...)
	for i := range log {
		log[i].At = int64(i+1) * int64(time.Millisecond)
		if log[i].What == End {
			log[i].Trusted = log[i].At
		}
	}
	return log
}

func record(r Record) []Record { return []Record{r} }

func enter(exec string, r workflowRun, call Call) []Record {
	return record(Record{What: Enter, Process: "p0", Exec: exec, Workflow: r.workflow, Run: r.id, Call: &call, Attempt: 1})
}

func enterUndo(exec string, r workflowRun, call Call) []Record {
	records := enter(exec, r, call)
	records[0].Undo = true
	return records
}

// begin holds the account with the fences, if any.
func begin(exec string, fences ...int64) []Record {
	r := Record{What: Begin, Process: "p0", Exec: exec}
	for _, fence := range fences {
		r.Held = append(r.Held, Held{Resource: "account", Fence: fence})
	}
	return record(r)
}

func end(exec string) []Record { return record(Record{What: End, Process: "p0", Exec: exec}) }

func exit(exec, outcome string) []Record {
	return record(Record{What: Exit, Process: "p0", Exec: exec, Type: outcome})
}

// attempt is a successful attempt of a step, and undo one of a compensation.
func attempt(exec string, r workflowRun, call Call, fences ...int64) []Record {
	return slices.Concat(enter(exec, r, call), begin(exec, fences...), end(exec), exit(exec, ""))
}

func undo(exec string, r workflowRun, call Call, fences ...int64) []Record {
	return slices.Concat(enterUndo(exec, r, call), begin(exec, fences...), end(exec), exit(exec, ""))
}

// scopeRecord is a record of the code of the run w1.
func scopeRecord(what, scope, outcome string) []Record {
	return record(Record{What: what, Workflow: w1.workflow, Run: w1.id, Scope: scope, Error: outcome, Type: outcome})
}

func leaving(scope, outcome string) []Record  { return scopeRecord(Leaving, scope, outcome) }
func returned(scope, outcome string) []Record { return scopeRecord(Returned, scope, outcome) }

func inTask(task int64, what, scope, outcome string) []Record {
	records := scopeRecord(what, scope, outcome)
	records[0].Task = task
	return records
}

func locked() []Record {
	return record(Record{What: Locked, Workflow: w1.workflow, Run: w1.id, Scope: "5", Needs: []Need{account}})
}

func killed(process string) []Record { return record(Record{What: Killed, Other: process}) }

// step is a step of a saga, which keeps its locks, or a step of scope step if instance is empty.
func step(id int, instance string, needs ...Need) Call {
	return Call{Node: Node{Kind: Step, ID: id, Needs: needs, Undo: "step"}, Instance: instance, Kept: instance}
}

func stepWithShortHold() Call {
	call := step(2, "1.1", account)
	call.Node.HoldTTL, call.Node.Undo = time.Second, ""
	return call
}

func changed(call Call) Call {
	call.Changed = true
	return call
}

var checkCases = []struct {
	name string
	log  []Record
	want []string
}{
	{"a step beside a step", join(
		enter("a", w1, step(2, "", account)), begin("a", 1), attempt("b", w2, step(2, "", account), 2), end("a"),
	), []string{"isolation"}},
	{"a step after a step", join(
		attempt("a", w1, step(2, "", account), 1), attempt("b", w2, step(2, "", account), 2),
	), nil},
	{"readers beside each other", join(
		enter("a", w1, step(2, "", Need{Name: "account", Shared: true})), begin("a"),
		attempt("b", w2, step(2, "", Need{Name: "account", Shared: true})), end("a"),
	), nil},
	{"two steps of scope step beside each other in one workflow", join(
		enter("a", w1, step(2, "", account)), begin("a"), attempt("b", w1, step(3, "", account)), end("a"),
	), []string{"isolation"}},
	{"a step between two steps of another saga", join(
		attempt("a", w1, step(2, "1.1", account), 1), attempt("b", w2, step(2, "", account), 2),
		attempt("c", w1, step(3, "1.1", account), 3), leaving("1.1", ""), returned("1.1", ""),
	), []string{"isolation"}},
	{"a step between two steps of another saga, which reports its loss", join(
		killed("p9"), attempt("a", w1, step(2, "1.1", account), 1), attempt("b", w2, step(2, "", account), 2), leaving("1.1", "lost"),
		undo("c", w1, step(2, "1.1", account), 3), returned("1.1", "lost"),
	), nil},
	{"a compensation that gave up in a deadlock, after an operator ended a hold", join(
		record(Record{What: Meddled, Workflow: "f_w1", Type: "break"}),
		record(Record{What: Leaving, Workflow: "f_w1", Run: "r1", Scope: "root", Error: gaveUpInDeadlock, Type: "sagaerror"}),
		record(Record{What: Returned, Workflow: "f_w1", Run: "r1", Scope: "root", Error: "Failed", Type: "sagaerror"}),
	), nil},
	{"a loss without a fault", join(
		leaving("1.1", "lost"), returned("1.1", "lost"),
	), []string{"unexplained"}},
	{"a step after a short HoldTTL, in a saga that fails", join(
		killed("p9"), attempt("a", w1, stepWithShortHold(), 1), attempt("b", w2, step(2, "", account), 2),
		leaving("1.1", "deadlock"), returned("1.1", "deadlock"),
	), nil},
	{"a step after a short HoldTTL, in a saga that commits", join(
		attempt("a", w1, stepWithShortHold(), 1), attempt("b", w2, step(2, "", account), 2), leaving("1.1", ""), returned("1.1", ""),
	), []string{"isolation"}},
	{"a step before a Lock whose workflow task was lost", join(
		locked(), killed("p9"), attempt("b", w2, step(2, "", account), 2), locked(), leaving("5", ""),
	), nil},
	{"a late attempt of a step before its saga is undone", join(
		leaving("1.1", "cancelled"), enter("a", w1, step(2, "1.1", account)),
		record(Record{What: Seen, Workflow: "f_w1", Run: "r1", Scope: "1/step", Trusted: int64(2 * time.Millisecond)}), begin("a", 1),
		end("a"), exit("a", ""), undo("b", w1, step(2, "1.1", account), 1), returned("1.1", "cancelled"),
	), nil},
	{"a step that stays queued long after its saga", join(
		record(Record{What: Seen, Workflow: "f_w1", Run: "r1", Scope: "1/step", Trusted: int64(time.Second)}),
		leaving("1.1", "cancelled"), returned("1.1", "cancelled"),
		record(Record{What: Seen, Workflow: "f_w1", Run: "r1", Scope: "1/step", Trusted: leavesWithin + int64(time.Second)}),
	), []string{"places"}},
	{"a step that stays queued while a saga of an update goes on", join(
		record(Record{What: Seen, Workflow: "f_w1", Run: "r1", Scope: "1/step", Trusted: int64(time.Second)}),
		enter("a", w1, step(9, "8.1", account)), exit("a", "busy"), leaving("1.1", "cancelled"), returned("1.1", "cancelled"),
		record(Record{What: Seen, Workflow: "f_w1", Run: "r1", Scope: "1/step", Trusted: leavesWithin + int64(time.Second)}),
	), nil},
	{"a step inside a Lock", join(
		locked(), attempt("b", w2, step(2, "", account)), leaving("5", ""),
	), []string{"isolation"}},
	{"a semaphore of two with three in it", join(
		enter("a", workflowRun{"f_wa", "ra"}, step(2, "", ofTwo)), begin("a"), enter("b", workflowRun{"f_wb", "rb"}, step(2, "", ofTwo)), begin("b"),
		enter("c", workflowRun{"f_wc", "rc"}, step(2, "", ofTwo)), begin("c"), end("a"), end("b"), end("c"),
	), []string{"limit"}},
	{"an attempt without an end trusts its locks until its process is stopped", join(
		enter("a", w1, step(2, "", account)), begin("a"), record(Record{What: Stopped, Other: "p0"}),
		attempt("b", w2, step(2, "", account)), killed("p0"),
	), nil},
	{"a step that its killed process cannot end, beside another one before the kill", join(
		enter("a", w1, step(2, "", account)), begin("a"), attempt("b", w2, step(2, "", account)), killed("p0"),
	), []string{"isolation"}},
	{"a fence that is not greater", join(
		attempt("a", w1, step(2, "", account), 7), attempt("b", w2, step(2, "", account), 7),
	), []string{"fences"}},
	{"a compensation beside its step", join(
		enter("a", w1, step(2, "1.1", account)), begin("a", 1), leaving("1.1", "planned"), undo("u", w1, step(2, "1.1", account), 2),
		end("a"), returned("1.1", "planned"),
	), []string{"undo", "barred"}},
	{"a compensation of a step that never ran", join(
		enter("a", w1, step(2, "1.1", account)), exit("a", "deadlock"), leaving("1.1", "deadlock"),
		undo("u", w1, step(2, "1.1", account), 2), returned("1.1", "deadlock"),
	), []string{"vain"}},
	{"a step after its compensation", join(
		leaving("1.1", "planned"), undo("u", w1, step(2, "1.1", account), 2), attempt("a", w1, step(2, "1.1", account), 3),
		returned("1.1", "planned"),
	), []string{"undo"}},
	{"a failed saga whose step was not undone", join(
		attempt("a", w1, step(2, "1.1", account)), leaving("1.1", "planned"), returned("1.1", "planned"),
	), []string{"atomicity"}},
	{"a committed saga whose step was undone", join(
		attempt("a", w1, step(2, "1.1", account)), leaving("1.1", ""), undo("u", w1, step(2, "1.1", account)), returned("1.1", ""),
	), []string{"atomicity"}},
	{"a saga that was undone with the one around it", join(
		attempt("a", w1, step(3, "1.1/2.1")), leaving("1.1/2.1", ""), returned("1.1/2.1", ""), leaving("1.1", "planned"),
		undo("u", w1, step(3, "1.1/2.1")), returned("1.1", "planned"),
	), nil},
	{"a saga that was not undone with the one around it", join(
		attempt("a", w1, step(3, "1.1/2.1")), leaving("1.1/2.1", ""), returned("1.1/2.1", ""), leaving("1.1", "planned"),
		returned("1.1", "planned"),
	), []string{"atomicity"}},
	{"a saga that was undone in the order of its steps", join(
		attempt("a", w1, step(2, "1.1")), attempt("b", w1, step(3, "1.1")), leaving("1.1", "planned"), undo("v", w1, step(2, "1.1")),
		undo("u", w1, step(3, "1.1")), returned("1.1", "planned"),
	), []string{"atomicity"}},
	{"a saga that was undone well", join(
		attempt("a", w1, step(2, "1.1")), attempt("b", w1, step(3, "1.1")), leaving("1.1", "planned"), undo("u", w1, step(3, "1.1")),
		undo("v", w1, step(2, "1.1")), returned("1.1", "planned"),
	), nil},
	{"a saga inside a compensation", join(
		attempt("a", w1, step(2, "1.1")), leaving("1.1", "planned"), attempt("b", w1, step(2, "1.1/2u.1")),
		undo("u", w1, step(2, "1.1")), leaving("1.1/2u.1", ""), returned("1.1/2u.1", ""), returned("1.1", "planned"),
	), nil},
	{"a saga inside a compensation that is undone with the one around it", join(
		attempt("a", w1, step(2, "1.1")), leaving("1.1", "planned"), attempt("b", w1, step(2, "1.1/2u.1")),
		undo("u", w1, step(2, "1.1")), leaving("1.1/2u.1", ""), returned("1.1/2u.1", ""), undo("v", w1, step(2, "1.1/2u.1")),
		returned("1.1", "planned"),
	), []string{"atomicity"}},
	{"a step while a saga that committed decides again", join(
		attempt("a", w1, step(2, "1.1", account), 1), inTask(3, Leaving, "1.1", ""), inTask(3, Returned, "1.1", ""),
		attempt("b", w2, step(2, "", account), 2), inTask(8, Leaving, "1.1", "planned"), undo("u", w1, step(2, "1.1", account), 3),
		inTask(8, Returned, "1.1", "planned"), record(Record{What: Recorded, Workflow: "f_w1", Run: "r1", Tasks: []int64{8}}),
	), []string{"isolation"}},
	{"a step after a saga whose lost decisions came late", join(
		attempt("a", w1, step(2, "1.1", account), 1), inTask(8, Leaving, "1.1", ""), inTask(8, Returned, "1.1", ""),
		attempt("b", w2, step(2, "", account), 2), inTask(3, Leaving, "1.1", "planned"),
		record(Record{What: Recorded, Workflow: "f_w1", Run: "r1", Tasks: []int64{8}}),
	), nil},
	{"a signal that no run received", join(
		record(Record{What: Signalled, Workflow: "f_w1", Other: "s"}),
		record(Record{What: Signalled, Workflow: "f_w1", Other: "refused", Error: "not found"}),
		record(Record{What: Closed, Workflow: "f_w1", Run: "r1", Error: "Completed"}),
	), []string{"signals"}},
	{"a signal that a lost workflow task received", join(
		record(Record{What: Signalled, Workflow: "f_w1", Other: "s"}),
		record(Record{What: Heard, Workflow: "f_w1", Run: "r1", Other: "s", Task: 3}),
		record(Record{What: Recorded, Workflow: "f_w1", Run: "r1", Tasks: []int64{8}}),
		record(Record{What: Closed, Workflow: "f_w1", Run: "r1", Error: "Completed"}),
	), []string{"signals"}},
	{"a signal that was received", join(
		record(Record{What: Signalled, Workflow: "f_w1", Other: "s"}),
		record(Record{What: Heard, Workflow: "f_w1", Run: "r1", Other: "s", Task: 8}),
		record(Record{What: Recorded, Workflow: "f_w1", Run: "r1", Tasks: []int64{8}}),
		record(Record{What: Closed, Workflow: "f_w1", Run: "r1", Error: "Failed"}),
	), nil},
	{"a signal to a workflow that was terminated", join(
		record(Record{What: Signalled, Workflow: "f_w1", Other: "s"}),
		record(Record{What: Meddled, Workflow: "f_w1", Type: "terminate"}),
		record(Record{What: Closed, Workflow: "f_w1", Run: "r1", Error: "Terminated"}),
	), nil},
	{"a compensation with changed arguments", join(
		attempt("a", w1, step(2, "1.1")), leaving("1.1", "planned"), undo("u", w1, changed(step(2, "1.1"))), returned("1.1", "planned"),
	), []string{"arguments"}},
	{"a Lock that is held and was left out", join(
		record(Record{What: Skipped, Workflow: "f_w1", Run: "r1", Scope: "5", Needs: []Need{account}}),
		record(Record{What: Holds, Workflow: "f_w1", Run: "r1", Other: "account", Trusted: int64(2 * time.Millisecond)}),
	), []string{"unknown"}},
	{"a Lock that another run holds", join(
		record(Record{What: Skipped, Workflow: "f_w1", Run: "r1", Scope: "5", Needs: []Need{account}}),
		record(Record{What: Holds, Workflow: "f_w1", Run: "r0", Other: "account", Trusted: int64(2 * time.Millisecond)}),
	), nil},
	{"a saga that could not be undone, without a fault", join(
		attempt("a", w1, step(2, "1.1", account)), leaving("1.1", "planned"), enterUndo("u", w1, step(2, "1.1", account)),
		exit("u", "deadlock"), returned("1.1", "sagaerror"),
	), []string{"unexplained"}},
}

func TestCheck_FindsViolations(t *testing.T) {
	t.Parallel()
	for _, c := range checkCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, v := range Check(twoSteps, c.log) {
				got = append(got, v.Check)
			}
			require.Equal(t, c.want, got)
		})
	}
}

// A compensation that does not belong to a step must not run at the same time as a guarded step of its saga.
func TestCheckBarred_CompensationBesideAnotherStep_IsFound(t *testing.T) {
	t.Parallel()
	for name, instance := range map[string]string{"same saga": "1.1", "saga inside it": "1.1/4.1", "saga around it": "", "saga inside a compensation": "1.1/3u.1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Read(join(
				enter("a", w1, step(3, instance, account)), begin("a", 1), leaving("1.1", "planned"),
				undo("u", w1, step(2, "1.1")), end("a"), returned("1.1", "planned"),
			))
			s.checkBarred()
			require.Equal(t, name == "same saga" || name == "saga inside it", len(s.violations) == 1)
		})
	}
}

// A saga keeps the locks that its run hands over until the next run requests them.
func TestCheck_HandedOverLocks_AreKept(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]bool{"no step in between": false, "a step in between": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var other []Record
			if between {
				other = attempt("b", w2, step(2, "", account), 2)
			}
			violations := Check(twoSteps, join(
				attempt("a", w1, step(2, "1.1", account), 1), scopeRecord(HandOver, "1.1", ""), other,
				attempt("c", workflowRun{"f_w1", "r3"}, step(2, "1.1", account), 3),
			))
			require.Equal(t, between, len(violations) > 0, violations)
		})
	}
}

func TestNewPlan_SameSeed_SamePlan(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		plan := NewPlan(seed)
		require.Equal(t, plan, NewPlan(seed))
		require.GreaterOrEqual(t, len(plan.Workflows), 50)
		require.LessOrEqual(t, len(plan.Workflows), 250)
	}
}

func TestCheck_LossDuringFailovers_IsExplained(t *testing.T) {
	t.Parallel()
	plan, log := twoSteps, join(leaving("1.1", "lost"), returned("1.1", "lost"))
	require.Len(t, Check(plan, log), 1)
	plan.Failovers = true
	require.Empty(t, Check(plan, log))
}

// A step that took almost its TTL to enter may lose what it acquired first: nothing renewed it yet.
func TestCheck_LossOfStepThatEnteredTooLate_IsExplained(t *testing.T) {
	t.Parallel()
	tooLate := "resource \"account\": it could not be renewed in time"
	for _, c := range []struct {
		name   string
		took   time.Duration
		reason string
		found  int
	}{
		{"in time", partTTL / 2, tooLate, 1},
		{"too late", partTTL - partTTL/10, tooLate, 0},
		{"too late, and lost to another holder", partTTL - partTTL/10, "resource \"account\": held by another", 1},
	} {
		log := join(attempt("a", w1, step(2, "1.1", account)), undo("u", w1, step(2, "1.1", account)), leaving("1.1", "lost"), returned("1.1", "lost"))
		for i := range log {
			if i > 0 { // all but the record of the entry
				log[i].At += int64(c.took)
			}
		}
		lost := slices.IndexFunc(log, func(r Record) bool { return r.Type == "lost" })
		log[lost].Error, log[lost+1].Error = c.reason, c.reason
		require.Len(t, slices.DeleteFunc(Check(twoSteps, log), func(v Violation) bool { return v.Check != "unexplained" }), c.found, c.name)
	}
}

// A wait with a MaxWait ends as unavailable if the database is away for longer. Nothing else explains that.
func TestCheck_UnavailableDuringFailovers_IsExplainedByMaxWait(t *testing.T) {
	t.Parallel()
	log := join(leaving("1.1", wire.FailureUnavailable), returned("1.1", wire.FailureUnavailable))
	bounded := Plan{Workflows: []Workflow{{ID: "w1", Input: Input{Body: Node{Kind: Saga, ID: 1, Children: []Node{
		{Kind: Lock, ID: 2, MaxWait: 700 * time.Millisecond},
	}}}}}}
	require.Len(t, Check(bounded, log), 1)
	bounded.Failovers = true
	require.Empty(t, Check(bounded, log))
	unbounded := twoSteps
	unbounded.Failovers = true
	require.Len(t, Check(unbounded, log), 1)
}

func TestPlan_Mix_HalfOfTheWorkersAreOfEachBuild(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		plan, again := NewPlan(seed), NewPlan(seed)
		require.Nil(t, plan.Previous)
		plan.mix()
		again.mix()
		require.Equal(t, plan, again)
		require.False(t, plan.Codec)
		previous := slices.DeleteFunc(slices.Clone(plan.Previous[:processes]), func(previous bool) bool { return !previous })
		require.Len(t, previous, processes/2, seed)
	}
}

func TestPool_ProcessStartsAgain_IsOfItsSlotsBuild(t *testing.T) {
	t.Parallel()
	pool := newPool("/logs", "run", nil, "/the/previous", []bool{false, true})
	for _, want := range []struct {
		slot, number  int
		name, program string
	}{
		{0, 1, "p0-1", ""}, {1, 2, "p1-2-previous", "/the/previous"}, {1, 3, "p1-3-previous", "/the/previous"}, {0, 4, "p0-4", ""},
	} {
		c := pool.command(want.slot, want.number)
		require.Equal(t, want.name, c.Name)
		require.Equal(t, want.program, c.Program, "this program, if it is empty")
		require.Equal(t, []string{workerCommand, "/logs", "run", want.name}, c.Args)
	}
}

func TestBuilds_CountsProcessesAndTheRunsOfBoth(t *testing.T) {
	t.Parallel()
	records := []Record{
		{Process: "fuzzer", Run: "r1"},
		{Process: "p0-1", Run: "r1", Task: 3}, {Process: "p1-2-previous", Run: "r1", Task: 9},
		{Process: "p0-1", Run: "r2", Task: 3}, {Process: "p1-2-previous", Run: "r3", Task: 3}, {Process: "p2-3", Run: "r3"},
	}
	require.Empty(t, builds(Plan{}, records))
	require.Equal(t, " (1 of 3 processes of the previous build; both builds ran the code of 1 of 3 workflow runs)",
		builds(Plan{Previous: []bool{true}}, records))
}

// A run that is reset after its end replays the acquisition of a Lock that was released at that end. Only a Lock that was held when the run
// was reset excludes others.
func TestClaims_LockOfResetRun_CountsUnlessReleased(t *testing.T) {
	t.Parallel()
	next := workflowRun{w1.workflow, "r1-next"}
	again := func(what string) []Record {
		return record(Record{What: what, Workflow: next.workflow, Run: next.id, Scope: "5", Needs: []Need{account}, Task: 9})
	}
	terminate := func(err string) []Record {
		return record(Record{What: Meddled, Workflow: w1.workflow, Type: "terminate", Error: err})
	}
	for name, c := range map[string]struct {
		tasks         []int64
		before, after []Record
		want          int
	}{
		"closed before the reset":         {tasks: []int64{3}, want: 1},
		"terminated before the reset":     {before: terminate(""), want: 1},
		"not terminated before the reset": {before: terminate("it has ended"), want: 2},
		"terminated after the reset":      {after: terminate(""), want: 2},
		"reset while it was held":         {want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Read(join(
				record(Record{What: Recorded, Workflow: w1.workflow, Run: w1.id, Tasks: c.tasks}),
				inTask(3, Leaving, rootScope, ""), c.before,
				record(Record{What: Meddled, Workflow: w1.workflow, Run: w1.id, Type: "reset", Other: next.id}), again(Locked),
				attempt("e1", w2, step(2, "1.1", account), 2), again(Leaving), c.after,
			))
			require.Len(t, s.claims()["account"], c.want)
		})
	}
}
