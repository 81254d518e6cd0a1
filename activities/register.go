package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

type registry interface {
	RegisterActivityWithOptions(a any, options activity.RegisterOptions)
}

type steps interface {
	currentrun.Locker
	Renew(ctx context.Context, leases ...lockcore.Lease) ([]lockcore.Lease, error)
	LeaveQueue(ctx context.Context, lease lockcore.Lease) (ended bool, err error)
	Recheck(ctx context.Context, req lockcore.StepRequest) (again time.Duration, err error)
	WatchFor(resource string)
}

// Register registers Lockstep's own activities on a worker, or in the SDK's test environment. Package worker calls it. locks is what
// lockcore.Locker.Steps returns. A second call replaces the first.
func Register(on registry, locks steps) {
	// If it registered them one by one, the SDK would add an alias for the name of each method, and a user's own activity method called
	// Release would be taken for ours.
	on.RegisterActivityWithOptions(&lockActivities{locker: locks}, activity.RegisterOptions{
		Name:                          wire.ActivityPrefix,
		DisableAlreadyRegisteredCheck: true,
	})
}

// lockActivities has one exported method for each activity. The errors are application failures whose types begin with "lockstep.". If an
// activity is cancelled, its database command is cancelled too, and its outcome is not known: repeat it, or release. See [decode] for the inputs.
//
// Wait and Acquire wait in back-off: each attempt fails with a retryable lockstep.Busy whose NextRetryDelay is the time until the next
// check, so that waiting uses no slot and adds nothing to the history. The worker that frees the lock completes the activity in between, by
// its ID. A process that has run an attempt watches the resource, because a process that wakes no workflows may have freed it.
type lockActivities struct {
	locker     steps
	namespaces currentrun.NamespaceIDs
}

// Renew extends leases that Acquire returned, each by the TTL of its request. If one is lost it fails with lockstep.Lost, after renewing the
// others.
func (a *lockActivities) Renew(ctx context.Context, in converter.RawValue) (wire.RenewResult, error) {
	p, err := decode[wire.RenewParams](in)
	if err != nil {
		return wire.RenewResult{}, err
	}
	leases, err := a.locker.Renew(ctx, wire.CoreLeases(p.Leases)...)
	if err != nil {
		return wire.RenewResult{}, wire.Failure(err)
	}
	return wire.RenewResult{Leases: wire.Leases(leases)}, nil
}

// Leave ends the parts of leases. The lock is kept for its HoldTTL, or until Release. It has no result.
func (a *lockActivities) Leave(ctx context.Context, in converter.RawValue) (wire.LeaveResult, error) {
	p, err := decode[wire.LeaveParams](in)
	if err != nil {
		return wire.LeaveResult{}, err
	}
	return wire.LeaveResult{}, wire.Failure(a.locker.Leave(ctx, wire.CoreLeases(p.Leases)...))
}

// run returns the workflow run that calls. It fails if the workflow's worker keeps its locks in another collection, unless that one
// was replaced. An activity without a workflow must choose a lock ID; otherwise all such activities would be one party.
func (a *lockActivities) run(ctx context.Context, lockID, collection string) (run wire.Run, replaced bool, err error) {
	if info := activity.GetInfo(ctx); lockID == "" && !info.IsWorkflowActivity() {
		return run, false, wire.Failure(&lockcore.InvalidError{
			Field: "lockId", Value: `""`, Bound: "a lock ID of the caller's choice, in an activity without a workflow",
		})
	}
	replaced, err = currentrun.CheckCollection(ctx, a.locker, collection)
	if err == nil && collection != "" && a.locker.KnownCollectionID() == "" {
		err = wire.UnavailableFailure(0, errors.New("this worker does not know the ID of its collection yet"))
	}
	if err != nil {
		return run, false, err
	}
	run, err = a.namespaces.Run(ctx)
	return run, replaced, err
}

// callerOf returns the caller of the engine for which an activity of a run acts: a step of the workflow with a lock ID of its own; the
// holder of a lock ID that was given, which has no runs; or the workflow itself.
func callerOf(run wire.Run, given, step, part string) lockcore.Caller {
	switch own := run.LockID(); {
	case step != "":
		return lockcore.Caller{LockID: run.StepLockID(step), Run: run.RunID, Within: own, Part: run.Part(part)}
	case given == "" || given == own:
		return lockcore.Caller{LockID: own, Run: run.RunID, Part: run.Part(part)}
	default:
		return lockcore.Caller{LockID: given, Part: part}
	}
}

// decode decodes the input of an activity here and not by the SDK, which would refuse an input that is missing, or is not the JSON of the
// activity, with a failure that is retried forever. A codec has decoded it before: its failure may pass, and is retryable.
func decode[P any](in converter.RawValue) (p P, err error) {
	err = errors.New("it is missing")
	if payload := in.Payload(); payload != nil {
		err = converter.GetDefaultDataConverter().FromPayload(payload, &p)
	}
	if errors.Is(err, converter.ErrEncodingIsNotSupported) { // another worker may have the codec
		return p, wire.UnavailableFailure(0, fmt.Errorf("this worker cannot decode the input, and may lack the workflow's codec: %w", err))
	}
	if err != nil {
		err = &lockcore.InvalidError{Field: "input", Value: wire.Cut(err.Error(), 256), Bound: "one JSON object, with the fields of the activity"}
	} else if checked, ok := any(p).(interface{ Check() error }); ok {
		err = checked.Check()
	}
	return p, wire.Failure(err)
}
