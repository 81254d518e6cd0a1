package wire

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// busyStep and busyLongest determine the delay before a busy request is made again, which grows with its position in the queue.
	busyStep    = 100 * time.Millisecond
	busyLongest = time.Second
	// supersededDelay is the delay before the next attempt of an activity whose earlier attempts came first.
	supersededDelay = 100 * time.Millisecond
)

// unavailable begins the message of a failure of the database, or of a Temporal that could not be asked which run is current.
const unavailable = "lockstep: the locks' database, or Temporal, cannot be reached"

// Failure returns the application failure that an error of lockcore has in histories. Any other error is a failure of the database,
// and retryable. nil stays nil.
func Failure(err error) error { return StepFailure(err, "") }

// StepFailure is [Failure] for a step. neverRan is as in [BusyDetails].
func StepFailure(err error, neverRan string) error {
	if err == nil {
		return nil
	}
	switch e := coreError(err).(type) { //nolint:errorlint // it is what coreError has found
	case *lockcore.OtherRunError:
		return temporal.NewApplicationErrorWithOptions(text(e, e.LockID), FailureOtherRun,
			temporal.ApplicationErrorOptions{Details: []any{OtherRunDetails(*e)}})
	case *lockcore.LostError:
		return LostFailure(e, nil)
	case *lockcore.SupersededError:
		return supersededFailure(e)
	case *lockcore.DeadlockError:
		return deadlockFailure(e, neverRan)
	case *lockcore.InvalidError:
		return invalidFailure(e, neverRan)
	case *lockcore.BusyError:
		return WaitingFailure(e, BusyDelay(e))
	default:
		return UnavailableFailure(0, err)
	}
}

// UnavailableFailure returns the failure of an attempt to which the database did not answer. The next attempt follows after delay, or
// if delay is 0, after the interval of the retry policy.
func UnavailableFailure(delay time.Duration, err error) error {
	return temporal.NewApplicationErrorWithOptions(unavailable, FailureUnavailable, temporal.ApplicationErrorOptions{NextRetryDelay: delay, Cause: err})
}

// IsUnavailable reports whether an error is neither a verdict about the locks nor about the layout of the collection: the database, or
// Temporal, did not answer.
func IsUnavailable(err error) bool {
	var layout *lockcore.LayoutError
	return LockError(err) == nil && !errors.As(err, &layout)
}

func invalidFailure(invalid *lockcore.InvalidError, neverRan string) error {
	details := invalidDetails(invalid)
	details.NeverRan = neverRan
	return temporal.NewApplicationErrorWithOptions(text(invalid, ""), FailureInvalid,
		temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{details}})
}

// LostFailure returns the failure of a step that lost its lock. step is the error that the step's function returned, if any.
func LostFailure(lost *lockcore.LostError, step error) error {
	return temporal.NewApplicationErrorWithOptions(text(lost, lost.LockID), FailureLost,
		temporal.ApplicationErrorOptions{NonRetryable: true, Cause: step, Details: []any{LostDetails(*lost)}})
}

func deadlockFailure(deadlock *lockcore.DeadlockError, neverRan string) error {
	details := deadlockDetails(deadlock)
	details.NeverRan = neverRan
	return temporal.NewApplicationErrorWithOptions(text(deadlock, deadlock.LockID), FailureDeadlock,
		temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{details}})
}

// supersededFailure is retryable if another attempt of the same scheduling came first, or has left already. Then this attempt may be a
// zombie, whose failure Temporal ignores. Or an operator has reset the activity: its attempts count from 1 again, and will soon exceed
// the earlier ones. A release by the workflow is not an attempt.
func supersededFailure(e *lockcore.SupersededError) error {
	byAttempt := e.By.Schedule == e.Order.Schedule && (!e.Released || e.By.Attempt > 0 && e.By != lockcore.LastAttempt(e.By.Schedule))
	o := temporal.ApplicationErrorOptions{NonRetryable: !byAttempt, Details: []any{SupersededDetails(*e)}}
	if byAttempt {
		o.NextRetryDelay = supersededDelay
	}
	return temporal.NewApplicationErrorWithOptions(text(e, e.LockID), FailureSuperseded, o)
}

// BusyDelay returns the delay before a busy request is made again. It is shorter near the head of the queue, and jittered.
func BusyDelay(busy *lockcore.BusyError) time.Duration {
	return pace.Jitter(QueuePause(busy, busyStep, busyLongest), rand.N[time.Duration])
}

// QueuePause returns a step for each position of a busy request in the queue, or for each waiter of a queue that is full, up to longest.
func QueuePause(busy *lockcore.BusyError, step, longest time.Duration) time.Duration {
	rank := busy.Position
	if busy.Full {
		rank = busy.Waiting
	}
	return min(longest, time.Duration(min(max(rank, 1), 1000))*step)
}

// WaitingFailure returns the failure of a busy attempt that the next one follows after delay.
func WaitingFailure(busy *lockcore.BusyError, delay time.Duration) error {
	return temporal.NewApplicationErrorWithOptions(text(busy, busy.LockID), FailureBusy, temporal.ApplicationErrorOptions{
		NextRetryDelay: delay,
		Category:       temporal.ApplicationErrorCategoryBenign,
		Details:        []any{busyDetails(busy)},
	})
}

// TriedFailure returns the failure of an attempt that must not be retried if its locks are busy. neverRan is as in [BusyDetails].
func TriedFailure(err error, neverRan string) error {
	var busy *lockcore.BusyError
	if !errors.As(err, &busy) {
		return Failure(err)
	}
	details := busyDetails(busy)
	details.NeverRan = neverRan
	return finalBenign(busy, busy.LockID, FailureBusy, details)
}

// ParkFailure returns the failure of an attempt after which the workflow waits: the locks are busy, the queue is full, or the database
// does not answer. Any other error is an ordinary failure. neverRan is as in [BusyDetails].
func ParkFailure(err error, req lockcore.StepRequest, neverRan string) error {
	var busy *lockcore.BusyError
	switch {
	case errors.As(err, &busy):
		details := ParkedDetails{BusyDetails: busyDetails(busy), Attempt: req.Order.Attempt}
		details.NeverRan = neverRan
		shown := *busy
		shown.Position = 0 // the message is shown as long as the step waits
		return finalBenign(&shown, busy.LockID, FailureParked, details)
	case !IsUnavailable(err):
		return Failure(err)
	default:
		details := ParkedDetails{Attempt: req.Order.Attempt, Unavailable: true}
		details.LockID = req.LockID
		details.Resource = slices.MinFunc(req.Resources, func(a, b lockcore.Resource) int { return strings.Compare(a.Name, b.Name) }).Name
		return finalBenign(fmt.Errorf("%s: %w", unavailable, err), req.LockID, FailureParked, details)
	}
}

// finalBenign returns a failure after which the server makes no other attempt.
func finalBenign(err error, lockID, failureType string, details any) error {
	return temporal.NewApplicationErrorWithOptions(text(err, lockID), failureType, temporal.ApplicationErrorOptions{
		NonRetryable: true,
		Category:     temporal.ApplicationErrorCategoryBenign,
		Details:      []any{details},
	})
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
