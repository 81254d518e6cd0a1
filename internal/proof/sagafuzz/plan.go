package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Plan describes everything that one seed plays.
type Plan struct {
	Seed      uint64
	Workflows []Workflow
	// Neighbours are programs that take plain locks, one after the other.
	Neighbours [][]Take
	// Faults lists the faults of processes, in time order. A calm plan has none.
	Faults []ProcessFault
	// Previous selects the slots whose processes are of the previous build. It is nil if only one build plays.
	Previous []bool `json:",omitempty"`
	// Failovers is set if the caller makes the database fail over during the run.
	Failovers bool `json:",omitempty"`
	// Slow lists the times at which the database is slow. It is empty if it never is.
	Slow []SlowTime `json:",omitempty"`
	// Limits are the changes of the limits of semaphores, in time order.
	Limits []LimitChange `json:",omitempty"`
	// Pools, PoolChanges and Priorities: see pools.go.
	Pools       []MemberPool `json:",omitempty"`
	PoolChanges []PoolChange `json:",omitempty"`
	Priorities  bool         `json:",omitempty"`
	// Codec makes payloads unreadable without the fuzzer's data converter. One of FailsOneIn conversions of the workers fails.
	Codec      bool `json:",omitempty"`
	FailsOneIn int  `json:",omitempty"`
}

// mix selects the slots whose processes are of the previous build: half of the workers, and the neighbours in half of the seeds. It leaves
// the codec out: the library of the previous build decides without details that it cannot read. It leaves changes of limits, pools and
// priorities out, too: the previous build is refused by a collection that has had a policy.
func (p *Plan) mix() {
	p.Codec, p.FailsOneIn, p.Limits = false, 0, nil
	p.withoutPools()
	r := rand.New(rand.NewPCG(p.Seed, 0x0bd)) //nolint:gosec // it must be the same each time
	p.Previous = make([]bool, slots)
	for _, slot := range r.Perm(processes)[:processes/2] {
		p.Previous[slot] = true
	}
	p.Previous[processes] = r.IntN(2) == 0
}

// Workflow describes one workflow and its faults.
type Workflow struct {
	ID    string
	Input Input
	// Faults are applied one after the other.
	Faults     []WorkflowFault
	Interrupts []Interrupt
	Updates    []Update `json:",omitempty"`
	directed   bool
	pooled     bool
}

// isBounded reports whether a wait of the workflow or of its updates has a MaxWait.
func (w *Workflow) isBounded() (bounded bool) {
	look := func(n *Node) { bounded = bounded || n.MaxWait > 0 }
	w.Input.Body.each(look)
	for i := range w.Updates {
		w.Updates[i].Body.each(look)
	}
	return bounded
}

// Interrupt describes an event just before the completion of a workflow task is sent: a signal or a cancellation arrives, or the
// completion is lost, as if the worker died.
type Interrupt struct {
	// Closes selects completions that close a run. Nth is the number among the selected completions of one worker process.
	Closes bool
	Nth    int
	// Signal and Cancel are sent first; Wait passes after them.
	Signal, Cancel bool
	Wait           time.Duration
	Lose           bool
}

// Input is the argument of the workflow.
type Input struct {
	Body Node
	// Again is the number of times that it continues as new. With HandOver it keeps its locks then, and with Drops only every second time.
	Again           int
	HandOver, Drops bool
	// Owner is the owner of everything that the workflow locks. Empty selects the default. Awaits makes the workflow wait for its
	// update handlers before it ends.
	Owner  string `json:",omitempty"`
	Awaits bool   `json:",omitempty"`
}

// handsOver reports whether the run keeps its locks when it continues as new.
func (in *Input) handsOver() bool { return in.HandOver && !(in.Drops && in.Again%2 == 1) }

// WorkflowFault is an operator's action on a workflow: signal, cancel, terminate, reset, restart, activity
// (which resets a pending activity), or break, which releases its holds by force.
type WorkflowFault struct {
	Kind  string
	After time.Duration
	// Pick chooses among several candidates, such as workflow tasks to reset to.
	Pick uint64
}

// ProcessFault ends a process and starts another one, or suspends it for a time.
type ProcessFault struct {
	At      time.Duration
	Process int
	// For is the time for which it is suspended; 0 ends it. Quits lets it end by itself, as at a deployment; otherwise it is killed.
	For   time.Duration
	Quits bool `json:",omitempty"`
}

const (
	processes = 4
	// slots counts the worker processes and the neighbours' process, which is the last one.
	slots = processes + 1
	// calmEvery selects the seeds without faults of processes: one in so many.
	calmEvery = 3
)

// planner draws a plan.
type planner struct {
	*rand.Rand
	names, limits int    // how many resources there are of both kinds
	id            string // of the present workflow
	nodes         int    // of the present workflow
	last          string // resource that a step of a saga was given
	calm          bool
}

// NewPlan draws the plan of a seed.
func NewPlan(seed uint64) Plan {
	p := &planner{Rand: rand.New(rand.NewPCG(seed, 0x5a6a))} //nolint:gosec // it must be the same each time
	p.names, p.limits = 8+p.IntN(17), 1+p.IntN(2)
	if p.one(5) { // much waits for little
		p.names = 3 + p.IntN(3)
	}
	p.calm = seed%calmEvery == 0
	plan := Plan{Seed: seed}
	count := 50 + p.IntN(30)
	if p.one(20) {
		count = 186
	}
	for i := range count {
		plan.Workflows = append(plan.Workflows, p.workflow(i))
	}
	plan.Workflows = append(plan.Workflows, p.directed(count)...)
	plan.Neighbours = p.neighbours()
	if !p.calm {
		plan.Faults = p.faults()
	}
	p.enrich(&plan)
	p.limitsChange(&plan)
	p.pools(&plan)
	return plan
}

// faults draws the faults of processes.
func (p *planner) faults() (all []ProcessFault) {
	for at := p.span(500, 2500); at < 12*time.Second; at += p.span(1500, 5000) {
		fault := ProcessFault{At: at, Process: p.IntN(slots)}
		if p.one(2) {
			fault.For = p.span(300, 4500)
		} else {
			fault.Quits = at.Milliseconds()%2 == 0 // without drawing, so that the plans of known seeds stay
		}
		all = append(all, fault)
	}
	return all
}

// one reports true once in n times.
func (p *planner) one(n int) bool { return p.IntN(n) == 0 }

// span draws a duration between two numbers of milliseconds.
func (p *planner) span(from, to int) time.Duration {
	return time.Duration(from+p.IntN(to-from)) * time.Millisecond
}

func (p *planner) workflow(i int) Workflow {
	p.id, p.nodes, p.last = fmt.Sprintf("w%d", i), 0, ""
	w := Workflow{ID: p.id}
	if p.one(12) { // one saga, so that what is handed over is asked for first by the next run
		w.Input = Input{Body: p.saga(1), Again: 1 + p.IntN(2), HandOver: p.one(2)}
	} else {
		w.Input.Body = p.node(Seq)
		for range 1 + p.IntN(2) {
			w.Input.Body.Children = append(w.Input.Body.Children, p.top())
		}
	}
	for p.one(4) && len(w.Faults) < 2 {
		kinds := []string{"signal", "cancel", "cancel", "terminate", "reset", "reset", "restart", "activity", "break"}
		w.Faults = append(w.Faults, WorkflowFault{Kind: kinds[p.IntN(len(kinds))], After: p.span(10, 1500), Pick: p.Uint64()})
	}
	for p.one(2) && len(w.Interrupts) < 3 {
		w.Interrupts = append(w.Interrupts, p.interrupt())
	}
	return w
}

func (p *planner) interrupt() Interrupt {
	in := Interrupt{Closes: !p.one(3), Nth: 1, Wait: p.span(0, 300)}
	if in.Closes && p.one(4) {
		in.Nth = 2
	}
	if !in.Closes {
		in.Nth = 1 + p.IntN(6)
	}
	switch p.IntN(4) {
	case 0, 1:
		in.Signal = true
	case 2:
		in.Cancel = true
	}
	in.Lose = !in.Signal && !in.Cancel || p.one(4)
	return in
}

func (p *planner) node(k Kind) Node {
	p.nodes++
	return Node{Kind: k, ID: p.nodes}
}

// top draws what a workflow does outside of sagas: mostly a saga.
func (p *planner) top() Node {
	switch p.IntN(10) {
	case 0, 3:
		return p.lock()
	case 1:
		return p.step(false)
	case 2: // parallel steps of one workflow, which exclude each other if their scope is the step
		n := p.node(Par)
		needs := p.needs(1)
		if p.one(2) {
			needs = []Need{p.semaphore()}
		}
		for range 2 + p.IntN(3) {
			step := p.step(false)
			step.Needs, step.Scope, step.Rule = needs, "", nil
			n.Children = append(n.Children, step)
		}
		return n
	}
	return p.saga(2)
}

func (p *planner) saga(depth int) Node {
	n := p.node(Saga)
	n.Retries = 6*p.IntN(2) - 1 // -1 for never
	n.Heeds = p.one(2)
	alone := p.one(8) && depth > 1 // within another saga it would keep the semaphore while that waits
	need := p.semaphore()
	for range 1 + p.IntN(3) {
		if alone {
			step := p.step(true)
			step.Scope, step.Needs, step.Rule = "", []Need{need}, nil
			n.Children = append(n.Children, step)
			continue
		}
		n.Children = append(n.Children, p.inSaga(depth))
	}
	if p.one(3) && slices.ContainsFunc(n.Children, func(c Node) bool { return c.Kind == Saga }) { // it is undone with this one
		step := p.step(true)
		step.Fail = true
		n.Children = append(n.Children, step)
	}
	return n
}

func (p *planner) inSaga(depth int) Node {
	kind := p.IntN(12)
	switch {
	case kind <= 2 && depth > 1:
		return p.saga(depth - 1)
	case kind == 3:
		n := p.node(Par)
		for range 2 {
			n.Children = append(n.Children, p.step(true))
		}
		return n
	case kind == 4:
		n := p.node(Sleep)
		n.Time = p.span(10, 300)
		return n
	}
	return p.step(true)
}

// lock draws locks around a sleep and a step, which may outlast a short HoldTTL.
func (p *planner) lock() Node {
	n := p.node(Lock)
	n.Needs = p.needs(1 + p.IntN(2))
	p.waiting(&n)
	if p.one(3) {
		p.short(&n)
	}
	sleep := p.node(Sleep)
	sleep.Time = p.span(10, 600)
	n.Children = []Node{sleep}
	if p.one(2) {
		step := p.step(false)
		step.Scope = ""
		n.Children = append(n.Children, step)
	}
	if p.one(2) {
		more := p.node(Step)
		more.Needs, more.Scope, more.Time, more.Timeout, more.Attempts = n.Needs, "saga", p.span(1, 60), 2*time.Second, 8
		n.More = &more
	}
	if p.one(3) { // its own resource shows whether it holds what it has left out
		n.Skip, n.Time = true, p.span(500, 1500)
		n.Needs = append(n.Needs[:len(n.Needs):len(n.Needs)], Need{Name: fmt.Sprintf("%s%s-%d", skipped, p.id, n.ID)})
	}
	return n
}

// skipped begins the names of resources of Locks that may be left out.
const skipped = "k/"

func (p *planner) step(inSaga bool) Node {
	n := p.node(Step)
	n.Time, n.Timeout, n.Attempts = p.span(1, 60), 2*time.Second, 8
	n.Needs = p.needs(p.IntN(3))
	if inSaga {
		if p.one(4) && p.last != "" { // again, in the same mode or another
			n.Needs = append(without(n.Needs, p.last), Need{Name: p.last, Shared: p.one(3)})
		}
		if len(n.Needs) > 0 {
			p.last = n.Needs[0].Name
		}
		n.Undo = []string{"step", "step", "step", "with", "with", "saga", "", ""}[p.IntN(8)]
		n.Reuse = p.one(3)
		if n.Undo == "" && p.one(2) {
			n.Scope = "step"
		}
	} else if p.one(6) {
		n.Scope = "saga"
	}
	switch p.IntN(30) {
	case 0, 1, 2:
		n.Fail = true
	case 3, 10: // it takes longer than it may, and another attempt follows, or its compensation
		n.Time, n.Timeout, n.Attempts = p.span(1300, 2600), time.Second, 1+p.Int32N(2)
		n.Deaf = !p.one(4)
		if len(n.Needs) == 0 {
			n.Needs = p.needs(1)
		}
	case 4: // long enough for cancellations to meet it
		n.Time, n.Deaf = p.span(400, 1500), p.one(2)
	case 5, 6:
		if n.Scope == "" && inSaga || n.Scope == "step" {
			n.Rule, n.Attempts = p.needs(1), 0
			n.Needs = without(n.Needs, n.Rule[0].Name)
		}
	case 7:
		p.waiting(&n)
	case 8, 9:
		p.short(&n)
	}
	if p.one(4) && (n.Scope == "step" || n.Scope == "" && !inSaga) {
		n.Needs = append(n.Needs, p.semaphore())
	}
	return n
}

// waiting draws the options that end a wait.
func (p *planner) waiting(n *Node) {
	switch p.IntN(4) {
	case 0:
		n.Try = true
	case 1:
		n.MaxWait = p.span(50, 800)
	}
}

// short draws a HoldTTL that ends if the janitor's process dies.
func (p *planner) short(n *Node) {
	if !p.calm {
		n.HoldTTL = p.span(int(leastHoldTTL.Milliseconds()), 8000)
	}
}

// needs draws n resources, without a semaphore.
func (p *planner) needs(n int) (all []Need) {
	for range n {
		need := Need{Name: fmt.Sprintf("x/%d", p.IntN(p.names)), Shared: p.one(4)}
		all = append(without(all, need.Name), need)
	}
	return all
}

// semaphore draws one, which is always asked for with the same limit. No workflow waits for anything else while it has one, for
// deadlocks through semaphores are not found: so it is alone in its saga, or is the last by its name of what a step has.
func (p *planner) semaphore() Need {
	at := p.IntN(p.limits)
	return Need{Name: fmt.Sprintf("z/%d", at), Shared: true, Limit: at + 2}
}

func without(needs []Need, name string) (rest []Need) {
	for _, n := range needs {
		if n.Name != name {
			rest = append(rest, n)
		}
	}
	return rest
}

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
