package currentrun

import (
	"context"
	"crypto/rand"
	"errors"
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

// Locker is the part of a *lockcore.Steps that Enter and TryEnter need.
type Locker interface {
	Enter(ctx context.Context, req lockcore.StepRequest) ([]lockcore.Lease, error)
	TryEnter(ctx context.Context, req lockcore.StepRequest) ([]lockcore.Lease, error)
	Leave(ctx context.Context, leases ...lockcore.Lease) error
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

// Enter calls Locker.Enter for a request of own, in an activity of that run, and takes over locks that other runs of the workflow
// hold. Its error is that of Locker.Enter, or reports that Temporal could not be asked. A *lockcore.OtherRunError means that own is
// not the current run. Enter takes at most 10 s, and at most half of the time that ctx has left.
func Enter(ctx context.Context, locker Locker, own wire.Run, req lockcore.StepRequest) ([]lockcore.Lease, error) {
	return takeOverRuns(ctx, locker, locker.Enter, own, req)
}

// TryEnter is [Enter] without queueing: it calls Locker.TryEnter.
func TryEnter(ctx context.Context, locker Locker, own wire.Run, req lockcore.StepRequest) ([]lockcore.Lease, error) {
	return takeOverRuns(ctx, locker, locker.TryEnter, own, req)
}

// takeOverRuns calls enter until no other run of the workflow holds a resource of the request, or own may not take over. Then it leaves those
// of the resources that it has by then.
func takeOverRuns(
	ctx context.Context, locker Locker, enter func(context.Context, lockcore.StepRequest) ([]lockcore.Lease, error), own wire.Run, req lockcore.StepRequest,
) (leases []lockcore.Lease, err error) {
	bound := enterTimeout
	if deadline, ok := ctx.Deadline(); ok {
		bound = min(bound, time.Until(deadline)/2)
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

// takeOver calls ask until no other run of the workflow holds what it needs, or own may not take over: first with "", and then with the
// run from which own takes over. The error is that of ask, or reports that Temporal could not be asked.
func takeOver(ctx context.Context, own wire.Run, ask func(replaced string) error) error {
	err := ask("")
	for n := 0; n < mostOthers && errors.Is(err, lockcore.ErrOtherRun); n++ {
		replaced, failed := mayTakeOver(ctx, own, err)
		if failed != nil {
			return failed
		}
		err = ask(replaced)
	}
	return err
}

// Verifier is the part of a *lockcore.Steps that Verify needs.
type Verifier interface {
	Verify(ctx context.Context, v lockcore.Verify) error
}

// Verify calls Verifier.Verify for own, in an activity of that run. If own inherits from other runs of the workflow, it takes over
// what they hold. If not, a hold of another run is a loss, because a guarded step of own would have taken it over.
func Verify(ctx context.Context, locker Verifier, own wire.Run, v lockcore.Verify) error {
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

// Raiser is the part of a *lockcore.Steps that Raise needs.
type Raiser interface {
	Raise(ctx context.Context, r lockcore.Raise) error
}

// Raise calls Raiser.Raise for own, in an activity of that run, and takes over what other runs of the workflow hold if own is the
// current run. Otherwise the error is the *lockcore.OtherRunError, or reports that Temporal could not be asked.
func Raise(ctx context.Context, locker Raiser, own wire.Run, r lockcore.Raise) error {
	return takeOver(ctx, own, func(replaced string) error {
		r.TakeOver = replaced
		return locker.Raise(ctx, r)
	})
}

// mayTakeOver returns the other run that a *lockcore.OtherRunError names, if Temporal reports own as the current run. It
// returns err itself if own is not current, and only Temporal's error if Temporal cannot be asked, because nothing is known of
// the runs then.
func mayTakeOver(ctx context.Context, own wire.Run, err error) (replaced string, failed error) {
	var other *lockcore.OtherRunError
	if !errors.As(err, &other) {
		return "", err
	}
	current, failed := IsCurrent(ctx, own)
	switch {
	case failed != nil:
		return "", failed
	case !current:
		return "", err
	}
	return other.Other, nil
}
