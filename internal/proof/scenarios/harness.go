package scenarios

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
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

// Lines is a Harness that sends operations through the update loop to a store. It is safe for concurrent
// use by scenarios on different resources.
type Lines struct {
	ctx     context.Context
	lines   *update.Lines
	store   store.Store
	travels atomic.Int64
	// changing guards policies, which are the ones with an end, by name or prefix.
	changing sync.Mutex
	policies map[rules.PolicyID]rules.PolicyChange
}

// NewLines returns a harness whose commands end with ctx. Close it when all scenarios have ended.
func NewLines(ctx context.Context, s store.Store) *Lines {
	return &Lines{ctx: ctx, lines: update.New(s, clock.Real{}, Settings), store: s, policies: map[rules.PolicyID]rules.PolicyChange{}}
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

// SetPolicy changes the stored policies.
func (l *Lines) SetPolicy(change rules.PolicyChange, lasts time.Duration) error {
	l.changing.Lock()
	defer l.changing.Unlock()
	identity, err := l.store.Identify(l.ctx)
	if err != nil {
		return err
	}
	if change.To != nil && lasts != 0 {
		until := identity.At.Add(lasts)
		change.To.Until = &until
	}
	return l.change(change)
}

// change changes the stored policies, and lets the update loop know.
func (l *Lines) change(change rules.PolicyChange) error {
	if err := l.store.SetPolicy(l.ctx, change); err != nil {
		return err
	}
	delete(l.policies, change.PolicyID)
	if change.To != nil && change.To.Until != nil {
		l.policies[change.PolicyID] = change
	}
	sent := clock.Now()
	identity, err := l.store.Identify(l.ctx)
	if err == nil {
		l.lines.Adopt(&identity, sent)
	}
	return err
}

// Travel moves all times of the stored document and of its policies back, except those without end. The document gets a
// new version, so the update loop reads it again.
func (l *Lines) Travel(base, resource string, d time.Duration) error {
	if err := l.shiftPolicies(base, d); err != nil {
		return err
	}
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

// shiftPolicies moves the ends of the policies whose names begin with base. Those that have ended are removed, because no
// policy can be set that ends in the past.
func (l *Lines) shiftPolicies(base string, d time.Duration) error {
	l.changing.Lock()
	defer l.changing.Unlock()
	identity, err := l.store.Identify(l.ctx)
	if err != nil {
		return err
	}
	for id, change := range l.policies {
		if !strings.HasPrefix(id.Name, base) {
			continue
		}
		to := *change.To
		until := to.Until.Add(-d)
		if to.Until, change.To = &until, &to; !until.After(identity.At) {
			change.To = nil
		}
		if err := l.change(change); err != nil {
			return err
		}
	}
	return nil
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
