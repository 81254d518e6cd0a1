package lockcore

import (
	"context"
	"math"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Extend gives a sign of life for the kept hold of a lock ID on a resource, by the HoldTTL that it
// was taken with, for those who hold without a process. A hold that has gone stays gone. handOver
// marks it as left to the run that continues this one: Status says so until another run has taken
// it over.
//
// It returns after what time to call it again: a third of the HoldTTL, and 5 min if it has no end.
// A hold that is not there is answered by a *LostError, and with a run label one of another run by
// an *OtherRunError. Other errors are *InvalidError, and the database's.
func (l *Locker) Extend(ctx context.Context, lockID, run, resource string, handOver bool) (again time.Duration, err error) {
	if err := checkEnd("Extend", lockID, 0, []string{resource}); err != nil {
		return 0, err
	}
	d, err := l.refreshHold(ctx, resource, engine.Acquire{LockID: lockID, Label: run, HandOver: handOver})
	if err != nil {
		return 0, err
	}
	switch k := d.Kept(lockID); {
	case k == nil:
		return 0, lostError(&d, lockID, run, "", LastAttempt(math.MaxInt32).number())
	case k.TTL == 0:
		return extendEvery, nil
	default:
		return min(extendEvery, max(ttlOf(k)/3, minTTL/3)), nil
	}
}

// extendEvery is how often a hold without end is looked after.
const extendEvery = 5 * time.Minute

// refreshHold gives a sign of life for the kept hold of a party on a resource, and returns the
// document. A request that only refreshes asks for nothing, so that its order can be one which no
// release has reached.
func (l *Locker) refreshHold(ctx context.Context, name string, op engine.Acquire) (engine.Document, error) {
	op.Resource, op.Order, op.Mode, op.Persist = name, LastAttempt(math.MaxInt32).number(), engine.Shared, true
	op.HoldTTL, op.WaiterTTL, op.Owner = millis(minTTL), l.cfg.WaiterTTL.Milliseconds(), op.LockID
	d, err := l.refresh(ctx, op)
	if err == nil && d.Last.Outcome == engine.OtherRun {
		err = &OtherRunError{Resource: name, LockID: op.LockID, Run: op.Label, Other: d.Last.Note}
	}
	return d, err
}

// refresh sends a request that asks for nothing, and keeps alive what its party has.
func (l *Locker) refresh(ctx context.Context, op engine.Acquire) (engine.Document, error) {
	op.Policy, op.Refresh, op.TTL, op.MaxWaiters, op.Host = l.cfg.policy(), true, millis(minTTL), int64(l.cfg.MaxWaiters), l.cfg.Host
	send := func(ctx context.Context) (engine.Document, error) { return l.eng.Acquire(ctx, op) }
	d, err := l.retryUnknown(ctx, "refresh", op.Resource, orderOf(op.Order), send)
	if err == nil {
		l.afterWrite(ctx, &d, ending{})
	}
	return d, err
}
