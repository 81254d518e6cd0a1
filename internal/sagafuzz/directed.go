package main

import (
	"fmt"
	"time"
)

// directed are workflows that do what drawn ones seldom come to: a saga that is cancelled long
// after its step has parked, and one whose lock is broken while it does nothing but wait for its
// end.
func (p *planner) directed(from int) []Workflow {
	step := func(id int, name string, takes time.Duration) Node {
		return Node{Kind: Step, ID: id, Needs: []Need{{Name: name}}, Undo: "step", Time: takes, Timeout: 10 * time.Second, Attempts: 8}
	}
	saga := func(second Node) Node {
		return Node{Kind: Saga, ID: 1, Retries: -1, Children: []Node{step(2, fmt.Sprintf("q/%d", second.ID), 10*time.Millisecond), second}}
	}
	all := []Workflow{
		{Input: Input{Body: step(1, "q/0", p.span(4500, 5500))}},
		{Input: Input{Body: saga(step(3, "q/0", 10*time.Millisecond))}, Faults: []WorkflowFault{{Kind: "cancel", After: p.span(3000, 3800)}}},
		{
			Input:  Input{Body: saga(Node{Kind: Sleep, ID: 4, Time: p.span(2000, 2500)})},
			Faults: []WorkflowFault{{Kind: "break", After: p.span(600, 1000)}},
		},
		{Input: Input{Body: Node{Kind: Seq, ID: 2, Children: []Node{{Kind: Sleep, ID: 3, Time: p.span(300, 500)}, step(1, "q/4", 10*time.Millisecond)}}}},
	}
	all[0].Input.Body.Undo = ""
	all[3].Input.Body.Children[1].Undo = ""
	for i := range all {
		all[i].ID = fmt.Sprintf("w%d", from+i)
	}
	return all
}
