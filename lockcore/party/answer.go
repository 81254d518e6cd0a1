package party

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/update"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// answer returns the lease of a request, or the error that says why there is none.
func answer(op *rules.Acquire, a *update.Answer) (Lease, error) {
	d := a.After
	switch a.Outcome {
	case rules.Granted, rules.Joined, rules.Again:
		if op.HoldOnly {
			return holdOf(op, a), nil
		}
		lease := leaseOf(d.Part(op.LockID, op.Part, op.Order), a)
		lease.granted = d.At
		lease.Joined, lease.keeps = a.Outcome == rules.Joined, op.Persist
		lease.Bars, lease.Undone = op.NewFence && len(op.Undo) == 0, op.Undo
		return lease, nil
	case rules.Lost:
		return Lease{}, lostError(d, op.Request())
	case rules.OtherRun:
		return Lease{}, &OtherRunError{Resource: op.Resource, LockID: op.LockID, Run: op.Label, Other: a.Note}
	case rules.Deadlock:
		return Lease{}, deadlockError(op, d, a.Note)
	case rules.Superseded:
		by, known := d.SupersededBy(op.Request())
		if !known { // by another call with the same order
			by.Order = op.Order
		}
		return Lease{}, &SupersededError{
			Resource: op.Resource, LockID: op.LockID, Part: op.Part, Order: orderOf(op.Order), By: orderOf(by.Order), Released: by.Released,
			Reason: by.Reason,
		}
	}
	return Lease{}, busy(op, a)
}

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

// trustMargin is the part of the TTL by which trust ends early, for what the two clocks may differ
// in speed, and for work that is noticed late.
const trustMargin = 10

// leaseOf returns the lease of a part. If it ends at E, it is trusted until Sent + (E - At) less a
// tenth of the TTL, and never for longer than that after its command was sent.
func leaseOf(p *rules.Entry, a *update.Answer) Lease {
	d := a.After
	lease := Lease{
		Resource: d.ID, LockID: p.LockID, Run: p.Label, Part: p.Part, Order: orderOf(p.Order), Mode: Mode(p.Mode), Fence: p.Fence,
		FirstFence: p.FirstFence, LeastFence: p.LeastFence, Left: remaining(p.ExpiresAt, d.At), ttl: time.Duration(p.TTL) * time.Millisecond, id: p.ID,
	}
	trusted := min(lease.Left, lease.ttl)
	if p.TTL == 0 {
		lease.ttl, trusted = rules.EndlessTTL, rules.EndlessTTL
	}
	lease.validUntil = a.Sent.Add(trusted - lease.ttl/trustMargin)
	if k := d.Kept(p.LockID); k != nil {
		lease.keptID, lease.holdTTL = k.ID, ttlOf(k)
		if lease.holdTTL != Forever {
			lease.keptUntil = a.Sent.Add(k.ExpiresAt.Sub(d.At))
		}
	}
	return lease
}

// holdOf returns the lease of a request that asked for the hold alone. It is not trusted, since nothing
// renews it.
func holdOf(op *rules.Acquire, a *update.Answer) Lease {
	d := a.After
	k := d.Kept(op.LockID)
	return Lease{
		Resource: d.ID, LockID: k.LockID, Run: k.Label, Part: op.Part, Order: orderOf(op.Order), Mode: Mode(k.Mode), Fence: k.Fence,
		FirstFence: k.FirstFence, LeastFence: k.LeastFence, Bars: op.NewFence && len(op.Undo) == 0, Undone: op.Undo,
		Left: remaining(k.ExpiresAt, d.At), Joined: a.Outcome == rules.Joined, id: op.Call, keeps: true, granted: d.At,
	}
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

// nameOf returns the lock ID of an entry as others see it.
func nameOf(e *rules.Entry) string {
	if e.CutOff {
		return e.LockID + cutOff
	}
	return e.LockID
}

// cutOff marks the lock ID of a part that also keeps its own party out, as others see it.
const cutOff = " (cut off)"

// holders lists a document's holds, draining parts and claims, as others see them. A hold that has
// expired, and still stands, has nothing left. A part that has drained is not listed: it keeps no
// request out, though it stands until the next write.
func holders(d *rules.Document) []Holder {
	var out []Holder
	at := map[string]int{} // holds by lock ID
	for i := range d.Entries {
		e := &d.Entries[i]
		h := Holder{
			LockID: nameOf(e), Run: e.Label, Owner: cmp.Or(e.Owner, e.LockID), Host: e.Host, Mode: Mode(e.Mode), State: StateHolding,
			Fence: e.Fence, FirstFence: e.FirstFence, ExpiresIn: remaining(e.ExpiresAt, d.At), Trace: e.Trace, Comment: e.Comment, Limit: int(e.Limit),
			Silent: max(0, d.At.Sub(lastSign(e))),
		}
		if began := cmp.Or(e.CreatedAt, e.ClaimedAt); began != nil {
			h.Since = *began
		}
		if e.State == rules.StateKept {
			h.HoldTTL = ttlOf(e)
		}
		i, known := at[h.LockID]
		switch {
		case e.State == rules.StateDraining && h.ExpiresIn <= 0:
		case !e.Holds():
			h.State, h.Part = State(e.State), e.Part // their names are the same
			out = append(out, h)
		case !known:
			at[h.LockID] = len(out)
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

func ttlOf(e *rules.Entry) time.Duration {
	if e.TTL == 0 {
		return Forever
	}
	return time.Duration(e.TTL) * time.Millisecond
}

// lastSign is when an entry last gave a sign of life. An entry with an end was promised its TTL
// from then on.
func lastSign(e *rules.Entry) (last time.Time) {
	if e.TTL > 0 && e.ExpiresAt.Before(rules.Never) {
		last = e.ExpiresAt.Add(-time.Duration(e.TTL) * time.Millisecond)
	}
	for _, t := range []*time.Time{e.CreatedAt, e.ClaimedAt, e.RenewedAt} {
		if t != nil {
			last = later(last, *t)
		}
	}
	return last
}
