package wire

import (
	"cmp"
	"errors"
	"fmt"

	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// LockError returns the lockcore error in err's chain, or the lockcore error that an application failure in its chain represents; otherwise nil.
// The type of a failure is enough to tell which error it is, even if its details cannot be read.
func LockError(err error) error {
	for app := (*temporal.ApplicationError)(nil); ; err = app.Unwrap() {
		if lock := StepLockError(err); lock != nil || !errors.As(err, &app) {
			return lock
		}
	}
}

// StepLockError is [LockError] for the failure of a step itself. The causes of that failure are not searched: a step may report that another
// workflow has lost its locks.
func StepLockError(err error) error {
	if core := coreError(err); core != nil {
		return core
	}
	if app := (*temporal.ApplicationError)(nil); errors.As(err, &app) {
		return failureError(app)
	}
	return nil
}

// StepLoss returns the loss that the failure of a step itself reports. It panics, and so fails the workflow task, if the details cannot be
// read.
func StepLoss(err error) (lost *lockcore.LostError, ok bool) {
	lost, ok = StepLockError(err).(*lockcore.LostError) //nolint:errorlint // StepLockError has searched the chain
	if app := (*temporal.ApplicationError)(nil); ok && lost.Resource == "" && errors.As(err, &app) {
		details := mustRead[LostDetails](app)
		lost = (*lockcore.LostError)(&details)
	}
	return lost, ok
}

func coreError(err error) error {
	return cmp.Or(as[*lockcore.OtherRunError](err), as[*lockcore.LostError](err), as[*lockcore.SupersededError](err),
		as[*lockcore.DeadlockError](err), as[*lockcore.InvalidError](err), as[*lockcore.BusyError](err))
}

func as[T error](err error) error {
	if found, ok := errors.AsType[T](err); ok {
		return found
	}
	return nil
}

func failureError(app *temporal.ApplicationError) error {
	switch app.Type() {
	case FailureBusy:
		return detailsOf[BusyDetails](app).lockError()
	case FailureParked:
		if d := detailsOf[ParkedDetails](app); !d.Unavailable {
			return d.lockError()
		}
		return nil
	case FailureLost:
		return detailsOf[LostDetails](app).lockError()
	case FailureSuperseded:
		return detailsOf[SupersededDetails](app).lockError()
	case FailureDeadlock:
		return detailsOf[DeadlockDetails](app).lockError()
	case FailureOtherRun:
		return detailsOf[OtherRunDetails](app).lockError()
	case FailureInvalid:
		return detailsOf[InvalidDetails](app).lockError()
	default:
		return nil
	}
}

// detailsOf returns the zero value if the details are missing or cannot be read.
func detailsOf[T any](app *temporal.ApplicationError) T {
	var d T
	if !app.HasDetails() || app.Details(&d) != nil {
		var zero T
		return zero
	}
	return d
}

// mustRead returns the details of a failure on which workflow code decides. It panics, and so fails the workflow task, which is repeated, if
// there are details that cannot be read.
func mustRead[T any](app *temporal.ApplicationError) (d T) {
	if app.HasDetails() {
		if err := app.Details(&d); err != nil {
			panic(fmt.Sprintf("lockstep: the details of a failure of type %s cannot be read: %v", app.Type(), err))
		}
	}
	return d
}

// Parked returns the details of a parked attempt. ok is false for any other error. It panics, and so fails the workflow task, if the details
// cannot be read: another attempt to read them may succeed.
func Parked(err error) (details ParkedDetails, ok bool) {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) || app.Type() != FailureParked {
		return ParkedDetails{}, false
	}
	details = mustRead[ParkedDetails](app)
	return details, details.Resource != ""
}

// StepError is the failure of a step in workflow code if its locks were the reason. It matches lockcore's error. To everything else it
// is the *temporal.ActivityError that Temporal made: a workflow that returns it records the same failure as without Lockstep.
type StepError struct {
	*temporal.ActivityError
	Outcome
}

// Outcome contains the facts that Lockstep knows about a step that failed because of its locks.
type Outcome struct {
	// Lock is one of lockcore's errors; nil if the database did not answer.
	Lock error
	// NeverRan is set if no attempt of the step reached the step's own code.
	NeverRan bool
}

// Is matches everything that the lock's error matches.
func (o Outcome) Is(target error) bool { return errors.Is(o.Lock, target) }

// As finds the lock's typed error.
func (o Outcome) As(target any) bool { return errors.As(o.Lock, target) }

// TypedError returns err as a [*StepError] if a lock of the step was the reason, or as a [*WaitError] if it is an application failure without an
// activity. Any other error is returned as it is.
func TypedError(err error) error {
	var (
		act *temporal.ActivityError
		app *temporal.ApplicationError
	)
	lock := StepLockError(err)
	switch {
	case lock == nil:
		return err
	case errors.As(err, &act):
		return &StepError{act, Outcome{Lock: lock}}
	case errors.As(err, &app):
		return &WaitError{app, Outcome{Lock: lock}}
	default:
		return err
	}
}

// PartNeverRan returns the Part of a step that found its lock busy, was refused or was a deadlock's victim, and is known never to have
// run. It is empty for any other failure. Compare the part: a step's own code may return such a failure of another step. It panics if the
// details cannot be read.
func (e *StepError) PartNeverRan() string {
	app, ok := e.ActivityError.Unwrap().(*temporal.ApplicationError) //nolint:errorlint // the failure itself, and not its cause
	switch {
	case ok && app.Type() == FailureBusy:
		return mustRead[BusyDetails](app).NeverRan
	case ok && app.Type() == FailureDeadlock:
		return mustRead[DeadlockDetails](app).NeverRan
	case ok && app.Type() == FailureInvalid:
		return mustRead[InvalidDetails](app).NeverRan
	}
	return ""
}

// Unwrap returns Temporal's error.
func (e *StepError) Unwrap() error { return e.ActivityError }

// WaitError ended the wait of a step, or kept the step from being scheduled. It matches lockcore's error. To everything else it is an
// application failure.
type WaitError struct {
	*temporal.ApplicationError
	Outcome
}

// NewWaitError returns a lockcore error as a *WaitError.
//
//workflowcheck:ignore its text depends on the error alone; only the delay before a busy one is retried is random, and no caller retries it
func NewWaitError(lock error, neverRan bool) error {
	var app *temporal.ApplicationError
	if !errors.As(Failure(lock), &app) {
		return lock
	}
	return &WaitError{app, Outcome{lock, neverRan}}
}

// NewWaitUnavailable returns the error of a wait that ended because the database did not answer.
func NewWaitUnavailable(message string, neverRan bool) error {
	return newWaitError(Cut(message, maxMessage), FailureUnavailable, Outcome{nil, neverRan})
}

// NewWaitEnded returns the error of a step that was still waiting when its saga ended.
func NewWaitEnded(neverRan bool) error {
	return NewEnded("lockstep: the saga ended while its step waited for a lock", neverRan)
}

// NewEnded returns an error that matches lockcore.ErrEnded.
func NewEnded(message string, neverRan bool) error {
	return newWaitError(message, FailureEnded, Outcome{lockcore.ErrEnded, neverRan})
}

func newWaitError(message, failureType string, of Outcome) error {
	var app *temporal.ApplicationError
	errors.As(temporal.NewNonRetryableApplicationError(message, failureType, nil), &app)
	return &WaitError{app, of}
}

// Unwrap returns the failure.
func (e *WaitError) Unwrap() error { return e.ApplicationError }

// WaitCanceledError is the error of a step that was cancelled while it waited. It unwraps to a *temporal.CanceledError.
type WaitCanceledError struct {
	canceled error
	neverRan bool
}

// NewWaitCanceled returns a *WaitCanceledError.
func NewWaitCanceled(neverRan bool) error {
	return &WaitCanceledError{canceled: temporal.NewCanceledError(), neverRan: neverRan}
}

// Error returns the cancellation's text.
func (e *WaitCanceledError) Error() string { return e.canceled.Error() }

// Unwrap returns the cancellation.
func (e *WaitCanceledError) Unwrap() error { return e.canceled }

// NeverRan reports whether the step that failed with err is known never to have reached its own code.
func NeverRan(err error) bool {
	var (
		step     *StepError
		waited   *WaitError
		canceled *WaitCanceledError
	)
	return errors.As(err, &step) && step.NeverRan || errors.As(err, &waited) && waited.NeverRan || errors.As(err, &canceled) && canceled.neverRan
}

// Recorded returns the error that a workflow must return in place of err, so that the history has the failure's own type. The SDK would
// record an error of this package, of lockcore, or one with a Failure method under the name of its Go type, and as retryable.
//
//workflowcheck:ignore see [NewWaitError]
func Recorded(err error) error {
	switch e := err.(type) { //nolint:errorlint // an error that wraps one of ours has a type of its own
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
