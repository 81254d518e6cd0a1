package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// The server keeps the failure of an attempt that will be retried only if it is under 4 KB; otherwise it drops the type and the
// details. So the details and the message of a busy failure are kept well below that.
const (
	maxBusyDetails = 2000
	maxMessage     = 500
)

// BusyDetails are the details of [FailureBusy]; the fields are those of lockcore.BusyError.
type BusyDetails struct {
	Resource string `json:"resource"`
	LockID   string `json:"lockId,omitempty"`
	// Position in the queue, from 1; 0 if the request is not queued.
	Position int `json:"position,omitempty"`
	// Holders block the request.
	Holders []Holder `json:"holders,omitempty"`
	// RetryIn is the time until they have expired, unless they renew.
	RetryIn Duration `json:"retryIn,omitempty"`
	// MoreHolders is the number of holders that were left out.
	MoreHolders int `json:"moreHolders,omitempty"`
	// Waiting is the length of the queue.
	Waiting int `json:"waiting,omitempty"`
	// Full is set if the queue is full.
	Full bool `json:"full,omitempty"`
	// Note explains the wait, for people.
	Note string `json:"note,omitempty"`
	// NotHeldSince is the server's time since which the lock ID is known not to have held the resource.
	NotHeldSince time.Time `json:"notHeldSince,omitzero"`
	// At is the server's time of these answers.
	At time.Time `json:"at,omitzero"`
	// NeverRan is the part of a guarded step, if its code is known not to have run.
	NeverRan string `json:"neverRan,omitempty"`
}

// busyDetails drops the last holders if there are too many.
func busyDetails(e *lockcore.BusyError) BusyDetails {
	d := BusyDetails{
		Resource: e.Resource, LockID: e.LockID, Position: e.Position, RetryIn: Duration(e.RetryIn),
		Waiting: e.Waiting, Full: e.Full, Note: e.Note, NotHeldSince: e.NotHeldSince, At: e.At,
	}
	size := jsonSize(d)
	for _, h := range e.Holders {
		holder := holderOf(h)
		if size += jsonSize(holder); size > maxBusyDetails {
			break
		}
		d.Holders = append(d.Holders, holder)
	}
	d.MoreHolders = max(len(e.Holders), e.Blocking) - len(d.Holders)
	return d
}

func jsonSize(v any) int {
	b, _ := json.Marshal(v) //nolint:errchkjson // structs of strings, numbers and times
	return len(b)
}

// Holder is a [lockcore.Holder] whose durations other languages can read.
type Holder struct {
	lockcore.Holder
	// State is holding, claimed (granted, and not confirmed yet) or draining (cut off).
	State lockcore.State `json:"state,omitempty"`
	// ExpiresIn is the time until it expires, unless it renews.
	ExpiresIn Duration `json:"expiresIn,omitempty"`
	// Silent is the time since the last sign of life.
	Silent Duration `json:"silent,omitempty"`
	// HoldTTL is that of a kept hold.
	HoldTTL Duration `json:"holdTtl,omitempty"`
}

func holderOf(h lockcore.Holder) Holder {
	return Holder{
		Holder: h, State: h.State, ExpiresIn: Duration(h.ExpiresIn), Silent: Duration(h.Silent), HoldTTL: Duration(h.HoldTTL),
	}
}

func (h Holder) core() lockcore.Holder {
	core := h.Holder
	core.State, core.ExpiresIn = h.State, time.Duration(h.ExpiresIn)
	core.Silent, core.HoldTTL = time.Duration(h.Silent), time.Duration(h.HoldTTL)
	return core
}

func (d BusyDetails) lockError() error {
	holders := make([]lockcore.Holder, 0, len(d.Holders))
	for _, h := range d.Holders {
		holders = append(holders, h.core())
	}
	return &lockcore.BusyError{
		Resource: d.Resource, LockID: d.LockID, Position: d.Position, Holders: holders, Blocking: len(holders) + d.MoreHolders,
		RetryIn: time.Duration(d.RetryIn), Waiting: d.Waiting, Full: d.Full, NotHeldSince: d.NotHeldSince, Note: d.Note, At: d.At,
	}
}

// ParkedDetails are the details of [FailureParked].
type ParkedDetails struct {
	BusyDetails
	// Attempt is the attempt that did not get its locks.
	Attempt uint32 `json:"attempt"`
	// Unavailable is set if the database did not answer. Then Resource is the first one that was requested.
	Unavailable bool `json:"unavailable,omitempty"`
}

// LostDetails are the details of [FailureLost].
type LostDetails struct {
	Resource string         `json:"resource"`
	LockID   string         `json:"lockId,omitempty"`
	Part     string         `json:"part,omitempty"`
	Order    lockcore.Order `json:"order"`
	By       string         `json:"by,omitempty"`
	Reason   string         `json:"reason,omitempty"`
}

func (d LostDetails) lockError() error { return (*lockcore.LostError)(&d) }

// SupersededDetails are the details of [FailureSuperseded].
type SupersededDetails struct {
	Resource string `json:"resource"`
	LockID   string `json:"lockId,omitempty"`
	Part     string `json:"part,omitempty"`
	// Order is the order of the request.
	Order lockcore.Order `json:"order"`
	// By is the order of the later request or the release.
	By       lockcore.Order `json:"by"`
	Released bool           `json:"released,omitempty"`
	Reason   string         `json:"reason,omitempty"`
}

func (d SupersededDetails) lockError() error { return (*lockcore.SupersededError)(&d) }

// DeadlockDetails are the details of [FailureDeadlock].
type DeadlockDetails struct {
	Resource string         `json:"resource"`
	LockID   string         `json:"lockId,omitempty"`
	Part     string         `json:"part,omitempty"`
	Order    lockcore.Order `json:"order"`
	Cycle    string         `json:"cycle,omitempty"`
	// NotHeldSince is as in [BusyDetails].
	NotHeldSince time.Time `json:"notHeldSince,omitzero"`
	// NeverRan is as in [BusyDetails].
	NeverRan string `json:"neverRan,omitempty"`
}

func deadlockDetails(e *lockcore.DeadlockError) DeadlockDetails {
	return DeadlockDetails{
		Resource: e.Resource, LockID: e.LockID, Part: e.Part, Order: e.Order, Cycle: e.Cycle, NotHeldSince: e.NotHeldSince,
	}
}

func (d DeadlockDetails) lockError() error {
	return &lockcore.DeadlockError{
		Resource: d.Resource, LockID: d.LockID, Part: d.Part, Order: d.Order, Cycle: d.Cycle, NotHeldSince: d.NotHeldSince,
	}
}

// OtherRunDetails are the details of [FailureOtherRun].
type OtherRunDetails struct {
	Resource string `json:"resource"`
	LockID   string `json:"lockId,omitempty"`
	// Run is the run of the request.
	Run string `json:"run,omitempty"`
	// Other is the run that holds.
	Other string `json:"other,omitempty"`
}

func (d OtherRunDetails) lockError() error { return (*lockcore.OtherRunError)(&d) }

// InvalidDetails are the details of [FailureInvalid].
type InvalidDetails struct {
	// Field is the name of the field.
	Field string `json:"field"`
	// Value is its value, shortened.
	Value string `json:"value,omitempty"`
	// Bound describes the accepted values.
	Bound string `json:"bound,omitempty"`
	// NeverRan is as in [BusyDetails].
	NeverRan string `json:"neverRan,omitempty"`
}

func invalidDetails(e *lockcore.InvalidError) InvalidDetails {
	return InvalidDetails{Field: Cut(e.Field, MaxName), Value: Cut(e.Value, MaxName), Bound: Cut(e.Bound, MaxName)}
}

func (d InvalidDetails) lockError() error {
	return &lockcore.InvalidError{Field: d.Field, Value: d.Value, Bound: d.Bound}
}

const (
	// busyStep and busyLongest determine the delay before a busy request is made again, which grows with its position in the queue.
	busyStep    = 100 * time.Millisecond
	busyLongest = time.Second
	// supersededDelay is the delay before the next attempt of an activity whose earlier attempts came first.
	supersededDelay = 100 * time.Millisecond
)

// notRun begins the message of a parked attempt, which Temporal's UI shows as failed.
const notRun = "lockstep: the step has not run, and waits for its lock"

// unavailable begins the message of a failure of the database, or of a Temporal that could not be asked which run is current.
const unavailable = "lockstep: the locks' database, or Temporal, cannot be reached"

// whyUnavailable returns the message of an attempt that is repeated until the database answers, or an operator has made the pool.
func whyUnavailable(err error) string {
	if errors.Is(err, lockcore.ErrNoPool) {
		return err.Error()
	}
	return unavailable
}

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
	return temporal.NewApplicationErrorWithOptions(whyUnavailable(err), FailureUnavailable, temporal.ApplicationErrorOptions{NextRetryDelay: delay, Cause: err})
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
// the earlier ones. A release by the workflow is not an attempt. All requests of an activity without a workflow are of one scheduling.
func supersededFailure(e *lockcore.SupersededError) error {
	_, standalone := ParseStandalone(e.LockID)
	byAttempt := (standalone || e.By.Schedule == e.Order.Schedule) && (!e.Released || e.By.Attempt > 0 && e.By != lockcore.LastAttempt(e.By.Schedule))
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
		return finalBenign(fmt.Errorf("%s: %w", notRun, &shown), busy.LockID, FailureParked, details)
	case !IsUnavailable(err):
		return Failure(err)
	default:
		details := ParkedDetails{Attempt: req.Order.Attempt, Unavailable: true}
		details.LockID = req.LockID
		details.Resource = slices.MinFunc(req.Resources, func(a, b lockcore.Resource) int { return strings.Compare(a.Name, b.Name) }).Name
		if !errors.Is(err, lockcore.ErrNoPool) {
			err = fmt.Errorf("%s: %w", unavailable, err)
		}
		err = fmt.Errorf("%s: %w", notRun, err)
		return finalBenign(err, req.LockID, FailureParked, details)
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

// namespaceIDs matches the namespace IDs at the beginning of lock IDs.
var namespaceIDs = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/`)

// text returns the message of a failure. People know workflows by their IDs, so it leaves out the ID of the party's own namespace.
// The details have the full lock IDs.
func text(err error, lockID string) string {
	s := err.Error()
	var lost *lockcore.LostError
	if errors.As(err, &lost) && lost.By != "" && lost.Reason == "" {
		s += ": its lease expired before it was renewed"
	}
	if own := namespaceIDs.FindString(lockID); own != "" && strings.HasPrefix(lockID, own) {
		s = strings.ReplaceAll(s, own, "")
	}
	return Cut(s, maxMessage)
}

// RewriteField replaces the field names of the request in a *lockcore.InvalidError by the names that the user wrote: it puts prefix in
// the place of "Request.". prefix ends with a dot, or is empty. Any other error is returned as it is.
func RewriteField(err error, prefix string) error {
	const request = "Request."
	var invalid *lockcore.InvalidError
	if !errors.As(err, &invalid) || !strings.Contains(invalid.Field, request) {
		return err
	}
	return &lockcore.InvalidError{
		Field: strings.ReplaceAll(invalid.Field, request, prefix), Value: invalid.Value, Bound: strings.ReplaceAll(invalid.Bound, request, prefix),
	}
}

// NoteAncestor sets the Note of a *lockcore.BusyError if an ancestor of the run's workflow holds the lock. An ancestor that waits for
// its child never releases the lock, and the deadlock search cannot find that deadlock.
func NoteAncestor(err error, run Run, ancestors []string) {
	var busy *lockcore.BusyError
	if len(ancestors) == 0 || !errors.As(err, &busy) {
		return
	}
	for _, h := range busy.Holders {
		of, _, err := ParseLockID(h.LockID)
		if err == nil && of.Namespace == run.Namespace && slices.Contains(ancestors, of.WorkflowID) {
			busy.Note = fmt.Sprintf("it is held by the workflow %q, an ancestor of this one: if that waits for its child, neither can continue; "+
				"release the lock before, or leave it out of the child", of.WorkflowID)
			return
		}
	}
}
