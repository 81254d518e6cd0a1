package mongoengine

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// acquireKind is what the text of an acquire depends on. Everything else is in the literal of its first stage.
type acquireKind struct {
	mode                                                string
	limited, forever, holdForever                       bool
	keep, held, reacquire, newFence, queue, refreshOnly bool
}

func kindOf(a *engine.Acquire) acquireKind {
	return acquireKind{
		mode: a.Mode, limited: a.Limit > 0, forever: a.TTL == 0, holdForever: a.Keep && a.HoldTTL == 0,
		keep: a.Keep, held: a.Held && !a.Reacquire, reacquire: a.Reacquire, newFence: a.NewFence, queue: a.Queue, refreshOnly: a.Refresh,
	}
}

// acquireValues are the literals that acquire works with: new is the part to be, kept the hold, and place the
// place in the queue.
func acquireValues(a *engine.Acquire) bson.D {
	told := bson.D{{Key: "owner", Value: a.Owner}, {Key: "host", Value: a.Host}, {Key: "comment", Value: a.Comment}, {Key: "trace", Value: a.Trace}}
	if a.Limit > 0 {
		told = append(told, v("limit", a.Limit))
	}
	part := bson.D{
		{Key: "lockId", Value: a.LockID}, {Key: "part", Value: a.Part}, {Key: "order", Value: a.Order}, {Key: "mode", Value: a.Mode},
	}
	values := bson.D{
		{Key: "id", Value: a.LockID}, {Key: "part", Value: a.Part}, {Key: "ord", Value: a.Order},
		{Key: "claim", Value: a.ClaimTTL}, {Key: "ttl", Value: a.TTL},
	}
	running := append(part[:4:4], v("state", engine.Part), v("ttl", a.TTL))
	if a.Keep {
		kept := bson.D{
			{Key: "lockId", Value: a.LockID}, {Key: "part", Value: ""}, {Key: "order", Value: a.Order}, {Key: "mode", Value: a.Mode},
			{Key: "state", Value: engine.Kept}, {Key: "ttl", Value: a.HoldTTL},
		}
		values = append(values, v("kept", append(kept, told...)), v("hold", max(a.HoldTTL, a.TTL)))
	} else {
		running = append(running, told...)
	}
	if a.Queue {
		place := part[:4:4]
		if a.Limit > 0 {
			place = append(place, v("limit", a.Limit))
		}
		if a.Owner != a.LockID {
			place = append(place, v("owner", a.Owner))
		}
		values = append(values, v("place", place), v("wait", a.WaiterTTL), v("most", a.MaxWaiters))
	}
	if a.Limit > 0 {
		values = append(values, v("limit", a.Limit))
	}
	return append(values, v("new", running))
}

// acquireStages is the whole of acquire and enter. Its outcomes:
//
//  1. overtaken: a record or a later request of the same part came first; nothing changes.
//  2. lost: the lock ID held before and does not any more; nothing changes.
//  3. again: the request was granted before, and its part stands.
//  4. granted: a join, an upgrade, or a new hold.
//  5. queued, or the place refreshed.
//  6. busy, or the queue full; nothing changes.
//
// Whatever the outcome, the write is counted and the document settled.
func acquireStages(k acquireKind) []bson.D {
	var s stages
	s.load()
	s.own()
	s.set(
		v("o", filter("$t.a", holds)),
		v("m", filter("$t.a", and(ownPart, not(isKept)))),
		v("i", cond(in("$t.id", "$t.w.lockId"),
			op("$indexOfArray", each("$t.w", list("$$i.lockId", "$$i.part")), list("$t.id", "$t.part")), -1)),
	)
	s.set(
		v("s", first(filter("$t.m", running))),
		v("y", first(filter("$t.m", claimed))),
	)
	s.decide(k)
	s.grant(k)
	return s.store(list(), "$t.pos")
}

// decide sets did.
func (s *stages) decide(k acquireKind) {
	covered := ne("$t.o", list())
	again := eq("$t.s.order", "$t.ord")
	fits := or(not(in(engine.Exclusive, "$t.h.mode")), eq(filter("$t.h", and(others, alive, eq("$$i.mode", engine.Exclusive))), list()))
	switch {
	case k.mode == engine.Exclusive:
		covered, again = in(engine.Exclusive, "$t.o.mode"), and(again, eq("$t.s.mode", engine.Exclusive))
		fits = eq(filter("$t.h", and(others, alive)), list())
	case k.limited:
		s.set(v("b", filter("$t.h", and(others, alive))))
		fits = and(not(in(engine.Exclusive, "$t.b.mode")), lt(size(op("$setUnion", "$t.b.lockId")), "$t.limit"))
	}
	// An upgrade goes ahead of the queue: those who wait there wait for its own hold. Who has a place gets a
	// claim when its turn has come, in whoever's write that is.
	ahead := or(ne("$t.o", list()), eq(size("$t.w.until"), size("$t.w")))
	if k.refreshOnly {
		ahead = ne("$t.o", list())
	}
	outcomes := list(
		or(
			ne(filter("$t.r", and(ownID, gte("$$i.order", "$t.ord"), eq(ifNull("$$i.part", "$t.part"), "$t.part"))), list()),
			ne(filter("$t.m", or(gt("$$i.order", "$t.ord"), and(eq("$$i.order", "$t.ord"), eq("$$i.state", engine.Draining)))), list()),
		), engine.Overtaken)
	switch {
	case k.reacquire:
	case k.held:
		outcomes = append(outcomes, eq("$t.o", list()), engine.Lost)
	case k.keep:
		outcomes = append(outcomes, and(eq("$t.o", list()), in("$t.id", "$t.e.lockId")), engine.Lost)
	}
	outcomes = append(outcomes,
		again, engine.Again,
		or(covered, and(or("$t.y", and(lt("$t.i", 0), ahead)), fits)), engine.Granted)
	switch {
	case !k.queue:
	case k.refreshOnly:
		outcomes = append(outcomes, or("$t.y", lt("$t.i", 0)), engine.Busy, true, engine.Queued)
	default:
		outcomes = append(outcomes, "$t.y", engine.Busy, and(lt("$t.i", 0), gte(size("$t.w"), "$t.most")), engine.Full, true, engine.Queued)
	}
	fresh := expr(or(eq("$t.o", list()), not(covered), "$t.s"))
	if k.newFence {
		fresh = true
	}
	s.set(v("did", choose(append(outcomes, engine.Busy)...)), v("new.fence", cond(fresh, nextFence, maxOf("$t.o.fence"))))
}

// nextFence grows although the document may have been removed and made anew: it is never below the time.
var nextFence = largest(add("$t.f", int64(1)), on("$toLong", "$$NOW"))

// grant makes or joins the hold and makes the part, cutting off the part that it supersedes; or takes or
// refreshes the place in the queue.
func (s *stages) grant(k acquireKind) {
	granted := eq("$t.did", engine.Granted)
	stays := or(isKept, ne("$$i.part", "$t.part"), and(not(claimed), alive, lt("$$i.expiresAt", never)))
	if k.keep {
		stays = and(not(isKept), or(ne("$$i.part", "$t.part"), and(not(claimed), alive, lt("$$i.expiresAt", never))))
	}
	rest := each(filter("$t.a", stays), cond(and(ownPart, running), merge("$$i", doc(v("state", engine.Draining))), "$$i"))
	s.set(v("z", first(filter("$t.o", "$$i.createdAt"))), v("k", first(filter("$t.o", isKept))))
	made := doc(
		v("createdAt", ifNull("$t.z.createdAt", "$$NOW")), v("granted", ifNull("$t.z.granted", "$t.new.fence")))
	part := doc(v("expiresAt", until("$t.ttl", k.forever)), v("since", "$t.y.since"), v("claimedAt", "$t.y.claimedAt"))
	entries := list(merge("$t.new", part, made))
	if k.keep {
		mode := expr(engine.Exclusive)
		if k.mode == engine.SharedBy {
			mode = ifNull("$t.k.mode", engine.SharedBy)
		}
		entries = list(merge("$t.kept", made, "$t.k", doc(
			v("mode", mode), v("order", largest("$t.k.order", "$t.ord")), v("fence", "$t.new.fence"), v("ttl", "$t.kept.ttl"),
			v("trace", "$t.kept.trace"), v("expiresAt", largest("$t.k.expiresAt", until("$t.hold", k.holdForever || k.forever))))),
			merge("$t.new", part))
	}
	ownPlace := and(ownID, ownPart)
	queue := expr("$t.w")
	pos := expr(0)
	if k.queue {
		queued := eq("$t.did", engine.Queued)
		end := v("expiresAt", add("$$NOW", "$t.wait"))
		place := list(merge("$t.place", doc(v("since", "$$NOW"), end)))
		upgrade := ne("$t.o", list())
		pos = cond(queued, choose(gte("$t.i", 0), add("$t.i", 1), upgrade, 1, add(size("$t.w"), 1)), 0)
		queue = cond(queued, choose(
			gte("$t.i", 0), each("$t.w", cond(ownPlace, merge("$t.place", doc(v("since", "$$i.since"), end)), "$$i")),
			upgrade, concat(place, "$t.w"),
			concat("$t.w", place)), "$t.w")
	}
	s.set(
		v("h", choose(
			granted, concat(cond(eq("$t.a", list()), "$t.h", filter("$t.h", others)), rest, entries),
			or(eq("$t.a", list()), eq("$t.did", engine.Overtaken)), "$t.h",
			concat(filter("$t.h", others), "$t.a"))),
		v("w", cond(and(granted, gte("$t.i", 0)), filter("$t.w", not(ownPlace)), queue)),
		v("e", cond(and(granted, in("$t.id", "$t.e.lockId")), filter("$t.e", others), "$t.e")),
		v("f", cond(granted, largest("$t.f", "$t.new.fence"), "$t.f")),
		v("pos", pos),
	)
}

// until is the end of a promise of ttl milliseconds made now.
func until(ttl expr, forever bool) expr {
	if forever {
		return never
	}
	return add("$$NOW", ttl)
}
