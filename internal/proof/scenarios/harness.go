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
	// Travel lets d pass for one resource. A negative d sets its clock back.
	Travel(resource string, d time.Duration) error
}

// Rules is a Harness that applies operations to documents in memory.
type Rules struct {
	// Now is the time. Travel moves it.
	Now  time.Time
	docs map[string]*rules.Document
}

// NewRules returns a harness without documents.
func NewRules() *Rules {
	return &Rules{Now: time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC), docs: map[string]*rules.Document{}}
}

// Apply applies an operation. Like the update loop it stores nothing if the answer is read-only, in which
// case the operation must only have settled the document.
func (r *Rules) Apply(op rules.Op) (*rules.Document, rules.Result, error) {
	before := r.docs[op.ResourceName()]
	after, result := op.Apply(before, r.Now, Settings)
	if !result.ReadOnly {
		r.docs[op.ResourceName()] = after
		return after, result, nil
	}
	settled, _ := rules.Settle{Resource: op.ResourceName()}.Apply(before, r.Now, Settings)
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
	d.At = r.Now
	return d, nil
}

// Travel moves the clock.
func (r *Rules) Travel(_ string, d time.Duration) error {
	r.Now = r.Now.Add(d)
	return nil
}
