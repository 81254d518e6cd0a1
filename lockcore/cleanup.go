package lockcore

import (
	"context"
	"sync"
	"time"
)

// cleaner ends in the background what requests have left that gave up. It goes on until it is known
// to have ended: a request whose outcome is unknown may hold for ever.
//
// A request that gives up is left twice if one of its answers was lost: at once, and when no copy
// of a command can be on its way any more. A copy that arrives in between, when the records of the
// document have forgotten the first time, so holds nothing for longer than that.
type cleaner struct {
	locker *Locker

	mu      sync.Mutex
	pending map[*Lease]bool
}

const (
	cleanupPause   = 250 * time.Millisecond
	longestCleanup = 30 * time.Second
)

// giveUp leaves what a request got, or may have got, although its context may have ended. What
// cannot be left now is left in the background.
func (l *Locker) giveUp(ctx context.Context, leases ...Lease) {
	ctx, cancel := l.detached(ctx)
	defer cancel()
	for _, lease := range leases {
		if err := l.leaveOne(ctx, lease, lease.began); err != nil {
			l.cleaner.later(ctx, lease, cleanupPause)
		}
	}
}

// leaveLate leaves again what was left, if a late copy of a lost command may still come.
func (l *Locker) leaveLate(ctx context.Context, lease Lease) {
	if lease.lostAt.IsZero() {
		return
	}
	wait := commandTimeout - time.Since(lease.lostAt)
	lease.lostAt = time.Time{}
	if wait > 0 {
		l.cleaner.later(ctx, lease, wait)
	}
}

// later leaves a lease after a pause, and goes on until that is known to have been done, or what
// there may be has ended by itself.
func (c *cleaner) later(ctx context.Context, lease Lease, pause time.Duration) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(c.locker.life.closed, cancel)
	job := &lease
	c.mu.Lock()
	c.pending[job] = true
	c.mu.Unlock()
	c.locker.life.cleanups.add()
	go func() {
		defer c.locker.life.cleanups.done()
		defer cancel()
		defer stop()
		if c.locker.clean(ctx, lease, pause) {
			c.mu.Lock()
			delete(c.pending, job)
			c.mu.Unlock()
		}
	}()
}

// clean reports whether nothing is left of a lease.
func (l *Locker) clean(ctx context.Context, lease Lease, pause time.Duration) bool {
	began, stands := time.Now(), max(lease.ttl, l.cfg.WaiterTTL)+commandTimeout
	for {
		if !sleep(ctx, l.clock, pause) {
			return false
		}
		if l.leaveOne(ctx, lease, lease.began) == nil || (!lease.forever && time.Since(began) > stands) {
			return true
		}
		pause = min(max(2*pause, cleanupPause), longestCleanup)
	}
}

// left are the leases of which it is not known that they have ended.
func (c *cleaner) left() []Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Lease
	for lease := range c.pending {
		out = append(out, *lease)
	}
	return out
}
