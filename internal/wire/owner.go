package wire

import (
	"encoding/json"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Owner names an owner on its way to the worker that locks, which knows the namespace's ID: by a name that the user chose,
// which is a text in JSON, or as a workflow of the same namespace. The zero value is the workflow that asks.
type Owner struct {
	Name     string
	Workflow string
}

type ownerJSON struct {
	Workflow string `json:"workflow"`
}

// IsZero reports whether it is the workflow that asks.
func (o Owner) IsZero() bool { return o == Owner{} }

// Of is the owner as lockcore knows it, for a request of a run.
func (o Owner) Of(run Run) string {
	if o.Name != "" {
		return Cut(o.Name, MaxName)
	}
	if o.Workflow != "" {
		run.WorkflowID = o.Workflow
	}
	return run.Owner()
}

// MarshalJSON writes a text, or an object that names a workflow.
func (o Owner) MarshalJSON() ([]byte, error) {
	if o.Workflow != "" {
		return json.Marshal(ownerJSON{o.Workflow})
	}
	return json.Marshal(o.Name)
}

// UnmarshalJSON reads what MarshalJSON writes; anything else is a *lockcore.InvalidError.
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
