package janitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Result counts what a round did.
type Result struct {
	// Listed counts the kept holds, claims and waits that were found.
	Listed int `json:"listed"`
	// Asked counts the runs that Temporal was asked about. Each is also counted as Open, Closed, Failed or Unknown.
	Asked int `json:"asked"`
	// Open counts runs that are open or have an heir. Closed counts closed runs without an heir.
	Open   int `json:"open"`
	Closed int `json:"closed"`
	// Unknown counts runs that Temporal does not know, and entries without a run.
	Unknown int `json:"unknown"`
	// Failed counts runs about which a question failed.
	Failed int `json:"failed"`
	// Extended counts kept holds and waits. Released counts entries of closed runs, and of ended steps of open runs, that
	// the round has ended. Entries that changed after they were listed are not ended.
	Extended int `json:"extended"`
	Released int `json:"released"`
	// Damaged counts documents that cannot be decoded.
	Damaged int `json:"damaged"`
	// Errors counts failed commands to the database. The next round repeats them.
	Errors int `json:"errors"`
}

// String lists the counts that are not zero, by their names in JSON, for logs.
func (r Result) String() string {
	var counts []string
	for field, n := range reflect.ValueOf(r).Fields() {
		if !n.IsZero() {
			counts = append(counts, fmt.Sprintf("%s %d", field.Tag.Get("json"), n.Int()))
		}
	}
	return cmp.Or(strings.Join(counts, ", "), "nothing was listed")
}

// parallel bounds the runs that are handled at the same time, if Temporal or the database is slow.
const parallel = 8

// round is a round in progress.
type round struct {
	*Janitor
	mu     sync.Mutex
	result Result
}

// Round asks Temporal once about each run that keeps, waits for or was granted something, and acts on the answers. It begins with the run whose
// first entry expires next. A question or a command that fails is counted, and is not an error. The error matches errRefused, or is the database's
// if the locks could not be listed, or ctx's.
func (j *Janitor) Round(ctx context.Context) (Result, error) {
	r := &round{Janitor: j}
	runs, err := r.list(ctx)
	if err != nil {
		return r.result, err
	}
	group, limited := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, run := range runs {
		if err := j.pace.Wait(limited); err != nil { // a question was refused, or ctx has ended
			group.Go(func() error { return err })
			break
		}
		group.Go(func() error { return r.handle(limited, run) })
	}
	err = group.Wait()
	return r.result, err
}

// listedRun is a run with its entries.
type listedRun struct {
	workflowID, run string
	lockID          string // of the first entry, for logs
	entries         []lockcore.Status
	expiresIn       time.Duration // of the entry that expires first
}

// list returns the runs to ask about, the one whose first entry expires next before the others, and watches the queues
// in which they wait. It leaves out running parts and parts that drain, since these end by themselves.
func (r *round) list(ctx context.Context) ([]*listedRun, error) {
	runs := map[[2]string]*listedRun{} // by workflow ID and run
	for s, err := range r.Locker.Status(ctx, lockcore.Filter{
		LockIDPrefix: wire.NamespacePrefix(r.NamespaceID), Contended: true,
		States: []lockcore.State{lockcore.StateHolding, lockcore.StateClaimed, lockcore.StateWaiting},
	}) {
		switch {
		case errors.Is(err, lockcore.ErrDamaged):
			r.result.Damaged++
			r.logDamaged(s.Resource, err)
			continue
		case err != nil:
			return nil, err
		case s.State != lockcore.StateHolding:
			r.Locker.WatchFor(s.Resource)
		case s.HoldTTL == 0:
			continue
		}
		r.result.Listed++
		of, _, err := wire.ParseLockID(s.LockID)
		if err != nil || of.WorkflowID == "" || s.Run == "" {
			r.result.Unknown++
			continue
		}
		key := [2]string{of.WorkflowID, s.Run}
		run := runs[key]
		if run == nil {
			run = &listedRun{workflowID: key[0], run: key[1], lockID: s.LockID, expiresIn: s.ExpiresIn}
			runs[key] = run
		}
		run.entries = append(run.entries, s)
		run.expiresIn = min(run.expiresIn, s.ExpiresIn)
	}
	return slices.SortedFunc(maps.Values(runs), func(a, b *listedRun) int {
		return cmp.Or(cmp.Compare(a.expiresIn, b.expiresIn), cmp.Compare(a.lockID+"/"+a.run, b.lockID+"/"+b.run))
	}), nil
}

const (
	// damagedEvery is the time between two logs about a damaged document.
	damagedEvery = time.Hour
	// mostDamaged bounds the documents whose logs are remembered. Others are counted, and not logged.
	mostDamaged = 100
)

// logDamaged logs a document that cannot be decoded, once an hour.
func (r *round) logDamaged(name string, err error) {
	now := time.Now()
	maps.DeleteFunc(r.damaged, func(_ string, at time.Time) bool { return now.Sub(at) >= damagedEvery })
	if _, logged := r.damaged[name]; logged || len(r.damaged) >= mostDamaged {
		return
	}
	r.damaged[name] = now
	r.Logger.Error("lockstep: a document of the locks cannot be decoded, and is left out", "resource", name, "error", err)
}

// handle asks about a run and acts on the answer. It returns an error only if the question was refused or ctx has ended.
func (r *round) handle(ctx context.Context, run *listedRun) error {
	found, err := r.ask(ctx, run.workflowID, run.run)
	switch {
	case errors.Is(err, errRefused):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		r.Logger.Warn("lockstep: it is not known whether a workflow is open; the next round asks again", "lockId", run.lockID, "run", run.run, "error", err)
		r.count(&r.result.Failed)
	case found.verdict == closed:
		r.count(&r.result.Closed)
		r.release(ctx, run.entries, "its workflow run is closed: "+found.why)
	case found.verdict == open, found.verdict == inherited:
		r.count(&r.result.Open)
		r.extendOpen(ctx, run.entries, &found)
	default:
		r.count(&r.result.Unknown)
	}
	r.count(&r.result.Asked)
	return nil
}

// extendOpen extends the kept holds and the waits of a run that is open or has an heir, and releases what its ended
// steps have left. The waits of a run with an heir are not extended, because the heir queues for itself.
func (r *round) extendOpen(ctx context.Context, entries []lockcore.Status, found *answer) {
	var ended []lockcore.Status
	for _, e := range entries {
		switch _, step, _ := wire.ParseLockID(e.LockID); {
		case found.verdict == inherited && step != "": // the heir's step acquires its locks again
			ended = append(ended, e)
		case found.hasEnded(&e) && step == "", found.verdict == inherited && e.State != lockcore.StateHolding:
			r.withdraw(ctx, e)
		case found.hasEnded(&e):
			ended = append(ended, e)
		case e.State == lockcore.StateWaiting && found.verdict == open:
			r.extendWait(ctx, e)
		case e.HoldTTL != 0 && (step == "" || len(e.Running) == 0): // a running step renews its own
			r.extendHold(ctx, e)
		}
	}
	for _, e := range ended { // a step that asks again in the meantime has a greater order
		r.send(ctx, lockcore.Release{
			LockID: e.LockID, Run: e.Run, Resources: []string{e.Resource}, Order: lockcore.LastAttempt(e.Order.Schedule),
		}, "its step has ended")
	}
}

// extendHold extends a kept hold if half of its time is gone, or if it would not last for two more intervals.
func (r *round) extendHold(ctx context.Context, e lockcore.Status) {
	if e.ExpiresIn > max(e.HoldTTL/2, 2*r.Interval) {
		return
	}
	_, err := r.Locker.Extend(ctx, e.LockID, e.Run, e.Resource)
	if !errors.Is(err, lockcore.ErrLost) && !errors.Is(err, lockcore.ErrOtherRun) { // otherwise it ended or was taken over since it was listed
		r.record(ctx, "extend", e.LockID, err, true, &r.result.Extended)
	}
}

// waitReserve is the remaining time from which on a wait is extended.
const waitReserve = 30 * time.Minute

// extendWait extends a wait that is about to expire.
func (r *round) extendWait(ctx context.Context, e lockcore.Status) {
	if e.ExpiresIn > max(waitReserve, 2*r.Interval) {
		return
	}
	r.record(ctx, "keep the place", e.LockID, r.Locker.Refresh(ctx, leaseOf(e)), true, &r.result.Extended)
}

func leaseOf(e lockcore.Status) lockcore.Lease {
	return lockcore.Lease{Resource: e.Resource, LockID: e.LockID, Run: e.Run, Part: e.Part, Order: e.Order}
}

// withdraw removes a request from its queue. A newer request has a greater order and stays.
func (r *round) withdraw(ctx context.Context, e lockcore.Status) {
	ended, err := r.Locker.LeaveQueue(ctx, leaseOf(e))
	r.record(ctx, "leave", e.LockID, err, ended, &r.result.Released)
}

// release ends entries of closed runs, waits first. It names each by its fence: evidence of losses stays, for a run that
// a reset may make of one of them.
func (r *round) release(ctx context.Context, entries []lockcore.Status, why string) {
	for _, e := range entries {
		if e.State != lockcore.StateHolding {
			r.withdraw(ctx, e)
		}
	}
	for _, e := range entries {
		if e.State == lockcore.StateHolding {
			r.send(ctx, lockcore.Release{LockID: e.LockID, Run: e.Run, Resources: []string{e.Resource}, FirstFence: e.FirstFence}, why)
		}
	}
}

// send sends a release.
func (r *round) send(ctx context.Context, release lockcore.Release, why string) {
	release.Reason = wire.Cut("released by the janitor, since "+why, wire.MaxName)
	ended, err := r.Locker.End(ctx, release)
	if err == nil && ended { // otherwise it has ended since it was listed
		r.Logger.Info("lockstep: the janitor released what was left", "lockId", release.LockID, "run", release.Run, "why", why, "resources", release.Resources)
	}
	r.record(ctx, "release", release.LockID, err, ended, &r.result.Released)
}

// record counts a command that failed, and logs it, or one that has changed something.
func (r *round) record(ctx context.Context, command, lockID string, err error, changed bool, count *int) {
	switch {
	case err != nil:
		r.count(&r.result.Errors)
		if ctx.Err() == nil {
			r.Logger.Warn("lockstep: a command of the janitor failed; the next round repeats it", "command", command, "lockId", lockID, "error", err)
		}
	case changed:
		r.count(count)
	}
}

func (r *round) count(n *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
}
