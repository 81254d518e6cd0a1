package mongolock

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Purger ends locks that expired.
type Purger interface {
	// Purge ends every lock that has expired, tells what they were, the newest first, and removes the documents
	// that GC removes. A lock that has not expired stands, also where another of the same lock ID has.
	Purge(ctx context.Context) ([]LockStatus, error)
}

// NewPurger makes a Purger for the collection of client. Nothing needs one to go on: an expired lock keeps nobody out
// but the clients of mongo-lock.
func NewPurger(client *Client) Purger { return purger{client} }

type purger struct{ client *Client }

func (p purger) Purge(ctx context.Context) ([]LockStatus, error) {
	purged := []LockStatus{}
	locks, err := p.client.eng.Locks(ctx, "", "", "")
	if err != nil {
		return purged, fmt.Errorf("mongolock: purge: %w", err)
	}
	expired := map[string][]LockStatus{} // by resource
	for i := range locks {
		if l := &locks[i]; l.ExpiresAt != nil && !l.ExpiresAt.After(l.Now) {
			expired[l.Resource] = append(expired[l.Resource], statusOf(l))
		}
	}
	for resource, statuses := range expired {
		d, repeated, err := repeat(ctx, func() (engine.Document, error) {
			return p.client.eng.Purge(ctx, engine.Purge{Policy: policy, Resource: resource, Reason: "purged"})
		})
		if err != nil {
			return purged, fmt.Errorf("mongolock: purge %q: %w", resource, err)
		}
		ended := map[string]bool{}
		for _, e := range d.Last.Expired {
			ended[e.LockID] = true
		}
		for _, s := range statuses { // of those that expired, some may have been renewed by a client of mongo-lock
			if repeated || ended[s.LockId] {
				purged = append(purged, s)
			}
		}
	}
	sort.Stable(LockStatusesByCreatedAtDesc(purged))
	return purged, p.client.GC(ctx)
}

// retention is how long a document remembers what was released, and which fences were given: lockcore's default.
const retention = 24 * time.Hour

// GC removes the documents of resources that nobody holds: those that only mongo-lock clients wrote at once, and those
// that this library wrote a day after its last write. A resource that lockcore's clients wait for, or may
// still trust, is left alone.
func (c *Client) GC(ctx context.Context) error {
	if err := c.eng.Collect(ctx, retention); err != nil {
		return fmt.Errorf("mongolock: gc: %w", err)
	}
	return nil
}
