package mongoengine

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// renewStages extends one part and its hold. Outcomes: the part is there and extended, or it is not
// there (lost, superseded, released) and only the write is counted.
func renewStages(downgrade bool) []bson.D {
	mine := and(ownPart, running, eq("$$i.order", "$t.ord"))
	var s stages
	s.load()
	s.own()
	s.set(v("m", ne(filter("$t.a", mine), list())))
	extended := doc(v("renewedAt", "$$NOW"), v("expiresAt", largest("$$i.expiresAt", add("$$NOW", "$$i.ttl"))))
	own := each("$t.a", cond(mine, merge("$$i", extended), "$$i"))
	if downgrade {
		alone := eq(filter("$t.a", and(running, ne("$$i.part", "$t.part"), eq("$$i.mode", engine.Exclusive))), list())
		shared := doc(v("mode", engine.SharedBy))
		own = each("$t.a", choose(mine, merge("$$i", extended, shared), and(isKept, alone), merge("$$i", shared), "$$i"))
	}
	s.set(
		v("did", cond("$t.m", engine.Granted, engine.Lost)),
		v("h", cond("$t.m", concat(filter("$t.h", others), own), "$t.h")),
	)
	return s.store(list(), 0)
}

// leaveStages ends one part. Outcomes: the part was there and goes, and with it the hold where it is not
// kept and this was its last part; or it was not there. Either way a record remembers that requests up to
// this order are over.
func leaveStages(undo bool) []bson.D {
	goes := and(ownID, ownPart, not(isKept), or(eq("$$i.order", "$t.ord"), and(claimed, lt("$$i.order", "$t.ord"))))
	var s stages
	s.load()
	s.set(v("gone", filter("$t.h", and(goes, running))), v("h", filter("$t.h", not(goes))))
	if undo {
		kept := and(ownID, isKept)
		last := and(ne("$t.gone", list()), eq(filter("$t.h", and(ownID, running)), list()))
		s.set(v("m", cond(last, filter("$t.h", kept), list())))
		s.set(v("gone", concat("$t.m", "$t.gone")), v("h", cond(eq("$t.m", list()), "$t.h", filter("$t.h", not(kept)))))
	}
	s.forget(and(ownID, ownPart, lte("$$i.order", "$t.ord")), true)
	return s.store("$t.gone", 0)
}

// releaseStages ends a lock ID up to an order, wherever it stands. Outcomes: what was there up to the
// order goes, its parts drain; or nothing was there. Either way a record remembers the order.
func releaseStages(leaving, force bool) []bson.D {
	upTo := and(ownID, lte("$$i.order", "$t.ord"))
	drains := and(or(eq("$$i.state", engine.Draining), and(running, alive, lt("$$i.expiresAt", never))))
	if leaving {
		drains = and(ne("$$i.part", "$t.part"), drains)
	}
	var s stages
	s.load()
	if force {
		s.set(v("ord", largest(int64(0), maxOf(each(filter(concat("$t.h", "$t.w"), ownID), "$$i.order")))))
	}
	s.set(v("a", filter("$t.h", upTo)))
	s.set(
		v("gone", filter("$t.a", holds)),
		v("h", concat(filter("$t.h", not(upTo)), each(filter("$t.a", drains), merge("$$i", doc(v("state", engine.Draining)))))),
	)
	if force {
		record := doc(v("lockId", "$$i.lockId"), v("fence", "$$i.fence"), v("reason", "$t.rec.reason"))
		s.set(v("e", lastOf(concat("$t.e", each(filter("$t.gone", "$$i.createdAt"), record)), engine.MaxEvicted)), v("rec.order", "$t.ord"))
	}
	s.forget(upTo, false)
	return s.store("$t.gone", 0)
}

// withdrawStages takes one request out of the queue. Outcomes: it waited there, without a claim, and is
// gone; or nothing changes.
func withdrawStages() []bson.D {
	which := and(ownID, ownPart, eq("$$i.order", "$t.ord"), not(gt("$$i.until", "$$NOW")))
	var s stages
	s.load()
	s.set(v("m", ne(filter("$t.w", which), list())))
	s.set(
		v("did", cond("$t.m", engine.Granted, engine.Lost)),
		v("w", filter("$t.w", not(which))),
		v("r", cond("$t.m", remembered(true), "$t.r")),
	)
	return s.store(list(), 0)
}

// forget ends the places for which which holds, remembers what ended, and tells of the holds that did: those
// that have no entry left.
func (s *stages) forget(which expr, part bool) {
	s.set(
		v("w", cond(in("$t.id", "$t.w.lockId"), filter("$t.w", not(which)), "$t.w")),
		v("r", remembered(part)),
		v("did", engine.Granted),
		v("gone", cond(eq(filter("$t.h", and(ownID, holds)), list()), filter("$t.gone", "$$i.createdAt"), list())),
	)
}

// remembered is the list of released records with rec, the new one, in place of those that it covers and those
// whose time is up. The record of a whole lock ID covers those of its parts, and not the other way round.
func remembered(part bool) expr {
	covered := and(ownID, lte("$$i.order", "$t.ord"))
	if part {
		covered = and(ownID, lte("$$i.order", "$t.ord"), ownPart)
	}
	return lastOf(concat(
		filter("$t.r", and(gt("$$i.until", "$$NOW"), not(covered))),
		list(merge("$t.rec", doc(v("until", add("$$NOW", "$t.keep")))))), engine.MaxReleased)
}
