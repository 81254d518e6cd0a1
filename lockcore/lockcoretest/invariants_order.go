package lockcoretest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// fences is I3. A request that is granted, or supersedes another, gets a fence above all that were given.
func (v *Invariants) fences(s *Step) error {
	if s.After.Fence < v.fence {
		return fmt.Errorf("the fence fell from %d to %d", v.fence, s.After.Fence)
	}
	op, ok := s.Op.(rules.Acquire)
	e := s.granted()
	if !ok || e == nil {
		return nil
	}
	running := func(b rules.Entry) bool {
		return b.LockID == op.LockID && b.Part == op.Part && b.State == rules.StateRunning && b.Order < op.Order
	}
	renewed := s.After.Last.Outcome == rules.Granted ||
		(s.After.Last.Outcome == rules.Joined && (op.NewFence || slices.ContainsFunc(s.Before.Entries, running)))
	if renewed && e.Fence <= v.fence {
		return fmt.Errorf("%q was given fence %d after %d", op.LockID, e.Fence, v.fence)
	}
	if e.Fence > s.After.Fence {
		return fmt.Errorf("%q was given fence %d, and the document forgot it", op.LockID, e.Fence)
	}
	for _, b := range s.Before.Entries {
		if s.After.Last.Outcome == rules.Joined && b.LockID == op.LockID && b.Holds() && e.Fence < b.Fence {
			return fmt.Errorf("%q joined with fence %d below its own %d", op.LockID, e.Fence, b.Fence)
		}
	}
	return nil
}

// firstCome is I4: the queue is served from its head, and none is put ahead of it but who holds already, and who was
// granted a claim before.
func firstCome(s *Step) error {
	queue := standing(s)
	if _, batch := s.Op.([]rules.Renew); batch { // drops none
		queue = s.Before.Waiters
	}
	op, acquires := s.Op.(rules.Acquire)
	claim := s.Before.Claim(op.LockID, op.Part)
	s.Before.At = s.now()
	privileged := acquires && (s.Before.Surrounds(op.Party()) || (claim != nil && !claim.GivenUp(s.now())) ||
		slices.ContainsFunc(s.Before.Entries, func(e rules.Entry) bool { return e.LockID == op.LockID && e.Holds() }))
	if acquires && s.After.Last.Outcome == rules.Granted && !privileged && len(awake(s)) > 0 {
		return fmt.Errorf("%q was granted ahead of %d who wait", op.LockID, len(awake(s)))
	}
	place := func(in []rules.Waiter, lockID, part string) int {
		return slices.IndexFunc(in, func(w rules.Waiter) bool { return w.LockID == lockID && w.Part == part })
	}
	last := -1
	for i, w := range s.After.Waiters {
		was := place(queue, w.LockID, w.Part)
		switch {
		case was < 0 && !privileged && i < len(s.After.Waiters)-1:
			return fmt.Errorf("%q came last, and stands in place %d of %d", w.LockID, i+1, len(s.After.Waiters))
		case was >= 0 && was < last:
			return fmt.Errorf("%q lost its place to somebody behind it", w.LockID)
		}
		last = max(last, was)
	}
	for _, c := range claims(s) {
		was := place(queue, c.LockID, c.Part)
		if was >= 0 && queue[was].Verdict != "" {
			return fmt.Errorf("%q has a claim, and was taken out of the queue", c.LockID)
		}
		for _, w := range s.After.Waiters {
			if ahead := place(queue, w.LockID, w.Part); ahead >= 0 && ahead < was && s.serves(w) {
				return fmt.Errorf("%q has a claim ahead of %q, who came before", c.LockID, w.LockID)
			}
		}
	}
	return nil
}

// told is I12 on one resource: each request of the part that was taken out of the queue is told,
// until the part leaves, unless it is late.
func told(s *Step) error {
	op, ok := s.Op.(rules.Acquire)
	if !ok {
		return nil
	}
	i := slices.IndexFunc(standing(s), func(w rules.Waiter) bool {
		return w.LockID == op.LockID && w.Part == op.Part && w.Verdict != ""
	})
	switch outcome := s.After.Last.Outcome; {
	case outcome == rules.Superseded:
	case i < 0 && outcome == rules.Deadlock:
		return fmt.Errorf("%q was told of a deadlock, and there was none", op.LockID)
	case outcome == rules.Late, outcome == rules.OtherRun: // it changes nothing, and reads nothing
	case i >= 0 && (outcome != rules.Deadlock || s.After.Last.Note != standing(s)[i].Verdict):
		return fmt.Errorf("%q was told %q, and not of the deadlock", op.LockID, outcome)
	}
	return nil
}

// late is the second half of I6: an order that was left or released, or that a
// later one of the same part superseded, gets nothing; and no other is refused as late.
func (v *Invariants) late(s *Step) error {
	op, ok := s.Op.(rules.Acquire)
	if !ok {
		return nil
	}
	over := func(r rules.Released) bool {
		all := r.Part == nil && (op.Label == "" || r.Label == op.Label)
		return r.LockID == op.LockID && (all || (r.Part != nil && *r.Part == op.Part)) && r.Order >= op.Order
	}
	if late(&op, s.now()) != (s.After.Last.Outcome == rules.Late) {
		return fmt.Errorf("it was issued %v ago, and was told %q", s.now().Sub(op.Issued), s.After.Last.Outcome)
	}
	if outcome := s.After.Last.Outcome; outcome == rules.Late || outcome == rules.OtherRun || s.After.Undoes(op.LockID, op.Part) {
		return nil
	}
	before := s.Before
	before.Waiters = standing(s)
	_, superseded := before.Later(op.LockID, op.Part, op.Order)
	refused := s.After.Last.Outcome == rules.Superseded
	switch {
	case refused && !superseded && !slices.ContainsFunc(v.ended, over):
		return errors.New("it is refused as late, and nothing overtook it")
	case !refused && superseded:
		return errors.New("a later request of the same part stands, and it was not refused")
	case !refused && slices.ContainsFunc(last(v.ended, rules.MaxReleased), over):
		return errors.New("it was over, and it was not refused")
	}
	return nil
}

// neverHeldAgain is I8. A part that was reported lost is only held again after a new grant, with a new fence; and a
// lock ID that was displaced is told so when it comes back.
func (v *Invariants) neverHeldAgain(s *Step) error {
	if e := s.granted(); e != nil {
		if at, lost := v.lost[request{e.LockID, e.Part, e.Order}]; lost && e.Fence <= at {
			return fmt.Errorf("%q was reported lost, and is held again with fence %d", e.LockID, e.Fence)
		}
	}
	op, ok := s.Op.(rules.Acquire)
	if !ok || s.granted() == nil || op.Reacquire {
		return nil
	}
	holding := slices.ContainsFunc(s.Before.Entries, func(e rules.Entry) bool { return e.LockID == op.LockID && e.Holds() })
	at, evicted := v.evicted[run{op.LockID, op.Label}]
	switch {
	case op.Held && !holding:
		return fmt.Errorf("%q knows that it held, did not any more, and was not told", op.LockID)
	case op.Persist && evicted && v.evictions-at < rules.MaxEvicted:
		return fmt.Errorf("%q was displaced, and was not told", op.LockID)
	}
	return nil
}
