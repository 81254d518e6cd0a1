package mongoengine

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// acquireKind is what the text of an acquire depends on.
type acquireKind struct {
	mode                                                 string
	limited, forever, holdForever                        bool
	keep, held, reacquire, newFence, queue, refreshOnly  bool
	converts, timed, labelled, undoes, within, handsOver bool
}

func kindOf(a *engine.Acquire) acquireKind {
	return acquireKind{
		mode: a.Mode, limited: a.Limit > 0, forever: a.TTL == 0, holdForever: a.Persist && a.HoldTTL == 0,
		keep: a.Persist, held: a.Held && !a.Reacquire, reacquire: a.Reacquire, newFence: a.NewFence, queue: a.Queue, refreshOnly: a.Refresh,
		converts: a.Converts > 0, timed: !a.Issued.IsZero(), labelled: a.Label != "", undoes: len(a.Undo) > 0, within: a.Within != "", handsOver: a.HandOver,
	}
}

// acquireValues are the literals of an acquire: new is the part to be, kept the hold, place the
// place.
func acquireValues(a *engine.Acquire) bson.D {
	part, kept := entriesOf(a)
	values := append(values(a.LockID, a.Part, a.Order, a.Policy), v("late", latest(a)), v("old", a.Converts), v("ttl", a.TTL), v("room", a.Room()),
		v("who", doc(v("lockId", a.LockID), v("limit", min(a.Room(), engine.Crowd)))))
	values = append(values, labelValues(a)...)
	if a.Persist {
		values = append(values, v("kept", kept), v("hold", max(a.HoldTTL, a.TTL)))
	}
	if a.Queue {
		place := a.Waiter()
		place.Owner, place.NeverVictim = kept.Owner, a.NeverVictim
		if !a.Started.IsZero() {
			place.Started = &a.Started
		}
		values = append(values, v("place", place), v("wait", a.WaiterTTL), v("heard", a.Patience()), v("most", a.MaxWaiters), v("longest", a.LongestClaim()))
	}
	return append(values, v("new", part))
}

// entriesOf are the part that a request makes, and the hold that it keeps.
func entriesOf(a *engine.Acquire) (part, kept engine.Entry) {
	part = engine.Entry{
		LockID: a.LockID, Label: a.Label, Part: a.Part, Order: a.Order, Mode: a.Mode, State: engine.StateRunning, TTL: a.TTL,
		Owner: a.Owner, Host: a.Host, Comment: a.Comment, Limit: a.Limit, Trace: a.Trace,
	}
	if part.Owner == a.LockID {
		part.Owner = ""
	}
	kept = part
	if a.Persist {
		kept.State, kept.TTL, kept.FirstOrder, kept.Within = engine.StateKept, a.HoldTTL, a.Order, a.Within
		part.Owner, part.Host, part.Comment, part.Limit = "", "", "", 0 // its hold tells
	}
	return part, kept
}

// latest is until when a request may take effect.
func latest(a *engine.Acquire) time.Time {
	if a.Issued.IsZero() {
		return engine.Never
	}
	return a.Issued.Add(engine.CommandTimeout)
}

// The stages of an acquire are the whole of acquire and enter. Its outcomes:
//
//  0. late: it was issued too long ago; or another run speaks for the party. Nothing changes.
//  1. overtaken: a record or a later request of the same part came first; nothing changes.
//  2. lost: the lock ID held before and does not any more; nothing changes.
//  3. again: the request was granted before, and its part stands.
//  4. joined: the lock ID holds already.
//  5. granted: an upgrade, or a new hold.
//  6. queued, or the place refreshed.
//  7. busy, or the queue full; nothing changes.
func (k acquireKind) stages() []bson.D {
	var s stages
	if k.labelled {
		s.speak(k)
	}
	s.find(k)
	s.decide(k)
	s.enter(k)
	o := outcome{
		granted: eq("$t.did", engine.Granted), crowd: k.mode == engine.Shared, did: "$t.did", about: k.about(),
		note: cond(eq("$t.did", engine.Deadlock), "$t.was.verdict", "$$REMOVE"),
	}
	if k.queue {
		o.position = cond(eq("$t.did", engine.Queued), add("$t.at", 1), 0)
	}
	if k.labelled { // what has expired beside who joins must not come back
		o.granted = in("$t.did", list(engine.Granted, engine.Joined))
		if k.mode == engine.Shared { // the limit is for new holds, and the hold's mode counts
			o.who = cond(eq("$t.did", engine.Joined), merge("$t.who", doc(v("limit", cond(in(engine.Exclusive, "$t.o.mode"), 1, engine.Crowd)))), "$t.who")
		}
		o.tellsOfRuns()
	}
	o.within = k.within
	return s.store(o)
}

// find sets what there is of the lock ID and the part:
//
//	a  the lock ID's entries      l  the others that are alive, for a limit      o  those of its hold
//	p  those of the part      m  the part as it runs
//	was  the part's place in the queue, which may be a tombstone, or its claim: a place has the field overdueAt, a claim place
func (s *stages) find(k acquireKind) {
	lists := doc(fresh, v("t.a", cond(in("$t.id", "$held.lockId"), filter("$held", ownID), none)))
	if k.limited {
		lists = append(lists, v("t.l", filter("$held", and(k.beside(), alive))))
	}
	s.put(lists...)
	places := cond(in("$t.id", "$waiters.lockId"), filter("$waiters", eq(ownPlace, me)), none)
	vars := doc(
		v("o", filter("$t.a", holds)), v("p", filter("$t.a", ownPart)), v("m", first(filter("$t.a", runs))),
		v("was", first(concat(places, filter("$t.a", and(isOwnClaim, stillStood))))))
	if k.within {
		kept := filter("$held", eq(list("$$this.lockId", "$$this.state"), list("$t.within", engine.StateKept)))
		vars = append(vars, v("around", gt(maxOf(each(kept, "$$this.expiresAt")), "$$NOW")))
	}
	s.set(vars...)
}

var (
	runs       = eq(list("$$this.part", "$$this.state"), list("$t.part", engine.StateRunning))
	isOwnClaim = eq(list("$$this.part", "$$this.state"), list("$t.part", engine.StateClaimed))
)

// nextFence grows although the document may have been inserted again: it is never below the time.
var nextFence = largest(add("$fence", int64(1)), on("$toLong", "$$NOW"))

// enter makes or joins the hold and makes the part, cutting off the part that it supersedes; or
// takes or refreshes the place in the queue. It sets
//
//	g  whether the part is made, its fence and mode      k  the kept hold      first  the hold's first fence
//	at  the index in the queue of the place to be      ahead  whether it goes ahead of others
func (s *stages) enter(k acquireKind) {
	// A request that joins has the fence of the hold, unless a newer one was given, to what lives within the
	// hold. What drains has none above it.
	anew := list(eq("$t.did", engine.Granted), "$t.m", "$t.was.place", gt("$fence", maxOf("$t.a.fence")))
	if k.newFence {
		anew = list(true)
	}
	vars := doc(
		v("g", in("$t.did", list(engine.Granted, engine.Joined))), v("first", maxOf("$t.o.first")),
		v("new.fence", cond(or(anew...), nextFence, maxOf("$t.a.fence"))),
	)
	if k.mode == engine.Shared {
		vars = append(vars, v("new.mode", largest(engine.Shared, maxOf("$t.o.mode"))))
	}
	if k.keep {
		vars = append(vars, v("k", first(filter("$t.o", isKept))))
	}
	if k.queue {
		vars = append(vars, v("ahead", cond("$t.was.overdueAt", "$t.was.ahead", k.goesAhead())),
			v("at", choose("$t.was.overdueAt", op("$indexOfArray", "$waiters", "$t.was"), k.goesAhead(), size("$waiters.ahead"), size("$waiters"))))
	}
	s.set(vars...)
	fields := doc(v("held", s.entries(k)), v("fence", cond("$t.g", largest("$fence", "$t.new.fence"), "$fence")))
	if k.keep {
		fields = append(fields, v("evicted", cond("$t.g", filter("$evicted", notForgiven(k.labelled)), "$evicted")))
	}
	queue := expr("$waiters")
	if k.queue {
		place := merge("$t.place", doc(
			v("since", ifNull("$t.was.since", "$$NOW")), v("claimTTL", cond(and("$t.was.place", not(claimStands)), twiceAsLong, "$t.was.claimTTL")),
			v("ahead", cond("$t.ahead", true, "$$REMOVE")), v("expiresAt", add("$$NOW", "$t.wait")), v("overdueAt", add("$$NOW", "$t.heard"))))
		after := cond("$t.was.overdueAt", add("$t.at", 1), "$t.at")
		queue = cond(eq("$t.did", engine.Queued),
			concat(op("$slice", "$waiters", "$t.at"), list(place), op("$slice", "$waiters", after, engine.Unlimited)), queue)
	}
	s.put(append(fields, v("waiters", cond(and("$t.g", "$t.was.overdueAt"), filter("$waiters", ne(ownPlace, me)), queue)))...)
}

// entries is what is held after the request: others, the own hold, and what the request makes.
func (s *stages) entries(k acquireKind) expr {
	rest := filter("$t.a", not(or(isOwnClaim, and(runs, lte("$$this.expiresAt", "$$NOW")))))
	if k.keep { // attempts that never left do not pile up
		replaced := in(list("$$this.part", "$$this.state"), list(list(nil, engine.StateKept), list("$t.part", engine.StateClaimed)))
		rest = filter("$t.a", and(not(replaced), or(alive, and(holds, not(runs)))))
	}
	changes := list("$$this")
	if k.mode == engine.Exclusive { // an upgrade is one of the whole hold
		changes = append(changes, doc(v("mode", engine.Exclusive)))
	}
	changes = append(changes, cond(runs, drained, nil))
	firstFence := v("first", ifNull("$t.first", "$t.new.fence"))
	part := doc(v("expiresAt", until("$t.ttl", k.forever)), firstFence,
		v("since", cond("$t.was.place", "$t.was.since", "$$REMOVE")), v("claimedAt", "$t.was.claimedAt"), v("after", "$t.was.after")) // of its claim
	created := expr("$$NOW")
	if k.converts {
		old := filter("$t.p", eq(list("$$this.state", "$$this.order"), list(engine.StateRunning, "$t.old")))
		rest = filter(rest, not(in("$$this", old)))
		created = ifNull(first(each(old, "$$this.createdAt")), created)
	}
	if !k.keep {
		part = append(part, v("createdAt", created))
	}
	made := list(merge("$t.new", part))
	if k.keep {
		made = append(list(
			merge("$t.kept", doc(v("part", nil), v("createdAt", "$$NOW"), firstFence), "$t.k", doc(
				v("joined", gt("$t.k", nil)), v("mode", "$t.new.mode"), v("order", largest("$t.k.order", "$t.ord")),
				v("firstOrder", op("$min", "$t.k.firstOrder", "$t.ord")), v("fence", "$t.new.fence"), v("ttl", "$t.kept.ttl"),
				v("trace", "$t.kept.trace"), v("expiresAt", largest("$t.k.expiresAt", until("$t.hold", k.holdForever || k.forever)))))), made...)
	}
	granted, unchanged := concat(each(rest, merge(changes...)), made), expr("$t.a")
	if k.queue { // the claim that was slept through is a place again
		unchanged = cond(eq("$t.did", engine.Queued), filter("$t.a", not(isOwnClaim)), unchanged)
	}
	if k.keep { // each request is a sign of life of the hold
		heard := doc(v("expiresAt", largest("$$this.expiresAt", add("$$NOW", "$$this.ttl"))))
		if k.handsOver {
			heard = append(heard, v("handed", true))
		}
		unchanged = each(unchanged, cond(isKept, merge("$$this", heard), "$$this"))
	}
	if !k.keep && !k.queue {
		return cond("$t.g", concat(filter("$held", others), granted), "$held")
	}
	refused := in("$t.did", list(engine.Superseded, engine.Late, engine.OtherRun))
	return cond(refused, "$held", concat(filter("$held", others), cond("$t.g", granted, unchanged)))
}

// goesAhead is whether the request queues ahead of others, and does not wait for them: it is an
// upgrade; or it had a claim; or it lives within a hold that is kept.
func (k acquireKind) goesAhead() bson.D {
	ways := list(ne("$t.o", none), "$t.was.place")
	if k.within {
		ways = append(ways, "$t.around")
	}
	return or(ways...)
}

var claimStands = gt("$t.was.expiresAt", "$$NOW")

// twiceAsLong is how long the next claim of a request stands that slept through one.
var twiceAsLong = op("$min", op("$multiply", int64(2), largest("$t.claim", "$t.was.claimTTL")), "$t.longest")

func until(ttl expr, forever bool) expr {
	if forever {
		return never
	}
	return add("$$NOW", ttl)
}
