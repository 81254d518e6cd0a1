package lockcore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// Leave is [Session.Leave] for leases that another process has stored or sent. A lease that has already ended is
// not an error. All are tried; errors are joined.
func (l *Locker) Leave(ctx context.Context, leases ...Lease) error {
	return l.leaveAll(ctx, leases, leaving{})
}

// LeaveWithin is a [Session.Leave] that may be delayed. It stops the renewal at once. The leave is sent after d, or
// earlier, together with the next command of this Locker for the resource. It is sent at once if requests are
// known to wait for the resource. Close waits for it.
func (l *Steps) LeaveWithin(ctx context.Context, d time.Duration, s *Session) error {
	defer l.life.calls.add()()
	return l.leaveAll(ctx, s.end(ErrEnded), leaving{within: d})
}

// undo takes back what a request got, or may have got, even if ctx has ended. What cannot be taken back now
// is with the next write of the document. A lease without an ID leaves instead.
func (l *Locker) undo(ctx context.Context, leases ...Lease) {
	ctx, cancel := l.detached(ctx)
	defer cancel()
	_ = l.leaveAll(ctx, leases, leaving{undo: true}) // the cause is what the caller must see
}

// leaving selects how leaves are carried out: to undo a request, even if ctx ends; or with a delay of up to within.
type leaving struct {
	undo   bool
	within time.Duration
}

// leaveAll carries out leaves: several resources in one command, unless they may be delayed.
func (l *Locker) leaveAll(ctx context.Context, leases []Lease, how leaving) error {
	if len(leases) == 0 {
		return nil
	}
	switch {
	case l.life.closed.Err() != nil:
		return ErrClosed
	case ctx.Err() != nil:
		return fmt.Errorf("lockstep: leave of %q was not sent: %w", leases[0].Resource, context.Cause(ctx))
	}
	errs := make([]error, len(leases))
	calls, spans := make([]*update.Call, 0, len(leases)), make([]operation, len(leases))
	var sent []int
	for i, lease := range leases {
		if errs[i] = checkEnd("lease", lease.LockID, 0, []string{lease.Resource}); errs[i] != nil {
			continue
		}
		_, spans[i] = l.tel.start(ctx, telemetry.SpanLeave, lease)
		op := l.leaveOp(lease, how)
		c := l.call(ctx, op, ending{})
		if how.undo || lease.Left == Forever { // the next acknowledged write of the document carries it out, even if this call gives up before
			c.Owed = true
		}
		calls, sent = append(calls, c), append(sent, i)
	}
	var answers []update.Answer
	if how.within > 0 {
		answers = l.lines.DoWithin(ctx, how.within, calls)
	} else {
		answers = l.lines.DoAll(ctx, calls)
	}
	for n, a := range answers {
		i := sent[n]
		if a.Err != nil {
			errs[i] = failure("leave", leases[i].Resource, leases[i].Order, a.Err, a.Unknown)
		}
		spans[i].end(&a, errs[i])
	}
	return errors.Join(errs...)
}

// leaveOp returns the operation that ends a lease.
func (l *Locker) leaveOp(lease Lease, how leaving) rules.Op {
	if how.undo && lease.id != "" {
		return rules.TakeBack{Resource: lease.Resource, Caller: lease.caller(), Call: lease.id}
	}
	return rules.Leave{
		Resource: lease.Resource, Caller: lease.caller(), Keep: lease.waitTTL > 0, HoldTTL: millis(lease.waitTTL),
	}
}

// end carries out a call that ends something, with a span of that name.
func (l *Locker) end(ctx context.Context, name string, of Lease, why ending, c *update.Call) (update.Answer, error) {
	_, span := l.tel.start(ctx, name, of)
	a, err := l.do(ctx, strings.TrimPrefix(name, "lock."), of.Order, c)
	why.on(span)
	span.end(&a, err)
	return a, err
}

// Release is the input of [Steps.Release].
type Release struct {
	// LockID is the lock ID whose holds, claims and queued requests end.
	LockID string
	// Run, if set, restricts the release to entries of this run. Defaults to "": all.
	Run string
	// Resources are 1 to 100 names.
	Resources []string
	// FirstFence names the hold that ends, as in its leases and in Status, on the only resource. Later
	// holds and queued requests stay. With Force it also names a hold that was released before, whose
	// parts drain. Defaults to 0: Order, which is then required, decides what ends.
	FirstFence int64
	// Order is the order up to which everything ends; later requests stay. It is for requests with their
	// own orders: with a Schedule of 1 or more, or LastAttempt. With FirstFence it is the order of
	// Leaving.
	Order Order
	// Leaving names a part whose request with exactly this Order, which is required, is known to have
	// stopped, so that it need not drain. Earlier requests of the part may still trust their leases.
	// Defaults to nil: no part is known to have stopped.
	Leaving *string
	// Reason explains a release by another than the holder, such as "its workflow is closed": at most
	// 512 bytes. Spans record it. Defaults to none: the holder releases.
	Reason string
	// Force, with FirstFence, is for a lock ID that does not end its hold itself. Its next renewal or
	// step gets a *LostError with the Reason, which is required. It excludes Run and Order.
	Force bool
	// Now, with Force, does not let parts drain that may still trust their leases. It is for a holder
	// that is known to be dead: if it lives, it works at the same time as the next holder. Defaults to
	// false: such parts exclude others until they leave or expire.
	Now bool
	// owed is set if the release must be carried out in the background if the call fails: a part of the hold never expires.
	owed bool
	// committed is set by ReleaseCommitted.
	committed bool
}

// Release ends one hold of a lock ID, or everything up to an order that it holds and requested on the
// resources. A part that may still trust its lease drains: it excludes others until it leaves or expires,
// as Status reports. Releasing what is not held is not an error. All resources are tried; errors are
// joined. It may be repeated, and then ends nothing that was granted since.
func (l *Steps) Release(ctx context.Context, r Release) error {
	if err := r.check(); err != nil {
		return err
	}
	errs := make([]error, len(r.Resources))
	inParallel(len(r.Resources), func(i int) { _, errs[i] = l.release(ctx, &r, r.Resources[i]) })
	return errors.Join(errs...)
}

// ReleaseCommitted is [Steps.Release] for a saga that has committed without asking whether it still held what it
// had used. It also returns the losses that the saga did not notice: those up to Order of which there is evidence,
// and which it has not outlived by acquiring the resource again. They are not an error: the release is carried out.
// [Steps.Missed] lists them for 24 hours, and the span of ctx gets an event for each. A release that is repeated
// with the same Order returns them again.
//
// Run and Order are required. FirstFence and Force are refused.
func (l *Steps) ReleaseCommitted(ctx context.Context, r Release) (missed []LostError, err error) {
	err = cmp.Or(
		r.check(),
		checkText("Release.Run", r.Run, 1, maxName),
		refuse(r.FirstFence != 0, "Release.FirstFence", fmt.Sprint(r.FirstFence), "0: a saga that has committed releases up to an Order"),
	)
	if err != nil {
		return nil, err
	}
	r.committed = true
	found, errs := make([][]LostError, len(r.Resources)), make([]error, len(r.Resources))
	inParallel(len(r.Resources), func(i int) { found[i], errs[i] = l.releaseCommitted(ctx, &r, r.Resources[i]) })
	return slices.Concat(found...), errors.Join(errs...)
}

// releaseCommitted carries out a release on one resource, and returns the losses that it finds.
func (l *Locker) releaseCommitted(ctx context.Context, r *Release, resource string) (missed []LostError, err error) {
	a, err := l.release(ctx, r, resource)
	if err != nil {
		return nil, err
	}
	for _, m := range a.After.Missed {
		if m.LockID != r.LockID || m.Run != r.Run || m.UpTo != r.Order.number() {
			continue
		}
		lost := LostError{Resource: resource, LockID: m.LockID, Order: orderOf(m.Order), By: m.By, Reason: m.Reason}
		if m.ReleasedAt.Equal(a.After.At) { // by this write
			l.tel.count(ctx, l.tel.losses, resource)
			addLostEvent(ctx, &lost)
		}
		missed = append(missed, lost)
	}
	return missed, nil
}

// Revoke ends a hold by force. Status reports the lock ID and the first fence that name it. The holder's next
// renewal returns a *LostError with the reason, which has 1 to 512 bytes. Until the holder leaves or its lease
// ends, others stay locked out. With now they do not: set it only if the holder is known to be dead. It is not
// an error if the hold does not exist.
func (l *Locker) Revoke(ctx context.Context, resource, lockID string, firstFence int64, reason string, now bool) error {
	return l.Steps().Release(ctx, Release{LockID: lockID, Resources: []string{resource}, FirstFence: firstFence, Force: true, Now: now, Reason: reason})
}

// release carries out a release on one resource.
func (l *Locker) release(ctx context.Context, r *Release, resource string) (update.Answer, error) {
	op := rules.Release{
		Resource: resource, LockID: r.LockID, Run: r.Run, FirstFence: r.FirstFence, Order: r.Order.number(), Leaving: r.Leaving,
		Force: r.Force, Now: r.Now, Committed: r.committed,
	}
	if r.Force {
		op.Reason = r.Reason
	}
	c := l.call(ctx, op, r.ending())
	c.Owed = r.owed
	return l.end(ctx, telemetry.SpanRelease, Lease{Resource: resource, LockID: r.LockID, Order: r.Order}, r.ending(), c)
}

// releaseHold ends the hold of a lease. If the hold is missing and was not released, it returns a *LostError if there is
// evidence of the loss, or evidence may have been dropped since the hold began.
func (l *Locker) releaseHold(ctx context.Context, lease Lease) error {
	r := Release{
		LockID: lease.LockID, Run: lease.Run, Resources: []string{lease.Resource}, FirstFence: lease.FirstFence, Order: lease.Order, Leaving: &lease.Part,
		owed: lease.Left == Forever,
	}
	if err := r.check(); err != nil {
		return err
	}
	a, err := l.release(ctx, &r, lease.Resource)
	if err != nil {
		return err
	}
	part := a.After.LostHold(lease.LockID, lease.FirstFence) // even if other parts of the hold were released
	if !part && (len(a.Released()) > 0 || !a.After.LostBefore(lease.LockID, lease.FirstFence, lease.granted)) {
		return nil
	}
	e := a.After.LossEvidence(lease.LockID, lease.Run, time.Time{})
	return lossOf(a.After, lease.LockID, lease.Order.number(), e, "what became of it is not known any longer")
}

func (r *Release) check() error {
	leaving, least := "", 0
	if r.Leaving != nil {
		leaving = *r.Leaving
	}
	if r.Force {
		least = 1
	}
	return cmp.Or(
		checkEnd("Release", r.LockID, r.FirstFence, r.Resources),
		refuse(r.Leaving != nil && r.Order == (Order{}), "Release.Leaving", quote(leaving),
			"nil without Release.Order, which says which request of the part"),
		refuse(r.FirstFence == 0 && r.Order.Schedule == 0 && r.Order != LastAttempt(0), "Release.Order", r.Order.String(),
			"one with a Schedule of 1 or more, or LastAttempt; or Release.FirstFence, which names the hold of a plain request"),
		checkText("Release.Reason", r.Reason, least, maxName),
		refuse(r.Force && (r.FirstFence == 0 || r.Run != "" || r.Order != (Order{})), "Release.Force", "true",
			"false without Release.FirstFence, and with Release.Run or Release.Order"),
		refuse(r.Now && !r.Force, "Release.Now", "true", "false without Release.Force"),
		checkText("Release.Run", r.Run, 0, maxName),
		checkRange("Release.Order.Schedule", int(r.Order.Schedule), 0, math.MaxInt32),
	)
}

// ending returns why a release ends holds: by their holder, by force, or because their holder has ended.
func (r *Release) ending() ending {
	switch {
	case r.Force:
		return ending{outcome: telemetry.OutcomeRevoked, reason: r.Reason}
	case r.Reason != "":
		return ending{outcome: telemetry.OutcomeOrphaned, reason: r.Reason}
	}
	return ending{}
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
		Resource: resource, LockID: r.LockID, Run: r.Run, TakeOver: r.TakeOver, Saga: r.Saga, Order: r.Order.number(),
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

// LeaveQueue withdraws the queued request and the claim that a lease names, for callers who do not know whether the
// request still waits. A part that has confirmed its claim stays. ended is false if the request was neither in the queue
// nor a claim, which is not an error: it may have become a hold.
func (l *Steps) LeaveQueue(ctx context.Context, lease Lease) (ended bool, err error) {
	if err := checkEnd("lease", lease.LockID, 0, []string{lease.Resource}); err != nil {
		return false, err
	}
	op := rules.Leave{Resource: lease.Resource, Caller: lease.caller(), QueueOnly: true}
	a, err := l.end(ctx, telemetry.SpanLeave, lease, ending{}, l.call(ctx, op, ending{}))
	if err != nil {
		return false, err
	}
	of := func(e rules.Entry) bool {
		return e.LockID == lease.LockID && (e.Part == lease.Part || e.Order == op.Order) // what it keeps has no part
	}
	withdrawn := func(e rules.Entry) bool { return of(e) && e.Part == lease.Part }
	return slices.ContainsFunc(a.Withdrawn(a.After.At), withdrawn) || endedBefore(&a, of), nil
}

// End is Release, on exactly one resource, for a caller that reports what it did. ended is false if nothing that the
// release names still existed. With Force and Now, ending the parts of the hold that drain counts.
func (l *Steps) End(ctx context.Context, r Release) (ended bool, err error) {
	if err := cmp.Or(r.check(), checkRange("len(Release.Resources)", len(r.Resources), 1, 1)); err != nil {
		return false, err
	}
	a, err := l.release(ctx, &r, r.Resources[0])
	if err != nil {
		return false, err
	}
	of := func(e rules.Entry) bool {
		return e.LockID == r.LockID && (r.FirstFence == 0 || e.FirstFence == r.FirstFence)
	}
	forced := func(e rules.Evidence) bool { // by this call, or by an earlier attempt of it
		return r.Force && e.LockID == r.LockID && e.Fence == r.FirstFence && e.Reason == r.Reason && (a.Lost || e.At.Equal(a.After.At))
	}
	return slices.ContainsFunc(a.Released(), of) || slices.ContainsFunc(a.Withdrawn(a.After.At), of) ||
		slices.ContainsFunc(a.After.Forced, forced) || !r.Force && endedBefore(&a, of), nil
}

// endedBefore reports whether an earlier attempt of a call, whose answer was lost, may have ended the entries: none of
// them holds. Their parts may drain.
func endedBefore(a *update.Answer, of func(e rules.Entry) bool) bool {
	return a.Lost && !slices.ContainsFunc(a.After.Entries, func(e rules.Entry) bool { return of(e) && e.Holds() })
}
