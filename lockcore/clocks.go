package lockcore

import (
	"context"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/clock"
)

// elapsed is how much time has passed, for trust: by the monotonic clock or by the process's own
// wall clock, whichever says more. The former stands still while the machine is suspended; the
// latter may be set back.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

func over(end, now time.Time) bool { return elapsed(end, now) >= 0 }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// sleep pauses for d, and reports whether ctx still lives.
func sleep(ctx context.Context, c clock.Clock, d time.Duration) bool {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// millis is a TTL as engines take it: 0 has no end.
func millis(d time.Duration) int64 {
	if d == Forever {
		return 0
	}
	return d.Milliseconds()
}

// remaining is what is left at now of a promise that ends at end.
func remaining(end, now time.Time) time.Duration {
	if !end.Before(engine.Never) {
		return Forever
	}
	return end.Sub(now)
}

// serverClock estimates the database server's time from its answers. It is never ahead of the
// server's clock, unless that was set back: a request that says when it was issued must not seem to
// be younger than it is.
type serverClock struct {
	mu sync.Mutex
	// at is the time in the last answer, and heard when that came. Both are zero before the first.
	at, heard time.Time
}

func (c *serverClock) learn(at time.Time) {
	if at.IsZero() {
		return
	}
	c.mu.Lock()
	c.at, c.heard = at, time.Now()
	c.mu.Unlock()
}

// now is the estimate, and zero before the first answer. Of the time that has passed since by the
// monotonic clock and by the wall clock the smaller counts, so that it does not run ahead.
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
