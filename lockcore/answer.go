package lockcore

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

func answer(op *engine.Acquire, d *engine.Document, sent time.Time) (Lease, error) {
	switch d.Last.Outcome {
	case engine.Granted, engine.Joined, engine.Again:
		lease := leaseOf(d.Part(op.LockID, op.Part, op.Order), d, sent)
		lease.granted = d.At
		lease.Joined, lease.keeps = d.Last.Outcome == engine.Joined, op.Persist
		lease.Bars, lease.Undone = op.NewFence && len(op.Undo) == 0, op.Undo
		return lease, nil
	case engine.Lost:
		return Lease{}, lostError(d, op.LockID, op.Label, op.Part, op.Order)
	case engine.OtherRun:
		return Lease{}, &OtherRunError{Resource: op.Resource, LockID: op.LockID, Run: op.Label, Other: d.Last.Note}
	case engine.Deadlock:
		return Lease{}, deadlockError(op, d, d.Last.Note)
	case engine.Superseded:
		by, known := d.Overtaker(op.LockID, op.Label, op.Part, op.Order)
		if !known { // answers leave out the queue, in which the later request waits
			by.Order = op.Order
		}
		_, later := d.Later(op.LockID, op.Part, op.Order)
		return Lease{}, &SupersededError{
			Resource: op.Resource, LockID: op.LockID, Part: op.Part, Order: orderOf(op.Order), By: orderOf(by.Order), Released: known && !later,
			Reason: by.Reason,
		}
	}
	return Lease{}, busy(op, d)
}

func deadlockError(op *engine.Acquire, d *engine.Document, verdict string) *DeadlockError {
	return &DeadlockError{
		Resource: op.Resource, LockID: op.LockID, Part: op.Part, Order: orderOf(op.Order), Cycle: strings.TrimPrefix(verdict, deadlockReason),
		NotHeldSince: notHeldSince(d, op),
	}
}

// notHeldSince is from when on a lock ID, or with a label its run, is known not to have held in a mode
// that covers the request. It is zero if it holds in such a mode, or if evidence says that it held. A
// release by the holder itself leaves no evidence. A shared hold was never exclusive, unless its
// Session made it weaker.
func notHeldSince(d *engine.Document, op *engine.Acquire) time.Time {
	held := func(e engine.Entry) bool {
		own := e.LockID == op.LockID && e.State != engine.StateClaimed
		return (own && engine.Covers(e.Mode, op.Mode)) || e.LockID == engine.CutOff(op.LockID)
	}
	evicted := d.EvictedRecord(op.LockID, op.Label) != nil // answers leave the records out, and have Evidence
	if d.Last.Evidence || evicted || slices.ContainsFunc(d.Entries, held) {
		return time.Time{}
	}
	return d.EvidenceSince
}

func lostError(d *engine.Document, lockID, label, part string, order int64) *LostError {
	lost, known := lossIn(d, lockID, order, "it does not hold any more", label)
	lost.Part = part
	if by, ok := d.Overtaker(lockID, label, part, order); ok && !known {
		lost.Reason = cmp.Or(by.Reason, "overtaken by order "+orderOf(by.Order).String())
	}
	return lost
}

// lossIn is the loss of a hold, as the evidence of one of the run labels tells it, if that is
// known.
func lossIn(d *engine.Document, lockID string, order int64, unknown string, labels ...string) (lost *LostError, known bool) {
	for _, label := range labels {
		if e := d.EvictedRecord(lockID, label); e != nil {
			return &LostError{Resource: d.ID, LockID: lockID, Order: orderOf(order), By: e.By, Reason: e.Reason}, true
		}
	}
	return &LostError{Resource: d.ID, LockID: lockID, Order: orderOf(order), Reason: unknown}, false
}

// trustMargin is the part of the TTL by which trust ends early, for what the two clocks may differ
// in speed, and for work that is noticed late.
const trustMargin = 10

// leaseOf is the lease of a part, by the answer to a command that was sent then. It is trusted
// until sent + left - ttl/trustMargin.
func leaseOf(p *engine.Entry, d *engine.Document, sent time.Time) Lease {
	lease := Lease{
		Resource: d.ID, LockID: p.LockID, Run: p.Label, Part: p.Part, Order: orderOf(p.Order), Mode: Mode(p.Mode), Fence: p.Fence,
		FirstFence: p.FirstFence, Left: remaining(p.ExpiresAt, d.At), ttl: time.Duration(p.TTL) * time.Millisecond,
	}
	stands := lease.Left
	if p.TTL == 0 {
		lease.ttl, stands = engine.EndlessTTL, engine.EndlessTTL
	}
	lease.validUntil = sent.Add(stands - lease.ttl/trustMargin)
	return lease
}

func busy(op *engine.Acquire, d *engine.Document) *BusyError {
	e := &BusyError{
		Resource: op.Resource, LockID: op.LockID, Position: int(d.Last.Position), Waiting: int(d.Last.Length),
		Full: d.Last.Outcome == engine.Full, NotHeldSince: notHeldSince(d, op),
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

// holders lists a document's holds, draining parts and claims, as others see them. A hold that has
// expired, and still stands, has nothing left. A part that has drained is not listed: it keeps no
// request out, though it stands until the next write.
func holders(d *engine.Document) []Holder {
	var out []Holder
	at := map[string]int{} // holds by lock ID
	for i := range d.Entries {
		e := &d.Entries[i]
		h := Holder{
			LockID: e.LockID, Run: e.Label, Owner: cmp.Or(e.Owner, e.LockID), Host: e.Host, Mode: Mode(e.Mode), State: StateHolding,
			Fence: e.Fence, FirstFence: e.FirstFence, ExpiresIn: remaining(e.ExpiresAt, d.At), Trace: e.Trace, Comment: e.Comment, Limit: int(e.Limit),
			Silent: max(0, d.At.Sub(lastSign(e))),
		}
		if began := cmp.Or(e.CreatedAt, e.ClaimedAt); began != nil {
			h.Since = *began
		}
		if e.State == engine.StateKept {
			h.HoldTTL = ttlOf(e)
		}
		i, known := at[e.LockID]
		switch {
		case e.State == engine.StateDraining && h.ExpiresIn <= 0:
		case !e.Holds():
			h.State, h.Part = State(e.State), e.Part // their names are the same
			out = append(out, h)
		case !known:
			at[e.LockID] = len(out)
			out = append(out, h)
		default:
			if e.CreatedAt != nil { // what is of the whole hold stands in its kept entry
				out[i].Owner, out[i].Host, out[i].Comment, out[i].Trace, out[i].Since, out[i].Limit = h.Owner, h.Host, h.Comment, h.Trace, h.Since, h.Limit
			}
			out[i].ExpiresIn = max(out[i].ExpiresIn, h.ExpiresIn)
			out[i].HoldTTL = max(out[i].HoldTTL, h.HoldTTL)
			out[i].Fence = max(out[i].Fence, h.Fence)
			out[i].Silent = min(out[i].Silent, h.Silent)
			if h.Mode == ModeExclusive {
				out[i].Mode = ModeExclusive
			}
		}
	}
	return out
}

func ttlOf(e *engine.Entry) time.Duration {
	if e.TTL == 0 {
		return Forever
	}
	return time.Duration(e.TTL) * time.Millisecond
}

// lastSign is when an entry last gave a sign of life. An entry with an end was promised its TTL
// from then on.
func lastSign(e *engine.Entry) (last time.Time) {
	if e.TTL > 0 && e.ExpiresAt.Before(engine.Never) {
		last = e.ExpiresAt.Add(-time.Duration(e.TTL) * time.Millisecond)
	}
	for _, t := range []*time.Time{e.CreatedAt, e.ClaimedAt, e.RenewedAt} {
		if t != nil {
			last = later(last, *t)
		}
	}
	return last
}
