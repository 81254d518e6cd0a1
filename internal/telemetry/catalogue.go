package telemetry

// The catalogue says what is recorded. docs/telemetry.md is made from it, and a test of lockcore holds it to what is
// really recorded, both ways.

// Span is a kind of span.
type Span struct {
	Name string
	// Clock is whose times its start and end are, and When what it is made for.
	Clock, When string
	// Parent is what it stands under.
	Parent     string
	Attributes []Attribute
	Events     []Event
	// Links are what it links to; empty for none.
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
	mode     = Attribute{Key: Mode, Type: "string", Help: "exclusive or shared"}
	limit    = Attribute{Key: Limit, Type: "int", Help: "the limit of a shared request, where it has one: a semaphore's", Optional: true}
	lockID   = Attribute{Key: LockID, Type: "string", Help: "the lock ID; in Temporal it contains namespace ID and workflow ID"}
	part     = Attribute{Key: Part, Type: "string", Help: "the part: in Temporal the run ID and the step, as `<run ID>/3/Debit`"}
	order    = Attribute{Key: Order, Type: "string", Help: "schedule number and attempt, as `3.1`"}
	owner    = Attribute{Key: Owner, Type: "string", Help: "the party that waits and holds: in Temporal `<namespace ID>/<workflow ID>`, unless another is set"}
	position = Attribute{Key: Position, Type: "int", Help: "the request's place in the queue, from 1", Optional: true}
	length   = Attribute{Key: Length, Type: "int", Help: "how many wait after this command", Optional: true}

	blockedBy = []Attribute{
		{Key: BlockedByID, Type: "string", Help: "lock ID of the hold that was in the way", Optional: true},
		{Key: BlockedByOwner, Type: "string", Help: "its owner", Optional: true},
		{Key: BlockedByFence, Type: "int", Help: "the fence with which it began, as on its own span; absent for a grant that was not taken up yet", Optional: true},
		{Key: BlockedByTrace, Type: "string", Help: "trace ID of the step that held, in hexadecimal", Optional: true},
		{Key: BlockedBySpan, Type: "string", Help: "span ID of the step that held, in hexadecimal", Optional: true},
	}
	eventBlockedBy = Event{
		Name: EventBlockedBy, When: "for each hold that is known to have been in the way, 16 at most: those that were when it queued, at the start of a wait, " +
			"and the one whose end let it in, at its end", Attributes: blockedBy,
	}
	errorValues = []Value{
		{OutcomeCanceled, "the caller's context ended first: it is not known whether the command took effect"},
		{OutcomeUnknown, "the database failed, and it is not known whether the command took effect"},
		{OutcomeError, "the database refused, or could not be reached"},
	}
)

// Spans are all kinds.
var Spans = []Span{
	{
		Name: SpanAcquire, Clock: "process", Parent: "the caller's span: in Temporal the step's",
		When: "one request for one resource, from when it is sent until it is answered; several where a request waits and asks again",
		Attributes: append([]Attribute{
			resource, mode, limit, lockID, part, order, owner, outcome, position, length,
			{Key: Comment, Type: "string", Help: "what the request says of itself, for people: in Temporal activity type, activity ID and attempt"},
			{Key: Fence, Type: "int", Help: "the fencing token of the lease", Optional: true},
			{Key: Hold, Type: "int", Help: "the fence with which the hold began that the request made or joined: `lock.fence` of its span", Optional: true},
			{Key: Cycle, Type: "string", Help: "who waited for whom, where it was given up to end a deadlock", Optional: true},
		}, blockedBy...),
		Events: []Event{eventBlockedBy}, Links: "to the step of each hold that was in the way",
		Outcomes: append([]Value{
			{OutcomeGranted, "a new hold, or an upgrade"},
			{OutcomeJoined, "the lock ID held already"},
			{OutcomeAgain, "a repetition of a request that was granted before"},
			{OutcomeQueued, "busy, and in the queue"},
			{OutcomeBusy, "busy, and not in the queue"},
			{OutcomeFull, "busy, and the queue has no room"},
			{OutcomeLost, "the lock ID held before and does not any more"},
			{OutcomeSuperseded, "a later request of the same part, or a release, came first"},
			{OutcomeDeadlock, "given up to end a deadlock"},
		}, errorValues...),
	},
	{
		Name: SpanWait, Clock: "database", Parent: "the span of whoever took the grant up or ended the wait: in Temporal that of the attempt which was granted, or of the activity that released; none for the victim of a deadlock that others found",
		When: "from when a request was queued until it was granted, or gave its place up; written by whoever takes the grant up, or ends the wait. " +
			"A place that nobody refreshed, since its process died, has none",
		Attributes: append([]Attribute{
			resource, mode, limit, lockID, part, order, owner, outcome,
			{Key: Fence, Type: "int", Help: "the fence of the grant", Optional: true},
		}, blockedBy...),
		Events: []Event{eventBlockedBy}, Links: "to the step of each hold that was in the way",
		Outcomes: []Value{
			{OutcomeGranted, "it got the lock"},
			{OutcomeLeft, "it was given up: cancelled, or its time was over"},
			{OutcomeDeadlock, "it was given up to end a deadlock"},
			{OutcomeUnclaimed, "it was granted, and given up before it was taken up"},
		},
	},
	{
		Name: SpanHold, Clock: "database", Parent: "the span of the step that entered last, in its trace, or its acquire where that is in no span; whoever ends it where that is not known",
		When: "from when the resource was granted to a lock ID until it was released or displaced; written by whoever ends it. (`lock.resource`, `lock.fence`, `lock.id`) names it",
		Attributes: []Attribute{
			resource, mode, limit, lockID, owner, outcome,
			{Key: Fence, Type: "int", Help: "the fence with which the hold began"},
			{Key: Host, Type: "string", Help: "the process that took it: host name and process ID, unless set"},
			{Key: Comment, Type: "string", Help: "the comment of the request that took it", Optional: true},
			{Key: Reason, Type: "string", Help: "why, where somebody else ended it", Optional: true},
			{Key: EndedBy, Type: "string", Help: "lock ID of whoever got the room of a hold that had expired", Optional: true},
		},
		Events: []Event{
			{Name: EventGrantedTo, When: "for each waiter whom its end let in", Attributes: []Attribute{lockID, part}},
			{Name: EventDrained, When: "until when parts of it, which may still trust their leases, keep others out: after the span's end, and later than was needed where the part left sooner"},
			{Name: EventExpired, When: "when the promise of a hold that had expired had ended, which is before somebody needed its room"},
		},
		Outcomes: []Value{
			{OutcomeReleased, "by its holder"},
			{OutcomeExpired, "its promise had ended, and another needed its room"},
			{OutcomeRevoked, "by force, by somebody else"},
			{OutcomeOrphaned, "by somebody else, because its holder is known to have ended: its workflow is closed"},
		},
	},
	{
		Name: SpanRenew, Clock: "process", Parent: "none, or the caller's span where the caller renews",
		When: "one command that renews the leases of a process; one that a batch could not renew is renewed again alone, which tells why",
		Attributes: []Attribute{
			{Key: BatchSize, Type: "int", Help: "how many leases, where it is a batch", Optional: true},
			optional(resource), optional(lockID), optional(part), optional(order), outcome,
		},
		Outcomes: append([]Value{{OutcomeOK, "renewed"}, {OutcomeLost, "it is not held any more"}}, errorValues...),
	},
	{
		Name: SpanLeave, Clock: "process", Parent: "the caller's span: in Temporal the step's", When: "the end of one part: a step has returned",
		Attributes: []Attribute{resource, lockID, part, order, outcome},
		Outcomes:   append([]Value{{OutcomeOK, "it is gone"}}, errorValues...),
	},
	{
		Name: SpanRelease, Clock: "process", Parent: "the caller's span", When: "the end of all that a lock ID has on a resource, up to an order",
		Attributes: []Attribute{
			resource, lockID, part, order, outcome,
			{Key: Reason, Type: "string", Help: "why, where it is not the holder itself", Optional: true},
		},
		Outcomes: append([]Value{{OutcomeOK, "it is gone"}}, errorValues...),
	},
	{
		Name: SpanDeadlock, Clock: "process", Parent: "none, or the caller's span of BreakDeadlocks", When: "taking the victim of a deadlock out of a queue",
		Attributes: []Attribute{
			resource, lockID, part, order, owner, outcome,
			{Key: Cycle, Type: "string", Help: "who waits for whom"},
		},
		Outcomes: append([]Value{
			{OutcomeOK, "it is gone"}, {OutcomeGone, "it was gone already: another process was faster, or the lock was granted"},
		}, errorValues...),
	},
}

var outcome = Attribute{Key: Outcome, Type: "string", Help: "how it ended, see below"}

func optional(a Attribute) Attribute {
	a.Optional = true
	return a
}

// LostEvent is what a holder's own span is told when its lock is lost.
var LostEvent = Event{
	Name: EventLost, When: "when the session of a running step, or of plain Go, notices that its lock is lost",
	Attributes: []Attribute{
		resource, lockID, part,
		{Key: Reason, Type: "string", Help: "how it was lost"},
		{Key: EndedBy, Type: "string", Help: "lock ID of who has it now", Optional: true},
	},
}
