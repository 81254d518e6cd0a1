// Package repair does what operators do to a whole collection of locks: it releases everything, and records that the
// collection replaces another one.
package repair

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// Cleared counts the entries that [Clear] ended.
type Cleared struct {
	// ID is that of the collection.
	ID string
	// Holds and Claims are what was ended, on a number of Resources.
	Resources, Holds, Claims int
	// Deleted names the documents that could not be decoded.
	Deleted []string
}

// Clear releases everything in a collection by force, for example after a backup was restored, which brings back holds that were lost later.
// It ends all holds and claims, document by document, by ordinary swaps: parts that may still be at work keep others out until they leave or
// expire; queues, fences and records stay. It then changes the epoch, so that every Locker drops what it knows within ten seconds, and deletes
// documents that cannot be decoded, which no process can bring back in the new epoch. These include documents that no client can have written,
// because no request could end what they contain.
//
// A document that it could not release does not stop it: the error at the end names it. Clear may be repeated, and must be after an error, with
// which it returns what was done until then.
func Clear(ctx context.Context, locker *lockcore.Steps, coll *mongo.Collection, reason string) (c Cleared, err error) {
	s := store.New(coll)
	var damaged []string
	var failed failures
	for d, err := range s.List(ctx, rules.Query{}) {
		bad := new(store.DamagedError)
		switch {
		case errors.As(err, &bad):
			damaged = append(damaged, bad.Resource)
		case err != nil:
			return c, err
		default:
			if err := c.release(ctx, locker, s, &d, reason); err != nil {
				failed.add(d.ID, err)
			}
		}
	}
	err = store.New(coll).ChangeIdentity(ctx, func(_ bson.Raw, i *rules.Identity) (bson.D, error) {
		c.ID = i.ID
		return bson.D{{Key: "epoch", Value: rand.Text()}}, nil
	})
	if err != nil {
		return c, errors.Join(failed.err(), err)
	}
	for _, name := range damaged {
		deleted, err := deleteDamaged(ctx, s, coll, name)
		if err != nil {
			failed.add(name, err)
		}
		if deleted {
			c.Deleted = append(c.Deleted, name)
		}
	}
	_, err = locker.CollectionID(ctx) // so that this process notices, too
	return c, errors.Join(failed.err(), err)
}

// failures are the documents with which Clear failed.
type failures struct {
	count int
	errs  []error
}

// maxFailures bounds the documents that an error names.
const maxFailures = 5

func (f *failures) add(name string, err error) {
	if f.count++; f.count <= maxFailures {
		f.errs = append(f.errs, fmt.Errorf("%q: %w", name, err))
	}
}

// err returns an error that names the documents, or nil if there are none.
func (f *failures) err() error {
	if f.count == 0 {
		return nil
	}
	more := ""
	if f.count > maxFailures {
		more = fmt.Sprintf(", the first %d of them", maxFailures)
	}
	return fmt.Errorf("%s could not be released or deleted%s: %w", table.Count(f.count, "document"), more, errors.Join(f.errs...))
}

// tries bounds how often a change is tried that others may prevent, and pause is the time between two tries.
const (
	tries = 10
	pause = 100 * time.Millisecond
)

// release ends the holds and claims of a document. If a claim was confirmed since the document was read, it reads the document again, and ends
// the hold that the claim has become. Holds of other lock IDs that began since then stay.
func (c *Cleared) release(ctx context.Context, locker *lockcore.Steps, s *store.Mongo, d *rules.Document, reason string) error {
	holds, claims := 0, 0
	defer func() {
		if holds+claims > 0 {
			c.Resources++
		}
		c.Holds += holds
		c.Claims += claims
	}()
	entries := d.Entries
	for range tries {
		confirmed := map[string]bool{} // lock IDs whose claims may have become holds
		for i := range entries {
			e := &entries[i]
			switch {
			case e.Holds():
				ended, err := locker.End(ctx, lockcore.Release{LockID: e.LockID, Resources: []string{d.ID}, FirstFence: e.FirstFence, Force: true, Reason: reason})
				if err != nil {
					return err
				}
				if ended { // by the first entry of the hold
					holds++
				}
			case e.State == rules.StateClaimed:
				order := lockcore.Order{Schedule: uint32(e.Order >> 32), Attempt: uint32(e.Order)} //nolint:gosec // its two halves
				ended, err := locker.LeaveQueue(ctx, lockcore.Lease{Resource: d.ID, LockID: e.LockID, Run: e.Run, Part: e.Part, Order: order})
				if err != nil {
					return err
				}
				if ended {
					claims++
				} else {
					confirmed[e.LockID] = true
				}
			}
		}
		if len(confirmed) == 0 {
			return nil
		}
		entries = nil
		for again, err := range s.List(ctx, rules.Query{Resource: d.ID}) {
			if err != nil {
				return err
			}
			entries = slices.DeleteFunc(again.Entries, func(e rules.Entry) bool { return !confirmed[e.LockID] })
		}
	}
	return fmt.Errorf("its claims became holds %d times in the meantime", tries)
}

// Replace records that a collection replaces the one with this ID, whose locks are lost. The last 20 IDs count. It may be repeated. The reason is
// for people.
func Replace(ctx context.Context, coll *mongo.Collection, id, reason string) error {
	return store.New(coll).ChangeIdentity(ctx, func(_ bson.Raw, i *rules.Identity) (bson.D, error) {
		if id == i.ID {
			return nil, fmt.Errorf("%s is the ID of this collection itself: it needs no record, and none was made", id)
		}
		list := slices.DeleteFunc(i.Replaces, func(r rules.Replaced) bool { return r.ID == id })
		list = append(list, rules.Replaced{ID: id, Reason: reason})
		return bson.D{{Key: "replaces", Value: list[max(0, len(list)-rules.MaxReplaces):]}}, nil
	})
}

// durable returns the collection for writes that outlast a failover.
func durable(coll *mongo.Collection) *mongo.Collection {
	journal := true
	concern := writeconcern.Majority()
	concern.Journal = &journal
	return coll.Clone(options.Collection().SetWriteConcern(concern))
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
		if !errors.Is(err, lockcore.ErrDamaged) { // it was mended, or could not be read
			return false, err
		}
	}
	res, err := durable(coll).DeleteOne(ctx, bson.D{{Key: "_id", Value: name}, store.SameField(raw, "version")})
	if err != nil {
		return false, fmt.Errorf("delete %q: %w", name, err)
	}
	return res.DeletedCount > 0, nil
}
