package lockcore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// State is the state of a lock ID on a resource.
type State string

// The states of what Status lists.
const (
	StateHolding  State = "holding"  // a hold, expired or not
	StateClaimed  State = "claimed"  // a waiter that was granted the resource and has not confirmed it
	StateDraining State = "draining" // a holder whose hold was ended by another, and that may not know it yet
	StateWaiting  State = "waiting"  // a request in the queue
)

// Holder is a lock ID that holds a resource, or was granted it, as others see it. Its String is for people.
type Holder struct {
	LockID string `json:"lockId"`
	// Run is that of the request; empty if it named none.
	//
	// Only a [StepRequest] names one.
	Run   string `json:"run,omitempty"`
	Owner string `json:"owner,omitempty"`
	Host  string `json:"host,omitempty"`
	Mode  Mode   `json:"mode"`
	Fence int64  `json:"fence,omitempty"`
	// FirstFence is the fence with which the hold began.
	//
	// [Locker.Revoke] names the hold by it.
	FirstFence int64 `json:"firstFence,omitempty"`
	State      State `json:"state"`
	// Part is the part of a claim, a draining part or a waiter.
	//
	// It names the request within its lock ID, as in [Lease].
	Part string `json:"part,omitempty"`
	// Limit is the semaphore limit of the request; 0 if there is none.
	Limit int `json:"limit,omitempty"`
	// Member is the member of a pool: that is held, or for which a waiter waits because it has lost it.
	Member  string `json:"member,omitempty"`
	Comment string `json:"comment,omitempty"`
	// Since is the time of the grant, by the database server's clock.
	Since time.Time `json:"since,omitzero"`
	// ExpiresIn is the time until the holder expires and can be evicted, unless it renews; Forever if it
	// never expires.
	ExpiresIn time.Duration `json:"expiresIn"`
	// Trace is the W3C traceparent of the latest request; empty if none was known.
	Trace string `json:"trace,omitempty"`
	// Silent is the time since a holder's last renewal, by the database server's clock. For a waiter it is
	// the time since it queued.
	Silent time.Duration `json:"silent,omitempty"`
	// HoldTTL is the time without a renewal after which a hold that a [StepRequest] keeps expires; Forever if it
	// never does, and 0 for all other holds.
	HoldTTL time.Duration `json:"holdTtl,omitempty"`
	// Within is the enclosing lock ID, if the request named one.
	Within string `json:"within,omitempty"`
	// Kept is set if the hold lasts without a part: as long as its Run is open or, with Within, while its request
	// waits for other resources. Otherwise a hold with a Run ends with its parts.
	Kept bool `json:"kept,omitempty"`
}

// Status is a lock ID that holds a resource, or waits for it, as [Locker.Status] found it. Its String is for
// people.
type Status struct {
	Resource string `json:"resource"`
	Holder
	// Order is the order of a waiter, a claim or a draining holder; with LockID and Part it names the request. Of
	// a hold that a [StepRequest] keeps it is the order of the last request that entered it.
	Order Order `json:"order,omitzero"`
	// Position is a waiter's position in the queue, as in BusyError; otherwise 0.
	Position int `json:"position,omitempty"`
	// Priority is that of a waiter, 1 to 5, and 0 in a waiter that was promoted; otherwise 0.
	Priority int `json:"priority,omitempty"`
	// Promoted is set if an operator has put the waiter first.
	Promoted bool `json:"promoted,omitempty"`
	// Overdue is set if a waiter was not refreshed in time, and is passed over until it is.
	Overdue bool `json:"overdue,omitempty"`
	// BlockedBy lists what blocks a waiter, by the rules by which locks are granted: at most 16 holders, or else a
	// waiter ahead. It is empty if the resource is being granted to it.
	BlockedBy []Blocker `json:"-"`
	// Running lists the requests that have entered the hold and have not left.
	Running []Running `json:"running,omitempty"`
	// Policy is the policy whose limit replaces Limit, that of the request, or that of the pool. It is nil if no policy is
	// for the resource, or it does not concern the request. Statuses of the same resource share it.
	Policy *Policy `json:"policy,omitempty"`
}

// Blocker names a Status of the same resource that blocks a waiter.
type Blocker struct {
	LockID string
	State  State
	// Part is as in [Holder].
	Part string
}

// Running is a request that entered a hold and has not left.
type Running struct {
	// Part names the request within its lock ID, as in [Lease].
	Part string `json:"part"`
	// Silent is the time since the last renewal, and ExpiresIn the time until the lease expires, or Forever.
	// Both are by the database server's clock.
	Silent    time.Duration `json:"silent"`
	ExpiresIn time.Duration `json:"expiresIn"`
}

// Filter selects what Status lists. The zero Filter selects everything; each field that is set narrows the
// selection.
type Filter struct {
	// Resource is one name, and Prefix the beginning of names. At most 512 bytes each.
	Resource, Prefix string
	LockID, Owner    string
	// LockIDPrefix is the beginning of lock IDs. At most 1,500 bytes.
	LockIDPrefix string
	// States are the states to list. Defaults to all.
	States []State
	// Contended lists only resources that have a queue, a claim, a draining holder, or a hold that a
	// [StepRequest] keeps, with everything on them. After CreateIndexes, other documents cost nothing. Defaults
	// to false.
	Contended bool
}

// Status streams holders and waiters, in the order of the resources' names, the holders of a resource before
// its queue. It finds one name, and contended resources, by an index; any other filter reads all lock
// documents. It lists what a majority of the servers had when it was read; documents are read one by one.
//
// A document that cannot be decoded is yielded as a *DamagedError, with its Resource in the Status, whatever the
// filter's States, lock IDs and owners; the sequence continues after it. It ends after any other error: an
// *InvalidError, ctx's, or the database's.
func (l *Locker) Status(ctx context.Context, f Filter) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if err := f.check(); err != nil {
			yield(Status{}, err)
			return
		}
		if known, _ := l.lines.Identity(); known.ID == "" {
			_, _ = l.identify(ctx) // from now on a Locker that only lists follows the policies, too; the list returns the error
		}
		q := rules.Query{
			Resource: f.Resource, Prefix: f.Prefix, LockID: f.LockID, Owner: f.Owner, LockIDPrefix: f.LockIDPrefix, Contended: f.Contended,
		}
		for d, err := range l.list(ctx, q) {
			var damaged *DamagedError
			switch {
			case errors.As(err, &damaged):
				if !yield(Status{Resource: damaged.Resource}, err) {
					return
				}
				continue
			case err != nil:
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

// Loss is a hold that its party has lost.
type Loss struct {
	Resource, LockID string
	// Run is the run of the hold.
	Run string
	At  time.Time
	// By is the lock ID that was granted the resource of an expired hold.
	By string
	// Reason is that of a forced release.
	Reason string
	// ReleasedAt, of Missed, is the time of the release that found the loss. Others may have used the resource
	// between the saga's steps until then.
	ReleasedAt time.Time
}

// Losses streams lost holds, in the order of the resources' names: the last five forced releases of each
// resource, and evictions of which the party has not heard yet, or which it has not made up for. Of the
// filter it uses Resource, Prefix and Contended. Errors are those of Status.
func (l *Steps) Losses(ctx context.Context, f Filter) iter.Seq2[Loss, error] {
	return func(yield func(Loss, error) bool) {
		if err := f.check(); err != nil {
			yield(Loss{}, err)
			return
		}
		for d, err := range l.list(ctx, rules.Query{Resource: f.Resource, Prefix: f.Prefix, Contended: f.Contended}) {
			var damaged *DamagedError
			switch {
			case errors.As(err, &damaged):
				if !yield(Loss{Resource: damaged.Resource}, err) {
					return
				}
				continue
			case err != nil:
				yield(Loss{}, fmt.Errorf("lockstep: list the locks: %w", err))
				return
			}
			evicted := slices.DeleteFunc(d.Evidence, func(e rules.Evidence) bool { return e.To != "" || slices.Contains(d.Forced, e) })
			for _, e := range slices.Compact(slices.Concat(d.Forced, evicted)) { // an eviction is recorded for each entry of the hold
				if !yield(Loss{Resource: d.ID, LockID: e.LockID, Run: e.Run, At: e.At, By: e.By, Reason: e.Reason}, nil) {
					return
				}
			}
		}
	}
}

// Missed streams the losses that sagas found out only when they released their locks after a commit, by
// [Steps.ReleaseCommitted], in the last 24 hours, at most 16 of a resource,
// in the order of the resources' names. Of the filter it uses Resource, Prefix, LockID and LockIDPrefix. After
// CreateIndexes, resources without any, with no queue and no kept hold cost nothing. Errors are those of Status.
func (l *Steps) Missed(ctx context.Context, f Filter) iter.Seq2[Loss, error] {
	return func(yield func(Loss, error) bool) {
		if err := f.check(); err != nil {
			yield(Loss{}, err)
			return
		}
		for d, err := range l.list(ctx, rules.Query{Resource: f.Resource, Prefix: f.Prefix, Contended: true}) {
			var damaged *DamagedError
			switch {
			case errors.As(err, &damaged):
				if !yield(Loss{Resource: damaged.Resource}, err) {
					return
				}
				continue
			case err != nil:
				yield(Loss{}, fmt.Errorf("lockstep: list the locks: %w", err))
				return
			}
			for _, m := range d.Missed {
				selected := (f.LockID == "" || f.LockID == m.LockID) && strings.HasPrefix(m.LockID, f.LockIDPrefix) && m.Recent(d.At)
				loss := Loss{Resource: d.ID, LockID: m.LockID, Run: m.Run, At: m.At, By: m.By, Reason: m.Reason, ReleasedAt: m.ReleasedAt}
				if selected && !yield(loss, nil) {
					return
				}
			}
		}
	}
}

// list streams documents, unless the Locker is closed.
func (l *Locker) list(ctx context.Context, q rules.Query) iter.Seq2[rules.Document, error] {
	return func(yield func(rules.Document, error) bool) {
		if l.life.closed.Err() != nil {
			yield(rules.Document{}, ErrClosed)
			return
		}
		for d, err := range l.store.List(ctx, q) {
			if !yield(d, public(err)) {
				return
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
	}
	for i, s := range f.States {
		known := slices.Contains([]State{StateHolding, StateClaimed, StateDraining, StateWaiting}, s)
		errs = append(errs, refuse(!known, fmt.Sprintf("Filter.States[%d]", i), quote(string(s)), `"holding", "claimed", "draining" or "waiting"`))
	}
	return cmp.Or(errs...)
}

func (f *Filter) selects(s *Status) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(f.Resource, s.Resource) && strings.HasPrefix(s.Resource, f.Prefix) && is(f.LockID, s.LockID) && is(f.Owner, s.Owner) &&
		strings.HasPrefix(s.LockID, f.LockIDPrefix) && (len(f.States) == 0 || slices.Contains(f.States, s.State))
}

// statusesOf lists the holders and the waiters of a document.
func statusesOf(d *rules.Document) []Status {
	out := holders(d)
	queue := d.Queue()
	places := positions(d)
	for i := range d.Waiters {
		w := &d.Waiters[i]
		if w.Verdict != "" {
			continue
		}
		out = append(out, Status{
			Resource: d.ID, Order: orderOf(w.Order), Position: places[i], Overdue: w.Overdue(d.At), BlockedBy: blockers(queue, i), Promoted: w.Promoted, Priority: priorityOf(w),
			Holder: Holder{
				LockID: w.LockID, Run: w.Run, Owner: cmp.Or(w.Owner, w.LockID), Mode: Mode(w.Mode), State: StateWaiting, Part: w.Part, Since: w.Since,
				Silent: max(0, d.At.Sub(w.Since)), Limit: limitOf(w.Mode, w.Limit), Member: w.Member, ExpiresIn: remaining(w.ExpiresAt, d.At),
			},
		})
	}
	policy := policyOf(d.Policy)
	for i := range out {
		if out[i].Limit > 0 || out[i].Mode == ModePool {
			out[i].Policy = policy
		}
	}
	return out
}

// priorityOf returns the priority of a waiter; 0 if it was promoted.
func priorityOf(w *rules.Waiter) int {
	if w.Promoted {
		return 0
	}
	return int(cmp.Or(w.Priority, rules.DefaultPriority))
}

// blockers returns what blocks the waiter at an index of the queue.
func blockers(queue *rules.Queue, waiter int) []Blocker {
	entries, ahead := queue.Blockers(waiter, mostHolders)
	var out []Blocker
	for _, e := range entries {
		o := blockerOf(e)
		if !slices.Contains(out, o) {
			out = append(out, o)
		}
	}
	if ahead != nil {
		out = append(out, Blocker{ahead.LockID, StateWaiting, ahead.Part})
	}
	return out
}

// positions returns the position of each waiter in the queue, from 1.
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

// String describes the holder, and how long it blocks others. It contains the arguments of a forced
// [Release]: the lock ID and the first fence.
func (h Holder) String() string {
	part := ""
	if h.Part != "" {
		part = fmt.Sprintf("part %q", h.Part)
	}
	switch h.State {
	case StateClaimed:
		return "granted to " + h.who("at", part) + ", " + h.until("lapsed %s", "no end", "lapses in %s unless confirmed")
	case StateDraining:
		return h.until("drained %s", "draining until it leaves", "draining for another %s") + ": " + h.who("since", part) + ", was cut off"
	}
	text := "held by " + h.who("since", part) + ", "
	switch {
	case h.Kept && h.Within != "":
		return text + "kept while its step waits for other resources"
	case h.Kept:
		return text + "kept while the workflow is open"
	}
	return text + h.until("expired %s", "no end", "for another %s unless renewed")
}

func (h Holder) until(over, endless, left string) string {
	switch {
	case h.ExpiresIn <= 0:
		return fmt.Sprintf(over, ago(-h.ExpiresIn))
	case h.ExpiresIn == Forever:
		return endless
	}
	return fmt.Sprintf(left, roughly(h.ExpiresIn))
}

// who describes a party and its request. The preposition precedes the time since which it holds or waits.
func (h Holder) who(preposition string, facts ...string) string {
	s := fmt.Sprintf("%q", h.LockID)
	if h.Owner != "" && h.Owner != h.LockID {
		s += fmt.Sprintf(" of %q", h.Owner)
	}
	if h.Host != "" {
		s += " on " + rules.Printable(h.Host)
	}
	mode := h.Mode.String()
	if h.Limit > 0 {
		mode += fmt.Sprintf(" with limit %d", h.Limit)
	}
	if h.Member != "" {
		mode += fmt.Sprintf(" member %q", h.Member)
	}
	facts = slices.DeleteFunc(append([]string{mode}, append(facts, h.fences())...), func(fact string) bool { return fact == "" })
	s += " (" + strings.Join(facts, ", ") + ")"
	if !h.Since.IsZero() {
		s += " " + preposition + " " + h.Since.UTC().Format(time.RFC3339)
	}
	return s
}

// fences returns "" for a claim, which has no fence yet.
func (h Holder) fences() string {
	switch {
	case h.FirstFence != 0 && h.FirstFence != h.Fence:
		return fmt.Sprintf("first fence %d, latest %d", h.FirstFence, h.Fence)
	case h.FirstFence != 0:
		return fmt.Sprintf("first fence %d", h.FirstFence)
	case h.Fence != 0:
		return fmt.Sprintf("fence %d", h.Fence)
	}
	return ""
}

// String describes the holder or waiter, and when it expires. It contains the arguments with which to end it: of
// a hold the lock ID and the first fence; of a waiter the lock ID, the part and the order.
func (s Status) String() string {
	policy := ""
	if s.Policy != nil {
		policy = "; " + s.Policy.inForce(s.Limit)
	}
	if s.State == StateWaiting {
		ends := s.until("it left the queue %s", "", "it leaves the queue in %s unless it asks again")
		if s.Overdue && s.ExpiresIn > 0 {
			ends = "overdue: passed over until it asks again, it leaves the queue in " + roughly(s.ExpiresIn)
		}
		who := s.who("since", fmt.Sprintf("part %q", s.Part), "order "+s.Order.String())
		return fmt.Sprintf("%q: waiting at position %d for %s: %s, %s%s", s.Resource, s.Position, roughly(s.Silent), who, ends, policy)
	}
	text := fmt.Sprintf("%q: %s%s", s.Resource, s.Holder, policy)
	if s.State == StateHolding && s.Silent > 0 {
		text += "; heard of " + ago(s.Silent)
	}
	if s.Comment != "" {
		text += fmt.Sprintf("; comment %q", s.Comment)
	}
	return text
}

func ago(d time.Duration) string {
	if d = d.Round(10 * time.Millisecond); d <= 0 {
		return "just now"
	}
	return roughly(d) + " ago"
}

// roughly formats a duration in at most two units, such as "4m40s".
func roughly(d time.Duration) string {
	grain := 10 * time.Millisecond
	switch {
	case d >= 10*time.Hour:
		grain = time.Hour
	case d >= 10*time.Minute:
		grain = time.Minute
	case d >= time.Second:
		grain = time.Second
	}
	text := d.Round(grain).String()
	for _, none := range []string{"0s", "0m"} {
		if before, has := strings.CutSuffix(text, none); has && !strings.ContainsAny(before[max(0, len(before)-1):], "0123456789") {
			text = before
		}
	}
	return text
}
