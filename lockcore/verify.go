package lockcore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// Verify is the input of [Steps.Verify].
type Verify struct {
	// LockID is the lock ID of the holds, and Run the workflow run. Both are required.
	LockID string
	Run    string
	// TakeOver is the run that Run may replace; see [StepRequest]. First fences stay.
	TakeOver string
	// Used lists what must be held. Defaults to nothing.
	Used []Use
	// Inherits permits missing holds, because an earlier run of the party may have released them. A hold
	// is then lost only if there is evidence of the loss. Defaults to false: a missing hold is lost.
	Inherits bool
	// LostSince, of a run that a reset has made, is the time, by the server's clock, from which losses of any
	// run of the lock ID count like those of Run, unless the hold has outlived them: it began later, or was
	// acquired again with [StepRequest].Reacquire. Defaults to zero: only losses of Run count.
	LostSince time.Time
}

// Use is a resource that the party has used, and must have held since.
type Use struct {
	Resource string
	// Order is the greatest order of the requests that used the resource: one of them, or an earlier request,
	// must have entered the hold.
	Order Order
}

// Verify verifies, by one majority write to each resource, that the party still holds what it used. It
// renews these holds, and releases nothing. It may be repeated.
//
// The losses are returned as joined *LostErrors. If another run holds, the error is an *OtherRunError. Other
// errors are *InvalidError, and the database's.
func (l *Steps) Verify(ctx context.Context, v Verify) error {
	if err := v.check(); err != nil {
		return err
	}
	errs := make([]error, len(v.Used))
	inParallel(len(v.Used), func(i int) {
		use := v.Used[i]
		d, err := l.verifyHold(ctx, rules.Verify{
			Resource: use.Resource, LockID: v.LockID, Run: v.Run, TakeOver: v.TakeOver, Order: use.Order.number(), LostSince: v.LostSince,
		})
		if err == nil {
			err = v.lost(d, use)
		}
		if errors.Is(err, ErrLost) {
			l.tel.count(ctx, l.tel.losses, use.Resource)
		}
		errs[i] = err
	})
	return errors.Join(errs...)
}

func (v *Verify) check() error {
	checks := []error{
		checkText("Verify.LockID", v.LockID, 1, maxLockID), checkText("Verify.Run", v.Run, 1, maxName), checkText("Verify.TakeOver", v.TakeOver, 0, maxName),
	}
	for i, u := range v.Used {
		checks = append(checks, checkText(fmt.Sprintf("Verify.Used[%d].Resource", i), u.Resource, 1, maxName))
	}
	return cmp.Or(checks...)
}

// lost returns the *LostError if the party does not hold what it used, or has lost it in between.
func (v *Verify) lost(d *rules.Document, use Use) error {
	loss := d.Lost(v.LockID, v.Run, v.LostSince)
	if loss == nil && d.Keeps(v.LockID, use.Order.number()) {
		return nil
	}
	if loss == nil { // the hold began after the use, and has outlived the loss of the one before
		loss = d.LossEvidence(v.LockID, v.Run, v.LostSince)
	}
	if loss == nil && v.Inherits {
		return nil
	}
	return lossOf(d, v.LockID, use.Order.number(), loss, "it does not hold what it used: "+
		"a worker without Lockstep ran the step, or what became of the hold is not known any longer")
}

// Extend renews the kept hold of a lock ID on a resource by its HoldTTL, for holders without a process. A
// hold that is missing stays missing.
//
// It returns the time after which to call it again: a third of the HoldTTL, and at most 5 min. If the hold is
// missing, the error is a *LostError; if another run has it, an *OtherRunError. Other errors are
// *InvalidError, and the database's.
func (l *Steps) Extend(ctx context.Context, lockID, run, resource string) (again time.Duration, err error) {
	if err := checkEnd("Extend", lockID, 0, []string{resource}); err != nil {
		return 0, err
	}
	d, err := l.verifyHold(ctx, rules.Verify{Resource: resource, LockID: lockID, Run: run})
	if err != nil {
		return 0, err
	}
	switch k := d.Kept(lockID); {
	case k == nil:
		return 0, lostError(d, rules.Caller{LockID: lockID, Run: run, Order: LastAttempt(math.MaxInt32).number()}, time.Time{})
	case k.TTL == 0:
		return extendEvery, nil
	default:
		return min(extendEvery, max(ttlOf(k)/3, minTTL/3)), nil
	}
}

// extendEvery is the interval of Extend for a hold that does not expire, and the longest one.
const extendEvery = 5 * time.Minute

// verifyHold renews the kept hold of a party, and returns the document. If another run holds, the error is an
// *OtherRunError.
func (l *Locker) verifyHold(ctx context.Context, op rules.Verify) (*rules.Document, error) {
	a, err := l.do(ctx, "refresh", Order{}, l.call(ctx, op, ending{}))
	switch {
	case err != nil:
		return nil, err
	case a.Outcome == rules.OtherRun:
		return a.After, &OtherRunError{Resource: op.Resource, LockID: op.LockID, Run: op.Run, Other: a.Note}
	}
	return a.After, nil
}
