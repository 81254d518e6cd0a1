package mongoengine

import "github.com/temporal-lockstep/lockstep/lockcore/engine"

func (s *stages) decide(k acquireKind) {
	covered := ne("$t.o", none)
	again := and(gt("$t.m.expiresAt", "$$NOW"), eq("$t.m.order", "$t.ord"))
	if k.mode == engine.Exclusive {
		covered = in(engine.Exclusive, "$t.o.mode")
		again = and(gt("$t.m.expiresAt", "$$NOW"), eq(list("$t.m.order", "$t.m.mode"), list("$t.ord", engine.Exclusive)))
	}
	fits := fitsIn(k)
	outcomes := list()
	if k.timed {
		outcomes = list(tooLate, engine.Late)
	}
	if k.labelled {
		covered, fits = and(covered, k.joinsBeside()), and(fits, k.joinsBeside())
		outcomes = append(outcomes, isOtherRun, engine.OtherRun)
	}
	overtaken := list(
		ne(filter("$released", and(ownID, gte("$$this.order", "$t.ord"), k.endedByOwn())), none),
		gt(largest("$t.was.order", maxOf("$t.p.order")), "$t.ord"),
		in(list(engine.StateDraining, "$t.ord"), each("$t.p", list("$$this.state", "$$this.order"))))
	if k.labelled {
		overtaken = append(overtaken, isUndone)
	}
	outcomes = append(outcomes, or(overtaken...), engine.Superseded, "$t.was.verdict", engine.Deadlock)
	if lost := k.lost(); lost != nil {
		outcomes = append(outcomes, lost, engine.Lost)
	}
	if !k.refreshOnly {
		outcomes = append(outcomes, again, engine.Again, covered, engine.Joined, and(k.turn(), fits), engine.Granted)
	}
	if k.refreshOnly && k.queue {
		outcomes = append(outcomes, or(not("$t.was"), and("$t.was.place", claimStands)), engine.Busy)
	}
	if k.queue {
		full := and(not(or("$t.was", k.goesAhead())), gte(size("$waiters"), "$t.most"))
		outcomes = append(outcomes, full, engine.Full, engine.Queued)
	} else {
		outcomes = append(outcomes, engine.Busy)
	}
	s.set(v("did", choose(outcomes...)))
}

// turn is whether no waiter goes before the request. One that has a place gets its claim when
// its turn has come, in whichever write that is.
func (k acquireKind) turn() expr {
	free := nobodyWaits
	if k.queue {
		free = and(not("$t.was"), nobodyWaits)
	}
	return or(k.goesAhead(), free)
}

// lost is whether the lock ID held before and does not any more, and nil if the request does not
// ask.
func (k acquireKind) lost() expr {
	gone := eq("$t.o", none)
	switch {
	case k.reacquire:
		return nil
	case k.held && k.labelled && k.keep:
		return or(gone, wasEvictedBy(k.labelled))
	case k.held:
		return gone
	case k.keep && k.labelled: // another run of the party may have taken the lock since
		return wasEvictedBy(k.labelled)
	case k.keep:
		return and(gone, wasEvicted)
	}
	return nil
}

var tooLate = gt("$$NOW", "$t.late")

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
