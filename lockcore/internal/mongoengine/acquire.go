package mongoengine

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// acquirePipeline is the whole of acquire and enter. Its outcomes, told apart by engine.Acquire.Judge:
//
//  1. overtaken: a record or a later request of the same part came first; nothing changes.
//  2. lost: the lock ID held before and does not any more; nothing changes.
//  3. granted: a retry of a request that stands, a join, an upgrade, or a new hold.
//  4. queued, or the place refreshed.
//  5. busy, or the queue full; nothing changes.
//
// Whatever the outcome, the write is counted and the document settled.
func acquirePipeline(a *engine.Acquire) bson.A {
	var s stages
	s.load(a.LockID, a.Part)
	s.verdict(a)
	s.settle(a.Policy, and("$t.go", ownID))
	s.decide(a)
	s.apply(a)
	return s.assemble()
}

var (
	ownID   = eq("$$i.lockId", "$t.id")
	ownPart = and(ownID, eq("$$i.part", "$t.part"))
	// active is the own part that is not cut off: there is one at most.
	active = and(ownPart, ne("$$i.revoked", true))
)

// verdict binds hx, whether the lock ID holds exclusively, h, its hold or null, and go, whether the request
// may go on.
func (s *stages) verdict(a *engine.Acquire) {
	s.set(
		v("hx", eq(first("$t.x.lockId"), "$t.id")),
		v("h", ifNull(first(filter(concat("$t.x", "$t.s"), ownID)), nil)),
	)
	stop := list(
		some("$t.r", and(ownID, gte("$$i.order", a.Order), or(isNull("$$i.part"), eq("$$i.part", "$t.part")))),
		some("$t.p", and(ownPart, or(gt("$$i.order", a.Order), and(eq("$$i.order", a.Order), eq("$$i.revoked", true))))),
	)
	switch {
	case a.Reacquire:
	case a.Held:
		stop = append(stop, eq("$t.h", nil))
	case a.Keep:
		stop = append(stop, and(eq("$t.h", nil), some("$t.e", ownID)))
	}
	s.set(v("go", not(or(stop...))))
}

// decide binds same, claim and place, what the request's part has already, and whether it is a retry, is
// granted (take), and joins a hold that stands.
func (s *stages) decide(a *engine.Acquire) {
	exclusive := a.Mode == engine.Exclusive
	s.set(
		v("same", ifNull(first(filter("$t.p", active)), nil)),
		v("claim", ifNull(first(filter("$t.c", ownPart)), nil)),
		v("place", cond(eq("$t.w", list()), -1, op("$indexOfArray", each("$t.w", ownPart), true))),
	)
	covered, coveredPart := expr(true), expr(true)
	if exclusive {
		covered, coveredPart = "$t.hx", eq("$t.same.mode", engine.Exclusive)
	}
	mayTake := expr(true)
	if a.Refresh {
		mayTake = or(ne("$t.claim", nil), gte("$t.place", 0), ne("$t.h", nil))
	}
	ahead := cond(gte("$t.place", 0), op("$slice", "$t.w", maximum("$t.place", 1)), "$t.w")
	// An upgrade goes ahead of the queue: those who wait there wait for its own hold.
	firstInLine := or(ne("$t.claim", nil), ne("$t.h", nil), lte("$t.place", cond(eq("$t.w", list()), 0, -2)), eq("$t.place", 0),
		none(ahead, isNull("$$i.until")))
	s.set(
		v("retry", and("$t.go", ne("$t.same", nil), eq("$t.same.order", a.Order), coveredPart)),
		v("joins", and(ne("$t.h", nil), covered)),
		v("fits", and(mayTake, firstInLine, fits("$t.id", a.Mode, a.Limit))),
	)
	granted := and("$t.go", not("$t.retry"), or("$t.joins", "$t.fits"))
	queued := and("$t.go", a.Queue, not("$t.retry"), not(or("$t.joins", "$t.fits")), eq("$t.claim", nil))
	fresh := and(granted, or(not("$t.joins"), a.NewFence, ne("$t.same", nil)))
	s.set(
		v("grant", granted),
		v("refresh", and(queued, gte("$t.place", 0))),
		v("enqueue", and(queued, lt("$t.place", 0), !a.Refresh, lt(size("$t.w"), a.MaxWaiters))),
		v("g", cond(fresh, nextFence, "$t.h.fence")),
		v("f", cond(fresh, nextFence, "$t.f")),
	)
}

// nextFence grows although the document may have been removed and made anew: it is never below the time.
var nextFence = maximum(add("$t.f", int64(1)), bson.D{{Key: "$toLong", Value: "$$NOW"}})

// apply makes or joins the hold and makes the part, cutting off the part that it supersedes; or takes or
// refreshes the place in the queue.
func (s *stages) apply(a *engine.Acquire) {
	drains := and(not(isNull("$$i.expiresAt")), gt("$$i.expiresAt", "$$NOW"))
	cutOff := each(filter("$t.p", or(not(active), drains)), cond(active, merge("$$i", doc(v("revoked", true))), "$$i"))
	revived := each("$t.p", cond(and(active, not(alive("$$i.expiresAt"))), merge("$$i", doc(v("expiresAt", add("$$NOW", "$$i.ttl")))), "$$i"))
	place := waiterOf(a)
	// That somebody came is a sign of life of the lock ID's own hold, whatever the answer.
	partEnd := cond("$t.retry", ttlEnd("$t.same.ttl"), "$$NOW")
	heard := merge("$t.h", doc(v("expiresAt", later(later("$t.h.expiresAt", until(a.HoldTTL)), partEnd))))
	s.set(
		v("h2", cond("$t.grant", holdOf(a), cond(and("$t.go", ne("$t.h", nil)), heard, nil))),
		v("p", choose("$t.grant", concat(cutOff, list(partOf(a))), "$t.retry", revived, "$t.p")),
		v("c", cond("$t.grant", filter("$t.c", not(ownPart)), "$t.c")),
		v("w", choose(
			and("$t.grant", gte("$t.place", 0)), filter("$t.w", not(ownPart)),
			"$t.refresh", each("$t.w", cond(ownPart, merge(place, doc(v("seq", "$$i.seq"), v("since", "$$i.since"))), "$$i")),
			and("$t.enqueue", ne("$t.h", nil)), concat(list(place), "$t.w"),
			"$t.enqueue", concat("$t.w", list(place)),
			"$t.w")),
		v("e", cond("$t.grant", filter("$t.e", not(ownID)), "$t.e")),
		v("position", choose(
			"$t.refresh", add("$t.place", int64(1)),
			and("$t.enqueue", ne("$t.h", nil)), int64(1),
			"$t.enqueue", add(size("$t.w"), int64(1)),
			int64(0))),
	)
	exclusive := or("$t.hx", and("$t.grant", a.Mode == engine.Exclusive))
	s.set(
		// An expired hold of somebody else stays beside it here; assemble displaces it.
		v("x", cond(and(ne("$t.h2", nil), exclusive), concat(filter("$t.x", not(ownID)), list("$t.h2")), "$t.x")),
		v("s", choose(
			eq("$t.h2", nil), "$t.s",
			exclusive, filter("$t.s", not(ownID)),
			eq("$t.h", nil), concat("$t.s", list("$t.h2")),
			each("$t.s", cond(ownID, "$t.h2", "$$i")))),
	)
}

func holdOf(a *engine.Acquire) expr {
	fresh := doc(
		v("lockId", "$t.id"), v("owner", lit(a.Owner)), v("host", lit(a.Host)), v("comment", lit(a.Comment)),
		v("createdAt", "$$NOW"), v("acquired", true), v("granted", "$t.g"), v("fence", "$t.g"),
		v("expiresAt", later(until(a.HoldTTL), until(a.TTL))), v("order", a.Order), v("ttl", a.HoldTTL),
		v("keep", a.Keep), v("trace", lit(a.Trace)),
	)
	if a.Limit > 0 {
		fresh = append(fresh, v("limit", a.Limit))
	}
	joined := doc(
		v("fence", "$t.g"), v("order", maximum("$t.h.order", a.Order)), v("trace", lit(a.Trace)),
		v("expiresAt", later("$t.h.expiresAt", later(until(a.HoldTTL), until(a.TTL)))),
	)
	if a.Keep {
		joined = append(joined, v("keep", true), v("ttl", a.HoldTTL))
	}
	return cond(eq("$t.h", nil), fresh, merge("$t.h", joined))
}

func partOf(a *engine.Acquire) expr {
	part := doc(
		v("lockId", "$t.id"), v("part", "$t.part"), v("order", a.Order), v("mode", a.Mode), v("fence", "$t.g"),
		v("ttl", a.TTL), v("expiresAt", until(a.TTL)),
	)
	waited := func(from string) expr {
		return merge(part, doc(v("since", from+".since"), v("grantedAt", ifNull(from+".grantedAt", "$$NOW"))))
	}
	inQueue := bson.D{{Key: "$let", Value: doc(
		v("vars", doc(v("i", op("$arrayElemAt", "$t.w", "$t.place")))), v("in", waited("$$i")))}}
	return choose(ne("$t.claim", nil), waited("$t.claim"), gte("$t.place", 0), inQueue, part)
}

func waiterOf(a *engine.Acquire) bson.D {
	w := doc(
		v("lockId", "$t.id"), v("part", "$t.part"), v("order", a.Order), v("mode", a.Mode), v("owner", lit(a.Owner)),
		v("seq", "$t.n"), v("since", "$$NOW"), v("expiresAt", until(a.WaiterTTL)),
	)
	if a.Limit > 0 {
		w = append(w, v("limit", a.Limit))
	}
	return w
}
