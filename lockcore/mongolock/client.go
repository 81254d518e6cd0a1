package mongolock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/temporal-lockstep/lockstep/lockcore"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
)

// Client acquires, renews and releases locks in one collection. It is safe for concurrent use. Any
// Client of the collection can unlock and renew a lock ID.
type Client struct {
	locker *lockcore.Steps
	store  store.Store
	lines  *update.Lines
	closed atomic.Bool
}

// NewClient returns a Client on collection. It sends nothing to the database; call CreateIndexes once
// per deployment. The collection is cloned with majority, journaled writes, majority reads and the
// primary, whatever its own settings are.
func NewClient(collection *mongo.Collection) *Client {
	locks := store.New(collection)
	locker, err := lockcore.NewWithStore(locks, lockcore.Config{})
	if err != nil {
		panic(err) // the instruments of the global meter provider are refused: a mistake in the program
	}
	return &Client{locker: locker.Steps(), store: locks, lines: update.New(locks, clock.Real{}, settings)}
}

// Close waits, until ctx ends, for background work that undoes requests whose answers were lost, so that
// no late copy of one acquires a lock. Locks stay held. Later calls of the Client return lockcore.ErrClosed.
func (c *Client) Close(ctx context.Context) error {
	c.closed.Store(true)
	defer c.lines.Close()
	return c.locker.Close(ctx)
}

// CreateIndexes creates the index that removes the documents of idle resources. Locks work without
// it, but their documents stay forever. It may be called again at any time. A collection in another
// layout, such as that of the package mongo-lock, is refused with a *lockcore.LayoutError.
func (c *Client) CreateIndexes(ctx context.Context) error { return c.locker.CreateIndexes(ctx) }

// XLock acquires an exclusive lock on a resource for lockID. It returns ErrAlreadyLocked if another
// lock ID holds the resource and its lock has not expired, or if lockID itself holds it. An expired
// lock is replaced, without a purge.
//
// After any other error it is unknown whether the lock was taken, unless the error is a
// *lockcore.InvalidError or a *lockcore.LayoutError. Unlock releases it.
func (c *Client) XLock(ctx context.Context, resourceName, lockID string, ld LockDetails) error {
	_, err := c.take(ctx, lockcore.Exclusive(resourceName), lockID, &ld)
	return err
}

// SLock acquires a shared lock on a resource for lockID. Others may hold shared locks at the same
// time. If maxConcurrent is not negative, the lock is granted only while fewer than maxConcurrent
// others hold the resource, so 0 is never granted. A negative maxConcurrent means that the number is
// not limited. The errors are those of XLock.
func (c *Client) SLock(ctx context.Context, resourceName, lockID string, ld LockDetails, maxConcurrent int) error {
	if err := checkLockID(lockID); err != nil {
		return err
	}
	if maxConcurrent == 0 {
		return ErrAlreadyLocked
	}
	res := lockcore.Shared(resourceName)
	if maxConcurrent > 0 && maxConcurrent <= mostLimit { // a document cannot hold more, so it need not be limited
		res.Limit = maxConcurrent
	}
	lease, err := c.take(ctx, res, lockID, &ld)
	if err != nil {
		return err
	}
	return c.once(ctx, lockID, &lease)
}

// mostLimit and maxTTL, in seconds, are lockcore's.
const (
	mostLimit = 1_000_000
	maxTTL    = 10 * 365 * 24 * 60 * 60
)

// seconds of more than maxTTL is a duration that lockcore refuses.
func seconds(n uint) time.Duration { return time.Duration(min(n, maxTTL+1)) * time.Second }

// take requests a lock under a unique lock ID of lockcore, because locks of one lock ID exclude each
// other here, and do not in lockcore.
func (c *Client) take(ctx context.Context, res lockcore.Resource, lockID string, ld *LockDetails) (lockcore.Lease, error) {
	if err := checkLockID(lockID); err != nil {
		return lockcore.Lease{}, err
	}
	req := lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: nameOf(lockID), Part: part, Order: order}, Resources: []lockcore.Resource{res}, TTL: lockcore.Forever,
		Owner: ld.Owner, Host: storedHost(ld.Host), Comment: ld.Comment,
	}
	if ld.TTL > 0 {
		req.TTL = seconds(ld.TTL)
	}
	leases, err := c.locker.TryEnter(ctx, req)
	var invalid *lockcore.InvalidError
	switch {
	case errors.Is(err, lockcore.ErrBusy):
		return lockcore.Lease{}, ErrAlreadyLocked
	case errors.As(err, &invalid):
		invalid.Field = argumentOf.Replace(invalid.Field)
		return lockcore.Lease{}, invalid
	case err != nil:
		return lockcore.Lease{}, fmt.Errorf("mongolock: lock %q for %q: %w", res.Name, lockID, err)
	}
	return leases[0], nil
}

// argumentOf names the argument that became a field of a lockcore.StepRequest.
var argumentOf = strings.NewReplacer("Request.Resources[0].Name", "resourceName", "Request.", "LockDetails.")

// once ensures that a lock ID has at most one shared lock on a resource. If there are two, the lock
// that was granted later finds the earlier lock and is released. If the earlier lock has expired, it is ended
// instead.
func (c *Client) once(ctx context.Context, lockID string, mine *lockcore.Lease) error {
	found, err := c.Status(ctx, Filter{Resource: mine.Resource, LockId: lockID})
	var errs []error
	for i := range found {
		switch l := &found[i]; {
		case l.name == mine.LockID || l.fence > mine.Fence:
		case l.expired:
			errs = append(errs, c.end(ctx, l))
		default:
			if err = c.locker.Leave(ctx, *mine); err == nil {
				return ErrAlreadyLocked
			}
		}
	}
	if err = errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("mongolock: lock %q for %q: %w", mine.Resource, lockID, err)
	}
	return nil
}

// A lock is stored as a hold of a lock ID that consists of this prefix, the caller's lock ID, and
// an ObjectID, which orders the locks that one process took within a millisecond.
const (
	prefix    = "mongo-lock/"
	idLen     = 2 * len(bson.ObjectID{})
	maxLockID = 512 - len(prefix) - 1 - idLen
)

// part is the only part of each hold, and order its only order.
const part = "mongo-lock"

var order = lockcore.Order{Attempt: 1}

func nameOf(lockID string) string { return prefix + lockID + "/" + bson.NewObjectID().Hex() }

func parse(name string) (lockID string, id bson.ObjectID, ok bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	at := len(rest) - idLen - 1
	if !ok || at < 1 || rest[at] != '/' {
		return "", id, false
	}
	id, err := bson.ObjectIDFromHex(rest[at+1:])
	return rest[:at], id, err == nil
}

// storedHost returns what lockcore stores for a host. lockcore replaces an empty one by its default,
// and mongo-lock has none. So a host that consists of dashes, or is empty, is stored with one more.
func storedHost(host string) string {
	if onlyDashes(host) {
		return host + "-"
	}
	return host
}

// givenHost is the inverse of storedHost.
func givenHost(stored string) string {
	if onlyDashes(stored) {
		return strings.TrimSuffix(stored, "-")
	}
	return stored
}

func onlyDashes(s string) bool { return strings.Trim(s, "-") == "" }

// checkLockID refuses a lock ID that cannot be part of a stored lock ID, before the database is asked.
func checkLockID(lockID string) error {
	if len(lockID) >= 1 && len(lockID) <= maxLockID && utf8.ValidString(lockID) && !strings.ContainsRune(lockID, 0) {
		return nil
	}
	return &lockcore.InvalidError{
		Field: "lockId", Value: strconv.Quote(lockID[:min(len(lockID), 64)]), Bound: fmt.Sprintf("1 to %d bytes of valid UTF-8 without NUL", maxLockID),
	}
}
