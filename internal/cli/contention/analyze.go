package contention

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// Options select the holds and waits of a report. The zero value selects all.
type Options struct {
	// Resource is a prefix of the names of resources.
	Resource string
	// Since and Until select the holds and waits that touch the time between them, in full. Zero is no bound.
	Since, Until time.Time
}

// analysis is the state that the steps of Analyze share.
type analysis struct {
	*Spans
	ctx    context.Context
	opts   Options
	report *Report

	holds []hold // in the order of their starts
	waits []wait // in the order of their starts
	// numbered are lock IDs and owners, and numbers their places in it.
	numbered []string
	numbers  map[string]int32
	byKey    map[holdKey]int32
	// The lists are in the order of starts: the holds of a lock ID at a resource, the waits of an owner, and the waits of a lock ID that
	// belongs to a single step.
	byParty map[party][]int32
	byOwner map[string][]int32
	byStep  map[string][]int32

	blamed    map[string]blamed // by owner
	blamedOn  map[ownerAt]int64
	deadlocks []deadlock
	roots     []*guilt // the greatest first
}

// interval is a time, in nanoseconds since 1970.
type interval struct{ from, to int64 }

func (i interval) length() int64 { return max(i.to-i.from, 0) }

// with returns the time that both have in common. Its length is 0 if there is none.
func (i interval) with(o interval) interval {
	return interval{max(i.from, o.from), min(i.to, o.to)}
}

// Analyze makes a report of the spans, which cannot be used again. The error is the cause with which ctx was cancelled; then Analyze
// returns soon, without a report.
func Analyze(ctx context.Context, spans *Spans, opts Options) (*Report, error) {
	a := newAnalysis(ctx, spans, opts)
	for _, step := range []func(){
		a.makeHolds, a.findLosses, a.makeWaits, a.findBlockers, a.findDeadlocks,
		a.addResources, a.addOwners, a.addOverlong, a.addTotals, a.addLoad, a.addTypes, a.addRoots, a.conclude, a.narrow,
	} {
		step()
		if a.stopped() {
			return nil, context.Cause(ctx)
		}
	}
	return a.report, nil
}

func newAnalysis(ctx context.Context, spans *Spans, opts Options) *analysis {
	return &analysis{
		Spans: spans, ctx: ctx, opts: opts, numbers: map[string]int32{},
		byKey: map[holdKey]int32{}, byParty: map[party][]int32{}, byOwner: map[string][]int32{}, byStep: map[string][]int32{},
		report: &Report{
			Read: spans.reading, Resources: []Resource{}, Owners: []Owner{}, Conclusion: []Finding{}, Roots: []Root{}, Types: []TypePair{},
			Load: []Load{}, Overlong: []Overlong{}, Losses: []Loss{}, Deadlocks: []Deadlock{},
		},
	}
}

// stopped reports whether the caller has given up. Loops that take long check it for each wait, and end early.
func (a *analysis) stopped() bool { return a.ctx.Err() != nil }

// number returns the place of a lock ID or owner in numbered.
func (a *analysis) number(name string) int32 {
	n, ok := a.numbers[name]
	if !ok {
		n = int32(len(a.numbered)) //nolint:gosec // at most two for each of a million spans
		a.numbers[name] = n
		a.numbered = append(a.numbered, name)
	}
	return n
}

func (a *analysis) chosen(resource string, at interval) bool {
	return strings.HasPrefix(resource, a.opts.Resource) &&
		(a.opts.Since.IsZero() || at.to >= a.opts.Since.UnixNano()) &&
		(a.opts.Until.IsZero() || at.from <= a.opts.Until.UnixNano())
}

func (a *analysis) chosenHold(h *hold) bool { return a.chosen(h.Resource, h.interval) }
func (a *analysis) chosenWait(w *wait) bool { return a.chosen(w.Resource, w.interval) }

func (a *analysis) chosenHolds() []*hold {
	var all []*hold
	for i := range a.holds {
		if h := &a.holds[i]; a.chosenHold(h) {
			all = append(all, h)
		}
	}
	return all
}

func (a *analysis) chosenWaits() []*wait {
	var all []*wait
	for i := range a.waits {
		if w := &a.waits[i]; a.chosenWait(w) {
			all = append(all, w)
		}
	}
	return all
}

// workflowType returns "" if no span that was read names the type.
func (a *analysis) workflowType(run, workflow string) string {
	return cmp.Or(a.types[run], a.types[workflow])
}

// parseLockID reads the lock ID of a Temporal workflow, or of a single step of one. Other lock IDs have no workflow.
func parseLockID(lockID string) (workflow, step string) {
	of, step, err := wire.ParseLockID(lockID)
	if err != nil || !wire.IsNamespaceID(of.Namespace) {
		return "", ""
	}
	return of.WorkflowID, step
}

// workflowOr returns the workflow ID in a lock ID, or else the lock ID.
func workflowOr(lockID string) string {
	workflow, _ := parseLockID(lockID)
	return cmp.Or(workflow, lockID)
}

// runOf returns the run ID with which the parts of a workflow's run begin.
func runOf(lockID, part string) string {
	run, step, _ := strings.Cut(part, "/")
	if workflow, _ := parseLockID(lockID); workflow == "" || stepName(step) == step {
		return ""
	}
	return run
}

// stepName returns the activity's type in a part such as "<run ID>/3/Debit", or else the part.
func stepName(part string) string {
	pieces := strings.SplitN(part, "/", 3)
	for i := 0; i+1 < len(pieces) && i < 2; i++ {
		if number := pieces[i]; number != "" && strings.Trim(number, "0123456789") == "" {
			return cmp.Or(strings.Join(pieces[i+1:], "/"), part)
		}
	}
	return part
}

// narrow reduces the report to the chosen holds and waits and the ones that these and the trees refer to.
func (a *analysis) narrow() {
	r := a.report
	holds, waits := make([]bool, len(a.holds)), make([]bool, len(a.waits))
	keep := func(of []bool, i int) {
		if i >= 0 {
			of[i] = true
		}
	}
	for i := range a.holds {
		holds[i] = a.chosenHold(&a.holds[i])
	}
	for i := range a.waits {
		waits[i] = a.chosenWait(&a.waits[i])
	}
	for i := range r.Roots {
		keep(holds, r.Roots[i].Hold)
		eachWaiter(r.Roots[i].Waiters, func(w *Waiter) { keep(waits, w.Wait) })
	}
	for _, l := range r.Losses {
		keep(holds, l.Hold)
	}
	for i := range r.Waits {
		if w := &r.Waits[i]; waits[i] {
			keep(holds, w.Hold)
			for j := range w.Blockers {
				keep(holds, w.Blockers[j].Hold)
			}
		}
	}
	a.holds, a.waits = nil, nil
	a.renumber(places(holds), places(waits))
}

// renumber moves each hold and wait to its new place, and drops those whose place is -1.
func (a *analysis) renumber(holds, waits []int) {
	r := a.report
	move := func(i *int, to []int) {
		if *i >= 0 {
			*i = to[*i]
		}
	}
	for i := range r.Roots {
		move(&r.Roots[i].Hold, holds)
		eachWaiter(r.Roots[i].Waiters, func(w *Waiter) { move(&w.Wait, waits) })
	}
	for i := range r.Losses {
		move(&r.Losses[i].Hold, holds)
	}
	for i := range r.Overlong {
		move(&r.Overlong[i].Hold, holds)
	}
	keptHolds, keptWaits := r.Holds[:0], r.Waits[:0]
	for i := range r.Holds {
		if holds[i] < 0 {
			continue
		}
		h := r.Holds[i]
		blocks := h.Blocks[:0]
		for _, w := range h.Blocks {
			if waits[w] >= 0 {
				blocks = append(blocks, waits[w])
			}
		}
		h.Blocks = blocks
		keptHolds = append(keptHolds, h)
	}
	for i := range r.Waits {
		if waits[i] < 0 {
			continue
		}
		w := r.Waits[i]
		move(&w.Hold, holds)
		for j := range w.Blockers {
			move(&w.Blockers[j].Hold, holds)
		}
		keptWaits = append(keptWaits, w)
	}
	clear(r.Holds[len(keptHolds):])
	clear(r.Waits[len(keptWaits):])
	r.Holds, r.Waits = keptHolds, keptWaits
}

// places returns the new place of each that is kept, and -1 for the others.
func places(kept []bool) []int {
	to := make([]int, len(kept))
	n := 0
	for i, k := range kept {
		to[i] = -1
		if k {
			to[i] = n
			n++
		}
	}
	return to
}

func eachWaiter(list []Waiter, do func(*Waiter)) {
	for i := range list {
		do(&list[i])
		eachWaiter(list[i].Waiters, do)
	}
}
