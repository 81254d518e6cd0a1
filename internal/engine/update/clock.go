package update

import (
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// serverClock estimates the time of the database's server from its latest answer.
type serverClock struct {
	mu sync.Mutex
	// at is the server's time of the latest answer, sent and received the local times of that command.
	// at is zero if nothing is known.
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
	// sampleWithin is the longest round trip of a sample. An answer may take seconds, or be read after
	// the process was stopped. Leases that are dated by such an answer would have ended when they are
	// granted, and would be renewed again and again.
	sampleWithin = 250 * time.Millisecond
)

func (c *serverClock) learn(at, sent, received time.Time) Now {
	c.mu.Lock()
	defer c.mu.Unlock()
	if clock.Elapsed(sent, received) <= sampleWithin {
		c.at, c.sent, c.received = at, sent, received
	}
	return Now{At: at, Sent: sent}
}

func (c *serverClock) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Time{}
}

// guess returns a lower bound of the server's time, or zero if nothing is known.
func (c *serverClock) guess() Now {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := clock.Now()
	if c.exact != nil {
		return Now{At: c.exact(), Sent: now}
	}
	if c.at.IsZero() {
		return Now{}
	}
	if clock.Elapsed(c.received, now) > sampleLasts {
		return Now{}
	}
	passed := max(0, clock.ElapsedAtLeast(c.received, now)).Truncate(time.Millisecond)
	return Now{At: c.at.Add(passed), Sent: c.sent.Add(passed)}
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
