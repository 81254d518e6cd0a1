package update

import (
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// serverClock estimates the time of the database's server from one of its answers.
type serverClock struct {
	mu sync.Mutex
	// at is the server's time of that answer, sent and received the local times of its command. at is zero if
	// nothing is known.
	at, sent, received time.Time
	// exact, if set, returns the server's time without a command. See Exact.
	exact func() time.Time
}

// Exact is implemented by stores in memory whose clock is set by a test. A sample of such a clock is no
// basis for an estimate.
type Exact interface {
	ServerTime() time.Time
}

const (
	// sampleLasts is the time for which a sample of the server's time is used.
	sampleLasts = 10 * time.Second
	// sampleWithin is the longest round trip of a sample that dates leases. An answer may take seconds, or be read after
	// the process was stopped. Leases that are dated by such an answer would have ended when they are
	// granted, and would be renewed again and again.
	sampleWithin = 250 * time.Millisecond
)

// learn records an answer. That of a long round trip does not replace that of a short one.
func (c *serverClock) learn(at, sent, received time.Time) Now {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.age(); !known || isShort(sent, received) || !isShort(c.sent, c.received) {
		c.at, c.sent, c.received = at, sent, received
	}
	return Now{At: at, Sent: sent}
}

// isShort reports whether the answer of a command may date leases.
func isShort(sent, received time.Time) bool { return clock.Elapsed(sent, received) <= sampleWithin }

// age returns a lower bound of the time since the answer, or ok false if it is too old.
func (c *serverClock) age() (passed time.Duration, ok bool) {
	now := clock.Now()
	return max(0, clock.ElapsedAtLeast(c.received, now)).Truncate(time.Millisecond), !c.at.IsZero() && clock.Elapsed(c.received, now) <= sampleLasts
}

func (c *serverClock) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Time{}
}

// guess returns a lower bound of the server's time, or zero if nothing is known that may date leases.
func (c *serverClock) guess() Now {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exact != nil {
		return Now{At: c.exact(), Sent: clock.Now()}
	}
	passed, ok := c.age()
	if !ok || !isShort(c.sent, c.received) {
		return Now{}
	}
	return Now{At: c.at.Add(passed), Sent: c.sent.Add(passed)}
}

// reservation returns a reservation that a process makes now, without an end if nothing is known of the server's
// time. Four round trips suffice for the reservation, and the read and the swap that follow. The server's time
// is estimated from the middle of a round trip of any length: a process far away needs reservations most.
func (c *serverClock) reservation(process string) rules.Reservation {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exact != nil {
		return rules.Reservation{By: process, From: c.exact(), Until: c.exact().Add(reservedFor)}
	}
	passed, ok := c.age()
	if !ok {
		return rules.Reservation{}
	}
	trip := clock.Elapsed(c.sent, c.received)
	from := c.at.Add(passed + trip/2)
	return rules.Reservation{By: process, From: from, Until: from.Add(min(max(reservedFor, 4*trip), rules.LongestReservation))}
}

// learnTime records the server's time of a read. After an error it forgets the time.
func (ls *Lines) learnTime(loaded store.Loaded, sent time.Time, err error) Now {
	ls.forgetTimeAfter(err)
	if err != nil {
		return Now{}
	}
	ls.Adopt(&loaded.Identity, sent)
	now := ls.server.learn(loaded.At, sent, clock.Now())
	now.In, now.Policies = store.GenerationOf(&loaded.Identity), loaded.Identity.Policies
	return now
}

// guess returns what is known without a read.
func (ls *Lines) guess() Now {
	now := ls.server.guess()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now.Policies = ls.identity.Policies
	return now
}

// forgetTimeAfter forgets the server's time after an error, because another server may answer next.
func (ls *Lines) forgetTimeAfter(err error) {
	if err != nil {
		ls.server.forget()
	}
}

// Now returns a lower bound of the server's time, or zero if nothing is known.
func (ls *Lines) Now() Now { return ls.server.guess() }

// Learn records the server's time at, from the answer to a read that was sent at the local time sent.
func (ls *Lines) Learn(at, sent time.Time) Now { return ls.server.learn(at, sent, clock.Now()) }
