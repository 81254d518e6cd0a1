package scenarios

import (
	"context"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
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

// Lines is a Harness that sends operations through the update loop to a store. It is safe for concurrent
// use by scenarios on different resources.
type Lines struct {
	ctx     context.Context
	lines   *update.Lines
	store   store.Store
	travels atomic.Int64
}

// NewLines returns a harness whose commands end with ctx. Close it when all scenarios have ended.
func NewLines(ctx context.Context, s store.Store) *Lines {
	return &Lines{ctx: ctx, lines: update.New(s, clock.Real{}, Settings), store: s}
}

// Close ends the commands that are under way.
func (l *Lines) Close() { l.lines.Close() }

// Apply sends an operation, and waits for its answer.
func (l *Lines) Apply(op rules.Op) (*rules.Document, rules.Result, error) {
	a := l.lines.Do(l.ctx, &update.Call{Op: op})
	return a.After, a.Result, a.Err
}

// Stored reads the document, or returns nil if there is none.
func (l *Lines) Stored(resource string) (*rules.Document, error) {
	loaded, err := l.store.Load(l.ctx, resource)
	if err != nil {
		return nil, err
	}
	if loaded.Docs[resource] == nil {
		return nil, nil
	}
	return loaded.Docs[resource].Clone(), nil
}

// Travel moves all times of the stored document back, except those without end. The document gets a
// new version, so the update loop reads it again.
func (l *Lines) Travel(resource string, d time.Duration) error {
	next, err := l.Stored(resource)
	if err == nil && next == nil {
		err = fmt.Errorf("%q has no document", resource)
	}
	if err != nil {
		return err
	}
	shift(next, d)
	prev := next.Version
	next.Version = rules.Version{N: prev.N + 1, R: fmt.Sprintf("travel-%d", l.travels.Add(1))}
	done, err := l.store.Swap(l.ctx, store.Swap{Prev: prev, Next: next})
	if err == nil && done != 1 {
		err = fmt.Errorf("%q was changed by another process", resource)
	}
	return err
}

// shift moves all times of a document back, except those without end.
func shift(doc *rules.Document, d time.Duration) {
	for _, t := range times(doc) {
		if t != nil && t.Before(rules.Never) {
			*t = t.Add(-d)
		}
	}
}

// times returns the times of a document, or nil for times that an entry or a waiter does not have. The ones behind pointers,
// which documents share, are copied.
func times(doc *rules.Document) []*time.Time {
	all := []*time.Time{&doc.EvidenceSince, &doc.IdleAt}
	own := func(shared ...**time.Time) {
		for _, p := range shared {
			if *p != nil {
				t := **p
				*p = &t
			}
			all = append(all, *p)
		}
	}
	for i := range doc.Entries {
		e := &doc.Entries[i]
		all = append(all, &e.ExpiresAt)
		own(&e.RenewedAt, &e.Since, &e.ClaimedAt, &e.QueuedUntil, &e.CreatedAt)
	}
	for i := range doc.Waiters {
		w := &doc.Waiters[i]
		all = append(all, &w.Since, &w.ExpiresAt, &w.OverdueAt)
		own(&w.Started)
	}
	for i := range doc.Evidence {
		all = append(all, &doc.Evidence[i].At)
	}
	for i := range doc.Missed {
		all = append(all, &doc.Missed[i].At, &doc.Missed[i].ReleasedAt)
	}
	return all
}
