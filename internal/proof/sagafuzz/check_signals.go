package main

import (
	"fmt"
	"slices"
)

// checkSignals finds signals that the server accepted and that no run received. A workflow receives all before each of its runs
// ends, and the server closes no run that a signal has reached since. It says nothing of workflows that were terminated, reset or
// restarted: a signal may have gone to the run that was ended.
func (s *Story) checkSignals() (all []Violation) {
	for _, r := range s.signals {
		if r.Error != "" || s.heard[[2]string{r.Workflow, r.Other}] || !s.endedItself(r.Workflow) || s.endedLate(r.Workflow) {
			continue
		}
		all = append(all, Violation{
			Check: "signals", At: r.At, Involved: []string{r.Workflow},
			Text: fmt.Sprintf("%s: the signal of %s was accepted, and no run received it", r.Workflow, r.Other),
		})
	}
	return all
}

// endedItself reports whether a workflow's last run ended by the workflow's own decision, and nothing ended an earlier one.
func (s *Story) endedItself(workflow string) bool {
	closed := s.closed[workflow]
	return closed != nil && slices.Contains([]string{"Completed", "Failed", "Canceled"}, closed.Error) && !slices.ContainsFunc(s.meddled[workflow],
		func(kind string) bool { return kind == "terminate" || kind == "reset" || kind == "restart" })
}

// endedLate reports whether a run received its signals in an earlier workflow task than its last, as it may if processes are
// stopped: the commit of a saga in between is a local activity, and an ordinary one if the database does not answer.
func (s *Story) endedLate(workflow string) bool {
	return !s.calm && slices.ContainsFunc(s.drained, func(r *Record) bool {
		tasks := s.recorded[r.Run]
		return r.Workflow == workflow && len(tasks) > 0 && r.Task < slices.Max(tasks)
	})
}

// checkArguments finds steps and compensations that got arguments which their caller changed after it had scheduled the step.
func (s *Story) checkArguments() (all []Violation) {
	for _, a := range s.attempts {
		if !a.Call.Changed {
			continue
		}
		what := a.step()
		if a.Undo {
			what = "the compensation of " + what
		}
		all = append(all, Violation{
			Check: "arguments", At: a.At, Involved: []string{a.Workflow},
			Text: fmt.Sprintf("%s: %s (%s) got arguments that were changed after it was scheduled", a.Workflow, what, a.Exec),
		})
	}
	return all
}

// checkSkipped finds locks that a run holds although its code has left them out.
func (s *Story) checkSkipped() (all []Violation) {
	for _, skip := range s.skips {
		for _, h := range s.holds {
			if h.Run == skip.Run && h.Trusted > skip.At && slices.ContainsFunc(skip.Needs, func(n Need) bool { return n.Name == h.Other }) {
				all = append(all, Violation{
					Check: "unknown", At: h.At, Involved: []string{skip.Workflow},
					Text: fmt.Sprintf("%s: it holds %s, which its code has not locked", skip.Workflow, h.Other),
				})
				break
			}
		}
	}
	return all
}
