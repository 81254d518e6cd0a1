package update

import (
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// serverClock estimates the time of the database's server from its latest answers.
type serverClock struct {
	mu sync.Mutex
	// latest is the latest sample, and close the latest of a short round trip. They are zero if nothing is known.
	latest, close serverTime
	// exact, if set, returns the server's time without a command. See Exact.
	exact func() time.Time
}

// serverTime is the server's time at of one answer, with the local times of its command.
type serverTime struct {
	at, sent, received time.Time
}

func (s *serverTime) roundTrip() time.Duration { return clock.Elapsed(s.sent, s.received) }

// age returns a lower bound of the time since the answer, or ok false if it is too old.
func (s *serverTime) age() (passed time.Duration, ok bool) {
	now := clock.Now()
	return max(0, clock.ElapsedAtLeast(s.received, now)).Truncate(time.Millisecond), !s.at.IsZero() && clock.Elapsed(s.received, now) <= sampleLasts
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

func (c *serverClock) learn(at, sent, received time.Time) Now {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest = serverTime{at, sent, received}
	if c.latest.roundTrip() <= sampleWithin {
		c.close = c.latest
	}
	return Now{At: at, Sent: sent}
}

func (c *serverClock) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest, c.close = serverTime{}, serverTime{}
}

// guess returns a lower bound of the server's time, or zero if nothing is known.
func (c *serverClock) guess() Now {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exact != nil {
		return Now{At: c.exact(), Sent: clock.Now()}
	}
	passed, ok := c.close.age()
	if !ok {
		return Now{}
	}
	return Now{At: c.close.at.Add(passed), Sent: c.close.sent.Add(passed)}
}

// reservedUntil returns the end of a reservation that is made now, or zero if nothing is known of the server's
// time. Four round trips suffice for the reservation, and the read and the swap that follow. The server's time
// is estimated from the middle of a round trip of any length: a process far away needs reservations most.
func (c *serverClock) reservedUntil() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exact != nil {
		return c.exact().Add(reservedFor)
	}
	of := c.close
	passed, ok := of.age()
	if !ok {
		of = c.latest
		if passed, ok = of.age(); !ok {
			return time.Time{}
		}
	}
	trip := of.roundTrip()
	return of.at.Add(passed + trip/2 + min(max(reservedFor, 4*trip), rules.LongestReservation))
}

// learnTime records the server's time of a read. After an error it forgets the time.
func (ls *Lines) learnTime(loaded store.Loaded, sent time.Time, err error) Now {
	ls.forgetTimeAfter(err)
	if err != nil {
		return Now{}
	}
	ls.Adopt(&loaded.Identity)
	now := ls.server.learn(loaded.At, sent, clock.Now())
	now.In = store.GenerationOf(&loaded.Identity)
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
