package activities

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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

// Verify verifies, by a majority write to each resource, that the workflow has held what it used without a gap. It renews these holds, releases
// nothing, and fails with lockstep.Lost if one is lost. It has no result.
//
// In the SDK's test environment, in which mocked steps take no locks, a hold counts as lost only if there is evidence.
func (a *lockActivities) Verify(ctx context.Context, in converter.RawValue) (wire.VerifyResult, error) {
	p, err := decode[wire.VerifyParams](in)
	if err != nil {
		return wire.VerifyResult{}, err
	}
	if len(p.Used) == 0 {
		return wire.VerifyResult{}, wire.Failure(&lockcore.InvalidError{Field: "len(used)", Value: "0", Bound: "1 or more"})
	}
	run, replaced, err := a.run(ctx, "", p.Collection)
	if err == nil && replaced {
		err = currentrun.Replaced("", p.Used[0].Resource, p.Collection)
	}
	if err != nil {
		return wire.VerifyResult{}, err
	}
	v := lockcore.Verify{LockID: run.LockID(), Run: run.RunID, Inherits: !currentrun.IsRealClient(activity.GetClient(ctx))}
	if p.Inherits || p.Run != "" && p.Run != run.RunID { // a reset has made the run
		v.Inherits, v.LostSince = true, wire.LostSince(p.Started)
	}
	for _, u := range p.Used {
		v.Used = append(v.Used, lockcore.Use{Resource: u.Resource, Order: lockcore.LastAttempt(u.Schedule)})
	}
	err = currentrun.Verify(ctx, a.locker, run, v)
	if errors.Is(err, lockcore.ErrLost) {
		activity.GetLogger(ctx).Warn("lockstep: locks were lost", "lockId", v.LockID, "error", err)
	}
	return wire.VerifyResult{}, wire.Failure(err)
}

// Release ends the holds and requests of the lock ID on the resources, up to the schedule number. It is not an error if nothing is held.
// It has no result.
func (a *lockActivities) Release(ctx context.Context, in converter.RawValue) (wire.ReleaseResult, error) {
	p, err := decode[wire.ReleaseParams](in)
	if err != nil {
		return wire.ReleaseResult{}, err
	}
	run, replaced, err := a.run(ctx, p.LockID, p.Collection)
	if err != nil {
		return wire.ReleaseResult{}, err
	}
	if replaced && p.Committed {
		activity.GetLogger(ctx).Error("lockstep: a saga committed although the collection with its locks was dropped or replaced",
			"resources", p.Resources, "collection", p.Collection)
	}
	if len(p.Leases) > 0 {
		if err := a.locker.Leave(ctx, wire.CoreLeases(p.Leases)...); err != nil {
			return wire.ReleaseResult{}, wire.Failure(err)
		}
	}
	err = currentrun.Release(ctx, a.locker, activity.GetLogger(ctx), run, p, "", func() (bool, error) { return currentrun.IsCurrent(ctx, run) })
	return wire.ReleaseResult{}, wire.Failure(err)
}

const (
	// barTimeout bounds one attempt: an attempt that cannot reach the database must report that instead of waiting in its slot.
	barTimeout = 10 * time.Second
	// shortestBar and longestBar bound the delay between two attempts. A part that was cut off usually leaves before its TTL ends,
	// when its next renewal fails.
	shortestBar = 100 * time.Millisecond
	longestBar  = 2 * time.Second
	// inlineBar is the time for which an attempt looks again, every lookPause, before it goes into back-off. testBar is that of the SDK's test
	// environment, which skips the time of back-offs and makes 10 attempts: a step that was cut off needs time to return.
	inlineBar = 200 * time.Millisecond
	testBar   = 500 * time.Millisecond
	lookPause = 20 * time.Millisecond
)

// Bar bars the steps of a saga, and of the sagas inside it, up to a schedule number, before the saga's first compensation. Running steps are
// cut off, waiting steps leave their queues, and later attempts are refused with lockstep.Superseded. The first call draws a new fence, under
// which the compensations write. While a step may still run, the attempt fails with a retryable lockstep.Busy, after which the next one
// follows in 0.1 to 2 s. It has no result.
//
// In a run that was made by a reset, or that continues another, Bar takes over what the earlier run holds. It takes no lock, and may be
// repeated with the same input.
func (a *lockActivities) Bar(ctx context.Context, in converter.RawValue) (wire.BarResult, error) {
	p, err := decode[wire.BarParams](in)
	if err != nil {
		return wire.BarResult{}, err
	}
	run, _, err := a.run(ctx, p.LockID, p.Collection)
	if err != nil {
		return wire.BarResult{}, err
	}
	if callerOf(run, p.LockID, "", "").Run == "" {
		return wire.BarResult{}, wire.Failure(&lockcore.InvalidError{
			Field: "lockId", Value: strconv.Quote(wire.Cut(p.LockID, 64)), Bound: "the lock ID of the workflow that calls, or none",
		})
	}
	bounded, cancel := context.WithTimeout(ctx, barTimeout)
	defer cancel()
	bar := lockcore.Raise{LockID: run.LockID(), Run: run.RunID, Saga: p.Saga, Order: lockcore.LastAttempt(p.Schedule), Resources: p.Resources}
	look := inlineBar
	if !currentrun.IsRealClient(activity.GetClient(ctx)) {
		look = testBar
	}
	err = a.raise(bounded, run, bar, look)
	if busy, ok := errors.AsType[*lockcore.BusyError](err); ok {
		return wire.BarResult{}, wire.WaitingFailure(busy, barDelay(busy))
	}
	return wire.BarResult{}, wire.Failure(err)
}

// raise repeats Raise until it no longer returns a BusyError, or the time for looking has passed: most parts are about to leave.
func (a *lockActivities) raise(ctx context.Context, run wire.Run, bar lockcore.Raise, look time.Duration) error {
	for end := time.Now().Add(look); ; {
		err := currentrun.Raise(ctx, a.locker, run, bar)
		if !errors.Is(err, lockcore.ErrBusy) || ctx.Err() != nil || !time.Now().Before(end) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookPause):
		}
	}
}

// barDelay returns the time until the first of the parts that may still run has expired, within bounds.
func barDelay(busy *lockcore.BusyError) time.Duration {
	delay := longestBar
	for _, part := range busy.Holders {
		delay = min(delay, part.ExpiresIn)
	}
	return max(delay, shortestBar)
}
