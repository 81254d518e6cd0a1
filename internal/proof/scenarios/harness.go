package scenarios

import (
	"fmt"
	"reflect"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// Harness applies operations to documents, and lets time pass for them.
type Harness interface {
	// Apply applies an operation and returns the document after it.
	Apply(op rules.Op) (*rules.Document, rules.Result, error)
	// Stored returns the document of a resource as of now, or nil if it has none.
	Stored(resource string) (*rules.Document, error)
	// Travel lets d pass for one resource, and for the policies that begin with base. A negative d sets its clock back.
	Travel(base, resource string, d time.Duration) error
	// SetPolicy sets or removes a policy, which lasts for a time unless that is 0.
	SetPolicy(change rules.PolicyChange, lasts time.Duration) error
}

// Rules is a Harness that applies operations to documents in memory.
type Rules struct {
	// Now is the time. Travel moves it.
	Now      time.Time
	docs     map[string]*rules.Document
	policies rules.Policies
}

// NewRules returns a harness without documents.
func NewRules() *Rules {
	return &Rules{Now: time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC), docs: map[string]*rules.Document{}}
}

// Apply applies an operation. Like the update loop it stores nothing if the answer is read-only, in which
// case the operation must only have settled the document.
func (r *Rules) Apply(op rules.Op) (*rules.Document, rules.Result, error) {
	before := r.docs[op.ResourceName()]
	settings := Settings
	settings.Policies = &r.policies
	after, result := op.Apply(before, r.Now, settings)
	if !result.ReadOnly {
		r.docs[op.ResourceName()] = after
		return after, result, nil
	}
	settled, _ := rules.Settle{Resource: op.ResourceName()}.Apply(before, r.Now, settings)
	if !reflect.DeepEqual(after, settled) {
		return nil, result, fmt.Errorf("%+v changed the document, and its answer is read-only: %+v", op, after)
	}
	return after, result, nil
}

// Stored returns the document of a resource, or nil.
func (r *Rules) Stored(resource string) (*rules.Document, error) {
	d := r.docs[resource]
	if d == nil {
		return nil, nil
	}
	d = d.Clone()
	d.At, d.Policy = r.Now, r.policies.For(resource, r.Now)
	return d, nil
}

// Travel moves the clock.
func (r *Rules) Travel(_, _ string, d time.Duration) error {
	r.Now = r.Now.Add(d)
	return nil
}

// SetPolicy changes the policies.
func (r *Rules) SetPolicy(change rules.PolicyChange, lasts time.Duration) (err error) {
	if change.To != nil && lasts != 0 {
		until := r.Now.Add(lasts)
		change.To.Until = &until
	}
	return r.policies.Change(&change)
}
