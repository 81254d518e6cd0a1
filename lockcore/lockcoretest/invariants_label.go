package lockcoretest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// speaks checks what a labelled request does to other runs of its party, and to the parts that it undoes. The other checks go
// on from the document after that.
func (v *Invariants) speaks(s *Step) error {
	op, ok := s.Op.(rules.Acquire)
	if !ok || op.Label == "" {
		return nil
	}
	if op.Within != "" {
		v.within[op.LockID] = op.Within
	}
	now := begin(s.Before, op.Resource, op.Policy, s.now())
	label, other := otherRun(&now.doc, &op)
	switch outcome := s.After.Last.Outcome; {
	case outcome == rules.Late:
		return nil
	case other != (outcome == rules.OtherRun) || (other && s.After.Last.Note != label):
		return fmt.Errorf("it was told %q %q, and %q speaks for the party", outcome, s.After.Last.Note, label)
	case other:
		return nil
	case v.replaced[run{op.LockID, op.Label}]:
		return errors.New("a run that was replaced speaks again")
	}
	now.speaks(op)
	for _, e := range s.Before.Entries {
		ours := e.LockID == op.LockID && (e.Label != op.Label || slices.Contains(op.Undo, e.Part)) && e.State != rules.StateKept
		if e.LockID == op.LockID && e.Label != op.Label {
			v.replaced[run{e.LockID, e.Label}] = true
		}
		if p, trusts := v.told[request{e.LockID, e.Part, e.Order}]; ours && trusts {
			delete(v.told, request{e.LockID, e.Part, e.Order})
			v.told[request{rules.CutOff(e.LockID), e.Part, e.Order}] = p
		}
	}
	now.doc.Evicted = append(now.doc.Evicted, now.evidence...)
	s.Before = now.doc
	return v.unmixed(s, &op)
}

// run is one run of a party.
type run struct{ lockID, label string }

// unmixed: nothing is granted to the party beside what was cut off of it, nor to what was undone; and no other run of it is left.
func (v *Invariants) unmixed(s *Step, op *rules.Acquire) error {
	e := s.granted()
	if e == nil {
		return nil
	}
	if s.After.Undoes(op.LockID, op.Part) {
		return fmt.Errorf("%q was granted to part %q, which was undone", op.LockID, op.Part)
	}
	for _, b := range s.After.Entries {
		switch {
		case b.LockID == op.LockID && b.Label != op.Label:
			return fmt.Errorf("%q speaks for %q, and %+v stands", op.Label, op.LockID, b)
		case rules.IsCutOff(b.LockID) && alive(b, s.now()) && s.After.Last.Outcome != rules.Again:
			return fmt.Errorf("%q was granted beside what was cut off: %+v", op.LockID, b)
		}
	}
	return nil
}

// together reports whether two live entries may stand beside each other although their modes do not go together. Those who
// shared with a part that was cut off stay; and a lock ID may live within a hold that is kept. Its claim spares a part of that
// hold which has expired, and which may be renewed before the claim is confirmed.
func (v *Invariants) together(a, b *rules.Entry) bool {
	lives := func(in, around *rules.Entry) bool {
		return (around.State == rules.StateKept || in.State == rules.StateClaimed) && v.within[in.LockID] == around.LockID
	}
	return rules.IsCutOff(a.LockID) || rules.IsCutOff(b.LockID) || lives(a, b) || lives(b, a)
}
