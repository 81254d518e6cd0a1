package janitor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// dealtAtOnce bounds the runs that are dealt with at once, if Temporal or the database is slow.
const dealtAtOnce = 8

// Result says what a round did.
type Result struct {
	// Listed are the kept holds, claims and places that were found.
	Listed int `json:"listed"`
	// Asked are the runs that Temporal was asked about. Each is also counted as Open, Closed or
	// Failed, or in Unknown.
	Asked int `json:"asked"`
	// Open are runs that are open or have an heir. Closed are runs that are closed, without an
	// heir.
	Open   int `json:"open"`
	Closed int `json:"closed"`
	// Unknown are runs that Temporal does not know, and entries that name none.
	Unknown int `json:"unknown"`
	// Failed are runs about which a question failed.
	Failed int `json:"failed"`
	// Extended are kept holds and places. Released are entries of closed runs, and of steps of open
	// runs that have ended.
	Extended int `json:"extended"`
	Released int `json:"released"`
	// Errors are commands to the database that failed. The next round repeats them.
	Errors int `json:"errors"`
}

// round is a round that is under way.
type round struct {
	*Janitor
	mu     sync.Mutex
	result Result
}

// Round asks Temporal once about each run that keeps, waits for or was granted something, and does
// what follows from the answer: first about the run whose promise ends first. It needs no office.
//
// A question or a command that fails is counted, and is no error. The error is a *RefusedError, the
// database's if the locks could not be listed, or ctx's. The result says what was done until then.
func (j *Janitor) Round(ctx context.Context) (Result, error) {
	r := &round{Janitor: j}
	suspects, err := r.list(ctx)
	if err != nil {
		return r.result, err
	}
	group, dealing := errgroup.WithContext(ctx)
	group.SetLimit(dealtAtOnce)
	for _, s := range suspects {
		if err := j.pace.Wait(dealing); err != nil { // a question was refused, or ctx ends
			group.Go(func() error { return err })
			break
		}
		group.Go(func() error { return r.deal(dealing, s) })
	}
	err = group.Wait()
	return r.result, err
}

// deal asks about a run, and does what follows. It returns an error only if the question was
// refused, or ctx has ended.
func (r *round) deal(ctx context.Context, s *suspect) error {
	found, err := r.asker.ask(ctx, s.workflowID, s.run)
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		r.Logger.Warn("lockstep: it is not known whether a workflow is open; the next round asks again", "lockId", s.lockID, "run", s.run, "error", err)
		r.count(func(n *Result) { n.Failed++ })
	case found.verdict == closed:
		r.count(func(n *Result) { n.Closed++ })
		r.release(ctx, s.entries, "its workflow run is closed: "+found.why)
	case found.verdict == open, found.verdict == inherited:
		r.count(func(n *Result) { n.Open++ })
		r.tend(ctx, s, &found)
	default:
		r.count(func(n *Result) { n.Unknown++ })
	}
	r.count(func(n *Result) { n.Asked++ })
	return nil
}

// tend deals with what an open run has, or a run whose heir is open. What its steps have left when they ended is given up, and what
// those of a run have that was reset. Other kept holds and places are prolonged. The places of a run that has an heir are not: the heir queues for itself.
func (r *round) tend(ctx context.Context, s *suspect, found *answer) {
	var over, left []lockcore.Status
	for _, e := range s.entries {
		switch _, step, _ := wire.ParseLockID(e.LockID); {
		case found.continued && !r.handedOver(ctx, e):
			left = append(left, e)
		case found.verdict == inherited && step != "": // the heir's step acquires its locks again
			over = append(over, e)
		case found.isOver(&e) && step == "":
			r.leave(ctx, e)
		case found.isOver(&e):
			over = append(over, e)
		case e.State == lockcore.StateWaiting && found.verdict == open:
			r.keepPlace(ctx, e)
		case e.HoldTTL != 0 && (step == "" || len(e.Running) == 0): // a step that runs renews its own
			r.extend(ctx, e)
		}
	}
	for _, e := range over { // a step that asks again meanwhile has a greater order
		r.end(ctx, party.Release{
			LockID: e.LockID, Run: e.Run, Resources: []string{e.Resource}, Order: party.LastAttempt(e.Order.Schedule),
		}, "its step has ended")
	}
	r.release(ctx, left, "its workflow run has continued as new, and not handed it over")
}

// handedOver reports whether a closed run has handed an entry over, perhaps after it was listed. If
// that is not known it reports true.
func (r *round) handedOver(ctx context.Context, e lockcore.Status) bool {
	if e.HandedOver || e.State != lockcore.StateHolding {
		return e.HandedOver
	}
	for now, err := range r.Locker.Status(ctx, lockcore.Filter{Resource: e.Resource, LockID: e.LockID}) {
		if err != nil {
			r.failed(ctx, "read", e.LockID, err)
			return true
		}
		if now.State == lockcore.StateHolding && now.HandedOver {
			return true
		}
	}
	return false
}

// extend gives a sign of life for a kept hold, if half of its time is gone, or if it would not
// stand for two intervals more.
func (r *round) extend(ctx context.Context, e lockcore.Status) {
	if e.ExpiresIn > max(e.HoldTTL/2, 2*r.Interval) {
		return
	}
	_, err := r.Locker.Extend(ctx, e.LockID, e.Run, e.Resource, false)
	switch {
	case err == nil:
		r.count(func(n *Result) { n.Extended++ })
	case errors.Is(err, lockcore.ErrLost), errors.Is(err, party.ErrOtherRun): // released or taken over since it was listed
	default:
		r.failed(ctx, "extend", e.LockID, err)
	}
}

// placeStands is what is left of a place that is not prolonged yet.
const placeStands = 30 * time.Minute

// keepPlace prolongs a place in a queue, likewise.
func (r *round) keepPlace(ctx context.Context, e lockcore.Status) {
	if e.ExpiresIn > max(placeStands, 2*r.Interval) {
		return
	}
	if err := r.Locker.KeepPosition(ctx, place(e)); err != nil {
		r.failed(ctx, "keep the place", e.LockID, err)
		return
	}
	r.count(func(n *Result) { n.Extended++ })
}

func place(e lockcore.Status) lockcore.Lease {
	return lockcore.Lease{Resource: e.Resource, LockID: e.LockID, Run: e.Run, Part: e.Part, Order: e.Order}
}

// leave gives up a place. A request that came since has a greater order, and stands.
func (r *round) leave(ctx context.Context, e lockcore.Status) {
	if err := r.Locker.LeaveQueue(ctx, place(e)); err != nil {
		r.failed(ctx, "leave", e.LockID, err)
		return
	}
	r.count(func(n *Result) { n.Released++ })
}

// release ends what closed runs have, each by its name: what evidence there is of losses stands,
// for a run that is made of one of them by a reset.
func (r *round) release(ctx context.Context, entries []lockcore.Status, why string) {
	for _, e := range entries {
		if e.State != lockcore.StateHolding {
			r.leave(ctx, e)
		}
	}
	for _, e := range entries {
		if e.State == lockcore.StateHolding {
			r.end(ctx, party.Release{LockID: e.LockID, Run: e.Run, Resources: []string{e.Resource}, FirstFence: e.FirstFence}, why)
		}
	}
}

// end sends a release.
func (r *round) end(ctx context.Context, release party.Release, why string) {
	release.Reason = wire.Cut("released by the janitor, since "+why, wire.MaxName)
	if err := r.Locker.Release(ctx, release); err != nil {
		r.failed(ctx, "release", release.LockID, err)
		return
	}
	r.Logger.Info("lockstep: the janitor released what was left", "lockId", release.LockID, "run", release.Run, "why", why, "resources", release.Resources)
	r.count(func(n *Result) { n.Released++ })
}

// failed counts and logs a command that failed.
func (r *round) failed(ctx context.Context, command, lockID string, err error) {
	r.count(func(n *Result) { n.Errors++ })
	if ctx.Err() == nil {
		r.Logger.Warn("lockstep: a command of the janitor failed; the next round repeats it", "command", command, "lockId", lockID, "error", err)
	}
}

func (r *round) count(add func(*Result)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	add(&r.result)
}
