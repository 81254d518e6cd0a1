package rules

import (
	"slices"
	"time"
)

// LossEvidence returns the latest evidence of a lock ID's loss, or nil. A run restricts it to its own
// holds, and, unless since is zero, to losses of any run from that time on: a run that a reset has made counts
// those of the runs before it.
func (d *Document) LossEvidence(lockID, run string, since time.Time) *Evidence {
	for i := len(d.Evidence) - 1; i >= 0; i-- {
		if e := &d.Evidence[i]; e.isLoss(lockID, run) || e.isLossSince(lockID, since) {
			return e
		}
	}
	return nil
}

// isLoss reports whether the record is about a loss of a lock ID, and of a run unless it is empty.
func (e *Evidence) isLoss(lockID, run string) bool {
	return e.LockID == lockID && e.To == "" && (run == "" || e.Run == run)
}

// isLossSince reports whether the record is about a loss of a lock ID from a time on, which is not zero.
func (e *Evidence) isLossSince(lockID string, since time.Time) bool {
	return !since.IsZero() && !e.At.Before(since) && e.isLoss(lockID, "")
}

// Lost returns the latest evidence of LossEvidence that counts, or nil: it is newer than everything that the
// hold, if there is one, has outlived. A loss of another run does not count either if the hold began later.
func (d *Document) Lost(lockID, run string, since time.Time) *Evidence {
	k := d.Kept(lockID)
	for i := len(d.Evidence) - 1; i >= 0; i-- {
		e := &d.Evidence[i]
		switch {
		case k != nil && e.Number <= k.Regained:
		case e.isLoss(lockID, run), e.isLossSince(lockID, since) && (k == nil || e.Fence >= k.FirstFence):
			return e
		}
	}
	return nil
}

// LostHold reports whether there is evidence that a lock ID lost the hold that began with the fence first.
func (d *Document) LostHold(lockID string, first int64) bool {
	return slices.ContainsFunc(d.Evidence, func(e Evidence) bool { return e.LockID == lockID && e.Fence == first && e.To == "" })
}

// LostBefore reports whether a missing hold that began with the fence first must be considered lost:
// there is evidence, or some evidence was dropped since the hold began. If the time began is zero,
// only evidence counts.
func (d *Document) LostBefore(lockID string, first int64, began time.Time) bool {
	return (!began.IsZero() && !began.After(d.EvidenceSince)) || d.LostHold(lockID, first)
}

// Verify renews what a lock ID keeps for a run, and releases nothing. The outcome is Granted if the
// hold began with an order up to Order, which is that of its use, and no evidence of a loss counts, and Lost otherwise. A hold of
// another run is answered as by Acquire.
type Verify struct {
	Resource, LockID, Run, TakeOver string
	Order                           int64
	// LostSince, of a run that a reset has made, is the time from which losses of any run of the lock ID count
	// like its own. Zero counts its own only.
	LostSince time.Time
}

// ResourceName returns the name of the resource.
func (op Verify) ResourceName() string { return op.Resource }

// Apply renews the kept hold and reports whether it is the hold that was used.
func (op Verify) Apply(before *Document, now time.Time, settings Settings) (*Document, Result) {
	s := begin(before, op.Resource, now, settings)
	run, other := s.doc.otherRun(op.LockID, op.Run, op.TakeOver)
	if other {
		s.result.Outcome, s.result.Note = OtherRun, run
		return s.end()
	}
	s.takeOver(op.LockID, op.Run)
	s.renewKept(op.LockID)
	if !s.doc.Keeps(op.LockID, op.Order) || s.doc.Lost(op.LockID, op.Run, op.LostSince) != nil {
		s.result.Outcome = Lost
	}
	return s.end()
}

// Missed records that a saga committed without asking although it had lost a hold that it had used. The release
// after the commit finds it out. The record stays for Retention, because the release erases the evidence.
type Missed struct {
	LockID string `bson:"lockId"`
	// Run is the run of the release, and of the hold that was lost.
	Run string `bson:"run,omitempty"`
	// Order, Fence, At, By and Reason are those of the evidence of the loss.
	Order  int64     `bson:"order"`
	Fence  int64     `bson:"fence"`
	At     time.Time `bson:"at"`
	By     string    `bson:"by,omitempty"`
	Reason string    `bson:"reason,omitempty"`
	// UpTo is the order of the release, and ReleasedAt its time.
	UpTo       int64     `bson:"upTo"`
	ReleasedAt time.Time `bson:"releasedAt"`
}

// Recent reports whether the record is not older than Retention.
func (m *Missed) Recent(now time.Time) bool { return m.ReleasedAt.Add(Retention).After(now) }

// AttnMissed is in Document.Attn while the document has a Missed.
const AttnMissed = "missed"

// recordMissed records the losses that count and that a release up to an order is about to erase. A repeated
// release finds none of them.
func (s *state) recordMissed(op *Release) {
	if !op.Committed || op.FirstFence > 0 || op.Run == "" {
		return
	}
	k := s.doc.Kept(op.LockID)
	for i := range s.doc.Evidence {
		e := &s.doc.Evidence[i]
		if !e.isLoss(op.LockID, op.Run) || e.Order > op.Order || (k != nil && e.Number <= k.Regained) {
			continue
		}
		s.doc.Missed = tail(append(s.doc.Missed, Missed{
			LockID: e.LockID, Run: e.Run, Order: e.Order, Fence: e.Fence, At: e.At, By: e.By, Reason: e.Reason, UpTo: op.Order, ReleasedAt: s.now,
		}), MaxMissed)
	}
}
