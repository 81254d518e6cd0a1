// Package telemetry defines the names of Lockstep's spans, metrics, attributes and events, for the code that makes them and the
// code that reads them. The names are stable, because users keep traces and dashboards.
package telemetry

// Scope is the instrumentation scope of all spans and metrics.
const Scope = "github.com/temporal-lockstep/lockstep/lockcore"

// Names of spans.
const (
	// SpanAcquire is one request for one resource, from sending it to its answer.
	SpanAcquire = "lock.acquire"
	// SpanWait lasts from the enqueueing of a request to its grant or withdrawal, by the database server's clock.
	SpanWait = "lock.wait"
	// SpanHold lasts from the grant of a resource to a lock ID to its release or eviction, by the database server's clock. The
	// process whose write ends the hold records it.
	SpanHold = "lock.hold"
	// SpanRenew is one command that renews leases of several resources.
	SpanRenew = "lock.renew"
	// SpanLeave is the end of one part, for example of a step that has returned.
	SpanLeave = "lock.leave"
	// SpanRelease is the command that ends the hold of a lock ID.
	SpanRelease = "lock.release"
	// SpanDeadlock is the command that removes the victim of a deadlock from a queue.
	SpanDeadlock = "lock.deadlock"
)

// Keys of the attributes of spans.
const (
	Resource = "lock.resource"
	Mode     = "lock.mode"
	// Limit is the semaphore limit of a shared request.
	Limit = "lock.limit"
	// Member is the member of a pool, and Priority that of a request.
	Member   = "lock.member"
	Priority = "lock.priority"
	// HoldOnly is set on the acquire of a hold without a part: no process works under it, and no leave ends it.
	HoldOnly = "lock.hold_only"
	// LockID, and within it Part and Order, name a request.
	LockID = "lock.id"
	Part   = "lock.part"
	Order  = "lock.order"
	Owner  = "lock.owner"
	// Fence is the first fence of a hold, which identifies the hold together with Resource and LockID. On an acquire it is the
	// fence of the lease.
	Fence = "lock.fence"
	// Hold is the first fence of the hold that a granted acquire made or joined.
	Hold    = "lock.hold.fence"
	Outcome = "lock.outcome"
	Reason  = "lock.reason"
	Host    = "lock.host"
	Comment = "lock.comment"
	// Position is the position in the queue, from 1. Length is the number of waiters.
	Position = "lock.queue.position"
	Length   = "lock.queue.length"
	// BatchSize is the number of leases of a renewal.
	BatchSize = "lock.batch.size"
	// BlockedByID, BlockedByFence and BlockedByOwner identify the hold that blocked a request, like the attributes of its own
	// span, on the same resource. A span has those of the last blocker; each event EventBlockedBy has those of one blocker.
	BlockedByID    = "lock.blocked_by.id"
	BlockedByFence = "lock.blocked_by.fence"
	BlockedByOwner = "lock.blocked_by.owner"
	// BlockedByTrace and BlockedBySpan identify, in hexadecimal, the span of the step that held. A span link has the same, but not
	// every backend keeps links with their attributes.
	BlockedByTrace = "lock.blocked_by.trace_id"
	BlockedBySpan  = "lock.blocked_by.span_id"
	// EndedBy is the lock ID whose request evicted an expired hold.
	EndedBy = "lock.ended_by.id"
	// Cycle lists who waited for whom in a deadlock.
	Cycle = "lock.cycle"
)

// Names of events.
const (
	// EventBlockedBy names one blocker of a wait or of a busy acquire, with the keys BlockedBy….
	EventBlockedBy = "lock.blocked_by"
	// EventGrantedTo names, by LockID and Part, a waiter that the end of a hold let in.
	EventGrantedTo = "lock.granted_to"
	// EventLost is on the span of the holder, at the time at which it learned that its lock was lost.
	EventLost = "lock.lost"
	// EventDrained is on a hold, at the time until which its parts may keep others out after its end. That time is after the end
	// of the span. A part that leaves sooner ends the draining sooner.
	EventDrained = "lock.drained"
	// EventExpired is on an evicted hold, at the time at which its lease expired, which is before the eviction.
	EventExpired = "lock.expired"
)

// Outcomes of an acquire are those of the engine: granted, joined, again, queued, busy, full, and the errors below.
const (
	OutcomeGranted = "granted"
	OutcomeJoined  = "joined"
	OutcomeAgain   = "again"
	OutcomeQueued  = "queued"
	OutcomeBusy    = "busy"
	OutcomeFull    = "full"

	// OutcomeOK is the outcome of other commands that succeed.
	OutcomeOK         = "ok"
	OutcomeLost       = "lost"
	OutcomeSuperseded = "superseded"
	OutcomeDeadlock   = "deadlock"
	OutcomeUnknown    = "unknown"
	OutcomeError      = "error"
	// OutcomeGone means that another process has ended the deadlock.
	OutcomeGone = "gone"
	// OutcomeCanceled means that the caller's context ended first. It is not known whether the command took effect.
	OutcomeCanceled = "canceled"
)

// Outcomes of waits, in addition to OutcomeGranted and OutcomeDeadlock.
const (
	// OutcomeLeft means that the request was withdrawn, because it was cancelled or its time had ended.
	OutcomeLeft = "left"
	// OutcomeUnclaimed means that it was granted, and withdrawn before it was confirmed.
	OutcomeUnclaimed = "unclaimed"
)

// Outcomes of holds.
const (
	OutcomeReleased = "released"
	// OutcomeExpired means that its lease had expired, and an incompatible request evicted it.
	OutcomeExpired = "expired"
	// OutcomeOrphaned means that another process released it, because its holder is known to have ended.
	OutcomeOrphaned = "orphaned"
	// OutcomeRevoked means that an operator released it by force, with a reason.
	OutcomeRevoked = "revoked"
)
