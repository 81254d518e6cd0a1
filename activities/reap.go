package activities

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// mostAsked bounds the questions to Temporal that are under way at once.
	mostAsked = 16
	// missingAfter is the default of ReapParams.MissingAfter.
	missingAfter = time.Hour
)

// Reap releases what closed workflow runs of its namespace have left, and counts it. It lists the
// holds that are kept, and the claims and queued places, of the namespace's runs that have not
// expired, with what else stands beside them, and asks Temporal about each exact run, once. One of
// these happens:
//  1. the run is open, or paused, or it was reset or continued as new and the run that goes on is open, which takes over
//     what it left when it asks: nothing;
//  2. the run is closed, and nobody goes on for it: everything that it has is released. A part
//     that still trusts its lease drains. A closed run never acquires again, so nothing new is lost if it was
//     listed long before; an attempt of it that comes late is refused;
//  3. its namespace does not know it, nor its workflow's successor. Where an earlier reap of this worker saw it open, in a namespace
//     that is not replicated, it was deleted: everything is released. Else it may also be not replicated yet: it is released when nothing of it has given a sign of life for MissingAfter;
//  4. it could not be asked about, since the question failed, or the lock ID is no run's or carries a hash: nothing.
//
// A run that could not be asked about, or whose release failed, is no error: it is counted, and the next reap tries again. The
// error is a retryable lockstep.Unavailable if the locks could not be listed or the namespace not be described, and ctx's.
func (a *Activities) Reap(ctx context.Context, p ReapParams) (ReapResult, error) {
	id, err := a.namespaces.Of(ctx)
	if err != nil {
		return ReapResult{}, err
	}
	r := &reap{
		locker: a.Locker, id: id, namespace: activity.GetInfo(ctx).Namespace, temporal: activity.GetClient(ctx).WorkflowService(), logger: activity.GetLogger(ctx),
		missingAfter: time.Duration(p.MissingAfter), seen: &a.seen, open: map[string]bool{},
	}
	if r.missingAfter <= 0 {
		r.missingAfter = missingAfter
	}
	orphans, err := r.list(ctx)
	if err != nil {
		return ReapResult{}, protocol.Failure(err)
	}
	r.askAll(ctx, orphans)
	if ctx.Err() != nil {
		return ReapResult{}, context.Cause(ctx)
	}
	a.seen.replace(r.open)
	write, n := r.logger.Debug, r.result
	if n.Runs > n.Open {
		write = r.logger.Info
	}
	write("lockstep: reaped", "listed", n.Listed, "runs", n.Runs, "asked", n.Asked, "open", n.Open, "closed", n.Closed,
		"released", n.Released, "missing", n.Missing, "unknown", n.Unknown, "failed", n.Failed)
	return n, nil
}

// reap is one run of the reaper.
type reap struct {
	locker Locker
	// id and namespace are the worker's namespace and its name.
	id, namespace string
	temporal      workflowservice.WorkflowServiceClient
	logger        log.Logger
	missingAfter  time.Duration

	mu     sync.Mutex
	result ReapResult
	// replicated says whether the namespace is, if that is known.
	replicated *bool
	// seen are the runs that the reap before saw open, and open those that this one did, by lock ID and run.
	seen *sightings
	open map[string]bool
}

// suspect is a run that has locks, or waits for some.
type suspect struct {
	lockID    string
	run       string // the run label
	resources map[string]bool
	listed    int
	// silent is for how long nothing that it has gave a sign of life.
	silent time.Duration
}

// list finds who is to be asked about. What has expired is in nobody's way, and what drains ends by
// itself. So does a plain hold, which an attempt keeps alive: where nothing else stands it is not
// listed.
func (r *reap) list(ctx context.Context) (map[string]*suspect, error) {
	suspects := map[string]*suspect{}
	for s, err := range r.locker.Status(ctx, lockcore.Filter{
		LockIDPrefix: protocol.NamespacePrefix(r.id), Live: true, Contended: true,
		States: []lockcore.State{lockcore.StateHolding, lockcore.StateClaimed, lockcore.StateWaiting},
	}) {
		if err != nil {
			return nil, err
		}
		activity.RecordHeartbeat(ctx)
		key := s.LockID + "/" + s.Run
		found := suspects[key]
		if found == nil {
			found = &suspect{lockID: s.LockID, run: s.Run, resources: map[string]bool{}, silent: s.Silent}
			suspects[key] = found
		}
		found.resources[s.Resource] = true
		found.listed++
		found.silent = min(found.silent, s.Silent)
		r.result.Listed++
	}
	r.result.Runs = len(suspects)
	return suspects, nil
}

func (r *reap) askAll(ctx context.Context, suspects map[string]*suspect) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, mostAsked)
	for _, id := range slices.Sorted(maps.Keys(suspects)) {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() { <-slots }()
			r.one(ctx, suspects[id])
			activity.RecordHeartbeat(ctx)
		}()
	}
	wg.Wait()
}

// one judges a run, and releases what it left.
func (r *reap) one(ctx context.Context, s *suspect) {
	found, why, err := r.judge(ctx, s)
	if found == closed {
		if err = r.release(ctx, s, why); err != nil {
			found = failed
		}
	}
	switch found {
	case closed:
		r.logger.Info("lockstep: released what a closed workflow left", "lockId", s.lockID, "run", s.run, "why", why,
			"resources", slices.Sorted(maps.Keys(s.resources)))
	case failed:
		if ctx.Err() == nil {
			r.logger.Warn("lockstep: it is not known whether a lock was left by a closed workflow, or it could not be released; "+
				"the next reap tries again", "lockId", s.lockID, "run", s.run, "error", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if key := s.lockID + "/" + s.run; found == open || found != closed && r.seen.has(key) {
		r.open[key] = true
	}
	switch found {
	case open:
		r.result.Open++
	case closed:
		r.result.Closed++
		r.result.Released += s.listed
	case missing:
		r.result.Missing++
	case unknown:
		r.result.Unknown++
	case failed:
		r.result.Failed++
	}
}

// release ends all that the run asked for or may still ask for.
func (r *reap) release(ctx context.Context, s *suspect, why string) error {
	var errs error
	for batch := range slices.Chunk(slices.Sorted(maps.Keys(s.resources)), releaseBatch) {
		_, err := r.locker.ReleaseHeld(ctx, lockcore.Release{
			LockID: s.lockID, Run: s.run, Resources: batch, Order: lockcore.LastAttempt(math.MaxInt32),
			Orphaned: protocol.Cut("reaped, since its workflow run is closed: "+why, protocol.MaxName),
		})
		errs = errors.Join(errs, err)
	}
	return errs
}
