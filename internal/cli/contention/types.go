package contention

import (
	"cmp"
	"slices"
	"strings"
)

// learnType takes the type of a workflow from a span of the tracing interceptor of Temporal's Go
// SDK: the workflow's own, or its client's. The span names the run, the workflow ID, or both.
func (s *Spans) learnType(name string, tag func(key string) string) {
	operation, of, _ := strings.Cut(name, ":")
	if operation != "RunWorkflow" && operation != "StartWorkflow" || of == "" {
		return
	}
	for _, key := range []string{"temporalRunID", "temporalWorkflowID"} {
		// Files are read in any order. Of two types of one workflow ID the greater name stays.
		if id := tag(key); id != "" && of > s.types[id] {
			s.types[id] = of
		}
	}
}

// typeOf is the type of a workflow, empty if no span that was read says it.
func (a *analysis) typeOf(run, workflow string) string {
	return cmp.Or(a.types[run], a.types[workflow])
}

// TypePair says how long workflows of one type waited for locks that workflows of another type
// held.
type TypePair struct {
	// Waiter and Blocker are workflow types, empty if no span says them.
	Waiter  string `json:"waiter"`
	Blocker string `json:"blocker"`
	// Waited is for how long, and Waits in how many waits. A wait counts for each type that was in
	// its way.
	Waited float64 `json:"waited"`
	Waits  int     `json:"waits"`
	// Steps are the same by step, longest first.
	Steps []StepPair `json:"steps"`
}

// StepPair says how long one step waited for locks that were held in, or since, another step.
type StepPair struct {
	Waiter  string  `json:"waiter"`
	Blocker string  `json:"blocker"`
	Waited  float64 `json:"waited"`
	Waits   int     `json:"waits"`
}

// pair names two types, or two steps.
type pair struct{ waiter, blocker string }

// tally is how long something was waited for, and in how many waits.
type tally struct {
	length int64
	waits  int
}

// addTypes groups the waits of workflows by the types of waiters and blockers, and by their steps.
func (a *analysis) addTypes(r *Report) {
	byType, bySteps := map[pair]*tally{}, map[pair]map[pair]*tally{}
	for i := range a.waits {
		w := &a.waits[i]
		if !a.chosenWait(w) || w.Workflow == "" {
			continue
		}
		types, steps := map[pair]*coverage{}, map[[2]pair]*coverage{}
		for j := range w.Blockers {
			b := &w.Blockers[j]
			of, in := pair{w.WorkflowType, a.blockerType(b)}, pair{w.Step, b.Step}
			if bySteps[of] == nil {
				bySteps[of] = map[pair]*tally{}
			}
			tallied(byType, of).length += cover(types, of).add(w.during(b))
			tallied(bySteps[of], in).length += cover(steps, [2]pair{of, in}).add(w.during(b))
		}
		for of, c := range types {
			tallied(byType, of).waits += c.any()
		}
		for of, c := range steps {
			tallied(bySteps[of[0]], of[1]).waits += c.any()
		}
	}
	r.Types = []TypePair{}
	for of, t := range byType {
		if t.waits == 0 {
			continue
		}
		p := TypePair{Waiter: of.waiter, Blocker: of.blocker, Waited: seconds(t.length), Waits: t.waits}
		for in, t := range bySteps[of] {
			if t.waits > 0 {
				p.Steps = append(p.Steps, StepPair{in.waiter, in.blocker, seconds(t.length), t.waits})
			}
		}
		slices.SortFunc(p.Steps, func(x, y StepPair) int {
			return cmp.Or(cmp.Compare(y.Waited, x.Waited), cmp.Compare(x.Waiter, y.Waiter), cmp.Compare(x.Blocker, y.Blocker))
		})
		r.Types = append(r.Types, p)
	}
	slices.SortFunc(r.Types, func(x, y TypePair) int {
		return cmp.Or(cmp.Compare(y.Waited, x.Waited), cmp.Compare(x.Waiter, y.Waiter), cmp.Compare(x.Blocker, y.Blocker))
	})
}

func tallied(all map[pair]*tally, of pair) *tally {
	if all[of] == nil {
		all[of] = &tally{}
	}
	return all[of]
}

// blockerType is the workflow type of a hold that was in the way.
func (a *analysis) blockerType(b *Blocker) string {
	if b.Hold >= 0 {
		return a.holds[b.Hold].WorkflowType
	}
	return a.typeOf("", b.Workflow)
}

// during is when a blocker was in a wait's way.
func (w *wait) during(b *Blocker) interval {
	return interval{w.from + nanosecondsOf(b.From), w.from + nanosecondsOf(b.To)}
}

// coverage is times that are disjoint, in their order.
type coverage struct{ times []interval }

func cover[K comparable](all map[K]*coverage, of K) *coverage {
	if all[of] == nil {
		all[of] = &coverage{}
	}
	return all[of]
}

// add takes a time in, and returns how much of it is new.
func (c *coverage) add(at interval) int64 {
	if at.length() == 0 {
		return 0
	}
	fresh := at.length()
	first, _ := slices.BinarySearchFunc(c.times, at.from, func(t interval, from int64) int { return cmp.Compare(t.to, from) })
	last := first
	for ; last < len(c.times) && c.times[last].from <= at.to; last++ {
		fresh -= c.times[last].with(at).length()
	}
	c.times = slices.Replace(c.times, first, last, hull(at, c.times[first:last]...))
	return fresh
}

// any is 1 if it covers anything.
func (c *coverage) any() int { return min(len(c.times), 1) }

func (c *coverage) length() (sum int64) {
	for _, t := range c.times {
		sum += t.length()
	}
	return sum
}
