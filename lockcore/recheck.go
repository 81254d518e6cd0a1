package lockcore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/pace"
)

const (
	// parkedHeardIn is when a request that has just parked will be heard of at the latest, and
	// parkedTTL how long its place stands if nothing is heard of it.
	parkedHeardIn = 2 * time.Minute
	parkedTTL     = maxQueueTTL
)

// Recheck looks after a request that Enter queued on the resource at, for those who wait without a
// process. It takes nothing, and keeps alive what stands: the place in the queue, and the kept
// holds of the lock ID there and on the resources held. It reads, in one command that all who ask
// at the same time share, and writes only what a promise needs.
//
// first says that the request has queued just now: what it reads is no older than the call. Later
// looks may share what was read up to a second ago, if many wait.
//
// It returns nil if calling Enter again, with a greater order, is worthwhile. While the request
// waits it returns a *BusyError, and when to look again: after 20 s at first, and after up to 10
// min when it has waited long. A request that comes twice as late as that is passed over until it
// is heard of. The victim of a deadlock gets a *DeadlockError. Other errors are the database's, and
// ctx's.
func (l *Locker) Recheck(ctx context.Context, req Request, at string, first bool, held ...string) (again time.Duration, err error) {
	req, err = l.complete(req, false)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(req.Resources, func(r Resource) bool { return r.Name == at })
	if i < 0 {
		return 0, &InvalidError{Field: "at", Value: quote(at), Bound: "one of the request's resources"}
	}
	age := readFor
	if first {
		age = 0
	}
	names := append(slices.Clone(held), at)
	docs, err := l.watch.reads.get(ctx, names, age)
	if err != nil {
		return 0, err
	}
	again = pace.RecheckMost
	for _, name := range names {
		after, err := l.keepHold(ctx, &req, name, docs[name])
		if err != nil {
			return 0, err
		}
		again = min(again, after)
	}
	return l.recheckOne(ctx, &req, req.Resources[i], docs[at], again)
}

// recheckOne looks after the place, and returns no error if the request is not to wait any more.
func (l *Locker) recheckOne(ctx context.Context, req *Request, res Resource, d *engine.Document, again time.Duration) (time.Duration, error) {
	op := l.acquireOp(req, res)
	op.Queue, op.Refresh, op.WaiterTTL = true, true, parkedTTL.Milliseconds()
	look := engine.Next(d, op.Waiter())
	if look.Answer == engine.NextGo || look.Answer == engine.NextGone {
		return 0, verdict(&op, look)
	}
	position, waited := look.Position, time.Duration(0)
	if look.Place != nil {
		waited = d.At.Sub(look.Place.Since)
	}
	again = min(again, max(waited, pace.Recheck+time.Duration(position)*pace.RecheckEach))
	if position == 1 && look.After > 0 {
		again = min(again, max(look.After, pace.RecheckLeast))
	}
	if look.Answer == engine.NextSettle || look.Place == nil || look.Place.OverdueAt.Sub(d.At) < again*5/4+pace.Recheck {
		op.HeardIn = min(2*again+pace.Recheck, pace.RecheckMost).Milliseconds()
		after, err := l.retryUnknown(ctx, "refresh", res.Name, req.Order, func(ctx context.Context) (engine.Document, error) { return l.eng.Acquire(ctx, op) })
		if err != nil {
			return 0, err
		}
		l.afterWrite(ctx, &after, ending{})
		switch {
		case after.Last.Outcome == engine.Deadlock:
			return 0, deadlockError(&op, after.Last.Note)
		case after.Last.Outcome != engine.Queued || after.Claim(op.LockID, op.Part) != nil:
			return 0, nil
		}
		position = int(after.Last.Position)
	} else {
		position = positions(d)[slices.IndexFunc(d.Waiters, func(w engine.Waiter) bool { return w.LockID == op.LockID && w.Part == op.Part })]
	}
	busy := busy(&op, d)
	busy.Position, busy.Waiting, busy.Full = position, d.Queue().Waiting, false
	return again, busy
}

// Withdrawn returns a *DeadlockError if a request that Enter queued was taken out of a queue to end
// a deadlock: asking again would close the circle again. Else it returns nil, or the database's
// error, or ctx's. It reads, in one command that all who ask at the same time share.
func (l *Locker) Withdrawn(ctx context.Context, req Request) error {
	req, err := l.complete(req, false)
	if err != nil {
		return err
	}
	names := make([]string, len(req.Resources))
	for i, r := range req.Resources {
		names[i] = r.Name
	}
	docs, err := l.watch.reads.get(ctx, names, 0)
	if err != nil {
		return err
	}
	for _, res := range req.Resources {
		op := l.acquireOp(&req, res)
		if err := verdict(&op, engine.Next(docs[res.Name], op.Waiter())); err != nil {
			return err
		}
	}
	return nil
}

// verdict is the *DeadlockError of the victim of a deadlock, and else nil. A request that has read
// it before, in an answer that was lost, is known by what superseded it.
func verdict(op *engine.Acquire, look engine.Look) error {
	reason := cmp.Or(look.Verdict, look.By.Reason)
	if !strings.HasPrefix(reason, deadlockReason) {
		return nil
	}
	return deadlockError(op, reason)
}

// keepHold extends the kept hold that the lock ID has in a document, and returns when that is to be
// done again.
func (l *Locker) keepHold(ctx context.Context, req *Request, name string, d *engine.Document) (time.Duration, error) {
	if d == nil {
		return pace.RecheckMost, nil
	}
	i := slices.IndexFunc(d.Held, func(e engine.Entry) bool { return e.LockID == req.LockID && e.State == engine.Kept })
	if i < 0 || d.Held[i].TTL == 0 {
		return pace.RecheckMost, nil
	}
	ttl := time.Duration(d.Held[i].TTL) * time.Millisecond
	if left := d.Held[i].ExpiresAt.Sub(d.At); left > ttl*2/3 {
		return max(left-ttl/2, pace.RecheckLeast), nil
	}
	// Not in the request's own order, which it has left here; and a loss is for the next step to find. A run that was
	// reset holds under the label of the run before until its next step takes over.
	_, err := l.extendOne(ctx, req.LockID, d.Held[i].Label, name)
	if err != nil && !errors.Is(err, ErrLost) && !errors.Is(err, ErrOtherRun) {
		return 0, err
	}
	return max(ttl/3, pace.RecheckLeast), nil
}
