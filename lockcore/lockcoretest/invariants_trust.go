package lockcoretest

import (
	"fmt"
	"slices"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// alone is I1, on what the parts were told and on what stands in the document: each promise that
// may still be trusted has an entry that keeps the others out, and of any two live entries of different lock
// IDs, draining ones and claims among them, the modes go together.
func (v *Invariants) alone(s *Step) error {
	if op, ok := s.Op.(rules.Acquire); ok && s.granted() == nil {
		switch s.After.Last.Outcome {
		case rules.Granted, rules.Joined, rules.Again:
			return fmt.Errorf("%q was told %q, and has no part", op.LockID, s.After.Last.Outcome)
		}
	}
	for a, p := range v.told {
		for b, q := range v.told {
			own := a.lockID == rules.CutOff(b.lockID) || b.lockID == rules.CutOff(a.lockID) // they stood side by side before
			if a.lockID != b.lockID && !own && !rules.Compatible(p.mode, q.mode) {
				return fmt.Errorf("%v and %v trust at once", a, b)
			}
		}
		stands := func(e rules.Entry) bool {
			return e.LockID == a.lockID && e.Part == a.part && e.Order == a.order && e.State >= rules.StateDraining && e.State <= rules.StateRunning &&
				rules.Covers(e.Mode, p.mode) && !e.ExpiresAt.Before(p.until)
		}
		if !slices.ContainsFunc(s.After.Entries, stands) {
			return fmt.Errorf("%v trusts until %v, and nothing keeps the others out", a, p.until)
		}
	}
	// What has ended lives again if time runs backwards: no party trusts it.
	live := pick(s.After.Entries, func(e rules.Entry) bool { return alive(e, v.latest) })
	for i, a := range live {
		for _, b := range live[:i] {
			if a.LockID != b.LockID && !rules.Compatible(a.Mode, b.Mode) && !v.together(&a, &b) {
				return fmt.Errorf("%s %q (%s) and %s %q (%s) live at once", a.State, a.LockID, a.Mode, b.State, b.LockID, b.Mode)
			}
		}
	}
	return nil
}

// lasting is the half of I1 that no margin is needed for: a party that goes on is never promised less than before, at
// whatever time. A new TTL is asked for by the part itself.
func lasting(s *Step) error {
	if op, ok := s.Op.(rules.Renew); ok && op.TTL > 0 {
		return nil
	}
	for _, b := range s.Before.Entries {
		shortened := func(a rules.Entry) bool {
			return a.LockID == b.LockID && a.Part == b.Part && a.Order == b.Order && a.State == b.State && a.Fence == b.Fence && a.ExpiresAt.Before(b.ExpiresAt)
		}
		if b.Holds() && slices.ContainsFunc(s.After.Entries, shortened) {
			return fmt.Errorf("what %q was promised was shortened: %+v", b.LockID, b)
		}
	}
	return nil
}

// othersLive counts the other lock IDs that are live, but for what one keeps that a request lives within.
func othersLive(held []rules.Entry, s *Step, lockID, within string) int64 {
	ids := map[string]bool{}
	for _, e := range held {
		around := within == e.LockID && e.State == rules.StateKept
		if e.LockID != lockID && !around && alive(e, s.now()) {
			ids[e.LockID] = true
		}
	}
	return int64(len(ids))
}

// limits is I2, for requests and for claims.
func (v *Invariants) limits(s *Step) error {
	if op, ok := s.Op.(rules.Acquire); ok && s.After.Last.Outcome == rules.Granted {
		if n := othersLive(s.Before.Entries, s, op.LockID, op.Within); n >= op.Room() {
			return fmt.Errorf("%q was granted one of %d places beside %d others", op.LockID, op.Room(), n)
		}
	}
	for _, c := range claims(s) {
		if n := othersLive(s.After.Entries, s, c.LockID, v.within[c.LockID]); c.Limit > 0 && n >= c.Limit {
			return fmt.Errorf("%q has a claim to one of %d places beside %d others", c.LockID, c.Limit, n)
		}
	}
	return nil
}

// claims are those that the step made. One that became exclusive with its hold is not new.
func claims(s *Step) []rules.Entry {
	return pick(s.After.Entries, func(e rules.Entry) bool {
		return e.State == rules.StateClaimed && !slices.ContainsFunc(s.Before.Entries, func(b rules.Entry) bool {
			b.Mode = e.Mode
			return same(b, e)
		})
	})
}

// noDelay is I9: what keeps a request waiting is alive.
func noDelay(s *Step) error {
	if _, batch := s.Op.([]rules.Renew); batch {
		return nil // settles nothing
	}
	for _, w := range s.After.Waiters {
		if !w.ExpiresAt.After(s.now()) {
			return fmt.Errorf("the place of %q is dead, and stands", w.LockID)
		}
	}
	made := claims(s)
	for _, c := range made {
		if c.ExpiresAt.After(s.now().Add(ms(max(c.ClaimTTL, policyOf(s.Op).ClaimTTL)))) {
			return fmt.Errorf("the claim of %q outlives the TTL of claims", c.LockID)
		}
		if c.ClaimTTL > mostOfClaim(s, c.LockID, c.Part) {
			return fmt.Errorf("the claim of %q stands for %v, and nobody came back to a shorter one", c.LockID, ms(c.ClaimTTL))
		}
	}
	for _, w := range s.After.Waiters {
		if w.ClaimTTL > mostOfClaim(s, w.LockID, w.Part) {
			return fmt.Errorf("the next claim of %q is to stand for %v, and nobody came back to a shorter one", w.LockID, ms(w.ClaimTTL))
		}
	}
	if first := pick(s.After.Waiters, s.serves); len(first) > 0 && len(made) == 0 {
		w := &first[0]
		// What would have let it join was displaced by this very write: the next one settles.
		displaced := slices.ContainsFunc(s.After.Last.Expired, func(e rules.Entry) bool { return e.LockID == w.LockID && e.Mode == rules.Exclusive })
		if !displaced && !inTheWay(s.After.Entries, s, w.LockID, w.Within, limitOf(w)) && !joins(s, w.LockID) {
			return fmt.Errorf("%q is first in the queue, nobody is in its way, and it waits", w.LockID)
		}
	}
	return refusedForAReason(s)
}

// mostOfClaim is how much longer than others a claim may stand after the step: as long as was known of its place or claim; or, where its own
// request finds one that has lapsed, twice as long as that, within the bound.
func mostOfClaim(s *Step, lockID, part string) int64 {
	for _, w := range standing(s) {
		if w.LockID == lockID && w.Part == part {
			return w.ClaimTTL
		}
	}
	c := s.Before.Claim(lockID, part)
	op, ok := s.Op.(rules.Acquire)
	if c == nil || c.GivenUp(s.now()) || !ok || op.LockID != lockID || op.Part != part {
		return 0
	}
	if alive(*c, s.now()) {
		return c.ClaimTTL
	}
	return min(2*max(c.ClaimTTL, op.ClaimTTL), op.LongestClaim())
}

// joins reports whether a lock ID holds exclusively already: what waits in its name takes part when it comes.
func joins(s *Step, lockID string) bool {
	return slices.ContainsFunc(s.After.Entries, func(e rules.Entry) bool {
		return e.LockID == lockID && e.Mode == rules.Exclusive && (alive(e, s.now()) || e.Label != "")
	})
}

// inTheWay reports whether others who are alive leave a lock ID no room.
func inTheWay(held []rules.Entry, s *Step, lockID, within string, room int64) bool {
	exclusive := slices.ContainsFunc(held, func(e rules.Entry) bool {
		around := within == e.LockID && e.State == rules.StateKept
		return e.LockID != lockID && !around && e.Mode == rules.Exclusive && alive(e, s.now())
	})
	return exclusive || othersLive(held, s, lockID, within) >= room
}

// refusedForAReason: what was not granted had another in its way, which was alive.
func refusedForAReason(s *Step) error {
	op, ok := s.Op.(rules.Acquire)
	if !ok {
		return nil
	}
	switch s.After.Last.Outcome {
	case rules.Busy, rules.Queued, rules.Full:
	default:
		return nil
	}
	if op.Refresh {
		return nil // takes nothing
	}
	// Who was passed over refreshes its place, and is served like the others.
	overdue := slices.ContainsFunc(standing(s), func(w rules.Waiter) bool { return w.LockID == op.LockID && w.Part == op.Part })
	served := overdue && (s.After.Claim(op.LockID, op.Part) != nil || joins(s, op.LockID))
	room := op.Room()
	if op.Label != "" && slices.ContainsFunc(s.Before.Entries, func(e rules.Entry) bool {
		return e.LockID == op.LockID && e.Holds() && e.Mode == rules.Exclusive
	}) {
		room = 1 // its hold is exclusive, and others may live within it
	}
	if !served && !inTheWay(s.Before.Entries, s, op.LockID, op.Within, room) && len(awake(s)) == 0 {
		return fmt.Errorf("%q was told %q, and nobody was in its way", op.LockID, s.After.Last.Outcome)
	}
	return nil
}

func policyOf(op any) rules.Policy {
	switch op := op.(type) {
	case rules.Acquire:
		return op.Policy
	case rules.Renew:
		return op.Policy
	case rules.Leave:
		return op.Policy
	case rules.Release:
		return op.Policy
	case rules.Withdraw:
		return op.Policy
	}
	return rules.Policy{}
}
