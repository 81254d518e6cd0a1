package mongolock

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/mongoengine"
)

// Client takes and ends locks in one collection. It is safe for concurrent use, and keeps nothing in memory: any
// client of the collection can unlock and renew by lock ID.
type Client struct{ eng *mongoengine.Shared }

// NewClient makes a Client on collection, which must not be nil. It asks the database nothing; call CreateIndexes once per
// deployment. The collection is cloned with majority, journaled writes, majority reads and the primary, whatever it was
// set to.
func NewClient(collection *mongo.Collection) *Client {
	return &Client{eng: mongoengine.NewShared(collection)}
}

// CreateIndexes makes the unique index on resource, without which nothing is locked, and those by which locks are found
// by their lock IDs. One that is there already stays as it is. It may be called again at any time. A collection in
// lockstep's own layout is refused with a *lockcore.LayoutError.
func (c *Client) CreateIndexes(ctx context.Context) error { return c.eng.Prepare(ctx) }

// XLock takes an exclusive lock on a resource in the name of lockID: nobody else holds the resource beside it. The answer
// is ErrAlreadyLocked where others hold it and their locks have not expired, and where lockID itself does. What
// expired gives way, without a purge.
//
// Any other error leaves open whether the lock was taken, unless it is a *lockcore.InvalidError, which names what is
// never accepted, or a *lockcore.LayoutError. Unlock takes it back.
func (c *Client) XLock(ctx context.Context, resourceName, lockID string, ld LockDetails) error {
	return c.lock(ctx, resourceName, lockID, ld, engine.Exclusive, 0)
}

// SLock takes a shared lock on a resource in the name of lockID, beside others that are shared. With maxConcurrent of 0
// or more it is granted only while fewer than so many other lock IDs hold the resource, so that 0 never is; a
// negative maxConcurrent is no limit. The answers are those of XLock.
func (c *Client) SLock(ctx context.Context, resourceName, lockID string, ld LockDetails, maxConcurrent int) error {
	// More than any document could hold is no limit.
	limit := int64(min(maxConcurrent, engine.Unlimited-1))
	if maxConcurrent < 0 {
		limit = 0
	}
	if maxConcurrent == 0 {
		if err := checkLock(resourceName, lockID, &ld); err != nil {
			return err
		}
		return ErrAlreadyLocked
	}
	return c.lock(ctx, resourceName, lockID, ld, engine.SharedBy, limit)
}

// claimTTL is how long a waiter of lockcore, to whom one of these writes grants the resource, has to take it up.
const claimTTL = 30 * time.Second

var policy = engine.Policy{ClaimTTL: claimTTL.Milliseconds()}

func (c *Client) lock(ctx context.Context, resource, lockID string, ld LockDetails, mode string, limit int64) error {
	if err := checkLock(resource, lockID, &ld); err != nil {
		return err
	}
	ttl := seconds(ld.TTL).Milliseconds()
	op := engine.Acquire{
		Policy: policy, Resource: resource, LockID: lockID, Mode: mode, Limit: limit, TTL: ttl, HoldTTL: ttl,
		// By its part the command is known again when it is repeated. Order 0 is that of locks by which nobody
		// trusts a lease.
		Part:  "mongo-lock/" + rand.Text()[:10],
		Owner: ld.Owner, Host: ld.Host, Comment: ld.Comment,
	}
	d, _, err := repeat(ctx, func() (engine.Document, error) { return c.eng.Lock(ctx, op) })
	if err != nil {
		return fmt.Errorf("mongolock: lock %q for %q: %w", resource, lockID, err)
	}
	if o := d.Last.Outcome; o != engine.Granted && o != engine.Again {
		return ErrAlreadyLocked
	}
	return nil
}

// repeat sends an operation again where the network failed and left open whether it took effect. It tells whether the
// answer is that of a repetition.
func repeat(ctx context.Context, send func() (engine.Document, error)) (d engine.Document, repeated bool, err error) {
	const tries = 3
	for try := range tries {
		d, err = send()
		if err == nil || !mongo.IsNetworkError(err) || ctx.Err() != nil {
			return d, try > 0, err
		}
	}
	return d, true, err
}
