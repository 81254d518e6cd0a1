package main

import (
	"fmt"
	"slices"
	"strings"
)

// checkAtomicity finds sagas that failed and were not undone, newest first, and sagas that committed and were.
func (s *Story) checkAtomicity() {
	byRun := map[string][]*Attempt{}
	for _, a := range s.attempts {
		if a.begin != 0 {
			byRun[a.Run] = append(byRun[a.Run], a)
		}
	}
	for _, scope := range s.scopes {
		if !scope.isSaga() {
			continue
		}
		failed, known := scope.failed()
		decides := scope
		for outer := s.around(scope); known && !failed && outer != nil; outer = s.around(outer) {
			failed, known = outer.failed() // it undoes what has succeeded inside it
			decides = outer
		}
		if !known {
			continue
		}
		steps := map[int]*undoable{}
		for _, a := range byRun[scope.run] {
			if a.Call.Instance == scope.name && a.Call.Node.Undo != "" {
				add(steps, a)
			}
		}
		s.checkSaga(scope, decides, failed, steps, s.planned(scope.workflow).positions())
	}
}

// undoable is a step of a saga, and its compensation.
type undoable struct {
	id        int
	began     bool  // the step's code has run
	done      bool  // and its success was returned to Temporal
	undoBegan int64 // 0 if it did not
	undoEnded int64 // when an attempt of it succeeded
}

func add(steps map[int]*undoable, a *Attempt) {
	step := steps[a.Call.Node.ID]
	if step == nil {
		step = &undoable{id: a.Call.Node.ID}
		steps[step.id] = step
	}
	if !a.Undo {
		step.began = true
		step.done = step.done || a.completed()
		return
	}
	if step.undoBegan == 0 {
		step.undoBegan = a.begin
	}
	if a.completed() && step.undoEnded == 0 {
		step.undoEnded = a.end
	}
}

// around returns the saga around a saga, nil if there is none that undoes it: one inside a compensation is never undone by another.
func (s *Story) around(scope *Scope) *Scope {
	for name := scope.name; strings.Contains(name, "/") && !strings.Contains(name[strings.LastIndex(name, "/"):], inUndo); {
		name = name[:strings.LastIndex(name, "/")]
		if outer := s.byScope[[2]string{scope.run, name}]; outer != nil && outer.isSaga() {
			return outer
		}
	}
	return nil
}

// checkSaga checks a saga. decides is the one whose end decides whether it is undone: itself, or one around it.
func (s *Story) checkSaga(scope, decides *Scope, failed bool, steps map[int]*undoable, at map[int]position) {
	wrong := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		s.found("atomicity", scope.leaving.At, []string{scope.workflow}, "%s: saga %s: %s", scope.workflow, scope.name, text)
	}
	undone := decides.returned != nil && decides.returned.Type != "sagaerror"
	for _, step := range steps {
		switch {
		case !failed && step.undoBegan != 0:
			wrong("it committed, and step %d was undone", step.id)
		case failed && undone && step.began && step.undoEnded == 0:
			wrong("it failed, and step %d was not undone", step.id)
		}
		for _, later := range steps {
			if failed && step.done && later.done && at[step.id].before(at[later.id]) &&
				step.undoBegan != 0 && step.undoBegan < later.undoEnded {
				wrong("step %d was undone before step %d, which came after it", step.id, later.id)
			}
		}
	}
}

// checkBarred finds compensations that ran at the same time as a guarded step of their own saga, or of a saga inside it.
func (s *Story) checkBarred() {
	for _, u := range s.attempts {
		scope := s.byScope[[2]string{u.Run, u.Call.Instance}]
		if !u.Undo || !u.ran() || scope == nil {
			continue
		}
		for failed, _ := scope.failed(); !failed && s.around(scope) != nil; failed, _ = scope.failed() {
			scope = s.around(scope) // it undoes what has succeeded inside it
		}
		for _, a := range s.attempts {
			ofSaga := a.Run == u.Run && (a.Call.Instance == scope.name || strings.HasPrefix(a.Call.Instance, scope.name+"/"))
			if !ofSaga || a.Undo || strings.Contains(a.Call.Instance, inUndo) || !a.ran() || len(a.held) == 0 {
				continue
			}
			if a.begin < u.trusted && u.begin < a.trusted {
				s.found("barred", max(a.begin, u.begin), []string{a.Workflow},
					"%s: the compensation of %s (%s) and %s (%s) of saga %s ran at the same time",
					a.Workflow, u.step(), u.Exec, a.step(), a.Exec, scope.name)
			}
		}
	}
}

// checkVain finds compensations of steps that never ran, in a run that knows it: each attempt found its
// locks busy, and was the first of its scheduling. Nothing is known if a process died, an operator
// interfered, a rule was involved, or the workflow had one of the step's resources before, perhaps in a
// step that then waited for another one.
func (s *Story) checkVain() {
	if !s.isCalm() {
		return
	}
	ran := map[string]bool{}
	for _, a := range s.attempts {
		vain := (a.outcome == "busy" || a.outcome == "deadlock") && a.exit != 0 && a.begin == 0 && a.Attempt == 1
		ran[a.key()] = ran[a.key()] || !a.Undo && !vain
	}
	tried := map[string]bool{}
	for _, a := range s.attempts {
		if !a.Undo {
			tried[a.key()] = true
			continue
		}
		scope := s.byScope[[2]string{a.Run, a.Call.Instance}]
		if a.Call.Node.Undo != "step" || len(a.Call.Node.Rule) > 0 || !tried[a.key()] || ran[a.key()] || s.meddled(a.Workflow) || s.hadBefore(a) ||
			scope == nil || scope.leaving == nil || scope.leaving.Type != "deadlock" && scope.leaving.Type != "busy" {
			continue
		}
		ran[a.key()] = true // once is enough
		s.found("vain", a.At, []string{a.Workflow}, "%s: the compensation of %s ran, which never did", a.Workflow, a.step())
	}
}

// hadBefore reports whether another step of the workflow may have held one of the attempt's resources before.
func (s *Story) hadBefore(a *Attempt) bool {
	return slices.ContainsFunc(s.attempts, func(b *Attempt) bool {
		return b.Workflow == a.Workflow && b.key() != a.key() && (b.begin != 0 && b.begin < a.At || len(b.Call.Node.Needs) > 1 && b.At < a.At) && slices.ContainsFunc(b.Call.Node.Needs, func(n Need) bool {
			return slices.ContainsFunc(a.Call.Node.Needs, func(own Need) bool { return own.Name == n.Name })
		})
	})
}

// position locates a node in the plan: the index among its siblings at each level, negative for parallel siblings.
type position []int

// positions returns the positions of all nodes by their IDs.
func (w *Workflow) positions() map[int]position {
	at := map[int]position{}
	place(&w.Input.Body, nil, at)
	for n := range w.Updates {
		place(&w.Updates[n].Body, position{-1 - n}, at) // in no order with the others
	}
	return at
}

func place(n *Node, here position, at map[int]position) {
	at[n.ID] = here
	for i := range n.Children {
		index := i + 1
		if n.Kind == Par {
			index = -index
		}
		place(&n.Children[i], append(here[:len(here):len(here)], index), at)
	}
}

// before reports whether a node is always done when the other begins.
func (p position) before(other position) bool {
	for i := range min(len(p), len(other)) {
		if p[i] != other[i] {
			return p[i] > 0 && other[i] > 0 && p[i] < other[i]
		}
	}
	return false
}

// checkSignals finds signals that the server accepted and that no run received. A workflow receives all signals before each of
// its runs ends, and the server does not close a run that has received a signal since. Workflows that were terminated, reset or
// restarted are excluded, because the signal may have gone to the run that was ended.
func (s *Story) checkSignals() {
	for _, r := range s.of[Signalled] {
		heard := slices.ContainsFunc(s.of[Heard], func(h *Record) bool { return h.Workflow == r.Workflow && h.Other == r.Other })
		if r.Error != "" || heard || !s.endedItself(r.Workflow) || s.endedLate(r.Workflow) {
			continue
		}
		s.found("signals", r.At, []string{r.Workflow}, "%s: the signal of %s was accepted, and no run received it", r.Workflow, r.Other)
	}
}

// endedItself reports whether a workflow's last run ended by the workflow's own decision, and nothing ended an earlier one.
func (s *Story) endedItself(workflow string) bool {
	ended := ""
	for _, r := range s.of[Closed] {
		if r.Workflow == workflow {
			ended = r.Error
		}
	}
	return slices.Contains([]string{"Completed", "Failed", "Canceled"}, ended) && !s.replaced(workflow)
}

// endedLate reports whether a run received its signals in a workflow task before its last one. This is permitted if processes
// are stopped, because the commit of a saga in between falls back to an ordinary activity if the database does not answer.
func (s *Story) endedLate(workflow string) bool {
	return !s.isCalm() && slices.ContainsFunc(s.of[Drained], func(r *Record) bool {
		tasks := s.recorded[r.Run]
		return r.Workflow == workflow && len(tasks) > 0 && r.Task < slices.Max(tasks)
	})
}

// checkIgnored finds sagas that have committed although one of their steps has reported a loss.
func (s *Story) checkIgnored() {
	for _, r := range s.of[Ignored] {
		scope := s.byScope[[2]string{r.Run, r.Scope}]
		if r.Type != "lost" || scope == nil || !scope.isSaga() || s.ofRule(r) {
			continue
		}
		if failed, known := scope.failed(); known && !failed {
			s.found("ignored", r.At, []string{r.Workflow}, "%s: saga %s committed after a step had reported: %s", r.Workflow, r.Scope, r.Error)
		}
	}
}

// ofRule reports whether a loss is that of a rule's lock. It ends with its step, and a saga does not verify it.
func (s *Story) ofRule(lost *Record) bool {
	return slices.ContainsFunc(s.attempts, func(a *Attempt) bool {
		return a.Run == lost.Run && a.outcome == "lost" && slices.ContainsFunc(a.Call.Node.Rule, func(n Need) bool {
			return strings.Contains(lost.Error, fmt.Sprintf("lock on %q", n.Name))
		})
	})
}

// checkArguments finds steps and compensations whose arguments the caller changed after it had scheduled the step.
func (s *Story) checkArguments() {
	for _, a := range s.attempts {
		if !a.Call.Changed {
			continue
		}
		what := a.step()
		if a.Undo {
			what = "the compensation of " + what
		}
		s.found("arguments", a.At, []string{a.Workflow},
			"%s: %s (%s) got arguments that were changed after it was scheduled", a.Workflow, what, a.Exec)
	}
}

// checkSkipped finds locks that a run holds although its code did not take them.
func (s *Story) checkSkipped() {
	for _, skip := range s.of[Skipped] {
		for _, h := range s.of[Holds] {
			if h.Run == skip.Run && h.Trusted > skip.At && slices.ContainsFunc(skip.Needs, func(n Need) bool { return n.Name == h.Other }) {
				s.found("unknown", h.At, []string{skip.Workflow},
					"%s: it holds %s, which its code has not locked", skip.Workflow, h.Other)
				break
			}
		}
	}
}

// checkUpdates finds updates that were refused and yet ran steps, and updates that completed although the saga or the Lock of their
// handler did not succeed. A workflow that was terminated, reset or restarted is excluded from the latter: the update belongs to a run
// whose later records do not count.
func (s *Story) checkUpdates() {
	for _, r := range s.of[Updated] {
		for i, u := range s.planned(r.Workflow).Updates {
			switch {
			case itoa(i) != r.Other:
			case u.Refuse && s.ranPart(r.Workflow, &u.Body):
				s.found("updates", r.At, []string{r.Workflow}, "%s: update %d was refused, and its steps ran", r.Workflow, i)
			case !u.Refuse && r.Error == "" && !s.succeeded(r.Workflow, &u.Body) && !s.replaced(r.Workflow):
				s.found("updates", r.At, []string{r.Workflow}, "%s: update %d completed, and its handler has not succeeded", r.Workflow, i)
			}
		}
	}
}

// ranPart reports whether a step of a node has run.
func (s *Story) ranPart(workflow string, n *Node) bool {
	steps := map[int]bool{}
	n.each(func(n *Node) { steps[n.ID] = n.Kind == Step })
	return slices.ContainsFunc(s.attempts, func(a *Attempt) bool { return a.Workflow == workflow && a.begin != 0 && steps[a.Call.Node.ID] })
}

// succeeded reports whether a scope of a saga or a Lock has ended without an error, or was left out.
func (s *Story) succeeded(workflow string, n *Node) bool {
	return slices.ContainsFunc(s.scopes, func(scope *Scope) bool {
		id, _, _ := strings.Cut(scope.name, ".")
		failed, known := scope.failed()
		return scope.workflow == workflow && id == itoa(n.ID) && known && !failed
	}) || slices.ContainsFunc(s.of[Skipped], func(r *Record) bool { return r.Workflow == workflow && r.Scope == itoa(n.ID) })
}

// replaced reports whether an operator has ended a run of the workflow.
func (s *Story) replaced(workflow string) bool {
	return s.meddled(workflow, "terminate", "reset", "restart")
}
