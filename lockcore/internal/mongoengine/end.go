package mongoengine

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// A renewal extends one part and its hold. Outcomes: the part is there and extended, or it is not
// there (lost, superseded, released) and only the write is counted, as it is if a part with a new
// TTL has expired.
func (k renewKind) stages() []bson.D {
	mine := and(ownPart, running, eq("$$this.order", "$t.ord"))
	var s stages
	s.put(fresh, v("t.a", cond(in("$t.id", "$held.lockId"), filter("$held", ownID), none)))
	otherwise := expr(engine.Lost)
	end := v("expiresAt", largest("$$this.expiresAt", add("$$NOW", "$$this.ttl")))
	renewed := doc(v("renewedAt", "$$NOW"), end)
	if k.newTTL {
		otherwise = cond(eq(filter("$t.a", mine), none), engine.Lost, engine.Superseded)
		mine = and(mine, alive)
		renewed = doc(v("renewedAt", "$$NOW"), v("expiresAt", add("$$NOW", "$t.ttl")), v("ttl", "$t.ttl"))
	}
	s.set(v("g", ne(filter("$t.a", mine), none)))
	own := each("$t.a", choose(mine, merge("$$this", renewed), isKept, merge("$$this", doc(end)), "$$this"))
	if k.downgrade {
		alone := eq(filter("$t.a", and(running, ne("$$this.part", "$t.part"))), none)
		own = each(own, cond(and(holds, alone), merge("$$this", doc(v("mode", engine.Shared))), "$$this"))
	}
	s.put(v("held", cond("$t.g", concat(filter("$held", others), own), "$held")))
	o := outcome{did: cond("$t.g", engine.Granted, otherwise)}
	if k.downgrade {
		o.left = cond("$t.g", filter("$t.a", eq("$$this.mode", engine.Exclusive)), none) // of what was shared already, nothing
	}
	return s.store(o)
}

// A leave ends one part. Outcomes: the part was there and goes, and with the last one a hold that
// is not kept; or it was not there. Either way a record remembers that requests up to this order
// are over.
func (k leaveKind) stages() []bson.D {
	goes := and(eq(ownPlace, me), lte("$$this.order", "$t.ord"), or(queued, eq("$$this.order", "$t.ord")))
	if k.waiting {
		goes = and(eq(ownPlace, me), lte("$$this.order", "$t.ord"), queued)
	}
	if k.labelled {
		goes = or(goes, and(ownCutOff, eq("$$this.order", "$t.ord"), not(k.waiting)))
	}
	var s stages
	s.put(fresh, v("t.a", filter(heldAndQueue, goes)))
	s.put(v("held", filter("$held", and(not(in("$$this", "$t.a")), lives))), forget, remember)
	if k.undo {
		kept := and(ownID, isKept, not("$$this.joined"))
		last := and(in(engine.StateRunning, "$t.a.state"), eq(filter("$held", and(ownID, running)), none))
		s.set(v("k", cond(last, filter("$held", kept), none)))
		s.put(v("t.a", concat("$t.a", "$t.k")), v("held", cond(eq("$t.k", none), "$held", filter("$held", not(kept)))))
	}
	return s.store(outcome{did: engine.Granted, ended: "$t.a"})
}

// A release ends a lock ID up to an order, wherever it stands. Outcomes: what was there up to the
// order goes, its parts drain; or nothing was there. Either way a record remembers the order. A
// release of what was used ends nothing if that is not kept.
func (k releaseKind) stages() []bson.D {
	if k.named {
		return k.endHold()
	}
	upTo := and(ownID, lte("$$this.order", "$t.ord"))
	if k.labelled {
		upTo = and(upTo, ownLabel)
	}
	var s stages
	did, ifKept := expr(engine.Granted), func(then, _ expr) expr { return then }
	if k.used {
		s.set(v("go", in(list("$t.id", "$t.label", engine.StateKept, true), each("$held", list("$$this.lockId", "$$this.label", "$$this.state", begunInTime)))))
		did, ifKept = ifGo(engine.Granted, engine.Lost), ifGo
	}
	s.put(fresh, v("t.a", ifKept(filter(heldAndQueue, upTo), none)), v("t.rec.lost", and(ifKept(wasEvictedBy(k.labelled), false), not(repeated))))
	s.put(
		released, v("held", concat(filter("$held", and(not(in("$$this", "$t.a")), lives)), each(filter("$t.a", k.drains()), merge("$$this", drained)))),
		forget, v("released", ifKept(remember.Value, "$released")), v("evicted", cond("$t.rec.lost", filter("$evicted", notForgiven(k.labelled)), "$evicted")))
	if k.labelled {
		s.put(v("commits", ifKept(commits, ifNull("$commits", "$$REMOVE"))))
	}
	return s.store(outcome{did: did, ended: "$t.a"})
}

// begunInTime is which holds an order up to the one that used them began.
var begunInTime = lte("$$this.firstOrder", "$t.used")

// commits remembers the release, once.
var commits = lastOf(concat(
	filter(ifNull("$commits", none), ne(list("$$this.lockId", "$$this.label", "$$this.order"), committed)),
	list(doc(v("lockId", "$t.id"), v("label", "$t.label"), v("order", "$t.ord")))), engine.MaxCommits)

// repeated is whether the release ran before: what its lock ID lost since is not the release's to
// forgive.
var repeated = in(ending("$t.rec"), each("$released", ending("$$this")))

// ending names what a record of the released tells of.
func ending(record string) bson.A {
	return list(record+".lockId", record+".label", record+".part", record+".order")
}

// committed names the release as it is remembered.
var committed = list("$t.id", "$t.label", "$t.ord")

// drains is which of what a release ends may still trust.
func (k releaseKind) drains() expr {
	trusts := in("$$this.state", list(engine.StateDraining, engine.StateRunning))
	if k.leaving {
		return and(ne(list("$$this.part", "$$this.order"), list("$t.part", "$t.ord")), trusts)
	}
	return trusts
}

// endHold ends the hold that the release names by its first fence, and nothing that began later.
// Outcomes: its entries go, and its parts drain unless they are known to have stopped; or the hold
// is not there, and nothing changes.
func (k releaseKind) endHold() []bson.D {
	var s stages
	hold := ofHold
	switch {
	case k.force:
		hold = and(in("$$this.lockId", list("$t.id", "$t.cut")), eq("$$this.first", "$t.first"))
	case k.labelled:
		hold = and(hold, ownLabel)
	}
	s.put(fresh, v("t.a", filter("$held", hold)))
	drains := expr(each(filter("$t.a", k.drains()), merge("$$this", drained)))
	if k.now {
		drains = none
	}
	record := doc(v("lockId", "$t.id"), v("part", "$$this.part"), v("order", "$$this.order"), v("reason", "$t.rec.reason"), v("label", "$t.rec.label"))
	s.put(
		released, v("held", concat(filter("$held", and(not(in("$$this", "$t.a")), lives)), drains)),
		v("released", lastOf(concat("$released", each(filter("$t.a", running), record)), engine.MaxReleased)))
	o := outcome{did: engine.Granted, ended: "$t.a"}
	if k.force {
		evicted := doc(v("lockId", "$t.id"), v("label", "$$this.label"), v("fence", "$$this.first"), v("at", "$$NOW"), v("reason", "$t.rec.reason"))
		o.evidence = each(filter("$t.a", and(holds, "$$this.createdAt")), evicted)
	}
	return s.store(o)
}

var ofHold = eq(list("$$this.lockId", "$$this.first"), list("$t.id", "$t.first"))

// A withdrawal makes a tombstone of one place in the queue. Outcomes: the request waited there,
// without a claim, and is told of when its part comes back; or nothing changes.
func (withdrawKind) stages() []bson.D {
	which := and(eq(ownPlace, me), eq("$$this.order", "$t.ord"), not("$$this.verdict"))
	verdict := doc(v("verdict", "$t.reason"), v("overdueAt", engine.LongAgo))
	var s stages
	s.put(fresh)
	s.set(v("a", filter("$waiters", which)))
	s.put(v("waiters", cond(eq("$t.a", none), "$waiters", each("$waiters", cond(in("$$this", "$t.a"), merge("$$this", verdict), "$$this")))))
	return s.store(outcome{did: cond(ne("$t.a", none), engine.Granted, engine.Lost), ended: "$t.a"})
}

// released is what a release tells of. What drained before had ended already, and goes on draining.
var released = v("t.a", filter("$t.a", ne("$$this.state", engine.StateDraining)))

// lives is false for draining parts whose time is up, and for claims whose place is given up.
var lives = or(holds, stillStood)

// stillStood is which places and claims are not given up, and what else is alive.
var stillStood = gt(largest("$$this.expiresAt", "$$this.place"), "$$NOW")

// What a leave or a release ends, a, is looked for in one go: in what is held and, if the lock ID
// waits, in the queue, whose items have no state.
var (
	heldAndQueue = concat("$held", cond(in("$t.id", "$waiters.lockId"), "$waiters", none))
	queued       = lte("$$this.state", engine.StateClaimed)
	// forget keeps the places that are not in it.
	forget = v("waiters", cond(in("$t.id", "$waiters.lockId"), filter("$waiters", not(in("$$this", "$t.a"))), "$waiters"))
)

var remember = v("released", lastOf(concat("$released", list("$t.rec")), engine.MaxReleased))
