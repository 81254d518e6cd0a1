package mongoengine

import (
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// A collection that is shared with mongo-lock clients has their documents:
//
//	{ _id: <ObjectID>, resource: <name>, exclusive: <lock>, shared: { count, locks: [<lock>, …] } }
//	lock: { _id: <ObjectID>, lockId, owner, host, comment, createdAt, renewedAt, expiresAt, acquired }
//
// and beside them, in fields that those clients ignore, everything of ours. Of who holds, exclusive and shared
// are the truth: those clients change nothing else. Every pipeline, and every read, begins with stages that bring held
// in line with them, and every pipeline ends with stages that write the holds of held into them. What stands in between is
// the same as in a collection of our own.
//
// What their layout has no place for is in held alone: the parts of a hold, holds' fences and orders, claims, and
// parts that drain. It is matched to their locks by lock ID, mode and time of creation.

// Shared is an Engine on a collection in the layout of mongo-lock, and has what only the functions of mongo-lock need.
type Shared struct{ *Engine }

// NewShared is New for such a collection. Nothing removes its documents but Collect.
func NewShared(coll *mongo.Collection) *Shared {
	e := New(coll, 0)
	e.shared = true
	return &Shared{e}
}

// sharedKind is the kind of a pipeline in that layout.
type sharedKind struct{ kind }

// Its stages stand between those that read and those that write their layout. They keep what they need in the
// temporary field m.
func (k sharedKind) stages() []bson.D {
	var s stages
	s.put(v("resource", "$t.name"), v("m", doc(v("own", "$t.own"), v("now", "$$NOW"))))
	s.understand()
	s = append(s, k.kind.stages()...)
	s.present()
	return append(s, on("$unset", list("m", "idleAt")))
}

// theirs is what their layout tells of a lock that an acquire makes. Their clients sort by the ObjectID.
func theirs(a *engine.Acquire) bson.E {
	orNull := func(text string) any {
		if text == "" {
			return nil
		}
		return text
	}
	return v("own", doc(v("owner", orNull(a.Owner)), v("host", orNull(a.Host)), v("comment", orNull(a.Comment)), v("_id", bson.NewObjectID())))
}

// groups is the entries of h, a path, one array per lock ID. Usually there is one entry of each.
func groups(h string) expr {
	ids := op("$setUnion", h+".lockId")
	own := on("$map", doc(v("input", ids), v("as", "j"), v("in", filter(h, eq("$$this.lockId", "$$j")))))
	return cond(eq(size(ids), size(h)), each(h, list("$$this")), own)
}

// began is when the hold of a group began.
var began = ifNull(minOf("$$this.createdAt"), nil)

// understand brings held in line with exclusive and shared, as they are at m.now. It sets
//
//	l  their locks, ids and was of them      w  the holds in held      ok  whether they say the same; where not
//	s  the lock IDs whose holds stand      n  their locks that are new      c  those whose end somebody moved
func (s *stages) understand() {
	lock := func(mode string) bson.D {
		key := list("$$this.lockId", mode, ifNull("$$this.createdAt", nil))
		end := ifNull("$$this.expiresAt", never)
		return doc(v("lockId", "$$this.lockId"), v("mode", mode), v("key", key), v("end", end), v("both", list(key, end)), v("was", "$$this"))
	}
	s.put(
		v("m.l", concat(
			each(cond(eq("$exclusive.acquired", true), list("$exclusive"), none), lock(engine.Exclusive)),
			each(ifNull("$shared.locks", none), lock(engine.SharedBy)))),
		v("m.h", filter("$held", holds)),
	)
	s.put(v("m.o", groups("$m.h")))
	key := list(first("$$this.lockId"), first("$$this.mode"), began)
	s.put(v("m.w", each("$m.o", doc(v("lockId", first("$$this.lockId")), v("key", key), v("both", list(key, maxOf("$$this.expiresAt")))))))
	// Usually nothing has changed, which the difference of two sets tells without looking at each pair.
	s.put(v("m.ids", "$m.l.lockId"), v("m.was", "$m.l.was"), v("m.ok", and(
		eq(op("$setDifference", "$m.l.both", "$m.w.both"), none), eq(op("$setDifference", "$m.w.key", "$m.l.key"), none))))
	known := in("$$this.key", "$m.w.key")
	changed := func(what expr) bson.D { return cond("$m.ok", none, what) }
	s.put(
		v("m.s", changed(each(filter("$m.w", in("$$this.key", "$m.l.key")), "$$this.lockId"))),
		v("m.n", changed(filter("$m.l", not(known)))),
		v("m.c", changed(each(filter("$m.l", and(known, not(in("$$this.both", "$m.w.both")))),
			doc(v("lockId", "$$this.lockId"), v("to", doc(v("expiresAt", "$$this.end"), v("renewedAt", "$$this.was.renewedAt"))))))),
	)
	s.reconcile()
}

// reconcile is where another client changed something: what it ended goes, what it renewed has a new end, and
// what it made is an entry. A part of ours that it cut off keeps others out as long as it may trust. Order 0 is that
// of locks made by the functions of mongo-lock, by which nobody trusts a lease.
func (s *stages) reconcile() {
	ended := and(holds, not(in("$$this.lockId", "$m.s")), gt("$$this.order", int64(0)))
	moved := op("$arrayElemAt", "$m.c.to", op("$indexOfArray", "$m.c.lockId", "$$this.lockId"))
	since := ifNull("$$this.was.renewedAt", ifNull("$$this.was.createdAt", "$m.now"))
	made := doc(
		v("lockId", "$$this.lockId"), v("part", ""), v("order", int64(0)), v("mode", "$$this.mode"), v("state", engine.Part), v("fence", int64(0)),
		v("ttl", cond(lt("$$this.end", never), largest(int64(1), op("$subtract", "$$this.end", since)), int64(0))),
		v("expiresAt", "$$this.end"), v("renewedAt", "$$this.was.renewedAt"), v("createdAt", ifNull("$$this.was.createdAt", "$m.now")),
		v("owner", "$$this.was.owner"), v("host", "$$this.was.host"), v("comment", "$$this.was.comment"),
	)
	record := doc(v("lockId", "$$this.lockId"), v("fence", "$$this.fence"), v("reason", "ended by a mongo-lock client"))
	// As drained, but DocumentDB lets a read say $$NOW in its own stage only.
	drains := doc(v("state", engine.Draining), v("expiresAt", op("$min", "$$this.expiresAt", op("$add", "$m.now", "$$this.ttl", "$$this.ttl"))))
	s.put(
		v("held", cond("$m.ok", "$held", concat(
			each(filter("$held", or(not(holds), in("$$this.lockId", "$m.s"))),
				cond(and(holds, in("$$this.lockId", "$m.c.lockId")), merge("$$this", moved), "$$this")),
			each(filter("$held", and(ended, running, gt("$$this.expiresAt", "$m.now"))), merge("$$this", drains)),
			each("$m.n", made)))),
		v("evicted", cond("$m.ok", "$evicted",
			lastOf(concat("$evicted", each(filter("$held", and(ended, "$$this.createdAt")), record)), engine.MaxEvicted))),
	)
}

// noLock is how their layout says that nobody holds exclusively.
var noLock = lit(bson.D{
	{Key: "lockId", Value: nil}, {Key: "owner", Value: nil}, {Key: "host", Value: nil}, {Key: "comment", Value: nil},
	{Key: "createdAt", Value: nil}, {Key: "renewedAt", Value: nil}, {Key: "expiresAt", Value: nil}, {Key: "acquired", Value: false},
})

// present writes the holds into exclusive and shared. A lock that stood there keeps what it has beside its times; a new
// one has what the request told.
func (s *stages) present() {
	s.put(v("m.h", filter("$held", holds)))
	s.put(v("m.o", groups("$m.h")))
	id, end := first("$$this.lockId"), maxOf("$$this.expiresAt")
	stood := cond(in(id, "$m.ids"), op("$arrayElemAt", "$m.was", op("$indexOfArray", "$m.ids", id)), "$m.own")
	lock := merge(noLock, stood, doc(
		v("lockId", id), v("createdAt", began), v("renewedAt", ifNull(maxOf("$$this.renewedAt"), nil)),
		v("expiresAt", cond(lt(end, never), end, nil)), v("acquired", true)))
	s.put(v("m.w", each("$m.o", doc(v("mode", first("$$this.mode")), v("lock", lock)))))
	s.put(
		v("m.x", each(filter("$m.w", exclusive), "$$this.lock")),
		v("m.s", each(filter("$m.w", not(exclusive)), "$$this.lock")),
	)
	s.put(
		v("exclusive", ifNull(first("$m.x"), noLock)),
		v("shared", merge("$shared", doc(v("count", size("$m.s")), v("locks", "$m.s")))),
	)
}
