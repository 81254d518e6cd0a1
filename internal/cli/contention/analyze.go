package contention

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Options choose what a report is about. The zero value is everything.
type Options struct {
	// Resource is what the names of resources begin with.
	Resource string
	// Since and Until bound the holds and waits: those that touch the time between count, whole. Zero is no bound.
	Since, Until time.Time
}

// analysis joins what was read, step by step.
type analysis struct {
	*Spans
	ctx  context.Context // the caller's
	opts Options

	holds []hold
	waits []wait
	// byKey and byParty find holds; byParty's are in the order of their starts.
	byKey    map[key]int32
	byParty  map[party][]int32
	blamed   map[sym]blamed
	blamedOn map[ownerAt]int64
	// byOwner finds waits by their owners, and byStep those of steps that have lock IDs of their own,
	// by these, in the order of their starts.
	byOwner   map[sym][]int32
	byStep    map[sym][]int32
	deadlocks []deadlock
	losses    []Loss
	roots     []*guilt // the greatest first
}

// interval is a time, in nanoseconds since 1970.
type interval struct{ from, to int64 }

func (i interval) length() int64 { return max(i.to-i.from, 0) }

// with is what both have in common; its length is 0 if that is nothing.
func (i interval) with(o interval) interval {
	return interval{max(i.from, o.from), min(i.to, o.to)}
}

// hold and wait are those of the report, and what is needed to make it.
type hold struct {
	Hold
	interval
	// reach is until when it may have been in the way of others: its end, or that of what drained after it.
	reach int64
	key   key
	owner sym
	// ofStep says that the lock ID is a single step's.
	ofStep  bool
	blocked int64
}

type wait struct {
	Wait
	interval
	record      *record
	owner       sym
	ofStep      bool
	unexplained int64
	handOver    int64
}

// Analyze tells what the spans tell. It uses them up. The error is the cause with which ctx was
// cancelled; then Analyze returns soon, without a report.
func Analyze(ctx context.Context, spans *Spans, opts Options) (*Report, error) {
	a := &analysis{
		Spans: spans, ctx: ctx, opts: opts,
		byKey: map[key]int32{}, byParty: map[party][]int32{},
		byOwner: map[sym][]int32{}, byStep: map[sym][]int32{},
	}
	for _, join := range []func(){a.makeHolds, a.findLosses, a.dropRecords, a.makeWaits, a.findBlockers, a.findDeadlocks} {
		join()
		if a.stopped() {
			return nil, context.Cause(ctx)
		}
	}
	return a.report()
}

// stopped reports whether the caller has given up. The loops that take long ask it for each wait,
// and end early. Analyze then returns no report, so that no caller sees half of one.
func (a *analysis) stopped() bool { return a.ctx.Err() != nil }

func (a *analysis) report() (*Report, error) {
	r := &Report{Read: a.reading, Losses: a.losses, Deadlocks: []Deadlock{}}
	for i := range a.deadlocks {
		r.Deadlocks = append(r.Deadlocks, a.deadlocks[i].Deadlock)
	}
	for _, add := range []func(*Report){
		a.addResources, a.addOwners, a.addOverlong, a.addTotals, a.addLoad, a.addTypes, a.addRoots, a.conclude, a.narrow,
	} {
		add(r)
		if a.stopped() {
			return nil, context.Cause(a.ctx)
		}
	}
	return r, nil
}

// dropRecords lets go of the records that waits do not need: there may be a million.
func (a *analysis) dropRecords() {
	for _, done := range []kind{kindHold, kindAcquire, kindLeave, kindRenew, kindLost} {
		a.records[done] = nil
	}
}

// manyWaits is from how many on it pays to look for room.
const manyWaits = 100_000

// forget lets go of what only the joining needs, since the report needs the room.
func (a *analysis) forget() {
	a.records = [kinds][]record{}
	a.byKey, a.byParty, a.byOwner, a.byStep, a.blamed, a.blamedOn = nil, nil, nil, nil, nil, nil
	a.roots = nil
	for i := range a.waits {
		a.waits[i].record = nil
	}
	if len(a.waits) > manyWaits {
		runtime.GC() // else the report gets more room from the system, a fifth of a GiB for a million spans
	}
}

// chosen reports whether the report is about something of a resource at a time.
func (a *analysis) chosen(resource string, at interval) bool {
	return strings.HasPrefix(resource, a.opts.Resource) &&
		(a.opts.Since.IsZero() || at.to >= a.opts.Since.UnixNano()) &&
		(a.opts.Until.IsZero() || at.from <= a.opts.Until.UnixNano())
}

func (a *analysis) chosenHold(h *hold) bool { return a.chosen(h.Resource, h.interval) }
func (a *analysis) chosenWait(w *wait) bool { return a.chosen(w.Resource, w.interval) }

// ownerOf is the party of a span, which is its lock ID if it names none.
func ownerOf(owner, lockID sym) sym {
	if owner == 0 {
		return lockID
	}
	return owner
}

// modeOf is a span's mode; every lock is exclusive that is not said to be shared.
func (a *analysis) modeOf(r *record) string {
	return cmp.Or(a.symbols.text(r.texts[textMode]), lockcore.ModeExclusive.String())
}

// workflowOf is the workflow ID in a lock ID that is a Temporal workflow's, or a step's of it.
func workflowOf(lockID string) string {
	workflow, _ := partyOf(lockID)
	return workflow
}

// partyOf reads a lock ID that is a Temporal workflow's, or that of a single step of it.
func partyOf(lockID string) (workflow, step string) {
	of, step, err := wire.ParseLockID(lockID)
	if err != nil || !wire.IsNamespaceID(of.Namespace) {
		return "", ""
	}
	return of.WorkflowID, step
}

// workflowOr is the workflow ID in a lock ID, or the lock ID.
func workflowOr(lockID string) string { return cmp.Or(workflowOf(lockID), lockID) }

// short is an owner's name without the namespace ID that Temporal's owners begin with.
func short(owner string) string {
	if namespace, name, ok := strings.Cut(owner, "/"); ok && wire.IsNamespaceID(namespace) && name != "" {
		return name
	}
	return owner
}

// runOf is the run ID with which the parts of a workflow's run begin.
func runOf(lockID, part string) string {
	run, step, _ := strings.Cut(part, "/")
	if workflowOf(lockID) == "" || stepName(step) == step {
		return ""
	}
	return run
}

// stepName is the activity's type in a part such as "<run ID>/3/Debit", or else the part.
func stepName(part string) string {
	pieces := strings.SplitN(part, "/", 3)
	for i := 0; i+1 < len(pieces) && i < 2; i++ {
		if number := pieces[i]; number != "" && strings.Trim(number, "0123456789") == "" {
			return cmp.Or(strings.Join(pieces[i+1:], "/"), part)
		}
	}
	return part
}

func timeOf(ns int64) time.Time { return time.Unix(0, ns).UTC() }

func nanosecondsOf(s float64) int64 { return int64(s*1e9 + 0.5) }

func seconds(ns int64) float64 { return time.Duration(ns).Seconds() }

// distribution sorts the durations, which are in nanoseconds.
func distribution(durations []int64) Distribution {
	d := Distribution{Count: len(durations)}
	if d.Count == 0 {
		return d
	}
	slices.Sort(durations)
	var total int64
	for _, ns := range durations {
		total += ns
	}
	rank := func(percent int) float64 {
		return seconds(durations[max((percent*len(durations)+99)/100, 1)-1])
	}
	d.Total, d.P50, d.P95, d.P99, d.Max = seconds(total), rank(50), rank(95), rank(99), rank(100)
	return d
}
