package update

import (
	"slices"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// check checks the invariants of every world.
func (w *world) check() {
	w.checkTrust()
	w.checkLeftovers()
	if w.err == nil && w.quiet() {
		w.checkGranted()
		w.checkFollowed()
	}
	if w.err == nil && slices.ContainsFunc(w.processes, func(p *process) bool { return p.line.conflicts > 2 }) {
		next, _ := w.fork(-1, "all commands are answered")
		next.finish()
		w.err = next.err
	}
}

// checkTrust is I1. It also checks that every trusted lease is backed by an entry that lasts as long.
func (w *world) checkTrust() {
	for _, p := range w.processes {
		for i := range p.parties {
			a := &p.parties[i]
			if !a.trusts(w.now) {
				continue
			}
			for _, q := range w.processes {
				for j := range q.parties {
					b := &q.parties[j]
					if b.trusts(w.now) && a.lockID != b.lockID && !rules.Compatible(a.mode, b.mode) {
						w.fail("I1: %s (%s) and %s (%s) trust their leases at the same time", a.name(), a.mode, b.name(), b.mode)
					}
					if b.trusts(w.now) && a.lockID != b.lockID && a.member != "" && a.member == b.member {
						w.fail("I13: %s and %s trust leases of the member %s at the same time", a.name(), b.name(), a.member)
					}
				}
			}
			if !w.backed(a) {
				w.fail("I1: %s trusts %s until %d, and no entry lasts as long", a.name(), a.id, a.until)
			}
		}
	}
}

func (w *world) backed(a *party) bool {
	return w.doc != nil && slices.ContainsFunc(w.doc.Entries, func(e rules.Entry) bool {
		return e.LockID == a.lockID && e.Part == part && e.Order == a.order && (e.State == rules.StateRunning || e.State == rules.StateDraining) &&
			rules.Covers(e.Mode, a.mode) && !e.ExpiresAt.Before(at(a.until))
	})
}

// checkLeftovers is I6 for abandoned requests, and for calls that were reported as not applied.
func (w *world) checkLeftovers() {
	for i, p := range w.processes {
		for _, id := range p.never {
			if w.has(func(e *rules.Entry) bool { return e.ID == id }) {
				w.fail("I6: %s was surely not applied, and it is there", id)
			}
		}
		if p.crashed || !p.line.Asleep() {
			continue
		}
		for _, r := range p.mustGo {
			if w.has(func(e *rules.Entry) bool { return e.ID == r.id && e.State == rules.StateRunning }) {
				w.fail("I6: %s has ended, nothing is owed, and it is still there", r.id)
			}
			waits := func(lockID string, order int64) bool { return lockID == r.lockID && order == r.order }
			if w.has(func(e *rules.Entry) bool { return e.State == rules.StateClaimed && waits(e.LockID, e.Order) }) {
				w.fail("I6: %s has ended, nothing is owed, and its claim is still there", r.id)
			}
			if w.doc != nil && slices.ContainsFunc(w.doc.Waiters, func(v rules.Waiter) bool { return v.Verdict == "" && waits(v.LockID, v.Order) }) {
				w.fail("I6: %s has ended, nothing is owed, and it is still queued", r.id)
			}
		}
		for _, late := range w.late {
			if late.swap != nil && late.from == i && w.matches(late.swap) {
				w.fail("I6: %s owes nothing, and a late copy of its swap would be applied", p.name)
			}
		}
	}
}

func (w *world) has(which func(*rules.Entry) bool) bool {
	if w.doc == nil {
		return false
	}
	for i := range w.doc.Entries {
		if which(&w.doc.Entries[i]) {
			return true
		}
	}
	return false
}

// quiet reports whether nothing happens without another action.
func (w *world) quiet() bool {
	if w.doc == nil || len(w.late) > 0 {
		return false
	}
	for _, p := range w.processes {
		if !p.crashed && (!p.line.Asleep() || len(p.extends) > 0) {
			return false
		}
	}
	return true
}

// checkGranted is I9: if all entries have expired and requests wait, a Settle and waking the requests grants
// the resource.
func (w *world) checkGranted() {
	if w.has(func(e *rules.Entry) bool { return e.Alive(at(w.now)) }) {
		return
	}
	waiting := 0
	for i := range w.doc.Waiters {
		v := &w.doc.Waiters[i]
		if !v.Waits(at(w.now)) || v.Overdue(at(w.now)) {
			continue
		}
		waiting++
		alive := false
		for _, p := range w.processes {
			alive = alive || slices.ContainsFunc(p.notes, func(n note) bool {
				op, ok := n.call.Op.(rules.Acquire)
				return ok && n.call.asleep && op.LockID == v.LockID && op.Order == v.Order
			})
		}
		if !alive { // the caller is gone, and its claim would have to lapse first
			return
		}
	}
	if waiting == 0 {
		return
	}
	next, _ := w.fork(-1, "settle, and all ask")
	next.processes = append(next.processes, &process{name: "janitor", line: Line{Name: resource, Process: "janitor", Settings: settings}})
	next.add(next.processes[len(next.processes)-1], -1, settle, "", &Call{Op: rules.Settle{Resource: resource}})
	next.finish()
	for i, p := range next.processes {
		p = p.clone()
		next.processes[i] = p
		for _, n := range p.notes {
			if n.verb == acquire || n.verb == upgrade {
				next.handle(p, Woken{n.call})
			}
		}
		next.pump(p)
	}
	next.finish()
	for _, p := range next.processes {
		if slices.ContainsFunc(p.parties, func(of party) bool { return of.trusts(next.now) }) {
			return
		}
	}
	if next.err != nil {
		w.err = next.err
	}
	w.fail("I9: the resource is free, %d wait, and nobody is granted it: %+v", waiting, next.doc.Waiters)
}

// finish carries out and answers all commands. Only time ends the reservation of a process that has crashed.
func (w *world) finish() {
	for range 50 {
		if d := w.doc; d != nil && d.Reserved != nil &&
			slices.ContainsFunc(w.processes, func(p *process) bool { return p.crashed && p.name == d.Reserved.By }) {
			w.now = max(w.now, tickOf(d.Reserved.Until))
		}
		done := true
		for i, p := range w.processes {
			if p.line.sent != nil {
				done = false
				w.processes[i] = p.clone()
				w.answer(w.processes[i])
			}
		}
		if done {
			return
		}
	}
	w.fail("the lines do not come to rest")
}

// checkRead is I7: an answer without a swap reports that the resource is busy, and follows a read that was
// sent after the call arrived.
func (w *world) checkRead(p *process, t *Reply) {
	switch t.Outcome {
	case rules.Busy, rules.Full, rules.OtherRun:
	default:
		w.fail("I7: %q was answered without a swap", t.Outcome)
	}
	i := slices.IndexFunc(p.notes, func(n note) bool { return n.call == t.Call })
	if i >= 0 && !p.notes[i].loaded {
		w.fail("I7: %q was answered from the cache", t.Outcome)
	}
}

// checkWrite checks a write of the document: I1 for its entries, and I3.
func (w *world) checkWrite(prev, next *rules.Document) {
	fence, made := int64(0), map[int64]string{}
	if prev != nil {
		fence = prev.Fence
		if next.Version.N != prev.Version.N+1 {
			w.fail("version %d follows %d", next.Version.N, prev.Version.N)
		}
		if next.Fence < prev.Fence {
			w.fail("I3: the fence of the resource went back from %d to %d", prev.Fence, next.Fence)
		}
	}
	now := at(w.now)
	for i := range next.Entries {
		e := &next.Entries[i]
		for j := range next.Entries[:i] {
			o := &next.Entries[j]
			if e.LockID != o.LockID && e.Alive(now) && o.Alive(now) && !rules.Compatible(e.Mode, o.Mode) {
				w.fail("I1: %s %s (%s) and %s %s (%s) live at the same time", e.State, e.LockID, e.Mode, o.State, o.LockID, o.Mode)
			}
			if e.LockID != o.LockID && e.Alive(now) && o.Alive(now) && e.Member != "" && e.Member == o.Member {
				w.fail("I13: %s %s and %s %s have the member %s at the same time", e.State, e.LockID, o.State, o.LockID, e.Member)
			}
		}
		if !e.Holds() || prev != nil && prev.FirstFence(e.LockID) > 0 {
			continue
		}
		if e.Fence <= fence {
			w.fail("I3: the new hold of %s has fence %d after %d", e.LockID, e.Fence, fence)
		}
		if other, ok := made[e.Fence]; ok && other != e.LockID {
			w.fail("I3: %s and %s have the same fence", other, e.LockID)
		}
		made[e.Fence] = e.LockID
	}
}

// checkServed is I9 for calls that sleep: a swap that makes a claim for a call of its own process answers it.
func (w *world) checkServed(p *process, step *Step) {
	for _, c := range p.line.calls {
		if c.asleep && c.isGranted(step.Swap.Next) && !answered(step.Replies, c) {
			w.fail("I9: a swap of %s makes a claim for its own call, which sleeps on", p.name)
		}
	}
}

// checkExtend checks that a party extends only its own running parts.
func (w *world) checkExtend(p *process, e *extending) {
	of := &p.parties[e.party]
	for i := range e.parts {
		if w.has(func(o *rules.Entry) bool { return o.ID == e.parts[i].ID && o.LockID != of.lockID }) {
			w.fail("I5: %s extends an entry of another party", of.name())
		}
		if w.has(func(o *rules.Entry) bool { return o.ID == e.parts[i].ID && o.State == rules.StateDraining }) {
			e.drains = true
		}
	}
}
