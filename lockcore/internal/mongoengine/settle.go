package mongoengine

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// A pipeline loads the document's lists, acts on them, settles, and stores. Its stages keep what
// they need in between in the temporary field t. The first stage sets t, as one literal, to what
// the caller passed:
//
//	id  the lock ID      part      ord  the order      claim  the TTL of claims      and more
//
// The usual case must cost least: a list is searched by a path, such as "$held.lockId", before it
// is filtered entry by entry.

var (
	never  = bson.NewDateTimeFromTime(engine.Never)
	alive  = gt("$$this.expiresAt", "$$NOW")
	holds  = gte("$$this.state", engine.StateHolds)
	ownID  = eq("$$this.lockId", "$t.id")
	others = ne("$$this.lockId", "$t.id")
	// ownPart is the own part, or its claim or place. The part of a kept hold is null, so that it is
	// no other's.
	ownPart   = eq("$$this.part", "$t.part")
	running   = eq("$$this.state", engine.StateRunning)
	isKept    = eq("$$this.state", engine.StateKept)
	ownPlace  = list("$$this.lockId", "$$this.part")
	me        = list("$t.id", "$t.part")
	exclusive = eq("$$this.mode", engine.Exclusive)
	none      = bson.A{}
)

// load is the first stage: it makes the fields if the document is new, and sets t.
func load(values bson.D) bson.D {
	return on("$replaceWith", merge(lit(bson.D{
		{Key: "seq", Value: int64(0)}, {Key: "fence", Value: int64(0)}, {Key: "held", Value: none}, {Key: "waiters", Value: none},
		{Key: "evicted", Value: none}, {Key: "released", Value: none}, {Key: "t", Value: values},
	}), "$$ROOT"))
}

// fresh is the queue without the places that were not refreshed.
var fresh = v("waiters", cond(gt(minOf("$waiters.expiresAt"), "$$NOW"), "$waiters", filter("$waiters", alive)))

// A waiter that is overdue is passed over, and so is a tombstone, whose time was long ago.
var (
	awake       = gt("$$this.overdueAt", "$$NOW")
	nobodyWaits = lte(maxOf("$waiters.overdueAt"), "$$NOW")
	// awakeQueue is the queue of all others: mostly the whole, which a path finds out.
	awakeQueue = cond(gt(minOf("$waiters.overdueAt"), "$$NOW"), "$waiters", filter("$waiters", awake))
)

// settle claims the resource for the first in the queue, and for those right behind it with the
// same limit, as many as there is room for. Then it displaces the expired holds whose room was
// given away, in this way or by the request itself, if granted holds, to who. It keeps in t
//
//	w  those who wait and are not passed over, so many as one write serves at most      d  the first of them
//	to  to whom room is given: d, or who      l  what is alive, and not kept around d
//	c  the claims, which are taken out of the queue      x  the expired holds that are displaced
func (s *stages) settle(o outcome) {
	s.set(v("w", op("$slice", awakeQueue, engine.SettleMost)))
	// Who is alive matters to those who wait; and beside a crowd, to what has expired.
	expired := lte(minOf("$held.expiresAt"), "$$NOW")
	matters := ne("$t.w", none)
	if o.crowd {
		matters = or(matters, expired)
	}
	to, given := expr(first("$t.w")), expr(ne("$t.c", none))
	if o.granted != nil {
		to, given = cond(o.granted, orElse(o.who, "$t.who"), to), or(given, o.granted)
	}
	if o.crowd {
		given = and(given, expired)
	}
	s.set(v("d", first("$t.w")), v("to", to), v("l", cond(matters, filter("$held", and(alive, besideHead)), none)))
	s.set(v("c", claims))
	crowded := gt(size(op("$setUnion", "$held.lockId", "$t.c.lockId", list("$t.to.lockId"))), op("$min", "$t.to.limit", minOf("$t.c.limit"), engine.Crowd))
	spared := in("$$this.lockId", concat("$t.l.lockId", "$t.c.lockId", "$t.c.within"))
	gone := list(not(in("$$this.lockId", list("$t.to.lockId", "$t.to.within"))), or(exclusive, and(crowded, not(spared))))
	if o.within {
		gone = list(cond(around, running, and(gone...)))
	}
	// The claims are in front, but for those who are passed over: the rest is only cut off.
	upToLast := add(op("$indexOfArray", "$waiters", on("$last", "$t.c")), 1)
	passedOver := filter(op("$slice", "$waiters", upToLast), not(in("$$this", "$t.c")))
	rest := concat(passedOver, op("$slice", "$waiters", upToLast, engine.Unlimited))
	s.put(v("waiters", cond(eq("$t.c", none), "$waiters", rest)),
		v("t.x", cond(given, filter("$held", and(append(list(lte("$$this.expiresAt", "$$NOW"), holds), gone...)...)), none)))
}

// besideHead is which entries are not kept by the lock ID that the first of those who wait lives
// within.
var besideHead = ne(list("$$this.lockId", "$$this.state"), list(on("$let", doc(v("vars", doc(v("head", first("$t.w")))), v("in", "$$head.within"))), engine.StateKept))

// claims are those of w who are granted claims: none beside what is exclusive, not even their own
// party's; one if the first lives within a hold; else as many as there is room for of those with
// its limit. If its own exclusive hold has expired, that may come back, and needs the room.
var claims = func() expr {
	held := in(list("$t.d.lockId", engine.Exclusive, true), each("$held", list("$$this.lockId", "$$this.mode", holds)))
	beside := size(op("$setDifference", "$t.l.lockId", list("$t.d.lockId")))
	room := op("$subtract", cond(held, 1, ifNull("$t.d.limit", engine.Unlimited)), beside)
	run := op("$indexOfArray", concat(each("$t.w", sameLimit), list(false)), false)
	some := op("$slice", "$t.w", largest(0, op("$min", room, cond("$t.d.within", 1, run))))
	return cond(or(eq("$t.w", none), in(engine.Exclusive, "$t.l.mode")), none, some)
}()

var sameLimit = eq("$$this.limit", "$t.d.limit")

// outcome is what an operation says in last.
type outcome struct {
	// granted is whether the request gave room to who, by default itself with its limit. crowd says
	// that many others may hold beside who, so that a path is worth asking before each of them is
	// looked at.
	granted, who expr
	crowd        bool
	// note and position are what last says of the outcome did.
	did, note, position expr
	// about is whether evidence is about the lock ID that asks.
	about expr
	// ended are the entries and places that the operation ended; left are more that were in the
	// way; evidence are records that it leaves.
	ended, left, evidence expr
	// within says that what the request lives within is not displaced by it.
	within bool
}

// orElse is what stands for an expression that an outcome may leave out.
func orElse(given, otherwise expr) expr {
	if given == nil {
		return otherwise
	}
	return given
}

// together is one list of those that are not nil, of which there is one at least.
func together(lists ...expr) expr {
	if lists = slices.DeleteFunc(lists, func(l expr) bool { return l == nil }); len(lists) == 1 {
		return lists[0]
	}
	return concat(lists...)
}

// store settles, completes the document, and removes t. Fields that this version does not know are
// kept.
func (s *stages) store(o outcome) []bson.D {
	s.settle(o)
	claim := merge("$$this", doc(
		v("state", engine.StateClaimed), v("expiresAt", claimEnd), v("claimedAt", "$$NOW"), v("place", "$$this.expiresAt"), v("overdueAt", nil),
		v("after", after(together(o.ended, o.left, "$t.x")))))
	record := doc(v("lockId", "$$this.lockId"), v("label", "$$this.label"), v("fence", "$$this.first"), v("at", "$$NOW"), v("by", "$t.to.lockId"))
	lost := expr("$t.x")
	if o.within { // what is kept around the request is not lost
		lost = filter(lost, not(around))
	}
	evidence, adds := together(o.evidence, each(lost, record)), ne("$t.x", none)
	if o.evidence != nil {
		adds = or(adds, ne(o.evidence, none))
	}
	last := doc( // what the write before said must not stay
		v("outcome", o.did), v("evidence", orElse(o.about, "$$REMOVE")), v("ended", orElse(o.ended, none)), v("expired", "$t.x"),
		v("position", orElse(o.position, 0)), v("length", size("$waiters")), v("note", orElse(o.note, "$$REMOVE")))
	*s = append(*s, on("$set", doc(
		v("seq", add("$seq", int64(1))), v("at", "$$NOW"),
		v("held", concat(cond(eq("$t.x", none), "$held", filter("$held", not(in("$$this", "$t.x")))), each("$t.c", claim))),
		// Who adds evidence forgets what was too much before, and since says so.
		v("evicted", cond(adds, concat(lastOf("$evicted", engine.MaxEvicted), evidence), "$evicted")),
		v("since", largest(ifNull("$since", op("$subtract", "$$NOW", "$t.mem")), cond(adds, op("$arrayElemAt", "$evicted.at", -engine.MaxEvicted-1), nil))),
		v("idleAt", idleAt), v("attn", attn), v("last", last), v("t", "$$REMOVE"),
	)))
	return *s
}

// claimEnd is the end of a claim made now: a party that slept through one has longer.
var claimEnd = add("$$NOW", largest("$t.claim", "$$this.claimTTL"))

// tells is which entries tell of a hold, or drain for one that has ended.
var tells = or("$$this.createdAt", eq("$$this.state", engine.StateDraining))

// after is the first of the entries that tells of a hold, or drains, as those who waited for it
// remember it; missing if there is none. Only claims mention it, so that a queue alone pays for it.
func after(ended expr) expr {
	return first(each(filter(ended, tells), doc(
		v("lockId", "$$this.lockId"), v("fence", "$$this.first"), v("owner", "$$this.owner"), v("trace", "$$this.trace"))))
}

// idleAt is the end of the last promise but for new claims, rounded up to engine.IdleGrain.
var idleAt = idleAfter(largest("$$NOW", maxOf("$held.expiresAt")))

func idleAfter(end expr) bson.D {
	return on("$dateTrunc", doc(v("date", add(end, engine.IdleGrain.Milliseconds())), v("unit", "hour")))
}

// attn is what stands beside plain holds: by their states, and those who wait or are granted claims
// by their modes.
var attn = op("$setDifference", concat("$held.state", "$t.c.mode", op("$slice", "$waiters.mode", 1)), list(engine.StateRunning))

func lastOf(items expr, n int) expr { return op("$slice", items, -n) }

// drained is an entry that is cut off: it keeps others out until its promise ends, or without end
// for EndlessTTL. A promise with an end is never shortened, although $$NOW may lie before the time
// of the grant: hence twice the TTL.
var drained = doc(v("state", engine.StateDraining), v("expiresAt", op("$min", "$$this.expiresAt", op("$add", "$$NOW", "$$this.ttl", "$$this.ttl", engine.EndlessTTL.Milliseconds()))))
