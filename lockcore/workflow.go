package lockcore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
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
	op.Policy = l.cfg.policy()
	a, err := l.do(ctx, "refresh", Order{}, l.call(ctx, op, ending{}))
	switch {
	case err != nil:
		return nil, err
	case a.Outcome == rules.OtherRun:
		return a.After, &OtherRunError{Resource: op.Resource, LockID: op.LockID, Run: op.Run, Other: a.Note}
	}
	return a.After, nil
}

// Raise is the input of [Steps.Raise].
type Raise struct {
	// LockID is the workflow's, and Run the workflow run. Both are required. Requests whose Within is LockID are
	// barred like the workflow's own.
	LockID string
	Run    string
	// TakeOver is the run that Run may replace; see [StepRequest]. The bars of that run end.
	TakeOver string
	// Saga is the saga of the barred requests, and is required. A Saga "2" also matches "2/5", which is inside
	// it, and not "21".
	Saga string
	// Order is the greatest order that is barred, with a Schedule of 1 or more. LastAttempt bars all attempts
	// of a schedule, and of all before it.
	Order Order
	// Resources names the resources of the saga: one or more.
	Resources []string
}

// Raise bars the requests of one saga of a workflow run, and of all sagas inside it, up to an order, so that no
// step of them runs at the same time as a compensation, or after it. Running parts are cut off, including those
// of runs that Run has replaced: their next renewal returns a *LostError. Queued requests and claims end. Later
// requests up to that order are refused with a *SupersededError. The kept hold of the lock ID is renewed, and
// not released.
//
// Raise returns nil if no part that it has cut off can still run. If one may, because it has neither left
// nor expired, it returns a *BusyError for the resource on which such parts end first: Holders are these
// parts, and their ExpiresIn is the time after which each has ended at the latest. Repeat Raise with the
// same values to check again.
//
// If another run of the party holds a resource, the error is an *OtherRunError, and nothing is barred there.
// Other errors: *InvalidError, *UnknownOutcomeError, ErrClosed, ctx's cause, and the database's. All
// resources are tried; errors are joined. Raise may be repeated after any error.
//
// The first Raise draws a new fence for the hold of the lock ID on each resource: compensations that request the
// resource later write under it or a greater one, and after their first write [UpdateFenced] refuses writes of the
// barred steps. It does not refuse them while parts of the lock ID are running that the bar does not match, such
// as steps of an outer saga. A repeated Raise draws none.
//
// A hold remembers its latest 16 bars. When it ends before they do, they join the latest 64 that each resource
// remembers of parties without a hold. A bar ends when another run takes over, or with a release up to its order.
func (l *Steps) Raise(ctx context.Context, r Raise) error {
	if err := r.check(); err != nil {
		return err
	}
	results := make([]error, len(r.Resources))
	inParallel(len(r.Resources), func(i int) { results[i] = l.raiseOne(ctx, &r, r.Resources[i]) })
	var still []*BusyError
	var errs []error
	for _, err := range results {
		if busy := new(BusyError); errors.As(err, &busy) {
			still = append(still, busy)
		} else {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil || len(still) == 0 {
		return err
	}
	return slices.MinFunc(still, func(a, b *BusyError) int { return cmp.Compare(a.Holders[0].ExpiresIn, b.Holders[0].ExpiresIn) })
}

// raiseOne raises the bar on one resource.
func (l *Locker) raiseOne(ctx context.Context, r *Raise, resource string) error {
	op := rules.Raise{
		Policy: l.cfg.policy(), Resource: resource, LockID: r.LockID, Run: r.Run, TakeOver: r.TakeOver, Saga: r.Saga, Order: r.Order.number(),
	}
	a, err := l.do(ctx, "raise", r.Order, l.call(ctx, op, ending{}))
	switch {
	case err != nil:
		return err
	case a.Outcome == rules.OtherRun:
		return &OtherRunError{Resource: resource, LockID: r.LockID, Run: r.Run, Other: a.Note}
	case a.Outcome == rules.Busy:
		return stillRun(&op, a.After)
	}
	return nil
}

// stillRun returns a BusyError that names the parts that a bar has cut off and that may still run, in the
// order in which they expire.
func stillRun(op *rules.Raise, d *rules.Document) *BusyError {
	e := &BusyError{Resource: op.Resource, LockID: op.LockID, Note: "its earlier steps may still run", At: d.At, ofRun: true}
	for _, part := range op.StillRunning(d) {
		h := holderOf(d, part)
		h.State, h.Part = State(part.State), part.Part
		e.Holders = append(e.Holders, h)
	}
	slices.SortFunc(e.Holders, func(a, b Holder) int { return cmp.Compare(a.ExpiresIn, b.ExpiresIn) })
	e.Blocking, e.RetryIn = len(e.Holders), e.Holders[len(e.Holders)-1].ExpiresIn
	e.Holders = slices.Clone(e.Holders[:min(mostHolders, len(e.Holders))])
	return e
}

func (r *Raise) check() error {
	return cmp.Or(
		checkText("Raise.LockID", r.LockID, 1, maxLockID),
		checkText("Raise.Run", r.Run, 1, maxName),
		checkText("Raise.TakeOver", r.TakeOver, 0, maxName),
		refuse(r.TakeOver == r.Run, "Raise.TakeOver", quote(r.TakeOver), "another run than Raise.Run"),
		checkText("Raise.Saga", r.Saga, 1, maxName),
		checkRange("Raise.Order.Schedule", int(r.Order.Schedule), 1, math.MaxInt32),
		refuse(len(r.Resources) == 0, "len(Raise.Resources)", "0", "1 or more"),
		checkNames("Raise.Resources", r.Resources, ""),
	)
}
