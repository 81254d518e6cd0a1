package wire

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
	// OwnerKey carries the [Owner] of the parent.
	OwnerKey = "lockstep-owner"
)

// Handover marks a run that goes on with what the run before it holds: that one has continued as new, and has not released
// it. The server copies headers to the retries of a run and to its next runs by a cron schedule; those must not heed it.
type Handover struct {
	// From is the run that handed over. Only the run that continues it is meant.
	From string `json:"from"`
	// Started is when the first of the runs began.
	Started time.Time `json:"started,omitzero"`
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
func EncodeOwner(owner Owner) (*commonpb.Payload, error) {
	p, err := converter.GetDefaultDataConverter().ToPayload(owner)
	if err != nil {
		return nil, fmt.Errorf("lockstep: write the owner: %w", err)
	}
	return p, nil
}

// DecodeOwner reads the payload of [OwnerKey]. The error is a *lockcore.InvalidError.
func DecodeOwner(p *commonpb.Payload) (Owner, error) {
	var owner Owner
	if err := converter.GetDefaultDataConverter().FromPayload(p, &owner); err != nil {
		return Owner{}, &lockcore.InvalidError{Field: "header " + OwnerKey, Value: Cut(err.Error(), 128), Bound: "the JSON of an owner"}
	}
	return owner, nil
}
