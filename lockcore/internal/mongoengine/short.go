package mongoengine

import (
	"context"
	"errors"
	"hash/crc32"
	"slices"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Most requests find no other in their way, and no other waits when they end. Then there is nothing to
// decide and nothing to settle: what is left of an operation are the condition for that, as the
// filter of its update, and a few lines. If the condition is not met the update changes nothing,
// and the whole pipeline is sent. docs/adr/0010-a-short-form.md has the figures.

type (
	shortAcquire struct{ keeps, forever, holdForever bool }
	shortEnd     struct{}
)

// short sends the short form of an operation, and reports whether its condition was met.
func (e *Engine) short(ctx context.Context, resource, lockID string, condition, values bson.D, kind kind) (engine.Document, bool, error) {
	_, acquires := kind.(shortAcquire)
	inserts := acquires && !e.known.of(resource).Load() // or a server would tell of an error if it is held
	d, err := e.send(ctx, append(condition, v("_id", resource)), lockID, values, kind, leanAnswer().SetUpsert(inserts))
	if errors.Is(err, mongo.ErrNoDocuments) || insertedByAnother(err) {
		return d, false, nil
	}
	return d, true, err
}

// inSession has both forms of a request sent in one session. The driver repeats a write whose answer
// is lost, and a repetition that finds nothing leaves no trace; but no copy of it that comes later is
// carried out after the next write of its session.
func (e *Engine) inSession(ctx context.Context) (_ context.Context, end func()) {
	if mongo.SessionFromContext(ctx) == nil {
		if s, err := e.coll.Database().Client().StartSession(options.Session().SetCausalConsistency(false)); err == nil {
			return mongo.NewSessionContext(ctx, s), func() { s.EndSession(context.WithoutCancel(ctx)) }
		}
	}
	return ctx, func() {}
}

// acquireShort grants a resource that is neither held nor waited for, if nothing is remembered of the lock
// ID that could refuse it.
func (e *Engine) acquireShort(ctx context.Context, op *engine.Acquire) (engine.Document, bool, error) {
	condition, values, kind, ok := e.shortOf(op)
	if !ok {
		return engine.Document{}, false, nil
	}
	return e.short(ctx, op.Resource, op.LockID, condition, values, kind)
}

// shortOf is the short form of a request, if it may have one.
func (e *Engine) shortOf(op *engine.Acquire) (condition, values bson.D, kind shortAcquire, ok bool) {
	asksMore := op.Held || op.Reacquire || op.Refresh || op.HandOver || op.Converts > 0 || len(op.Undo) > 0
	if asksMore || e.taken.of(op.Resource).Load() {
		return nil, nil, kind, false
	}
	other := doc(v("$ne", op.LockID))
	over := doc(v("lockId", op.LockID), v("order", doc(v("$gte", op.Order))))
	condition = doc(
		v("held", doc(v("$size", 0))), v("attn", doc(v("$size", 0))),
		v("evicted.lockId", other), v("undone.lockId", other), v("released", doc(v("$not", doc(v("$elemMatch", over))))))
	part, kept := entriesOf(op)
	values = doc(
		v("new", part), v("kept", kept), v("ttl", op.TTL), v("hold", max(op.HoldTTL, op.TTL)), v("late", latest(op)), v("mem", op.Memory()))
	return condition, values, shortAcquire{keeps: op.Persist, forever: op.TTL == 0, holdForever: op.HoldTTL == 0 || op.TTL == 0}, true
}

func (k shortAcquire) stages() []bson.D {
	begins := slices.Clip(doc(v("fence", "$fence"), v("first", "$fence")))
	part, created := append(begins, v("expiresAt", until("$t.ttl", k.forever))), v("createdAt", "$$NOW")
	entries, attn := list(merge("$t.new", append(part, created))), expr(none)
	if k.keeps {
		attn = cond(tooLate, none, list(engine.StateKept))
		kept := append(begins, v("expiresAt", until("$t.hold", k.holdForever)), v("part", nil), created)
		entries = list(merge("$t.kept", kept), merge("$t.new", part))
	}
	var s stages
	s.put(v("fence", cond(tooLate, "$fence", nextFence)))
	s.put(v("held", cond(tooLate, none, entries)))
	return s.storeShort(cond(tooLate, engine.Late, engine.Granted), none,
		v("attn", attn), v("since", ifNull("$since", op("$subtract", "$$NOW", "$t.mem"))))
}

// leaveShort ends a part if no other waits, has a claim or drains.
func (e *Engine) leaveShort(ctx context.Context, op *engine.Leave, record engine.Released) (engine.Document, bool, error) {
	if op.Waiting || op.Undo || e.awaited.of(op.Resource).Load() {
		return engine.Document{}, false, nil
	}
	condition := doc(v("attn", doc(v("$in", list(none, list(engine.StateKept))))))
	values := append(values(op.LockID, op.Part, op.Order, op.Policy), v("rec", record))
	return e.short(ctx, op.Resource, op.LockID, condition, values, shortEnd{})
}

// releaseShort ends a hold that is one part, if no other waits, has a claim or drains, and nothing
// is kept.
func (e *Engine) releaseShort(ctx context.Context, op *engine.Release, record engine.Released) (engine.Document, bool, error) {
	if op.FirstFence == 0 || op.Leaving == nil || op.Force || e.awaited.of(op.Resource).Load() {
		return engine.Document{}, false, nil
	}
	record.Part = op.Leaving
	part := doc(v("lockId", op.LockID), v("part", *op.Leaving), v("order", op.Order), v("first", op.FirstFence))
	if op.Label != "" {
		part = append(part, v("label", op.Label))
	}
	beside := doc(v("lockId", op.LockID), v("part", doc(v("$ne", *op.Leaving))))
	condition := doc(
		v("attn", doc(v("$size", 0))), v("held", doc(v("$elemMatch", part))), v("$nor", list(doc(v("held", doc(v("$elemMatch", beside)))))))
	values := append(values(op.LockID, *op.Leaving, op.Order, op.Policy), v("rec", record))
	return e.short(ctx, op.Resource, op.LockID, condition, values, shortEnd{})
}

func (shortEnd) stages() []bson.D {
	ends := and(running, eq(list("$$this.lockId", "$$this.part", "$$this.order"), list("$t.id", "$t.part", "$t.ord")))
	var s stages
	s.set(v("a", filter("$held", ends)))
	s.put(v("held", filter("$held", not(ends))), remember)
	// A kept hold that was displaced is in attn for one write more.
	return s.storeShort(engine.Granted, "$t.a", v("attn", op("$setDifference", "$held.state", list(engine.StateRunning))))
}

// storeShort is store with nothing to settle.
func (s *stages) storeShort(did, ended expr, more ...bson.E) []bson.D {
	last := doc(
		v("outcome", did), v("evidence", "$$REMOVE"), v("ended", ended), v("expired", none), v("position", int64(0)), v("length", int64(0)), v("note", "$$REMOVE"))
	s.put(append(more, v("seq", add("$seq", int64(1))), v("at", "$$NOW"), v("idleAt", idleAt), v("last", last), v("t", "$$REMOVE"))...)
	return *s
}

// hints say of resources, by a hash of their names, what the last answer told: a guess at whether
// it is worth while to try a short form.
type hints [1 << 12]atomic.Bool

func (h *hints) of(resource string) *atomic.Bool {
	return &h[crc32.ChecksumIEEE([]byte(resource))%uint32(len(h))]
}
