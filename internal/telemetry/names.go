// Package telemetry names what Lockstep's spans and metrics say: those who make them and those who read them use the
// same words. The names are a promise to all who have stored traces, and dashboards.
package telemetry

// Scope is the instrumentation scope of all spans and metrics.
const Scope = "github.com/temporal-lockstep/lockstep/lockcore"

// Names of spans.
const (
	// SpanAcquire is one request for one resource: from when it was sent until it was answered.
	SpanAcquire = "lock.acquire"
	// SpanWait lasts from when a request was queued until it was granted, or left the queue. By the database server's clock.
	SpanWait = "lock.wait"
	// SpanHold lasts from when a resource was granted to a lock ID until it was released, or displaced. By the
	// database server's clock. The write that ends the hold records it.
	SpanHold = "lock.hold"
	// SpanRenew is one command that renews leases, of several resources.
	SpanRenew = "lock.renew"
	// SpanLeave is the end of one part: a step has returned.
	SpanLeave = "lock.leave"
	// SpanRelease is the end of a lock ID's hold, as a command.
	SpanRelease = "lock.release"
	// SpanDeadlock takes the victim of a deadlock out of a queue.
	SpanDeadlock = "lock.deadlock"
)

// Keys of the attributes of spans.
const (
	Resource = "lock.resource"
	Mode     = "lock.mode"
	// Limit is the semaphore limit that a shared request asks with.
	Limit = "lock.limit"
	// LockID, and within it Part and Order, name a request.
	LockID = "lock.id"
	Part   = "lock.part"
	Order  = "lock.order"
	Owner  = "lock.owner"
	// Fence is, of a hold, the one with which it began; with Resource and LockID it names the hold. Of an acquire it is the
	// lease's.
	Fence = "lock.fence"
	// Hold is, of an acquire that was granted, the fence of the hold that it made or joined.
	Hold    = "lock.hold.fence"
	Outcome = "lock.outcome"
	Reason  = "lock.reason"
	Host    = "lock.host"
	Comment = "lock.comment"
	// Position is the place in the queue from 1, and Length how many wait.
	Position = "lock.queue.position"
	Length   = "lock.queue.length"
	// BatchSize is how many leases a renewal is for.
	BatchSize = "lock.batch.size"
	// BlockedByID, BlockedByFence and BlockedByOwner name the hold that was in the way, as its own span does; the resource is
	// the same. On a span they are the last that was; on an event EventBlockedBy each that is known of.
	BlockedByID    = "lock.blocked_by.id"
	BlockedByFence = "lock.blocked_by.fence"
	BlockedByOwner = "lock.blocked_by.owner"
	// BlockedByTrace and BlockedBySpan are, in hexadecimal, the span of the step that held. The link says so too, where the
	// reader of traces keeps links with their attributes.
	BlockedByTrace = "lock.blocked_by.trace_id"
	BlockedBySpan  = "lock.blocked_by.span_id"
	// EndedBy is the lock ID whose request displaced a hold that had expired.
	EndedBy = "lock.ended_by.id"
	// Cycle tells, of a deadlock, who waited for whom.
	Cycle = "lock.cycle"
)

// Names of events.
const (
	// EventBlockedBy names, on a wait or an acquire that was busy, one hold that was in the way, with the keys BlockedBy….
	EventBlockedBy = "lock.blocked_by"
	// EventGrantedTo names, on a hold, by LockID and Part, a waiter whom its end let in.
	EventGrantedTo = "lock.granted_to"
	// EventLost is, on the span of the holder, when it was told that its lock is lost.
	EventLost = "lock.lost"
	// EventDrained is, on a hold, until when parts of it may keep others out after its end: it comes after the end of the span,
	// and before that time if the part leaves sooner.
	EventDrained = "lock.drained"
	// EventExpired is, on a hold, when its promise ended, which is before another needed its room.
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

	// OutcomeOK is that of other commands.
	OutcomeOK         = "ok"
	OutcomeLost       = "lost"
	OutcomeSuperseded = "superseded"
	OutcomeDeadlock   = "deadlock"
	OutcomeUnknown    = "unknown"
	OutcomeError      = "error"
	// OutcomeGone is, of a deadlock, that another process ended it.
	OutcomeGone = "gone"
	// OutcomeCanceled is that the caller's context ended first: it is not known whether the command took effect.
	OutcomeCanceled = "canceled"
)

// How waits end, beside OutcomeGranted and OutcomeDeadlock.
const (
	// OutcomeLeft is that the request was given up: cancelled, or its time was over.
	OutcomeLeft = "left"
	// OutcomeUnclaimed is that it was granted, and given up before it was taken.
	OutcomeUnclaimed = "unclaimed"
)

// How holds end.
const (
	OutcomeReleased = "released"
	// OutcomeExpired is that its promise had ended, and an incompatible request took its room.
	OutcomeExpired = "expired"
	// OutcomeOrphaned is that another process released it, because its holder is known to have ended.
	OutcomeOrphaned = "orphaned"
	// OutcomeRevoked is that an operator released it by force, with a reason.
	OutcomeRevoked = "revoked"
)
