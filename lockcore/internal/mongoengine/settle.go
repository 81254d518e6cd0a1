package mongoengine

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// A pipeline loads the document into the temporary field t, acts, settles, and stores. The first stage sets
// in t what the caller passed, as one literal:
//
//	id  the lock ID      part      ord  the order      and what else the operation needs
//
// The stages after it keep in t, each set anew by the stage that changes it:
//
//	h  what is held      w  the queue      e  the evicted, r the released records      f  the fence
//	did  the outcome     pos  the place in the queue      gone  the entries of holds that ended
//
// What is usual comes first and costs least: a list is searched by a path, such as "$t.h.lockId", before it is
// filtered entry by entry.

var (
	never  = bson.NewDateTimeFromTime(engine.Never)
	alive  = gt("$$i.expiresAt", "$$NOW")
	holds  = gte("$$i.state", engine.StateHolds)
	ownID  = eq("$$i.lockId", "$t.id")
	others = ne("$$i.lockId", "$t.id")
	// ownPart is the own part, or its claim or place; a kept hold has none.
	ownPart = eq("$$i.part", "$t.part")
	running = eq("$$i.state", engine.Part)
	isKept  = eq("$$i.state", engine.Kept)
	claimed = eq("$$i.state", engine.Claimed)
)

// load drops what is dead: claims and draining parts whose time is up, and places that nobody refreshed.
func (s *stages) load() {
	s.set(
		v("h", cond(gte(minOf("$held.state"), engine.StateHolds), "$held", filter(ifNull("$held", list()), or(holds, alive)))),
		v("w", cond(gt(minOf("$waiters.expiresAt"), "$$NOW"), "$waiters", filter(ifNull("$waiters", list()), alive))),
		v("e", ifNull("$evicted", list())), v("r", ifNull("$released", list())), v("f", ifNull("$fence", int64(0))),
	)
}

// own sets a, the lock ID's entries, of which a kept one is extended: that somebody came is a sign of life.
func (s *stages) own() {
	heard := merge("$$i", doc(v("expiresAt", largest("$$i.expiresAt", add("$$NOW", "$$i.ttl")))))
	s.set(v("a", cond(in("$t.id", "$t.h.lockId"), each(filter("$t.h", ownID), cond(isKept, heard, "$$i")), list())))
}

// settle claims the resource for the head of the queue while it fits: one exclusive, or consecutive shared
// ones of the same limit, up to a bound. Those who slept through a claim are passed over. claimTTL is in
// milliseconds.
func (s *stages) settle() {
	s.set(v("q", cond(eq("$t.w.until", list()), "$t.w", filter("$t.w", not("$$i.until")))))
	s.set(v("d", first("$t.q")))
	s.set(v("b", cond(eq("$t.q", list()), list(), filter("$t.h", and(alive, ne("$$i.lockId", "$t.d.lockId"))))))
	unlike := ne(list("$$i.mode", "$$i.limit"), list("$t.d.mode", "$t.d.limit"))
	run := op("$indexOfArray", concat(each(op("$slice", "$t.q", engine.SettleMost), unlike), list(true)), true)
	room := cond(gt("$t.d.limit", 0), op("$subtract", "$t.d.limit", size(op("$setUnion", "$t.b.lockId"))), engine.SettleMost)
	s.set(v("k", choose(
		eq("$t.q", list()), 0,
		eq("$t.b", list()), cond(eq("$t.d.mode", engine.Exclusive), 1, op("$min", run, room)),
		or(eq("$t.d.mode", engine.Exclusive), in(engine.Exclusive, "$t.b.mode")), 0,
		op("$min", run, room))))
	s.set(v("c", cond(gt("$t.k", 0), each(op("$slice", "$t.q", "$t.k"), merge("$$i", doc(v("until", add("$$NOW", "$t.claim"))))), list())))
	claim := merge("$$i", doc(v("state", engine.Claimed), v("expiresAt", "$$i.until"), v("claimedAt", "$$NOW")))
	s.set(
		v("h", cond(eq("$t.c", list()), "$t.h", concat("$t.h", each("$t.c", claim)))),
		v("w", cond(eq("$t.c", list()), "$t.w", concat(filter("$t.w", "$$i.until"), "$t.c", op("$slice", "$t.q", "$t.k", 1<<20)))),
	)
}

// displace ends the expired holds whose room was given away: to an exclusive entry, to a shared one where the
// expired hold was exclusive, or to one whose limit leaves no room for expired ones that may come back.
func (s *stages) displace() {
	s.set(v("x", cond(gt(minOf("$t.h.expiresAt"), "$$NOW"), list(), filter("$t.h", and(holds, not(alive))))))
	s.set(v("l", cond(eq("$t.x", list()), list(), filter("$t.h", alive))))
	crowded := gt(size(op("$setUnion", "$t.h.lockId")), ifNull(minOf("$t.l.limit"), 1<<20))
	s.set(v("x", cond(eq("$t.l", list()), list(), filter("$t.x", and(
		not(in("$$i.lockId", "$t.l.lockId")),
		or(eq("$$i.mode", engine.Exclusive), in(engine.Exclusive, "$t.l.mode"), crowded))))))
	displaced := in("$$i.lockId", "$t.x.lockId")
	s.set(v("x", cond(eq("$t.x", list()), list(), filter("$t.h", and(displaced, holds, "$$i.createdAt")))))
	s.set(
		v("h", cond(eq("$t.x", list()), "$t.h", filter("$t.h", not(and(displaced, holds))))),
		v("e", cond(eq("$t.x", list()), "$t.e", lastOf(concat("$t.e", each("$t.x", doc(
			v("lockId", "$$i.lockId"), v("fence", "$$i.fence"), v("by", op("$arrayElemAt", "$t.l.lockId", -1))))), engine.MaxEvicted))),
	)
}

// store settles, and replaces the document's fields. Fields that this version does not know are kept.
func (s *stages) store(released, position expr) []bson.D {
	s.settle()
	s.displace()
	up := add(largest("$$NOW", maxOf("$t.h.expiresAt")), engine.IdleGrain.Milliseconds())
	fields := doc(
		v("seq", add(ifNull("$seq", int64(0)), int64(1))), v("at", "$$NOW"), v("fence", "$t.f"), v("held", "$t.h"), v("waiters", "$t.w"),
		v("evicted", "$t.e"), v("released", "$t.r"), v("idleAt", on("$dateTrunc", doc(v("date", up), v("unit", "hour")))),
		v("last.outcome", "$t.did"), v("last.released", released), v("last.expired", "$t.x"), v("last.position", position),
		v("last.length", size("$t.w")),
	)
	return append(*s, on("$set", fields), on("$unset", "t"))
}

func lastOf(items expr, n int) expr { return op("$slice", items, -n) }
