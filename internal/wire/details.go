package wire

import (
	"encoding/json"
	"time"

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
