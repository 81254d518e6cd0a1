package rules

import "time"

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
