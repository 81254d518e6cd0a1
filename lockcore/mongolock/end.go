package mongolock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/temporal-lockstep/lockstep/internal/engine/update"
	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// Unlock releases all locks of lockID, the newest first, and returns them in that order. It is not an
// error if there are none. A lock that lockID acquires during the call may stay.
//
// After an error of the database some locks may be left; the locks that were released before it are
// returned. Call Unlock again.
func (c *Client) Unlock(ctx context.Context, lockID string) ([]LockStatus, error) {
	found, damaged := c.locksOf(ctx, lockID)
	if damaged != nil && !errors.Is(damaged, lockcore.ErrDamaged) {
		return []LockStatus{}, damaged
	}
	ended, err := c.endAll(ctx, found, "unlock")
	return ended, errors.Join(err, damaged)
}

func (c *Client) endAll(ctx context.Context, locks []LockStatus, verb string) ([]LockStatus, error) {
	for i := range locks {
		if err := c.end(ctx, &locks[i]); err != nil {
			return locks[:i], fmt.Errorf("mongolock: %s %q of %q: %w", verb, locks[i].Resource, locks[i].LockId, err)
		}
	}
	return locks, nil
}

// end releases a lock. A lock that was acquired later has another stored lock ID, and is not released.
func (c *Client) end(ctx context.Context, l *LockStatus) error {
	return c.locker.Leave(ctx, lockcore.Lease{Resource: l.Resource, LockID: l.name, Part: part, Order: order})
}

// Renew gives all locks of lockID a TTL of ttl seconds from now, 1 second to ten years, and returns
// them, the newest first. A lock without an expiry gets one. A lock can be renewed only while at least
// a second of its TTL is left. If one has less, or none exist, Renew returns ErrLockNotFound:
// the locks can no longer be trusted, so unlock them.
//
// After any other error each lock either has its old expiry or was renewed.
func (c *Client) Renew(ctx context.Context, lockID string, ttl uint) ([]LockStatus, error) {
	if ttl < 1 || ttl > maxTTL {
		return []LockStatus{}, &lockcore.InvalidError{
			Field: "ttl", Value: strconv.FormatUint(uint64(ttl), 10), Bound: fmt.Sprintf("1 to %d seconds", maxTTL),
		}
	}
	found, err := c.locksOf(ctx, lockID)
	if err != nil {
		return []LockStatus{}, err
	}
	// If one is about to expire, the others are not worth renewing.
	if len(found) == 0 || slices.ContainsFunc(found, func(l LockStatus) bool { return l.TTL == 0 }) {
		return []LockStatus{}, ErrLockNotFound
	}
	for i := range found {
		if err := c.renew(ctx, &found[i], ttl); err != nil {
			return found[:i], err
		}
	}
	return found, nil
}

// renew gives a lock a new TTL.
func (c *Client) renew(ctx context.Context, l *LockStatus, ttl uint) error {
	op := rules.Renew{Policy: policy, Resource: l.Resource, Caller: rules.Caller{LockID: l.name, Part: part, Order: int64(order.Attempt)}, TTL: seconds(ttl).Milliseconds()}
	a := c.lines.Do(ctx, &update.Call{Op: op})
	switch {
	case a.Err != nil:
		return fmt.Errorf("mongolock: renew %q of %q: %w", l.Resource, l.LockId, public(a.Err))
	case a.Outcome != rules.Granted:
		return ErrLockNotFound
	}
	l.RenewedAt, l.TTL = &a.After.At, int64(ttl) //nolint:gosec // ten years at most
	return nil
}

// policy is lockcore's default: the time that a waiter of a Locker has to confirm a grant that a
// renewal makes.
var policy = rules.Policy{ClaimTTL: 30_000}

// Purger ends locks that expired.
type Purger interface {
	// Purge ends every lock that has expired, and all other locks of the same lock IDs, which their
	// holders can no longer trust. It returns them, the newest first. Holds of a lockcore.Locker stay. An
	// error that matches [lockcore.ErrDamaged] names documents that could not be decoded; all others were purged.
	Purge(ctx context.Context) ([]LockStatus, error)
}

// NewPurger returns a Purger for the collection of client. Purging is optional: an expired lock does
// not block others.
func NewPurger(client *Client) Purger { return purger{client} }

type purger struct{ client *Client }

func (p purger) Purge(ctx context.Context) ([]LockStatus, error) {
	all, damaged := p.client.Status(ctx, Filter{})
	if damaged != nil && !errors.Is(damaged, lockcore.ErrDamaged) {
		return []LockStatus{}, damaged
	}
	expired := map[string]bool{} // by lock ID; no renewal can save them, since it refuses what has expired
	for i := range all {
		expired[all[i].LockId] = expired[all[i].LockId] || all[i].expired
	}
	ended, err := p.client.endAll(ctx, slices.DeleteFunc(all, func(l LockStatus) bool { return !expired[l.LockId] }), "purge")
	return ended, errors.Join(err, damaged)
}

// GC does nothing: the database removes the documents of idle resources, a day after their last
// lock has ended. It is here for programs that call it.
func (c *Client) GC(context.Context) error { return nil }
