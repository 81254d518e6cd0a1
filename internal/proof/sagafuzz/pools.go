package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// MemberPool is a pool and the members with which it begins.
type MemberPool struct {
	Name    string
	Members []string
}

// PoolChange is one change of a member of a pool by an operator: add, remove, out, in; or promote, which promotes a waiter that Pick selects.
type PoolChange struct {
	At                 time.Duration
	Kind, Pool, Member string
	Pick               int `json:",omitempty"`
}

// poolOfOne is a pool that keeps its only member, so that deadlocks through it are found. The names of the others come last: no workflow
// waits for anything else while it has one of their members, for deadlocks through them are not found.
const poolOfOne = "y/one"

// pools adds pools to three of four seeds, and priorities to half of them. It draws from a source of its own, so that the rest of the plans
// of known seeds stays.
func (p *planner) pools(plan *Plan) {
	p.Rand = rand.New(rand.NewPCG(plan.Seed, 0x9001)) //nolint:gosec // it must be the same each time
	plan.Priorities = p.one(2)
	if !p.one(4) {
		plan.Pools = []MemberPool{{"zz/0", members("a", 2)}, {"zz/1", members("b", 3)}, {poolOfOne, members("c", 1)}}
		for range 14 + p.IntN(8) {
			w := p.pooledWorkflow(len(plan.Workflows))
			plan.Workflows = slices.Insert(plan.Workflows, p.IntN(len(plan.Workflows)+1), w)
		}
		for range 2 {
			plan.Neighbours = append(plan.Neighbours, p.pooledTakes())
		}
		p.changes(plan)
	}
	if !plan.Priorities {
		return
	}
	for i := range plan.Workflows {
		plan.Workflows[i].Input.Body.each(func(n *Node) {
			if n.Kind == Step && p.one(3) {
				n.Priority = 1 + p.IntN(5)
			}
		})
	}
	for _, takes := range plan.Neighbours {
		for i := range takes {
			takes[i].Priority = p.IntN(6)
		}
	}
}

// withoutPools removes pools, what uses them, and priorities.
func (p *Plan) withoutPools() {
	p.Pools, p.PoolChanges, p.Priorities = nil, nil, false
	p.Workflows = slices.DeleteFunc(p.Workflows, func(w Workflow) bool { return w.pooled })
	for i := range p.Workflows {
		p.Workflows[i].Input.Body.each(func(n *Node) { n.Priority = 0 })
	}
	p.Neighbours = slices.DeleteFunc(p.Neighbours, func(takes []Take) bool {
		return slices.ContainsFunc(takes, func(t Take) bool { return slices.ContainsFunc(t.Needs, func(n Need) bool { return n.Pool }) })
	})
	for _, takes := range p.Neighbours {
		for i := range takes {
			takes[i].Priority = 0
		}
	}
}

// members returns the names of n members. Each is in one pool only.
func members(name string, n int) (all []string) {
	for i := range n {
		all = append(all, name+itoa(i))
	}
	return all
}

// member draws one of the pools that have several members, as a need.
func (p *planner) member() Need { return Need{Name: fmt.Sprintf("zz/%d", p.IntN(2)), Pool: true} }

func (p *planner) pooledWorkflow(number int) Workflow {
	p.id, p.nodes, p.last = fmt.Sprintf("w%d", number), 0, ""
	w, need := Workflow{ID: p.id, pooled: true}, p.member()
	switch p.IntN(8) {
	case 0:
		w.Input.Body = p.pooledLock(need)
	case 1:
		w.Input.Body = p.pooledSteps(Seq)
	case 2:
		w.Input.Body = p.pooledSteps(Par)
	case 3:
		w.Input.Body = p.sagaWithOne()
	case 4: // its member is lost while it sleeps, and it takes the member back, to undo what it has done with it
		sleep := p.node(Sleep)
		sleep.Time = p.span(1500, 1900)
		last := p.pooledStep(need, true)
		last.Fail = p.one(2)
		w.Input.Body = p.node(Saga)
		w.Input.Body.Retries, w.Input.Body.Children = -1, []Node{p.pooledStep(need, true), sleep, last}
		w.Faults = []WorkflowFault{{Kind: "break", After: p.span(400, 1500)}}
		return w
	default:
		w.Input.Body = p.pooledSaga(need, 2)
		if p.one(5) {
			w.Input.Again, w.Input.HandOver = 1+p.IntN(2), p.one(2)
			w.Input.Body.Children = append(w.Input.Body.Children, p.node(Verify))
		}
		if p.one(4) {
			w.Input.Awaits = p.one(2)
			w.Updates = []Update{{After: p.span(10, 500), Body: p.pooledSaga(need, 1)}}
		}
	}
	for p.one(3) && len(w.Faults) < 2 {
		kinds := []string{"signal", "cancel", "terminate", "reset", "reset", "restart", "activity", "break", "break"}
		w.Faults = append(w.Faults, WorkflowFault{Kind: kinds[p.IntN(len(kinds))], After: p.span(10, 1500), Pick: p.Uint64()})
	}
	for p.one(3) && len(w.Interrupts) < 2 {
		w.Interrupts = append(w.Interrupts, p.interrupt())
	}
	return w
}

// pooledSaga draws a saga that uses nothing but one member of a pool.
func (p *planner) pooledSaga(need Need, depth int) Node {
	n := p.node(Saga)
	n.Retries, n.Heeds = -1, p.one(3)
	for range 1 + p.IntN(3) {
		switch kind := p.IntN(9); {
		case kind == 0 && depth > 1:
			n.Children = append(n.Children, p.pooledSaga(need, depth-1))
		case kind == 1:
			both := p.node(Par)
			both.Children = []Node{p.pooledStep(need, true), p.pooledStep(need, true)}
			n.Children = append(n.Children, both)
		case kind == 2:
			sleep := p.node(Sleep)
			sleep.Time = p.span(10, 300)
			n.Children = append(n.Children, sleep)
		case kind == 3:
			n.Children = append(n.Children, p.node(Verify))
		default:
			n.Children = append(n.Children, p.pooledStep(need, true))
		}
	}
	if p.one(3) {
		fails := p.pooledStep(need, true)
		fails.Fail = true
		n.Children = append(n.Children, fails)
	}
	if !p.calm && p.one(4) && depth > 1 {
		ttl := p.span(int(leastHoldTTL.Milliseconds()), 8000)
		n.each(func(n *Node) { n.HoldTTL = ttl })
	}
	return n
}

func (p *planner) pooledStep(need Need, inSaga bool) Node {
	n := p.node(Step)
	n.Needs, n.Time, n.Timeout, n.Attempts = []Need{need}, p.span(1, 120), 2*time.Second, 8
	if inSaga {
		n.Undo = []string{"step", "step", "step", "with", "saga", ""}[p.IntN(6)]
		if n.Undo == "" && p.one(2) {
			n.Scope = "step"
		}
	}
	switch p.IntN(16) {
	case 0:
		n.Fail = true
	case 1: // it takes longer than it may, and another attempt follows, or its compensation
		n.Time, n.Timeout, n.Attempts, n.Deaf = p.span(1300, 2600), time.Second, 1+p.Int32N(2), !p.one(4)
	case 2:
		n.Time, n.Deaf = p.span(400, 1500), p.one(2)
	case 3:
		p.waiting(&n)
	}
	return n
}

// pooledSteps draws steps that have a member each, some after another resource, and some by a rule.
func (p *planner) pooledSteps(kind Kind) Node {
	n := p.node(kind)
	for range 2 + p.IntN(3) {
		step := p.pooledStep(p.member(), false)
		switch p.IntN(5) {
		case 0:
			step.Needs = append(p.needs(1), step.Needs...)
		case 1:
			step.Rule, step.Needs, step.Attempts = step.Needs, p.needs(p.IntN(2)), 0
		case 2:
			step.Needs = []Need{{Name: "zz/0", Pool: true}, {Name: "zz/1", Pool: true}}
		}
		n.Children = append(n.Children, step)
	}
	return n
}

// pooledLock draws a Lock on a member, and steps and a saga that use it.
func (p *planner) pooledLock(need Need) Node {
	n := p.node(Lock)
	n.Needs = []Need{need}
	p.waiting(&n)
	sleep := p.node(Sleep)
	sleep.Time = p.span(10, 600)
	kept := p.pooledStep(need, false)
	kept.Scope = "saga"
	n.Children = []Node{sleep, p.pooledStep(need, false), kept}
	if p.one(2) {
		n.Children = append(n.Children, p.pooledSaga(need, 1))
	}
	return n
}

// sagaWithOne draws a saga that uses the pool of one and other resources in any order, so that there are deadlocks.
func (p *planner) sagaWithOne() Node {
	n := p.node(Saga)
	n.Retries = 5
	one := Need{Name: poolOfOne, Pool: true}
	for range 2 + p.IntN(2) {
		step := p.pooledStep(one, true)
		if step.Scope = ""; p.one(2) {
			step.Needs = p.needs(1)
		}
		n.Children = append(n.Children, step)
	}
	return n
}

// pooledTakes draws the uses of pools by a neighbour.
func (p *planner) pooledTakes() (takes []Take) {
	for range 15 + p.IntN(15) {
		t := Take{After: p.span(0, 900), Time: p.span(1, 300), Needs: []Need{p.member()}, Try: p.one(4)}
		switch p.IntN(8) {
		case 0:
			t.Needs = []Need{{Name: poolOfOne, Pool: true}}
		case 1:
			t.Needs = append(p.needs(1), t.Needs...)
		case 2: // longer than the TTL of a session that its stopped process does not renew
			t.Time = p.span(1000, 3000)
		}
		if !t.Try && p.one(3) {
			t.MaxWait = p.span(50, 2000)
		}
		takes = append(takes, t)
	}
	return takes
}

// changes draws what an operator does to the pools. At least one member of a pool stays in service.
func (p *planner) changes(plan *Plan) {
	inService := map[string][]string{"zz/0": members("a", 2), "zz/1": members("b", 3)}
	out, gone := map[string][]string{}, map[string][]string{}
	move := func(from, to map[string][]string, c *PoolChange) bool {
		if len(from[c.Pool]) == 0 {
			return false
		}
		at := p.IntN(len(from[c.Pool]))
		c.Member = from[c.Pool][at]
		from[c.Pool] = slices.Delete(slices.Clone(from[c.Pool]), at, at+1)
		to[c.Pool] = append(to[c.Pool], c.Member)
		return true
	}
	for at := p.span(300, 2000); at < 2*time.Minute; at += p.span(200, 1500) {
		if p.one(5) {
			at += p.span(12000, 16000) // until all processes follow
		}
		c := PoolChange{At: at, Pool: p.member().Name, Pick: p.IntN(100)}
		several := len(inService[c.Pool]) > 1
		switch c.Kind = []string{"add", "remove", "out", "out", "in", "in", "promote", "promote"}[p.IntN(8)]; {
		case c.Kind == "promote":
		case c.Kind == "out" && several && move(inService, out, &c), c.Kind == "in" && move(out, inService, &c):
		case c.Kind == "remove" && p.one(3) && move(out, gone, &c), c.Kind == "remove" && several && move(inService, gone, &c):
		case c.Kind == "add" && move(gone, inService, &c):
		case c.Kind == "add" && len(inService[c.Pool])+len(out[c.Pool]) < 4:
			c.Member = fmt.Sprintf("n%d", len(plan.PoolChanges))
			inService[c.Pool] = append(inService[c.Pool], c.Member)
		default:
			continue
		}
		plan.PoolChanges = append(plan.PoolChanges, c)
	}
}

// withMembers returns needs with the members that a party has in place of pools: each member is a resource that excludes others.
func withMembers(needs []Need, held []Held) (all []Need) {
	for _, n := range needs {
		for _, h := range held {
			if n.Pool && h.Member != "" && h.Resource == n.Name {
				n = Need{Name: accountOf(n.Name, h.Member)}
			}
		}
		all = append(all, n)
	}
	return all
}

// getMembers stores what the attempt holds, with members in place of pools.
func (a *Attempt) getMembers(held []Held) {
	call := *a.Call
	call.Node.Needs, call.Node.Rule = withMembers(call.Node.Needs, held), withMembers(call.Node.Rule, held)
	a.Call, a.held = &call, slices.Clone(held)
	for i := range a.held {
		if h := &a.held[i]; h.Member != "" {
			h.Resource = accountOf(h.Resource, h.Member)
		}
	}
}

// pool returns the resource whose document has granted it.
func (h *Held) pool() string { return strings.TrimSuffix(h.Resource, "/"+h.Member) }
