// Package repair does what operators do to a whole collection of locks: it releases everything, and records that the
// collection replaces another one.
package repair

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Cleared is what [Clear] did.
type Cleared struct {
	// ID is that of the collection.
	ID string
	// Holds and Claims are what was ended, on a number of Resources.
	Resources, Holds, Claims int
	// Deleted names the documents that could not be decoded.
	Deleted []string
}

// hold names a hold: it has an entry for each part.
type hold struct {
	lockID     string
	firstFence int64
}

// Clear releases everything in a collection by force, for example after a backup was restored, which brings back holds that were lost later.
// It ends all holds and claims, document by document, by ordinary swaps: parts that may still be at work keep others out until they leave or
// expire; queues, fences and records stay. It then changes the epoch, so that every Locker drops what it knows within ten seconds, and deletes
// documents that cannot be decoded, which no process can bring back in the new epoch.
//
// It may be repeated, and must be after an error, with which it returns what was done until then.
func Clear(ctx context.Context, locker *party.Locker, coll *mongo.Collection, reason string) (c Cleared, err error) {
	s := store.New(coll)
	var damaged []string
	for d, err := range s.List(ctx, rules.Query{}) {
		bad := new(lockcore.DamagedError)
		switch {
		case errors.As(err, &bad):
			damaged = append(damaged, bad.Resource)
		case err != nil:
			return c, err
		default:
			if err := c.release(ctx, locker, &d, reason); err != nil {
				return c, err
			}
		}
	}
	err = changeIdentity(ctx, coll, func(i *rules.Identity) error {
		i.Epoch, c.ID = rand.Text(), i.ID
		return nil
	})
	if err != nil {
		return c, err
	}
	for _, name := range damaged {
		deleted, err := deleteDamaged(ctx, s, coll, name)
		if err != nil {
			return c, err
		}
		if deleted {
			c.Deleted = append(c.Deleted, name)
		}
	}
	_, err = locker.CollectionID(ctx) // so that this process notices, too
	return c, err
}

// release ends the holds and claims of a document.
func (c *Cleared) release(ctx context.Context, locker *party.Locker, d *rules.Document, reason string) error {
	ended := map[hold]bool{}
	claims := 0
	for i := range d.Entries {
		e := &d.Entries[i]
		of := hold{e.LockID, e.FirstFence}
		switch {
		case e.Holds() && !ended[of]:
			if err := locker.Revoke(ctx, d.ID, e.LockID, e.FirstFence, reason, false); err != nil {
				return err
			}
			ended[of] = true
		case e.State == rules.StateClaimed:
			order := party.Order{Schedule: uint32(e.Order >> 32), Attempt: uint32(e.Order)} //nolint:gosec // its two halves
			if _, err := locker.LeaveQueue(ctx, lockcore.Lease{Resource: d.ID, LockID: e.LockID, Run: e.Label, Part: e.Part, Order: order}); err != nil {
				return err
			}
			claims++
		}
	}
	if len(ended)+claims > 0 {
		c.Resources++
	}
	c.Holds += len(ended)
	c.Claims += claims
	return nil
}

// Replace records that a collection replaces the one with this ID, whose locks are lost. The last 20 IDs count. It may be repeated. The reason is
// for people.
func Replace(ctx context.Context, coll *mongo.Collection, id, reason string) error {
	return changeIdentity(ctx, coll, func(i *rules.Identity) error {
		if id == i.ID {
			return fmt.Errorf("%s is the ID of this collection itself: it needs no record, and none was made", id)
		}
		i.Replaces = slices.DeleteFunc(slices.Clone(i.Replaces), func(r rules.Replaced) bool { return r.ID == id })
		i.Replaces = append(i.Replaces, rules.Replaced{ID: id, Reason: reason})
		i.Replaces = i.Replaces[max(0, len(i.Replaces)-rules.MaxReplaces):]
		return nil
	})
}

// durable returns the collection for writes that outlast a failover.
func durable(coll *mongo.Collection) *mongo.Collection {
	journal := true
	concern := writeconcern.Majority()
	concern.Journal = &journal
	return coll.Clone(options.Collection().SetWriteConcern(concern))
}

// changeIdentity reads the identity and sends one update, until nobody changed it in between or a command fails.
func changeIdentity(ctx context.Context, coll *mongo.Collection, change func(*rules.Identity) error) error {
	for {
		was, err := store.New(coll).Identify(ctx)
		if err != nil {
			return err
		}
		is := was
		if err := change(&is); err != nil {
			return err
		}
		filter := bson.D{{Key: "_id", Value: store.IdentityID}, {Key: "id", Value: was.ID}, {Key: "epoch", Value: was.Epoch}, {Key: "replaces", Value: was.Replaces}}
		set := bson.D{{Key: "$set", Value: bson.D{{Key: "epoch", Value: is.Epoch}, {Key: "replaces", Value: is.Replaces}}}}
		res, err := durable(coll).UpdateOne(ctx, filter, set)
		if err != nil {
			return fmt.Errorf("change the identity of %s: %w", coll.Name(), err)
		}
		if res.MatchedCount > 0 {
			return nil
		}
	}
}

// deleteDamaged reads a document and, if it still cannot be decoded, sends one delete. It has three outcomes: the document is deleted; it is another
// one by now, and stays; or an error. Nothing else in Lockstep needs the right to remove documents.
func deleteDamaged(ctx context.Context, s *store.Mongo, coll *mongo.Collection, name string) (deleted bool, err error) {
	raw, err := coll.FindOne(ctx, bson.D{{Key: "_id", Value: name}}).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %q: %w", name, err)
	}
	for _, err := range s.List(ctx, rules.Query{Resource: name}) {
		if !errors.Is(err, party.ErrDamaged) { // it was mended, or could not be read
			return false, err
		}
	}
	filter := bson.D{{Key: "_id", Value: name}, {Key: "version", Value: nil}}
	if version, err := raw.LookupErr("version"); err == nil {
		filter[1].Value = bson.D{{Key: "$in", Value: bson.A{version}}} // also if it is an array or looks like an operator
	}
	res, err := durable(coll).DeleteOne(ctx, filter)
	if err != nil {
		return false, fmt.Errorf("delete %q: %w", name, err)
	}
	return res.DeletedCount > 0, nil
}
