package contention

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Options select the holds and waits of a report. The zero value selects all.
type Options struct {
	// Resource is a prefix of the names of resources.
	Resource string
	// Since and Until select the holds and waits that touch the time between them, in full. Zero means no bound.
	Since, Until time.Time
}

// analysis is the state that the steps of Analyze share. Lists of holds and waits are in the order of their starts.
type analysis struct {
	*Spans
	ctx    context.Context
	opts   Options
	report *Report

	holds     []*hold
	waits     []*wait
	resources map[string]*resource
	owners    map[string]*owner
	byKey     map[holdKey]*hold
	byParty   map[party][]*hold
	byStep    map[string][]*wait // by a lock ID that belongs to a single step

	deadlocks []deadlock
	roots     []*guilt // the greatest first
}

// item has the fields that the analysis needs of both holds and waits.
type item struct {
	interval
	place    int // in the report
	resource *resource
	owner    *owner
	ofStep   bool // the lock ID belongs to a single step
	chosen   bool // the report is about it
}

func (i *item) isChosen() bool   { return i.chosen }
func (i *item) during() interval { return i.interval }

// resource is a resource with all its holds and waits.
type resource struct {
	name  string
	holds []*hold
	waits []*wait
	// claims are the disjoint times in which it was granted to a waiter that had not taken it yet.
	claims []interval
	// blamed is the time that others waited here for an owner.
	blamed map[*owner]int64
}

// owner is an owner with all its waits, and the sums over the chosen holds and waits.
type owner struct {
	name         string
	workflowType string
	waits        []*wait
	chosen       bool // it has chosen holds or waits

	held, waited int64
	blamed       blamed
	worst        string // the resource at which others waited for it longest: for most
	most         int64
	// charged is its blame at the resource of the current sweep, where lastWait is the wait that was counted last, and
	// until the end of the time that was counted in it.
	charged  blamed
	lastWait *wait
	until    int64
}

// blamed is the time that others spent waiting, and the number of their waits.
type blamed struct {
	length int64
	waits  int
}

// Analyze makes a report of the spans, which cannot be used again. The error is the cause with which ctx was cancelled; then Analyze
// returns soon, without a report.
func Analyze(ctx context.Context, spans *Spans, opts Options) (*Report, error) {
	a := &analysis{
		Spans: spans, ctx: ctx, opts: opts, resources: map[string]*resource{}, owners: map[string]*owner{},
		byKey: map[holdKey]*hold{}, byParty: map[party][]*hold{}, byStep: map[string][]*wait{},
		report: &Report{
			Read: spans.reading, Resources: []Resource{}, Owners: []Owner{}, Conclusion: []Finding{}, Roots: []Root{}, Types: []TypePair{},
			Load: []Load{}, Overlong: []Overlong{}, Losses: []Loss{}, Deadlocks: []Deadlock{}, Members: []Member{}, Priorities: []Priority{},
		},
	}
	for _, step := range []func(){
		a.makeHolds, a.findLosses, a.makeWaits, a.findBlockers, a.findDeadlocks,
		a.addResources, a.addMembers, a.addPriorities, a.addOwners, a.addOverlong, a.addTotals, a.addLoad, a.addTypes, a.addRoots, a.conclude, a.narrow,
	} {
		step()
		if a.stopped() {
			return nil, context.Cause(ctx)
		}
	}
	return a.report, nil
}

// stopped reports whether the caller has given up. Loops that take long check it for each wait, and end early.
func (a *analysis) stopped() bool { return a.ctx.Err() != nil }

// newItem returns the item of a hold or wait, and fills in what the report contains of both.
func (a *analysis) newItem(s *lockSpan, at interval, place int, to *Subject) item {
	workflow, step := parseLockID(s.lockID)
	*to = Subject{
		Resource: s.resource, LockID: s.lockID, Owner: cmp.Or(s.owner, s.lockID), Workflow: workflow,
		Mode: cmp.Or(s.mode, lockcore.ModeExclusive.String()), Member: s.member,
	}
	i := item{interval: at, place: place, resource: entry(a.resources, s.resource), owner: entry(a.owners, to.Owner), ofStep: step != ""}
	i.resource.name, i.owner.name = s.resource, to.Owner
	return i
}

// chosen reports whether the options select a resource and a time. Lockstep's own locks must be asked for by name.
func (a *analysis) chosen(resource string, at interval) bool {
	return strings.HasPrefix(resource, a.opts.Resource) && (a.opts.Resource != "" || !inspect.Internal(resource)) &&
		(a.opts.Since.IsZero() || at.to >= a.opts.Since.UnixNano()) &&
		(a.opts.Until.IsZero() || at.from <= a.opts.Until.UnixNano())
}

// chosen returns the holds or waits that the report is about.
func chosen[T interface{ isChosen() bool }](all []T) (some []T) {
	for _, one := range all {
		if one.isChosen() {
			some = append(some, one)
		}
	}
	return some
}

func times[T interface{ during() interval }](all []T) []interval {
	list := make([]interval, len(all))
	for i, one := range all {
		list[i] = one.during()
	}
	return list
}

// findType finds the type of the workflow of a hold or wait, and so of its owner.
func (a *analysis) findType(of *Subject, o *owner) {
	of.WorkflowType = a.workflowType(of.Run, of.Workflow)
	o.workflowType = cmp.Or(of.WorkflowType, o.workflowType)
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
func runOf(workflow, part string) string {
	run, step, _ := strings.Cut(part, "/")
	if workflow == "" || !wire.IsNamespaceID(run) && stepName(step) == step {
		return ""
	}
	return run
}

// stepName returns the activity's type in a part such as "<run ID>/3/Debit" or "<run ID>/rule/Debit", the name of a Lock in one such as
// "<run ID>/lock/1", or else the part without the run ID.
func stepName(part string) string {
	pieces := strings.SplitN(part, "/", 3)
	for i := 0; i+1 < len(pieces) && i < 2; i++ {
		rest := strings.Join(pieces[i+1:], "/")
		switch {
		case pieces[i] == lockPart && isNumber(rest):
			return "Lock " + rest
		case isNumber(pieces[i]), pieces[i] == "rule":
			return cmp.Or(rest, part)
		}
	}
	if run, step, _ := strings.Cut(part, "/"); step != "" && wire.IsNamespaceID(run) { // run IDs have the form of namespace IDs
		return step
	}
	return part
}

// lockPart begins the part of a Lock, after the run ID. The number of the Lock in its workflow follows.
const lockPart = "lock"

func isNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// narrow reduces the report to the chosen holds and waits and the ones that these and the trees refer to.
func (a *analysis) narrow() {
	r := a.report
	holds, waits := make(places, len(r.Holds)), make(places, len(r.Waits))
	for _, h := range chosen(a.holds) {
		holds[h.place] = 1
	}
	for _, w := range chosen(a.waits) {
		waits[w.place] = 1
	}
	r.references(holds.keep, waits.keep)
	for i := range r.Waits {
		if waits[i] == 1 {
			r.Waits[i].eachHold(holds.keep)
		}
	}
	a.holds, a.waits = nil, nil
	holds.number()
	waits.number()

	r.references(holds.move, waits.move)
	r.Holds, r.Waits = keptOf(r.Holds, holds), keptOf(r.Waits, waits)
	for i := range r.Holds {
		h := &r.Holds[i]
		h.Blocks = slices.DeleteFunc(h.Blocks, func(w int) bool { return waits[w] < 0 })
		for j := range h.Blocks {
			waits.move(&h.Blocks[j])
		}
	}
	for i := range r.Waits {
		r.Waits[i].eachHold(holds.move)
	}
}

// places has a number for each hold or wait of the whole report: 1 to keep it, and after number its new place, or -1.
type places []int

func (p places) keep(i *int) {
	if *i >= 0 {
		p[*i] = 1
	}
}

func (p places) number() {
	n := 0
	for i, k := range p {
		p[i] = -1
		if k == 1 {
			p[i] = n
			n++
		}
	}
}

func (p places) move(i *int) {
	if *i >= 0 {
		*i = p[*i]
	}
}

func keptOf[T any](list []T, to places) []T {
	n := 0
	for i := range list {
		if to[i] >= 0 {
			list[n] = list[i]
			n++
		}
	}
	clear(list[n:])
	return list[:n]
}

// references calls functions with the references of all lists except Holds and Waits.
func (r *Report) references(hold, wait func(*int)) {
	for i := range r.Losses {
		hold(&r.Losses[i].Hold)
	}
	for i := range r.Overlong {
		hold(&r.Overlong[i].Hold)
	}
	for i := range r.Roots {
		hold(&r.Roots[i].Hold)
		eachWaiter(r.Roots[i].Waiters, func(w *Waiter) { wait(&w.Wait) })
	}
}

func eachWaiter(list []Waiter, do func(*Waiter)) {
	for i := range list {
		do(&list[i])
		eachWaiter(list[i].Waiters, do)
	}
}

// eachHold calls a function with each reference of a wait to a hold.
func (w *Wait) eachHold(do func(*int)) {
	do(&w.Hold)
	for i := range w.Blockers {
		do(&w.Blockers[i].Hold)
	}
}
