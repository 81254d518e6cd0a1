// Package pace contains the intervals at which a Locker polls, and searches for deadlocks, and the formula of all back-off. The simulation
// derives from them how long a free resource, a lost wake-up or a deadlock may go unnoticed.
package pace

import "time"

// PositionWait is the time for which a request waits in its slot at one position in the queue.
const PositionWait = 500 * time.Millisecond

// Polling of resources by the watcher.
const (
	// Poll is the pause between two polls of a resource with local waiters, and MinPoll the shortest one.
	Poll    = 250 * time.Millisecond
	MinPoll = 20 * time.Millisecond
	// PollsPerGrant is the number of polls for a local waiter before its grant is expected.
	PollsPerGrant = 3
	// UnknownHold is the expected duration of a hold of a resource until one has been observed.
	UnknownHold = 15 * time.Millisecond
	// ClaimPoll is the pause while a parked waiter has been woken for its claim and has not come.
	ClaimPoll = 500 * time.Millisecond
	// SettleRetry is the pause after a poll that failed, or whose write was to grant the head of the queue
	// a claim and did not.
	SettleRetry = time.Second
	// VersionPoll is the pause between two reads of the versions of resources for which parked requests
	// wait. It bounds the time for which a change by another process goes unnoticed.
	VersionPoll = time.Second
	// VersionPollEach, times the number of resources for which local requests wait, is the shortest such
	// pause.
	VersionPollEach = time.Millisecond
	// MaxPoll is the longest pause. It only matters for wake-ups that were lost.
	MaxPoll = 20 * time.Second
	// PerResource, times the number of resources for which local requests wait, is the shortest pause
	// between two searches for deadlocks, and between two polls of a resource after MaxPoll.
	PerResource = 40 * time.Millisecond
	// Coalesce is the time by which a poll after MaxPoll may be early, to share a command with another.
	Coalesce = time.Second
	// WakeLead is the usual time from waking a workflow to its request. Parked requests are woken that
	// much before their grant is expected.
	WakeLead = 200 * time.Millisecond
	// Spread is the time over which several processes spread their polls when the same lease ends.
	Spread = 20 * time.Millisecond
)

// Searches for deadlocks.
const (
	// SearchAfter is the time after which a queued request starts a search. Most waits end sooner. Search
	// is the pause between searches while a request waits, and MinSearch the shortest one.
	SearchAfter = 500 * time.Millisecond
	Search      = 5 * time.Second
	MinSearch   = time.Second
)

// Rechecks of parked requests.
const (
	// Recheck is the time after which the request at the head of a queue rechecks its position, and
	// RecheckEach the delay of each request behind it. After that a request rechecks when it has waited
	// twice as long, but at least after RecheckLeast and at most after RecheckMost.
	Recheck      = 20 * time.Second
	RecheckEach  = 250 * time.Millisecond
	RecheckMost  = 10 * time.Minute
	RecheckLeast = 100 * time.Millisecond
)

// Backoff returns the pause before an attempt is repeated for the nth time: first before n = 1, twice as long for each
// further one, and at most most.
func Backoff(first, most time.Duration, n int) time.Duration {
	pause := first
	for ; n > 1 && pause < most; n-- {
		pause *= 2
	}
	return min(pause, most)
}

// Jitter returns a random time between half of a pause and all of it, so that callers that began to wait together do not
// come back together. random returns a duration in [0, most), see [clock.Clock.Jitter].
func Jitter(pause time.Duration, random func(most time.Duration) time.Duration) time.Duration {
	return pause/2 + random(pause/2+1)
}
