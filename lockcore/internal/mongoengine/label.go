package mongoengine

import (
	"cmp"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// What only requests with a run label do. They keep in t
//
//	label  the request's run label      from  the label that it may replace, or its own      undo  the parts that it undoes
//	cut  the lock ID of what is cut off      within  the lock ID that it lives within      around  whether that keeps the resource
//	other  the label of the run that the request may not replace; missing if there is none
//	out  the party's entries and places that another run made, or that are undone      before  the first of them of another run

func labelValues(a *engine.Acquire) bson.D {
	if a.Label == "" {
		return nil
	}
	return bson.D{
		v("label", a.Label), v("from", cmp.Or(a.TakeOver, a.Label)), v("cut", engine.CutOff(a.LockID)), v("undo", a.Undo), v("within", a.Within),
	}
}

var (
	ownLabel   = eq("$$this.label", "$t.label")
	otherLabel = ne("$$this.label", "$t.label")
	ownCutOff  = eq(ownPlace, list("$t.cut", "$t.part"))
	isOtherRun = gt("$t.other", nil)
	// wasReplaced is which evidence says that another run replaced the request's.
	wasReplaced = and(ownID, ownLabel, "$$this.to")
	// cutOff is what becomes of a running or draining part that is cut off.
	cutOff = append(slices.Clone(drained), v("lockId", "$t.cut"), v("mode", engine.Exclusive))
	// besideWithin is which entries are neither the party's own nor kept around the request.
	besideWithin = and(others, ne(list("$$this.lockId", "$$this.state"), list("$t.within", engine.StateKept)))
	// around is which entries are of the lock ID around a request that is let in, as long as that
	// one keeps the resource.
	around = and("$t.around", "$t.g", eq("$$this.lockId", "$t.within"))
)

// speak makes the run of the request the one that speaks for its party, and ends the parts that it
// undoes, unless the request is late or another run is in its way.
func (s *stages) speak(k acquireKind) {
	inTheWay := and(ownID, or(holds, alive), not(in("$$this.label", list("$t.label", "$t.from"))))
	s.put(fresh, v("t.other", first(concat(
		each(filter("$evicted", wasReplaced), "$$this.to"),
		each(filter(concat("$held", "$waiters"), inTheWay), ifNull("$$this.label", ""))))))
	goes := expr(not(isOtherRun))
	if k.timed {
		goes = and(goes, not(tooLate))
	}
	leaves := otherLabel
	if k.undoes {
		leaves = or(otherLabel, in("$$this.part", "$t.undo"))
	}
	s.set(v("out", cond(goes, filter(concat("$held", "$waiters"), and(ownID, leaves)), none)), v("goes", goes))
	s.set(v("before", first(filter("$t.out", otherLabel))))
	passesOn := cond(isKept, doc(v("label", "$t.label"), v("fence", nextFence), v("order", int64(0)), v("handed", false)), cutOff)
	stays := or(not(in("$$this", "$t.out")), isKept, and(gt("$$this.state", engine.StateClaimed), alive))
	fields := doc(
		v("held", cond(eq("$t.out", none), "$held",
			each(filter("$held", stays), cond(in("$$this", "$t.out"), merge("$$this", passesOn), "$$this")))),
		v("waiters", cond(eq("$t.out", none), "$waiters", filter("$waiters", not(in("$$this", "$t.out"))))),
		v("fence", cond(in(engine.StateKept, "$t.out.state"), nextFence, "$fence")))
	if k.undoes {
		kept := filter(ifNull("$undone", none), not(and(ownID, in("$$this.part", "$t.undo"))))
		added := each("$t.undo", doc(v("lockId", "$t.id"), v("part", "$$this")))
		fields = append(fields, v("undone", cond("$t.goes", lastOf(concat(kept, added), engine.MaxUndone), ifNull("$undone", "$$REMOVE"))))
	}
	s.put(fields...)
}

// tellsOfRuns adds to the outcome of an acquire what became of other runs.
func (o *outcome) tellsOfRuns() {
	o.note = cond(eq("$t.did", engine.OtherRun), "$t.other", o.note)
	o.ended = filter("$t.out", not(isKept)) // those go on
	change := doc(v("lockId", "$t.id"), v("label", "$t.before.label"), v("to", "$t.label"), v("fence", int64(0)), v("at", "$$NOW"))
	o.evidence = cond("$t.before", list(change), none)
}

func (k acquireKind) beside() expr {
	if k.within {
		return besideWithin
	}
	return others
}

// endedByOwn is which records of the lock ID are about the request: its part's, and releases of the
// whole lock ID by its run.
func (k acquireKind) endedByOwn() expr {
	if k.labelled {
		return or(ownPart, eq(list("$$this.part", "$$this.label"), list(nil, "$t.label")))
	}
	return in("$$this.part", list(nil, "$t.part"))
}

var isUndone = in(me, each(ifNull("$undone", none), ownPlace))

// wasEvictedBy is whether there is evidence that the lock ID, or its own run, lost a hold.
func wasEvictedBy(labelled bool) expr {
	if labelled {
		return in(list("$t.id", "$t.label", false), each("$evicted", list("$$this.lockId", "$$this.label", gt("$$this.to", nil))))
	}
	return wasEvicted
}

// about is whether there is evidence about the request: mostly there is none, which a path finds out.
func (k acquireKind) about() expr {
	if k.labelled {
		return and(wasEvicted, wasEvictedBy(true))
	}
	return wasEvicted
}

var wasEvicted = in("$t.id", "$evicted.lockId")

// notForgiven is the evidence that stays when a party takes or releases its lost lock.
func notForgiven(labelled bool) expr {
	if labelled {
		return or(others, otherLabel, "$$this.to")
	}
	return others
}
