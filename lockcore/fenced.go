package lockcore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
)

// ErrFenced: a write with a higher fence came first.
var ErrFenced = errors.New("lockstep: fenced off")

// FencedError says by which fence a write was overtaken. It matches ErrFenced. Whoever gets it has lost its lock,
// whatever it believes: nothing was written.
type FencedError struct {
	// Resource and Fence are the lease's.
	Resource string
	Fence    int64
	// By is the fence that the document carries.
	By int64
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("lockstep: a write under %q with fence %d came after one with fence %d", e.Resource, e.Fence, e.By)
}

// Is makes errors.Is(err, ErrFenced) true.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// FenceField is where [UpdateFenced] keeps the highest fence that a document was written with.
const FenceField = "lockFence"

// UpdateFenced updates one document of the caller's on condition that nobody has written it with a higher fence than the
// lease's, and remembers the fence in the document's field FenceField. So a holder that was paused for longer than its TTL,
// and does not know yet that somebody else holds the lock, cannot overwrite what that one wrote. It takes one command,
// and a second one where nothing was written, to tell why.
//
// filter and update are those of the driver's UpdateOne: update is a document of update operators that leaves
// FenceField alone. All writers of the document have to use it, under leases of the same resource.
//
// Errors: *FencedError; mongo.ErrNoDocuments where no document matches filter; *InvalidError; the driver's. After an error
// of the driver the outcome is unknown, and the same update may be repeated under the same lease if it is one that
// may run twice. The collection's own write concern counts: use majority, or the fence can be rolled back with the write.
//
// A source of the idea is Martin Kleppmann's "How to do distributed locking" (2016).
func UpdateFenced(ctx context.Context, coll *mongo.Collection, lease Lease, filter, update any) error {
	if lease.Fence <= 0 {
		return &InvalidError{Field: "lease.Fence", Value: fmt.Sprint(lease.Fence), Bound: "the fence of a lease that was granted"}
	}
	fenced, err := withFence(update, lease.Fence)
	if err != nil {
		return err
	}
	notAfter := bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: FenceField, Value: bson.D{{Key: "$exists", Value: false}}}},
		bson.D{{Key: FenceField, Value: bson.D{{Key: "$lte", Value: lease.Fence}}}},
	}}}
	primary := coll.Clone(options.Collection().SetReadPreference(readpref.Primary()))
	// A document may come between the update that did not find it and the question why.
	for range 3 {
		res, err := coll.UpdateOne(ctx, bson.D{{Key: "$and", Value: bson.A{filter, notAfter}}}, fenced)
		if err != nil {
			return fmt.Errorf("lockstep: update under fence %d: %w", lease.Fence, err)
		}
		if res.MatchedCount > 0 {
			return nil
		}
		if err := whyNot(ctx, primary, lease, filter); err != nil {
			return err
		}
	}
	return fmt.Errorf("lockstep: nothing was updated under fence %d: the document keeps changing", lease.Fence)
}

// whyNot tells why nothing was updated; nil where nothing stands in the way now.
func whyNot(ctx context.Context, coll *mongo.Collection, lease Lease, filter any) error {
	var found struct {
		Fence int64 `bson:"lockFence"`
	}
	only := options.FindOne().SetProjection(bson.D{{Key: FenceField, Value: 1}})
	if err := coll.FindOne(ctx, filter, only).Decode(&found); err != nil {
		return fmt.Errorf("lockstep: nothing was updated under fence %d: %w", lease.Fence, err)
	}
	if found.Fence <= lease.Fence {
		return nil
	}
	return &FencedError{Resource: lease.Resource, Fence: lease.Fence, By: found.Fence}
}

// withFence adds the fence to an update of operators.
func withFence(update any, fence int64) (bson.D, error) {
	invalid := func(value string) error {
		return &InvalidError{Field: "update", Value: value, Bound: "a document of update operators that leaves " + FenceField + " alone"}
	}
	raw, err := bson.Marshal(update)
	if err != nil {
		return nil, invalid(fmt.Sprintf("%T (%v)", update, err))
	}
	var ops bson.D
	if err := bson.Unmarshal(raw, &ops); err != nil {
		return nil, invalid(fmt.Sprintf("%T (%v)", update, err))
	}
	highest := bson.D{}
	out := bson.D{}
	for _, e := range ops {
		fields, ok := e.Value.(bson.D)
		if e.Key == "" || e.Key[0] != '$' || !ok {
			return nil, invalid(quote(e.Key))
		}
		for _, f := range fields {
			if f.Key == FenceField {
				return nil, invalid(e.Key + " of " + FenceField)
			}
		}
		if e.Key == "$max" {
			highest = append(highest, fields...)
			continue
		}
		out = append(out, e)
	}
	return append(out, bson.E{Key: "$max", Value: append(highest, bson.E{Key: FenceField, Value: fence})}), nil
}
