package update

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// actions calls visit with every world that one action leads to. The label of an action names it for play.
func (w *world) actions(visit func(*world)) {
	for i, p := range w.processes {
		if p.crashed {
			continue
		}
		do := func(label string, act func(*world, *process)) {
			next, p := w.fork(i, label+" "+p.name)
			act(next, p)
			next.check()
			visit(next)
		}
		if p.line.sent != nil {
			do("go", (*world).answer)
		}
		if w.faults > 0 {
			w.faultsOf(i, p, do)
		}
		for n := range p.extends {
			w.extendSteps(n, p, do)
		}
		w.policyActions(p, do)
		for n := range p.parties {
			w.partyActions(n, p, visit, i)
		}
		if p.can[settle] > 0 {
			do("settle", func(w *world, p *process) {
				p.can[settle]--
				w.add(p, -1, settle, "", &Call{Op: rules.Settle{Resource: resource}})
			})
		}
		if p.can[withdraw] > 0 && w.doc != nil {
			w.withdrawals(do)
		}
	}
	for n := range w.late {
		next, _ := w.fork(-1, "late copy")
		late := next.late[n]
		next.late = slices.Delete(next.late, n, n+1)
		if late.swap == nil {
			next.raise(late.extend)
		} else if next.matches(late.swap) {
			next.write(late.swap.Next)
		}
		next.check()
		visit(next)
	}
	if len(w.changes) > 0 {
		next, _ := w.fork(-1, "the policy changes")
		next.setPolicy()
		next.check()
		visit(next)
	}
	if w.ticks > 0 {
		next, _ := w.fork(-1, "tick")
		next.ticks--
		next.now++
		next.check()
		visit(next)
	}
}

func (w *world) withdrawals(do func(string, func(*world, *process))) {
	for _, waiter := range w.doc.Waiters {
		if waiter.Verdict != "" {
			continue
		}
		do("withdraw "+waiter.LockID+" by", func(w *world, p *process) {
			p.can[withdraw]--
			w.add(p, -1, withdraw, "", &Call{Op: rules.Withdraw{
				Resource: resource, Caller: rules.Caller{LockID: waiter.LockID, Part: waiter.Part, Order: waiter.Order}, Reason: "deadlock",
			}})
		})
	}
}

// add puts a call in the line of a process.
func (w *world) add(p *process, party int, v verb, id string, c *Call) {
	p.notes = append(p.notes, note{call: c, party: party, verb: v, id: id})
	w.handle(p, Joined{c})
	w.pump(p)
}

// faultsOf calls do with the faults that may affect a process and its command in flight.
func (w *world) faultsOf(i int, p *process, do func(string, func(*world, *process))) {
	fault := func(label string, act func(*world, *process)) {
		do(label, func(w *world, p *process) {
			w.faults--
			act(w, p)
		})
	}
	lateCopyOf := func(w *world, p *process) {
		s := p.line.sent.Swap
		w.late = append(w.late, lateCopy{from: i, swap: &s})
	}
	swaps := p.line.sent != nil && p.line.sent.Kind == StepSwap
	fault("crash of", func(w *world, p *process) { w.crash(p) })
	if swaps {
		fault("crash with a late copy of", func(w *world, p *process) { lateCopyOf(w, p); w.crash(p) })
	}
	if p.sample.known && !p.sample.fast {
		fault("the clock of another server is known to", func(_ *world, p *process) { p.sample.at++; p.sample.fast = true })
	}
	if p.line.sent == nil {
		return
	}
	for _, outage := range []bool{false, true} {
		suffix := " for"
		if outage {
			suffix = ", and an outage, for"
		}
		if !swaps {
			fault("a failure"+suffix, func(w *world, p *process) { w.failed(p, errLost, outage) })
			continue
		}
		fault("a lost answer"+suffix, func(w *world, p *process) { w.apply(p); w.failed(p, errLost, outage) })
		fault("a lost command"+suffix, func(w *world, p *process) { w.failed(p, errLost, outage) })
		fault("a late command"+suffix, func(w *world, p *process) { lateCopyOf(w, p); w.failed(p, errLost, outage) })
		fault("a write that is rolled back"+suffix, func(w *world, p *process) {
			w.old = append(w.old, p.line.sent.Swap.Next)
			w.failed(p, errLost, outage)
		})
	}
	if swaps {
		fault("a conflict after the swap was applied for", func(w *world, p *process) {
			w.apply(p)
			w.handle(p, Conflicted{})
			w.pump(p)
		})
	}
	fault("not sent, and an outage, for", func(w *world, p *process) { w.failed(p, store.ErrNotSent, true) })
	if p.line.sent.Kind == StepLoad {
		for n, d := range w.old {
			fault(fmt.Sprintf("a read of state -%d for", len(w.old)-n), func(w *world, p *process) { w.loaded(p, d); w.pump(p) })
		}
	}
}

func (w *world) crash(p *process) {
	*p = process{name: p.name, crashed: true, parties: p.parties}
	for i := range p.parties {
		p.parties[i].held, p.parties[i].busy = false, false
	}
}

// partyActions calls visit with the worlds to which the actions of party n of process i lead.
func (w *world) partyActions(n int, p *process, visit func(*world), i int) {
	of := &p.parties[n]
	do := func(v verb, act func(*world, *process, *party)) {
		if of.left[v] == 0 {
			return
		}
		next, p := w.fork(i, verbNames[v]+" "+of.name())
		p.parties[n].left[v]--
		act(next, p, &p.parties[n])
		next.check()
		visit(next)
	}
	waits := p.request(n)
	if waits < 0 && of.busy {
		panic("busy without a call")
	}
	if waits >= 0 {
		if p.notes[waits].call.asleep {
			do(ask, func(w *world, p *process, _ *party) { w.wake(p, waits) })
		}
		do(abandon, func(w *world, p *process, of *party) { w.abandon(p, n, of) })
	}
	if ending := p.ending(n); ending >= 0 {
		do(abandon, func(w *world, p *process, _ *party) { w.giveUp(p, ending) })
	}
	switch {
	case !of.held && !of.busy:
		do(acquire, func(w *world, p *process, of *party) { w.acquire(p, n, of) })
		if of.deadlocked {
			do(leave, func(w *world, p *process, of *party) {
				of.deadlocked = false
				op := of.leaveOp()
				op.Order = of.order0() + of.n - 1
				w.add(p, n, leave, "", &Call{Op: op})
			})
		}
	case of.held:
		w.holderActions(n, p, do)
	}
}

// request returns the index of the note of the request for which a party waits, or -1.
func (p *process) request(n int) int {
	return slices.IndexFunc(p.notes, func(m note) bool { return m.party == n && (m.verb == acquire || m.verb == upgrade) })
}

// ending returns the index of the note of a call that ends what party n held, or -1.
func (p *process) ending(n int) int {
	return slices.IndexFunc(p.notes, func(m note) bool { return m.party == n && (m.verb == leave || m.verb == release) && m.call.Owed })
}

// giveUp ends the wait for a call that ends a hold. The line must carry it out nevertheless.
func (w *world) giveUp(p *process, ending int) {
	call := p.notes[ending].call
	p.notes = slices.Delete(p.notes, ending, ending+1)
	w.handle(p, Abandoned{call})
	w.pump(p)
}

func (w *world) wake(p *process, request int) {
	m := &p.notes[request]
	m.asked, m.loaded = false, false
	w.handle(p, Woken{m.call})
	w.pump(p)
}

func (w *world) acquire(p *process, n int, of *party) {
	op := of.acquireOp()
	of.n++
	of.busy = true
	w.add(p, n, acquire, op.Call, &Call{Op: op, Sleeps: of.queues, TakeBack: &Call{Op: of.takeBack(&op)}})
}

// holderActions calls do with the actions of a party that holds.
func (w *world) holderActions(n int, p *process, do func(verb, func(*world, *process, *party))) {
	of := &p.parties[n]
	renews := slices.ContainsFunc(p.notes, func(m note) bool { return m.party == n && (m.verb == renew || m.verb == downgrade) })
	if !renews {
		do(renew, func(w *world, p *process, of *party) { w.add(p, n, renew, of.id, &Call{Op: of.renewOp()}) })
		if !slices.ContainsFunc(p.extends, func(e extending) bool { return e.party == n }) && p.sample.known {
			do(extend, func(w *world, p *process, of *party) { w.extend(p, n, of) })
		}
	}
	if of.busy {
		return
	}
	if of.mode == rules.Shared {
		do(upgrade, func(w *world, p *process, of *party) {
			op := of.acquireOp()
			op.Mode, op.Limit, op.Order, op.Upgrades = rules.Exclusive, 0, of.order, of.id
			op.Call += "-up"
			of.busy = true
			w.add(p, n, upgrade, op.Call, &Call{Op: op, Sleeps: of.queues, TakeBack: &Call{Op: of.takeBack(&op)}})
		})
	} else if !renews {
		do(downgrade, func(w *world, p *process, of *party) {
			op := of.renewOp()
			op.Downgrade = true
			of.downgrading, of.mode = true, rules.Shared
			w.add(p, n, downgrade, of.id, &Call{Op: op})
		})
	}
	do(leave, func(w *world, p *process, of *party) { w.endHold(p, n, of, leave, of.leaveOp()) })
	do(release, func(w *world, p *process, of *party) {
		leaving := part
		w.endHold(p, n, of, release, rules.Release{
			Resource: resource, LockID: of.lockID, Run: of.label(), Order: of.order, Leaving: &leaving,
		})
	})
}

// extend sends an Extend of a party's part.
func (w *world) extend(p *process, n int, of *party) {
	guess := p.sample.guess(w.now)
	end := guess.At.Add(partTTL * time.Second)
	p.extends = append(p.extends, extending{party: n, sent: w.now, guess: guess, swaps: p.line.swaps, parts: []store.Extension{
		{Resource: resource, ID: of.id, End: end, At: guess.At, IdleAt: rules.IdleAt(end), Yields: true},
	}})
}

// endHold submits an operation that ends what a party holds.
func (w *world) endHold(p *process, n int, of *party, v verb, op rules.Op) {
	of.held = false
	p.mustGo = append(p.mustGo, request{of.lockID, of.id, of.order})
	w.add(p, n, v, of.id, &Call{Op: op, Owed: true})
}

// abandon ends the request for which a party waits. If the request was not applied again since it queued, it
// leaves the queue, as package lockcore does.
func (w *world) abandon(p *process, n int, of *party) {
	k := p.request(n)
	m := p.notes[k]
	p.notes = slices.Delete(p.notes, k, k+1)
	of.busy = false
	op := m.call.Op.(rules.Acquire)
	p.mustGo = append(p.mustGo, request{of.lockID, m.id, op.Order})
	queued := m.call.queued
	unknown := p.line.Owes(m.call)
	w.handle(p, Abandoned{m.call})
	if !unknown && queued {
		w.add(p, n, leave, m.id, &Call{Op: of.takeBack(&op), Owed: true})
		return
	}
	w.pump(p)
}

// extendSteps calls do with the next half of an Extend: it takes effect, or its answer arrives.
func (w *world) extendSteps(n int, p *process, do func(string, func(*world, *process))) {
	if e := &p.extends[n]; !e.executed {
		do("extend at the server for", func(w *world, p *process) {
			e := &p.extends[n]
			e.executed = true
			w.checkExtend(p, e)
			e.found, e.r = w.raise(e.parts)
		})
		if w.faults > 0 {
			do("a late extend for", func(w *world, p *process) {
				w.faults--
				w.late = append(w.late, lateCopy{extend: p.extends[n].parts})
				p.ended(n, false)
				p.sample.known = false
			})
		}
		return
	}
	do("extended", func(w *world, p *process) {
		e := p.extends[n]
		of := &p.parties[e.party]
		all := e.found == 1
		p.ended(n, all)
		if all && of.held && of.id == e.parts[0].ID {
			if e.drains {
				w.fail("I8: %s was superseded, and was told that it is extended", of.name())
			}
			if slices.Contains(of.lost, of.id) {
				w.fail("%s was told that %s is lost, and then that it is extended", of.lockID, of.id)
			}
			of.until = min(tickOf(e.guess.Sent), e.sent) + partTTL
		}
	})
	if w.faults > 0 {
		do("an extend without an answer for", func(w *world, p *process) {
			w.faults--
			p.ended(n, false)
			p.sample.known = false
		})
	}
}

// ended passes the result of an Extend to the line, as Lines.Extend does.
func (p *process) ended(n int, all bool) {
	e := p.extends[n]
	p.extends = slices.Delete(p.extends, n, n+1)
	if all {
		p.line.Handle(Extended{endsOf(e.parts), e.r, e.swaps})
	} else {
		p.line.Handle(Outdated{})
	}
}

func (of *party) name() string {
	if of.partySpec.order > 0 {
		return of.lockID + "'"
	}
	return of.lockID
}

func (of *party) order0() int64 { return of.partySpec.order + 1 }

func (of *party) label() string {
	if of.keeps {
		return "run"
	}
	return ""
}

func (of *party) acquireOp() rules.Acquire {
	order := of.order0() + of.n
	op := rules.Acquire{
		Resource: resource, Call: fmt.Sprint(of.lockID, order, of.suffix), Caller: rules.Caller{LockID: of.lockID, Run: of.label(), Part: part, Order: order},
		Mode: of.partySpec.mode, Limit: of.limit, TTL: cmp.Or(of.lasts, partTTL) * 1000, HoldTTL: partTTL * 1000, Queue: of.queues,
		WaiterTTL: waiterTTL * 1000, NextRefresh: waiterTTL * 1000 / 3, MaxWaiters: cmp.Or(of.maxWaiters, 3), Owner: of.lockID,
	}
	if of.keeps {
		op.Keep, op.HoldTTL = true, holdTTL*1000
	}
	return op
}

func (of *party) takeBack(op *rules.Acquire) rules.Op {
	return rules.TakeBack{Resource: resource, Caller: op.Caller, Call: op.Call}
}

func (of *party) leaveOp() rules.Leave {
	return rules.Leave{Resource: resource, Caller: rules.Caller{LockID: of.lockID, Run: of.label(), Part: part, Order: of.order}}
}

func (of *party) renewOp() rules.Renew {
	return rules.Renew{Resource: resource, Caller: rules.Caller{LockID: of.lockID, Part: part, Order: of.order}}
}

func endsOf(parts []store.Extension) map[string]time.Time {
	ends := map[string]time.Time{}
	for _, p := range parts {
		ends[p.ID] = p.End
	}
	return ends
}
