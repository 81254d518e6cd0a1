package currentrun

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// mostOthers bounds the runs from which one request takes over. Each of its resources may belong to another run.
	mostOthers = 8
	// enterTimeout bounds a request. An attempt that cannot reach the database must report that instead of waiting in its slot.
	enterTimeout = 10 * time.Second
)

// Locker is the part of a *lockcore.Steps that this package needs.
type Locker interface {
	Enter(ctx context.Context, req lockcore.StepRequest) ([]lockcore.Lease, error)
	TryEnter(ctx context.Context, req lockcore.StepRequest) ([]lockcore.Lease, error)
	Leave(ctx context.Context, leases ...lockcore.Lease) error
	Verify(ctx context.Context, v lockcore.Verify) error
	Raise(ctx context.Context, r lockcore.Raise) error
	Release(ctx context.Context, r lockcore.Release) error
	ReleaseCommitted(ctx context.Context, r lockcore.Release) (missed []lockcore.LostError, err error)
	Status(ctx context.Context, f lockcore.Filter) iter.Seq2[lockcore.Status, error]
	KnownCollectionID() string
	CollectionID(ctx context.Context) (string, error)
	Replaces(ctx context.Context, id string) (replaces bool, own string, err error)
}

// InlineWait returns the longest time that an attempt may wait for its locks in its slot. A short wait saves the events of
// parking; the bound leaves most of the attempt's time to the step.
func InlineWait(info activity.Info) time.Duration {
	wait := 2 * time.Second
	for _, limit := range []time.Duration{info.StartToCloseTimeout, info.HeartbeatTimeout} {
		if limit > 0 {
			wait = min(wait, limit/4)
		}
	}
	return wait
}

// AttemptName describes an attempt of an activity, for people.
func AttemptName(info activity.Info) string {
	return fmt.Sprintf("%s, activity %s, attempt %d", info.ActivityType.Name, info.ActivityID, info.Attempt)
}

// Bound returns the time that a command of an attempt may take: at most half of what is left to the attempt, so that it can report the outcome.
func Bound(ctx context.Context, most time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(most, time.Until(deadline)/2)
	}
	return most
}

// Enter calls Locker.Enter, or Locker.TryEnter, for a request of own, in an activity of that run, and takes over locks that other runs of the
// workflow hold. Its error is that of the Locker, or reports that Temporal could not be asked. A *lockcore.OtherRunError means that own is not
// the current run. If own may not take over all, Enter leaves the resources that it has by then. A lock ID without runs has nothing to take over.
// Enter takes at most 10 s; see [Bound].
func Enter(ctx context.Context, locker Locker, try bool, own wire.Run, req lockcore.StepRequest) (leases []lockcore.Lease, err error) {
	bound, enter := Bound(ctx, enterTimeout), locker.Enter
	if try {
		enter = locker.TryEnter
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	req.MaxWait = min(req.MaxWait, bound/2)
	req.Call = rand.Text() // repeated after a take-over, it is the same request
	err = takeOver(ctx, own, func(replaced string) (err error) {
		req.TakeOver = replaced
		leases, err = enter(ctx, req)
		return err
	})
	if err != nil && len(leases) > 0 {
		return nil, errors.Join(err, locker.Leave(context.WithoutCancel(ctx), leases...))
	}
	return leases, err
}

// takeOver calls ask until no other run of the workflow holds what it needs, or Temporal does not report own as the current run: first with
// "", and then with the run from which own takes over. The error is that of ask, or only Temporal's if it cannot be asked, because
// nothing is known of the runs then.
func takeOver(ctx context.Context, own wire.Run, ask func(replaced string) error) error {
	err := ask("")
	for range mostOthers {
		other, ok := errors.AsType[*lockcore.OtherRunError](err)
		if !ok {
			break
		}
		if current, failed := IsCurrent(ctx, own); failed != nil || !current {
			return cmp.Or(failed, err)
		}
		err = ask(other.Other)
	}
	return err
}

// Verify calls Locker.Verify for own, in an activity of that run. If own inherits from other runs of the workflow, it takes over
// what they hold. If not, a hold of another run is a loss, because a guarded step of own would have taken it over.
func Verify(ctx context.Context, locker Locker, own wire.Run, v lockcore.Verify) error {
	var other *lockcore.OtherRunError
	return takeOver(ctx, own, func(replaced string) error {
		if other != nil && !v.Inherits {
			return &lockcore.LostError{Resource: other.Resource, LockID: other.LockID, Reason: "an earlier run holds it, and no step of this run does"}
		}
		v.TakeOver = replaced
		err := locker.Verify(ctx, v)
		errors.As(err, &other)
		return err
	})
}

// Raise calls Locker.Raise for own, in an activity of that run, and takes over what other runs of the workflow hold if own is the
// current run. Otherwise the error is the *lockcore.OtherRunError, or reports that Temporal could not be asked.
func Raise(ctx context.Context, locker Locker, own wire.Run, r lockcore.Raise) error {
	return takeOver(ctx, own, func(replaced string) error {
		r.TakeOver = replaced
		return locker.Raise(ctx, r)
	})
}
