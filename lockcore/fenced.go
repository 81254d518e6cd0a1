package lockcore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
)

// ErrFenced: a write with a higher fence came first.
var ErrFenced = errors.New("lockstep: fenced off")

// FencedError says by which fence a write was overtaken. It matches ErrFenced. The part that gets
// it has lost its lock, and nothing was written.
type FencedError struct {
	// Resource and Fence are the lease's.
	Resource string
	Fence    int64
	// By is the fence of the write that came first, or with which its hold began.
	By int64
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("lockstep: a write under %q with fence %d came after one with fence %d", e.Resource, e.Fence, e.By)
}

// Is makes errors.Is(err, ErrFenced) true.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// FenceField is where [UpdateFenced] keeps what it remembers of the writes of a document.
const FenceField = "lockFence"

// What FenceField has: the smallest fence that may still write, and the last attempts that wrote
// with a fence above that of their hold, since an earlier attempt of their part may have written.
const (
	fenceLeast    = FenceField + ".least"
	fenceAttempts = FenceField + ".attempts"
	mostAttempts  = 64
)

// fenceAttempt is an attempt of a part. Part is a hash of its name, since names may be long.
type fenceAttempt struct {
	Part  int64 `bson:"part"`
	Fence int64 `bson:"fence"`
}

// UpdateFenced updates one document of the caller's on condition that the lease was not overtaken:
// by a write under a later hold, by one of a later attempt of the same part, or by any with a
// greater fence that asked for it by Request.NewFence, or that undoes the lease's part. So a holder
// that was paused for longer than its TTL cannot overwrite what the next holder wrote. Parallel
// parts of one hold do not keep each other from writing. It takes one command; the first write of
// an attempt that is not the first of its part takes two; and one more says why nothing was
// written.
//
// filter and update are those of the driver's UpdateOne: update is a document of update operators
// that leaves FenceField alone, which takes about 3 KB at most. All writers of the document have to
// use it, under exclusive leases of the same resource: shared leases are refused, since fences do
// not order them.
//
// Errors: *FencedError; mongo.ErrNoDocuments if no document matches filter; *InvalidError; the
// driver's. After an error of the driver, also when ctx ends, the outcome is unknown, and the same
// update may be repeated under the same lease if it may run twice. The collection's own write
// concern counts: use majority, or the fence can be rolled back with the write.
//
// A source of the idea is Martin Kleppmann's "How to do distributed locking" (2016).
func UpdateFenced(ctx context.Context, coll *mongo.Collection, lease Lease, filter, update any) error {
	ops, err := operators(update)
	err = firstError(
		refuse(lease.Fence <= 0, "lease.Fence", fmt.Sprint(lease.Fence), "the fence of a lease that was granted"),
		refuse(lease.Mode == ModeShared, "lease.Mode", lease.Mode.String(), "exclusive: fences do not order shared leases"),
		err,
	)
	if err != nil {
		return err
	}
	me := fenceAttempt{partHash(lease.LockID, lease.Part), lease.Fence}
	primary := coll.Clone(options.Collection().SetReadPreference(readpref.Primary()))
	// A document may come between the update that did not find it and the question why.
	for range 3 {
		for _, try := range me.updates(lease, ops) {
			res, err := coll.UpdateOne(ctx, bson.D{{Key: "$and", Value: bson.A{filter, try.condition}}}, try.update)
			if err != nil {
				return fmt.Errorf("lockstep: update under fence %d: %w", lease.Fence, err)
			}
			if res.MatchedCount > 0 {
				return nil
			}
		}
		if err := me.whyNot(ctx, primary, lease, filter); err != nil {
			return err
		}
	}
	return fmt.Errorf("lockstep: nothing was updated under fence %d: the document keeps changing", lease.Fence)
}

func partHash(lockID, part string) int64 {
	sum := sha256.Sum256([]byte(lockID + "\x00" + part))
	return int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // any 64 bits are a name
}

type fencedUpdate struct{ condition, update bson.D }

// updates are tried in turn until one finds the document. Only the last remembers the attempt.
func (a fenceAttempt) updates(lease Lease, ops bson.D) []fencedUpdate {
	greater := bson.D{{Key: "$gt", Value: a.Fence}}
	attempt := func(a any) bson.D { return bson.D{{Key: fenceAttempts, Value: bson.D{{Key: "$elemMatch", Value: a}}}} }
	none := func(of ...bson.D) bson.D { return bson.D{{Key: "$nor", Value: of}} }
	overtaken := []bson.D{{{Key: fenceLeast, Value: greater}}, attempt(bson.D{{Key: "part", Value: a.Part}, {Key: "fence", Value: greater}})}
	least := lease.FirstFence
	if lease.Bars || least == 0 {
		least = lease.Fence
	}
	raised := merged(ops, "$max", bson.E{Key: fenceLeast, Value: least})
	if a.Fence == least { // nothing of this hold has a smaller fence
		return []fencedUpdate{{none(overtaken...), raised}}
	}
	these := bson.A{a}
	for _, part := range lease.Undone {
		these = append(these, fenceAttempt{partHash(lease.LockID, part), lease.Fence})
	}
	push := bson.D{{Key: "$each", Value: these}, {Key: "$slice", Value: -mostAttempts}}
	return []fencedUpdate{
		{append(none(overtaken...), attempt(a)...), raised},
		{none(append(overtaken, attempt(a))...), merged(raised, "$push", bson.E{Key: fenceAttempts, Value: push})},
	}
}

// whyNot says why nothing was updated; nil if nothing stands in the way now.
func (a fenceAttempt) whyNot(ctx context.Context, coll *mongo.Collection, lease Lease, filter any) error {
	var found struct {
		Fence struct {
			Least    int64          `bson:"least"`
			Attempts []fenceAttempt `bson:"attempts"`
		} `bson:"lockFence"`
	}
	only := options.FindOne().SetProjection(bson.D{{Key: FenceField, Value: 1}})
	if err := coll.FindOne(ctx, filter, only).Decode(&found); err != nil {
		return fmt.Errorf("lockstep: nothing was updated under fence %d: %w", lease.Fence, err)
	}
	by := found.Fence.Least
	for _, other := range found.Fence.Attempts {
		if other.Part == a.Part {
			by = max(by, other.Fence)
		}
	}
	if by <= a.Fence {
		return nil
	}
	return &FencedError{Resource: lease.Resource, Fence: lease.Fence, By: by}
}

func operators(update any) (bson.D, error) {
	invalid := func(value string) error {
		return &InvalidError{Field: "update", Value: value, Bound: "a document of update operators that leaves " + FenceField + " alone"}
	}
	var ops bson.D
	raw, err := bson.Marshal(update)
	if err == nil {
		err = bson.Unmarshal(raw, &ops)
	}
	if err != nil {
		return nil, invalid(fmt.Sprintf("%T (%v)", update, err))
	}
	for _, e := range ops {
		fields, ok := e.Value.(bson.D)
		if e.Key == "" || e.Key[0] != '$' || !ok {
			return nil, invalid(quote(e.Key))
		}
		for _, f := range fields {
			if f.Key == FenceField || strings.HasPrefix(f.Key, FenceField+".") {
				return nil, invalid(e.Key + " of " + f.Key)
			}
		}
	}
	return ops, nil
}

func merged(ops bson.D, op string, field bson.E) bson.D {
	fields := bson.D{}
	out := bson.D{}
	for _, e := range ops {
		if e.Key == op {
			fields = append(fields, e.Value.(bson.D)...)
		} else {
			out = append(out, e)
		}
	}
	return append(out, bson.E{Key: op, Value: append(fields, field)})
}
