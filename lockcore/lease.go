package lockcore

import (
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
)

// Lease describes a session's lock on one resource. It is a value that can be stored, sent, and used by another
// process to resume or leave the session. It is a snapshot; a [Session] keeps leases alive.
//
// LockID, Part and Order name the request that was granted. Part and Order are chosen by the Locker, and Run is
// empty, except in leases of a [StepRequest].
type Lease struct {
	Resource string `json:"resource"`
	LockID   string `json:"lockId"`
	Run      string `json:"run,omitempty"`
	Part     string `json:"part,omitempty"`
	Order    Order  `json:"order"`
	Mode     Mode   `json:"mode"`
	// Fence increases with every grant of the resource.
	//
	// A resource that remembers the highest fence it has seen, and refuses lower ones, is safe from a holder
	// that has lost its lock unnoticed.
	Fence int64 `json:"fence"`
	// FirstFence is the fence with which the hold began, and names the hold.
	//
	// Later requests of the lock ID and upgrades can have greater fences.
	FirstFence int64 `json:"firstFence,omitempty"`
	// LeastFence is the smallest fence under which the hold may still write.
	//
	// It is FirstFence, or a later one. See [UpdateFenced].
	LeastFence int64 `json:"leastFence,omitempty"`
	// Bars is set if the request asked for NewFence: after a write under this lease, writes under smaller
	// fences are refused.
	//
	// That includes writes of other leases of the hold. See [StepRequest].
	Bars bool `json:"bars,omitempty"`
	// Left is the time to the lease's expiry; Forever if it never expires.
	//
	// It was true when the database answered.
	Left time.Duration `json:"left"`
	// Joined is set if the lock ID held the resource before this request.
	Joined bool `json:"joined,omitempty"`

	// The following fields are not encoded: they hold for the clocks of this process only.

	// id is the ID of the part's latest entry, by which it is extended and taken back. upgraded is set if
	// the part has another entry.
	id       string
	upgraded bool
	// kept lists what the lock ID kept at the local time seen.
	kept []keptEntry
	seen time.Time
	// validUntil is the time of clock.Now until which the lease is trusted: see leaseOf. It is zero in a lease
	// from another process.
	validUntil time.Time
	// ttl is the part's TTL, or rules.EndlessTTL.
	ttl time.Duration
	// owner, host and comment are the request's, for an upgrade.
	owner, host, comment string
	// waitTTL, unless it is 0, is the time for which a step keeps the resource after the leave, while it
	// waits for others.
	waitTTL time.Duration
	// granted is the server's time of the grant, if known.
	granted time.Time
	// failing is set if the last renewal failed, and downgrading while a downgrade has no answer.
	failing, downgrading bool
}

// keptEntry is an entry that a lock ID keeps without a part. It lasts until the local time until, and for
// ttl after a renewal.
type keptEntry struct {
	id    string
	until time.Time
	ttl   time.Duration
}

// caller returns the request that the lease belongs to.
func (l *Lease) caller() rules.Caller {
	return rules.Caller{LockID: l.LockID, Run: l.Run, Part: l.Part, Order: l.Order.number()}
}

// Valid reports whether the lock is certainly still held, by this process's clock. On Linux that is one that is
// never set and that includes the time in which the machine was suspended; elsewhere its monotonic or its wall
// clock, whichever has advanced more. A lease from another process is not valid until [Locker.Resume] has renewed
// it. A lease that never expires is valid for 27 s after each confirmation, since it can be released by force.
func (l Lease) Valid() bool { return !over(l.validUntil, clock.Now()) }

// requestTTL returns the TTL as a request names it.
func (l Lease) requestTTL() time.Duration {
	if l.Left == Forever {
		return Forever
	}
	return l.ttl
}

// trustMargin is the fraction of the TTL by which trust ends before the lease does: it allows for clocks
// that run at different speeds, and for work that notices the end late.
const trustMargin = 10

// leaseOf returns the lease of a part. A lease that ends at E is trusted until Sent + (E - At) less a
// tenth of the TTL, and never for longer than the TTL less that tenth after its command was sent.
func leaseOf(p *rules.Entry, a *update.Answer) Lease {
	d := a.After
	lease := Lease{
		Resource: d.ID, LockID: p.LockID, Run: p.Run, Part: p.Part, Order: orderOf(p.Order), Mode: Mode(p.Mode), Fence: p.Fence,
		FirstFence: p.FirstFence, LeastFence: p.LeastFence, Left: remaining(p.ExpiresAt, d.At), ttl: time.Duration(p.TTL) * time.Millisecond, id: p.ID,
	}
	trusted := min(lease.Left, lease.ttl)
	if p.TTL == 0 {
		lease.ttl, trusted = rules.EndlessTTL, rules.EndlessTTL
	}
	lease.validUntil = a.Sent.Add(trusted - lease.ttl/trustMargin)
	lease.seen = a.Sent
	for i := range d.Entries {
		switch e := &d.Entries[i]; {
		case !e.BelongsTo(p.LockID):
		case e.State == rules.StateKept:
			lease.kept = addKept(lease.kept, e, a)
		case e.State == rules.StateRunning && e.SameRequest(&p.Caller) && e.ID != p.ID:
			lease.upgraded = true
		}
	}
	return lease
}

// addKept adds a kept entry of an answer, unless it has no end.
func addKept(all []keptEntry, e *rules.Entry, a *update.Answer) []keptEntry {
	if e.ID == "" || e.TTL == 0 {
		return all
	}
	return append(all, keptEntry{e.ID, a.Sent.Add(e.ExpiresAt.Sub(a.After.At)), ttlOf(e)})
}

// needsSwap reports whether the part cannot be renewed by the IDs of entries alone: it has several, or its
// lock ID may keep more than was seen, which a part renews too.
func (l *Lease) needsSwap(now time.Time) bool {
	return l.upgraded || slices.ContainsFunc(l.kept, func(k keptEntry) bool { return clock.Elapsed(l.seen, now) >= k.ttl/3 })
}

// holdOf returns the lease of a request with HoldOnly. It is not trusted, since nothing renews it.
func holdOf(op *rules.Acquire, a *update.Answer) Lease {
	d := a.After
	k := d.Kept(op.LockID)
	return Lease{
		Resource: d.ID, LockID: k.LockID, Run: k.Run, Part: op.Part, Order: orderOf(op.Order), Mode: Mode(k.Mode), Fence: k.Fence,
		FirstFence: k.FirstFence, LeastFence: k.LeastFence, Bars: op.NewFence,
		Left: remaining(k.ExpiresAt, d.At), Joined: a.Outcome == rules.Joined, id: op.Call, granted: d.At,
	}
}

// over reports whether end has been reached at now. Both are times of clock.Now.
func over(end, now time.Time) bool { return clock.Elapsed(end, now) >= 0 }

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// ttlOf returns the TTL of an entry.
func ttlOf(e *rules.Entry) time.Duration {
	if e.TTL == 0 {
		return Forever
	}
	return time.Duration(e.TTL) * time.Millisecond
}

// millis returns a TTL as package rules expects it: 0 never expires.
func millis(d time.Duration) int64 {
	if d == Forever {
		return 0
	}
	return d.Milliseconds()
}

// remaining returns the time from now to end, or Forever.
func remaining(end, now time.Time) time.Duration {
	if !end.Before(rules.Never) {
		return Forever
	}
	return end.Sub(now)
}
