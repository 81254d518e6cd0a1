package party

import (
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/update"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Lease is what one part got on one resource: a value that can be stored, sent, and used by another
// process to renew, leave or release. It is a snapshot; [Session] keeps leases alive.
//
// The lease of a request with HoldOnly describes the hold. It is never valid, Renew answers it with
// ErrLost, Leave changes nothing, and Release ends the hold.
type Lease struct {
	Resource string `json:"resource"`
	LockID   string `json:"lockId"`
	Run      string `json:"run,omitempty"`
	Part     string `json:"part,omitempty"`
	Order    Order  `json:"order"`
	Mode     Mode   `json:"mode"`
	// Fence grows with every grant of the resource. A resource that remembers the highest fence it has
	// seen, and refuses lower ones, is safe from a holder that does not know yet that it has lost.
	Fence int64 `json:"fence"`
	// FirstFence is the fence with which the hold began, and names the hold. Later attempts of a step
	// and upgrades have greater fences.
	FirstFence int64 `json:"firstFence,omitempty"`
	// LeastFence is the smallest fence under which a part of the hold may still write to a fenced
	// document: FirstFence, until another run of the workflow takes the hold over.
	LeastFence int64 `json:"leastFence,omitempty"`
	// Bars says that the request asked for NewFence: writes under smaller fences are refused after one
	// under this lease, also those of other parts of the hold. Undone are the parts that the request
	// undid: they are barred instead.
	Bars   bool     `json:"bars,omitempty"`
	Undone []string `json:"undone,omitempty"`
	// Left is what was left of the part's promise when the database answered; Forever if it has no
	// end.
	Left time.Duration `json:"left"`
	// Joined says that the lock ID held the resource before this request.
	Joined bool `json:"joined,omitempty"`

	// What follows does not travel: another process has other clocks.

	// id is that of the entry, by which it is extended, and keptID that of what its lock ID keeps, which
	// lasts until keptUntil by the local clock, and for holdTTL after a renewal.
	id, keptID string
	keptUntil  time.Time
	holdTTL    time.Duration
	// validUntil is the local time until which the lease may be trusted: see leaseOf. It is zero in a
	// lease that came from another process.
	validUntil time.Time
	// ttl is how long a confirmation is trusted.
	ttl time.Duration
	// owner, host and comment are those of the request, for an upgrade.
	owner, host, comment string
	// keeps is set if the request may have begun what its lock ID keeps, so that taking it back ends
	// that, unless another request has entered it since.
	keeps bool
	// waitTTL, unless it is 0, is the time for which the kept hold lasts after the leave.
	waitTTL time.Duration
	// granted is the server's time of the grant, if known.
	granted time.Time
	// failing is set if the last renewal failed, and downgrading while a downgrade has no answer.
	failing, downgrading bool
}

// Valid reports whether the part may still trust this lease by this process's clocks. A lease that
// came from another process is not valid until it was renewed here. One without end is trusted for
// 27 s after it was last confirmed: it may have been released by force.
func (l Lease) Valid() bool { return !over(l.validUntil, time.Now()) }

// askedTTL is the TTL as a request names it.
func (l Lease) askedTTL() time.Duration {
	if l.Left == Forever {
		return Forever
	}
	return l.ttl
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

func ttlOf(e *rules.Entry) time.Duration {
	if e.TTL == 0 {
		return Forever
	}
	return time.Duration(e.TTL) * time.Millisecond
}

// elapsed returns the time that has passed, for trust: the larger one of what the monotonic clock and
// the process's own wall clock say. The former stops while the machine is suspended, and the latter
// may be set back.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

func over(end, now time.Time) bool { return elapsed(end, now) >= 0 }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// millis returns a TTL as the rules take it: 0 has no end.
func millis(d time.Duration) int64 {
	if d == Forever {
		return 0
	}
	return d.Milliseconds()
}

// remaining returns what is left at now until end.
func remaining(end, now time.Time) time.Duration {
	if !end.Before(rules.Never) {
		return Forever
	}
	return end.Sub(now)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
