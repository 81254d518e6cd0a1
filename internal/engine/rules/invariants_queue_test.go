package rules_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// The invariants of the queue: who is granted what next, and which member of a pool.

// members is I13.
func (o *observer) members(s *step) error {
	for i, a := range s.after.Entries {
		for _, b := range s.after.Entries[:i] {
			same := a.LockID == b.LockID
			both := a.Alive(o.latest) && b.Alive(o.latest) && a.Member != "" && b.Member != ""
			switch {
			case !both, same && (a.CutOff || b.CutOff || a.Member == b.Member):
			case same && a.State != rules.StateClaimed && b.State != rules.StateClaimed:
				return fmt.Errorf("%q has the members %s and %s", a.LockID, a.Member, b.Member)
			case !same && a.Member == b.Member && !o.mayBeWithin(&a, &b) && !o.mayBeWithin(&b, &a):
				return fmt.Errorf("%q and %q have the member %s", a.LockID, b.LockID, a.Member)
			}
		}
	}
	op, acquires := s.op.(rules.Acquire)
	before := s.before.Clone()
	before.Entries = slices.DeleteFunc(before.Entries, func(e rules.Entry) bool { // without those that it ended
		ended := !acquires && namesEntry(s, &e) && !slices.ContainsFunc(s.after.Entries, func(a rules.Entry) bool {
			return a.LockID == e.LockID && a.Member == e.Member && (a.State == rules.StateKept || e.State != rules.StateKept)
		})
		requeued := s.Outcome == rules.Queued && e.State == rules.StateClaimed && e.SamePart(&op.Caller)
		return ended || requeued || (e.State != rules.StateKept && o.replaced[run{e.LockID, e.Run}])
	})
	granted := claims(s)
	if e := s.running(); e != nil && s.Outcome != rules.Again {
		granted = slices.Insert(granted, 0, *e)
	}
	for _, e := range s.after.Entries {
		if op.HoldOnly && e.ID == op.Call && e.State == rules.StateKept && (s.Outcome == rules.Granted || s.Outcome == rules.Joined) {
			granted = slices.Insert(granted, 0, e)
		}
	}
	for i, e := range granted {
		if e.Mode != rules.Pool || e.Passed {
			continue
		}
		lost := s.lostMember()
		if e.LockID != op.LockID || (e.Part != op.Part && !op.HoldOnly) || (s.Outcome != rules.Queued && s.running() == nil && !op.HoldOnly) {
			lost = ""
		}
		for _, w := range s.before.Waiters {
			if w.LockID == e.LockID && w.Part == e.Part && e.State == rules.StateClaimed && lost == "" {
				lost = w.Member
			}
		}
		counts := func(all []rules.Entry) *rules.Document { // a lost member is waited for, whatever its party has claims to
			return &rules.Document{Entries: slices.DeleteFunc(slices.Clone(all), func(e rules.Entry) bool { return lost != "" && e.State == rules.StateClaimed })}
		}
		within := o.within[e.LockID]
		must := cmp.Or(memberOf(counts(before.Entries), e.LockID, within, s.now()), memberOf(counts(granted[:i]), e.LockID, within, s.now()), lost)
		// A grant of this write may have evicted what gave the member. The grant that did so has the member.
		evicted := slices.ContainsFunc(s.Expired, func(x rules.Entry) bool { return x.Member == must && (x.LockID == e.LockID || x.LockID == within) })
		if evicted && e.Member != must {
			must = lost
		}
		for _, w := range s.before.Waiters {
			if w.LockID == e.LockID && must == "" && (e.State == rules.StateKept || (w.Part == e.Part && e.State == rules.StateClaimed)) {
				must = w.Member
			}
		}
		inService := slices.ContainsFunc(s.pool, func(m rules.Member) bool { return m.Name == e.Member && !m.Out })
		if (must != "" && e.Member != must) || (must == "" && !inService) {
			return fmt.Errorf("%q was granted the member %q of %v, and must have %q: %+v", e.LockID, e.Member, s.pool, must, s.before.Entries)
		}
	}
	return nil
}

// memberOf returns the member of a pool that a party has, or that its enclosing lock ID keeps.
func memberOf(d *rules.Document, lockID, within string, now time.Time) string {
	around, claimed := "", ""
	for _, e := range d.Entries {
		switch own := e.LockID == lockID && !e.CutOff && (e.State != rules.StateDraining || e.Alive(now)); {
		case e.Member == "":
		case own && e.State == rules.StateClaimed:
			claimed = e.Member
		case own:
			return e.Member
		case within != "" && e.LockID == within && e.State == rules.StateKept:
			around = e.Member
		}
	}
	return cmp.Or(claimed, around)
}

// lostMember returns the member that a request must get because its lock ID has lost it.
func (s *step) lostMember() string {
	op, _ := s.op.(rules.Acquire)
	if op.Mode != rules.Pool || !op.Reacquire {
		return ""
	}
	for _, e := range slices.Backward(s.before.Evidence) {
		if e.LockID == op.LockID && e.To == "" {
			return e.Member
		}
	}
	return ""
}

// certain reports whether a waiter must get a certain member of a pool, so that no other one waits for it.
func (s *step) certain(d *rules.Document, w rules.Waiter) bool {
	return w.Mode == rules.Pool && (w.Member != "" || memberOf(d, w.LockID, w.Within, s.now()) != "")
}

// rank returns the rank of a waiter.
func (s *step) rank(w rules.Waiter) int64 {
	if w.Promoted {
		return 0
	}
	priority := w.Priority
	if priority == 0 {
		priority = 3
	}
	for waited := s.now().Sub(w.Since); waited >= 10*time.Minute && priority > 1; waited -= 10 * time.Minute {
		priority--
	}
	return priority
}

func standing(s *step) []rules.Waiter {
	return slices.DeleteFunc(slices.Clone(s.before.Waiters), func(w rules.Waiter) bool { return !w.ExpiresAt.After(s.now()) })
}

// awake reports whether a waiter may be granted the resource. Those for a member of a pool may only while it is one, and
// others while it is none.
func (s *step) awake(w rules.Waiter) bool {
	fits := w.Member != "" || (w.Mode == rules.Pool) == (len(s.pool) > 0)
	return fits && w.Waits(s.now()) && !w.Overdue(s.now())
}

// firstCome is I4.
func (o *observer) firstCome(s *step) error {
	before := s.before.Clone()
	before.At = s.now()
	replaced := func(w rules.Waiter) bool { return w.LockID == s.lockID() && o.replaced[run{w.LockID, w.Run}] }
	queue := slices.DeleteFunc(standing(s), replaced)
	op, acquires := s.op.(rules.Acquire)
	claim := before.Claim(op.Caller)
	privileged := acquires && (before.HeldByEnclosing(op.Party()) || before.FirstFence(op.LockID) != 0 || (claim != nil && !claim.Forfeited(s.now())) || s.lostMember() != "")
	ahead := slices.ContainsFunc(queue, func(w rules.Waiter) bool { return s.awake(w) && !s.certain(s.before, w) })
	if s.Outcome == rules.Granted && acquires && !privileged && ahead {
		return errors.New("it was granted ahead of a waiter")
	}
	position := func(in []rules.Waiter, lockID, part string) int {
		return slices.IndexFunc(in, func(w rules.Waiter) bool { return w.LockID == lockID && w.Part == part })
	}
	last := -1
	promote, _ := s.op.(rules.Promote)
	for i, w := range s.after.Waiters {
		was := position(queue, w.LockID, w.Part)
		moved := w.LockID == promote.LockID || (was < 0 && !privileged)
		if moved && slices.ContainsFunc(s.after.Waiters[i+1:], func(b rules.Waiter) bool {
			return position(queue, b.LockID, b.Part) >= 0 && (b.Ahead || s.rank(b) <= s.rank(w)) && b.LockID != promote.LockID && !w.Ahead && (was < 0 || position(queue, b.LockID, b.Part) < was)
		}) {
			return fmt.Errorf("%q in position %d of %d passed a waiter whose rank is not greater", w.LockID, i+1, len(s.after.Waiters))
		}
		if promote.LockID != "" {
			others := slices.DeleteFunc(slices.Clone(queue), func(b rules.Waiter) bool { return b.LockID == promote.LockID })
			was = position(others, w.LockID, w.Part)
		}
		switch {
		case moved:
			continue
		case was >= 0 && was < last:
			return fmt.Errorf("%q lost its position", w.LockID)
		}
		last = max(last, was)
	}
	for _, c := range claims(s) {
		was := position(queue, c.LockID, c.Part)
		if c.LockID == promote.LockID {
			continue
		}
		if was >= 0 && queue[was].Verdict != "" {
			return fmt.Errorf("%q has a claim, and was withdrawn", c.LockID)
		}
		for _, w := range s.after.Waiters {
			if ahead := position(queue, w.LockID, w.Part); ahead >= 0 && ahead < was && s.awake(w) && !s.certain(s.before, w) && !s.certain(s.after, w) {
				return fmt.Errorf("%q has a claim ahead of %q", c.LockID, w.LockID)
			}
		}
	}
	return nil
}

// noDelay is I9: only live entries and waiters keep a request waiting.
func (o *observer) noDelay(s *step) error {
	for _, w := range s.after.Waiters {
		if !w.ExpiresAt.After(s.now()) {
			return fmt.Errorf("the waiter %q is dead", w.LockID)
		}
	}
	for _, c := range claims(s) {
		if longest := s.now().Add(4 * claimTTL); c.State == rules.StateClaimed && c.ExpiresAt.After(longest) {
			return fmt.Errorf("the claim of %q lasts too long", c.LockID)
		}
	}
	for _, w := range s.after.Waiters {
		if !s.awake(w) || len(claims(s)) > 0 {
			continue
		}
		if s.after.Admits(w.Party()) {
			return fmt.Errorf("nothing blocks the waiter %q", w.LockID)
		}
		if !s.certain(s.after, w) {
			if m := o.freeMember(s); w.Mode == rules.Pool && m != "" {
				return fmt.Errorf("the member %s is free, and %q waits", m, w.LockID)
			}
			break
		}
	}
	op, ok := s.op.(rules.Acquire)
	if !ok || op.Refresh || (s.Outcome != rules.Busy && s.Outcome != rules.Queued && s.Outcome != rules.Full) {
		return nil
	}
	before := s.before.Clone()
	before.At = s.now()
	claim := s.after.Claim(op.Caller)
	if s.lostMember() != "" {
		return nil
	}
	asks := slices.ContainsFunc(before.Waiters, func(w rules.Waiter) bool { return w.LockID == op.LockID && w.Part == op.Part })
	awake := slices.ContainsFunc(standing(s), func(w rules.Waiter) bool { return s.awake(w) && !s.certain(s.before, w) })
	if before.Admits(op.Party()) && !awake && claim == nil && !asks && s.after.Kept(op.LockID) == nil && s.after.Admits(op.Party()) {
		return errors.New("nothing blocked it")
	}
	if held := before.FirstFence(op.LockID); held != 0 && held == s.after.FirstFence(op.LockID) && claim == nil && s.after.Admits(op.Party()) {
		return errors.New("it skips the queue, and no holder is in its way")
	}
	return nil
}

// freeMember returns a member that is in service, and that no entry has and no waiter must get, or "". There is none while
// another mode keeps all parties of the pool out.
func (o *observer) freeMember(s *step) string {
	if slices.ContainsFunc(s.after.Entries, func(e rules.Entry) bool { return e.Mode != rules.Pool && e.Alive(s.now()) }) {
		return ""
	}
	for _, m := range s.pool {
		used := slices.ContainsFunc(s.after.Entries, func(e rules.Entry) bool { return e.Member == m.Name })
		used = used || slices.ContainsFunc(s.after.Waiters, func(w rules.Waiter) bool { return w.Member == m.Name })
		if !m.Out && !used {
			return m.Name
		}
	}
	return ""
}
