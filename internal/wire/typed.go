package wire

import (
	"errors"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// LockError returns the lockcore error in err's chain, or the one that an application failure of
// Lockstep in its chain stands for; else nil. It needs no details to tell which error it is.
func LockError(err error) error {
	if core := coreError(err); core != nil {
		return core
	}
	for app := (*temporal.ApplicationError)(nil); errors.As(err, &app); err = app.Unwrap() {
		if lock := typed(app); lock != nil {
			return lock
		}
	}
	return nil
}

func coreError(err error) error {
	var (
		lost       *lockcore.LostError
		superseded *lockcore.SupersededError
		deadlock   *lockcore.DeadlockError
		invalid    *lockcore.InvalidError
		busy       *lockcore.BusyError
		other      *party.OtherRunError
	)
	switch {
	case errors.As(err, &other):
		return other
	case errors.As(err, &lost):
		return lost
	case errors.As(err, &superseded):
		return superseded
	case errors.As(err, &deadlock):
		return deadlock
	case errors.As(err, &invalid):
		return invalid
	case errors.As(err, &busy):
		return busy
	default:
		return nil
	}
}

func typed(app *temporal.ApplicationError) error {
	switch app.Type() {
	case FailureBusy:
		return details[BusyDetails](app).lockError()
	case FailureParked:
		if d := details[ParkedDetails](app); !d.Unavailable {
			return d.lockError()
		}
		return nil
	case FailureLost:
		d := details[LostDetails](app)
		return &lockcore.LostError{
			Resource: d.Resource, LockID: d.LockID, Part: d.Part, Order: d.Order, By: d.By, Reason: d.Reason,
		}
	case FailureSuperseded:
		d := details[SupersededDetails](app)
		return &lockcore.SupersededError{
			Resource: d.Resource, LockID: d.LockID, Part: d.Part, Order: d.Order, By: d.By, Released: d.Released, Reason: d.Reason,
		}
	case FailureDeadlock:
		d := details[DeadlockDetails](app)
		return &lockcore.DeadlockError{Resource: d.Resource, LockID: d.LockID, Part: d.Part, Order: d.Order, Cycle: d.Cycle, NotHeldSince: d.NotHeldSince}
	case FailureOtherRun:
		d := details[OtherRunDetails](app)
		return &party.OtherRunError{Resource: d.Resource, LockID: d.LockID, Run: d.Run, Other: d.Other}
	case FailureInvalid:
		d := details[InvalidDetails](app)
		return &lockcore.InvalidError{Field: d.Field, Value: d.Value, Bound: d.Bound}
	default:
		return nil
	}
}

func (d BusyDetails) lockError() error {
	return &lockcore.BusyError{
		Resource: d.Resource, LockID: d.LockID, Position: d.Position, Holders: holders(d.Holders),
		RetryIn: time.Duration(d.RetryIn), Waiting: d.Waiting, Full: d.Full, NotHeldSince: d.NotHeldSince, Note: d.Note,
	}
}

// details are the zero value if there are none or they cannot be read: the type alone says what happened.
func details[T any](app *temporal.ApplicationError) T {
	var d T
	if !app.HasDetails() || app.Details(&d) != nil {
		var zero T
		return zero
	}
	return d
}

func holders(in []Holder) []lockcore.Holder {
	out := make([]lockcore.Holder, 0, len(in))
	for _, h := range in {
		out = append(out, lockcore.Holder{
			LockID: h.LockID, Run: h.Run, Owner: h.Owner, Host: h.Host, Mode: h.Mode, Fence: h.Fence, FirstFence: h.FirstFence,
			Since: h.Since, ExpiresIn: time.Duration(h.ExpiresIn), Trace: h.Trace, State: lockcore.State(h.State),
			Part: h.Part, Silent: time.Duration(h.Silent), HoldTTL: time.Duration(h.HoldTTL), Limit: h.Limit, Comment: h.Comment,
		})
	}
	return out
}

// StepError is the failure of a step, as workflow code gets it, when its locks were the reason. It is
// the *temporal.ActivityError that Temporal made, to every reader of failures (a workflow that returns
// it records the same failure as without Lockstep), and matches lockcore's error too.
type StepError struct {
	*temporal.ActivityError
	// Lock is one of lockcore's typed errors.
	Lock error
	// NeverRan says that no attempt of the step got as far as its own code.
	NeverRan bool
}

// TypedError returns err as a [*StepError], or a [*WaitError] for Lockstep's own local activities, if a lock was the reason, else
// err itself.
func TypedError(err error) error {
	var (
		act *temporal.ActivityError
		app *temporal.ApplicationError
	)
	lock := LockError(err)
	switch {
	case lock == nil:
		return err
	case errors.As(err, &act):
		return &StepError{ActivityError: act, Lock: lock}
	case errors.As(err, &app):
		return &WaitError{ApplicationError: app, Lock: lock}
	default:
		return err
	}
}

// Tried returns the part of a step that found its lock busy, was refused, or was given up to end a
// deadlock, and is known never to have run. It is empty for any other failure. A step's own code may return such
// a failure of another step: compare the part.
func (e *StepError) Tried() string {
	app, ok := e.ActivityError.Unwrap().(*temporal.ApplicationError) //nolint:errorlint // the failure itself, and not what caused it
	switch {
	case ok && app.Type() == FailureBusy:
		return details[BusyDetails](app).NeverRan
	case ok && app.Type() == FailureDeadlock:
		return details[DeadlockDetails](app).NeverRan
	case ok && app.Type() == FailureInvalid:
		return details[InvalidDetails](app).NeverRan
	}
	return ""
}

// WaitError is what ended the waiting of a step, or kept it from being scheduled, as workflow code gets it. To every reader of failures it is the
// application failure that stands for it, and it matches lockcore's error too.
type WaitError struct {
	*temporal.ApplicationError
	// Lock is one of lockcore's typed errors; nil if the database did not answer.
	Lock error
	// NeverRan says that no attempt of the step got as far as its own code.
	NeverRan bool
}

// NewWaitError makes one of an error of lockcore.
//
//workflowcheck:ignore its texts are computed from the error alone; only when to retry a busy one is drawn, and no caller retries it
func NewWaitError(lock error, neverRan bool) error {
	var app *temporal.ApplicationError
	if !errors.As(Failure(lock), &app) {
		return lock
	}
	return &WaitError{ApplicationError: app, Lock: lock, NeverRan: neverRan}
}

// NewWaitUnavailable makes one for what was given up since the database did not answer.
func NewWaitUnavailable(message string, neverRan bool) error {
	var app *temporal.ApplicationError
	errors.As(temporal.NewNonRetryableApplicationError(Cut(message, maxMessage), FailureUnavailable, nil), &app)
	return &WaitError{ApplicationError: app, NeverRan: neverRan}
}

// NewWaitEnded makes one for a step that was still waiting when its saga ended.
func NewWaitEnded(neverRan bool) error {
	return NewEnded("lockstep: the saga ended while its step waited for a lock", neverRan)
}

// NewEnded makes one that matches lockcore.ErrEnded.
func NewEnded(message string, neverRan bool) error {
	var app *temporal.ApplicationError
	errors.As(temporal.NewNonRetryableApplicationError(message, FailureEnded, nil), &app)
	return &WaitError{ApplicationError: app, Lock: lockcore.ErrEnded, NeverRan: neverRan}
}

// WaitCanceledError is how the waiting of a step ends that is cancelled: a *temporal.CanceledError.
type WaitCanceledError struct {
	canceled error
	neverRan bool
}

// NewWaitCanceled makes one.
func NewWaitCanceled(neverRan bool) error {
	return &WaitCanceledError{canceled: temporal.NewCanceledError(), neverRan: neverRan}
}

// Error is the cancellation's text.
func (e *WaitCanceledError) Error() string { return e.canceled.Error() }

// Unwrap returns the cancellation.
func (e *WaitCanceledError) Unwrap() error { return e.canceled }

// NeverRan reports whether a step that failed so is known never to have got as far as its own code.
func NeverRan(err error) bool {
	var (
		tried    *StepError
		waited   *WaitError
		canceled *WaitCanceledError
	)
	return errors.As(err, &tried) && tried.NeverRan || errors.As(err, &waited) && waited.NeverRan || errors.As(err, &canceled) && canceled.neverRan
}

// Recorded is the error as which a history has a type of its own. An error of this package or of
// lockcore, and one that says by a method what it is recorded as, must not be recorded under the
// name of its Go type, and as retryable.
//
//workflowcheck:ignore see [NewWaitError]
func Recorded(err error) error {
	switch e := err.(type) { //nolint:errorlint // what wraps ours has a type of its own
	case *StepError:
		return e.ActivityError
	case *WaitError:
		return e.ApplicationError
	case *WaitCanceledError:
		return e.canceled
	case interface{ Failure() error }:
		return e.Failure()
	}
	if core := coreError(err); core != nil && core == err { //nolint:errorlint // as above
		return Recorded(NewWaitError(core, false))
	}
	return err
}

// Error is the failure's text.
func (e *WaitError) Error() string { return e.ApplicationError.Error() }

// Unwrap returns the failure.
func (e *WaitError) Unwrap() error { return e.ApplicationError }

// Is matches what the lock's error matches.
func (e *WaitError) Is(target error) bool { return errors.Is(e.Lock, target) }

// As gives out the lock's typed error.
func (e *WaitError) As(target any) bool { return errors.As(e.Lock, target) }

// Error is Temporal's text.
func (e *StepError) Error() string { return e.ActivityError.Error() }

// Unwrap returns Temporal's error.
func (e *StepError) Unwrap() error { return e.ActivityError }

// Is matches what the lock's error matches.
func (e *StepError) Is(target error) bool { return errors.Is(e.Lock, target) }

// As gives out the lock's typed error.
func (e *StepError) As(target any) bool { return errors.As(e.Lock, target) }
