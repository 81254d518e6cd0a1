package main

import (
	"math/rand/v2"
	"slices"
)

// enrich adds to a plan what was thought of later: questions in the middle of sagas and Locks, rules, owners, updates, a slow database and
// a codec. It draws from a source of its own, so that the rest of the plans of known seeds stays.
func (p *planner) enrich(plan *Plan) {
	p.Rand = rand.New(rand.NewPCG(plan.Seed, 0xadd)) //nolint:gosec // it must be the same each time
	for i := range plan.Workflows {
		if w := &plan.Workflows[i]; !w.directed {
			p.enrichWorkflow(w)
		}
	}
	plan.Workflows = append(plan.Workflows, p.losses(len(plan.Workflows))...)
	plan.force(p.one(5), p.one(3))
}

// force makes the database slow at times, and gives the workers a codec, if the plan does not already.
func (p *Plan) force(slow, codec bool) {
	if slow && p.Slow == nil {
		draw := planner{Rand: rand.New(rand.NewPCG(p.Seed, 0x510))} //nolint:gosec // it must be the same each time
		p.Slow = draw.slowTimes()
	}
	if codec {
		p.Codec, p.FailsOneIn = true, failsOneIn
	}
}

func (p *planner) enrichWorkflow(w *Workflow) {
	p.id, p.nodes, p.last = w.ID, 0, ""
	w.Input.Body.each(func(n *Node) { p.nodes = max(p.nodes, n.ID) })
	p.ask(&w.Input.Body)
	if w.Input.Again > 0 { // a workflow that continues as new first asks, then receives all signals, and then returns
		w.Input.Body.Children = append(w.Input.Body.Children, p.node(Verify))
	}
	w.Input.Body.each(p.change)
	if p.one(4) {
		w.Input.Owner = "owner of " + w.ID // two workflows with one owner would have deadlocks that are not found
	}
	if !p.one(3) {
		return
	}
	w.Input.Awaits = p.one(2)
	for range 1 + p.IntN(2) {
		u := Update{After: p.span(10, 1500), Refuse: p.one(6)}
		if u.Body = p.lock(); p.one(2) {
			u.Body = p.saga(2 - p.IntN(2))
		}
		p.ask(&u.Body)
		u.Body.each(p.change)
		w.Updates = append(w.Updates, u)
	}
}

// ask inserts questions into sagas and Locks. Some come after a sleep that is longer than the age from which on a commit asks.
func (p *planner) ask(n *Node) {
	for i := range n.Children {
		p.ask(&n.Children[i])
	}
	if (n.Kind != Saga || !p.one(4)) && (n.Kind != Lock || !p.one(3)) {
		return
	}
	questions := []Node{p.node(Verify)}
	if p.one(4) {
		sleep := p.node(Sleep)
		sleep.Time = verifyAfter + p.span(100, 600)
		questions = slices.Insert(questions, 0, sleep)
	}
	n.Children = slices.Insert(n.Children, p.IntN(len(n.Children)+1), questions...)
}

// change gives some steps a rule, and lets the workflow ignore the failure of some.
func (p *planner) change(n *Node) {
	n.Ignores = n.Kind == Step && p.one(12)
	hasSemaphore := slices.ContainsFunc(n.Needs, func(n Need) bool { return n.Limit > 0 })
	if n.Kind != Step || len(n.Rule) > 0 || n.Scope == "saga" || n.Time >= n.Timeout || hasSemaphore || !p.one(8) {
		return
	}
	n.Rule, n.Attempts = p.needs(1), 0 // an attempt ends when its lock is busy
	n.Needs = without(n.Needs, n.Rule[0].Name)
}
