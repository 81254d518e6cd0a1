package mongolock

import (
	"context"
	"fmt"
)

// Purger ends locks that expired.
type Purger interface {
	// Purge ends every lock that has expired, and all other locks of the same lock IDs, which their holders cannot trust
	// any more. It returns what they were, the newest first. What a lockcore.Locker holds stands.
	Purge(ctx context.Context) ([]LockStatus, error)
}

// NewPurger makes a Purger for the collection of client. Others need none to go on: an expired lock keeps nobody out.
func NewPurger(client *Client) Purger { return purger{client} }

type purger struct{ client *Client }

func (p purger) Purge(ctx context.Context) ([]LockStatus, error) {
	all, err := p.client.list(ctx, &Filter{})
	if err != nil {
		return []LockStatus{}, err
	}
	expired := map[string]bool{} // by lock ID; no renewal can save them, since it refuses what has expired
	for i := range all {
		expired[all[i].status.LockId] = expired[all[i].status.LockId] || all[i].expired
	}
	purged := []LockStatus{}
	for i := range all {
		if !expired[all[i].status.LockId] {
			continue
		}
		if err := p.client.end(ctx, &all[i]); err != nil {
			return purged, fmt.Errorf("mongolock: purge %q: %w", all[i].status.Resource, err)
		}
		purged = append(purged, all[i].status)
	}
	return purged, nil
}

// GC does nothing: the database removes the documents of idle resources, a day after their last lock
// has ended. It is here for programs that call it.
func (c *Client) GC(context.Context) error { return nil }
