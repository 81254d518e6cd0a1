package lockactivities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Locker is the part of a *lockcore.Steps that the activities need.
type Locker interface {
	currentrun.Locker
	currentrun.Verifier
	currentrun.Raiser
	currentrun.Releaser
	currentrun.CollectionIdentifier
	Renew(ctx context.Context, leases ...lockcore.Lease) ([]lockcore.Lease, error)
	LeaveQueue(ctx context.Context, lease lockcore.Lease) (ended bool, err error)
	Recheck(ctx context.Context, req lockcore.StepRequest) (again time.Duration, err error)
	WatchFor(resource string)
}

// Activities has one exported method for each activity. The errors are application failures whose types begin with "lockstep.". If an
// activity is cancelled, its database command is cancelled too, and its outcome is not known: repeat it, or release.
type Activities struct {
	// Locker is required.
	Locker Locker

	namespaces currentrun.NamespaceIDs
}

// Registry registers activities: a worker, or the SDK's test environment.
type Registry interface {
	RegisterActivityWithOptions(a any, options activity.RegisterOptions)
}

// Register registers the activities under their names. It may be called again; the last registration counts.
//
// It registers them as a struct. If it registered them one by one, the SDK would add an alias for the name of each method, and a user's
// own activity method called Release would be taken for ours.
func Register(registry Registry, locker Locker) {
	registry.RegisterActivityWithOptions(&registered{&Activities{Locker: locker}}, activity.RegisterOptions{
		Name:                          wire.ActivityPrefix,
		DisableAlreadyRegisteredCheck: true,
	})
}

// Renew extends leases that Acquire returned, each by the TTL of its request. If one is lost it fails with lockstep.Lost, after renewing the
// others.
func (a *Activities) Renew(ctx context.Context, p wire.RenewParams) (wire.RenewResult, error) {
	leases, err := a.Locker.Renew(ctx, wire.CoreLeases(p.Leases)...)
	if err != nil {
		return wire.RenewResult{}, wire.Failure(err)
	}
	return wire.RenewResult{Leases: wire.Leases(leases)}, nil
}

// Leave ends the parts of leases. The lock is kept for its HoldTTL, or until Release. It has no result.
func (a *Activities) Leave(ctx context.Context, p wire.LeaveParams) (wire.LeaveResult, error) {
	return wire.LeaveResult{}, wire.Failure(a.Locker.Leave(ctx, wire.CoreLeases(p.Leases)...))
}

// caller returns the workflow run that calls. It fails if the workflow's worker keeps its locks in another collection, unless that one
// was replaced. An activity without a workflow must choose a lock ID; otherwise all such activities would be one party.
func (a *Activities) caller(ctx context.Context, lockID, collection string) (run wire.Run, replaced bool, err error) {
	if info := activity.GetInfo(ctx); lockID == "" && !info.IsWorkflowActivity() {
		return run, false, wire.Failure(&lockcore.InvalidError{
			Field: "lockId", Value: `""`, Bound: "a lock ID of the caller's choice, in an activity without a workflow",
		})
	}
	replaced, err = currentrun.CheckCollection(ctx, a.Locker, collection)
	if err == nil && collection != "" && a.Locker.KnownCollectionID() == "" {
		err = wire.UnavailableFailure(0, errors.New("this worker does not know the ID of its collection yet"))
	}
	if err != nil {
		return run, false, err
	}
	run, err = a.namespaces.Run(ctx)
	return run, replaced, err
}

// identity names the party for which an activity acts. run is the run ID; it is empty if the caller chose the lock ID. within is the
// lock ID of the workflow if the party is a step.
type identity struct{ lockID, run, within string }

// identityOf returns the party with the given lock ID, or a step of the caller's workflow, or the workflow itself.
func identityOf(given, step string, caller wire.Run) identity {
	switch own := caller.LockID(); {
	case step != "":
		return identity{caller.StepLockID(step), caller.RunID, own}
	case given == "" || given == own:
		return identity{lockID: own, run: caller.RunID}
	default:
		return identity{lockID: given}
	}
}

// part returns the name of a part of the party.
func (i identity) part(caller wire.Run, name string) string {
	if i.run == "" {
		return name
	}
	return caller.Part(name)
}
