package party

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Raise is the input of [Locker.Raise]: it bars the requests of one saga of a workflow run, up to an order.
type Raise struct {
	// LockID is the workflow's, and Run the run label, which is required. Requests whose Within is LockID
	// are barred like its own.
	LockID string
	Run    string
	// TakeOver is the label that Run may replace; see [Request]. The bars of that run end.
	TakeOver string
	// Saga is that of the requests, and is required: requests of other sagas are not barred.
	Saga string
	// Order is the greatest order that is barred. LastAttempt bars all attempts of a schedule, and of all
	// before it. The Schedule is 1 or more.
	Order Order
	// Resources names the resources of the saga: any number of names, and at least one.
	Resources []string
}

// Raise bars what a saga has requested so far, so that no step of the saga runs at the same time as a
// compensation, or after it. Parts that run are cut off, also those of runs that Run has replaced: their next renewal returns a *LostError. Queued requests and
// claims end. Requests that arrive later, with an order up to the bar's, are refused with a
// *SupersededError. What the lock ID keeps is renewed, and not released.
//
// Raise returns nil if no part that it has cut off can still run. As long as one may, because it has
// neither left nor expired, it returns a *BusyError of the resource on which the first such part ends:
// Holders are those parts there, and ExpiresIn says when each has ended at the latest. Calling Raise again
// with the same values asks again.
//
// If another run speaks for the party on a resource, Raise returns an *OtherRunError, and nothing is
// barred there. Other errors: *InvalidError, *UnknownOutcomeError, ErrClosed, ctx's cause, and the
// database's. All resources are tried; errors are joined. Raise may be repeated after any error.
//
// A resource remembers its latest 64 bars. The bar ends with the take-over by another run.
func (l *Locker) Raise(ctx context.Context, r Raise) error {
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
		Policy: l.cfg.policy(), Resource: resource, LockID: r.LockID, Label: r.Run, TakeOver: r.TakeOver, Saga: r.Saga, Order: r.Order.number(),
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

// stillRun names the parts that a bar has cut off and that may still run, the first that ends first.
func stillRun(op *rules.Raise, d *rules.Document) *BusyError {
	e := &BusyError{Resource: op.Resource, LockID: op.LockID, Note: "its earlier steps may still run"}
	for _, part := range op.StillRunning(d) {
		e.Holders = append(e.Holders, holders(&rules.Document{ID: d.ID, At: d.At, Entries: []rules.Entry{*part}})...)
	}
	slices.SortFunc(e.Holders, func(a, b Holder) int { return cmp.Compare(a.ExpiresIn, b.ExpiresIn) })
	e.RetryIn = e.Holders[len(e.Holders)-1].ExpiresIn
	return e
}
