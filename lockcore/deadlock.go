package lockcore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// Wait is an edge of the wait-for graph: a request in a queue, and the owner for which it waits.
type Wait struct {
	Resource string `json:"resource"`
	// Owner is the owner of the waiting request, which LockID, Run, Part and Order name. For is the owner of
	// a hold that blocks it, or of a request ahead of it in the queue.
	Owner  string `json:"owner"`
	LockID string `json:"lockId"`
	Run    string `json:"run,omitempty"`
	Part   string `json:"part,omitempty"`
	Order  Order  `json:"order"`
	For    string `json:"for"`
	// Started is the request's, or the time at which it queued. NeverVictim is the request's.
	Started     time.Time `json:"started"`
	NeverVictim bool      `json:"neverVictim,omitempty"`
}

// Deadlock is a cycle of waits: each waits for the owner of the next.
type Deadlock struct {
	Waits []Wait `json:"waits"`
	// Victim is the index of the wait that must end: the owner that started last, and of several the one
	// with the greatest name. Requests with NeverVictim are excluded, unless all have set it.
	Victim int `json:"victim"`
}

// String describes the cycle of waits.
func (d Deadlock) String() string {
	parts := make([]string, len(d.Waits))
	for i, w := range d.Waits {
		parts[i] = fmt.Sprintf("%s waits for %s on %s", w.Owner, w.For, w.Resource)
	}
	return rules.Printable(strings.Join(parts, ", "))
}

// Deadlocks returns minimal cycles in the current wait-for graph: no other cycle has only a part of the owners. If
// the victim of each gives up, no cycle remains. A request waits for the owner of an incompatible hold, and for
// each incompatible request ahead of it in the queue; a limit of 1 counts as exclusive. A wait for room under a
// greater limit is not an edge, since any of several holders may end it. Therefore deadlocks of readers behind such a
// request are not detected either. An owner alone is in a deadlock if it waits for a hold of its own under another
// lock ID, and the request is not a [StepRequest] with a Run.
//
// It reads all documents with a queue, but not at one moment, so it may find waits that did not exist at the same
// time. BreakDeadlocks makes sure.
func (l *Locker) Deadlocks(ctx context.Context) ([]Deadlock, error) {
	var docs []rules.Document
	for d, err := range l.list(ctx, rules.Query{Waiting: true}) {
		if errors.Is(err, ErrDamaged) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("lockstep: read the queues: %w", err)
		}
		docs = append(docs, d)
	}
	return deadlocksIn(docs), nil
}

// BreakDeadlocks ends the current deadlocks: it withdraws the victim of each from the queue, if it still
// waits, and returns the deadlocks that it ended. The victim gets ErrDeadlock from its Acquire, from Recheck,
// and from the next Enter of its part on that resource, with any order. After that Enter it may queue again.
// Lockers with waiters do this in the background.
func (l *Steps) BreakDeadlocks(ctx context.Context) ([]Deadlock, error) {
	found, err := l.Deadlocks(ctx)
	if err != nil {
		return nil, err
	}
	var broken []Deadlock
	var errs []error
	for _, d := range found {
		if exists, err := l.stillExists(ctx, d); !exists {
			errs = append(errs, err)
			continue
		}
		ended, err := l.withdraw(ctx, d.Waits[d.Victim], d.String())
		errs = append(errs, err)
		if ended {
			broken = append(broken, d)
		}
	}
	return broken, errors.Join(errs...)
}

// stillExists reports whether all waits of a deadlock exist after an acknowledged write to each of its documents,
// which are read again for it. The search may have read old documents of different times, and so waits that never
// existed together. A wait that it has read, and that still exists, existed all the time in between.
func (l *Locker) stillExists(ctx context.Context, d Deadlock) (bool, error) {
	var docs []rules.Document
	for _, w := range d.Waits {
		if slices.ContainsFunc(docs, func(d rules.Document) bool { return d.ID == w.Resource }) {
			continue
		}
		c := l.call(ctx, rules.Settle{Policy: l.cfg.policy(), Resource: w.Resource}, ending{})
		c.Reads = true
		a, err := l.do(ctx, "settle", Order{}, c)
		if err != nil {
			return false, err
		}
		docs = append(docs, *a.After)
	}
	return newWaitGraph(docs).shows(d), nil
}

// deadlockReason begins the reason with which a victim is withdrawn. The victim recognizes it.
const deadlockReason = "deadlock: "

// withdraw withdraws a victim from the queue, and reports whether it still waited.
func (l *Locker) withdraw(ctx context.Context, w Wait, cycle string) (bool, error) {
	const most = 1024 // of a record that every write of the document carries along
	reason := deadlockReason + cycle
	if len(reason) > most {
		reason = strings.ToValidUTF8(reason[:most], "") + "…"
	}
	victim := Lease{Resource: w.Resource, LockID: w.LockID, Part: w.Part, Order: w.Order}
	op := rules.Withdraw{Policy: l.cfg.policy(), Resource: w.Resource, Caller: victim.caller(), Reason: reason}
	cycle = strings.TrimPrefix(reason, deadlockReason)
	a, err := l.end(ctx, telemetry.SpanDeadlock, victim, ending{cycle: cycle, owner: w.Owner}, l.call(ctx, op, ending{cycle: cycle, owner: w.Owner}))
	if err != nil || a.Outcome != rules.Granted { // another process has ended the deadlock
		return false, err
	}
	l.tel.count(ctx, l.tel.deadlocks, w.Resource)
	return true, nil
}

// victimOf returns the index of the wait that must end: see Deadlock.Victim.
func victimOf(waits []Wait) (victim int) {
	for i, w := range waits {
		last := waits[victim]
		later := cmp.Or(w.Started.Compare(last.Started), cmp.Compare(w.Owner, last.Owner)) > 0
		if w.NeverVictim == last.NeverVictim && later || last.NeverVictim && !w.NeverVictim {
			victim = i
		}
	}
	return victim
}
