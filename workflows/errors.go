package workflows

import (
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// SagaError is what [RunSaga] returns when compensation itself failed: the state is neither what
// the saga wanted nor what it was before, and a person has to look. In a history, and so in a
// parent and in a client, it is an application error of the type "lockstep.SagaFailed", which is
// not retryable.
//
// It matches, with errors.Is and errors.As, whatever Err or one of Compensations matches, with one
// exception: never a *temporal.CanceledError. So a cancelled workflow whose compensation failed closes as failed, with the
// reasons in its history, and not as cancelled, which would hide them.
type SagaError struct {
	// Err is what the saga's function returned.
	Err error
	// Compensations are the compensations that failed, in the order in which they ran.
	Compensations []*CompensationError
	// Ran is how many compensations ran, those that failed included.
	Ran int
}

// CompensationError is the failure of one compensation.
type CompensationError struct {
	// Step is the number of the compensation, counted from 1 in the order of registration.
	Step int
	// Activity is the activity's name if [Saga.CompensateWith] registered it, else empty.
	Activity string
	// Err is what it returned.
	Err error
}

// LockError returns err as the typed error it stands for, *lockcore.BusyError, *lockcore.LostError,
// *lockcore.DeadlockError, *lockcore.SupersededError or *lockcore.InvalidError, if a failure of Lockstep
// is in its chain, and nil if none is. Steps fail with errors that errors.As matches without it; it is
// for failures that took another way: of child workflows, and in clients.
func LockError(err error) error {
	return wire.LockError(err)
}

// Failure is what the history records if a workflow or an update handler returns e: a
// *temporal.ApplicationError of type "lockstep.SagaFailed", which is not retryable. Its cause is
// the first of the failures that is no cancellation.
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

// Unwrap returns the first of the failures that is no cancellation, so that the history shows its
// causes.
func (e *SagaError) Unwrap() error {
	for _, err := range e.all() {
		if !temporal.IsCanceledError(err) {
			return err
		}
	}
	return nil
}

// Is matches what any of the failures matches.
func (e *SagaError) Is(target error) bool {
	for _, err := range e.all() {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// As gives out the first of the failures that fits, unless a cancellation is asked for.
func (e *SagaError) As(target any) bool {
	if _, ok := target.(**temporal.CanceledError); ok {
		return false
	}
	for _, err := range e.all() {
		if errors.As(err, target) {
			return true
		}
	}
	return false
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
		return fmt.Sprintf("compensation %d: %v", e.Step, e.Err)
	}
	return fmt.Sprintf("compensation %d (%s): %v", e.Step, e.Activity, e.Err)
}

// Unwrap returns what the compensation returned.
func (e *CompensationError) Unwrap() error { return e.Err }
