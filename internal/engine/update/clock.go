package update

import (
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// serverClock is the latest time that the database's server has told, and when.
type serverClock struct {
	mu sync.Mutex
	// at came with an answer that was received then, to a command that was sent then. They are zero
	// if nothing is known.
	at, sent, received time.Time
	// exact, if it is set, returns the server's time without a command: see Exact.
	exact func() time.Time
}

// Exact is implemented by a store in memory whose clock may jump, because a test sets it. A sample of
// such a clock says nothing about the next moment.
type Exact interface {
	ServerTime() time.Time
}

const (
	// sampleLasts is how long a sample of the server's time is used.
	sampleLasts = 10 * time.Second
	// sampleWithin is the longest round trip of a sample. The answer to a command may take seconds, or
	// be read after the process was stopped. Leases that are dated by such an answer would be over as
	// soon as they are granted, and would be renewed again and again.
	sampleWithin = 250 * time.Millisecond
)

func (c *serverClock) learn(at, sent, received time.Time) Now {
	c.mu.Lock()
	defer c.mu.Unlock()
	if max(received.Sub(sent), received.Round(0).Sub(sent.Round(0))) <= sampleWithin {
		c.at, c.sent, c.received = at, sent, received
	}
	return Now{At: at, Sent: sent}
}

func (c *serverClock) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Time{}
}

// guess returns a time that the server's clock has reached. For the lower bound the time that has
// passed since is the smaller one of what the monotonic and the wall clock say: the former stops
// while a machine is suspended, and the latter may be set.
func (c *serverClock) guess() Now {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.exact != nil {
		return Now{At: c.exact(), Sent: now}
	}
	if c.at.IsZero() {
		return Now{}
	}
	monotonic, wall := now.Sub(c.received), now.Round(0).Sub(c.received.Round(0))
	if max(monotonic, wall) > sampleLasts {
		return Now{}
	}
	passed := max(0, min(monotonic, wall)).Truncate(time.Millisecond)
	return Now{At: c.at.Add(passed), Sent: c.sent.Add(passed)}
}

// learn notes the server's time of a read.
func (ls *Lines) learnTime(loaded store.Loaded, sent time.Time, err error) (Now, error) {
	if err != nil {
		ls.server.forget()
		return Now{}, err
	}
	return ls.server.learn(loaded.At, sent, time.Now()), nil
}

// heard forgets the server's time after an error: another server may answer next.
func (ls *Lines) forgetTimeAfter(err error) {
	if err != nil {
		ls.server.forget()
	}
}

// Now is the server's time as far as it is known.
func (ls *Lines) Now() Now { return ls.server.guess() }

// Learn notes the server's time of a read that was sent then.
func (ls *Lines) Learn(at, sent time.Time) Now { return ls.server.learn(at, sent, time.Now()) }
