package mongoengine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"pgregory.net/rapid"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/mongoengine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/theirs"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

// TestTheirLayoutFollowsTheSpecification runs random operations of ours and of mongo-lock clients on one resource. Each
// of ours must make of what it reads what the specification makes of it, and the document must say the same in
// their layout.
func TestTheirLayoutFollowsTheSpecification(t *testing.T) {
	t.Parallel()
	eng, coll := shared(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		m := &sharedModel{model: model{coll: coll, name: fmt.Sprintf("$resource/%d", run)}, eng: eng, them: theirs.Client{Coll: coll}}
		n := rapid.IntRange(1, 25).Draw(rt, "operations")
		for range n {
			m.step(rt)
		}
	})
}

type sharedModel struct {
	model
	eng  *mongoengine.Shared
	them theirs.Client
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
		_ = m.them.XLock(ctx, m.name, lockID, ttl) // which may be refused
	case "their s":
		_ = m.them.SLock(ctx, m.name, lockID, ttl, -1)
	case "their unlock":
		_ = m.them.Unlock(ctx, m.name, lockID)
	case "their renew":
		_ = m.them.Renew(ctx, m.name, lockID, time.Minute)
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
			if e := &before.Held[i]; e.State == engine.Draining && e.ExpiresAt.Equal(before.At.Add(2*time.Duration(e.TTL)*time.Millisecond)) {
				e.ExpiresAt = got.At.Add(2 * time.Duration(e.TTL) * time.Millisecond)
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

	document, err := m.them.Read(context.Background(), m.name)
	require.NoError(t, err)
	require.Equal(t, len(document.Shared.Locks), document.Shared.Count)
	if !document.Exclusive.Acquired {
		require.Equal(t, theirs.Lock{}, document.Exclusive)
	}
	m.agree(t, want)
}

// agree checks that a document says of who holds, since when and until when what stands in their layout.
func (m *sharedModel) agree(t *rapid.T, d engine.Document) {
	if d.ID == "" {
		return
	}
	document, err := m.them.Read(context.Background(), m.name)
	require.NoError(t, err)
	var told, should []string
	tell := func(l theirs.Lock, mode string) {
		require.False(t, l.ID.IsZero())
		end := engine.Never
		if l.ExpiresAt != nil {
			require.True(t, l.ExpiresAt.Before(engine.Never))
			end = *l.ExpiresAt
		}
		told = append(told, fmt.Sprint(*l.LockID, mode, l.CreatedAt.UnixMilli(), " to ", end.UnixMilli()))
	}
	if document.Exclusive.Acquired {
		tell(document.Exclusive, engine.Exclusive)
	}
	for _, l := range document.Shared.Locks {
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
