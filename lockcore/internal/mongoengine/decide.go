package mongoengine

import "github.com/temporal-lockstep/lockstep/lockcore/engine"

func (s *stages) decide(k acquireKind) {
	covered := ne("$t.o", none)
	again := and(gt("$t.m.expiresAt", "$$NOW"), eq(list("$t.m.order", "$t.m.state"), list("$t.ord", engine.Part)))
	if k.mode == engine.Exclusive {
		covered = in(engine.Exclusive, "$t.o.mode")
		again = and(gt("$t.m.expiresAt", "$$NOW"), eq(list("$t.m.order", "$t.m.state", "$t.m.mode"), list("$t.ord", engine.Part, engine.Exclusive)))
	}
	fits := fitsIn(k)
	// A request that has a place gets its claim when its turn has come, in whichever write that is.
	free := nobodyWaits
	if k.queue {
		free = and(lt("$t.i", 0), nobodyWaits)
	}
	turn := or(isClaim, ne("$t.o", none), free)
	if k.within {
		turn = or(isClaim, ne("$t.o", none), "$t.around", free)
	}
	outcomes := list()
	if k.timed {
		outcomes = list(tooLate, engine.Late)
	}
	if k.labelled {
		covered, fits = and(covered, k.joinsBeside()), and(fits, k.joinsBeside())
		outcomes = append(outcomes, isOtherRun, engine.OtherRun)
	}
	overtaken := list(ne(filter("$released", and(ownID, gte("$$this.order", "$t.ord"), k.endedByOwn())), none))
	if !k.fresh {
		overtaken = append(overtaken, gt(maxOf("$t.p.order"), "$t.ord"),
			in(list(engine.Draining, "$t.ord"), each("$t.p", list("$$this.state", "$$this.order"))), laterWaits)
	}
	if k.labelled {
		overtaken = append(overtaken, isUndone)
	}
	outcomes = append(outcomes, or(overtaken...), engine.Overtaken)
	if !k.fresh {
		outcomes = append(outcomes, "$t.tomb.verdict", engine.Deadlock)
	}
	switch {
	case k.reacquire:
	case k.labelled && k.keep && k.held:
		outcomes = append(outcomes, or(eq("$t.o", none), wasEvictedBy(k.labelled)), engine.Lost)
	case k.labelled && k.keep:
		outcomes = append(outcomes, wasEvictedBy(k.labelled), engine.Lost)
	case k.held:
		outcomes = append(outcomes, eq("$t.o", none), engine.Lost)
	case k.keep:
		outcomes = append(outcomes, and(eq("$t.o", none), wasEvictedBy(k.labelled)), engine.Lost)
	}
	if !k.refreshOnly {
		outcomes = append(outcomes, again, engine.Again, covered, engine.Joined, and(turn, fits), engine.Granted)
	}
	switch {
	case !k.queue:
	case k.refreshOnly:
		outcomes = append(outcomes, or(claimStands, and(lt("$t.i", 0), not(isClaim))), engine.Busy)
		fallthrough
	default:
		full := and(lt("$t.i", 0), not(k.goesAhead()), gte(size("$waiters"), "$t.most"))
		outcomes = append(outcomes, full, engine.Full, true, engine.Queued)
	}
	s.set(v("did", choose(append(outcomes, engine.Busy)...)))
}

var tooLate = gt("$$NOW", "$t.late")

var laterWaits = and(in("$t.id", "$waiters.lockId"), ne(filter("$waiters", and(eq(ownPlace, me), gt("$$this.order", "$t.ord"))), none))

// fitsIn is whether the others who are alive leave room.
func fitsIn(k acquireKind) expr {
	if k.limited {
		return and(not(in(engine.Exclusive, "$t.l.mode")), lt(size(op("$setUnion", "$t.l.lockId")), "$t.room"))
	}
	return k.fitsBeside()
}

// joinsBeside is whether a hold may be joined beside all others: its mode counts.
func (k acquireKind) joinsBeside() expr {
	if k.mode == engine.Exclusive {
		return k.fitsBeside()
	}
	return cond(in(engine.Exclusive, "$t.o.mode"), acquireKind{mode: engine.Exclusive, within: k.within}.fitsBeside(), k.fitsBeside())
}

// fitsBeside is fitsIn without a limit, which is for new holds.
func (k acquireKind) fitsBeside() expr {
	if k.mode == engine.Exclusive {
		return eq(filter("$held", and(k.beside(), alive)), none)
	}
	return or(not(in(engine.Exclusive, "$held.mode")), eq(filter("$held", and(k.beside(), alive, exclusive)), none))
}
