package protocol

import (
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Headers of the start of a workflow run.
const (
	// HandoverKey carries a [Handover], from a run that continued as new.
	HandoverKey = "lockstep-handover"
	// OwnerKey carries the party of the parent, as text.
	OwnerKey = "lockstep-owner"
)

// Handover is what a run that continues as new leaves to the run that continues it. The server copies headers to the
// retries of a run and to its next runs by a cron schedule; those must not heed it: see From.
type Handover struct {
	// From is the run that handed over. Only the run that continues it is meant.
	From string `json:"from"`
	// LockRun is the run in whose name the locks are held.
	LockRun string `json:"lockRun"`
	// Schedule and Steps are the last numbers that were given: those of the next run go on growing.
	Schedule uint32 `json:"schedule"`
	Steps    int    `json:"steps"`
	// Started is when the first of the runs began.
	Started time.Time `json:"started,omitzero"`
	// Saga are the resources of the saga that handed over, and Run those of the run itself. Held says which are known to
	// be held; on the others there may be something.
	Saga []lockcore.Resource `json:"saga,omitempty"`
	Run  []lockcore.Resource `json:"run,omitempty"`
	// Locks are those of locks around code, as they were written before Holds were.
	Locks []lockcore.Resource `json:"locks,omitempty"`
	// Holds are the locks around code.
	Holds []Hold `json:"holds,omitempty"`
	// Lacks are the names that were held before a reset, and not taken anew until the run handed over: the next run takes
	// them anew. Former are the runs in whose names they may still stand.
	Lacks  []string `json:"lacks,omitempty"`
	Former []string `json:"former,omitempty"`
}

// Hold is a lock around code that is handed over, with what its owner asked for.
type Hold struct {
	Resources []lockcore.Resource `json:"resources"`
	HoldTTL   Duration            `json:"holdTtl,omitempty"`
	Owner     string              `json:"owner,omitempty"`
	Reacquire bool                `json:"reacquire,omitempty"`
	KeepAlive bool                `json:"keepAlive,omitempty"`
}

// EncodeHandover makes the header's payload; see [EncodeGuard].
func EncodeHandover(h Handover) (*commonpb.Payload, error) {
	p, err := converter.GetDefaultDataConverter().ToPayload(h)
	if err != nil {
		return nil, fmt.Errorf("lockstep: write the locks that are handed over: %w", err)
	}
	return p, nil
}

// DecodeHandover reads the header's payload. The error is a *lockcore.InvalidError.
func DecodeHandover(p *commonpb.Payload) (Handover, error) {
	var h Handover
	if err := converter.GetDefaultDataConverter().FromPayload(p, &h); err != nil {
		return Handover{}, &lockcore.InvalidError{Field: "header " + HandoverKey, Value: Cut(err.Error(), 128), Bound: "the JSON of a handover"}
	}
	return h, nil
}

// EncodeOwner makes the payload of [OwnerKey].
func EncodeOwner(owner string) (*commonpb.Payload, error) {
	p, err := converter.GetDefaultDataConverter().ToPayload(owner)
	if err != nil {
		return nil, fmt.Errorf("lockstep: write the owner: %w", err)
	}
	return p, nil
}

// DecodeOwner reads the payload of [OwnerKey]. The error is a *lockcore.InvalidError.
func DecodeOwner(p *commonpb.Payload) (string, error) {
	var owner string
	if err := converter.GetDefaultDataConverter().FromPayload(p, &owner); err != nil {
		return "", &lockcore.InvalidError{Field: "header " + OwnerKey, Value: Cut(err.Error(), 128), Bound: "a text"}
	}
	return owner, nil
}
