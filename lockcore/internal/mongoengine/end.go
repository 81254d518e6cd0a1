package mongoengine

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// renewPipeline extends one part and its hold. Outcomes: the part is there and extended, or it is not
// there (lost, superseded, released) and only the write is counted.
func renewPipeline(r *engine.Renew) bson.A {
	mine := and(active, eq("$$i.order", r.Order))
	var s stages
	s.load(r.LockID, r.Part)
	s.set(v("mine", ifNull(first(filter("$t.p", mine)), nil)))
	extended := merge("$$i", doc(
		v("renewedAt", "$$NOW"),
		v("expiresAt", later(later("$$i.expiresAt", ttlEnd("$$i.ttl")), ttlEnd("$t.mine.ttl"))),
	))
	hold := func(holds string) expr {
		return cond(eq("$t.mine", nil), holds, each(holds, cond(ownID, extended, "$$i")))
	}
	s.set(
		v("p", cond(eq("$t.mine", nil), "$t.p", each("$t.p", cond(mine, merge("$$i", doc(v("expiresAt", ttlEnd("$$i.ttl")))), "$$i")))),
		v("x", hold("$t.x")),
		v("s", hold("$t.s")),
	)
	s.settle(r.Policy, false)
	return s.assemble()
}

// leavePipeline ends one part. Outcomes: the part was there and goes, and with it the hold where it is not
// kept and this was its last part; or it was not there. Either way a record remembers that requests up to
// this order are over.
func leavePipeline(l *engine.Leave) bson.A {
	mine := and(ownPart, eq("$$i.order", l.Order))
	over := and(ownPart, lte("$$i.order", l.Order))
	record := doc(v("lockId", "$t.id"), v("part", "$t.part"), v("order", l.Order), v("until", until(l.ReleasedTTL)))
	var s stages
	s.load(l.LockID, l.Part)
	s.set(
		v("left", some("$t.p", and(mine, ne("$$i.revoked", true)))),
		v("p", filter("$t.p", not(mine))),
		v("c", filter("$t.c", not(over))),
		v("w", filter("$t.w", not(over))),
		v("r", concat(filter("$t.r", not(over)), list(record))),
	)
	s.end(and("$t.left", none("$t.p", and(ownID, ne("$$i.revoked", true)))), and(ownID, or(l.Undo, ne("$$i.keep", true))))
	s.settle(l.Policy, false)
	return s.assemble()
}

// releasePipeline ends a lock ID up to an order, wherever it stands. Outcomes: what was there up to the
// order goes, its parts drain; or nothing was there. Either way a record remembers the order.
func releasePipeline(r *engine.Release) bson.A {
	upTo := and(ownID, lte("$$i.order", r.Order))
	stopped, part := expr(false), ""
	if r.Leaving != nil {
		part, stopped = *r.Leaving, eq("$$i.part", "$t.part")
	}
	drains := or(eq("$$i.revoked", true), and(not(isNull("$$i.expiresAt")), gt("$$i.expiresAt", "$$NOW")))
	record := doc(v("lockId", "$t.id"), v("order", r.Order), v("until", until(r.ReleasedTTL)))
	var s stages
	s.load(r.LockID, part)
	s.set(
		v("p", each(filter("$t.p", or(not(upTo), and(not(stopped), drains))), cond(upTo, merge("$$i", doc(v("revoked", true))), "$$i"))),
		v("c", filter("$t.c", not(upTo))),
		v("w", filter("$t.w", not(upTo))),
		v("r", concat(filter("$t.r", not(upTo)), list(record))),
	)
	s.end(true, and(ownID, lte(ifNull("$$i.order", int64(0)), r.Order)))
	s.settle(r.Policy, false)
	return s.assemble()
}

// end takes away the holds for which which is true, and tells so in ended.
func (s *stages) end(when, which expr) {
	ended := func(holds, mode string) expr { return each(filter(holds, which), endedOf(mode, engine.HowReleased)) }
	s.set(
		v("ended", cond(when, concat(ended("$t.x", engine.Exclusive), ended("$t.s", engine.SharedBy)), list())),
		v("x", cond(when, filter("$t.x", not(which)), "$t.x")),
		v("s", cond(when, filter("$t.s", not(which)), "$t.s")),
	)
}
