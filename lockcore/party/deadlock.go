package party

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Wait is an edge of the wait-for graph: a request in a queue, and whom it waits for.
type Wait struct {
	Resource string `json:"resource"`
	// Owner waits, under LockID, Run, Part and Order, and For is the owner that it waits for: of a
	// hold in its way, or of a request ahead in the queue.
	Owner  string `json:"owner"`
	LockID string `json:"lockId"`
	Run    string `json:"run,omitempty"`
	Part   string `json:"part,omitempty"`
	Order  Order  `json:"order"`
	For    string `json:"for"`
	// Started is the request's, or when it queued, and NeverVictim the request's.
	Started     time.Time `json:"started"`
	NeverVictim bool      `json:"neverVictim,omitempty"`
}

// Deadlock is a cycle of waits: each waits for the owner of the next.
type Deadlock struct {
	Waits []Wait `json:"waits"`
	// Victim is the index of the wait that has to end: of those that may be one, or of all if none
	// may, that of the owner that started last, and then of the greatest name.
	Victim int `json:"victim"`
}

// String says who waits for whom.
func (d Deadlock) String() string {
	parts := make([]string, len(d.Waits))
	for i, w := range d.Waits {
		parts[i] = fmt.Sprintf("%s waits for %s on %s", w.Owner, w.For, w.Resource)
	}
	return strings.Join(parts, ", ")
}

// Deadlocks lists the cycles in the wait-for graph as it stands: a shortest one through each owner
// that is in one, each once. Waiting for room under a limit of more than 1 is no edge of the graph,
// since any of several may give it.
//
// It reads every document that has a queue, not in one moment: a cycle is certain only when it is
// found twice, and then it stays until a request gives up.
func (l *Locker) Deadlocks(ctx context.Context) ([]Deadlock, error) {
	var docs []rules.Document
	for d, err := range l.list(ctx, rules.Query{Waiting: true}) {
		if err != nil {
			return nil, fmt.Errorf("lockstep: read the queues: %w", err)
		}
		docs = append(docs, d)
	}
	return deadlocksIn(docs), nil
}

// BreakDeadlocks ends the deadlocks that are there: it takes the victim of each out of the queue,
// if it still stands there, and returns those that it ended. The victim is told with ErrDeadlock:
// by its Acquire, by Recheck, and by the next Enter of its part on that resource, whatever the
// order. After that Enter it may queue again. Acquire does this by itself.
func (l *Locker) BreakDeadlocks(ctx context.Context) ([]Deadlock, error) {
	first, err := l.Deadlocks(ctx)
	if err != nil || len(first) == 0 {
		return nil, err
	}
	// Documents are read one by one. Most of what is not a deadlock does not look like the same one twice.
	second, err := l.Deadlocks(ctx)
	if err != nil {
		return nil, err
	}
	var broken []Deadlock
	var errs []error
	victims := map[Wait]bool{}
	for _, d := range second {
		v := d.Waits[d.Victim]
		v.For = ""
		if victims[v] || !slices.ContainsFunc(first, func(f Deadlock) bool { return slices.Equal(f.Waits, d.Waits) }) {
			continue
		}
		victims[v] = true
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

// stillExists reports whether all waits of a deadlock exist after an acknowledged write to each of its
// documents, the victim's last. What the searches have read may be old, each document by another
// time, so that they can show waits that never existed together. A wait that they have read, and that
// still exists, existed all the time in between.
func (l *Locker) stillExists(ctx context.Context, d Deadlock) (bool, error) {
	var docs []rules.Document
	names := make([]string, len(d.Waits))
	for i := range d.Waits {
		names[i] = d.Waits[(d.Victim+1+i)%len(d.Waits)].Resource
	}
	for i, name := range names {
		if slices.Contains(names[i+1:], name) {
			continue
		}
		a, err := l.do(ctx, "settle", Order{}, l.call(ctx, rules.Settle{Policy: l.cfg.policy(), Resource: name}, ending{}))
		if err != nil {
			return false, err
		}
		docs = append(docs, *a.After)
	}
	return newWaitGraph(docs).shows(d), nil
}

// deadlockReason begins the reason that a victim finds, and by which it knows.
const deadlockReason = "deadlock: "

// withdraw takes a victim out of the queue, and reports whether it still stood there.
func (l *Locker) withdraw(ctx context.Context, w Wait, cycle string) (bool, error) {
	const most = 1024 // of a record that every write of the document carries along
	reason := deadlockReason + cycle
	if len(reason) > most {
		reason = strings.ToValidUTF8(reason[:most], "") + "…"
	}
	op := rules.Withdraw{
		Policy: l.cfg.policy(), Resource: w.Resource, LockID: w.LockID, Part: w.Part, Order: w.Order.number(), Reason: reason,
	}
	victim := Lease{Resource: w.Resource, LockID: w.LockID, Part: w.Part, Order: w.Order}
	cycle = strings.TrimPrefix(reason, deadlockReason)
	a, err := l.end(ctx, telemetry.SpanDeadlock, victim, ending{cycle: cycle, owner: w.Owner}, op)
	if err != nil || a.Outcome != rules.Granted { // another process was faster
		return false, err
	}
	l.tel.deadlock(ctx, w.Resource)
	wakeup := wakeupOf(a.After, w.LockID, w.Run, w.Part, w.Order.number())
	wakeup.Deadlock = cycle
	l.watch.tell([]Wakeup{wakeup})
	return true, nil
}
