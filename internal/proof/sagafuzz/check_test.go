package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// logged writes a log by hand: each record is a millisecond after the one before.
type logged struct{ records []Record }

func (l *logged) add(r Record) {
	r.At = int64(len(l.records)+1) * int64(time.Millisecond)
	l.records = append(l.records, r)
}

// enter, begin, end and exit are an attempt's, whose name is "workflow/run/exec".
func (l *logged) enter(exec, workflow, run string, call Call, undo bool) {
	l.add(Record{What: Enter, Process: "p0", Exec: exec, Workflow: workflow, Run: run, Call: &call, Undo: undo, Attempt: 1})
}

func (l *logged) begin(exec string, held ...Held) {
	l.add(Record{What: Begin, Process: "p0", Exec: exec, Held: held})
}

// end is that of an attempt which trusted its locks until then, and exit tells Temporal an error of a type, or success.
func (l *logged) end(exec string) {
	l.add(Record{What: End, Process: "p0", Exec: exec, Trusted: int64(len(l.records)+1) * int64(time.Millisecond)})
}

func (l *logged) exit(exec, outcome string) {
	l.add(Record{What: Exit, Process: "p0", Exec: exec, Type: outcome})
}

// whole is an attempt of a step from its entry to its end, and its exit.
func (l *logged) whole(exec, workflow, run string, call Call, undo bool, held ...Held) {
	l.enter(exec, workflow, run, call, undo)
	l.begin(exec, held...)
	l.end(exec)
	l.exit(exec, "")
}

func (l *logged) scope(what, workflow, run, scope, outcome string) {
	l.add(Record{What: what, Workflow: workflow, Run: run, Scope: scope, Error: outcome, Type: outcome})
}

// task is what code of the first workflow's run wrote in a workflow task.
func (l *logged) task(task int64, what, scope, outcome string) {
	l.add(Record{What: what, Workflow: "f_w1", Run: "r1", Scope: scope, Error: outcome, Type: outcome, Task: task})
}

var account = Need{Name: "account"}

// step is a step of a saga, or outside of one, which keeps its locks as long as that.
func step(id int, instance string, needs ...Need) Call {
	return Call{Node: Node{Kind: Step, ID: id, Needs: needs, Undo: "step"}, Instance: instance, Kept: instance}
}

func fence(of int64) Held { return Held{Resource: "account", Fence: of} }

// plan has a workflow of a saga of two steps.
var twoSteps = Plan{Workflows: []Workflow{{ID: "w1", Input: Input{Body: Node{Kind: Saga, ID: 1, Children: []Node{
	{Kind: Step, ID: 2, Undo: "step"}, {Kind: Step, ID: 3, Undo: "step"},
}}}}}}

func TestTheChecksFindWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		write func(l *logged)
		want  []string
	}{
		"a step beside a step": {func(l *logged) {
			l.enter("a", "f_w1", "r1", step(2, "", account), false)
			l.begin("a", fence(1))
			l.whole("b", "f_w2", "r2", step(2, "", account), false, fence(2))
			l.end("a")
		}, []string{"isolation"}},
		"a step after a step": {func(l *logged) {
			l.whole("a", "f_w1", "r1", step(2, "", account), false, fence(1))
			l.whole("b", "f_w2", "r2", step(2, "", account), false, fence(2))
		}, nil},
		"readers beside each other": {func(l *logged) {
			l.enter("a", "f_w1", "r1", step(2, "", Need{Name: "account", Shared: true}), false)
			l.begin("a")
			l.whole("b", "f_w2", "r2", step(2, "", Need{Name: "account", Shared: true}), false)
			l.end("a")
		}, nil},
		"two steps of scope step beside each other in one workflow": {func(l *logged) {
			l.enter("a", "f_w1", "r1", step(2, "", account), false)
			l.begin("a")
			l.whole("b", "f_w1", "r1", step(3, "", account), false)
			l.end("a")
		}, []string{"isolation"}},
		"a step between two steps of another saga": {func(l *logged) {
			l.whole("a", "f_w1", "r1", step(2, "1.1", account), false, fence(1))
			l.whole("b", "f_w2", "r2", step(2, "", account), false, fence(2))
			l.whole("c", "f_w1", "r1", step(3, "1.1", account), false, fence(3))
			l.scope(Leaving, "f_w1", "r1", "1.1", "")
			l.scope(Returned, "f_w1", "r1", "1.1", "")
		}, []string{"isolation"}},
		"the same, and the saga was told of its loss": {func(l *logged) {
			l.add(Record{What: Killed, Other: "p9"})
			l.whole("a", "f_w1", "r1", step(2, "1.1", account), false, fence(1))
			l.whole("b", "f_w2", "r2", step(2, "", account), false, fence(2))
			l.scope(Leaving, "f_w1", "r1", "1.1", "lost")
			l.whole("c", "f_w1", "r1", step(2, "1.1", account), true, fence(3))
			l.scope(Returned, "f_w1", "r1", "1.1", "lost")
		}, nil},
		"a compensation that gave up to another, after an operator ended a hold": {func(l *logged) {
			l.add(Record{What: Meddled, Workflow: "f_w1", Type: "break"})
			failed := "it was not undone: a step gave up waiting, since it was in a deadlock"
			l.add(Record{What: Leaving, Workflow: "f_w1", Run: "r1", Scope: "root", Error: failed, Type: "sagaerror"})
			l.add(Record{What: Returned, Workflow: "f_w1", Run: "r1", Scope: "root", Error: "Failed", Type: "sagaerror"})
		}, nil},
		"a loss without a fault": {func(l *logged) {
			l.scope(Leaving, "f_w1", "r1", "1.1", "lost")
			l.scope(Returned, "f_w1", "r1", "1.1", "lost")
		}, []string{"unexplained"}},
		"a step after a short HoldTTL, in a saga that fails": {func(l *logged) {
			short := step(2, "1.1", account)
			short.Node.HoldTTL, short.Node.Undo = time.Second, ""
			l.add(Record{What: Killed, Other: "p9"})
			l.whole("a", "f_w1", "r1", short, false, fence(1))
			l.whole("b", "f_w2", "r2", step(2, "", account), false, fence(2))
			l.scope(Leaving, "f_w1", "r1", "1.1", "deadlock")
			l.scope(Returned, "f_w1", "r1", "1.1", "deadlock")
		}, nil},
		"the same, in a saga that commits": {func(l *logged) {
			short := step(2, "1.1", account)
			short.Node.HoldTTL, short.Node.Undo = time.Second, ""
			l.whole("a", "f_w1", "r1", short, false, fence(1))
			l.whole("b", "f_w2", "r2", step(2, "", account), false, fence(2))
			l.scope(Leaving, "f_w1", "r1", "1.1", "")
			l.scope(Returned, "f_w1", "r1", "1.1", "")
		}, []string{"isolation"}},
		"a step before a Lock, of which a workflow task came to nothing": {func(l *logged) {
			locked := Record{What: Locked, Workflow: "f_w1", Run: "r1", Scope: "5", Needs: []Need{account}}
			l.add(locked)
			l.add(Record{What: Killed, Other: "p9"})
			l.whole("b", "f_w2", "r2", step(2, "", account), false, fence(2))
			l.add(locked)
			l.scope(Leaving, "f_w1", "r1", "5", "")
		}, nil},
		"a step before its saga is undone, of an attempt that came late": {func(l *logged) {
			l.scope(Leaving, "f_w1", "r1", "1.1", "cancelled")
			l.enter("a", "f_w1", "r1", step(2, "1.1", account), false)
			l.add(Record{What: Seen, Workflow: "f_w1", Run: "r1", Scope: "1/step", Trusted: int64(len(l.records)) * int64(time.Millisecond)})
			l.begin("a", fence(1))
			l.end("a")
			l.exit("a", "")
			l.whole("b", "f_w1", "r1", step(2, "1.1", account), true, fence(1))
			l.scope(Returned, "f_w1", "r1", "1.1", "cancelled")
		}, nil},
		"a step that keeps its place long after its saga": {func(l *logged) {
			l.add(Record{What: Seen, Workflow: "f_w1", Run: "r1", Scope: "1/step", Trusted: int64(time.Second)})
			l.scope(Leaving, "f_w1", "r1", "1.1", "cancelled")
			l.scope(Returned, "f_w1", "r1", "1.1", "cancelled")
			l.add(Record{What: Seen, Workflow: "f_w1", Run: "r1", Scope: "1/step", Trusted: leavesWithin + int64(time.Second)})
		}, []string{"places"}},
		"a step inside a Lock": {func(l *logged) {
			l.add(Record{What: Locked, Workflow: "f_w1", Run: "r1", Scope: "5", Needs: []Need{account}})
			l.whole("b", "f_w2", "r2", step(2, "", account), false)
			l.scope(Leaving, "f_w1", "r1", "5", "")
		}, []string{"isolation"}},
		"a semaphore of two with three in it": {func(l *logged) {
			two := Need{Name: "account", Shared: true, Limit: 2}
			for _, exec := range []string{"a", "b", "c"} {
				l.enter(exec, "f_w"+exec, "r"+exec, step(2, "", two), false)
				l.begin(exec)
			}
			l.end("a")
			l.end("b")
			l.end("c")
		}, []string{"limit"}},
		"an attempt without an end trusts its locks until its process is stopped": {func(l *logged) {
			l.enter("a", "f_w1", "r1", step(2, "", account), false)
			l.begin("a")
			l.add(Record{What: Stopped, Other: "p0"})
			l.whole("b", "f_w2", "r2", step(2, "", account), false)
			l.add(Record{What: Killed, Other: "p0"})
		}, nil},
		"a step that its killed process cannot end, beside another one before the kill": {func(l *logged) {
			l.enter("a", "f_w1", "r1", step(2, "", account), false)
			l.begin("a")
			l.whole("b", "f_w2", "r2", step(2, "", account), false)
			l.add(Record{What: Killed, Other: "p0"})
		}, []string{"isolation"}},
		"a fence that is not greater": {func(l *logged) {
			l.whole("a", "f_w1", "r1", step(2, "", account), false, fence(7))
			l.whole("b", "f_w2", "r2", step(2, "", account), false, fence(7))
		}, []string{"fences"}},
		"a compensation beside its step": {func(l *logged) {
			l.enter("a", "f_w1", "r1", step(2, "1.1", account), false)
			l.begin("a", fence(1))
			l.scope(Leaving, "f_w1", "r1", "1.1", "planned")
			l.whole("u", "f_w1", "r1", step(2, "1.1", account), true, fence(2))
			l.end("a")
			l.scope(Returned, "f_w1", "r1", "1.1", "planned")
		}, []string{"undo", "barred"}},
		"a compensation of a step that never ran": {func(l *logged) {
			l.enter("a", "f_w1", "r1", step(2, "1.1", account), false)
			l.exit("a", "deadlock")
			l.scope(Leaving, "f_w1", "r1", "1.1", "deadlock")
			l.whole("u", "f_w1", "r1", step(2, "1.1", account), true, fence(2))
			l.scope(Returned, "f_w1", "r1", "1.1", "deadlock")
		}, []string{"vain"}},
		"a step after its compensation": {func(l *logged) {
			l.scope(Leaving, "f_w1", "r1", "1.1", "planned")
			l.whole("u", "f_w1", "r1", step(2, "1.1", account), true, fence(2))
			l.whole("a", "f_w1", "r1", step(2, "1.1", account), false, fence(3))
			l.scope(Returned, "f_w1", "r1", "1.1", "planned")
		}, []string{"undo"}},
		"a failed saga whose step was not undone": {func(l *logged) {
			l.whole("a", "f_w1", "r1", step(2, "1.1", account), false)
			l.scope(Leaving, "f_w1", "r1", "1.1", "planned")
			l.scope(Returned, "f_w1", "r1", "1.1", "planned")
		}, []string{"atomicity"}},
		"a committed saga whose step was undone": {func(l *logged) {
			l.whole("a", "f_w1", "r1", step(2, "1.1", account), false)
			l.scope(Leaving, "f_w1", "r1", "1.1", "")
			l.whole("u", "f_w1", "r1", step(2, "1.1", account), true)
			l.scope(Returned, "f_w1", "r1", "1.1", "")
		}, []string{"atomicity"}},
		"a saga that was undone with the one around it": {func(l *logged) {
			l.whole("a", "f_w1", "r1", step(3, "1.1/2.1"), false)
			l.scope(Leaving, "f_w1", "r1", "1.1/2.1", "")
			l.scope(Returned, "f_w1", "r1", "1.1/2.1", "")
			l.scope(Leaving, "f_w1", "r1", "1.1", "planned")
			l.whole("u", "f_w1", "r1", step(3, "1.1/2.1"), true)
			l.scope(Returned, "f_w1", "r1", "1.1", "planned")
		}, nil},
		"a saga that was not undone with the one around it": {func(l *logged) {
			l.whole("a", "f_w1", "r1", step(3, "1.1/2.1"), false)
			l.scope(Leaving, "f_w1", "r1", "1.1/2.1", "")
			l.scope(Returned, "f_w1", "r1", "1.1/2.1", "")
			l.scope(Leaving, "f_w1", "r1", "1.1", "planned")
			l.scope(Returned, "f_w1", "r1", "1.1", "planned")
		}, []string{"atomicity"}},
		"a saga that was undone in the order of its steps": {func(l *logged) {
			l.whole("a", "f_w1", "r1", step(2, "1.1"), false)
			l.whole("b", "f_w1", "r1", step(3, "1.1"), false)
			l.scope(Leaving, "f_w1", "r1", "1.1", "planned")
			l.whole("v", "f_w1", "r1", step(2, "1.1"), true)
			l.whole("u", "f_w1", "r1", step(3, "1.1"), true)
			l.scope(Returned, "f_w1", "r1", "1.1", "planned")
		}, []string{"atomicity"}},
		"a saga that was undone well": {func(l *logged) {
			l.whole("a", "f_w1", "r1", step(2, "1.1"), false)
			l.whole("b", "f_w1", "r1", step(3, "1.1"), false)
			l.scope(Leaving, "f_w1", "r1", "1.1", "planned")
			l.whole("u", "f_w1", "r1", step(3, "1.1"), true)
			l.whole("v", "f_w1", "r1", step(2, "1.1"), true)
			l.scope(Returned, "f_w1", "r1", "1.1", "planned")
		}, nil},
		"a saga inside a compensation": {func(l *logged) {
			l.whole("a", "f_w1", "r1", step(2, "1.1"), false)
			l.scope(Leaving, "f_w1", "r1", "1.1", "planned")
			l.whole("b", "f_w1", "r1", step(2, "1.1/2u.1"), false)
			l.whole("u", "f_w1", "r1", step(2, "1.1"), true)
			l.scope(Leaving, "f_w1", "r1", "1.1/2u.1", "")
			l.scope(Returned, "f_w1", "r1", "1.1/2u.1", "")
			l.scope(Returned, "f_w1", "r1", "1.1", "planned")
		}, nil},
		"a saga inside a compensation that is undone with the one around it": {func(l *logged) {
			l.whole("a", "f_w1", "r1", step(2, "1.1"), false)
			l.scope(Leaving, "f_w1", "r1", "1.1", "planned")
			l.whole("b", "f_w1", "r1", step(2, "1.1/2u.1"), false)
			l.whole("u", "f_w1", "r1", step(2, "1.1"), true)
			l.scope(Leaving, "f_w1", "r1", "1.1/2u.1", "")
			l.scope(Returned, "f_w1", "r1", "1.1/2u.1", "")
			l.whole("v", "f_w1", "r1", step(2, "1.1/2u.1"), true)
			l.scope(Returned, "f_w1", "r1", "1.1", "planned")
		}, []string{"atomicity"}},
		"a step while a saga that committed decides again": {func(l *logged) {
			l.whole("a", "f_w1", "r1", step(2, "1.1", account), false, fence(1))
			l.task(3, Leaving, "1.1", "")
			l.task(3, Returned, "1.1", "")
			l.whole("b", "f_w2", "r2", step(2, "", account), false, fence(2))
			l.task(8, Leaving, "1.1", "planned")
			l.whole("u", "f_w1", "r1", step(2, "1.1", account), true, fence(3))
			l.task(8, Returned, "1.1", "planned")
			l.add(Record{What: Recorded, Workflow: "f_w1", Run: "r1", Tasks: []int64{8}})
		}, []string{"isolation"}},
		"a step after a saga whose lost decisions came late": {func(l *logged) {
			l.whole("a", "f_w1", "r1", step(2, "1.1", account), false, fence(1))
			l.task(8, Leaving, "1.1", "")
			l.task(8, Returned, "1.1", "")
			l.whole("b", "f_w2", "r2", step(2, "", account), false, fence(2))
			l.task(3, Leaving, "1.1", "planned")
			l.add(Record{What: Recorded, Workflow: "f_w1", Run: "r1", Tasks: []int64{8}})
		}, nil},
		"a signal that no run received": {func(l *logged) {
			l.add(Record{What: Signalled, Workflow: "f_w1", Other: "s"})
			l.add(Record{What: Signalled, Workflow: "f_w1", Other: "refused", Error: "not found"})
			l.add(Record{What: Closed, Workflow: "f_w1", Run: "r1", Error: "Completed"})
		}, []string{"signals"}},
		"a signal that a lost workflow task received": {func(l *logged) {
			l.add(Record{What: Signalled, Workflow: "f_w1", Other: "s"})
			l.add(Record{What: Heard, Workflow: "f_w1", Run: "r1", Other: "s", Task: 3})
			l.add(Record{What: Recorded, Workflow: "f_w1", Run: "r1", Tasks: []int64{8}})
			l.add(Record{What: Closed, Workflow: "f_w1", Run: "r1", Error: "Completed"})
		}, []string{"signals"}},
		"a signal that was received": {func(l *logged) {
			l.add(Record{What: Signalled, Workflow: "f_w1", Other: "s"})
			l.add(Record{What: Heard, Workflow: "f_w1", Run: "r1", Other: "s", Task: 8})
			l.add(Record{What: Recorded, Workflow: "f_w1", Run: "r1", Tasks: []int64{8}})
			l.add(Record{What: Closed, Workflow: "f_w1", Run: "r1", Error: "Failed"})
		}, nil},
		"a signal to a workflow that was terminated": {func(l *logged) {
			l.add(Record{What: Signalled, Workflow: "f_w1", Other: "s"})
			l.add(Record{What: Meddled, Workflow: "f_w1", Type: "terminate"})
			l.add(Record{What: Closed, Workflow: "f_w1", Run: "r1", Error: "Terminated"})
		}, nil},
		"a compensation with changed arguments": {func(l *logged) {
			l.whole("a", "f_w1", "r1", step(2, "1.1"), false)
			l.scope(Leaving, "f_w1", "r1", "1.1", "planned")
			changed := step(2, "1.1")
			changed.Changed = true
			l.whole("u", "f_w1", "r1", changed, true)
			l.scope(Returned, "f_w1", "r1", "1.1", "planned")
		}, []string{"arguments"}},
		"a Lock that is held and was left out": {func(l *logged) {
			l.add(Record{What: Skipped, Workflow: "f_w1", Run: "r1", Scope: "5", Needs: []Need{account}})
			l.add(Record{What: Holds, Workflow: "f_w1", Run: "r1", Other: "account", Trusted: int64(2 * time.Millisecond)})
		}, []string{"unknown"}},
		"a Lock that another run holds": {func(l *logged) {
			l.add(Record{What: Skipped, Workflow: "f_w1", Run: "r1", Scope: "5", Needs: []Need{account}})
			l.add(Record{What: Holds, Workflow: "f_w1", Run: "r0", Other: "account", Trusted: int64(2 * time.Millisecond)})
		}, nil},
		"a saga that could not be undone, without a fault": {func(l *logged) {
			l.whole("a", "f_w1", "r1", step(2, "1.1", account), false)
			l.scope(Leaving, "f_w1", "r1", "1.1", "planned")
			l.enter("u", "f_w1", "r1", step(2, "1.1", account), true)
			l.exit("u", "deadlock")
			l.scope(Returned, "f_w1", "r1", "1.1", "sagaerror")
		}, []string{"unexplained"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l logged
			c.write(&l)
			for i := range l.records { // steps outside of sagas have scope step
				if call := l.records[i].Call; call != nil && call.Instance == "" {
					call.Kept = ""
				}
			}
			var got []string
			for _, v := range Check(twoSteps, l.records) {
				got = append(got, v.Check)
			}
			require.Equal(t, c.want, got)
		})
	}
}

// A compensation that does not belong to a step must not run beside any guarded step of its saga.
func TestCheckBarred_CompensationBesideAnotherStep_IsFound(t *testing.T) {
	t.Parallel()
	for name, instance := range map[string]string{"same saga": "1.1", "saga inside it": "1.1/4.1", "saga around it": "", "saga inside a compensation": "1.1/3u.1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l logged
			l.enter("a", "f_w1", "r1", step(3, instance, account), false)
			l.begin("a", fence(1))
			l.scope(Leaving, "f_w1", "r1", "1.1", "planned")
			l.whole("u", "f_w1", "r1", step(2, "1.1"), true)
			l.end("a")
			l.scope(Returned, "f_w1", "r1", "1.1", "planned")
			s := Read(l.records)
			require.Equal(t, name == "same saga" || name == "saga inside it", len(s.checkBarred()) == 1)
		})
	}
}

// What a saga of a run that hands over has stays its own until the next run asks for it.
func TestWhatIsHandedOverIsKept(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]bool{"nobody in between": false, "somebody in between": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l logged
			l.whole("a", "f_w1", "r1", step(2, "1.1", account), false, fence(1))
			l.scope(HandOver, "f_w1", "r1", "1.1", "")
			if between {
				l.whole("b", "f_w2", "r2", step(2, "", account), false, fence(2))
			}
			l.whole("c", "f_w1", "r3", step(2, "1.1", account), false, fence(3))
			violations := Check(twoSteps, l.records)
			require.Equal(t, between, len(violations) > 0, violations)
		})
	}
}

func TestAPlanIsTheSameForTheSameSeed(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		plan := NewPlan(seed)
		require.Equal(t, plan, NewPlan(seed))
		require.GreaterOrEqual(t, len(plan.Workflows), 50)
		require.LessOrEqual(t, len(plan.Workflows), 200)
	}
}
