package mongoengine

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// The operations that only the functions of mongo-lock need. They stand beside those of the engine, and on
// the same stages.

type (
	lockKind   struct{ acquire acquireKind }
	extendKind struct{}
	unlockKind struct{}
)

func (lockKind) lean() bool   { return true }
func (extendKind) lean() bool { return true }
func (unlockKind) lean() bool { return true }

// Lock is Acquire for a lock ID that does not hold the resource: one that does is refused, with the outcome
// Overtaken, where Acquire would join. Repeated with the same part it gets the same answer.
func (e *Shared) Lock(ctx context.Context, op engine.Acquire) (engine.Document, error) {
	return e.apply(ctx, op.Resource, op.LockID, append(acquireValues(&op), theirs(&op)), lockKind{kindOf(&op)})
}

// A lock hides what was released, which Acquire would look at. Where the lock ID holds, a record in its place makes
// Acquire refuse; an expired hold of its own gives way.
func (k lockKind) stages() []bson.D {
	hold := and(ownID, holds)
	var s stages
	s.put(v("m.r", "$released"), v("m.g", ne(filter("$held", and(hold, alive, ne("$$this.part", "$t.part"))), none)))
	s.put(
		v("released", cond("$m.g", list(doc(v("lockId", "$t.id"), v("part", nil), v("order", "$t.ord"))), none)),
		v("held", cond("$m.g", "$held", filter("$held", or(alive, not(hold))))),
	)
	s = append(s, k.acquire.stages()...)
	s.put(v("released", "$m.r"))
	return s
}

// Extend sets the TTL of the hold of a lock ID that began at since, where at least a second of it is left, and its end
// that long from now. A part that somebody may trust by keeps its own TTL, and is never shortened.
func (e *Shared) Extend(ctx context.Context, policy engine.Policy, resource, lockID string, since *time.Time, ttl time.Duration) (engine.Document, error) {
	values := append(values(lockID, "", 0, policy), v("since", since), v("ttl", ttl.Milliseconds()))
	return e.apply(ctx, resource, lockID, values, extendKind{})
}

func (extendKind) stages() []bson.D {
	const least = 1000
	hold := and(ownID, holds)
	var s stages
	s.put(fresh, v("t.a", filter("$held", hold)))
	s.set(v("g", and(ne("$t.a", none), eq(ifNull(minOf("$t.a.createdAt"), nil), "$t.since"), gte(maxOf("$t.a.expiresAt"), add("$$NOW", least)))))
	end := add("$$NOW", "$t.ttl")
	anew := cond(gt("$$this.order", int64(0)),
		merge("$$this", doc(v("renewedAt", "$$NOW"), v("expiresAt", largest("$$this.expiresAt", end)))),
		merge("$$this", doc(v("renewedAt", "$$NOW"), v("expiresAt", end), v("ttl", "$t.ttl"))))
	s.put(v("held", each("$held", cond(and("$t.g", hold), anew, "$$this"))))
	return s.store(outcome{did: cond("$t.g", engine.Granted, engine.Lost), position: 0})
}

// Unlock ends the hold of a lock ID that began at since, whatever its orders. A part that somebody may trust by
// drains.
func (e *Shared) Unlock(ctx context.Context, policy engine.Policy, resource, lockID string, since *time.Time) (engine.Document, error) {
	return e.apply(ctx, resource, lockID, append(values(lockID, "", 0, policy), v("since", since)), unlockKind{})
}

func (unlockKind) stages() []bson.D {
	var s stages
	s.put(fresh, v("t.a", filter("$held", and(ownID, holds))))
	s.set(v("g", and(ne("$t.a", none), eq(ifNull(minOf("$t.a.createdAt"), nil), "$t.since"))))
	drains := filter("$t.a", and(running, alive, gt("$$this.order", int64(0))))
	s.put(v("held", cond("$t.g", concat(filter("$held", and(not(in("$$this", "$t.a")), lives)), each(drains, merge("$$this", drained))), "$held")))
	return s.store(outcome{
		did: cond("$t.g", engine.Granted, engine.Lost), released: cond("$t.g", filter("$t.a", "$$this.createdAt"), none), position: 0,
	})
}
