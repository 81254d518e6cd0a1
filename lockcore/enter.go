package lockcore

import (
	"cmp"
	"context"
	"errors"
	"hash/crc32"
	"slices"
	"sync/atomic"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
)

// Enter makes one attempt, and returns leases as values: only Renew renews them, and only Leave, Release or
// expiry ends them. They are in the order of the resources' names.
//
// If a resource is busy, the error is a *BusyError, nothing is taken, and the request, which must have an
// Order, waits in the queue of that resource, until it is repeated with a greater order, left or released.
// It is passed over if it is not refreshed for 4 min, or as Recheck sets, and leaves the queue after 24 h.
// With Keep, Enter keeps the holds that it got before. With HoldOnly, the write that frees the resource
// grants the request the hold.
//
// With MaxWait, Enter first waits itself if a grant is near: if recent holds predict it within half of
// MaxWait, or within MaxWait and 500 ms; if holds last for less than 500 ms on average; and if not more
// waiters are ahead than may wait so (see LimitInlineWaits). If nothing is known of recent holds, it
// waits if the request is first in the queue. The wait lasts while the request's position improves at
// least every 500 ms or so, up to MaxWait, which is shared by all resources of the request, and up to a
// quarter of its TTL if there are several. If ctx ends during the wait, the error is the *BusyError, and
// the request stays queued.
//
// Other errors: *InvalidError and *LayoutError (nothing was sent), *LostError, *SupersededError,
// *DeadlockError (nothing was taken), *UnknownOutcomeError (repeat the request with a greater Order), and
// the database's. An *OtherRunError comes with the leases on the resources before that one: the caller
// repeats the request with TakeOver, and the same Call and Order, or leaves them.
//
// If ctx ends, the error matches ctx's. The caller must then repeat the request with a greater Order, or
// leave or release it.
func (l *Steps) Enter(ctx context.Context, req StepRequest) ([]Lease, error) {
	return l.enterOpen(ctx, req, true)
}

// TryEnter is an Enter that does not queue: after a *BusyError nothing was taken. If ctx ends, it releases
// what it may have taken.
func (l *Steps) TryEnter(ctx context.Context, req StepRequest) ([]Lease, error) {
	return l.enterOpen(ctx, req, false)
}

// enterOpen calls enter, unless the Locker is closed.
func (l *Locker) enterOpen(ctx context.Context, req StepRequest, queue bool) ([]Lease, error) {
	ctx, done, err := l.life.call(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	leases, err := l.enter(ctx, req, queue)
	if req.HoldOnly {
		for i := range leases {
			leases[i].id = "" // the hold's ID: a renewal of a part must not extend it
		}
	}
	return leases, endedByClose(ctx, err)
}

func (l *Locker) enter(ctx context.Context, req StepRequest, queue bool) ([]Lease, error) {
	req, err := l.complete(req, !queue)
	if err != nil {
		return nil, err
	}
	ops := make([]rules.Acquire, len(req.Resources))
	for i, res := range req.Resources {
		ops[i] = l.acquireOp(&req, res)
		ops[i].Queue, ops[i].WaiterTTL, ops[i].NextRefresh = queue, parkedTTL.Milliseconds(), parkedRefresh.Milliseconds()
	}
	if len(ops) > 1 && req.TTL > 0 {
		req.MaxWait = min(req.MaxWait, req.TTL/4) // nothing renews what it has taken before
	}
	leases, unknown, err := l.enterFirst(ctx, &req, ops)
	if err != nil {
		return nil, err
	}
	for i := len(leases); i < len(ops); i++ {
		lease, err := l.enterOne(ctx, &req, ops[i])
		if err != nil && unknown { // resources after this one are not kept while the request waits
			first := i
			if queue {
				first++
			}
			l.undo(ctx, req.leasesFrom(first, true)...)
		}
		switch {
		case errors.Is(err, ErrOtherRun):
			return leases, err
		case err != nil && queue:
			l.undoQueued(ctx, &req, req.Resources[i], leases, err)
			return nil, err
		case err != nil:
			l.undo(ctx, leases...)
			return nil, err
		}
		leases = append(leases, lease)
	}
	return leases, nil
}

// enterFirst acquires as many of several resources as possible with one command, as enterTogether does. If it
// returns an error, one of them was refused, and nothing is taken.
func (l *Locker) enterFirst(ctx context.Context, req *StepRequest, ops []rules.Acquire) (leases []Lease, unknown bool, err error) {
	for granted, failed, reserved := 0, 0, 0; ; {
		leases, refused, unknown, unseen := l.enterTogether(ctx, req, ops)
		switch {
		case refused != nil && granted < lookAgain:
			if err := l.refusedAlone(ctx, req, ops[refused.Index], refused); err != nil {
				return nil, false, err
			}
			granted++
		case errors.Is(unseen, update.ErrReserved) && reserved < lookReserved && clock.Sleep(ctx, l.clock, lookPause/2+l.clock.Jitter(lookPause)):
			reserved++
		case unseen != nil && !errors.Is(unseen, update.ErrReserved) && failed < lookAgain && clock.Sleep(ctx, l.clock, lookPause):
			failed++
		default:
			return leases, unknown, nil
		}
	}
}

// enterTogether acquires as many of several resources as possible with one command, from the first on. With
// unknown, it may have acquired more. That is not undone: the request is repeated, and must not lose its
// position because an answer was lost.
//
// If one of them would be refused, it writes nothing, and returns the refusal. If it cannot look at all of them, it
// writes nothing, and unseen holds the reason.
func (l *Locker) enterTogether(
	ctx context.Context, req *StepRequest, ops []rules.Acquire,
) (leases []Lease, refused *update.Refusal, unknown bool, unseen error) {
	if len(ops) < 2 || ctx.Err() != nil {
		return nil, nil, false, ctx.Err()
	}
	calls, spans := make([]*update.Call, len(ops)), make([]operation, len(ops))
	for i := range ops {
		calls[i], spans[i] = l.acquireCall(ctx, req, &ops[i])
	}
	granted := func(a update.Answer) bool {
		return a.Outcome == rules.Granted || a.Outcome == rules.Joined || a.Outcome == rules.Again
	}
	answers, refused, unseen := l.lines.DoWhile(ctx, calls, granted)
	for i, a := range answers {
		if a.Err != nil || !granted(a) {
			break
		}
		lease, _ := l.finishAcquire(ctx, req, &ops[i], spans[i], a, nil, nil)
		leases = append(leases, lease)
	}
	unknown = ctx.Err() != nil || slices.ContainsFunc(calls, (*update.Call).Unknown)
	return leases, refused, unknown, unseen
}

const (
	// lookAgain bounds the looks at several resources of which one was refused, and then granted after all, and
	// those after a read that failed.
	lookAgain = 3
	// lookPause is the pause before another look, and lookReserved bounds the looks while a resource is reserved.
	lookPause    = 25 * time.Millisecond
	lookReserved = int(rules.LongestReservation/lookPause) + 10
)

// refusedAlone returns the error of a request that would be refused one of several resources. If only a write can
// show that, it asks for that resource alone, and does not queue. It returns nil if the resource was granted
// after all, which it takes back.
func (l *Locker) refusedAlone(ctx context.Context, req *StepRequest, op rules.Acquire, refused *update.Refusal) error {
	if refused.ReadOnly || refused.Err != nil {
		var err error
		if refused.Err != nil {
			err = failure("acquire", op.Resource, req.Order, refused.Err, false)
		}
		_, span := l.acquireCall(ctx, req, &op)
		_, err = l.finishAcquire(ctx, req, &op, span, refused.Answer, err, nil)
		return err
	}
	queue := op.Queue
	op.Queue = false
	lease, err := l.enterOne(ctx, req, op)
	switch {
	case err == nil:
		l.undo(ctx, lease)
	case queue && errors.Is(err, ErrBusy): // it may queue now
		return nil
	case errors.Is(err, ErrDeadlock): // the victim has read its tombstone
		l.undoQueued(ctx, req, Resource{Name: op.Resource}, nil, err)
	}
	return err
}

// enterOne asks for one resource, and waits if the request has queued and a grant is near.
func (l *Locker) enterOne(ctx context.Context, req *StepRequest, op rules.Acquire) (Lease, error) {
	if op.Queue && req.MaxWait > 0 {
		return l.enterInline(ctx, req, op)
	}
	c, span := l.acquireCall(ctx, req, &op)
	if !op.Queue {
		c.TakeBack = l.undoCall(ctx, &op)
	}
	a, err := l.do(ctx, "acquire", req.Order, c)
	return l.finishAcquire(ctx, req, &op, span, a, err, nil)
}

// undoQueued ends the leases of a request that did not get a resource. If it waits there, its position in the
// queue and what it keeps stay, since its caller repeats it, and so does everything after an unknown outcome.
// Otherwise it is taken back. The victim of a deadlock leaves: it has read its tombstone.
func (l *Locker) undoQueued(ctx context.Context, req *StepRequest, at Resource, leases []Lease, cause error) {
	waits := errors.Is(cause, ErrBusy) && !errors.Is(cause, ErrQueueFull)
	switch {
	case errors.Is(cause, ErrUnknownOutcome):
		return
	case waits && req.Keep:
		for i := range leases {
			if leases[i].id = ""; req.keepsWhileWaiting() { // its part leaves, and is not taken back
				leases[i].waitTTL = req.HoldTTL
			}
		}
	case errors.Is(cause, ErrDeadlock):
		victim := req.leaseOn(at.Name)
		victim.id = "" // the tombstone may belong to an earlier request of the part
		leases = append(leases, victim)
	}
	l.undo(ctx, leases...)
}

// enterInline asks for one resource, and waits if a grant is near. The request stays in the queue.
//
// The prediction may be too early, since hold times do not include the time in which a waiter confirms its
// grant. So the wait exceeds pace.PositionWait while the position in the queue improves: a request that
// gave up would be repeated by its workflow, and block those behind it until then. The rest of MaxWait
// is for the resources after this one.
func (l *Locker) enterInline(ctx context.Context, req *StepRequest, op rules.Acquire) (Lease, error) {
	if ctx.Err() != nil {
		return Lease{}, failure("acquire", op.Resource, req.Order, context.Cause(ctx), false)
	}
	w := l.enqueue(ctx, req, op, true)
	wait, stalled := l.clock.WithTimeout(ctx, req.MaxWait)
	defer stalled()
	began := time.Now()
	lease, err := w.firstAnswer(ctx)
	if busy := new(BusyError); errors.As(err, &busy) && !busy.Full && l.grantIsNear(busy, req.MaxWait) && l.inline.begin() {
		defer l.inline.end()
		l.watch.whenStalled(w.waiter, stalled)
		lease, err = w.await(wait, nil)
		req.MaxWait = max(0, req.MaxWait-time.Since(began))
	}
	if err != nil && w.ticket.InFlight() {
		// A write that may grant the request is on its way. An unused grant would keep others out until its TTL ends.
		answered, cancel := l.clock.WithTimeout(ctx, pace.PositionWait)
		if granted, answer := w.firstAnswer(answered); answered.Err() == nil {
			lease, err = granted, answer
		}
		cancel()
	}
	if err == nil {
		w.stop()
		return lease, nil
	}
	if lease, granted, unknown := w.stop(); granted {
		return lease, nil
	} else if unknown && !errors.Is(err, ErrUnknownOutcome) {
		err = failure("acquire", op.Resource, req.Order, err, true)
	}
	return Lease{}, err
}

// LimitInlineWaits bounds the requests of Enter that may wait at the same time for a grant that is near, each
// in a slot of a worker, to n if that is less than the current bound, which is 25 at first. With 0 none
// waits.
func (l *Steps) LimitInlineWaits(n int) {
	for {
		most := l.inline.most.Load()
		if int64(max(n, 0)) >= most || l.inline.most.CompareAndSwap(most, int64(max(n, 0))) {
			return
		}
	}
}

const inlineWaits = 25

// inline counts and bounds the requests of Enter that wait for a grant that is near.
type inline struct{ waits, most atomic.Int64 }

// begin reports whether one more request may wait. If so, it must call end.
func (i *inline) begin() bool {
	if i.waits.Add(1) > i.most.Load() {
		i.waits.Add(-1)
		return false
	}
	return true
}

func (i *inline) end() { i.waits.Add(-1) }

// room returns the number of requests that may begin to wait.
func (i *inline) room() int { return int(i.most.Load() - i.waits.Load()) }

// grantIsNear reports whether a request that has queued should wait for its grant. Without a prediction, it
// should if it is first in the queue. Otherwise the grant must be predicted within half of the time, which
// leaves room for errors of the prediction, or within pace.PositionWait. In addition holds must be short
// enough that the position improves in time, and all waiters ahead must be able to wait inline too,
// because parked ones take longer than predicted.
func (l *Locker) grantIsNear(busy *BusyError, wait time.Duration) bool {
	switch {
	case busy.grantIn == 0:
		return busy.Position == 1
	case busy.Position < 1 || int64(busy.Position) > l.inline.most.Load():
		return false
	}
	return busy.grantIn/time.Duration(busy.Position) < pace.PositionWait && busy.grantIn < max(wait/2, min(wait, pace.PositionWait))
}

// holdTimes has the average times for which resources were held, from the holds that this Locker has
// ended: a moving average with a weight of an eighth. It predicts grants, so that a request waits in its
// slot if a grant is near, and parked requests are woken ahead of their grant. The estimate affects
// latency only, so resources may share an average, by a hash of their names.
type holdTimes [1 << 12]atomic.Int64 // milliseconds; 0 is unknown

func (h *holdTimes) of(resource string) *atomic.Int64 {
	return &h[crc32.ChecksumIEEE([]byte(resource))%uint32(len(h))]
}

// learn adds the hold that an operation has ended, and reports whether there was one.
func (h *holdTimes) learn(a *update.Answer) bool {
	ended := a.HoldsEnded(a.After)
	if len(ended) == 0 {
		return false
	}
	took, average := max(1, a.After.At.Sub(*ended[0].CreatedAt).Milliseconds()), h.of(a.After.ID)
	if old := average.Load(); old > 0 {
		took = max(1, (7*old+took)/8)
	}
	average.Store(took)
	return true
}

// predict returns the time until a request at a position of the queue is granted the resource; 0 if
// nothing is known.
func (h *holdTimes) predict(resource string, position int, limit int64) time.Duration {
	return afterHolds(time.Duration(h.of(resource).Load())*time.Millisecond, position, limit)
}

// expect is like predict for the pauses between polls. Until a hold has been observed, it expects short ones, so
// that many that begin to wait at once do not find each grant a long pause late.
func (h *holdTimes) expect(resource string, position int, limit int64) time.Duration {
	return cmp.Or(h.predict(resource, position, limit), afterHolds(pace.UnknownHold, position, limit))
}

// afterHolds returns the time until a position of the queue is granted, if each hold lasts equally long.
func afterHolds(each time.Duration, position int, limit int64) time.Duration {
	atOnce := max(1, int(min(limit, rules.Crowd)))
	return each * time.Duration((position+atOnce-1)/atOnce)
}
