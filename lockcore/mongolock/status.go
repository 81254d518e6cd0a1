package mongolock

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/internal/mongoengine"
)

// Status tells of the locks that match f, the newest first. Locks that expired are among them until they are purged
// or somebody else needs their room. It reads what a majority has.
func (c *Client) Status(ctx context.Context, f Filter) ([]LockStatus, error) {
	locks, err := c.eng.Locks(ctx, f.Resource, f.LockId, f.Owner)
	if err != nil {
		return []LockStatus{}, fmt.Errorf("mongolock: status: %w", err)
	}
	statuses := []LockStatus{}
	for i := range locks {
		if s := statusOf(&locks[i]); f.matches(&s) {
			statuses = append(statuses, s)
		}
	}
	sort.Stable(LockStatusesByCreatedAtDesc(statuses))
	return statuses, nil
}

func statusOf(l *mongoengine.Lock) LockStatus {
	s := LockStatus{
		Resource: l.Resource, LockId: l.LockID, Type: LOCK_TYPE_SHARED, Owner: l.Owner, Host: l.Host, Comment: l.Comment,
		RenewedAt: l.RenewedAt, TTL: -1, objectID: l.ObjectID,
	}
	if l.Exclusive {
		s.Type = LOCK_TYPE_EXCLUSIVE
	}
	if l.CreatedAt != nil {
		s.CreatedAt = *l.CreatedAt
	}
	if l.ExpiresAt != nil {
		s.TTL = whole(l.ExpiresAt.Sub(l.Now))
	}
	return s
}

// whole is how many whole seconds are left.
func whole(left time.Duration) int64 { return int64(max(left, 0) / time.Second) }

// began is CreatedAt as it is stored, which may be null.
func (s *LockStatus) began() *time.Time {
	if s.CreatedAt.IsZero() {
		return nil
	}
	return &s.CreatedAt
}
