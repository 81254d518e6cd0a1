package workflows

import (
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// SagaError is the error of [RunSaga] if a compensation failed. The state is then neither the state that the saga intended nor the state
// before it, and a person must repair it. A parent and a client receive it as an application error of the type "lockstep.SagaFailed", which is not
// retryable.
//
// With errors.Is and errors.As it matches everything that Err or one of Compensations matches, except *temporal.CanceledError. So a
// cancelled workflow whose compensation failed closes as failed, with the reasons in its history. If it closed as cancelled, the reasons
// would be hidden.
type SagaError struct {
	// Err is the error of the saga's function.
	Err error
	// Compensations lists the failures of compensations, in the order in which they ran.
	Compensations []*CompensationError
	// Ran is the number of compensations that ran, including the failed ones.
	Ran int
}

// CompensationError is the failure of one compensation.
type CompensationError struct {
	// Number is the number of the compensation, counted from 1 in the order of registration.
	Number int
	// Activity is the name of the activity; empty if [Saga.Compensate] registered a function.
	Activity string
	// Err is the error of the compensation.
	Err error
}

// LockError returns the lock error in err's chain as one of *lockcore.BusyError, *lockcore.LostError, *lockcore.DeadlockError,
// *lockcore.SupersededError and *lockcore.InvalidError, or nil if there is none. The errors of steps match these types without it. It is
// for failures of child workflows, and for clients.
func LockError(err error) error {
	return wire.LockError(err)
}

// Failure returns the error that the history records if a workflow or an update handler returns e: a *temporal.ApplicationError of type
// "lockstep.SagaFailed", which is not retryable. Its cause is the first of the failures that is not a cancellation.
func (e *SagaError) Failure() error {
	return temporal.NewApplicationErrorWithOptions(e.Error(), wire.FailureSagaFailed, temporal.ApplicationErrorOptions{
		NonRetryable: true, Cause: wire.Recorded(e.Unwrap()),
	})
}

func (e *SagaError) Error() string {
	texts := make([]string, 0, len(e.Compensations))
	for _, c := range e.Compensations {
		texts = append(texts, c.Error())
	}
	return fmt.Sprintf("%v; and it was not undone, since %d of %d compensations failed: %s",
		e.Err, len(e.Compensations), max(e.Ran, len(e.Compensations)), strings.Join(texts, "; "))
}

// Unwrap returns the first of the failures that is not a cancellation, so that the history shows its causes.
func (e *SagaError) Unwrap() error {
	for _, err := range e.all() {
		if !temporal.IsCanceledError(err) {
			return err
		}
	}
	return nil
}

// Is matches everything that one of the failures matches.
func (e *SagaError) Is(target error) bool { return errors.Is(errors.Join(e.all()...), target) }

// As finds the first failure of the type of target. It never finds a *temporal.CanceledError.
func (e *SagaError) As(target any) bool {
	_, canceled := target.(**temporal.CanceledError)
	return !canceled && errors.As(errors.Join(e.all()...), target)
}

func (e *SagaError) all() []error {
	all := []error{e.Err}
	for _, c := range e.Compensations {
		all = append(all, c)
	}
	return all
}

func (e *CompensationError) Error() string {
	if e.Activity == "" {
		return fmt.Sprintf("compensation %d: %v", e.Number, e.Err)
	}
	return fmt.Sprintf("compensation %d (%s): %v", e.Number, e.Activity, e.Err)
}

// Unwrap returns the error of the compensation.
func (e *CompensationError) Unwrap() error { return e.Err }
