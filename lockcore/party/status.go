package party

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Status is a party that holds a resource, or waits for it, as [Locker.Status] found it. Its String
// is for people.
type Status struct {
	Resource string `json:"resource"`
	Holder
	// Order is the request's, of a waiter and of a claim; together with LockID and Part it names
	// the request. Of a hold that is kept it is that of the last request which entered it.
	Order Order `json:"order,omitzero"`
	// Position is a waiter's place in the queue, as in BusyError; otherwise 0.
	Position int `json:"position,omitempty"`
	// Overdue says that a waiter was not heard of when it had said, and is passed over until it is.
	Overdue bool `json:"overdue,omitempty"`
	// HandedOver says that the run which keeps the hold has left it to the run that continues it.
	HandedOver bool `json:"handedOver,omitempty"`
	// InTheWay is what keeps a waiter out, by the rules by which locks are granted: holders, or if there
	// are none a waiter ahead. It is empty if the resource is being granted to it.
	InTheWay []Obstacle `json:"-"`
	// Running are the requests that work in the hold now: of one that is kept, the steps that run.
	Running []Running `json:"running,omitempty"`
}

// Obstacle names a Status of the same resource that keeps a waiter out.
type Obstacle struct {
	LockID string
	State  State
	// Part is that of a waiter, a claim or a draining part.
	Part string
}

// Running is a request that entered a hold and has not left.
type Running struct {
	Part string `json:"part"`
	// Silent is for how long it has given no sign of life, and ExpiresIn what is left of its promise,
	// or Forever. Both are by the database server's clock.
	Silent    time.Duration `json:"silent"`
	ExpiresIn time.Duration `json:"expiresIn"`
}

// Filter selects what Status lists. The zero Filter selects everything; each field that is set
// narrows it. What it has no field for, such as a host, is a condition of the caller's loop.
type Filter struct {
	// Resource is one name, and Prefix the beginning of names. At most 512 bytes each.
	Resource, Prefix string
	LockID, Owner    string
	// LockIDPrefix is the beginning of lock IDs. At most 1,500 bytes.
	LockIDPrefix string
	// States are what to list. Defaults to all.
	States []State
	// Contended lists only resources that have a queue, a claim, a draining part or a hold that is
	// kept, with all that stands there. Other documents cost nothing then, if CreateIndexes was
	// called. Defaults to false.
	Contended bool
}

// Status streams who holds and who waits: by the resources' names, and of each resource the holders
// before the queue. A name is found by itself, and what is contended or kept by an index; any other
// filter reads all lock documents. It lists what a majority of the servers had when it was read;
// documents are read one after the other.
//
// The sequence ends after the first error: an *InvalidError, ctx's, or the database's.
func (l *Locker) Status(ctx context.Context, f Filter) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if err := f.check(); err != nil {
			yield(Status{}, err)
			return
		}
		q := rules.Query{
			Resource: f.Resource, Prefix: f.Prefix, LockID: f.LockID, Owner: f.Owner, LockIDPrefix: f.LockIDPrefix, Contended: f.Contended,
		}
		for d, err := range l.list(ctx, q) {
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

// list streams documents, unless the Locker is closed.
func (l *Locker) list(ctx context.Context, q rules.Query) iter.Seq2[rules.Document, error] {
	if l.life.closed.Err() != nil {
		return func(yield func(rules.Document, error) bool) { yield(rules.Document{}, ErrClosed) }
	}
	return l.store.List(ctx, q)
}

func (f *Filter) check() error {
	errs := []error{
		checkText("Filter.Resource", f.Resource, 0, maxName),
		checkText("Filter.Prefix", f.Prefix, 0, maxName),
		checkText("Filter.LockID", f.LockID, 0, maxLockID),
		checkText("Filter.LockIDPrefix", f.LockIDPrefix, 0, maxLockID),
		checkText("Filter.Owner", f.Owner, 0, maxLockID),
	}
	for i, s := range f.States {
		known := slices.Contains([]State{StateHolding, StateClaimed, StateDraining, StateWaiting}, s)
		errs = append(errs, refuse(!known, fmt.Sprintf("Filter.States[%d]", i), quote(string(s)), `"holding", "claimed", "draining" or "waiting"`))
	}
	return firstError(errs...)
}

func (f *Filter) selects(s *Status) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(f.Resource, s.Resource) && strings.HasPrefix(s.Resource, f.Prefix) && is(f.LockID, s.LockID) && is(f.Owner, s.Owner) &&
		strings.HasPrefix(s.LockID, f.LockIDPrefix) && (len(f.States) == 0 || slices.Contains(f.States, s.State))
}

func statusesOf(d *rules.Document) []Status {
	var out []Status
	for _, h := range holders(d) {
		s := Status{Resource: d.ID, Holder: h}
		if k := d.Kept(h.LockID); k != nil && h.State == StateHolding {
			s.HandedOver, s.Order = k.HandedOver, orderOf(k.Order)
		}
		for i := range d.Entries {
			if e := &d.Entries[i]; e.State == rules.StateRunning && e.LockID == h.LockID && h.State == StateHolding {
				s.Running = append(s.Running, Running{Part: e.Part, Silent: max(0, d.At.Sub(lastSign(e))), ExpiresIn: remaining(e.ExpiresAt, d.At)})
			}
		}
		if c := d.Claim(h.LockID, h.Part); c != nil && h.State == StateClaimed {
			s.Order = orderOf(c.Order)
		}
		out = append(out, s)
	}
	places := positions(d)
	for i := range d.Waiters {
		w := &d.Waiters[i]
		if w.Verdict != "" {
			continue
		}
		out = append(out, Status{
			Resource: d.ID, Order: orderOf(w.Order), Position: places[i], Overdue: w.Overdue(d.At), InTheWay: obstacles(d, i),
			Holder: Holder{
				LockID: w.LockID, Run: w.Label, Owner: cmp.Or(w.Owner, w.LockID), Mode: Mode(w.Mode), State: StateWaiting, Part: w.Part, Since: w.Since,
				Silent: max(0, d.At.Sub(w.Since)), Limit: limitOf(w), ExpiresIn: remaining(w.ExpiresAt, d.At),
			},
		})
	}
	return out
}

// obstacles returns what keeps the waiter at an index of the queue out.
func obstacles(d *rules.Document, waiter int) []Obstacle {
	entries, ahead := d.Blockers(waiter)
	var out []Obstacle
	for _, e := range entries {
		o := Obstacle{LockID: nameOf(e), State: StateHolding}
		if !e.Holds() {
			o.State, o.Part = State(e.State), e.Part
		}
		if !slices.Contains(out, o) {
			out = append(out, o)
		}
	}
	if ahead != nil {
		out = append(out, Obstacle{ahead.LockID, StateWaiting, ahead.Part})
	}
	return out
}

// limitOf is the limit that a waiter asked with.
func limitOf(w *rules.Waiter) int {
	if w.Mode == rules.Exclusive {
		return 0
	}
	return int(w.Limit)
}

// positions are, by waiter, the places in the queue: among all that wait, from 1.
func positions(d *rules.Document) []int {
	out := make([]int, len(d.Waiters))
	next := 1
	for i := range d.Waiters {
		out[i] = next
		if d.Waiters[i].Waits(d.At) {
			next++
		}
	}
	return out
}
