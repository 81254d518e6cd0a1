package repair

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// newLocker returns a Locker on a store.
func newLocker(t *testing.T, s store.Store) *lockcore.Steps {
	t.Helper()
	l, err := lockcore.NewWithStore(s, lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l.Steps()
}

func request(lockID, resource string) lockcore.StepRequest {
	return lockcore.StepRequest{Caller: lockcore.Caller{LockID: lockID, Order: lockcore.Order{Schedule: 1, Attempt: 1}}, Resources: []lockcore.Resource{lockcore.Exclusive(resource)}}
}

// No client can have written these documents, and no request can end what they contain: they are deleted.
func TestClear_DocumentsThatNoClientWrote_AreDeleted(t *testing.T) {
	t.Parallel()
	coll := testenv.Mongo(t).Collection("locks")
	l := newLocker(t, store.New(coll))
	for _, resource := range []string{"a", "x/after"} {
		_, err := l.Enter(t.Context(), request("holder", resource))
		require.NoError(t, err)
	}
	var good bson.M
	require.NoError(t, coll.FindOne(t.Context(), bson.D{{Key: "_id", Value: "a"}}).Decode(&good))
	bad := map[string]func(d, held bson.M){
		strings.Repeat("n", 601): func(bson.M, bson.M) {},
		"greatest version":       func(d, _ bson.M) { d["version"] = bson.M{"n": int64(math.MaxInt64), "r": "r"} },
		"negative fence":         func(_, held bson.M) { held["firstFence"] = int64(-1) },
		"no fence":               func(_, held bson.M) { delete(held, "firstFence") },
		"no lock ID":             func(_, held bson.M) { held["lockId"] = "" },
		"long lock ID":           func(_, held bson.M) { held["lockId"] = strings.Repeat("l", 1501) },
	}
	for name, spoil := range bad {
		raw, err := bson.Marshal(good)
		require.NoError(t, err)
		var d, held bson.M
		require.NoError(t, bson.Unmarshal(raw, &d))
		heldRaw, err := bson.Marshal(d["entries"].(bson.A)[0])
		require.NoError(t, err)
		require.NoError(t, bson.Unmarshal(heldRaw, &held))
		spoil(d, held)
		d["_id"], d["entries"] = name, bson.A{held}
		_, err = coll.InsertOne(t.Context(), d)
		require.NoError(t, err)
	}
	done, err := Clear(t.Context(), l, coll, "restored")
	require.NoError(t, err)
	require.Equal(t, 2, done.Holds, "those after them too")
	require.Len(t, done.Deleted, len(bad))
	left, err := coll.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Equal(t, int64(3), left, "a, x/after and the identity")
}

// failing is a store that cannot write some documents.
type failing struct {
	store.Store
	prefix string
}

func (f failing) Swap(ctx context.Context, swaps ...store.Swap) (int, error) {
	if strings.HasPrefix(swaps[0].Next.ID, f.prefix) {
		return 0, fmt.Errorf("%w: refused", store.ErrNotSent)
	}
	return f.Store.Swap(ctx, swaps...)
}

func TestClear_DocumentCannotBeReleased_IsNamed(t *testing.T) {
	t.Parallel()
	coll := testenv.Mongo(t).Collection("locks")
	l := newLocker(t, store.New(coll))
	for _, resource := range []string{"bad/1", "bad/2", "bad/3", "bad/4", "bad/5", "bad/6", "good"} {
		_, err := l.Enter(t.Context(), request("holder", resource))
		require.NoError(t, err)
	}
	_, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "damaged"}})
	require.NoError(t, err)
	before, err := store.New(coll).Identify(t.Context())
	require.NoError(t, err)
	done, err := Clear(t.Context(), newLocker(t, failing{store.New(coll), "bad/"}), coll, "restored")
	require.ErrorContains(t, err, "6 documents could not be released or deleted, the first 5 of them: \"bad/1\": lockstep: ")
	require.NotContains(t, err.Error(), "bad/6")
	require.Equal(t, 1, done.Holds)
	require.Equal(t, []string{"damaged"}, done.Deleted)
	after, err := store.New(coll).Identify(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, before.Epoch, after.Epoch)
}

// The document was read while the request had a claim. Its claim was confirmed before the claim could be ended.
func TestRelease_ClaimConfirmedInTheMeantime_EndsItsHold(t *testing.T) {
	t.Parallel()
	coll := testenv.Mongo(t).Collection("locks")
	s := store.New(coll)
	l := newLocker(t, s)
	held, err := l.Enter(t.Context(), request("first", "r"))
	require.NoError(t, err)
	_, err = l.Enter(t.Context(), request("second", "r"))
	require.ErrorIs(t, err, lockcore.ErrBusy)
	require.NoError(t, l.Leave(t.Context(), held...))
	read := func() (found rules.Document) {
		for d, err := range s.List(t.Context(), rules.Query{Resource: "r"}) {
			require.NoError(t, err)
			found = d
		}
		return found
	}
	old := read()
	require.Equal(t, rules.StateClaimed, old.Entries[0].State)
	confirmed := request("second", "r")
	confirmed.Order.Attempt = 2
	leases, err := l.Enter(t.Context(), confirmed)
	require.NoError(t, err)
	var c Cleared
	require.NoError(t, c.release(t.Context(), newLocker(t, s), s, &old, "restored"))
	require.Equal(t, Cleared{Resources: 1, Holds: 1}, c, "what ended was a hold")
	_, err = l.Renew(t.Context(), leases...)
	require.ErrorIs(t, err, lockcore.ErrLost)

	c = Cleared{}
	require.NoError(t, c.release(t.Context(), newLocker(t, s), s, &old, "restored"))
	require.Equal(t, Cleared{}, c, "nothing is left to end")
}

// Fields that this version does not decode are compared, and stay.
func TestChangeIdentity_UnknownFields_Matches(t *testing.T) {
	t.Parallel()
	coll := testenv.Mongo(t).Collection("locks")
	l := newLocker(t, store.New(coll))
	_, err := l.CollectionID(t.Context())
	require.NoError(t, err)
	old := bson.D{{Key: "id", Value: "OLD1"}, {Key: "reason", Value: "r"}, {Key: "by", Value: "ops"}}
	_, err = coll.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: 0}}, bson.D{{Key: "$push", Value: bson.D{{Key: "replaces", Value: old}}}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = Clear(ctx, l, coll, "restored")
	require.NoError(t, err)
	raw, err := coll.FindOne(t.Context(), bson.D{{Key: "_id", Value: 0}}).Raw()
	require.NoError(t, err)
	require.Equal(t, "ops", raw.Lookup("replaces", "0", "by").StringValue())
	require.NoError(t, Replace(ctx, coll, "OLD2", "moved"))
	for _, id := range []string{"OLD1", "OLD2"} {
		replaces, _, err := l.Replaces(t.Context(), id)
		require.NoError(t, err)
		require.True(t, replaces, id)
	}
}
