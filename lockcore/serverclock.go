package lockcore

import (
	"context"
	"sync"
	"time"
)

// serverClock estimates the database server's time from its answers. It is never ahead of the server's clock, unless that
// was set back: a request that says when it was issued must not seem to be younger than it is.
type serverClock struct {
	mu sync.Mutex
	// at is the time in the last answer, and heard when that came. Both are zero before the first.
	at, heard time.Time
}

// learn takes in the time in an answer that has just come.
func (c *serverClock) learn(at time.Time) {
	if at.IsZero() {
		return
	}
	c.mu.Lock()
	c.at, c.heard = at, time.Now()
	c.mu.Unlock()
}

// now is the estimate, and zero before the first answer. Of the time that has passed since then on the monotonic clock and
// on the wall clock the smaller counts: one of them stops while the machine is suspended, and the other may be set.
func (c *serverClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return time.Time{}
	}
	now := time.Now()
	passed := min(now.Sub(c.heard), now.Round(0).Sub(c.heard.Round(0)))
	return c.at.Add(max(0, passed)).Truncate(time.Millisecond)
}

// issueTime is the server's time at which a command is issued now.
func (l *Locker) issueTime(ctx context.Context) (time.Time, error) {
	if now := l.server.now(); !now.IsZero() {
		return now, nil
	}
	id, err := l.eng.Identify(ctx)
	if err != nil {
		return time.Time{}, err
	}
	l.server.learn(id.At)
	return l.server.now(), nil
}

// CollectionID is the ID of the collection that the Locker keeps its locks in. Two Lockers exclude each other if they have the
// same. It asks the database.
func (l *Locker) CollectionID(ctx context.Context) (string, error) {
	id, err := l.eng.Identify(ctx)
	if err != nil {
		return "", failure("identify", "", Order{}, err, outcomeUnknown(err))
	}
	return id.ID, nil
}
