package mongoengine

import (
	"context"
	"errors"
	"hash/crc32"
	"slices"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Most requests find no other in their way, and no other waits when they end. Then there is nothing
// to decide and nothing to settle. The short form of an operation is a few lines that find out
// whether that is so, t.go, and do the rest. If it is not, the write changes nothing but its answer,
// passed, and the whole pipeline is sent. docs/adr/0010-a-short-form.md has the figures.

type (
	shortAcquire struct{ keeps, forever, holdForever, orFails bool }
	shortLeave   struct{}
	shortRelease struct{ labelled bool }
	shortCommit  struct{}
)

// passed is the outcome of a short form that does not apply.
const passed = "passed"

// shortEnd sends the short form of what ends something, and reports whether it applied. It makes no
// document.
func (e *Engine) shortEnd(ctx context.Context, resource, lockID string, values bson.D, kind kind) (engine.Document, bool, error) {
	d, err := e.send(ctx, resource, lockID, values, kind, leanAnswer())
	if errors.Is(err, mongo.ErrNoDocuments) {
		return d, false, nil
	}
	return d, err != nil || d.Last.Outcome != passed, err
}

// acquireShort grants a resource that is neither held nor waited for, if nothing is remembered of the lock
// ID that could refuse it.
func (e *Engine) acquireShort(ctx context.Context, op *engine.Acquire) (engine.Document, bool, error) {
	values, kind, ok := e.shortOf(op)
	if !ok {
		return engine.Document{}, false, nil
	}
	d, err := e.apply(ctx, op.Resource, op.LockID, values, kind)
	return d, err != nil || d.Last.Outcome != passed, err
}

// shortOf is the short form of a request, if it may have one.
func (e *Engine) shortOf(op *engine.Acquire) (values bson.D, kind shortAcquire, ok bool) {
	asksMore := (op.Held && !op.Reacquire) || op.Refresh || op.HandOver || op.Converts > 0 || len(op.Undo) > 0
	if asksMore || e.taken.of(op.Resource).Load() {
		return nil, kind, false
	}
	part, kept := entriesOf(op)
	values = doc(
		v("id", op.LockID), v("ord", op.Order), v("new", part), v("kept", kept), v("ttl", op.TTL), v("hold", max(op.HoldTTL, op.TTL)),
		v("late", latest(op)), v("mem", op.Memory()))
	return values, shortAcquire{keeps: op.Persist, forever: op.TTL == 0, holdForever: op.HoldTTL == 0 || op.TTL == 0}, true
}

// What a short acquire asks: whether it is in time, no other holds or waits, and nothing is
// remembered that is about it.
var (
	nothingHeld    = eq("$held", none)
	nothingWaits   = eq("$waiters", none)
	neverEvicted   = not(in("$t.id", "$evicted.lockId"))
	neverUndone    = not(in("$t.id", ifNull("$undone.lockId", none)))
	notOver        = or(not(in("$t.id", "$released.lockId")), eq(filter("$released", isOver), none))
	isOver         = and(ownID, gte("$$this.order", "$t.ord"), in("$$this.part", list(nil, "$t.new.part")))
	nothingAgainst = and(not(tooLate), nothingHeld, nothingWaits, neverEvicted, neverUndone, notOver)
)

// fails ends an update command: nothing that comes after it is done.
var fails = op("$divide", 1, "$t.zero")

func (k shortAcquire) stages() []bson.D {
	begins := slices.Clip(doc(v("fence", "$fence"), v("first", "$fence")))
	end := until("$t.ttl", k.forever)
	part, created := append(begins, v("expiresAt", end)), v("createdAt", "$$NOW")
	entries, attn := list(merge("$t.new", append(part, created))), none
	if k.keeps {
		attn, end = list(engine.StateKept), until("$t.hold", k.holdForever)
		kept := append(begins, v("expiresAt", end), v("part", nil), created)
		entries = list(merge("$t.kept", kept), merge("$t.new", part))
	}
	var s stages
	applies := nothingAgainst
	if k.orFails {
		applies = cond(nothingAgainst, true, fails)
	}
	s.set(v("go", applies))
	s.put(v("fence", ifGo(nextFence, "$fence")))
	return s.storeShort(none, ifGo(idleAfter(end), ifNull("$idleAt", idleAfter("$$NOW"))), v("held", ifGo(entries, "$held")), v("attn", ifGo(attn, "$attn")),
		v("since", ifNull("$since", op("$subtract", "$$NOW", "$t.mem"))))
}

// leaveShort ends a part if no other waits, has a claim or drains.
func (e *Engine) leaveShort(ctx context.Context, op *engine.Leave, record engine.Released) (engine.Document, bool, error) {
	if op.Waiting || op.Undo || e.awaited.of(op.Resource).Load() {
		return engine.Document{}, false, nil
	}
	values := append(values(op.LockID, op.Part, op.Order, op.Policy), v("rec", record))
	return e.shortEnd(ctx, op.Resource, op.LockID, values, shortLeave{})
}

// onlyKept is whether nothing stands beside plain holds but what is kept.
var onlyKept = in("$attn", list(none, list(engine.StateKept)))

func (shortLeave) stages() []bson.D {
	ends := and(running, eq(list("$$this.lockId", "$$this.part", "$$this.order"), list("$t.id", "$t.part", "$t.ord")))
	var s stages
	s.set(v("a", filter("$held", ends)), v("go", onlyKept))
	return s.end(not(ends))
}

// releaseShort ends what a release names by the short form for it, if there is one.
func (e *Engine) releaseShort(ctx context.Context, op *engine.Release, record engine.Released) (engine.Document, bool, error) {
	switch {
	case e.awaited.of(op.Resource).Load():
	case op.Used > 0 && op.Leaving == nil:
		return e.commitShort(ctx, op, record)
	case op.FirstFence > 0 && op.Leaving != nil && !op.Force:
		return e.endPartShort(ctx, op, record)
	}
	return engine.Document{}, false, nil
}

// commitShort ends a hold that was used and is only kept, if no other waits, has a claim or drains.
func (e *Engine) commitShort(ctx context.Context, op *engine.Release, record engine.Released) (engine.Document, bool, error) {
	values := append(values(op.LockID, "", op.Order, op.Policy), v("label", op.Label), v("used", op.Used), v("rec", record))
	return e.shortEnd(ctx, op.Resource, op.LockID, values, shortCommit{})
}

// endPartShort ends a hold that is one part, if no other waits, has a claim or drains, and nothing is
// kept.
func (e *Engine) endPartShort(ctx context.Context, op *engine.Release, record engine.Released) (engine.Document, bool, error) {
	record.Part = op.Leaving
	part := list(engine.StateRunning, *op.Leaving, op.Order, op.FirstFence)
	if op.Label != "" {
		part = append(part, op.Label)
	}
	values := append(values(op.LockID, *op.Leaving, op.Order, op.Policy), v("rec", record), v("is", part))
	return e.shortEnd(ctx, op.Resource, op.LockID, values, shortRelease{labelled: op.Label != ""})
}

func (k shortRelease) stages() []bson.D {
	named := list("$$this.state", "$$this.part", "$$this.order", "$$this.first")
	if k.labelled {
		named = append(named, "$$this.label")
	}
	var s stages
	s.set(v("a", filter("$held", ownID)))
	s.set(v("go", and(plainHoldsOnly, eq(each("$t.a", named), list("$t.is")))))
	return s.end(others)
}

func (shortCommit) stages() []bson.D {
	named := list("$$this.label", "$$this.state", begunInTime, lte("$$this.order", "$t.ord"))
	var s stages
	s.set(v("a", filter("$held", ownID)))
	s.set(v("go", and(eq("$attn", list(engine.StateKept)), neverEvicted, eq(each("$t.a", named), list(list("$t.label", engine.StateKept, true, true))))))
	return s.end(others, v("commits", ifGo(commits, ifNull("$commits", "$$REMOVE"))))
}

// plainHoldsOnly is whether nothing stands beside plain holds.
var plainHoldsOnly = eq("$attn", none)

// end lets a stay out of what is held, and remembers it.
func (s *stages) end(stays expr, more ...bson.E) []bson.D {
	s.put(append(more, v("held", ifGo(filter("$held", stays), "$held")), v("released", ifGo(remember.Value, "$released")))...)
	// A kept hold that was displaced is in attn for one write more.
	beside := op("$setDifference", "$held.state", list(engine.StateRunning))
	return s.storeShort("$t.a", ifGo(idleAt, "$idleAt"), v("attn", ifGo(beside, "$attn")))
}

func ifGo(then, otherwise expr) expr { return cond("$t.go", then, otherwise) }

// storeShort is store with nothing to settle.
func (s *stages) storeShort(ended, idle expr, more ...bson.E) []bson.D {
	last := doc(
		v("outcome", ifGo(engine.Granted, passed)), v("evidence", "$$REMOVE"), v("ended", ended), v("expired", none),
		v("position", int64(0)), v("length", int64(0)), v("note", "$$REMOVE"))
	s.put(append(more, v("seq", add("$seq", ifGo(int64(1), int64(0)))), v("at", "$$NOW"), v("idleAt", idle), v("last", last), v("t", "$$REMOVE"))...)
	return *s
}

// hints say of resources, by a hash of their names, what the last answer told: a guess at whether
// it is worth while to try a short form.
type hints [1 << 12]atomic.Bool

func (h *hints) of(resource string) *atomic.Bool {
	return &h[crc32.ChecksumIEEE([]byte(resource))%uint32(len(h))]
}
