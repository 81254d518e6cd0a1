package mongolock

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Unlock ends all locks of lockID, the newest first, and returns what they were, in that order. That there is none is no
// error. It ends the locks that it finds: one that is taken in the name of lockID meanwhile stands.
//
// An error is the database's: locks may be left, and those that were ended before it are returned. Call it again.
func (c *Client) Unlock(ctx context.Context, lockID string) ([]LockStatus, error) {
	if err := checkLockID(lockID); err != nil {
		return []LockStatus{}, err
	}
	found, err := c.list(ctx, &Filter{LockId: lockID})
	if err != nil {
		return []LockStatus{}, err
	}
	for i := range found {
		if err := c.end(ctx, &found[i]); err != nil {
			return statusesOf(found[:i]), fmt.Errorf("mongolock: unlock %q of %q: %w", found[i].status.Resource, lockID, err)
		}
	}
	return statusesOf(found), nil
}

// Renew gives all locks of lockID a TTL of ttl seconds, 1 to ten years, from now, and returns how they stand then, the
// newest first. A lock needs at least a second left to be renewed; one without an end gets one. If a lock has less, or
// there is none, the answer is ErrLockNotFound: whoever gets it can trust none of the locks any more, and should unlock.
//
// Any other error says nothing of the locks. They stand as long as they did, or were renewed.
func (c *Client) Renew(ctx context.Context, lockID string, ttl uint) ([]LockStatus, error) {
	if err := checkLockID(lockID); err != nil {
		return []LockStatus{}, err
	}
	if err := checkTTL("ttl", ttl, 1); err != nil {
		return []LockStatus{}, err
	}
	found, err := c.list(ctx, &Filter{LockId: lockID})
	if err != nil {
		return []LockStatus{}, err
	}
	if len(found) == 0 {
		return []LockStatus{}, ErrLockNotFound
	}
	for i := range found {
		if found[i].status.TTL == 0 { // renewing the others would promise nothing
			return []LockStatus{}, ErrLockNotFound
		}
	}
	for i := range found {
		if err := c.renew(ctx, &found[i], ttl); err != nil {
			return statusesOf(found[:i]), err
		}
	}
	return statusesOf(found), nil
}

// renew gives a lock a new TTL.
func (c *Client) renew(ctx context.Context, l *lock, ttl uint) error {
	op := engine.Renew{
		Policy: policy, Resource: l.status.Resource, LockID: l.name, Part: part, Order: int64(order.Attempt), TTL: seconds(ttl).Milliseconds(),
	}
	d, err := c.eng.Renew(ctx, op)
	for try := 1; try < tries && mongo.IsNetworkError(err) && ctx.Err() == nil; try++ {
		d, err = c.eng.Renew(ctx, op)
	}
	switch {
	case err != nil:
		return fmt.Errorf("mongolock: renew %q of %q: %w", l.status.Resource, l.status.LockId, err)
	case d.Last.Outcome != engine.Granted:
		return ErrLockNotFound
	}
	l.status.RenewedAt, l.status.TTL = &d.At, int64(ttl) //nolint:gosec // ten years at most
	return nil
}

// tries is how often a renewal is sent while its answer is lost.
const tries = 3

// policy is lockcore's default: how long a waiter of a Locker, to whom a renewal grants the resource, has to take it up.
var policy = engine.Policy{ClaimTTL: 30_000}
