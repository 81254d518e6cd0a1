package mongolock

import (
	"context"
	"fmt"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Unlock ends all locks of lockID, the newest first, and tells what they were, in that order. That there is none is no
// error. It ends the locks that it finds: one that is taken in the name of lockID meanwhile stands.
//
// An error is the database's: locks may be left, and what was ended before it is told. Call it again.
func (c *Client) Unlock(ctx context.Context, lockID string) ([]LockStatus, error) {
	unlocked := []LockStatus{}
	if err := checkLockID(lockID); err != nil {
		return unlocked, err
	}
	found, err := c.Status(ctx, Filter{LockId: lockID})
	if err != nil {
		return unlocked, err
	}
	for i := range found {
		lock := &found[i]
		d, repeated, err := repeat(ctx, func() (engine.Document, error) {
			return c.eng.Unlock(ctx, policy, lock.Resource, lockID, lock.began())
		})
		if err != nil {
			return unlocked, fmt.Errorf("mongolock: unlock %q of %q: %w", lock.Resource, lockID, err)
		}
		// One that is gone when the command is repeated was ended by the first.
		if repeated || d.Last.Outcome == engine.Granted {
			unlocked = append(unlocked, *lock)
		}
	}
	return unlocked, nil
}

// Renew gives all locks of lockID a TTL of ttl seconds, 1 to ten years, from now, and tells how they stand then. A lock
// needs at least a second left to be renewed; one without an end gets one. Where a lock has less, or there is none, the answer is
// ErrLockNotFound: whoever gets it can trust none of the locks any more, and should unlock.
//
// Any other error says nothing of the locks. They stand as long as they did, or were renewed.
func (c *Client) Renew(ctx context.Context, lockID string, ttl uint) ([]LockStatus, error) {
	renewed := []LockStatus{}
	if err := checkLockID(lockID); err != nil {
		return renewed, err
	}
	if err := checkTTL("ttl", ttl, 1); err != nil {
		return renewed, err
	}
	found, err := c.Status(ctx, Filter{LockId: lockID})
	if err != nil {
		return renewed, err
	}
	if len(found) == 0 {
		return renewed, ErrLockNotFound
	}
	for i := range found {
		if found[i].TTL == 0 { // renewing the others would promise nothing
			return renewed, ErrLockNotFound
		}
	}
	for _, lock := range found {
		d, _, err := repeat(ctx, func() (engine.Document, error) {
			return c.eng.Extend(ctx, policy, lock.Resource, lockID, lock.began(), seconds(ttl))
		})
		switch {
		case err != nil:
			return renewed, fmt.Errorf("mongolock: renew %q of %q: %w", lock.Resource, lockID, err)
		case d.Last.Outcome != engine.Granted:
			return renewed, ErrLockNotFound
		}
		lock.RenewedAt, lock.TTL = &d.At, 0
		for j := range d.Held {
			if e := &d.Held[j]; e.LockID == lockID && e.Holds() {
				lock.TTL = max(lock.TTL, whole(e.ExpiresAt.Sub(d.At)))
			}
		}
		renewed = append(renewed, lock)
	}
	return renewed, nil
}
