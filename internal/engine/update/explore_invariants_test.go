package update

import (
	"reflect"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// check checks the invariants of every world.
func (w *world) check() {
	w.checkTrust()
	w.checkLeftovers()
	if w.err == nil && w.quiet() {
		w.checkGranted()
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
	next.processes = append(next.processes, &process{name: "janitor", line: Line{Name: resource, Process: "janitor", Policy: policy}})
	next.add(next.processes[len(next.processes)-1], -1, settle, "", &Call{Op: rules.Settle{Policy: policy, Resource: resource}})
	next.finish()
	for i, p := range next.processes {
		p = p.clone()
		next.processes[i] = p
		for _, n := range p.notes {
			if n.verb == acquire || n.verb == upgrade {
				p.line.Wake(n.call)
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

// finish carries out and answers all commands.
func (w *world) finish() {
	for range 50 {
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
		}
		if !e.Holds() || prev != nil && prev.HoldFence(e.LockID) > 0 {
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

// checkOps checks each operation of a swap that is about to be sent.
func (w *world) checkOps(p *process, doc *rules.Document, now time.Time, owes bool, step *Step) {
	if owes {
		s := rules.Settle{Policy: policy, Resource: resource}
		after, _ := s.Apply(doc, now)
		w.checkOp(s, doc, after, nil, now)
		doc = after
	}
	for i := range step.Replies {
		t := &step.Replies[i]
		w.checkOp(t.Call.Op, doc, t.After, &t.Result, now)
		doc = t.After
	}
	for _, c := range p.line.calls {
		if c.asleep && c.isGranted(doc) && !answered(step.Replies, c) {
			w.fail("I9: a swap of %s makes a claim for its own call, which sleeps on", p.name)
		}
	}
}

// checkOp checks I2, I4, I5, I6 and I9 for one operation.
func (w *world) checkOp(op rules.Op, before, after *rules.Document, r *rules.Result, now time.Time) {
	if before == nil {
		before = &rules.Document{}
	}
	if acq, ok := op.(rules.Acquire); ok {
		w.checkAcquire(&acq, before, after, r, now)
	}
	w.checkClaims(op, before, after, now)
	w.checkOthers(op, before, after, now)
	if r != nil {
		w.checkRepeated(op, after, r, now)
	}
	awake := slices.ContainsFunc(after.Waiters, func(v rules.Waiter) bool { return v.Waits(now) && !v.Overdue(now) })
	if awake && !slices.ContainsFunc(after.Entries, func(e rules.Entry) bool { return e.Alive(now) }) {
		w.fail("I9: after %T nothing lives, and somebody waits", op)
	}
}

// othersAlive counts the other lock IDs with live entries.
func othersAlive(d *rules.Document, lockID string, now time.Time) (all, exclusive int) {
	ids := map[string]bool{}
	for i := range d.Entries {
		if e := &d.Entries[i]; e.LockID != lockID && e.Alive(now) {
			ids[e.LockID] = ids[e.LockID] || e.Mode == rules.Exclusive
		}
	}
	for _, x := range ids {
		all++
		if x {
			exclusive++
		}
	}
	return all, exclusive
}

func (w *world) checkAcquire(op *rules.Acquire, before, after *rules.Document, r *rules.Result, now time.Time) {
	others, exclusive := othersAlive(before, op.LockID, now)
	ahead := waitersAhead(before, op, now)
	holds, claim := before.HoldFence(op.LockID) > 0, before.Claim(op.LockID, op.Part)
	p := before.Part(op.LockID, op.Part, op.Order)
	_, later := before.LaterOrder(op.LockID, op.Part, op.Order)
	other := p != nil && p.Alive(now) && p.ID != op.Call && p.ID != op.Upgrades
	if (later || other) && r.Outcome != rules.Superseded {
		w.fail("I8: %s, which is superseded, was told %q", op.Call, r.Outcome)
	}
	if v := before.Tombstone(op.LockID, op.Part); v != nil && v.ExpiresAt.After(now) && r.Outcome != rules.Deadlock && r.Outcome != rules.Superseded {
		w.fail("I8: %s, the victim of a deadlock, was told %q", op.Call, r.Outcome)
	}
	if (r.Outcome == rules.Granted || r.Outcome == rules.Joined) && slices.ContainsFunc(after.Waiters, func(v rules.Waiter) bool {
		return v.LockID == op.LockID && v.Part == op.Part
	}) {
		w.fail("I5: %s was told %q, and is still queued", op.Call, r.Outcome)
	}
	switch r.Outcome {
	case rules.Granted:
		if int64(others) >= op.Room() || exclusive > 0 {
			w.fail("I2: %s was granted one of %d with %d others", op.LockID, op.Room(), others)
		}
		if ahead > 0 && !holds && (claim == nil || claim.Forfeited(now)) {
			w.fail("I4: %s was granted the resource, and %d are ahead of it", op.LockID, ahead)
		}
		if p := after.Part(op.LockID, op.Part, op.Order); p == nil || p.ID != op.Call || !rules.Covers(p.Mode, op.Mode) || p.Fence <= before.Fence {
			w.fail("I3: %s was granted %+v after fence %d", op.LockID, p, before.Fence)
		}
	case rules.Joined, rules.Again:
		if p := after.Part(op.LockID, op.Part, op.Order); !holds || p == nil || p.ID != op.Call {
			w.fail("%s was told %q, and has %+v", op.LockID, r.Outcome, p)
		}
	case rules.Superseded:
		over := slices.ContainsFunc(before.Releases, func(o rules.ReleaseRecord) bool { return o.LockID == op.LockID && o.Order >= op.Order })
		if !over && !later && (p == nil || p.ID == op.Call) {
			w.fail("%s was told that it is superseded, and nothing has superseded it", op.LockID)
		}
	case rules.Busy, rules.Queued, rules.Full:
		w.checkWaiting(op, before, after, r, now)
	}
}

// checkWaiting is I4 and I9 for a request that was not granted.
func (w *world) checkWaiting(op *rules.Acquire, before, after *rules.Document, r *rules.Result, now time.Time) {
	others, exclusive := othersAlive(before, op.LockID, now)
	ahead, holds, claim := waitersAhead(before, op, now), before.HoldFence(op.LockID) > 0, before.Claim(op.LockID, op.Part)
	was := slices.IndexFunc(before.Waiters, func(v rules.Waiter) bool { return v.LockID == op.LockID && v.Part == op.Part && v.ExpiresAt.After(now) })
	if was >= 0 && r.Position > int64(was)+1 {
		w.fail("I4: %s went back in the queue from %d to %d", op.LockID, was+1, r.Position)
	}
	if claim != nil && !claim.Forfeited(now) && r.Outcome == rules.Queued {
		if i := slices.IndexFunc(before.Waiters, func(v rules.Waiter) bool { return !v.Ahead }); i >= 0 && r.Position > int64(i)+1 {
			w.fail("I4: %s, whose claim has lapsed, is queued at %d", op.LockID, r.Position)
		}
	}
	queued := slices.ContainsFunc(before.Waiters, func(v rules.Waiter) bool { return v.LockID == op.LockID && v.Part == op.Part })
	if exclusive == 0 && int64(others) < op.Room() && ahead == 0 && !queued && len(before.Waiters) == 0 {
		w.fail("I9: %s was told %q, and nothing is in its way", op.LockID, r.Outcome)
	}
	if r.Outcome == rules.Full && int64(len(before.Waiters)) < op.MaxWaiters {
		w.fail("I9: %s was told that the queue is full, with %d waiters", op.LockID, len(before.Waiters))
	}
	if r.Outcome == rules.Queued && after.Claim(op.LockID, op.Part) == nil && !slices.ContainsFunc(after.Waiters, func(v rules.Waiter) bool {
		return v.LockID == op.LockID && v.Part == op.Part && v.Order == op.Order && v.ExpiresAt.After(now.Add((waiterTTL-1)*time.Second))
	}) {
		w.fail("I9: %s was told that it is queued, and it is not", op.LockID)
	}
	if r.Outcome == rules.Queued && !queued && !holds && claim == nil && int64(len(before.Waiters)) >= op.MaxWaiters &&
		len(after.Waiters) > int(op.MaxWaiters) {
		w.fail("I2: the queue is longer than its bound")
	}
}

// waitersAhead counts the waiters ahead of a request that are neither expired nor overdue.
func waitersAhead(d *rules.Document, op *rules.Acquire, now time.Time) (ahead int) {
	for i := range d.Waiters {
		v := &d.Waiters[i]
		if v.LockID == op.LockID && v.Part == op.Part {
			break
		}
		if v.Waits(now) && !v.Overdue(now) {
			ahead++
		}
	}
	return ahead
}

// checkClaims is I4 and I2 for the claims that an operation has granted.
func (w *world) checkClaims(op rules.Op, before, after *rules.Document, now time.Time) {
	queue := slices.Clone(before.Waiters)
	for _, c := range after.Entries {
		if c.State != rules.StateClaimed {
			continue
		}
		made := !slices.ContainsFunc(before.Entries, func(e rules.Entry) bool {
			return e.State == rules.StateClaimed && e.LockID == c.LockID && e.Part == c.Part && e.Order == c.Order
		})
		if !made {
			continue
		}
		if n, exclusive := othersAlive(after, c.LockID, now); (c.Limit > 0 && int64(n) >= c.Limit) || exclusive > 0 {
			w.fail("I2: %s has a claim to one of %d with %d others", c.LockID, c.Limit, n)
		}
		if c.ExpiresAt.After(now.Add(2*claimTTL*time.Second)) || !c.ExpiresAt.After(now) {
			w.fail("I9: the claim of %s lasts until %d", c.LockID, tickOf(c.ExpiresAt))
		}
		for i := range queue {
			v := &queue[i]
			if v.LockID == c.LockID && v.Part == c.Part {
				break
			}
			still := slices.ContainsFunc(after.Waiters, func(x rules.Waiter) bool { return x.LockID == v.LockID && x.Part == v.Part && x.Order == v.Order })
			if v.Waits(now) && !v.Overdue(now) && still {
				w.fail("I4: after %T %s has a claim, and %s, which is ahead, has not", op, c.LockID, v.LockID)
			}
		}
	}
}

// named returns the lock ID whose entries an operation may change, and the order up to which it may end them.
func named(op rules.Op) (lockID string, order int64) {
	switch op := op.(type) {
	case rules.Acquire:
		return op.LockID, op.Order
	case rules.Renew:
		return op.LockID, 0
	case rules.Leave:
		return op.LockID, op.Order
	case rules.UndoUpgrade:
		return op.LockID, op.Order
	case rules.Release:
		return op.LockID, op.Order
	case rules.Withdraw:
		return op.LockID, 0
	}
	return "", 0
}

// checkOthers is I5.
func (w *world) checkOthers(op rules.Op, before, after *rules.Document, now time.Time) {
	lockID, order := named(op)
	for i := range before.Entries {
		e := &before.Entries[i]
		k := slices.IndexFunc(after.Entries, func(o rules.Entry) bool {
			return o.LockID == e.LockID && o.Part == e.Part && o.Order == e.Order && o.State == e.State
		})
		if k < 0 {
			switch {
			case e.LockID == lockID && e.Order <= order:
			case e.LockID != lockID && !e.Alive(now) && e.State != rules.StateClaimed:
			case e.Forfeited(now), e.State == rules.StateDraining && !e.Alive(now):
			default:
				w.fail("I5: %T of %q ended %s %s %d", op, lockID, e.State, e.LockID, e.Order)
			}
			continue
		}
		o := &after.Entries[k]
		if e.LockID != lockID && !reflect.DeepEqual(e, o) {
			w.fail("I5: %T of %q changed %s %s", op, lockID, e.State, e.LockID)
		}
		if o.ExpiresAt.Before(e.ExpiresAt) {
			w.fail("I5: %T of %q shortened %s %s", op, lockID, e.State, e.LockID)
		}
	}
	for i := range before.Waiters {
		v := &before.Waiters[i]
		if !v.ExpiresAt.After(now) || (v.LockID == lockID && (v.Order <= order || order == 0)) {
			continue
		}
		same := func(lockID, part string, order int64) bool {
			return lockID == v.LockID && part == v.Part && order == v.Order
		}
		if !slices.ContainsFunc(after.Waiters, func(x rules.Waiter) bool { return same(x.LockID, x.Part, x.Order) }) &&
			!slices.ContainsFunc(after.Entries, func(e rules.Entry) bool { return same(e.LockID, e.Part, e.Order) }) {
			w.fail("I5: %T of %q ended the waiter %s", op, lockID, v.LockID)
		}
	}
}

// checkRepeated is I6: an operation that is repeated ends as if it had run once.
func (w *world) checkRepeated(op rules.Op, after *rules.Document, r *rules.Result, now time.Time) {
	again, second := op.Apply(after, now)
	switch op := op.(type) {
	case rules.Acquire:
		want := r.Outcome
		if want == rules.Granted || want == rules.Joined {
			want = rules.Again
		}
		if second.Outcome != want && (want != rules.Queued || after.Claim(op.LockID, part) == nil) {
			w.fail("I6: %T was answered with %q and then %q", op, r.Outcome, second.Outcome)
		}
	case rules.Withdraw:
		return
	default:
		if second.Outcome != r.Outcome {
			w.fail("I6: %T was answered with %q and then %q", op, r.Outcome, second.Outcome)
		}
	}
	if len(again.Entries) != len(after.Entries) && len(again.Waiters) == len(after.Waiters) {
		w.fail("I6: %T, repeated, leaves %d entries instead of %d", op, len(again.Entries), len(after.Entries))
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
