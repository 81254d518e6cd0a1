package lockcore

import (
	"cmp"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// answer turns the document that a request left into a lease or an error.
func answer(op *engine.Acquire, d *engine.Document, sent time.Time) (Lease, error) {
	switch d.Last.Outcome {
	case engine.Granted, engine.Joined, engine.Again:
		lease := leaseOf(d.Part(op.LockID, op.Part, op.Order), d, sent)
		lease.granted = d.At
		lease.Joined, lease.Bars, lease.began = d.Last.Outcome == engine.Joined, op.NewFence, true
		return lease, nil
	case engine.Lost:
		return Lease{}, lostError(d, op.LockID, op.Part, op.Order)
	case engine.Deadlock:
		return Lease{}, deadlockError(op, d.Last.Verdict)
	case engine.Overtaken:
		by, known := d.Overtaker(op.LockID, op.Part, op.Order)
		if !known { // answers leave out the queue, in which the later request waits
			by.Order = op.Order
		}
		if strings.HasPrefix(by.Reason, deadlockReason) { // it was told, and the answer was lost
			return Lease{}, deadlockError(op, by.Reason)
		}
		_, later := d.Later(op.LockID, op.Part, op.Order)
		return Lease{}, &SupersededError{
			Resource: op.Resource, LockID: op.LockID, Part: op.Part, Order: orderOf(op.Order), By: orderOf(by.Order), Released: known && !later,
			Reason: by.Reason,
		}
	default:
		return Lease{}, busy(op, d)
	}
}

func deadlockError(op *engine.Acquire, verdict string) *DeadlockError {
	cycle := strings.TrimPrefix(verdict, deadlockReason)
	return &DeadlockError{Resource: op.Resource, LockID: op.LockID, Part: op.Part, Order: orderOf(op.Order), Cycle: cycle}
}

// lostError says what is remembered of a hold that is gone.
func lostError(d *engine.Document, lockID, part string, order int64) *LostError {
	lost := &LostError{Resource: d.ID, LockID: lockID, Part: part, Order: orderOf(order), Reason: "it does not hold any more"}
	if e := d.EvictedRecord(lockID); e != nil {
		lost.By, lost.Reason = e.By, e.Reason
	} else if by, ok := d.Overtaker(lockID, part, order); ok {
		lost.Reason = "overtaken by order " + orderOf(by.Order).String()
		if by.Reason != "" {
			lost.Reason = by.Reason
		}
	}
	return lost
}

func leaseOf(p *engine.Entry, d *engine.Document, sent time.Time) Lease {
	lease := Lease{
		Resource: d.ID, LockID: p.LockID, Part: p.Part, Order: orderOf(p.Order), Mode: Mode(p.Mode), Fence: p.Fence,
		HoldFence: p.FirstFence, Left: remaining(p.ExpiresAt, d.At), forever: p.TTL == 0, ttl: time.Duration(p.TTL) * time.Millisecond,
	}
	stands := lease.Left
	if lease.forever {
		lease.ttl, stands = endlessTrust, endlessTrust
	}
	lease.validUntil = sent.Add(stands - lease.ttl/trustMargin)
	return lease
}

// endlessTrust is for how long a lease without end is trusted after it was confirmed, and renewed like others of this TTL.
const endlessTrust = 30 * time.Second

// trustMargin is the part of the TTL by which trust ends early: a tenth, for what the two clocks may
// differ in speed, and for work that is noticed late.
const trustMargin = 10

// busy says who is in the way of a request.
func busy(op *engine.Acquire, d *engine.Document) *BusyError {
	e := &BusyError{
		Resource: op.Resource, LockID: op.LockID, Position: int(d.Last.Position), Waiting: int(d.Last.Length),
		Full: d.Last.Outcome == engine.Full,
	}
	for _, h := range holders(d) {
		if h.LockID == op.LockID || h.ExpiresIn <= 0 || (engine.Compatible(string(h.Mode), op.Mode) && op.Limit == 0) {
			continue
		}
		e.Holders = append(e.Holders, h)
		e.RetryIn = max(e.RetryIn, h.ExpiresIn)
	}
	return e
}

// holders lists a document's holds, draining parts and claims, as others see them. A hold that has expired,
// and still stands, has nothing left.
func holders(d *engine.Document) []Holder {
	var out []Holder
	at := map[string]int{} // holds by lock ID
	for _, e := range d.Held {
		h := Holder{
			LockID: e.LockID, Owner: cmp.Or(e.Owner, e.LockID), Host: e.Host, Mode: Mode(e.Mode), Fence: e.Fence, Claimed: e.State == engine.Claimed,
			Draining: e.State == engine.Draining, ExpiresIn: remaining(e.ExpiresAt, d.At), Trace: e.Trace, Comment: e.Comment, Limit: int(e.Limit),
			FirstFence: e.FirstFence,
		}
		switch {
		case e.CreatedAt != nil:
			h.Since = *e.CreatedAt
		case e.ClaimedAt != nil:
			h.Since = *e.ClaimedAt
		}
		i, known := at[e.LockID]
		switch {
		case !e.Holds():
			h.part = e.Part
			out = append(out, h)
		case !known:
			at[e.LockID] = len(out)
			out = append(out, h)
		default:
			out[i].ExpiresIn = max(out[i].ExpiresIn, h.ExpiresIn)
			out[i].Fence = max(out[i].Fence, h.Fence)
			if h.Mode == ModeExclusive {
				out[i].Mode = ModeExclusive
			}
		}
	}
	return out
}
