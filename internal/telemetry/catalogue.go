package telemetry

// The catalogue lists the telemetry that is recorded. docs/telemetry.md is made from it, and a test of lockcore
// compares it with the recorded telemetry, both ways.

// Span is a kind of span.
type Span struct {
	Name string
	// Clock is whose times its start and end are, and When what it is made for.
	Clock, When string
	// Parent describes the parent span.
	Parent     string
	Attributes []Attribute
	Events     []Event
	// Links describes the span's links; empty if it has none.
	Links string
	// Outcomes are the values of Outcome, with what they mean.
	Outcomes []Value
}

// Attribute is one of a span or an event.
type Attribute struct {
	Key, Type, Help string
	// Optional attributes are absent if there is nothing to say.
	Optional bool
}

// Event is one of a span.
type Event struct {
	Name, When string
	Attributes []Attribute
}

// Value is one that an attribute can have.
type Value struct{ Name, Help string }

var (
	resource = Attribute{Key: Resource, Type: "string", Help: "the resource's name"}
	mode     = Attribute{Key: Mode, Type: "string", Help: "exclusive, shared or pool"}
	limit    = Attribute{Key: Limit, Type: "int", Help: "the limit of a shared request, if it has one", Optional: true}
	member   = Attribute{Key: Member, Type: "string", Help: "the member of a pool", Optional: true}
	priority = Attribute{Key: Priority, Type: "int", Help: "the request's priority, 1 (first) to 5; absent is 3", Optional: true}
	holdOnly = Attribute{Key: HoldOnly, Type: "bool", Help: "set for a hold without a step, such as that of `workflows.Lock`", Optional: true}
	lockID   = Attribute{Key: LockID, Type: "string", Help: "the lock ID; in Temporal it contains namespace ID and workflow ID, or those of an activity without a workflow"}
	part     = Attribute{Key: Part, Type: "string", Help: "the part: in Temporal the run ID and the step, as `<run ID>/3/Debit`"}
	order    = Attribute{Key: Order, Type: "string", Help: "schedule number and attempt, as `3.1`"}
	owner    = Attribute{Key: Owner, Type: "string", Help: "who waits and holds: in Temporal `<namespace ID>/<workflow ID>`, unless another is set; the lock ID of an activity without a workflow"}
	position = Attribute{Key: Position, Type: "int", Help: "the request's position in the queue, from 1", Optional: true}
	length   = Attribute{Key: Length, Type: "int", Help: "the number of waiters after this command", Optional: true}

	blockedBy = []Attribute{
		{Key: BlockedByID, Type: "string", Help: "the lock ID of the hold that blocked", Optional: true},
		{Key: BlockedByOwner, Type: "string", Help: "its owner", Optional: true},
		{Key: BlockedByFence, Type: "int", Help: "the fence it began with, as on its own span; absent for a claim", Optional: true},
		{Key: BlockedByTrace, Type: "string", Help: "trace ID of the step that held, in hexadecimal", Optional: true},
		{Key: BlockedBySpan, Type: "string", Help: "span ID of the step that held, in hexadecimal", Optional: true},
	}
	eventBlockedBy = Event{
		Name: EventBlockedBy, When: "for up to 16 holds known to have blocked it: those at the start of a wait, and at its end the one whose end let it in", Attributes: blockedBy,
	}
	errorValues = []Value{
		{OutcomeCanceled, "the caller's context ended first; whether the command took effect is unknown"},
		{OutcomeUnknown, "the database failed; whether the command took effect is unknown"},
		{OutcomeError, "the database refused, or was not reached"},
	}
)

// Spans are all kinds.
var Spans = []Span{
	{
		Name: SpanAcquire, Clock: "process", Parent: "the caller's span: in Temporal the step's",
		When: "one request for one resource, from sending to the answer; a request that waits has one for each time it asks",
		Attributes: append([]Attribute{
			resource, mode, limit, member, priority, holdOnly, lockID, part, order, owner, outcome, position, length,
			{Key: Comment, Type: "string", Help: "the request's comment: in Temporal activity type, activity ID and attempt"},
			{Key: Fence, Type: "int", Help: "the fencing token of the lease", Optional: true},
			{Key: Hold, Type: "int", Help: "the fence that the granted or joined hold began with: `lock.fence` of its span", Optional: true},
			{Key: Cycle, Type: "string", Help: "who waited for whom, if the request gave up to end a deadlock", Optional: true},
		}, blockedBy...),
		Events: []Event{eventBlockedBy}, Links: "to the step of each hold that blocked",
		Outcomes: append([]Value{
			{OutcomeGranted, "a new hold, or an upgrade"},
			{OutcomeJoined, "the lock ID held already"},
			{OutcomeAgain, "a repetition of a granted request"},
			{OutcomeQueued, "busy, and queued"},
			{OutcomeBusy, "busy, and not queued"},
			{OutcomeFull, "busy, and the queue is full"},
			{OutcomeLost, "the lock ID has lost its hold"},
			{OutcomeSuperseded, "a later request of the same part, or a release, came first"},
			{OutcomeDeadlock, "gave up to end a deadlock"},
		}, errorValues...),
	},
	{
		Name: SpanWait, Clock: "database", Parent: "the span that confirmed the grant or ended the wait: in Temporal the granted attempt's, or that of the activity that released; none for the victim of a deadlock that another process found",
		When: "from queueing to the grant, or until the request left the queue; written by the process that confirms the grant or ends the wait. " +
			"A waiter that expired because its process died has none",
		Attributes: append([]Attribute{
			resource, mode, limit, member, priority, lockID, part, order, owner, outcome,
			{Key: Fence, Type: "int", Help: "the fence of the grant", Optional: true},
		}, blockedBy...),
		Events: []Event{eventBlockedBy}, Links: "to the step of each hold that blocked",
		Outcomes: []Value{
			{OutcomeGranted, "it got the lock"},
			{OutcomeLeft, "the request gave up: cancelled, or out of time"},
			{OutcomeDeadlock, "the request gave up to end a deadlock"},
			{OutcomeUnclaimed, "granted, but the request gave up before it confirmed"},
		},
	},
	{
		Name: SpanHold, Clock: "database", Parent: "the span of the step that acquired last, or its acquire if that has no parent; if unknown, the span that ends the hold",
		When: "from the grant to a lock ID until the release or eviction; written by the process that ends the hold",
		Attributes: []Attribute{
			resource, mode, limit, member, lockID, owner, outcome,
			{Key: Fence, Type: "int", Help: "the fence the hold began with"},
			{Key: Host, Type: "string", Help: "the process that acquired it: host name and process ID, unless set"},
			{Key: Comment, Type: "string", Help: "the comment of the request that acquired it", Optional: true},
			{Key: Reason, Type: "string", Help: "why, if another process ended the hold", Optional: true},
			{Key: EndedBy, Type: "string", Help: "the lock ID that was granted the resource of an expired hold", Optional: true},
		},
		Events: []Event{
			{Name: EventGrantedTo, When: "for each waiter that its end let in", Attributes: []Attribute{lockID, part}},
			{Name: EventDrained, When: "the time until which draining parts keep others out at most; it is after the end of the span"},
			{Name: EventExpired, When: "the time at which an expired hold expired, before it was evicted"},
		},
		Outcomes: []Value{
			{OutcomeReleased, "released by its holder"},
			{OutcomeExpired, "it had expired and was evicted"},
			{OutcomeRevoked, "released by force"},
			{OutcomeOrphaned, "released by another process, because its workflow is closed"},
		},
	},
	{
		Name: SpanRenew, Clock: "process", Parent: "none, or the caller's span if the caller renews",
		When: "one command that renews leases of a process; a lease that a batch could not renew is renewed again alone, to find the reason",
		Attributes: []Attribute{
			{Key: BatchSize, Type: "int", Help: "the number of leases, in a batch", Optional: true},
			optional(resource), optional(lockID), optional(part), optional(order), outcome,
		},
		Outcomes: append([]Value{{OutcomeOK, "renewed"}, {OutcomeLost, "it is no longer held"}}, errorValues...),
	},
	{
		Name: SpanLeave, Clock: "process", Parent: "the caller's span: in Temporal the step's", When: "the end of one part: a step has returned",
		Attributes: []Attribute{resource, lockID, part, order, outcome},
		Outcomes:   append([]Value{{OutcomeOK, "it is gone"}}, errorValues...),
	},
	{
		Name: SpanRelease, Clock: "process", Parent: "the caller's span", When: "the release of everything a lock ID has on a resource, up to an order",
		Attributes: []Attribute{
			resource, lockID, part, order, outcome,
			{Key: Reason, Type: "string", Help: "why, if the caller is not the holder", Optional: true},
		},
		Outcomes: append([]Value{{OutcomeOK, "it is gone"}}, errorValues...),
	},
	{
		Name: SpanDeadlock, Clock: "process", Parent: "none, or the caller's span of BreakDeadlocks", When: "removing the victim of a deadlock from a queue",
		Attributes: []Attribute{
			resource, lockID, part, order, owner, outcome,
			{Key: Cycle, Type: "string", Help: "who waits for whom"},
		},
		Outcomes: append([]Value{
			{OutcomeOK, "it is gone"}, {OutcomeGone, "it had already ended: another process was faster, or the lock was granted"},
		}, errorValues...),
	},
}

var outcome = Attribute{Key: Outcome, Type: "string", Help: "how it ended, see below"}

func optional(a Attribute) Attribute {
	a.Optional = true
	return a
}

// LostEvent describes the event on a holder's own span when its lock is lost.
var LostEvent = Event{
	Name: EventLost, When: "when the session of a running step, or of plain Go, notices that its lock is lost, or when the release after a commit finds that it was",
	Attributes: []Attribute{
		resource, lockID, part,
		{Key: Reason, Type: "string", Help: "how it was lost"},
		{Key: EndedBy, Type: "string", Help: "the lock ID that holds it now", Optional: true},
	},
}
