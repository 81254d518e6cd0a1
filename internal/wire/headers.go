package wire

import (
	"encoding/json"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// toPayload encodes a header. Headers do not pass through the user's data converter, so that workers with another one can read them.
// Resource names therefore appear unencrypted in the history. what names the content, for errors.
func toPayload(what string, v any) (*commonpb.Payload, error) {
	p, err := converter.GetDefaultDataConverter().ToPayload(v)
	if err != nil {
		return nil, fmt.Errorf("lockstep: write %s: %w", what, err)
	}
	return p, nil
}

// fromPayload decodes a header. The error is a *lockcore.InvalidError.
func fromPayload[T any](p *commonpb.Payload, header, what string) (v T, err error) {
	if err := converter.GetDefaultDataConverter().FromPayload(p, &v); err != nil {
		var zero T
		return zero, &lockcore.InvalidError{Field: "header " + header, Value: Cut(err.Error(), 128), Bound: "the JSON of " + what}
	}
	return v, nil
}

// Handover marks a run that continues with the locks of the run before it, which continued as new and did not release them. The
// server also copies headers to retries and to the next runs of a cron schedule; those must ignore the mark.
type Handover struct {
	// From is the run that handed over. Only the run that continues it may use the mark.
	From string `json:"from"`
	// Started is the start of the first of these runs.
	Started time.Time `json:"started,omitzero"`
}

// EncodeHandover makes the payload of [HandoverKey].
func EncodeHandover(h Handover) (*commonpb.Payload, error) {
	return toPayload("the locks that are handed over", h)
}

// DecodeHandover reads the payload of [HandoverKey]. The error is a *lockcore.InvalidError.
func DecodeHandover(p *commonpb.Payload) (Handover, error) {
	return fromPayload[Handover](p, HandoverKey, "a handover")
}

// Owner names the owner of a request: by a name that the user chose, which is a string in JSON, or as a workflow of the same
// namespace. The worker that locks completes it, because only that worker knows the namespace's ID. The zero value is the workflow
// that makes the request.
type Owner struct {
	Name     string
	Workflow string
}

type ownerJSON struct {
	Workflow string `json:"workflow"`
}

// EncodeOwner makes the payload of [OwnerKey].
func EncodeOwner(owner Owner) (*commonpb.Payload, error) { return toPayload("the owner", owner) }

// DecodeOwner reads the payload of [OwnerKey]. The error is a *lockcore.InvalidError.
func DecodeOwner(p *commonpb.Payload) (Owner, error) {
	return fromPayload[Owner](p, OwnerKey, "an owner")
}

// IsZero reports whether the owner is the workflow that makes the request.
func (o Owner) IsZero() bool { return o == Owner{} }

// Of returns the owner as lockcore knows it, for a request of a run.
func (o Owner) Of(run Run) string {
	if o.Name != "" {
		return Cut(o.Name, MaxName)
	}
	if o.Workflow != "" {
		run.WorkflowID = o.Workflow
	}
	return run.Owner()
}

// MarshalJSON writes a string, or an object that names a workflow.
func (o Owner) MarshalJSON() ([]byte, error) {
	if o.Workflow != "" {
		return json.Marshal(ownerJSON{o.Workflow})
	}
	return json.Marshal(o.Name)
}

// UnmarshalJSON reads what MarshalJSON writes. The error is a *lockcore.InvalidError.
func (o *Owner) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &o.Name) == nil {
		return nil
	}
	var workflow ownerJSON
	if err := json.Unmarshal(data, &workflow); err != nil || workflow.Workflow == "" {
		return &lockcore.InvalidError{Field: "owner", Value: Cut(string(data), 64), Bound: `a text, or {"workflow": "…"} with a workflow ID`}
	}
	o.Workflow = workflow.Workflow
	return nil
}
