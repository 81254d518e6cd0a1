package activities

import (
	"context"
	"iter"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/collection"
	"github.com/temporal-lockstep/lockstep/internal/namespace"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// Names under which [Register] registers the activities.
const (
	AcquireName = wire.ActivityAcquire
	RenewName   = wire.ActivityRenew
	LeaveName   = wire.ActivityLeave
	ReleaseName = wire.ActivityRelease
	WaitName    = wire.ActivityWait
	KeepName    = wire.ActivityKeep
	BarName     = wire.ActivityBar
)

// Inputs and results of the activities. They are the wire format: fields are only ever appended.
type (
	AcquireParams = wire.AcquireParams
	AcquireResult = wire.AcquireResult
	RenewParams   = wire.RenewParams
	RenewResult   = wire.RenewResult
	LeaveParams   = wire.LeaveParams
	LeaveResult   = wire.LeaveResult
	ReleaseParams = wire.ReleaseParams
	ReleaseResult = wire.ReleaseResult
	WaitParams    = wire.WaitParams
	KeepParams    = wire.KeepParams
	KeepResult    = wire.KeepResult
	BarParams     = wire.BarParams
	BarResult     = wire.BarResult
	// Lease is what Acquire got on one resource.
	Lease = wire.Lease
	// Use is a resource that must still be held since a request has used it.
	Use = wire.Use
	// Duration is a time.Duration that is text in JSON.
	Duration = wire.Duration
)

// Locker is what the activities need of a *lockcore.Locker.
type Locker interface {
	Enter(ctx context.Context, req party.Request) ([]lockcore.Lease, error)
	TryEnter(ctx context.Context, req party.Request) ([]lockcore.Lease, error)
	Renew(ctx context.Context, leases ...lockcore.Lease) ([]lockcore.Lease, error)
	Leave(ctx context.Context, leases ...lockcore.Lease) error
	LeaveQueue(ctx context.Context, leases ...lockcore.Lease) error
	CollectionID(ctx context.Context) (string, error)
	Replaced(ctx context.Context, lockID, run string, resources ...string) ([]string, error)
	Verify(ctx context.Context, v party.Verify) error
	Raise(ctx context.Context, r party.Raise) error
	ReleaseHeld(ctx context.Context, r party.Release) (held []string, err error)
	Recheck(ctx context.Context, req party.Request) (again time.Duration, err error)
	WatchFor(resource string)
	Extend(ctx context.Context, lockID, run, resource string, handOver bool) (again time.Duration, err error)
	Status(ctx context.Context, f lockcore.Filter) iter.Seq2[lockcore.Status, error]
}

// Activities are the lock activities. All exported methods are activities. Each returns an
// application error whose type begins with "lockstep."; cancelling an activity cancels its database
// command, after which it is not known whether it took effect: repeat it, or release.
type Activities struct {
	// Locker does the work. Required.
	Locker Locker

	namespaces namespace.IDs
	collection collection.ID
}

// Renew extends leases that Acquire gave, each by the TTL it was taken with. If one is lost it
// fails with lockstep.Lost; the others are renewed nevertheless.
func (a *Activities) Renew(ctx context.Context, p RenewParams) (RenewResult, error) {
	leases, err := a.Locker.Renew(ctx, wire.CoreLeases(p.Leases)...)
	if err != nil {
		return RenewResult{}, wire.Failure(err)
	}
	return RenewResult{Leases: wire.Leases(leases)}, nil
}

// Leave ends the parts that the leases name. The hold stands, for its HoldTTL, until Release.
func (a *Activities) Leave(ctx context.Context, p LeaveParams) (LeaveResult, error) {
	return LeaveResult{}, wire.Failure(a.Locker.Leave(ctx, wire.CoreLeases(p.Leases)...))
}

// caller is the run that calls, in the name of a lock ID if one is given. Its worker keeps its locks in a collection, if that is
// known. An activity without a workflow has no name of its own, and all of them would be one party: it has to give a lock ID.
func (a *Activities) caller(ctx context.Context, lockID, collection string) (wire.Run, error) {
	if info := activity.GetInfo(ctx); lockID == "" && !info.IsWorkflowActivity() {
		return wire.Run{}, wire.Failure(&lockcore.InvalidError{
			Field: "lockId", Value: `""`, Bound: "a lock ID of the caller's choice, in an activity without a workflow",
		})
	}
	if err := a.collection.Check(ctx, a.Locker, collection); err != nil {
		return wire.Run{}, err
	}
	id, err := a.namespaces.Of(ctx)
	execution := activity.GetInfo(ctx).WorkflowExecution
	return wire.Run{Namespace: id, WorkflowID: execution.ID, RunID: execution.RunID}, err
}

// asker is in whose name an activity acts: run is the run label, and empty for a lock ID of the caller's choice. within is the
// lock ID of the workflow, if it is a step's.
type asker struct{ lockID, run, within string }

// partyOf is the party with the lock ID that is given, a step of the caller's workflow, or the workflow.
func partyOf(given, step string, caller wire.Run) asker {
	switch own := caller.LockID(); {
	case step != "":
		return asker{caller.StepLockID(step), caller.RunID, own}
	case given == "" || given == own:
		return asker{lockID: own, run: caller.RunID}
	default:
		return asker{lockID: given}
	}
}

// part is the name of a part of the party's.
func (p asker) part(caller wire.Run, name string) string {
	if p.run == "" {
		return name
	}
	return caller.Part(name)
}
