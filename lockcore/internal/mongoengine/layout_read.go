package mongoengine

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// name is the field with the resource's name.
func (e *Engine) name() string {
	if e.shared {
		return "resource"
	}
	return "_id"
}

// names are the fields with lock IDs and owners.
func (e *Engine) names() []string {
	ours := []string{"held.lockId", "held.owner", "waiters.lockId", "waiters.owner"}
	if e.shared {
		return append(ours, "exclusive.lockId", "exclusive.owner", "shared.locks.lockId", "shared.locks.owner")
	}
	return ours
}

// named is the filter for one document in their layout.
func named(resource string) bson.D { return bson.D{{Key: "resource", Value: on("$eq", resource)}} }

// sharedAnswers leave out what is not ours.
var sharedAnswers = answersWithout("_id", "waiters", "exclusive", "shared")

// understood are the stages that turn a document of theirs, read at the time in at, into what one of ours would be.
func understood() []bson.D {
	s := stages{load(bson.D{})}
	s.put(v("m", doc(v("now", "$at"))))
	s.understand()
	return append(s, on("$set", doc(v("_id", "$resource"))), on("$unset", list("t", "m", "exclusive", "shared")))
}

// renewSharedStages is renewAllStages on their layout: where a part is not there the document stays exactly as it was.
func renewSharedStages(names []string, keys bson.A) []bson.D {
	s := stages{on("$replaceWith", doc(v("before", "$$ROOT"))), on("$replaceWith", merge("$before", doc(v("m", doc(v("before", "$before"))))))}
	s = append(s, on("$replaceWith", merge(load(bson.D{})[0].Value, "$$ROOT")))
	s.put(v("m.now", "$$NOW"), v("m.seq", "$seq"))
	s.understand()
	s = append(s, renewAllStages("$resource", names, keys)...)
	s.present()
	return append(s,
		on("$replaceWith", cond(eq("$seq", "$m.seq"), "$m.before", "$$ROOT")),
		on("$unset", list("m", "idleAt")))
}

// Lock is one lock as it stands in their layout.
type Lock struct {
	Resource, LockID, Owner, Host, Comment string
	Exclusive                              bool
	ObjectID                               bson.ObjectID
	// Each is null where there is none.
	CreatedAt, RenewedAt, ExpiresAt *time.Time
	// Now is the server's time.
	Now time.Time
}

type storedLock struct {
	ObjectID  bson.ObjectID `bson:"_id"`
	LockID    *string       `bson:"lockId"`
	Owner     string        `bson:"owner"`
	Host      string        `bson:"host"`
	Comment   string        `bson:"comment"`
	CreatedAt *time.Time    `bson:"createdAt"`
	RenewedAt *time.Time    `bson:"renewedAt"`
	ExpiresAt *time.Time    `bson:"expiresAt"`
	Acquired  bool          `bson:"acquired"`
}

// Locks reads the locks of a resource, of a lock ID and of an owner; an empty one stands for all. It reads what a majority
// has.
func (e *Shared) Locks(ctx context.Context, resource, lockID, owner string) ([]Lock, error) {
	filter := bson.D{{Key: "resource", Value: on("$type", "string")}}
	if resource != "" {
		filter = named(resource)
	}
	var all bson.A
	for _, want := range []struct{ field, value string }{{"lockId", lockID}, {"owner", owner}} {
		if want.value != "" {
			value := on("$eq", want.value)
			all = append(all, on("$or", list(on("exclusive."+want.field, value), on("shared.locks."+want.field, value))))
		}
	}
	if all != nil {
		filter = append(filter, v("$and", all))
	}
	cursor, err := e.coll.Aggregate(ctx, mongo.Pipeline{
		on("$match", filter), on("$project", doc(v("resource", 1), v("exclusive", 1), v("shared.locks", 1), v("now", "$$NOW"))),
	})
	if err != nil {
		return nil, fmt.Errorf("lockstep: read locks: %w", err)
	}
	var docs []struct {
		Resource  string     `bson:"resource"`
		Exclusive storedLock `bson:"exclusive"`
		Shared    struct {
			Locks []storedLock `bson:"locks"`
		} `bson:"shared"`
		Now time.Time `bson:"now"`
	}
	if err := cursor.All(ctx, &docs); err != nil {
		return nil, fmt.Errorf("lockstep: read locks: %w", err)
	}
	var locks []Lock
	for _, d := range docs {
		take := func(s storedLock, exclusive bool) {
			if s.LockID == nil || (lockID != "" && *s.LockID != lockID) || (owner != "" && s.Owner != owner) {
				return
			}
			locks = append(locks, Lock{
				Resource: d.Resource, LockID: *s.LockID, Owner: s.Owner, Host: s.Host, Comment: s.Comment, Exclusive: exclusive,
				ObjectID: s.ObjectID, CreatedAt: s.CreatedAt, RenewedAt: s.RenewedAt, ExpiresAt: s.ExpiresAt, Now: d.Now,
			})
		}
		if d.Exclusive.Acquired {
			take(d.Exclusive, true)
		}
		for _, s := range d.Shared.Locks {
			take(s, false)
		}
	}
	return locks, nil
}

// Collect removes the documents of resources that nobody holds: those that only mongo-lock clients wrote, and those
// that we wrote last longer ago than retention, unless somebody waits there or may still trust.
func (e *Shared) Collect(ctx context.Context, retention time.Duration) error {
	if err := e.check(ctx); err != nil {
		return err
	}
	free := bson.D{{Key: "exclusive.lockId", Value: nil}, {Key: "shared.count", Value: 0}, {Key: "resource", Value: on("$type", "string")}}
	cursor, err := e.coll.Aggregate(ctx, mongo.Pipeline{
		on("$match", free), on("$limit", 1), on("$project", doc(v("now", "$$NOW"))),
	})
	if err != nil {
		return fmt.Errorf("lockstep: find idle resources: %w", err)
	}
	var found []struct {
		Now time.Time `bson:"now"`
	}
	if err := cursor.All(ctx, &found); err != nil || len(found) == 0 {
		return err
	}
	now := found[0].Now
	none := func(list string, end bson.D) bson.E {
		return v(list, on("$not", on("$elemMatch", on("expiresAt", end))))
	}
	idle := append(free,
		v("$or", list(on("at", on("$exists", false)), on("at", on("$lt", now.Add(-retention))))),
		none("waiters", on("$gt", now)),
		// What never ends, and has no lock any more, was ended by a client of theirs.
		none("held", doc(v("$gt", now), v("$lt", engine.Never))))
	if _, err := e.coll.DeleteMany(ctx, idle); err != nil {
		return fmt.Errorf("lockstep: remove idle resources: %w", err)
	}
	return nil
}
