package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// The server keeps the failure of an attempt that is to be retried only while it is under 4 KB, and drops its
// type and details else. So both parts of a busy failure are kept well below.
const (
	maxBusyDetails = 2000
	maxMessage     = 500
)

// A request that was busy looks again after a time that grows with its place in the queue.
const (
	busyStep    = 50 * time.Millisecond
	busyLongest = time.Second
)

// overtakeAgain is after what time an attempt that earlier ones have overtaken makes room for the next.
const overtakeAgain = 100 * time.Millisecond

// Failure turns an error of lockcore into the application error that stands for it in histories. An
// error that is none of lockcore's conditions is the database's, and retryable. nil stays nil.
func Failure(err error) error {
	var (
		busy       *lockcore.BusyError
		lost       *lockcore.LostError
		superseded *lockcore.SupersededError
		deadlock   *lockcore.DeadlockError
		invalid    *lockcore.InvalidError
		other      *party.OtherRunError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &other):
		return failure(other, other.LockID, FailureOtherRun, true, OtherRunDetails{
			Resource: other.Resource, LockID: other.LockID, Run: other.Run, Other: other.Other,
		})
	case errors.As(err, &lost):
		return LostFailure(lost, nil)
	case errors.As(err, &superseded):
		return supersededFailure(superseded)
	case errors.As(err, &deadlock):
		return DeadlockFailure(deadlock, "")
	case errors.As(err, &invalid):
		return InvalidFailure(invalid, "")
	case errors.As(err, &busy):
		return busyFailure(busy)
	default:
		return UnavailableFailure(0, err)
	}
}

// UnavailableFailure is the failure of an attempt to which the database did not answer, and which is to be made again after a
// time; if that is 0, when the retry policy says.
func UnavailableFailure(again time.Duration, err error) error {
	return temporal.NewApplicationErrorWithOptions(unavailable, FailureUnavailable, temporal.ApplicationErrorOptions{NextRetryDelay: again, Cause: err})
}

// InvalidFailure is the failure of a step whose locks are refused. neverRan is as in [TriedFailure].
func InvalidFailure(invalid *lockcore.InvalidError, neverRan string) error {
	return failure(invalid, "", FailureInvalid, false, InvalidDetails{
		Field: Cut(invalid.Field, MaxName), Value: Cut(invalid.Value, MaxName), Bound: Cut(invalid.Bound, MaxName), NeverRan: neverRan,
	})
}

// LostFailure is the failure of a step that lost its lock. step is what the step itself returned, if anything.
func LostFailure(lost *lockcore.LostError, step error) error {
	return temporal.NewApplicationErrorWithOptions(text(lost, lost.LockID), FailureLost, temporal.ApplicationErrorOptions{
		NonRetryable: true,
		Cause:        step,
		Details: []any{LostDetails{
			Resource: lost.Resource, LockID: lost.LockID, Part: lost.Part, Order: lost.Order, By: lost.By, Reason: lost.Reason,
		}},
	})
}

// DeadlockFailure is the failure of an attempt that was given up to end a deadlock. neverRan is as
// in [TriedFailure].
func DeadlockFailure(deadlock *lockcore.DeadlockError, neverRan string) error {
	return failure(deadlock, deadlock.LockID, FailureDeadlock, false, DeadlockDetails{
		Resource: deadlock.Resource, LockID: deadlock.LockID, Part: deadlock.Part, Order: deadlock.Order, Cycle: deadlock.Cycle,
		NotHeldSince: deadlock.NotHeldSince, NeverRan: neverRan,
	})
}

func failure(err error, lockID, failureType string, retryable bool, details any) error {
	return temporal.NewApplicationErrorWithOptions(text(err, lockID), failureType,
		temporal.ApplicationErrorOptions{NonRetryable: !retryable, Details: []any{details}})
}

// supersededFailure is retryable if a later attempt of the same scheduling came first, or has left already. Either this
// attempt is a zombie, whose answer is not read; or an operator has reset the activity, so that its attempts count from 1
// again, and will be in front soon. A workflow's release is not an attempt's.
func supersededFailure(e *lockcore.SupersededError) error {
	attempts := e.By.Schedule == e.Order.Schedule && (!e.Released || e.By.Attempt > 0 && e.By != party.LastAttempt(e.By.Schedule))
	o := temporal.ApplicationErrorOptions{NonRetryable: !attempts, Details: []any{SupersededDetails{
		Resource: e.Resource, LockID: e.LockID, Part: e.Part, Order: e.Order, By: e.By, Released: e.Released, Reason: e.Reason,
	}}}
	if attempts {
		o.NextRetryDelay = overtakeAgain
	}
	return temporal.NewApplicationErrorWithOptions(text(e, e.LockID), FailureSuperseded, o)
}

func busyFailure(busy *lockcore.BusyError) error {
	position := busy.Position
	if busy.Full {
		position = busy.Waiting
	}
	return WaitingFailure(busy, busyDelay(position, rand.Float64())) //nolint:gosec // spreads retries, guards nothing
}

// WaitingFailure is the failure of an attempt that is to be made again after a time.
func WaitingFailure(busy *lockcore.BusyError, again time.Duration) error {
	return temporal.NewApplicationErrorWithOptions(text(busy, busy.LockID), FailureBusy, temporal.ApplicationErrorOptions{
		NextRetryDelay: again,
		Category:       temporal.ApplicationErrorCategoryBenign,
		Details:        []any{busyDetails(busy)},
	})
}

// TriedFailure is the failure of an attempt that is not to come again if it finds its locks busy. neverRan is as in
// [BusyDetails].
func TriedFailure(err error, neverRan string) error {
	var busy *lockcore.BusyError
	if !errors.As(err, &busy) {
		return Failure(err)
	}
	details := busyDetails(busy)
	details.NeverRan = neverRan
	return benign(busy, busy.LockID, FailureBusy, details)
}

// ParkFailure is the failure of an attempt which the workflow answers by waiting: others are in the way, the queue is full, or
// the database does not answer. Any other error is an ordinary failure. neverRan is as in [BusyDetails].
func ParkFailure(err error, req party.Request, neverRan string) error {
	var (
		busy   *lockcore.BusyError
		layout *lockcore.LayoutError
	)
	switch {
	case errors.As(err, &busy):
		details := ParkedDetails{BusyDetails: busyDetails(busy), Attempt: req.Order.Attempt}
		details.NeverRan = neverRan
		return benign(busy, busy.LockID, FailureParked, details)
	case LockError(err) != nil || errors.As(err, &layout):
		return Failure(err)
	default:
		details := ParkedDetails{Attempt: req.Order.Attempt, Unavailable: true}
		details.LockID = req.LockID
		details.Resource = slices.MinFunc(req.Resources, func(a, b lockcore.Resource) int { return strings.Compare(a.Name, b.Name) }).Name
		return benign(fmt.Errorf("%s: %w", unavailable, err), req.LockID, FailureParked, details)
	}
}

// Parked returns what a step found that the workflow is to wait for.
func Parked(err error) (ParkedDetails, bool) {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) || app.Type() != FailureParked {
		return ParkedDetails{}, false
	}
	d := details[ParkedDetails](app)
	return d, d.Resource != ""
}

// unavailable begins what is told of a database that does not answer, or of a Temporal that was asked which run holds.
const unavailable = "lockstep: the locks' database, or Temporal, cannot be reached"

// benign is a failure that the server is not to answer by another attempt.
func benign(err error, lockID, failureType string, details any) error {
	return temporal.NewApplicationErrorWithOptions(text(err, lockID), failureType, temporal.ApplicationErrorOptions{
		NonRetryable: true,
		Category:     temporal.ApplicationErrorCategoryBenign,
		Details:      []any{details},
	})
}

// busyDelay is (1+position) times busyStep, at most busyLongest, and a quarter more or less of it as
// chance (from 0 to 1) wants.
func busyDelay(position int, chance float64) time.Duration {
	d := busyLongest
	if steps := 1 + max(position, 0); steps < int(busyLongest/busyStep) {
		d = time.Duration(steps) * busyStep
	}
	return min(busyLongest, d*3/4+time.Duration(chance*float64(d)/2))
}

// busyDetails leaves out holders until what is left is small enough.
func busyDetails(busy *lockcore.BusyError) BusyDetails {
	d := BusyDetails{
		Resource: busy.Resource, LockID: busy.LockID, Position: busy.Position, RetryIn: Duration(busy.RetryIn),
		Waiting: busy.Waiting, Full: busy.Full, Note: busy.Note, NotHeldSince: busy.NotHeldSince,
	}
	size := jsonSize(d)
	for i, h := range busy.Holders {
		holder := Holder{
			LockID: h.LockID, Run: h.Run, Owner: h.Owner, Host: h.Host, Mode: h.Mode, Fence: h.Fence, FirstFence: h.FirstFence,
			Since: h.Since, ExpiresIn: Duration(h.ExpiresIn), Trace: h.Trace, State: string(h.State),
			Part: h.Part, Silent: Duration(h.Silent), HoldTTL: Duration(h.HoldTTL), Limit: h.Limit, Comment: h.Comment,
		}
		if size += jsonSize(holder); size > maxBusyDetails {
			d.MoreHolders = len(busy.Holders) - i
			break
		}
		d.Holders = append(d.Holders, holder)
	}
	return d
}

func jsonSize(v any) int {
	b, _ := json.Marshal(v) //nolint:errchkjson // structs of strings, numbers and times
	return len(b)
}
