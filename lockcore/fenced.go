package lockcore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"reflect"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
)

// FencedError names the fence that refused a write of [UpdateFenced]. It matches ErrFenced. The caller has
// lost its lock, and its update was not written.
type FencedError struct {
	// Resource and Fence are the lease's.
	Resource string
	Fence    int64
	// By is the fence of the write that came first, or the smallest fence that may write after it.
	By int64
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("lockstep: a write under %q with fence %d came after one with fence %d", e.Resource, e.Fence, e.By)
}

// Is makes errors.Is(err, ErrFenced) true.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// FenceField is the field in which [UpdateFenced] records the fences of a document's writers.
const FenceField = "lockFence"

// FenceField is an embedded document with these fields:
//
//   - least is the smallest fence that may still write;
//   - parts maps a part, by a hash of its name, to the fence of its latest attempt. Only fences above
//     least are kept, of the last 64 parts that wrote with one.
//
// It contains no array. The position of a caller's "items.$" comes from the last array that the
// filter matches, and must never come from this field.
const (
	fenceLeast = FenceField + ".least"
	fenceParts = FenceField + ".parts"
	mostParts  = 64
)

// UpdateFenced updates one document of the caller's, unless a later lease came first. So a holder that was
// paused for longer than its TTL cannot overwrite the writes of the next holder. A lease is later if its
// hold is, if it belongs to a later request of the same Part, or if its LeastFence is greater. Sessions that
// share a hold do not exclude each other's writes.
//
// It reads FenceField, records the fence there unless a write under this lease already did, which
// takes about 2 KB at most, and then updates on condition that the record is still there. So earlier
// leases are refused as soon as a later one tries to write, even if its update fails.
//
// filter and update are those of the driver's UpdateOne. They are encoded as UpdateOne encodes them,
// with the collection's registry and BSON options. update consists of update operators, is not a
// pipeline, and leaves FenceField alone. "items.$" and "items.$[]" work; "items.$[name]" does not,
// since array filters cannot be passed. $text and $near do not work in filter, since the
// update finds the document by its _id.
//
// Both writes are an updateOne with filter and the document's _id, which MongoDB 5.0 and later accept on
// a sharded collection without the shard key, too. Name the shard key in filter nevertheless: without
// it, a MongoDB before 7.1 sends the write to all shards, and an orphaned copy that a migration of
// chunks left behind may be updated and counted instead of the document.
//
// ctx must not contain a transaction: it would hide the record from other writers until it commits, and
// remove the record when it aborts.
//
// All writers of the document must use UpdateFenced, under exclusive leases of the same resource.
// Shared leases are refused, since fences do not order them. Earlier requests of a Part are no longer
// refused after 64 other Parts of the same hold have written.
//
// Errors: *FencedError; mongo.ErrNoDocuments if no document matches filter; *InvalidError, which is
// also the answer in a transaction and if writes to coll are unacknowledged (w: 0); one without a type
// after 20 attempts, with pauses of up to 250 ms, if other writers keep changing the document in
// between, and nothing was updated; the driver's. After an error of the
// driver, and after ctx has ended, the outcome is unknown. The same update may then be repeated
// under the same lease, if it may be applied twice. The update has the collection's own write concern. Use
// majority, or a failover can roll back the fence with the write.
//
// A source of the idea is Martin Kleppmann's "How to do distributed locking" (2016).
func UpdateFenced(ctx context.Context, coll *mongo.Collection, lease Lease, filter, update any) error {
	err := cmp.Or(
		refuse(lease.Fence <= 0, "lease.Fence", fmt.Sprint(lease.Fence), "the fence of a lease that was granted"),
		refuse(lease.Mode == ModeShared, "lease.Mode", lease.Mode.String(), "exclusive: fences do not order shared leases"),
		refuse(inTransaction(ctx), "ctx", "with a transaction", "a context without one: a record of a fence must be visible at once, and must remain"),
		checkUpdate(update),
	)
	if err != nil {
		return err
	}
	if raw, ok := filter.([]byte); ok {
		filter = bson.Raw(raw) // the driver does this for a filter, but not inside $and
	}
	w := newFencedWrite(lease)
	for attempt := range fencedAttempts {
		if err := w.pause(ctx, attempt); err != nil {
			return err
		}
		id, recorded, err := w.record(ctx, coll, filter)
		if err != nil {
			return err
		}
		if !recorded {
			continue
		}
		done, err := w.write(ctx, coll, id, filter, update)
		if done || err != nil {
			return err
		}
	}
	return fmt.Errorf("lockstep: nothing was updated under fence %d: the document kept changing in %d attempts", lease.Fence, fencedAttempts)
}

// fencedAttempts bounds how often a write begins again because other writers changed the document in between.
const fencedAttempts = 20

// pause waits before a repeated attempt: 1 to 2 ms, which doubles with each attempt, and is 250 ms at most.
func (w *fencedWrite) pause(ctx context.Context, attempt int) error {
	real := clock.Real{}
	if attempt == 0 || clock.Sleep(ctx, real, pace.Jitter(pace.Backoff(2*time.Millisecond, 250*time.Millisecond, attempt), real.Jitter)) {
		return nil
	}
	return fmt.Errorf("lockstep: nothing was updated under fence %d: the document keeps changing: %w", w.fence, ctx.Err())
}

// inTransaction reports whether commands with ctx belong to a transaction of the caller's.
func inTransaction(ctx context.Context) bool {
	session := mongo.SessionFromContext(ctx)
	return session != nil && session.TransactionRunning()
}

// fencedWrite is one call of UpdateFenced.
type fencedWrite struct {
	resource string
	// fence is the lease's, and least the smallest one that may write after it.
	fence, least int64
	// part is the key of the lease's part in FenceField.
	part string
}

func newFencedWrite(lease Lease) *fencedWrite {
	least := cmp.Or(lease.LeastFence, lease.FirstFence)
	if lease.Bars || least == 0 {
		least = lease.Fence
	}
	return &fencedWrite{resource: lease.Resource, fence: lease.Fence, least: least, part: partKey(lease.LockID, lease.Part)}
}

// recordsPart reports whether the lease's part must be recorded: the least fence does not bar its earlier attempts.
func (w *fencedWrite) recordsPart() bool { return w.fence > w.least }

// partKey is a hash, since names may be long and contain dots. It begins with a letter, since a
// number in a path may also be an index.
func partKey(lockID, part string) string {
	sum := sha256.Sum256([]byte(lockID + "\x00" + part))
	return fmt.Sprintf("p%x", sum[:8])
}

// storedFence is FenceField as it is stored. The parts are in the order in which they were recorded.
type storedFence struct {
	Least int64  `bson:"least"`
	Parts bson.D `bson:"parts"`
}

func (f *storedFence) part(key string) int64 {
	for _, e := range f.Parts {
		if fence, ok := e.Value.(int64); ok && e.Key == key {
			return fence
		}
	}
	return 0
}

// record records the fence in the document, and returns its _id. It only ever raises fences, so it
// may run again, late, and for a lease that is fenced off. The outcomes:
//
//  1. The document records nothing later: the update may follow.
//  2. A greater fence is recorded for the part, or as the least one: a *FencedError.
//  3. No document matches: mongo.ErrNoDocuments.
//  4. Another write has changed the record, or the document, in between: not recorded; read again.
//
// Write concern 1 is enough. The update follows in the same document's history: if a failover rolls
// the record back, it rolls the update back too. The read is local for the same reason: with read
// concern majority it could not see a record that secondaries lag behind to confirm, and would be
// repeated for as long as they lag.
//
// The command is an updateOne with an exact _id, and no findAndModify, which needs the shard key on a
// sharded collection before MongoDB 7.1. It has the caller's filter, which may contain that key.
func (w *fencedWrite) record(ctx context.Context, coll *mongo.Collection, filter any) (id any, recorded bool, _ error) {
	primary := coll.Clone(options.Collection().SetWriteConcern(writeconcern.W1()).SetReadConcern(readconcern.Local()).SetReadPreference(readpref.Primary()))
	failed := func(err error) (any, bool, error) {
		return nil, false, fmt.Errorf("lockstep: nothing was updated under fence %d: %w", w.fence, err)
	}
	var doc struct {
		ID    bson.RawValue `bson:"_id"`
		Fence bson.RawValue `bson:"lockFence"`
	}
	only := options.FindOne().SetProjection(bson.D{{Key: FenceField, Value: 1}})
	if err := primary.FindOne(ctx, filter, only).Decode(&doc); err != nil {
		return failed(err)
	}
	var stored storedFence
	unchanged := bson.D{{Key: "_id", Value: doc.ID}, {Key: FenceField, Value: bson.D{{Key: "$exists", Value: false}}}}
	if !doc.Fence.IsZero() {
		if err := doc.Fence.Unmarshal(&stored); err != nil {
			return failed(fmt.Errorf("read %s: %w", FenceField, err))
		}
		unchanged[1].Value = bson.D{{Key: "$eq", Value: doc.Fence}}
	}
	if by := max(stored.Least, stored.part(w.part)); by > w.fence {
		return nil, false, &FencedError{Resource: w.resource, Fence: w.fence, By: by}
	}
	if w.isRecorded(&stored) {
		return doc.ID, true, nil
	}
	set := bson.D{{Key: "$set", Value: bson.D{{Key: FenceField, Value: w.recordedIn(stored)}}}}
	res, err := primary.UpdateOne(ctx, bson.D{{Key: "$and", Value: bson.A{filter, unchanged}}}, set)
	if err != nil {
		return failed(err)
	}
	return doc.ID, res.MatchedCount > 0, nil
}

// isRecorded reports whether the record already bars what the lease bars.
func (w *fencedWrite) isRecorded(stored *storedFence) bool {
	return stored.Least >= w.least && (!w.recordsPart() || stored.part(w.part) >= w.fence)
}

// recordedIn returns the record with the lease's fences. It forgets what the least fence bars anyway,
// and the oldest of more than mostParts.
func (w *fencedWrite) recordedIn(stored storedFence) storedFence {
	next := storedFence{Least: max(stored.Least, w.least), Parts: bson.D{}}
	for _, e := range stored.Parts {
		if fence, _ := e.Value.(int64); fence > next.Least && (e.Key != w.part || !w.recordsPart()) {
			next.Parts = append(next.Parts, e)
		}
	}
	if w.recordsPart() {
		next.Parts = append(next.Parts, bson.E{Key: w.part, Value: max(stored.part(w.part), w.fence)})
	}
	next.Parts = next.Parts[max(0, len(next.Parts)-mostParts):]
	return next
}

// write runs the caller's update on condition that the record is still there. Its outcomes:
//
//  1. The document was updated: done.
//  2. It did not match, because of a later record, or because it has changed: record finds out.
//  3. Writes to the collection are unacknowledged: nothing was sent. The driver has no getter for a
//     collection's write concern, but it refuses a hint with such a write. The index of _id is the
//     one that the server would choose anyway.
//  4. A driver that sends such a write nevertheless: it may have run, and must not run again.
func (w *fencedWrite) write(ctx context.Context, coll *mongo.Collection, id, filter, update any) (done bool, _ error) {
	var own any = w.fence
	if !w.recordsPart() { // least bars all earlier attempts, but later ones may be recorded
		own = bson.D{{Key: "$not", Value: bson.D{{Key: "$gt", Value: w.fence}}}}
	}
	recorded := bson.D{
		{Key: "_id", Value: id},
		{Key: fenceLeast, Value: bson.D{{Key: "$gte", Value: w.least}, {Key: "$lte", Value: w.fence}}},
		{Key: fenceParts + "." + w.part, Value: own},
	}
	hint := options.UpdateOne().SetHint(bson.D{{Key: "_id", Value: 1}})
	res, err := coll.UpdateOne(ctx, bson.D{{Key: "$and", Value: bson.A{filter, recorded}}}, update, hint)
	switch {
	case err != nil && strings.Contains(err.Error(), "unacknowledged write"):
		return false, &InvalidError{Field: "coll", Value: "with write concern w: 0", Bound: "a collection whose writes are acknowledged"}
	case err != nil:
		return false, fmt.Errorf("lockstep: update under fence %d: %w", w.fence, err)
	case !res.Acknowledged:
		return false, fmt.Errorf("lockstep: update under fence %d: the outcome is unknown: the write was not acknowledged", w.fence)
	}
	return res.MatchedCount > 0, nil
}

// checkUpdate refuses an update that is not a document of operators, or that names FenceField. It
// cannot see the names that the collection's own registry or BSON options give to fields.
func checkUpdate(update any) error {
	invalid := func(value string) error {
		return &InvalidError{Field: "update", Value: value, Bound: "a document of update operators that leaves " + FenceField + " alone"}
	}
	encoded, err := encodedByDefault(update)
	if err != nil && !isList(update) {
		return nil // the collection's own registry may know the types
	}
	document, ok := encoded.DocumentOK()
	if !ok {
		return invalid(fmt.Sprintf("%T", update))
	}
	operators, err := document.Elements()
	if err != nil {
		return invalid(fmt.Sprintf("%T (%v)", update, err))
	}
	if len(operators) == 0 {
		return invalid("without operators")
	}
	for _, operator := range operators {
		name := operator.Key()
		fields, ok := operator.Value().DocumentOK()
		if !strings.HasPrefix(name, "$") || !ok {
			return invalid(quote(name))
		}
		elements, err := fields.Elements()
		if err != nil {
			return invalid(fmt.Sprintf("%s (%v)", name, err))
		}
		for _, field := range elements {
			renamed, _ := field.Value().StringValueOK()
			if isFence(field.Key()) || (name == "$rename" && isFence(renamed)) {
				return invalid(name + " of " + field.Key())
			}
		}
	}
	return nil
}

func isFence(path string) bool { return path == FenceField || strings.HasPrefix(path, FenceField+".") }

// isList reports whether UpdateOne takes update for a pipeline.
func isList(update any) bool {
	v := reflect.Indirect(reflect.ValueOf(update))
	isList := v.Kind() == reflect.Slice || v.Kind() == reflect.Array
	return isList && v.Type() != reflect.TypeFor[bson.D]()
}

// defaultRegistry is not shared with other encoders. A registry remembers how it described a type
// first, with or without JSON tags.
var defaultRegistry = bson.NewRegistry()

// encodedByDefault returns an update as the driver's default encodes it: a document, or an array of a pipeline.
func encodedByDefault(update any) (bson.RawValue, error) {
	if v := reflect.ValueOf(update); v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
		update = bson.Raw(v.Bytes())
	}
	var raw bytes.Buffer
	encoder := bson.NewEncoder(bson.NewDocumentWriter(&raw))
	encoder.SetRegistry(defaultRegistry)
	if err := encoder.Encode(bson.D{{Key: "update", Value: update}}); err != nil {
		return bson.RawValue{}, err
	}
	return bson.Raw(raw.Bytes()).Lookup("update"), nil
}
