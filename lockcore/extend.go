package lockcore

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Extend gives a sign of life for the kept holds of a lock ID on the resources, each by the HoldTTL that it was taken
// with, for those who hold without a process. It takes nothing: a hold that has gone stays gone.
//
// It returns after what time to call it again: a third of the shortest HoldTTL, and 5 min where none ends. A hold
// that is not there is answered by a *LostError, and the others are extended nevertheless. Other errors are
// *InvalidError, and the database's. All are joined.
func (l *Locker) Extend(ctx context.Context, lockID string, resources ...string) (again time.Duration, err error) {
	if err := checkEnd("Extend", lockID, resources); err != nil {
		return 0, err
	}
	again = extendEvery
	for _, name := range resources {
		ttl, one := l.extendOne(ctx, lockID, name)
		err = joined(err, one)
		if one == nil && ttl > 0 {
			again = min(again, max(ttl/3, minTTL/3))
		}
	}
	return again, err
}

// extendEvery is how often a hold without end is looked after.
const extendEvery = 5 * time.Minute

// extendOne extends one hold and returns its TTL, 0 where it has no end. A request that only refreshes gives a sign of
// life and asks for nothing, so that its order can be one which no release has reached.
func (l *Locker) extendOne(ctx context.Context, lockID, name string) (time.Duration, error) {
	order := LastAttempt(math.MaxInt32)
	op := engine.Acquire{
		Policy: l.cfg.policy(), Resource: name, LockID: lockID, Order: order.number(), Mode: engine.SharedBy, Keep: true, Refresh: true,
		TTL: millis(minTTL), HoldTTL: millis(minTTL), WaiterTTL: l.cfg.WaiterTTL.Milliseconds(), MaxWaiters: int64(l.cfg.MaxWaiters),
		Owner: lockID, Host: l.cfg.Host,
	}
	d, err := l.retryUnknown(ctx, "extend", name, order, func() (engine.Document, error) { return l.eng.Acquire(ctx, op) })
	if err != nil {
		return 0, err
	}
	l.afterWrite(ctx, &d, ending{})
	i := slices.IndexFunc(d.Held, func(e engine.Entry) bool { return e.LockID == lockID && e.State == engine.Kept })
	if i < 0 {
		return 0, lostError(&d, lockID, "", order.number())
	}
	return time.Duration(d.Held[i].TTL) * time.Millisecond, nil
}
