package mongoengine_test

import (
	"context"
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
	"pgregory.net/rapid"

	"github.com/temporal-lockstep/lockstep/internal/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/mongoengine"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
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

// TestTheirLayoutFollowsTheSpecification runs random operations of ours and of mongo-lock clients on one resource. Each
// of ours must make of what it reads what the specification makes of it, and the document must say the same in
// their layout.
func TestTheirLayoutFollowsTheSpecification(t *testing.T) {
	t.Parallel()
	eng, coll := shared(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		m := &sharedModel{model: model{coll: coll, name: fmt.Sprintf("$resource/%d", run)}, eng: eng, them: theirClient{coll}}
		n := rapid.IntRange(1, 25).Draw(rt, "operations")
		for range n {
			m.step(rt)
		}
	})
}

type sharedModel struct {
	model
	eng  *mongoengine.Shared
	them theirClient
}

func (m *sharedModel) read(t *rapid.T) engine.Document {
	docs, err := m.eng.Read(context.Background(), m.name)
	require.NoError(t, err)
	if len(docs) == 0 {
		return engine.Document{}
	}
	return docs[0]
}

func (m *sharedModel) step(t *rapid.T) {
	ctx := context.Background()
	lockID := rapid.SampledFrom([]string{"$owner", "a.b", "c"}).Draw(t, "lockID")
	ttl := rapid.SampledFrom([]time.Duration{0, 10 * time.Second, -time.Second}).Draw(t, "their ttl")
	kind := rapid.SampledFrom([]string{"ours", "ours", "ours", "ours", "lock", "their x", "their s", "their unlock", "their renew", "wait"}).Draw(t, "whose")
	switch kind {
	case "their x":
		_ = m.them.xLock(ctx, m.name, lockID, ttl) // which may be refused
	case "their s":
		_ = m.them.sLock(ctx, m.name, lockID, ttl)
	case "their unlock":
		_ = m.them.unlock(ctx, m.name, lockID)
	case "their renew":
		_ = m.them.renew(ctx, m.name, lockID, time.Minute)
	case "wait":
		m.later(t, time.Duration(rapid.IntRange(1, 70).Draw(t, "seconds"))*time.Second)
	default:
		before := m.read(t)
		m.agree(t, before)
		expect, send := m.operation(t, kind, lockID)
		got, err := send()
		require.NoError(t, err)
		// A part that was cut off since the last write is cut off by the read, and again by the operation.
		for i := range before.Held {
			if e := &before.Held[i]; e.State == engine.Draining && e.ExpiresAt.Equal(before.At.Add(time.Duration(e.TTL)*time.Millisecond)) {
				e.ExpiresAt = got.At.Add(time.Duration(e.TTL) * time.Millisecond)
			}
		}
		want := expect(before, got.At)
		require.Equal(t, want.Last.Outcome, got.Last.Outcome)
		m.same(t, want)
	}
}

// later moves every time in the document back.
func (m *sharedModel) later(t *rapid.T, by time.Duration) {
	var d bson.D
	err := m.coll.FindOne(context.Background(), bson.M{"resource": m.name}).Decode(&d)
	if err == mongo.ErrNoDocuments { //nolint:errorlint // nothing there yet
		return
	}
	require.NoError(t, err)
	_, err = m.coll.ReplaceOne(context.Background(), bson.M{"resource": m.name}, shift(d, by))
	require.NoError(t, err)
}

// same checks what is stored, as ours and as theirs, against what should be.
func (m *sharedModel) same(t *rapid.T, want engine.Document) {
	stored := m.read(t)
	stored.At, want.IdleAt, want.ID = want.At, time.Time{}, m.name
	require.Equal(t, render(t, want), render(t, stored))

	theirs := m.them.read(t, m.name)
	require.Equal(t, len(theirs.Shared.Locks), theirs.Shared.Count)
	if !theirs.Exclusive.Acquired {
		require.Equal(t, theirLock{}, theirs.Exclusive)
	}
	m.agree(t, want)
}

// agree checks that a document says of who holds, since when and until when what stands in their layout.
func (m *sharedModel) agree(t *rapid.T, d engine.Document) {
	if d.ID == "" {
		return
	}
	theirs := m.them.read(t, m.name)
	var told, should []string
	tell := func(l theirLock, mode string) {
		require.False(t, l.ID.IsZero())
		end := engine.Never
		if l.ExpiresAt != nil {
			require.True(t, l.ExpiresAt.Before(engine.Never))
			end = *l.ExpiresAt
		}
		told = append(told, fmt.Sprint(*l.LockID, mode, l.CreatedAt.UnixMilli(), " to ", end.UnixMilli()))
	}
	if theirs.Exclusive.Acquired {
		tell(theirs.Exclusive, engine.Exclusive)
	}
	for _, l := range theirs.Shared.Locks {
		tell(l, engine.SharedBy)
	}
	holds := map[string]engine.Entry{}
	for _, e := range d.Held {
		if h, known := holds[e.LockID]; e.Holds() {
			if known && (e.CreatedAt == nil || (h.CreatedAt != nil && h.CreatedAt.Before(*e.CreatedAt))) {
				e.CreatedAt = h.CreatedAt
			}
			if h.ExpiresAt.After(e.ExpiresAt) {
				e.ExpiresAt = h.ExpiresAt
			}
			holds[e.LockID] = e
		}
	}
	for id, h := range holds {
		should = append(should, fmt.Sprint(id, h.Mode, h.CreatedAt.UnixMilli(), " to ", h.ExpiresAt.UnixMilli()))
	}
	slices.Sort(told)
	slices.Sort(should)
	require.Equal(t, should, told)
}

func (m *sharedModel) operation(t *rapid.T, kind, lockID string) (func(engine.Document, time.Time) engine.Document, func() (engine.Document, error)) {
	type doc = engine.Document
	ctx := context.Background()
	part := rapid.SampledFrom([]string{"", "$p"}).Draw(t, "part")
	order := rapid.Int64Range(1, 6).Draw(t, "order")
	if kind == "lock" {
		op := m.acquire(t, lockID, "lock/"+part, 0)
		op.Keep, op.Queue, op.Held, op.Reacquire, op.NewFence, op.Refresh, op.HoldTTL = false, false, false, false, false, false, op.TTL
		return func(d doc, now time.Time) doc { return lockAlone(d, op, now) }, func() (doc, error) { return m.eng.Lock(ctx, op) }
	}
	switch rapid.SampledFrom([]string{"acquire", "acquire", "acquire", "acquire", "renew", "leave", "release", "withdraw", "purge"}).Draw(t, "kind") {
	case "acquire":
		op := m.acquire(t, lockID, part, order)
		return func(d doc, now time.Time) doc { return lockcoretest.Acquire(d, op, now) }, func() (doc, error) { return m.eng.Acquire(ctx, op) }
	case "renew":
		op := engine.Renew{Policy: policy, Resource: m.name, LockID: lockID, Part: part, Order: order, Downgrade: rapid.Bool().Draw(t, "downgrade")}
		return func(d doc, now time.Time) doc { return lockcoretest.Renew(d, op, now) }, func() (doc, error) { return m.eng.Renew(ctx, op) }
	case "leave":
		op := engine.Leave{Policy: policy, Resource: m.name, LockID: lockID, Part: part, Order: order, Undo: rapid.Bool().Draw(t, "undo")}
		return func(d doc, now time.Time) doc { return lockcoretest.Leave(d, op, now) }, func() (doc, error) { return m.eng.Leave(ctx, op) }
	case "release":
		op := engine.Release{Policy: policy, Resource: m.name, LockID: lockID, Order: order}
		if rapid.IntRange(0, 3).Draw(t, "force") == 0 {
			op.Force, op.Reason = true, "$because"
		}
		return func(d doc, now time.Time) doc { return lockcoretest.Release(d, op, now) }, func() (doc, error) { return m.eng.Release(ctx, op) }
	case "withdraw":
		op := engine.Withdraw{Policy: policy, Resource: m.name, LockID: lockID, Part: part, Order: order, Reason: "$because"}
		return func(d doc, now time.Time) doc { return lockcoretest.Withdraw(d, op, now) }, func() (doc, error) { return m.eng.Withdraw(ctx, op) }
	default:
		op := engine.Purge{Policy: policy, Resource: m.name, Reason: "$because"}
		return func(d doc, now time.Time) doc { return lockcoretest.Purge(d, op, now) }, func() (doc, error) { return m.eng.Purge(ctx, op) }
	}
}

// lockAlone is the specification of Lock: an Acquire that knows nothing of what was released, that its own expired
// hold gives way to, and that is refused where the lock ID holds otherwise.
func lockAlone(d engine.Document, op engine.Acquire, now time.Time) engine.Document {
	released := d.Released
	d.Released = nil
	own := func(e engine.Entry) bool { return e.LockID == op.LockID && e.Holds() }
	if slices.ContainsFunc(d.Held, func(e engine.Entry) bool { return own(e) && e.ExpiresAt.After(now) && e.Part != op.Part }) {
		d.Released = []engine.Released{{LockID: op.LockID, Order: op.Order}}
	} else {
		d.Held = slices.DeleteFunc(slices.Clone(d.Held), func(e engine.Entry) bool { return own(e) && !e.ExpiresAt.After(now) })
	}
	d = lockcoretest.Acquire(d, op, now)
	d.Released = append([]engine.Released{}, released...)
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
	them := theirClient{coll}
	op := func(name string) engine.Renew {
		return engine.Renew{Policy: policy, Resource: name, LockID: "a", Part: "p", Order: 1}
	}
	for _, name := range []string{"kept", "ended"} {
		_, err := eng.Acquire(t.Context(), exclusive(name, "a", "p"))
		require.NoError(t, err)
	}
	require.NoError(t, them.unlock(t.Context(), "ended", "a"))
	var before, after bson.M
	require.NoError(t, coll.FindOne(t.Context(), bson.M{"resource": "ended"}).Decode(&before))
	renewed, err := eng.RenewAll(t.Context(), []engine.Renew{op("kept"), op("ended"), op("never")})
	require.NoError(t, err)
	require.Equal(t, []bool{true, false, false}, renewed)
	require.NotNil(t, them.read(t, "kept").Exclusive.RenewedAt)
	require.NoError(t, coll.FindOne(t.Context(), bson.M{"resource": "ended"}).Decode(&after))
	require.Equal(t, before, after)

	// Also where every document is there, and one of its parts is not.
	renewed, err = eng.RenewAll(t.Context(), []engine.Renew{op("kept"), op("ended")})
	require.NoError(t, err)
	require.Equal(t, []bool{true, false}, renewed)

	// What they renewed is not shortened.
	require.NoError(t, them.renew(t.Context(), "kept", "a", time.Hour))
	renewed, err = eng.RenewAll(t.Context(), []engine.Renew{op("kept")})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, renewed)
	require.WithinDuration(t, time.Now().Add(time.Hour), *them.read(t, "kept").Exclusive.ExpiresAt, time.Minute)
}

func TestAPartThatTheyCutOffDrains(t *testing.T) {
	t.Parallel()
	eng, coll := shared(t)
	_, err := eng.Acquire(t.Context(), exclusive("r", "a", "p"))
	require.NoError(t, err)
	require.NoError(t, theirClient{coll}.unlock(t.Context(), "r", "a"))
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
	them := theirClient{coll}
	require.NoError(t, them.xLock(t.Context(), "app/1", "$theirs", 0))
	require.NoError(t, them.sLock(t.Context(), "app/2", "s", time.Minute))
	_, err := eng.Acquire(t.Context(), exclusive("app/3", "ours", "p"))
	require.NoError(t, err)
	require.NoError(t, them.xLock(t.Context(), "other", "s", 0))
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
