package mongoengine_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/mongoengine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/theirs"
)

func shared(t *testing.T) (*mongoengine.Shared, *mongo.Collection) {
	t.Helper()
	coll := testenv.Mongo(t).Collection("locks")
	eng := mongoengine.NewShared(coll)
	require.NoError(t, eng.Prepare(t.Context()))
	return eng, coll
}

func exclusive(name, lockID, part string) engine.Acquire {
	return engine.Acquire{
		Policy: policy, Resource: name, LockID: lockID, Part: part, Order: 1, Mode: engine.Exclusive, TTL: 30_000, HoldTTL: 30_000, Owner: lockID,
	}
}

// theirDocument is a resource as a mongo-lock client reads it.
func theirDocument(t *testing.T, them theirs.Client, name string) theirs.Document {
	t.Helper()
	d, err := them.Read(t.Context(), name)
	require.NoError(t, err)
	return d
}

// TestFirstAcquiresRaceOnTheUniqueIndex has many first requests of one resource at once: one gets it.
func TestFirstAcquiresRaceOnTheUniqueIndex(t *testing.T) {
	t.Parallel()
	eng, coll := shared(t)
	for round := range 8 {
		name := fmt.Sprintf("r%d", round)
		var wg sync.WaitGroup
		outcomes := make([]engine.Outcome, 8)
		for i := range outcomes {
			wg.Go(func() {
				d, err := eng.Acquire(t.Context(), exclusive(name, fmt.Sprint(i), "p"))
				if err != nil {
					outcomes[i] = engine.Outcome(err.Error())
					return
				}
				outcomes[i] = d.Last.Outcome
			})
		}
		wg.Wait()
		slices.Sort(outcomes)
		require.Equal(t, append(slices.Repeat([]engine.Outcome{engine.Busy}, 7), engine.Granted), outcomes)
		n, err := coll.CountDocuments(t.Context(), bson.M{"resource": name})
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
	}
}

func TestTheOtherLayoutIsRefused(t *testing.T) {
	t.Parallel()
	var wrong *engine.LayoutError
	_, coll := shared(t)
	native := mongoengine.New(coll, time.Hour)
	require.ErrorAs(t, native.Prepare(t.Context()), &wrong)
	_, err := native.Acquire(t.Context(), exclusive("r", "a", "p"))
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, "a unique index on resource")

	coll = testenv.Mongo(t).Collection("locks")
	require.NoError(t, mongoengine.New(coll, time.Hour).Prepare(t.Context()))
	eng := mongoengine.NewShared(coll)
	require.ErrorAs(t, eng.Prepare(t.Context()), &wrong)
	_, err = eng.Acquire(t.Context(), exclusive("r", "a", "p"))
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, "lockstep_idle")
	n, err := coll.CountDocuments(t.Context(), bson.M{})
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestNothingIsLockedWithoutTheUniqueIndex(t *testing.T) {
	t.Parallel()
	coll := testenv.Mongo(t).Collection("locks")
	eng := mongoengine.NewShared(coll)
	_, err := eng.Acquire(t.Context(), exclusive("r", "a", "p"))
	var wrong *engine.LayoutError
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, "no unique index on resource; call CreateIndexes")

	// An index that somebody made by hand, with other options, will do.
	_, err = coll.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: bson.D{{Key: "resource", Value: 1}}, Options: options.Index().SetUnique(true).SetName("mine")})
	require.NoError(t, err)
	require.NoError(t, eng.Prepare(t.Context()))
	_, err = eng.Acquire(t.Context(), exclusive("r", "a", "p"))
	require.NoError(t, err)
}

func TestRenewAllKeepsTheirLocksInLine(t *testing.T) {
	t.Parallel()
	eng, coll := shared(t)
	them := theirs.Client{Coll: coll}
	op := func(name string) engine.Renew {
		return engine.Renew{Policy: policy, Resource: name, LockID: "a", Part: "p", Order: 1}
	}
	for _, name := range []string{"kept", "ended"} {
		_, err := eng.Acquire(t.Context(), exclusive(name, "a", "p"))
		require.NoError(t, err)
	}
	require.NoError(t, them.Unlock(t.Context(), "ended", "a"))
	var before, after bson.M
	require.NoError(t, coll.FindOne(t.Context(), bson.M{"resource": "ended"}).Decode(&before))
	renewed, err := eng.RenewAll(t.Context(), []engine.Renew{op("kept"), op("ended"), op("never")})
	require.NoError(t, err)
	require.Equal(t, []bool{true, false, false}, renewed)
	require.NotNil(t, theirDocument(t, them, "kept").Exclusive.RenewedAt)
	require.NoError(t, coll.FindOne(t.Context(), bson.M{"resource": "ended"}).Decode(&after))
	require.Equal(t, before, after)

	// Also where every document is there, and one of its parts is not.
	renewed, err = eng.RenewAll(t.Context(), []engine.Renew{op("kept"), op("ended")})
	require.NoError(t, err)
	require.Equal(t, []bool{true, false}, renewed)

	// What they renewed is not shortened.
	require.NoError(t, them.Renew(t.Context(), "kept", "a", time.Hour))
	renewed, err = eng.RenewAll(t.Context(), []engine.Renew{op("kept")})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, renewed)
	require.WithinDuration(t, time.Now().Add(time.Hour), *theirDocument(t, them, "kept").Exclusive.ExpiresAt, time.Minute)
}

func TestAPartThatTheyCutOffDrains(t *testing.T) {
	t.Parallel()
	eng, coll := shared(t)
	_, err := eng.Acquire(t.Context(), exclusive("r", "a", "p"))
	require.NoError(t, err)
	require.NoError(t, theirs.Client{Coll: coll}.Unlock(t.Context(), "r", "a"))
	d, err := eng.Acquire(t.Context(), exclusive("r", "b", "p"))
	require.NoError(t, err)
	require.Equal(t, engine.Busy, d.Last.Outcome, "a may still trust its lease")
	d, err = eng.Renew(t.Context(), engine.Renew{Policy: policy, Resource: "r", LockID: "a", Part: "p", Order: 1})
	require.NoError(t, err)
	require.Equal(t, engine.Lost, d.Last.Outcome)
	require.Equal(t, "ended by a mongo-lock client", d.EvictedRecord("a").Reason)
}

func TestListsWhatTheyWrote(t *testing.T) {
	t.Parallel()
	eng, coll := shared(t)
	them := theirs.Client{Coll: coll}
	require.NoError(t, them.XLock(t.Context(), "app/1", "$theirs", 0))
	require.NoError(t, them.SLock(t.Context(), "app/2", "s", time.Minute, -1))
	_, err := eng.Acquire(t.Context(), exclusive("app/3", "ours", "p"))
	require.NoError(t, err)
	require.NoError(t, them.XLock(t.Context(), "other", "s", 0))
	names := func(q engine.Query) string {
		var names []string
		for d, err := range eng.List(t.Context(), q) {
			require.NoError(t, err)
			require.Len(t, d.Held, 1)
			names = append(names, d.ID)
		}
		return strings.Join(names, " ")
	}
	require.Equal(t, "app/1 app/2 app/3 other", names(engine.Query{}))
	require.Equal(t, "app/1 app/2 app/3", names(engine.Query{Prefix: "app/"}))
	require.Equal(t, "app/2 other", names(engine.Query{LockID: "s"}))
	require.Equal(t, "app/1", names(engine.Query{LockID: "$theirs"}))
	require.Equal(t, "app/3", names(engine.Query{Resource: "app/3"}))
}
