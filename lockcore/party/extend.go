package party

import (
	"context"
	"math"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
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
	d, err := l.verifyHold(ctx, rules.Verify{Resource: resource, LockID: lockID, Label: run, HandOver: handOver})
	if err != nil {
		return 0, err
	}
	switch k := d.Kept(lockID); {
	case k == nil:
		return 0, lostError(d, rules.Request{LockID: lockID, Label: run, Order: LastAttempt(math.MaxInt32).number()})
	case k.TTL == 0:
		return extendEvery, nil
	default:
		return min(extendEvery, max(ttlOf(k)/3, minTTL/3)), nil
	}
}

// extendEvery is how often a hold without end is looked after.
const extendEvery = 5 * time.Minute

// verifyHold renews the kept hold of a party, and returns the document. If another run holds, the
// error is an *OtherRunError.
func (l *Locker) verifyHold(ctx context.Context, op rules.Verify) (*rules.Document, error) {
	op.Policy = l.cfg.policy()
	a, err := l.do(ctx, "refresh", Order{}, l.call(ctx, op, ending{}))
	switch {
	case err != nil:
		return nil, err
	case a.Outcome == rules.OtherRun:
		return a.After, &OtherRunError{Resource: op.Resource, LockID: op.LockID, Run: op.Label, Other: a.Note}
	}
	return a.After, nil
}
