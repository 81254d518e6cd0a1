package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// edit returns the fields of a lock's document that a control changes in the database, behind the library's back; nothing to leave it as
// it is. n counts the rounds.
type edit func(n int, resource string, doc *edited) bson.D

// edited are the fields of a document that edits look at.
type edited struct {
	ID      string     `bson:"_id"`
	Version bson.M     `bson:"version"`
	Fence   int64      `bson:"fence"`
	Entries []bson.Raw `bson:"entries"`
	Waiters []bson.Raw `bson:"waiters"`
}

// backToFront makes the first waiter the last.
func backToFront(_ int, _ string, doc *edited) bson.D {
	if len(doc.Waiters) < 2 {
		return nil
	}
	return bson.D{{Key: "waiters", Value: append(doc.Waiters[1:], doc.Waiters[0])}}
}

// wrongFences makes the greatest fence greater by far, and in the next round smaller again.
func wrongFences(n int, _ string, doc *edited) bson.D {
	const far = 1_000_000_000
	if n%2 == 0 {
		return bson.D{{Key: "fence", Value: doc.Fence + far}}
	}
	return bson.D{{Key: "fence", Value: doc.Fence - far}}
}

// noPermits removes the holders of semaphores.
func noPermits(_ int, resource string, doc *edited) bson.D {
	if !strings.HasPrefix(resource, "z/") || len(doc.Entries) == 0 {
		return nil
	}
	return bson.D{{Key: "entries", Value: bson.A{}}}
}

// repeatEdit edits all documents of exclusive locks and semaphores, a few times a second, until ctx ends. Clients change them too: an
// edit that comes too late is left out.
func repeatEdit(ctx context.Context, coll *mongo.Collection, e edit) {
	for n := 0; harness.Pause(ctx, 250*time.Millisecond); n++ {
		var docs []edited
		found, err := coll.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$regex", Value: "^[xz]/"}}}})
		if err != nil || found.All(ctx, &docs) != nil {
			continue
		}
		for i := range docs {
			if set := e(n, docs[i].ID, &docs[i]); set != nil {
				set = append(set, bson.E{Key: "version.r", Value: fmt.Sprint("edit ", n)})
				_, _ = coll.UpdateOne(ctx, bson.D{{Key: "_id", Value: docs[i].ID}, {Key: "version.r", Value: docs[i].Version["r"]}},
					bson.D{{Key: "$set", Value: set}})
			}
		}
	}
}

// revokeAll ends all holds by force, a few times a second, until ctx ends.
func (p *play) revokeAll(ctx context.Context) {
	for harness.Pause(ctx, 250*time.Millisecond) {
		for s, err := range p.locker.Status(ctx, lockcore.Filter{Prefix: "x/", States: []lockcore.State{lockcore.StateHolding}}) {
			if err == nil {
				_ = p.locker.Revoke(ctx, s.Resource, s.LockID, s.FirstFence, "a control", false) // the next round does it again
			}
		}
	}
}
