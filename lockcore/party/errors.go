package party

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/update"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Conditions. Match them with [errors.Is]; the types below carry the facts.
var (
	// ErrBusy: others hold the resource, or are ahead in its queue. Nothing was taken.
	ErrBusy = errors.New("lockstep: busy")
	// ErrLost: the lock ID, or the part, no longer holds what it held.
	ErrLost = errors.New("lockstep: lost")
	// ErrSuperseded: a later request of the same part, or a release, came first. Nothing changed.
	ErrSuperseded = errors.New("lockstep: superseded")
	// ErrOtherRun: another run of the workflow speaks for its lock ID. Nothing was taken.
	ErrOtherRun = errors.New("lockstep: another run holds")
	// ErrQueueFull: the queue has Config.MaxWaiters, or the resource's document has 12 MB. Nothing was
	// taken. It is an ErrBusy too.
	ErrQueueFull = errors.New("lockstep: queue full")
	// ErrDeadlock: the request was taken out of the queue to end a deadlock.
	ErrDeadlock = errors.New("lockstep: deadlock")
	// ErrInvalid: an argument is never accepted. The database was not asked.
	ErrInvalid = errors.New("lockstep: invalid")
	// ErrUnknownOutcome: the operation may have taken effect. A request that queues may be repeated
	// with a greater order; what any other may have taken is given back in the background. All other
	// operations may be repeated as they are.
	ErrUnknownOutcome = errors.New("lockstep: outcome unknown")
)

// BusyError says who is in the way. It matches ErrBusy.
type BusyError struct {
	Resource, LockID string
	// Position is this request's place among all that wait in the queue, from 1; 0 if it did not
	// queue. A waiter that is passed over keeps its place.
	Position int
	// Holders are those that are in its way.
	Holders []Holder
	// RetryIn is the time until all of them could be displaced if nothing is heard of them; Forever if
	// one does not end by itself.
	RetryIn time.Duration
	// Waiting is how many wait in the queue.
	Waiting int
	// Full says that there was no room in the queue; the error matches ErrQueueFull too.
	Full bool
	// Note is what else is known of the wait, for people; empty if nothing is.
	Note string
	// NotHeldSince is from when on, by the server's clock, the lock ID, or the request's run if it names
	// one, is known not to have held the resource in a mode that covers the request's. It is zero if
	// it holds so, or may have in the last day.
	NotHeldSince time.Time
	// turn is when it can expect to be let in; 0 if nothing is known.
	turn time.Duration
}

// mostNamed is how many holders the text of a BusyError names. A semaphore may have thousands.
const mostNamed = 3

func (e *BusyError) Error() string {
	place := ""
	switch {
	case e.Full:
		place = fmt.Sprintf(", and its queue is full (%d wait)", e.Waiting)
	case e.Position > 0:
		place = fmt.Sprintf(" (place %d of %d in the queue)", e.Position, max(e.Waiting, e.Position))
	}
	who := []string{"others are ahead in the queue"}
	if len(e.Holders) > 0 {
		who = nil
	}
	for _, h := range e.Holders[:min(mostNamed, len(e.Holders))] {
		who = append(who, h.String())
	}
	if more := len(e.Holders) - mostNamed; more > 0 {
		who = append(who, fmt.Sprintf("and %d more", more))
	}
	if e.Note != "" {
		who = slices.Insert(who, 0, e.Note)
	}
	return fmt.Sprintf("lockstep: %q is busy for %q%s: %s", e.Resource, e.LockID, place, strings.Join(who, "; "))
}

// Is makes errors.Is(err, ErrBusy) true, and errors.Is(err, ErrQueueFull) if the queue was full.
func (e *BusyError) Is(target error) bool {
	return target == ErrBusy || (e.Full && target == ErrQueueFull)
}

// LostError says what was lost, and to whom if that is known. It matches ErrLost.
type LostError struct {
	Resource, LockID, Part string
	Order                  Order
	// By is the lock ID that was let in, empty if it is not known.
	By string
	// Reason is what a forced release gave as its reason, or how the loss was noticed.
	Reason string
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("lockstep: %q lost its lock on %q", e.LockID, e.Resource)
	if e.By != "" {
		s += fmt.Sprintf(" to %q", e.By)
	}
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// Is makes errors.Is(err, ErrLost) true.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// SupersededError says which request came too late, and what overtook it. It matches ErrSuperseded.
type SupersededError struct {
	Resource, LockID, Part string
	// Order is the request's, and By what overtook it.
	Order, By Order
	// Released says that it was a release; else it was a later request of the same part.
	Released bool
	// Reason is that of a forced release.
	Reason string
}

func (e *SupersededError) Error() string {
	what := "a later request of the same part"
	if e.By == e.Order {
		what = "another request of the same part"
	}
	if e.Released {
		what = "a release"
	}
	if e.Reason != "" {
		what += " (" + e.Reason + ")"
	}
	return fmt.Sprintf("lockstep: the request of %q (part %q, order %s) for %q came after %s with order %s",
		e.LockID, e.Part, e.Order, e.Resource, what, e.By)
}

// Is makes errors.Is(err, ErrSuperseded) true.
func (e *SupersededError) Is(target error) bool { return target == ErrSuperseded }

// DeadlockError says that a request had to give up its place, because it was in a circle of waits.
// It matches ErrDeadlock. What its owner holds stands: others go on when the owner has released it.
type DeadlockError struct {
	Resource, LockID, Part string
	Order                  Order
	// Cycle says who waited for whom, for people.
	Cycle string
	// NotHeldSince is as in [BusyError].
	NotHeldSince time.Time
}

func (e *DeadlockError) Error() string {
	return fmt.Sprintf("lockstep: %q gave up waiting for %q, since it was in a deadlock: %s", e.LockID, e.Resource, e.Cycle)
}

// Is makes errors.Is(err, ErrDeadlock) true.
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }

// InvalidError names what was refused. It matches ErrInvalid.
type InvalidError struct {
	// Field is the name of the field or argument, Value what was passed, shortened for display, and
	// Bound what would be accepted.
	Field, Value, Bound string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("lockstep: invalid %s %s: want %s", e.Field, e.Value, e.Bound)
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// UnknownOutcomeError wraps what the driver said. It matches ErrUnknownOutcome, and unwraps to the
// driver's error.
type UnknownOutcomeError struct {
	// Op is the operation that ran: "acquire", "refresh", "renew", "leave", "release", "raise" or
	// "deadlock", which ends one.
	Op       string
	Resource string
	// Order is the one to repeat the operation with.
	Order Order
	Err   error
}

func (e *UnknownOutcomeError) Error() string {
	return fmt.Sprintf("lockstep: %s of %q (order %s): outcome unknown: %v", e.Op, e.Resource, e.Order, e.Err)
}

// Is makes errors.Is(err, ErrUnknownOutcome) true.
func (e *UnknownOutcomeError) Is(target error) bool { return target == ErrUnknownOutcome }

// Unwrap returns the driver's error.
func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// LayoutError says that a collection is not in the layout of this version. CreateIndexes answers
// with it, and so does the first operation of a Locker. Nothing was written.
type LayoutError = rules.LayoutError

// OtherRunError says which run of a workflow speaks for its lock ID. It matches ErrOtherRun. If
// Temporal says that Run is the workflow's current run, the same request is asked again with
// Request.TakeOver set to Other. Else Run has ended, and its request with it.
type OtherRunError struct {
	Resource, LockID string
	// Run and Other are the labels of the run that asked, and of the one that speaks. Other is empty
	// if the lock ID was used without a run label.
	Run, Other string
}

func (e *OtherRunError) Error() string {
	return fmt.Sprintf("lockstep: run %q of %q asks for %q, and run %q speaks for it", e.Run, e.LockID, e.Resource, e.Other)
}

// Is makes errors.Is(err, ErrOtherRun) true.
func (e *OtherRunError) Is(target error) bool { return target == ErrOtherRun }

func deadlockError(op *rules.Acquire, d *rules.Document, verdict string) *DeadlockError {
	return &DeadlockError{
		Resource: op.Resource, LockID: op.LockID, Part: op.Part, Order: orderOf(op.Order), Cycle: strings.TrimPrefix(verdict, deadlockReason),
		NotHeldSince: notHeldSince(d, op),
	}
}

// notHeldSince is from when on a lock ID, or with a label its run, is known not to have held in a mode
// that covers the request. It is zero if it holds in such a mode, or if evidence says that it held. A
// release by the holder itself leaves no evidence. A shared hold was never exclusive, unless its
// Session made it weaker.
func notHeldSince(d *rules.Document, op *rules.Acquire) time.Time {
	held := func(e rules.Entry) bool {
		return e.LockID == op.LockID && e.State != rules.StateClaimed && (e.CutOff || rules.Covers(e.Mode, op.Mode))
	}
	if d.LossEvidence(op.LockID, op.Label) != nil || slices.ContainsFunc(d.Entries, held) {
		return time.Time{}
	}
	return d.EvidenceSince
}

func lostError(d *rules.Document, r rules.Request) *LostError {
	lost, known := lossIn(d, r.LockID, r.Order, "it does not hold any longer", r.Label)
	lost.Part = r.Part
	if by, ok := d.SupersededBy(r); ok && !known {
		lost.Reason = cmp.Or(by.Reason, "overtaken by order "+orderOf(by.Order).String())
	}
	return lost
}

// lossIn is the loss of a hold, as the evidence of one of the run labels tells it, if that is
// known.
func lossIn(d *rules.Document, lockID string, order int64, unknown string, labels ...string) (lost *LostError, known bool) {
	for _, label := range labels {
		if e := d.LossEvidence(lockID, label); e != nil {
			return &LostError{Resource: d.ID, LockID: lockID, Order: orderOf(order), By: e.By, Reason: e.Reason}, true
		}
	}
	return &LostError{Resource: d.ID, LockID: lockID, Order: orderOf(order), Reason: unknown}, false
}

func busy(op *rules.Acquire, a *update.Answer) *BusyError {
	e := busyBy(op, a.After)
	e.Position, e.Waiting, e.Full = int(a.Position), int(a.Length), a.Outcome == rules.Full
	return e
}

// busyBy names the holders in a document that are in the way of a request.
func busyBy(op *rules.Acquire, d *rules.Document) *BusyError {
	e := &BusyError{Resource: op.Resource, LockID: op.LockID, NotHeldSince: notHeldSince(d, op)}
	for _, h := range inTheWay(d, op.Party()) {
		e.Holders = append(e.Holders, h)
		e.RetryIn = max(e.RetryIn, h.ExpiresIn)
	}
	return e
}

// inTheWay lists the holders that keep a party out.
func inTheWay(d *rules.Document, p rules.Party) (way []Holder) {
	blocking := map[string]bool{}
	for i := range d.Entries {
		if e := &d.Entries[i]; e.InTheWay(p, d.At) {
			blocking[nameOf(e)] = true
		}
	}
	for _, h := range holders(d) {
		if blocking[h.LockID] && h.ExpiresIn > 0 {
			way = append(way, h)
		}
	}
	return way
}
