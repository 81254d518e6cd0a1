package main

import (
	"fmt"
	"time"
)

// directed returns workflows for situations that random ones rarely reach: a saga that is cancelled long after its step has
// parked; a saga whose lock is broken while it sleeps; a Lock whose workflow task is lost and that the next one leaves out; sagas
// that receive a signal at their end while another workflow waits for their locks; a saga that fails after the saga inside it has
// succeeded; a saga that fails while an attempt that timed out still runs, although a later one succeeded; runs that continue a hand-over
// and do not hand over.
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
	all[1].Input.Body.Children[0].UndoTime = 4 * time.Second // longer than a place may be seen after its wait
	all[3].Input.Body.Children[1].Undo = ""
	all = append(all, p.leftOut(from+len(all)))
	all = append(all, p.decideAgain()...)
	all = append(all, p.deaf(), p.nested(), repeated(), drops(), drops())
	for i := range all {
		all[i].ID, all[i].directed = fmt.Sprintf("w%d", from+i), true
	}
	return all
}

// deaf returns a saga that is undone while one of its steps, which timed out, ignores its cancellation. The compensation is
// registered with CompensateWith, so that it does not know its step.
func (p *planner) deaf() Workflow {
	step := Node{Kind: Step, ID: 2, Needs: []Need{{Name: "q/deaf"}}, Undo: "with", Attempts: 1, Deaf: true}
	step.Time, step.Timeout = p.span(1300, 2000), time.Second
	return Workflow{Input: Input{Body: Node{Kind: Saga, ID: 1, Retries: -1, Children: []Node{step}}}}
}

// repeated returns a saga that fails after the second attempt of a step has succeeded, while the first one still runs.
func repeated() Workflow {
	step := Node{
		Kind: Step, ID: 2, Needs: []Need{{Name: "q/repeated"}}, Undo: "with", Attempts: 8, Deaf: true, Once: true,
		Time: 2500 * time.Millisecond, Timeout: time.Second,
	}
	fails := Node{Kind: Step, ID: 3, Timeout: 10 * time.Second, Attempts: 8, Fail: true}
	return Workflow{Input: Input{Body: Node{Kind: Saga, ID: 1, Retries: -1, Children: []Node{step, fails}}}}
}

// drops returns a saga that continues as new, and hands its locks over every second time. The run after that takes the first lock again
// while the many others are still released.
func drops() Workflow {
	step := func(id int) Node {
		return Node{
			Kind: Step, ID: id, Needs: []Need{{Name: "q/drops"}}, Undo: "step", Attempts: 8, Time: 20 * time.Millisecond, Timeout: 10 * time.Second,
		}
	}
	last := step(4)
	for i := range 40 {
		last.Needs = append(last.Needs, Need{Name: fmt.Sprintf("q/drops/%d", i)})
	}
	return Workflow{Input: Input{
		Body:  Node{Kind: Saga, ID: 1, Retries: -1, Children: []Node{step(2), {Kind: Sleep, ID: 3, Time: 50 * time.Millisecond}, last}},
		Again: 5, HandOver: true, Drops: true,
	}}
}

// nested returns a saga that fails after a saga inside it has succeeded. The caller of each step changes the arguments after it
// has scheduled the step, and one step is undone by a saga inside its compensation.
func (p *planner) nested() Workflow {
	step := func(id int, undo string) Node {
		return Node{
			Kind: Step, ID: id, Needs: []Need{{Name: fmt.Sprintf("q/nested%d", id)}}, Undo: undo, Reuse: true,
			Time: p.span(1, 30), Timeout: 10 * time.Second, Attempts: 8,
		}
	}
	inner := Node{Kind: Saga, ID: 2, Retries: -1, Children: []Node{step(3, "step"), step(4, "with"), step(5, "saga")}}
	fails := step(6, "step")
	fails.Fail = true
	return Workflow{Input: Input{Body: Node{Kind: Saga, ID: 1, Retries: -1, Children: []Node{inner, fails}}}}
}

// leftOut returns a Lock whose workflow task is lost. The next task has received a signal, and leaves the Lock out.
func (p *planner) leftOut(number int) Workflow {
	return Workflow{
		Input: Input{Body: Node{
			Kind: Lock, ID: 1, Needs: []Need{{Name: fmt.Sprintf("%sw%d", skipped, number)}}, Skip: true, Time: p.span(1000, 1500),
			Children: []Node{{Kind: Sleep, ID: 2, Time: p.span(100, 500)}},
		}},
		Interrupts: []Interrupt{{Nth: 1, Signal: true, Lose: true}},
	}
}

// decideAgain returns a saga and a Lock that heed a signal at their run's end, and a workflow that waits for their locks.
func (p *planner) decideAgain() []Workflow {
	const name = "q/again"
	needs := []Need{{Name: name}}
	do := Node{Kind: Step, ID: 2, Needs: needs, Undo: "step", Time: p.span(5, 50), Timeout: 10 * time.Second, Attempts: 8}
	more := do
	more.ID, more.Undo, more.Scope = 3, "", "saga"
	taker := Node{Kind: Seq, ID: 1}
	for id := range 16 {
		step := do
		step.ID, step.Undo = id+2, ""
		taker.Children = append(taker.Children, step)
	}
	atEnd := []Interrupt{{Closes: true, Nth: 1, Signal: true, Wait: p.span(150, 300)}}
	sleep := Node{Kind: Sleep, ID: 2, Time: p.span(5, 50)}
	return []Workflow{
		{Input: Input{Body: taker}},
		{Input: Input{Body: Node{Kind: Saga, ID: 1, Retries: -1, Heeds: true, Children: []Node{do}}}, Interrupts: atEnd},
		{Input: Input{Body: Node{Kind: Lock, ID: 1, Needs: needs, More: &more, Children: []Node{sleep}}}, Interrupts: atEnd},
	}
}
