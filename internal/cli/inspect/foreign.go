package inspect

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// foreignID describes a document of another program in the collection of locks.
	foreignID = "its _id is not the name of a resource"
	// maxForeign bounds the documents of other programs that are listed.
	maxForeign = 1000
)

// foreign lists documents whose _id is not a string, and which are neither the collection's identity nor registrations of
// workers. The Locker selects documents by their names, and so finds such documents only by their field attn.
func (s *Site) foreign(ctx context.Context) (found []Resource, err error) {
	others := bson.D{{Key: "_id", Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$type", Value: "string"}}}, {Key: "$ne", Value: store.IdentityID}}}}
	fields := options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}, {Key: "lockstep", Value: 1}})
	cursor, err := s.Collection.Find(ctx, others, fields)
	if err != nil {
		return nil, err
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }() // the server closes it too
	for len(found) < maxForeign && cursor.Next(ctx) {
		if raw := cursor.Current; !isRegistration(raw) {
			found = append(found, Resource{Name: store.IDOf(raw), Damaged: "cannot be decoded: " + foreignID, foreign: true})
		}
	}
	return found, cursor.Err()
}

// isRegistration reports whether a document registers a worker.
func isRegistration(raw bson.Raw) bool {
	var d struct {
		ID   store.Worker `bson:"_id"`
		Kind string       `bson:"lockstep"`
	}
	return bson.Unmarshal(raw, &d) == nil && d.Kind == "worker" && d.ID.Queue != ""
}

// selectsAll reports whether a filter selects every document.
func selectsAll(f *lockcore.Filter) bool {
	return f.Resource+f.Prefix+f.LockID+f.Owner+f.LockIDPrefix == "" && len(f.States) == 0 && !f.Contended
}
