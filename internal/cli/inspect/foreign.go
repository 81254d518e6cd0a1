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

// foreign lists documents whose _id is not a string, except the collection's identity. The Locker selects documents by their
// names, and so finds such documents only by their field attn.
func (s *Site) foreign(ctx context.Context) (found []Resource, err error) {
	others := bson.D{{Key: "_id", Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$type", Value: "string"}}}, {Key: "$ne", Value: store.IdentityID}}}}
	cursor, err := s.Collection.Find(ctx, others, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}).SetLimit(maxForeign))
	if err != nil {
		return nil, err
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }() // the server closes it too
	for cursor.Next(ctx) {
		found = append(found, Resource{Name: store.IDOf(cursor.Current), Damaged: "cannot be decoded: " + foreignID, foreign: true})
	}
	return found, cursor.Err()
}

// selectsAll reports whether a filter selects every document.
func selectsAll(f *lockcore.Filter) bool {
	return f.Resource+f.Prefix+f.LockID+f.Owner+f.LockIDPrefix == "" && len(f.States) == 0 && !f.Contended
}
