package lockcore

import (
	"cmp"
	"context"
	"fmt"
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

// Recheck looks after a request for one resource that Enter queued, for those who wait without a
// process. It takes nothing, and keeps alive the place in the queue. It reads, and writes only if
// the place needs it.
//
// It returns nil if calling Enter again, with a greater order, is worthwhile. While the request
// waits it returns a *BusyError, and when to look again: after 20 s at first, and after up to 10
// min when it has waited long. A request that comes twice as late as that is passed over until it
// is heard of. The victim of a deadlock gets a *DeadlockError. Other errors are the database's, and
// ctx's.
func (l *Locker) Recheck(ctx context.Context, req Request) (again time.Duration, err error) {
	req, err = l.complete(req, false)
	if err != nil {
		return 0, err
	}
	if n := len(req.Resources); n != 1 {
		return 0, &InvalidError{Field: "Request.Resources", Value: fmt.Sprint(n), Bound: "1 for Recheck"}
	}
	op := l.acquireOp(&req, req.Resources[0])
	d, err := l.read(ctx, op.Resource)
	if err != nil {
		return 0, err
	}
	op.WaiterTTL = parkedTTL.Milliseconds()
	look := engine.Next(d, op.Waiter())
	if look.Answer == engine.NextGo || look.Answer == engine.NextGone {
		return 0, verdict(&op, d, look)
	}
	position, waited := look.Position, time.Duration(0)
	if look.Place != nil {
		waited = d.At.Sub(look.Place.Since)
	}
	again = min(pace.RecheckMost, max(waited, pace.Recheck+time.Duration(position)*pace.RecheckEach))
	if position == 1 && look.After > 0 {
		again = min(again, max(look.After, pace.RecheckLeast))
	}
	if look.Answer == engine.NextSettle || look.Place == nil || look.Place.OverdueAt.Sub(d.At) < again*5/4+pace.Recheck {
		op.HeardIn = min(2*again+pace.Recheck, pace.RecheckMost).Milliseconds()
		after, err := l.refresh(ctx, op)
		if err != nil {
			return 0, err
		}
		switch {
		case after.Last.Outcome == engine.Deadlock:
			return 0, deadlockError(&op, &after, after.Last.Note)
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

// KeepPlace prolongs the place of a request that Enter queued, if it stands, for whoever knows that
// the request will come back. It asks for nothing. Whether the request is passed over, since it was
// not heard of in time, stays as it is. The lease names resource, lock ID, run, part and order. An
// error is the database's, or ctx's.
func (l *Locker) KeepPlace(ctx context.Context, place Lease) error {
	d, err := l.read(ctx, place.Resource)
	if err != nil || d == nil {
		return err
	}
	i := slices.IndexFunc(d.Waiters, func(w engine.Waiter) bool {
		return w.LockID == place.LockID && w.Label == place.Run && w.Part == place.Part && w.Order == place.Order.number() && w.Waits(d.At)
	})
	if i < 0 {
		return nil
	}
	w := d.Waiters[i]
	req := Request{
		LockID: w.LockID, Run: w.Label, Within: w.Within, Part: w.Part, Order: place.Order, Owner: cmp.Or(w.Owner, w.LockID), NeverVictim: w.Safe,
	}
	if w.Started != nil {
		req.Started = *w.Started
	}
	op := l.acquireOp(&req, Resource{Name: d.ID, Mode: Mode(w.Mode), Limit: limitOf(&w)})
	op.WaiterTTL, op.HeardIn = parkedTTL.Milliseconds(), cmp.Or(w.OverdueAt.Sub(d.At).Milliseconds()/2, -1)
	_, err = l.refresh(ctx, op)
	return err
}

// verdict is the *DeadlockError of the victim of a deadlock, and else nil. A request that has read
// it before, in an answer that was lost, is known by what superseded it.
func verdict(op *engine.Acquire, d *engine.Document, look engine.Look) error {
	reason := cmp.Or(look.Verdict, look.By.Reason)
	if !strings.HasPrefix(reason, deadlockReason) {
		return nil
	}
	return deadlockError(op, d, reason)
}

// read returns the document of a resource, nil if there is none.
func (l *Locker) read(ctx context.Context, resource string) (*engine.Document, error) {
	docs, err := l.eng.Read(ctx, resource)
	if err != nil || len(docs) == 0 {
		return nil, err
	}
	return &docs[0], nil
}
