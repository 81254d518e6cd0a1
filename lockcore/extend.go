package lockcore

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Extend gives a sign of life for the kept holds of a lock ID on the resources, each by the HoldTTL
// that it was taken with, for those who hold without a process. A hold that has gone stays gone.
//
// It returns after what time to call it again: a third of the shortest HoldTTL, and 5 min if none
// ends. A hold that is not there is answered by a *LostError, and the others are extended
// nevertheless. With a run label, a hold of another run is answered by an *OtherRunError. Other
// errors are *InvalidError, and the database's. All are joined.
func (l *Locker) Extend(ctx context.Context, lockID, run string, resources ...string) (again time.Duration, err error) {
	if err := checkEnd("Extend", lockID, 0, resources); err != nil {
		return 0, err
	}
	again = extendEvery
	for _, name := range resources {
		ttl, one := l.extendOne(ctx, name, engine.Acquire{LockID: lockID, Label: run})
		err = errors.Join(err, one)
		if one == nil && ttl > 0 {
			again = min(again, max(ttl/3, minTTL/3))
		}
	}
	return again, err
}

// extendEvery is how often a hold without end is looked after.
const extendEvery = 5 * time.Minute

// HandOver is Extend, and marks the holds as left to the run that continues this one: Status says
// so until another run has taken them over.
func (l *Locker) HandOver(ctx context.Context, lockID, run string, resources ...string) error {
	if err := checkEnd("HandOver", lockID, 0, resources); err != nil {
		return err
	}
	var errs []error
	for _, name := range resources {
		_, err := l.extendOne(ctx, name, engine.Acquire{LockID: lockID, Label: run, HandOver: true})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// extendOne extends one hold and returns its TTL, 0 if it has no end.
func (l *Locker) extendOne(ctx context.Context, name string, op engine.Acquire) (time.Duration, error) {
	d, err := l.refreshHold(ctx, name, op)
	if err != nil {
		return 0, err
	}
	k := d.Kept(op.LockID)
	if k == nil {
		return 0, lostError(&d, op.LockID, op.Label, "", LastAttempt(math.MaxInt32).number())
	}
	return time.Duration(k.TTL) * time.Millisecond, nil
}
