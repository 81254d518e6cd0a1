package wire

import (
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// BusyDetails are the details of [FailureBusy].
type BusyDetails struct {
	Resource string   `json:"resource"`
	LockID   string   `json:"lockId,omitempty"`
	Position int      `json:"position,omitempty"`
	Holders  []Holder `json:"holders,omitempty"`
	RetryIn  Duration `json:"retryIn,omitempty"`
	// MoreHolders is how many were left out, to keep the failure small.
	MoreHolders int  `json:"moreHolders,omitempty"`
	Waiting     int  `json:"waiting,omitempty"`
	Full        bool `json:"full,omitempty"`
	// Note is what else is known of the wait, for people.
	Note string `json:"note,omitempty"`
	// NotHeldSince is as in [lockcore.BusyError].
	NotHeldSince time.Time `json:"notHeldSince,omitzero"`
	// NeverRan is the Part of a step if no attempt of this scheduling has run the step's code, and that is known for certain.
	NeverRan string `json:"neverRan,omitempty"`
}

// ParkedDetails are the details of [FailureParked].
type ParkedDetails struct {
	BusyDetails
	// Attempt is the one that did not get the locks.
	Attempt uint32 `json:"attempt"`
	// Unavailable says that the database did not answer. Then Resource is the first one that was asked for, and whether the
	// request stands in a queue is not known.
	Unavailable bool `json:"unavailable,omitempty"`
}

// LostDetails are the details of [FailureLost].
type LostDetails struct {
	Resource string      `json:"resource"`
	LockID   string      `json:"lockId,omitempty"`
	Part     string      `json:"part,omitempty"`
	Order    party.Order `json:"order"`
	By       string      `json:"by,omitempty"`
	Reason   string      `json:"reason,omitempty"`
}

// SupersededDetails are the details of [FailureSuperseded].
type SupersededDetails struct {
	Resource string      `json:"resource"`
	LockID   string      `json:"lockId,omitempty"`
	Part     string      `json:"part,omitempty"`
	Order    party.Order `json:"order"`
	By       party.Order `json:"by"`
	Released bool        `json:"released,omitempty"`
	Reason   string      `json:"reason,omitempty"`
}

// DeadlockDetails are the details of [FailureDeadlock].
type DeadlockDetails struct {
	Resource string      `json:"resource"`
	LockID   string      `json:"lockId,omitempty"`
	Part     string      `json:"part,omitempty"`
	Order    party.Order `json:"order"`
	Cycle    string      `json:"cycle,omitempty"`
	// NotHeldSince and NeverRan are as in [BusyDetails].
	NotHeldSince time.Time `json:"notHeldSince,omitzero"`
	NeverRan     string    `json:"neverRan,omitempty"`
}

// OtherRunDetails are the details of [FailureOtherRun].
type OtherRunDetails struct {
	Resource string `json:"resource"`
	LockID   string `json:"lockId,omitempty"`
	Run      string `json:"run,omitempty"`
	Other    string `json:"other,omitempty"`
}

// InvalidDetails are the details of [FailureInvalid].
type InvalidDetails struct {
	Field string `json:"field"`
	Value string `json:"value,omitempty"`
	Bound string `json:"bound,omitempty"`
	// NeverRan is as in [BusyDetails].
	NeverRan string `json:"neverRan,omitempty"`
}
