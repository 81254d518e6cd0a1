package mongolock

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Status lists the locks that match f, the newest first. Locks that expired are among them until they are purged
// or their room is needed. It reads what a majority has. Locks of a lockcore.Locker are not listed.
func (c *Client) Status(ctx context.Context, f Filter) ([]LockStatus, error) {
	locks, err := c.list(ctx, &f)
	return statusesOf(locks), err
}

// lock is one lock as it is stored.
type lock struct {
	status  LockStatus
	name    string
	fence   int64
	expired bool
}

// list reads the locks that match f, the newest first.
func (c *Client) list(ctx context.Context, f *Filter) ([]lock, error) {
	locks := []lock{}
	q := engine.Query{Resource: f.Resource, LockIDPrefix: prefix}
	if f.LockId != "" {
		q.LockIDPrefix = prefix + f.LockId + "/"
	}
	for d, err := range c.eng.List(ctx, q) {
		if err != nil {
			return nil, fmt.Errorf("mongolock: status: %w", err)
		}
		for _, l := range locksOf(&d) {
			if f.matches(&l.status) {
				locks = append(locks, l)
			}
		}
	}
	sort.SliceStable(locks, func(i, j int) bool { return newer(&locks[i].status, &locks[j].status) })
	return locks, nil
}

// locksOf lists the locks in a document that this package made.
func locksOf(d *engine.Document) []lock {
	var locks []lock
	for i := range d.Held {
		e := &d.Held[i]
		lockID, id, ok := parse(e.LockID)
		if !ok || e.State != engine.Part || e.Part != part {
			continue
		}
		l := lock{name: e.LockID, fence: e.Fence, expired: !e.ExpiresAt.After(d.At), status: LockStatus{
			Resource: d.ID, LockId: lockID, Type: LOCK_TYPE_SHARED, Owner: e.Owner, Host: e.Host, Comment: e.Comment,
			RenewedAt: e.RenewedAt, TTL: -1, objectID: id,
		}}
		if e.Mode == engine.Exclusive {
			l.status.Type = LOCK_TYPE_EXCLUSIVE
		}
		if e.CreatedAt != nil {
			l.status.CreatedAt = *e.CreatedAt
		}
		if e.TTL > 0 {
			l.status.TTL = whole(e.ExpiresAt.Sub(d.At))
		}
		locks = append(locks, l)
	}
	return locks
}

// whole is how many whole seconds are left.
func whole(left time.Duration) int64 { return int64(max(left, 0) / time.Second) }

func statusesOf(locks []lock) []LockStatus {
	statuses := make([]LockStatus, len(locks))
	for i := range locks {
		statuses[i] = locks[i].status
	}
	return statuses
}

// end ends a lock. Another one that was taken meanwhile has another name, and stands.
func (c *Client) end(ctx context.Context, l *lock) error {
	return c.locker.Leave(ctx, lockcore.Lease{Resource: l.status.Resource, LockID: l.name, Part: part, Order: order})
}
