package mongolock

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// Status returns the locks that match f, the newest first. Expired locks are included until they are
// purged or replaced. It reads with majority read concern. Locks of a lockcore.Locker are not listed.
//
// A document that cannot be decoded hides no other: Status returns the locks in all others, and an error that
// matches [lockcore.ErrDamaged] and names each such document.
func (c *Client) Status(ctx context.Context, f Filter) ([]LockStatus, error) {
	locks := []LockStatus{}
	if c.closed.Load() {
		return locks, lockcore.ErrClosed
	}
	q := rules.Query{Resource: f.Resource, LockIDPrefix: prefix}
	if f.LockId != "" {
		q.LockIDPrefix = prefix + f.LockId + "/"
	}
	var damaged []error
	for d, err := range c.store.List(ctx, q) {
		switch {
		case errors.Is(err, lockcore.ErrDamaged):
			damaged = append(damaged, fmt.Errorf("mongolock: status: %w", public(err)))
			continue
		case err != nil:
			return []LockStatus{}, fmt.Errorf("mongolock: status: %w", public(err))
		}
		for _, l := range locksIn(&d) {
			if f.matches(&l) {
				locks = append(locks, l)
			}
		}
	}
	sort.Stable(LockStatusesByCreatedAtDesc(locks))
	return locks, errors.Join(damaged...)
}

// public returns an error of the engine with its type in package lockcore.
func public(err error) error {
	if layout := new(rules.LayoutError); errors.As(err, &layout) {
		return (*lockcore.LayoutError)(layout)
	}
	if damaged := new(store.DamagedError); errors.As(err, &damaged) {
		return (*lockcore.DamagedError)(damaged)
	}
	return err
}

// locksOf lists the locks of a lock ID, the newest first.
func (c *Client) locksOf(ctx context.Context, lockID string) ([]LockStatus, error) {
	if err := checkLockID(lockID); err != nil {
		return nil, err
	}
	return c.Status(ctx, Filter{LockId: lockID})
}

func locksIn(d *rules.Document) []LockStatus {
	var locks []LockStatus
	for i := range d.Entries {
		e := &d.Entries[i]
		lockID, id, ok := parse(e.LockID)
		if !ok || e.State != rules.StateRunning || e.Part != part {
			continue
		}
		l := LockStatus{
			Resource: d.ID, LockId: lockID, Type: LOCK_TYPE_SHARED, Owner: e.Owner, Host: givenHost(e.Host), Comment: e.Comment,
			RenewedAt: e.RenewedAt, TTL: -1, objectID: id, name: e.LockID, fence: e.Fence, expired: !e.ExpiresAt.After(d.At),
		}
		if e.Mode == rules.Exclusive {
			l.Type = LOCK_TYPE_EXCLUSIVE
		}
		if e.CreatedAt != nil {
			l.CreatedAt = *e.CreatedAt
		}
		if e.TTL > 0 {
			l.TTL = int64(max(e.ExpiresAt.Sub(d.At), 0) / time.Second)
		}
		locks = append(locks, l)
	}
	return locks
}
