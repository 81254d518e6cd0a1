package mongoengine

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// A pipeline loads the document into the temporary field t, acts, settles, and assembles it again. The
// fields of t are the document's lists, each set anew by the stage that changes it:
//
//	n  the number of this write      f  the highest fence
//	x  the exclusive hold, 0 or 1    s  the shared holds    p  the parts
//	c  the claims                    w  the queue           e  evicted, r released
//	ended  the holds that this write ends
//
// id and part are what the caller passed.

// load sets them without what is dead: drained parts, places that nobody refreshed, claims that nobody
// confirmed (their owners go back to the head of the queue, passed over until they are heard of), and
// records whose time is up.
func (s *stages) load(lockID, part string) {
	s.set(
		v("id", lit(lockID)), v("part", lit(part)),
		v("x", cond(eq("$exclusive.acquired", true), list("$exclusive"), list())),
		v("s", ifNull("$shared.locks", list())),
		v("p", filter(ifNull("$parts", list()), or(ne("$$i.revoked", true), alive("$$i.expiresAt")))),
		v("c", filter(ifNull("$claims", list()), and(gt("$$i.until", "$$NOW"), gt("$$i.expiresAt", "$$NOW")))),
		v("lapsed", filter(ifNull("$claims", list()), and(lte("$$i.until", "$$NOW"), gt("$$i.expiresAt", "$$NOW")))),
		v("w", filter(ifNull("$waiters", list()), gt("$$i.expiresAt", "$$NOW"))),
		v("e", ifNull("$evicted", list())),
		v("r", filter(ifNull("$released", list()), gt("$$i.until", "$$NOW"))),
		v("n", add(ifNull("$seq", int64(0)), int64(1))),
		v("f", ifNull("$fence", int64(0))),
		v("ended", list()),
		v("position", int64(0)),
	)
	asleep := not(isNull("$$i.until"))
	s.set(v("w", cond(eq("$t.lapsed", list()), "$t.w", concat(filter("$t.w", asleep), "$t.lapsed", filter("$t.w", not(asleep))))))
}

// fits tells whether nobody else is in the way of lockID: xs excludes everybody, ss excludes whoever
// wants the resource alone.
func fits(lockID expr, mode string, limit int64) expr {
	others := func(ids string) expr { return op("$setDifference", ids, list(lockID)) }
	free := eq(others("$t.xs"), list())
	if mode == engine.Exclusive {
		return and(free, eq(others("$t.ss"), list()))
	}
	if limit == 0 {
		return free
	}
	return and(free, lt(size(others("$t.ss")), limit))
}

// settle claims the resource for the head of the queue while it fits: one exclusive, or consecutive shared
// ones, up to a bound. Those who slept through a claim are passed over. A hold for which heard is true
// counts as alive. It leaves xs and ss as fits needs them. The parts of a hold need no look there: a hold
// never expires before them.
func (s *stages) settle(policy engine.Policy, heard expr) {
	inTheWay := func(holds, mode string) expr {
		draining := filter("$t.p", and(eq("$$i.revoked", true), eq("$$i.mode", mode)))
		return each(concat(filter(holds, or(alive("$$i.expiresAt"), heard)), draining, filter("$t.c", eq("$$i.mode", mode))), "$$i.lockId")
	}
	s.set(
		v("xs", inTheWay("$t.x", engine.Exclusive)),
		v("ss", inTheWay("$t.s", engine.SharedBy)),
		v("awake", cond(eq("$t.w", list()), list(), filter("$t.w", isNull("$$i.until")))),
	)
	s.set(v("k", claimable()))
	claimed := op("$slice", "$t.awake", maximum("$t.k", 1))
	claim := merge("$$i", doc(v("until", add("$$NOW", policy.ClaimTTL)), v("grantedAt", "$$NOW")))
	rest := concat(filter("$t.w", not(isNull("$$i.until"))),
		cond(gte("$t.k", size("$t.awake")), list(), op("$slice", "$t.awake", "$t.k", size("$t.awake"))))
	ids := func(old, mode string) expr {
		return cond(eq("$t.k", 0), old, concat(old, each(filter(claimed, eq("$$i.mode", mode)), "$$i.lockId")))
	}
	s.set(
		v("c", cond(eq("$t.k", 0), "$t.c", concat("$t.c", each(claimed, claim)))),
		v("w", cond(eq("$t.k", 0), "$t.w", rest)),
		v("xs", ids("$t.xs", engine.Exclusive)),
		v("ss", ids("$t.ss", engine.SharedBy)),
	)
}

// claimable is how many of those awake can be granted together.
func claimable() expr {
	others := func(ids string, id expr) expr { return op("$setDifference", ids, list(id)) }
	head := first("$t.awake.lockId")
	alone := cond(and(eq(others("$t.xs", head), list()), eq(others("$t.ss", head), list())), 1, 0)
	room := or(lte(ifNull("$$this.limit", int64(0)), int64(0)), lt(size(others("$$value.ss", "$$this.lockId")), "$$this.limit"))
	step := cond(
		and(not("$$value.stop"), eq("$$this.mode", engine.SharedBy), eq(others("$t.xs", "$$this.lockId"), list()), room),
		doc(v("k", add("$$value.k", 1)), v("stop", false), v("ss", concat("$$value.ss", list("$$this.lockId")))),
		doc(v("k", "$$value.k"), v("stop", true), v("ss", "$$value.ss")),
	)
	together := let(doc(v("run", bson.D{{Key: "$reduce", Value: doc(
		v("input", op("$slice", "$t.awake", engine.SettleMost)),
		v("initialValue", doc(v("k", 0), v("stop", false), v("ss", "$t.ss"))),
		v("in", step),
	)}})), "$$run.k")
	return choose(
		eq("$t.awake", list()), 0,
		eq(first("$t.awake.mode"), engine.Exclusive), alone,
		together)
}

// assemble displaces the expired holds whose room was given away, and makes the document.
func (s *stages) assemble() bson.A {
	dead := func(holds string) expr { return filter(holds, not(alive("$$i.expiresAt"))) }
	s.set(v("dx", dead("$t.x")), v("ds", dead("$t.s")))
	s.set(v("gone", cond(and(eq("$t.dx", list()), eq("$t.ds", list())), list(), gone())))
	without := func(holds string) expr {
		return cond(eq("$t.gone", list()), holds, filter(holds, not(op("$in", "$$i.lockId", "$t.gone.lockId"))))
	}
	record := doc(v("lockId", "$$i.lockId"), v("fence", "$$i.fence"), v("by", "$$i.by"))
	s.set(
		v("x", without("$t.x")), v("s", without("$t.s")),
		v("p", cond(eq("$t.gone", list()), "$t.p",
			filter("$t.p", or(eq("$$i.revoked", true), not(op("$in", "$$i.lockId", "$t.gone.lockId")))))),
		v("e", concat("$t.e", each("$t.gone", record))),
		v("ended", concat("$t.ended", each("$t.gone", endedOf("$$i.mode", engine.HowExpired)))),
	)
	return append(bson.A(*s),
		bson.D{{Key: "$replaceWith", Value: document()}},
		bson.D{{Key: "$unset", Value: "t"}})
}

// gone are the expired holds that go, each with its mode and, as by, who displaced it.
func gone() expr {
	ids := func(of expr) expr { return each(of, "$$i.lockId") }
	sharers := size(op("$setUnion", "$t.s.lockId", "$t.c.lockId"))
	limited := and(gt(ifNull("$$i.limit", int64(0)), int64(0)), lt("$$i.limit", sharers))
	liveX, liveS := filter("$t.x", alive("$$i.expiresAt")), filter("$t.s", alive("$$i.expiresAt"))
	displaced := func(holds, mode string, by expr) expr {
		other := first(filter(by, ne("$$i", "$$j.lockId")))
		return bson.D{{Key: "$map", Value: doc(v("input", holds), v("as", "j"),
			v("in", merge("$$j", doc(v("mode", mode), v("by", ifNull(other, nil))))))}}
	}
	return filter(concat(
		displaced("$t.dx", engine.Exclusive, ids(concat(liveX, liveS, "$t.c"))),
		displaced("$t.ds", engine.SharedBy,
			ids(concat(liveX, filter(liveS, limited), filter("$t.c", or(eq("$$i.mode", engine.Exclusive), limited))))),
	), ne("$$i.by", nil))
}

// endedOf tells of the hold $$i that this write ends.
func endedOf(mode expr, how string) bson.D {
	return doc(
		v("lockId", "$$i.lockId"), v("owner", "$$i.owner"), v("mode", mode), v("fence", "$$i.granted"),
		v("createdAt", "$$i.createdAt"), v("trace", "$$i.trace"), v("how", how),
	)
}

// document is what is stored. Fields that this version does not know are kept.
func document() expr {
	grain := engine.IdleGrain.Milliseconds()
	ends := each(concat("$t.x", "$t.s", "$t.p"), ifNull("$$i.expiresAt", endless))
	last := bson.D{{Key: "$toLong", Value: maximum("$$NOW", bson.D{{Key: "$max", Value: ends}})}}
	rounded := bson.D{{Key: "$toDate", Value: op("$multiply",
		add(bson.D{{Key: "$toLong", Value: bson.D{{Key: "$floor", Value: op("$divide", "$$last", grain)}}}}, int64(1)), grain)}}
	idleAt := let(doc(v("last", last)), cond(gte("$$last", int64(endless)), nil, rounded))
	return merge("$$ROOT", doc(
		v("resource", "$_id"), v("seq", "$t.n"), v("at", "$$NOW"), v("fence", "$t.f"),
		v("exclusive", cond(eq("$t.x", list()), doc(v("acquired", false)), first("$t.x"))),
		v("shared", doc(v("count", bson.D{{Key: "$toLong", Value: size("$t.s")}}), v("locks", "$t.s"))),
		v("parts", "$t.p"), v("claims", "$t.c"), v("waiters", "$t.w"),
		v("evicted", lastOf("$t.e", engine.MaxEvicted)), v("released", lastOf("$t.r", engine.MaxReleased)),
		v("last", doc(v("ended", "$t.ended"), v("position", "$t.position"), v("length", bson.D{{Key: "$toLong", Value: size("$t.w")}}))),
		v("idleAt", idleAt),
	))
}

func lastOf(items string, n int) expr {
	return cond(gt(size(items), n), op("$slice", items, -n), items)
}
