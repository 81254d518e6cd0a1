package main

import (
	"fmt"
	"slices"
	"time"
)

// guarded returns a step that takes one resource.
func guarded(id int, name, undo string, takes time.Duration) Node {
	return Node{Kind: Step, ID: id, Needs: []Need{{Name: name}}, Undo: undo, Time: takes, Timeout: 10 * time.Second, Attempts: 8}
}

func sleep(id int, long time.Duration) Node { return Node{Kind: Sleep, ID: id, Time: long} }

// runs returns a workflow with a body and faults.
func runs(body Node, faults ...WorkflowFault) Workflow {
	return Workflow{Input: Input{Body: body}, Faults: faults}
}

func sagaOf(children ...Node) Node { return Node{Kind: Saga, ID: 1, Retries: -1, Children: children} }

// numbered gives directed workflows the IDs from a number on.
func numbered(all []Workflow, from int) []Workflow {
	for i := range all {
		all[i].ID, all[i].directed = fmt.Sprintf("w%d", from+i), true
	}
	return all
}

// directed returns workflows for situations that random ones rarely reach: a saga that is cancelled long after its step has
// parked; a saga whose lock is broken while it sleeps; a Lock whose workflow task is lost and that the next one leaves out; sagas
// that receive a signal at their end while another workflow waits for their locks; a saga that fails after the saga inside it has
// succeeded; a saga that fails while an attempt that timed out still runs, although a later one succeeded; runs that continue a hand-over
// and do not hand over.
func (p *planner) directed(from int) []Workflow {
	const brief = 10 * time.Millisecond
	slowly := guarded(2, "q/3", "step", brief)
	slowly.UndoTime = 4 * time.Second // longer than a place may be seen after its wait
	all := []Workflow{
		runs(guarded(1, "q/0", "", p.span(4500, 5500))),
		runs(sagaOf(slowly, guarded(3, "q/0", "step", brief)), WorkflowFault{Kind: "cancel", After: p.span(3000, 3800)}),
		runs(sagaOf(guarded(2, "q/4", "step", brief), sleep(4, p.span(2000, 2500))), WorkflowFault{Kind: "break", After: p.span(600, 1000)}),
		runs(Node{Kind: Seq, ID: 2, Children: []Node{sleep(3, p.span(300, 500)), guarded(1, "q/4", "", brief)}}),
		p.leftOut(from + 4),
	}
	return numbered(slices.Concat(all, p.decideAgain(), []Workflow{p.deaf(), p.nested(), repeated(), drops(), drops()}), from)
}

// deaf returns a saga that is undone while one of its steps, which timed out, ignores its cancellation. The compensation is
// registered with CompensateWith, so that it does not know its step.
func (p *planner) deaf() Workflow {
	step := guarded(2, "q/deaf", "with", p.span(1300, 2000))
	step.Timeout, step.Attempts, step.Deaf = time.Second, 1, true
	return runs(sagaOf(step))
}

// repeated returns a saga that fails after the second attempt of a step has succeeded, while the first one still runs.
func repeated() Workflow {
	step := guarded(2, "q/repeated", "with", 2500*time.Millisecond)
	step.Timeout, step.Deaf, step.Once = time.Second, true, true
	return runs(sagaOf(step, Node{Kind: Step, ID: 3, Timeout: 10 * time.Second, Attempts: 8, Fail: true}))
}

// drops returns a saga that continues as new, and hands its locks over every second time. The run after that takes the first lock again
// while the many others are still released.
func drops() Workflow {
	last := guarded(4, "q/drops", "step", 20*time.Millisecond)
	for i := range 40 {
		last.Needs = append(last.Needs, Need{Name: fmt.Sprintf("q/drops/%d", i)})
	}
	w := runs(sagaOf(guarded(2, "q/drops", "step", 20*time.Millisecond), sleep(3, 50*time.Millisecond), last))
	w.Input.Again, w.Input.HandOver, w.Input.Drops = 5, true, true
	return w
}

// nested returns a saga that fails after a saga inside it has succeeded. The caller of each step changes the arguments after it
// has scheduled the step, and one step is undone by a saga inside its compensation.
func (p *planner) nested() Workflow {
	step := func(id int, undo string) Node {
		n := guarded(id, fmt.Sprintf("q/nested%d", id), undo, p.span(1, 30))
		n.Reuse = true
		return n
	}
	inner := sagaOf(step(3, "step"), step(4, "with"), step(5, "saga"))
	inner.ID = 2
	fails := step(6, "step")
	fails.Fail = true
	return runs(sagaOf(inner, fails))
}

// leftOut returns a Lock whose workflow task is lost. The next task has received a signal, and leaves the Lock out.
func (p *planner) leftOut(number int) Workflow {
	w := runs(Node{
		Kind: Lock, ID: 1, Needs: []Need{{Name: fmt.Sprintf("%sw%d", skipped, number)}}, Skip: true, Time: p.span(1000, 1500),
		Children: []Node{sleep(2, p.span(100, 500))},
	})
	w.Interrupts = []Interrupt{{Nth: 1, Signal: true, Lose: true}}
	return w
}

// decideAgain returns a saga and a Lock that heed a signal at their run's end, and a workflow that waits for their locks.
func (p *planner) decideAgain() []Workflow {
	const name = "q/again"
	do := guarded(2, name, "step", p.span(5, 50))
	more := do
	more.ID, more.Undo, more.Scope = 3, "", "saga"
	taker := Node{Kind: Seq, ID: 1}
	for id := range 16 {
		taker.Children = append(taker.Children, guarded(id+2, name, "", do.Time))
	}
	atEnd := []Interrupt{{Closes: true, Nth: 1, Signal: true, Wait: p.span(150, 300)}}
	heeds, lock := sagaOf(do), Node{Kind: Lock, ID: 1, Needs: do.Needs, More: &more, Children: []Node{sleep(2, p.span(5, 50))}}
	heeds.Heeds = true
	return []Workflow{
		runs(taker),
		{Input: Input{Body: heeds}, Interrupts: atEnd},
		{Input: Input{Body: lock}, Interrupts: atEnd},
	}
}

// losses returns sagas whose lock is broken while they sleep: the code of one ignores the loss that its next step reports, and another asks
// after a third workflow has taken the lock.
func (p *planner) losses(from int) []Workflow {
	const brief = 10 * time.Millisecond
	pause := sleep(3, p.span(1500, 1900)) // not so long that the commit asks
	again := guarded(4, "q/ignored", "", brief)
	again.Ignores = true
	broken := func(name string, last Node) Workflow {
		return runs(sagaOf(guarded(2, name, "step", brief), pause, last), WorkflowFault{Kind: "break", After: p.span(600, 900)})
	}
	taker := Node{Kind: Seq, ID: 1, Children: []Node{sleep(2, p.span(300, 500)), guarded(3, "q/asked", "", brief)}}
	return numbered([]Workflow{broken("q/ignored", again), broken("q/asked", Node{Kind: Verify, ID: 4}), runs(taker)}, from)
}
