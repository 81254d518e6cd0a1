package janitor

import (
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// dealtAtOnce bounds the runs that are dealt with at once, if Temporal or the database is slow.
	dealtAtOnce = 8
	// releaseBatch is how many resources lockcore releases at once.
	releaseBatch = 100
)

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
	// Extended are kept holds. Released are entries of closed runs, and places that an open run
	// left.
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
	case found.verdict == open:
		r.count(func(n *Result) { n.Open++ })
		r.extend(ctx, s)
		if found.idle {
			r.leave(ctx, s)
		}
	case found.verdict == closed:
		r.count(func(n *Result) { n.Closed++ })
		r.release(ctx, s, found.why)
	default:
		r.count(func(n *Result) { n.Unknown++ })
	}
	r.count(func(n *Result) { n.Asked++ })
	return nil
}

// extend gives a sign of life for the kept holds of an open run, if half of their time is gone, or
// if they would not stand for two intervals more.
func (r *round) extend(ctx context.Context, s *suspect) {
	for _, e := range s.entries {
		if e.HoldTTL == 0 || e.ExpiresIn > max(e.HoldTTL/2, 2*r.Interval) {
			continue
		}
		_, err := r.Locker.Extend(ctx, e.LockID, e.Run, e.Resource)
		switch {
		case err == nil:
			r.count(func(n *Result) { n.Extended++ })
		case errors.Is(err, lockcore.ErrLost), errors.Is(err, lockcore.ErrOtherRun): // released or taken over since it was listed
		default:
			r.failed(ctx, "extend", e.LockID, err)
		}
	}
}

// leave gives up the places of an open run in which nothing is pending: the steps that waited there
// have ended without doing so. A request that came since has a greater order, and stands.
func (r *round) leave(ctx context.Context, s *suspect) {
	for _, e := range s.entries {
		if e.State != lockcore.StateWaiting {
			continue
		}
		err := r.Locker.Leave(ctx, lockcore.Lease{Resource: e.Resource, LockID: e.LockID, Run: e.Run, Part: e.Part, Order: e.Order})
		if err != nil {
			r.failed(ctx, "leave", e.LockID, err)
			continue
		}
		r.count(func(n *Result) { n.Released++ })
	}
}

// release ends all that a closed run has. It asks for nothing any more, so that nothing new is
// ended if it was listed long before.
func (r *round) release(ctx context.Context, s *suspect, why string) {
	resources := map[string][]string{} // by lock ID
	for _, e := range s.entries {
		resources[e.LockID] = append(resources[e.LockID], e.Resource)
	}
	for lockID, names := range resources {
		slices.Sort(names)
		for batch := range slices.Chunk(slices.Compact(names), releaseBatch) {
			err := r.Locker.Release(ctx, lockcore.Release{
				LockID: lockID, Run: s.run, Resources: batch, Orphaned: "released by the janitor, since the workflow run is closed: " + why,
			})
			if err != nil {
				r.failed(ctx, "release", lockID, err)
				continue
			}
			r.Logger.Info("lockstep: the janitor released what a closed workflow run left", "lockId", lockID, "run", s.run, "why", why, "resources", batch)
			r.count(func(n *Result) { n.Released += len(batch) })
		}
	}
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
