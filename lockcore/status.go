package lockcore

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// State says what a [Status] is about.
type State string

const (
	// StateHolding is a hold, expired or not.
	StateHolding State = "holding"
	// StateClaimed is a waiter to whom the resource was granted, and who has not taken it up yet.
	StateClaimed State = "claimed"
	// StateDraining is a part that was cut off, and may not know yet.
	StateDraining State = "draining"
	// StateWaiting is a request in the queue.
	StateWaiting State = "waiting"
)

// Status is a party that holds a resource, or waits for it, as [Locker.Status] found it. Its String
// is for people.
type Status struct {
	Resource string `json:"resource"`
	Holder
	State State `json:"state"`
	// Part is that of a waiter, of a claim, or of a part that drains.
	Part string `json:"part,omitempty"`
	// Order is the request's, of a waiter. Together with LockID and Part it names the request.
	Order Order `json:"order,omitzero"`
	// Position is a waiter's place in the queue, from 1; otherwise 0.
	Position int `json:"position,omitempty"`
	// Overdue says that a waiter was not heard of when it had said, and is passed over until it is.
	Overdue bool `json:"overdue,omitempty"`
	// Silent is for how long a holder has given no sign of life, by the database server's clock:
	// since it was granted, joined or renewed. For a waiter it is how long it has waited.
	Silent time.Duration `json:"silent,omitempty"`
}

// Filter selects what Status lists. The zero Filter selects everything; each field that is set narrows it.
type Filter struct {
	// Resource is one name, and Prefix the beginning of names. At most 512 bytes each.
	Resource, Prefix string
	LockID, Owner    string
	Host             string
	// LockIDPrefix is the beginning of lock IDs. At most 1,500 bytes.
	LockIDPrefix string
	// Mode is ModeExclusive or ModeShared.
	Mode Mode
	// CreatedAfter and CreatedBefore bound when the hold was granted, or the request queued, by the database
	// server's clock; both exclusive.
	CreatedAfter, CreatedBefore time.Time
	// TTLBelow and TTLAtLeast bound what is left of the promise. A promise without end is above any
	// bound. One that has expired has nothing left, or less. Zero is no bound. To find only what
	// has expired set TTLBelow to 1 ns; to find only what has not, set TTLAtLeast to 1 ns.
	TTLBelow, TTLAtLeast time.Duration
	// States are what to list. Defaults to all.
	States []State
	// Contended leaves out resources on which nothing but plain holds stands: it lists those that
	// have a queue, a claim, a draining part or a hold that is kept, with all that stands there.
	// However many other documents there are, they cost nothing, if CreateIndexes was called.
	// Defaults to false.
	Contended bool
}

// Status streams who holds and who waits: by the resources' names, and of each resource the holders
// before the queue. A name is found by itself, and what is contended or kept by an index; any other
// filter reads all lock documents. What is listed is what a majority of the servers had when it was
// read. Documents are read one after the other.
//
// The sequence ends after the first error: an *InvalidError, ctx's, or the database's.
func (l *Locker) Status(ctx context.Context, f Filter) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if err := f.check(); err != nil {
			yield(Status{}, err)
			return
		}
		q := engine.Query{Resource: f.Resource, Prefix: f.Prefix, LockID: f.LockID, Owner: f.Owner, LockIDPrefix: f.LockIDPrefix}
		q.Live, q.Contended = f.TTLAtLeast > 0, f.Contended
		for d, err := range l.eng.List(ctx, q) {
			if err != nil {
				yield(Status{}, fmt.Errorf("lockstep: list the locks: %w", err))
				return
			}
			if f.Contended && len(d.Attn) == 0 {
				continue
			}
			for _, s := range statusesOf(&d) {
				if f.selects(&s) && !yield(s, nil) {
					return
				}
			}
		}
	}
}

func (f *Filter) check() error {
	errs := []error{
		checkText("Filter.Resource", f.Resource, 0, maxName),
		checkText("Filter.Prefix", f.Prefix, 0, maxName),
		checkText("Filter.LockID", f.LockID, 0, maxLockID),
		checkText("Filter.LockIDPrefix", f.LockIDPrefix, 0, maxLockID),
		checkText("Filter.Owner", f.Owner, 0, maxLockID),
		checkText("Filter.Host", f.Host, 0, 255),
	}
	if f.Mode != "" {
		errs = append(errs, checkMode("Filter", Resource{Mode: f.Mode}))
	}
	for i, s := range f.States {
		switch s {
		case StateHolding, StateClaimed, StateDraining, StateWaiting:
		default:
			errs = append(errs, &InvalidError{
				Field: fmt.Sprintf("Filter.States[%d]", i), Value: quote(string(s)), Bound: `"holding", "claimed", "draining" or "waiting"`,
			})
		}
	}
	return firstError(errs...)
}

func (f *Filter) selects(s *Status) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	switch {
	case !is(f.Resource, s.Resource), !strings.HasPrefix(s.Resource, f.Prefix), !is(f.LockID, s.LockID), !is(f.Owner, s.Owner),
		!strings.HasPrefix(s.LockID, f.LockIDPrefix), !is(f.Host, s.Host), !is(string(f.Mode), string(s.Mode)):
		return false
	case !f.CreatedAfter.IsZero() && !s.Since.After(f.CreatedAfter), !f.CreatedBefore.IsZero() && !s.Since.Before(f.CreatedBefore):
		return false
	case f.TTLBelow != 0 && s.ExpiresIn >= f.TTLBelow, f.TTLAtLeast != 0 && s.ExpiresIn < f.TTLAtLeast:
		return false
	}
	if len(f.States) == 0 {
		return true
	}
	for _, state := range f.States {
		if s.State == state {
			return true
		}
	}
	return false
}

// statusesOf lists who is in a document.
func statusesOf(d *engine.Document) []Status {
	var out []Status
	silent := silences(d)
	for _, h := range holders(d) {
		s := Status{Resource: d.ID, Holder: h, State: StateHolding, Part: h.part, Silent: silent[h.LockID]}
		switch {
		case h.Claimed:
			s.State = StateClaimed
		case h.Draining:
			s.State = StateDraining
		}
		out = append(out, s)
	}
	position := 0
	for _, w := range d.Waiters {
		if w.Verdict != "" {
			continue
		}
		position++
		limit := int(w.Limit)
		if w.Mode == engine.Exclusive {
			limit = 0
		}
		out = append(out, Status{
			Resource: d.ID, State: StateWaiting, Part: w.Part, Order: orderOf(w.Order), Position: position,
			Overdue: w.Overdue(d.At), Silent: max(0, d.At.Sub(w.Since)),
			Holder: Holder{
				LockID: w.LockID, Owner: cmp.Or(w.Owner, w.LockID), Mode: Mode(w.Mode), Since: w.Since, Limit: limit, ExpiresIn: remaining(w.ExpiresAt, d.At),
			},
		})
	}
	return out
}

// ForceRelease is what [Locker.ForceRelease] ends.
type ForceRelease struct {
	// LockID is whose holds, claims and queued places end, whatever their order.
	LockID string
	// Resources are where: 1 to 100 names.
	Resources []string
	// FirstFence names the hold to end, on the one resource that is named, by the fence with which it began: that of its
	// lease, or of its Status. It also names a hold whose parts drain, since it was released before. Places in the queue
	// stay. Defaults to 0: what stands when the release looks.
	FirstFence int64
	// Now does not wait for parts that may still trust their leases. It is for a holder that is known to be dead: if it
	// lives, it works beside the next one. Defaults to false: such a part drains, and keeps others out until it leaves or
	// its promise ends.
	Now bool
	// Reason is what the holder gets to see: 1 to 512 bytes.
	Reason string
}

// ForceRelease ends the holds of a lock ID that does not do so itself, and without a FirstFence it takes the lock ID out of
// the queues too. The holder's next renewal, or its next step, answers with a *LostError that gives the reason. A part that
// may still trust its lease drains, unless Now says otherwise: Status says until when.
//
// It returns the names of the resources that the lock ID held. A repetition ends nothing that was granted since the first
// call, if it names the FirstFence. All resources are tried; errors are joined.
func (l *Locker) ForceRelease(ctx context.Context, r ForceRelease) (held []string, err error) {
	err = firstError(checkEnd("ForceRelease", r.LockID, r.Resources), checkText("ForceRelease.Reason", r.Reason, 1, maxName),
		checkFirstFence("ForceRelease.HoldFence", r.FirstFence, r.Resources))
	if err != nil {
		return nil, err
	}
	op := engine.Release{Policy: l.cfg.policy(), LockID: r.LockID, FirstFence: r.FirstFence, Force: true, Now: r.Now, Reason: r.Reason}
	if r.FirstFence == 0 {
		return l.endStanding(ctx, r.LockID, r.Resources, op, revoked(r.Reason))
	}
	op.Resource = r.Resources[0]
	d, err := l.release(ctx, op, Order{}, revoked(r.Reason))
	if len(d.Last.Released) > 0 {
		held = r.Resources
	}
	return held, err
}

// Purge ends the holds that have expired, on the resources whose names begin with prefix: it writes their spans, leaves a
// record for owners that come back, and drops whatever else is dead. It returns how many holds it ended.
//
// Nothing needs it: an expired hold is in nobody's way. It is for people who want to see none.
func (l *Locker) Purge(ctx context.Context, prefix string) (int, error) {
	n := 0
	f := Filter{Prefix: prefix, TTLBelow: 1, States: []State{StateHolding}}
	names := map[string]bool{}
	for s, err := range l.Status(ctx, f) {
		if err != nil {
			return n, err
		}
		names[s.Resource] = true
	}
	var errs error
	for name := range names {
		op := engine.Purge{Policy: l.cfg.policy(), Resource: name, Reason: "it had expired and was purged"}
		d, err := l.retryUnknown(ctx, "purge", name, Order{}, func() (engine.Document, error) { return l.eng.Purge(ctx, op) })
		errs = joined(errs, err)
		if err == nil {
			l.afterWrite(ctx, &d, ending{reason: op.Reason})
			n += len(holdsIn(d.Last.Expired))
		}
	}
	return n, errs
}

// holdsIn are the lock IDs whose holds entries tell of.
func holdsIn(entries []engine.Entry) map[string]bool {
	ids := map[string]bool{}
	for _, e := range entries {
		ids[e.LockID] = true
	}
	return ids
}
