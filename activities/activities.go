package activities

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Names under which [Register] registers the activities.
const (
	AcquireName = protocol.ActivityAcquire
	RenewName   = protocol.ActivityRenew
	LeaveName   = protocol.ActivityLeave
	ReleaseName = protocol.ActivityRelease
	WaitName    = protocol.ActivityWait
	KeepName    = protocol.ActivityKeep
	ReapName    = protocol.ActivityReap
)

// Inputs and results of the activities. They are the wire format: fields are only ever appended.
type (
	AcquireParams = protocol.AcquireParams
	AcquireResult = protocol.AcquireResult
	RenewParams   = protocol.RenewParams
	RenewResult   = protocol.RenewResult
	LeaveParams   = protocol.LeaveParams
	LeaveResult   = protocol.LeaveResult
	ReleaseParams = protocol.ReleaseParams
	ReleaseResult = protocol.ReleaseResult
	WaitParams    = protocol.WaitParams
	WaitResult    = protocol.WaitResult
	KeepParams    = protocol.KeepParams
	KeepResult    = protocol.KeepResult
	ReapParams    = protocol.ReapParams
	ReapResult    = protocol.ReapResult
	// Lease is what Acquire got on one resource.
	Lease = protocol.Lease
	// Duration is a time.Duration that is text in JSON.
	Duration = protocol.Duration
)

// releaseBatch is how many resources lockcore releases at once.
const releaseBatch = 100

// Locker is what the activities need of a *lockcore.Locker.
type Locker interface {
	Enter(ctx context.Context, req lockcore.Request, queue bool) ([]lockcore.Lease, error)
	Renew(ctx context.Context, leases ...lockcore.Lease) ([]lockcore.Lease, error)
	Leave(ctx context.Context, leases ...lockcore.Lease) error
	ReleaseHeld(ctx context.Context, r lockcore.Release) (held []string, err error)
	Recheck(ctx context.Context, req lockcore.Request, at string, first bool, held ...string) (again time.Duration, err error)
	Withdrawn(ctx context.Context, req lockcore.Request) error
	Tend(resource string)
	Extend(ctx context.Context, lockID string, resources ...string) (again time.Duration, err error)
	Downgrade(ctx context.Context, lease lockcore.Lease) (lockcore.Lease, error)
	Status(ctx context.Context, f lockcore.Filter) iter.Seq2[lockcore.Status, error]
}

// Activities are the lock activities. All exported methods are activities. Each returns an
// application error whose type begins with "lockstep."; cancelling an activity cancels its database
// command, after which it is not known whether it took effect: repeat it, or release.
type Activities struct {
	// Locker does the work. Required.
	Locker Locker
	// Cluster names the Temporal cluster in lock IDs; package worker checks it. Where the same worker's interceptor has another, Acquire,
	// Wait and Release fail with lockstep.Invalid: they would not find what the interceptor has locked.
	Cluster string

	seen sightings
}

// Renew extends leases that Acquire gave, each by the TTL it was taken with. Where one is lost it
// fails with lockstep.Lost; the others are renewed nevertheless.
func (a *Activities) Renew(ctx context.Context, p RenewParams) (RenewResult, error) {
	leases, err := a.Locker.Renew(ctx, protocol.CoreLeases(p.Leases)...)
	if err != nil {
		return RenewResult{}, protocol.Failure(err)
	}
	return RenewResult{Leases: protocol.Leases(leases)}, nil
}

// Leave ends the parts that the leases name. The hold stands, for its HoldTTL, until Release.
func (a *Activities) Leave(ctx context.Context, p LeaveParams) (LeaveResult, error) {
	return LeaveResult{}, protocol.Failure(a.Locker.Leave(ctx, protocol.CoreLeases(p.Leases)...))
}

// Release ends what the lock ID holds and asks for on the resources, up to the schedule number.
// Releasing what is not held is no error.
func (a *Activities) Release(ctx context.Context, p ReleaseParams) (ReleaseResult, error) {
	if err := protocol.CheckCluster(ctx, a.Cluster); err != nil {
		return ReleaseResult{}, protocol.Failure(err)
	}
	if len(p.Leases) > 0 {
		if err := a.Locker.Leave(ctx, protocol.CoreLeases(p.Leases)...); err != nil {
			return ReleaseResult{}, protocol.Failure(err)
		}
	}
	release := lockcore.Release{
		LockID: a.lockID(p.LockID, p.LockRun, activity.GetInfo(ctx)),
		Order:  lockcore.LastAttempt(p.Schedule),
	}
	held, err := a.release(ctx, release, p.Resources)
	if err != nil {
		return ReleaseResult{}, protocol.Failure(err)
	}
	if err := a.releaseFormer(ctx, p, release.LockID); err != nil {
		return ReleaseResult{}, protocol.Failure(err)
	}
	var result ReleaseResult
	for _, name := range p.Held {
		if activity.GetInfo(ctx).Attempt <= 1 && !slices.Contains(held, name) { // an earlier attempt may have released it
			result.Missing = append(result.Missing, name)
		}
	}
	return result, nil
}

// releaseFormer ends what the runs before a reset have left: those that the run knows, and then whoever else is found there. One
// between two resets is not known where nothing told in whose name it locked.
func (a *Activities) releaseFormer(ctx context.Context, p ReleaseParams, lockID string) error {
	if len(p.Former) == 0 {
		return nil
	}
	info := activity.GetInfo(ctx)
	end := func(lockID string) error {
		// Without an order all that a closed run asked for until now ends: its own numbers are smaller than the clock's.
		_, err := a.release(ctx, lockcore.Release{LockID: lockID, Orphaned: protocol.FormerRun}, p.Resources)
		return err
	}
	for _, run := range p.Former {
		if err := end(a.lockID("", run, info)); err != nil {
			return err
		}
	}
	left, err := protocol.LeftOn(ctx, a.Locker, a.run("", info), lockID, p.Resources)
	for _, run := range left {
		err = errors.Join(err, end(run.LockID()))
	}
	return err
}

func (a *Activities) release(ctx context.Context, r lockcore.Release, names []string) (held []string, err error) {
	for batch := range slices.Chunk(names, releaseBatch) {
		r.Resources = batch
		found, err := a.Locker.ReleaseHeld(ctx, r)
		if err != nil {
			return nil, err
		}
		held = append(held, found...)
	}
	return held, nil
}

// lockID is the one given, or that of a run of the workflow which calls: the one named, or the one that calls.
func (a *Activities) lockID(given, lockRun string, info activity.Info) string {
	if given != "" {
		return given
	}
	return a.run(lockRun, info).LockID()
}

// run is a run of the workflow which calls: the one named, or the one that calls.
func (a *Activities) run(named string, info activity.Info) protocol.Run {
	if named == "" {
		named = info.WorkflowExecution.RunID
	}
	return protocol.Run{Cluster: a.Cluster, Namespace: info.Namespace, WorkflowID: info.WorkflowExecution.ID, RunID: named}
}
