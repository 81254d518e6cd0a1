package rules_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// currentRun checks that a replaced run is refused, that a refused one changes nothing, and that
// nothing is granted while another run holds or a part that was cut off is alive.
func (o *observer) currentRun(s *step) error {
	op, ok := s.op.(rules.Acquire)
	if !ok || op.Run == "" {
		return nil
	}
	if o.replaced[run{op.LockID, op.Run}] && s.Outcome != rules.OtherRun {
		return errors.New("a replaced run was not refused")
	}
	if s.Outcome != rules.Granted && s.Outcome != rules.Joined {
		return nil
	}
	for _, e := range s.after.Entries {
		blocks := e.Mode != rules.Pool || op.Mode != rules.Pool // members are compared by I13
		if e.LockID == op.LockID && ((!e.CutOff && e.Run != op.Run) || (e.CutOff && e.Alive(s.now()) && blocks)) {
			return fmt.Errorf("it was granted beside %+v", e)
		}
	}
	return nil
}

// alone is I1: every trusted part has an entry that blocks others, and any two live parties are
// compatible.
func (o *observer) alone(s *step) error {
	if op, ok := s.op.(rules.Acquire); ok && s.running() == nil && !op.HoldOnly {
		if s.Outcome == rules.Granted || s.Outcome == rules.Joined || s.Outcome == rules.Again {
			return errors.New("there is no part")
		}
	}
	for p, l := range o.trusts {
		for q, m := range o.trusts {
			if p.lockID != q.lockID && !rules.Compatible(l.mode, m.mode) {
				return fmt.Errorf("%v and %v trust at once", p, q)
			}
			if p.lockID != q.lockID && l.member != "" && l.member == m.member {
				return fmt.Errorf("%v and %v trust the member %s at once", p, q, l.member)
			}
		}
		keepsOut := func(e rules.Entry) bool {
			return partOf(&e) == p && e.State != rules.StateClaimed && rules.Covers(e.Mode, l.mode) && !e.ExpiresAt.Before(l.until)
		}
		if !slices.ContainsFunc(s.after.Entries, keepsOut) {
			return fmt.Errorf("%v trusts until %v, and nothing keeps others out", p, l.until)
		}
	}
	live := slices.DeleteFunc(slices.Clone(s.after.Entries), func(e rules.Entry) bool { return !e.Alive(o.latest) })
	for i, a := range live {
		for _, b := range live[:i] {
			if a.LockID != b.LockID && !a.CutOff && !b.CutOff && !rules.Compatible(a.Mode, b.Mode) && !o.mayBeWithin(&a, &b) && !o.mayBeWithin(&b, &a) {
				return fmt.Errorf("%s %q (%s) and %s %q (%s) are alive at once", a.State, a.LockID, a.Mode, b.State, b.LockID, b.Mode)
			}
		}
	}
	return nil
}

// mayBeWithin reports whether an entry may exist within another: a step within what its workflow keeps.
func (o *observer) mayBeWithin(in, around *rules.Entry) bool {
	return around.State == rules.StateKept && o.within[in.LockID] == around.LockID
}

// lasting is the part of I1 that no lease is shortened except by its own new TTL. The kept hold of a
// step with its own lock ID is exempt, because only its part trusts it.
func lasting(s *step) error {
	if op, ok := s.op.(rules.Renew); ok && op.TTL > 0 {
		return nil
	}
	for _, b := range s.before.Entries {
		if b.State == rules.StateKept && b.Within != "" && namesEntry(s, &b) {
			continue
		}
		shortened := func(a rules.Entry) bool {
			return a.ID == b.ID && a.State == b.State && a.Fence == b.Fence && a.ExpiresAt.Before(b.ExpiresAt)
		}
		// A call that is repeated after its part has expired makes entries with the same IDs again.
		lasts := func(a rules.Entry) bool {
			return a.ID == b.ID && a.State == b.State && !a.ExpiresAt.Before(b.ExpiresAt)
		}
		if b.Holds() && slices.ContainsFunc(s.after.Entries, shortened) && !slices.ContainsFunc(s.after.Entries, lasts) {
			return fmt.Errorf("the lease of %+v was shortened", b)
		}
	}
	return nil
}

// others counts the other live parties among entries, without the kept hold of the enclosing lock ID.
func others(entries []rules.Entry, now time.Time, lockID, within string) int64 {
	ids := map[part]bool{}
	for _, e := range entries {
		if e.Counts(rules.Party{LockID: lockID, Within: within}, now) {
			ids[part{lockID: e.LockID, own: e.CutOff}] = true
		}
	}
	return int64(len(ids))
}

// claims returns the grants that the step made to waiters.
func claims(s *step) []rules.Entry {
	return slices.DeleteFunc(slices.Clone(s.after.Entries), func(e rules.Entry) bool {
		made := e.State == rules.StateClaimed || (e.State == rules.StateKept && e.ClaimedAt != nil)
		return !made || slices.ContainsFunc(s.before.Entries, func(b rules.Entry) bool {
			same := e.State == rules.StateKept || (b.Run == e.Run && b.Order == e.Order) // a take-over changes those of a hold
			return same && b.LockID == e.LockID && b.Part == e.Part && b.State == e.State && b.FirstFence == e.FirstFence && b.ClaimedAt != nil && b.ClaimedAt.Equal(*e.ClaimedAt)
		})
	})
}

// limits is I2, for requests and for claims. A claim that is confirmed keeps its room.
func (o *observer) limits(s *step) error {
	op, ok := s.op.(rules.Acquire)
	if ok && s.Outcome == rules.Granted && s.before.Claim(op.Caller) == nil && op.Party().Limit > 0 {
		before := s.before.Clone() // without claims that it undid
		before.Entries = slices.DeleteFunc(before.Entries, func(b rules.Entry) bool {
			return !slices.ContainsFunc(s.after.Entries, func(e rules.Entry) bool {
				return e.LockID == b.LockID && (b.State != rules.StateClaimed || (e.State == b.State && e.Part == b.Part))
			})
		})
		if n := others(before.Entries, s.now(), op.LockID, op.Within); n >= s.limitOf(op.Limit) {
			return fmt.Errorf("it was granted one of %d places beside %d others", s.limitOf(op.Limit), n)
		}
	}
	granted := claims(s)
	for i, c := range granted {
		known := func(lockID string) bool {
			return slices.ContainsFunc(s.before.Entries, func(b rules.Entry) bool { return b.LockID == lockID })
		}
		earlier := slices.DeleteFunc(slices.Clone(s.after.Entries), func(e rules.Entry) bool {
			return slices.ContainsFunc(granted[i+1:], func(l rules.Entry) bool {
				return reflect.DeepEqual(e, l) || (e.LockID == l.LockID && !known(e.LockID)) // the latter was merged since
			})
		})
		if n := others(earlier, s.now(), c.LockID, o.within[c.LockID]); c.Limit > 0 && n >= s.limitOf(c.Limit) {
			return fmt.Errorf("%q has a claim to one of %d places beside %d others: %+v", c.LockID, s.limitOf(c.Limit), n, s.after.Entries)
		}
	}
	return nil
}

// claimStays is the part of I4 that no claim is pushed back: a request that its claim covers is granted.
func (o *observer) claimStays(s *step) error {
	op, ok := s.op.(rules.Acquire)
	if !ok || op.Refresh || (s.Outcome != rules.Busy && s.Outcome != rules.Queued && s.Outcome != rules.Full) {
		return nil
	}
	c := s.before.Claim(op.Caller)
	excludes := slices.ContainsFunc(s.before.Entries, func(e rules.Entry) bool { return e.Alive(s.now()) && (e.CutOff || !e.Alive(o.latest)) }) // the clock ran back
	if lost := s.lostMember(); c != nil && lost != "" && c.Member != lost {
		return nil
	}
	if c == nil || c.Passed || excludes || !c.Alive(s.now()) || c.Run != op.Run || !rules.Covers(c.Mode, op.Mode) {
		return nil
	}
	if limit := op.Party().Limit; limit == 0 || (c.Limit > 0 && limit >= c.Limit) {
		return fmt.Errorf("its claim %+v was pushed back", c)
	}
	return nil
}

// idle is I15.
func idle(s *step) error {
	for _, e := range s.after.Entries {
		if e.Holds() && e.ExpiresAt.After(s.after.IdleAt) {
			return fmt.Errorf("the document is idle at %v, before the end of %+v", s.after.IdleAt, e)
		}
	}
	return nil
}

// missed checks what a saga has found out only after its commit.
func missed(s *step) error {
	want := slices.DeleteFunc(slices.Clone(s.before.Missed), func(m rules.Missed) bool { return s.now().Sub(m.ReleasedAt) >= rules.Retention })
	if op, ok := s.op.(rules.Release); ok && op.Committed && op.FirstFence == 0 && op.Run != "" {
		k := s.before.Kept(op.LockID)
		for _, e := range s.before.Evidence {
			if e.LockID == op.LockID && e.Run == op.Run && e.To == "" && e.Order <= op.Order && (k == nil || k.Regained < e.Number) {
				want = append(want, rules.Missed{
					LockID: e.LockID, Run: e.Run, Order: e.Order, Fence: e.Fence, At: e.At, By: e.By, Reason: e.Reason, UpTo: op.Order, ReleasedAt: s.now(),
				})
			}
		}
	}
	if want = want[max(0, len(want)-rules.MaxMissed):]; !slices.Equal(want, s.after.Missed) {
		return fmt.Errorf("losses %+v were missed, and %+v are recorded", want, s.after.Missed)
	}
	if slices.Contains(s.after.Attn, rules.AttnMissed) != (len(want) > 0) {
		return fmt.Errorf("%d losses were missed, and the mark is %v", len(want), s.after.Attn)
	}
	return nil
}

// leftNoTrace is I14. It compares the document after a request that was taken back with the one after a
// Settle alone.
func leftNoTrace(settled, back *rules.Document) error {
	a, b := withoutTraces(settled), withoutTraces(back)
	if !reflect.DeepEqual(a, b) {
		return fmt.Errorf("I14: settling alone leaves\n%+v, a request that was taken back\n%+v", a, b)
	}
	return nil
}

// withoutTraces returns a document without what a request that gives up may change: versions, times, fences
// and the marks of claims that were passed. What lock IDs keep is merged.
func withoutTraces(d *rules.Document) *rules.Document {
	c := &rules.Document{ID: d.ID, Releases: d.Releases, Bars: d.Bars, Missed: d.Missed, Waiters: slices.Clone(d.Waiters), Evidence: slices.Clone(d.Evidence), LastEvidence: d.LastEvidence}
	merged := map[string]bool{}
	for _, e := range d.Entries {
		if e.Forfeited(d.At) || (e.State == rules.StateDraining && !e.Alive(d.At)) {
			continue
		}
		if e.State == rules.StateKept && e.BelongsTo(e.LockID) {
			if merged[e.LockID] {
				continue
			}
			merged[e.LockID] = true
			e = *d.Kept(e.LockID)
			e.ID, e.Owner, e.Host, e.Comment, e.Trace, e.Saga = "", "", "", "", "", "" // which are those of one of its requests
		}
		e.Fence, e.FirstFence, e.LeastFence = 0, 0, 0
		if e.State == rules.StateClaimed && !e.Alive(d.At) {
			e.Passed, e.Member = false, ""
		}
		if granted := e.State == rules.StateKept && e.CreatedAt != nil && e.CreatedAt.Equal(d.At); granted || (e.State == rules.StateClaimed && e.ClaimedAt != nil && e.ClaimedAt.Equal(d.At)) {
			e.Member = "" // the turn of the members is not taken back
		}
		e.ExpiresAt, e.RenewedAt, e.Since, e.ClaimedAt, e.CreatedAt, e.QueuedUntil = time.Time{}, nil, nil, nil, nil, nil
		e.Predecessor = nil
		c.Entries = append(c.Entries, e)
	}
	slices.SortFunc(c.Entries, func(x, y rules.Entry) int { return strings.Compare(fmt.Sprintf("%+v", x), fmt.Sprintf("%+v", y)) })
	for i := range c.Waiters {
		w := &c.Waiters[i]
		w.Since, w.ExpiresAt, w.OverdueAt, w.Started = time.Time{}, time.Time{}, time.Time{}, nil
	}
	for i := range c.Evidence {
		c.Evidence[i].Fence, c.Evidence[i].At = 0, time.Time{}
	}
	return c
}

// fences is I3.
func (o *observer) fences(s *step) error {
	if s.after.Fence < o.fence {
		return fmt.Errorf("the fence fell from %d to %d", o.fence, s.after.Fence)
	}
	op, ok := s.op.(rules.Acquire)
	e := s.running()
	if !ok || e == nil {
		return nil
	}
	supersedes := slices.ContainsFunc(s.before.Entries, func(b rules.Entry) bool {
		return b.BelongsTo(op.LockID) && b.Part == op.Part && b.State == rules.StateRunning && b.Order < op.Order
	})
	if renewed := s.Outcome == rules.Granted || (s.Outcome == rules.Joined && (op.NewFence || supersedes)); renewed && e.Fence <= o.fence {
		return fmt.Errorf("fence %d after %d", e.Fence, o.fence)
	}
	if e.Fence > s.after.Fence || e.FirstFence > e.LeastFence || e.LeastFence > e.Fence {
		return fmt.Errorf("the fences %d, %d and %d of %d", e.FirstFence, e.LeastFence, e.Fence, s.after.Fence)
	}
	return nil
}

// named is I5: an operation changes only what it names, apart from expired entries and grants to the
// head of the queue.
func named(s *step) error {
	for _, e := range s.before.Entries {
		if e.Alive(s.now()) && !namesEntry(s, &e) && !remains(s, &e) {
			return fmt.Errorf("the entry %+v was touched: %s, then %s", e, kept(s.before, e.LockID), kept(s.after, e.LockID))
		}
	}
	for _, w := range standing(s) {
		granted := slices.ContainsFunc(claims(s), func(a rules.Entry) bool {
			return a.LockID == w.LockID && (a.Part == w.Part || a.State == rules.StateKept) && a.Order == w.Order
		})
		granted = granted || slices.ContainsFunc(s.Holds, func(h rules.Entry) bool { return h.LockID == w.LockID && h.Part == w.Part }) // it may have merged
		stays := granted || slices.ContainsFunc(s.after.Waiters, func(a rules.Waiter) bool { return reflect.DeepEqual(a, w) })
		if !stays && !namesWaiter(s.op, &w) {
			return fmt.Errorf("the waiter %+v was touched", w)
		}
	}
	for _, e := range s.after.Entries {
		known := slices.ContainsFunc(s.before.Entries, func(b rules.Entry) bool { return unmarked(b, e) || namesEntry(s, &b) && b.LockID == e.LockID })
		waited := slices.ContainsFunc(s.before.Waiters, func(w rules.Waiter) bool {
			return w.LockID == e.LockID && (w.Part == e.Part || e.State == rules.StateKept) && w.Order == e.Order
		})
		if e.State == rules.StateKept && s.before.Kept(e.LockID) != nil {
			known = true // it has merged
		}
		if !known && e.LockID != s.lockID() && !waited {
			return fmt.Errorf("the entry %+v was made", e)
		}
	}
	return nil
}

// remains reports whether an entry is as it was. A claim that has lapsed may be marked as passed, and what a
// lock ID keeps may have merged.
func remains(s *step, e *rules.Entry) bool {
	same := func(a rules.Entry) bool { return unmarked(a, *e) }
	alive := *s.before
	alive.Entries = slices.DeleteFunc(slices.Clone(alive.Entries), func(e rules.Entry) bool { return !e.Alive(s.now()) })
	merged := kept(s.after, e.LockID) == kept(s.before, e.LockID) || kept(s.after, e.LockID) == kept(&alive, e.LockID)
	granted := slices.ContainsFunc(s.Holds, func(h rules.Entry) bool { return h.LockID == e.LockID }) // which extends what is kept
	if k := s.after.Kept(e.LockID); k != nil && e.LockID == s.lockID() {                              // it has merged, and others have ended
		merged = merged || (rules.Covers(k.Mode, e.Mode) && !k.ExpiresAt.Before(e.ExpiresAt))
	}
	return slices.ContainsFunc(s.after.Entries, same) || (e.State == rules.StateKept && (merged || granted))
}

// unmarked reports whether two entries are equal, except that one may be marked as passed.
func unmarked(a, b rules.Entry) bool {
	if a.Passed || b.Passed {
		a.Passed, b.Passed, a.Member, b.Member = false, false, "", ""
	}
	return reflect.DeepEqual(a, b)
}

// kept describes what a lock ID keeps.
func kept(d *rules.Document, lockID string) string {
	k := d.Kept(lockID)
	if k == nil {
		return ""
	}
	return fmt.Sprint(k.Run, k.Mode, k.TTL, k.Order, k.FirstOrder, k.Regained, k.FirstFence, k.Fence, k.LeastFence, k.ExpiresAt, k.CreatedAt)
}

// namesEntry reports whether an operation may change or end an entry.
func namesEntry(s *step, e *rules.Entry) bool {
	mine := e.BelongsTo(s.lockID())
	switch op := s.op.(type) {
	case rules.Acquire:
		switch {
		case s.Outcome == rules.OtherRun:
			return false
		case mine && op.Run != "" && e.Run != op.Run: // taken over
			return true
		case s.Outcome == rules.Granted || s.Outcome == rules.Joined:
			return mine
		case s.Outcome == rules.Superseded:
			return false
		}
		return mine && ((e.State == rules.StateClaimed && e.Part == op.Part) || (op.Keep && e.State == rules.StateKept))
	case rules.Renew:
		return mine && s.Outcome == rules.Granted && (e.State == rules.StateKept || (e.Part == op.Part && e.Order == op.Order) || (op.Downgrade && e.Holds()))
	case rules.Leave:
		part := e.LockID == op.LockID && (mine || op.Run != "") && e.Part == op.Part && (e.Order == op.Order || (e.State == rules.StateClaimed && e.Order < op.Order))
		return part || (mine && e.State == rules.StateKept && e.Within != "")
	case rules.TakeBack:
		return e.LockID == op.LockID && (callID(e) == op.Call || (e.State == rules.StateClaimed && e.Part == op.Part && e.Order == op.Order))
	case rules.Release:
		return ends(s, &op, e)
	case rules.Verify:
		return mine && s.Outcome != rules.OtherRun && (e.State == rules.StateKept || e.Run != op.Run)
	case rules.Raise:
		barred := (e.LockID == op.LockID || e.Within == op.LockID) && inside(e.Saga, op.Saga) && (e.Order <= op.Order || e.Run != op.Run)
		return s.Outcome != rules.OtherRun && (barred || (mine && (e.State == rules.StateKept || e.Run != op.Run)))
	}
	return false
}

// namesWaiter reports whether an operation may change or end a waiter.
func namesWaiter(op rules.Op, w *rules.Waiter) bool {
	switch op := op.(type) {
	case rules.Acquire:
		return w.LockID == op.LockID && (w.Part == op.Part || (op.Run != "" && w.Run != op.Run))
	case rules.Leave:
		return w.LockID == op.LockID && w.Part == op.Part && w.Order <= op.Order
	case rules.TakeBack:
		return w.LockID == op.LockID && w.Part == op.Part && w.Order == op.Order
	case rules.Release:
		return op.FirstFence == 0 && w.LockID == op.LockID && w.Order <= op.Order && (op.Run == "" || w.Run == op.Run)
	case rules.Withdraw:
		return w.LockID == op.LockID && w.Part == op.Part && w.Order == op.Order
	case rules.Promote:
		return w.LockID == op.LockID
	case rules.Verify:
		return w.LockID == op.LockID && w.Run != op.Run
	case rules.Raise:
		return (w.LockID == op.LockID || w.Within == op.LockID) && (w.Run != op.Run || (inside(w.Saga, op.Saga) && w.Order <= op.Order))
	}
	return false
}

// inside reports whether a saga is another one, or inside it.
func inside(saga, outer string) bool { return saga == outer || strings.HasPrefix(saga, outer+"/") }

// victims is I12: each request of a withdrawn part is answered with the deadlock until the part leaves,
// unless it is superseded.
func victims(s *step) error {
	op, ok := s.op.(rules.Acquire)
	if !ok || s.Outcome == rules.Superseded || s.Outcome == rules.OtherRun {
		return nil
	}
	queue := standing(s)
	i := slices.IndexFunc(queue, func(w rules.Waiter) bool { return w.LockID == op.LockID && w.Part == op.Part && w.Verdict != "" })
	switch {
	case i < 0 && s.Outcome == rules.Deadlock:
		return errors.New("there was no deadlock")
	case i >= 0 && (op.Run == "" || queue[i].Run == op.Run) && (s.Outcome != rules.Deadlock || s.Note != queue[i].Verdict):
		return errors.New("it was withdrawn because of a deadlock")
	}
	return nil
}

// refused is the second half of I6: a request is superseded if and only if it was released or barred,
// or if a later request of its part came first.
func (o *observer) refused(s *step) error {
	op, ok := s.op.(rules.Acquire)
	if !ok || s.Outcome == rules.OtherRun {
		return nil
	}
	before := s.before.Clone()
	before.Waiters = slices.DeleteFunc(standing(s), func(w rules.Waiter) bool { return op.Run != "" && w.Run != op.Run })
	before.Entries = slices.DeleteFunc(before.Entries, func(e rules.Entry) bool { return op.Run != "" && e.Run != op.Run })
	_, overtaken := before.LaterOrder(op.Caller)
	p := before.Part(op.Caller)
	otherCall := p != nil && p.Alive(s.now()) && p.ID != op.Call && p.ID != op.Upgrades
	until, known := o.released[run{op.LockID, op.Run}]
	released := known && until >= op.Order
	barred := slices.ContainsFunc(o.barred, func(b rules.Bar) bool {
		return (b.LockID == op.LockID || b.LockID == op.Within) && b.Run == op.Run && inside(op.Saga, b.Saga) && op.Order <= b.Order &&
			!o.replaced[run{b.LockID, b.Run}]
	})
	if refused := s.Outcome == rules.Superseded; refused != (overtaken || otherCall || released || barred) {
		return fmt.Errorf("a later request: %v, another call: %v, a release: %v, a compensation: %v", overtaken, otherCall, released, barred)
	}
	return nil
}

// neverHeldAgain is I8: a part that was reported lost is held again only under a new fence, and an
// evicted run gets the outcome Lost before it holds again.
func (o *observer) neverHeldAgain(s *step) error {
	e := s.running()
	if e == nil {
		return nil
	}
	if at, lost := o.lost[partOf(e)]; lost && e.Fence <= at {
		return fmt.Errorf("it was reported lost, and is held with fence %d", e.Fence)
	}
	op, ok := s.op.(rules.Acquire)
	switch {
	case !ok || op.Reacquire:
	case op.HeldSince > 0 && op.Upgrades == "" && !s.before.Keeps(op.LockID, op.HeldSince) && !o.takesOver(s, &op):
		return errors.New("it did not hold any longer")
	case op.Keep && o.lostBy(s, op.LockID, op.Run):
		return errors.New("it was evicted")
	case op.Keep && !op.LostSince.IsZero() && o.lostSince(s, op.LockID, op.LostSince):
		return errors.New("a run before was evicted")
	}
	return nil
}

// lostSince reports whether any run of a lock ID has lost what it kept from a time on, and no hold that exists
// has outlived that, as far as the document remembers.
func (o *observer) lostSince(s *step, lockID string, since time.Time) bool {
	k, outlived := s.before.Kept(lockID), o.outlived(s, lockID)
	return slices.ContainsFunc(o.losses, func(e rules.Evidence) bool {
		return e.LockID == lockID && !e.At.Before(since) && e.Number > outlived && (k == nil || e.Fence >= k.FirstFence) && slices.Contains(s.before.Evidence, e)
	})
}

// lostForAReason is the other half of I8: a request without HeldSince is answered with a loss only if there is
// evidence of one.
func lostForAReason(s *step) error {
	op, ok := s.op.(rules.Acquire)
	if !ok || s.Outcome != rules.Lost || op.HeldSince > 0 || op.Upgrades != "" {
		return nil
	}
	counts := func(e rules.Evidence) bool {
		return e.LockID == op.LockID && e.To == "" && (op.Run == "" || e.Run == op.Run || (!op.LostSince.IsZero() && !e.At.Before(op.LostSince)))
	}
	if op.Reacquire || !slices.ContainsFunc(s.before.Evidence, counts) {
		return errors.New("nothing was lost")
	}
	return nil
}

// takesOver reports whether a request continues the hold of another run.
func (o *observer) takesOver(s *step, op *rules.Acquire) bool {
	return slices.ContainsFunc(s.before.Entries, func(e rules.Entry) bool { return e.BelongsTo(op.LockID) && e.Run != op.Run })
}

// readOnly checks that an operation with a read-only answer has only settled the document.
func readOnly(s *step) error {
	if settled, _ := (rules.Settle{Resource: "r"}).Apply(s.before, s.now(), s.settings); s.ReadOnly && !reflect.DeepEqual(settled, s.after) {
		return fmt.Errorf("it is read-only, and changed %+v", s.after)
	}
	return nil
}

// repeated is the first half of I6. It compares twice, the document after an operation and its
// repetition, with once, the document after the operation and a Settle.
func repeated(once, twice *rules.Document) error {
	a, b := once.Clone(), twice.Clone()
	key := func(e rules.Entry) string { return fmt.Sprint(e.LockID, e.Part, e.State, e.Order, e.ID, e.CutOff) }
	for _, d := range []*rules.Document{a, b} {
		d.Entries = slices.DeleteFunc(d.Entries, func(e rules.Entry) bool { return !e.Holds() && !e.Alive(d.At) })
		slices.SortFunc(d.Entries, func(x, y rules.Entry) int { return strings.Compare(key(x), key(y)) })
		d.Attn = nil
		for i := range d.Entries {
			if e := &d.Entries[i]; e.State == rules.StateClaimed && !e.Alive(d.At) {
				e.Passed, e.Member = false, ""
			}
		}
	}
	if !reflect.DeepEqual(a, b) {
		return fmt.Errorf("I6: run once it left\n%+v, run twice\n%+v", a, b)
	}
	return nil
}
