// Package pace is how often a Locker looks at what requests wait for. The simulation in
// lockcoretest derives from it how long a free resource, a lost wake-up or a deadlock can go
// unnoticed.
package pace

import "time"

// Near is for how long a turn is waited for in a slot at one place in the queue.
const PositionWait = 500 * time.Millisecond

// Looks of the watcher at a resource.
const (
	// Read is the pause between two looks at a resource with local waiters, and LookLeast the least
	// pause.
	Poll    = 250 * time.Millisecond
	MinPoll = 20 * time.Millisecond
	// LooksPerTurn is how many times a local waiter's resource is looked at before its turn is expected.
	PollsPerGrant = 3
	// Tell is the pause while a parked waiter has been told of its turn and has not come, and Settle
	// that after a look that failed, or whose write was to grant the head of the queue a claim, and
	// granted none.
	ClaimPoll   = 500 * time.Millisecond
	SettleRetry = time.Second
	// Compare is the pause between two reads of the versions of the resources for which parked requests
	// wait. It bounds how long a change by another process goes unnoticed.
	VersionPoll = time.Second
	// CompareEach, times the resources that requests of this process wait for, is the least such pause.
	VersionPollEach = time.Millisecond
	// Look is the longest pause. Nothing should depend on it: it is for wake-ups that were lost.
	MaxPoll = 20 * time.Second
	// Each, times the resources that local requests wait for, is the least pause between two searches
	// for deadlocks, and between two looks of Look at one resource.
	PerResource = 40 * time.Millisecond
	// Along is how much before its time a look of Look may come, with one at another resource.
	Coalesce = time.Second
	// CallUp is about how long it takes a workflow that is told to ask again until it does: parked
	// requests are told when their turn is that near.
	WakeLead = 200 * time.Millisecond
	// Spread is what the looks of several processes at the same promise's end are spread over.
	Spread = 20 * time.Millisecond
)

// Searches for deadlocks.
const (
	// SearchAfter is how long after a request queued deadlocks are searched for: most waits are over
	// sooner. Search is the pause while any request waits, and SearchLeast the least pause.
	SearchAfter = 500 * time.Millisecond
	Search      = 5 * time.Second
	MinSearch   = time.Second
)

// Looks of parked requests at their own place.
const (
	// Recheck is how long after it queued the head of a queue looks, and RecheckEach by how much later
	// the next does. From then on a waiter looks when it has waited twice as long, but after
	// RecheckMost at the latest, and RecheckLeast at the least.
	Recheck      = 20 * time.Second
	RecheckEach  = 250 * time.Millisecond
	RecheckMost  = 10 * time.Minute
	RecheckLeast = 100 * time.Millisecond
)
