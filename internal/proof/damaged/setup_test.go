package damaged_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/mongolock"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// badDocuments returns documents by a part of the name with which they are reported.
func badDocuments() map[string]bson.D {
	return map[string]bson.D{
		"config": {{Key: "_id", Value: "config"}}, "bad": stray("bad"), `"$oid"`: stray(bson.NewObjectID()), "$numberInt": stray(7),
		"namespace": stray(bson.D{{Key: "namespace", Value: 1}}), "$date": stray(time.Now()), "true": stray(true), "null": stray(nil),
		"$binary": stray(bson.Binary{Data: []byte{1}}), "large": append(stray("large"), bson.E{Key: "forced", Value: strings.Repeat("x", 5<<20)}),
	}
}

// stray returns a document that every condition of a list matches, but which is not a lock document.
func stray(id any) bson.D {
	return bson.D{
		{Key: "_id", Value: id}, {Key: "lockstep", Value: "worker"}, {Key: "idleAt", Value: "never"}, {Key: "attn", Value: bson.A{"x"}},
		{Key: "waiters", Value: bson.A{
			bson.D{{Key: "since", Value: time.Now()}, {Key: "lockId", Value: "mongo-lock/a/"}}, bson.D{{Key: "lockId", Value: "n/workflow"}},
		}},
		{Key: "entries", Value: bson.A{bson.D{{Key: "lockId", Value: 5}}}}, {Key: "version", Value: bson.D{{Key: "n", Value: "one"}}},
	}
}

// reader reads a collection with a bad document.
type reader struct {
	coll   *mongo.Collection
	store  *store.Mongo
	locker *lockcore.Steps
	site   *inspect.Site
	leases []lockcore.Lease // a's, of z/1 and z/2
	// name is a part of the name with which the bad document is reported, or the whole one if isName is set.
	name string
	// isName is set if the document's _id is a string, and hasAttn if the index on attn contains the document.
	isName, hasAttn bool
}

// setup makes a collection in which a holds z/1 and z/2, b waits for z/1, a client of mongolock holds z/3, c
// and d are in a deadlock, and one document is bad.
func setup(t *testing.T, name string, bad bson.D) *reader {
	t.Helper()
	coll := testenv.Mongo(t).Collection("locks")
	r := &reader{coll: coll, store: store.New(coll), locker: open(t, coll), name: name, hasAttn: len(bad) > 1}
	_, r.isName = bad[0].Value.(string)
	r.site = &inspect.Site{Locker: r.locker, Collection: coll}
	require.NoError(t, r.locker.CreateIndexes(t.Context()))
	var err error
	r.leases, err = r.locker.TryEnter(t.Context(), request("a", "z/1", "z/2"))
	require.NoError(t, err)
	r.waits(t, "b", "z/1")
	require.NoError(t, mongolock.NewClient(coll).XLock(t.Context(), "z/3", "mongolock", mongolock.LockDetails{}))
	for lockID, resource := range map[string]string{"c": "left", "d": "right"} {
		_, err := r.locker.TryEnter(t.Context(), request(lockID, resource))
		require.NoError(t, err)
	}
	r.waits(t, "c", "right")
	r.waits(t, "d", "left")
	_, err = coll.InsertOne(t.Context(), bad)
	require.NoError(t, err)
	return r
}

// waits makes a party queue.
func (r *reader) waits(t *testing.T, lockID, resource string) {
	t.Helper()
	waiting := request(lockID, resource)
	waiting.Order.Schedule = 2
	_, err := r.locker.Enter(t.Context(), waiting)
	require.ErrorIs(t, err, lockcore.ErrBusy)
}

// list returns the names of the resources that a filter selects, and the errors about bad documents.
func (r *reader) list(t *testing.T, filter lockcore.Filter) (names []string, damaged []error) {
	t.Helper()
	for s, err := range r.locker.Status(t.Context(), filter) {
		if errors.Is(err, lockcore.ErrDamaged) {
			require.NotEmpty(t, s.Resource)
			damaged = append(damaged, err)
			continue
		}
		require.NoError(t, err)
		names = append(names, s.Resource)
	}
	return names, damaged
}

func open(t *testing.T, coll *mongo.Collection) *lockcore.Steps {
	t.Helper()
	l, err := lockcore.New(coll, lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = l.Close(ctx)
	})
	return l.Steps()
}

func request(lockID string, names ...string) lockcore.StepRequest {
	r := lockcore.StepRequest{Caller: lockcore.Caller{LockID: lockID, Part: "p", Order: lockcore.Order{Schedule: 1, Attempt: 1}}}
	for _, name := range names {
		r.Resources = append(r.Resources, lockcore.Exclusive(name))
	}
	return r
}
