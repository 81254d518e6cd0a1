package main

import (
	"slices"
	"strings"
)

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
