package workflows

import (
	"errors"

	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// deadlockError is the error of a saga's function if it contains the failure of a step that a rule has locked, and that was the victim of a
// deadlock. It matches lockcore.ErrDeadlock. The history records the function's own error.
type deadlockError struct {
	error
	wire.Outcome
}

// Unwrap returns the error of the saga's function.
func (e *deadlockError) Unwrap() error { return e.error }

// Failure returns the error that the history records.
func (e *deadlockError) Failure() error { return wire.Recorded(e.error) }

// matchDeadlock returns err as an error that matches lockcore.ErrDeadlock if a step of this workflow was the victim of a deadlock through a
// rule; otherwise err. Only guarded steps have errors that match by themselves: the future of a step without a guard is the SDK's own.
func matchDeadlock(err error) error {
	failed := deadlockOfStep(err)
	if failed == nil || errors.Is(err, lockcore.ErrDeadlock) {
		return err
	}
	of := wire.Outcome{Lock: wire.LockError(failed)}
	if err == error(failed) { //nolint:errorlint // a wrapped one must stay wrapped
		return &wire.StepError{ActivityError: failed, Outcome: of}
	}
	return &deadlockError{err, of}
}

// deadlockOfStep returns the error of an activity of this workflow that failed as the victim of a deadlock, or nil. A deadlock further down,
// as in the error of a child workflow or of an activity that waited for another workflow, is not this saga's.
func deadlockOfStep(err error) *temporal.ActivityError {
	switch e := err.(type) { //nolint:errorlint // each error of the tree is visited
	case *temporal.ActivityError:
		if app, ok := e.Unwrap().(*temporal.ApplicationError); ok && app.Type() == wire.FailureDeadlock { //nolint:errorlint // the direct cause
			return e
		}
	case *temporal.ChildWorkflowExecutionError, *temporal.NexusOperationError:
	case interface{ Unwrap() error }:
		return deadlockOfStep(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			if failed := deadlockOfStep(one); failed != nil {
				return failed
			}
		}
	}
	return nil
}
