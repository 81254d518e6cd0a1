package rules

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A granted request with Keep adds a kept entry of its own call, which can be taken back with it.
// When its part has ended, that entry merges into the one settled kept entry of its lock ID. So what the
// parts of a hold share is derived from the entries, and no request edits what another one has added.

// keptID, settledID and drainingID return the IDs of entries that derive from the entry of a call.
func keptID(call string) string     { return call + "/k" }
func settledID(call string) string  { return strings.TrimSuffix(call, "/k") + "/s" }
func drainingID(call string) string { return call + "/d" }

// partOf returns the ID of the part with which a kept entry was made; false if it was made without one,
// or is settled.
func (e *Entry) partOf() (id string, ok bool) {
	if e.State != StateKept {
		return "", false
	}
	return strings.CutSuffix(e.ID, "/k")
}

func (e *Entry) isSettled() bool { return e.State == StateKept && strings.HasSuffix(e.ID, "/s") }

// waitsForMore reports whether a step keeps the entry while it waits for other resources. Such an entry
// does not merge: it ends with the next grant of its lock ID, or when its part leaves.
func (e *Entry) waitsForMore() bool {
	_, madeWithPart := e.partOf()
	return madeWithPart && e.Within != ""
}

// Kept returns what a lock ID keeps, as one entry, or nil: a copy of its kept entry, or several merged.
func (d *Document) Kept(lockID string) *Entry {
	var all *Entry
	for i := range d.Entries {
		if e := &d.Entries[i]; e.BelongsTo(lockID) && e.State == StateKept {
			all = all.with(e)
		}
	}
	return all
}

// AllKept returns what Kept returns for each lock ID that keeps the resource.
func (d *Document) AllKept() map[string]*Entry {
	all := map[string]*Entry{}
	for i := range d.Entries {
		if e := &d.Entries[i]; e.State == StateKept {
			all[e.LockID] = all[e.LockID].with(e)
		}
	}
	return all
}

// FirstFence returns the fence with which a lock ID's hold began; 0 if it has no hold.
func (d *Document) FirstFence(lockID string) int64 {
	if i := slices.IndexFunc(d.Entries, func(e Entry) bool { return e.BelongsTo(lockID) && e.Holds() }); i >= 0 {
		return d.Entries[i].FirstFence
	}
	return 0
}

// Keeps reports whether a lock ID has a kept hold that began with an order up to the given one, which is of
// the same run.
func (d *Document) Keeps(lockID string, order int64) bool {
	k := d.Kept(lockID)
	return k != nil && k.FirstOrder <= order
}

// Granted returns the lock IDs that have a claim or a hold.
func (d *Document) Granted() map[string]bool {
	granted := map[string]bool{}
	for i := range d.Entries {
		if e := &d.Entries[i]; e.State != StateDraining {
			granted[e.LockID] = true
		}
	}
	return granted
}

// with returns a kept entry that was merged with another one. The receiver, which may be nil, is reused.
func (e *Entry) with(o *Entry) *Entry {
	if e == nil {
		first := *o
		first.Bars = slices.Clone(o.Bars)
		return &first
	}
	e.add(o)
	return e
}

// add merges another kept entry of the same lock ID into this one: the stronger mode, the longer TTL, the
// later end, the last order, all fences and all bars. The first order is that of the requests since the latest
// loss, so that what was lost and regained in between is not taken for held throughout.
func (e *Entry) add(o *Entry) {
	e.Mode, e.ExpiresAt = Stronger(e.Mode, o.Mode), Later(e.ExpiresAt, o.ExpiresAt)
	if e.TTL != 0 && (o.TTL == 0 || o.TTL > e.TTL) {
		e.TTL = o.TTL
	}
	switch cmp.Compare(o.Regained, e.Regained) {
	case 0:
		e.FirstOrder = min(e.FirstOrder, o.FirstOrder)
	case 1:
		e.FirstOrder, e.Regained = o.FirstOrder, o.Regained
	}
	if o.Order >= e.Order {
		e.Order, e.Trace = o.Order, cmp.Or(o.Trace, e.Trace)
	}
	e.Fence, e.LeastFence = max(e.Fence, o.Fence), max(e.LeastFence, o.LeastFence)
	e.CreatedAt, e.RenewedAt = earliest(e.CreatedAt, o.CreatedAt), latest(e.RenewedAt, o.RenewedAt)
	e.Owner, e.Host, e.Comment = cmp.Or(e.Owner, o.Owner), cmp.Or(e.Host, o.Host), cmp.Or(e.Comment, o.Comment)
	for _, b := range o.Bars {
		e.Bars = with(e.Bars, b, MaxHoldBars)
	}
	e.Limit, e.Member = max(e.Limit, o.Limit), cmp.Or(e.Member, o.Member)
	e.Within, e.Saga = cmp.Or(e.Within, o.Within), cmp.Or(e.Saga, o.Saga)
}

func earliest(a, b *time.Time) *time.Time {
	if a == nil || (b != nil && b.Before(*a)) {
		return b
	}
	return a
}

func latest(a, b *time.Time) *time.Time {
	if a == nil || (b != nil && b.After(*a)) {
		return b
	}
	return a
}

// merge merges the matching kept entries into the settled ones of their lock IDs.
func (s *state) merge(which func(*Entry) bool) {
	var merged []Entry
	s.doc.Entries = slices.DeleteFunc(s.doc.Entries, func(e Entry) bool {
		if e.State != StateKept || e.isSettled() || !which(&e) {
			return false
		}
		merged = append(merged, e)
		return true
	})
	for i := range merged {
		e := &merged[i]
		at := slices.IndexFunc(s.doc.Entries, func(o Entry) bool { return o.BelongsTo(e.LockID) && o.isSettled() })
		if at >= 0 {
			s.doc.Entries[at].add(e)
			continue
		}
		e.ID, e.Since, e.ClaimedAt, e.Predecessor = settledID(e.ID), nil, nil, nil
		s.doc.Entries = append(s.doc.Entries, *e)
	}
}

// mergeEnded merges the kept entries whose parts have ended.
func (s *state) mergeEnded() {
	present := make(map[string]bool, len(s.doc.Entries))
	for i := range s.doc.Entries {
		present[s.doc.Entries[i].ID] = true
	}
	s.merge(func(e *Entry) bool {
		part, madeWithPart := e.partOf()
		return madeWithPart && !e.waitsForMore() && !present[part]
	})
}

// partRuns reports whether the part with which a kept entry was made is running.
func (s *state) partRuns(kept *Entry) bool {
	part, _ := kept.partOf()
	return s.anyEntry(func(e *Entry) bool { return e.ID == part })
}

// renewKept extends all kept entries of a lock ID, each by its own TTL.
func (s *state) renewKept(lockID string) {
	for i := range s.doc.Entries {
		if e := &s.doc.Entries[i]; e.BelongsTo(lockID) && e.State == StateKept {
			e.ExpiresAt = Later(e.ExpiresAt, expiry(s.now, e.TTL))
		}
	}
}

// Released returns the entries of holds that the operation ended.
func (r *Result) Released() []Entry {
	return r.ended(func(e *Entry) bool { return e.Holds() })
}

// Withdrawn returns the waiters and the claims that the operation ended before they expired.
func (r *Result) Withdrawn(at time.Time) []Entry {
	return r.ended(func(e *Entry) bool {
		return (e.State == "" || e.State == StateClaimed) && e.Verdict == "" && (e.Alive(at) || (e.QueuedUntil != nil && e.QueuedUntil.After(at)))
	})
}

func (r *Result) ended(which func(*Entry) bool) []Entry {
	return slices.DeleteFunc(slices.Clone(r.Ended), func(e Entry) bool { return !which(&e) })
}

// HoldsEnded returns the entries that describe the holds that the operation ended. A kept entry does only if
// it was the last one of its lock ID.
func (r *Result) HoldsEnded(after *Document) []Entry {
	return holdsIn(r.ended(func(e *Entry) bool {
		return e.Holds() && e.CreatedAt != nil && (e.State != StateKept || after.Kept(e.LockID) == nil)
	}))
}

// holdsIn merges the kept entries of each hold into the first of them.
func holdsIn(entries []Entry) []Entry {
	var out []Entry
	at := map[string]int{} // kept entries by lock ID
	for _, e := range entries {
		i, known := at[e.LockID]
		if e.State == StateKept && known {
			out[i].add(&e)
			continue
		}
		if e.State == StateKept {
			at[e.LockID] = len(out)
		}
		out = append(out, e)
	}
	return out
}

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
// hold began with an order up to Order, which is that of its use, and no evidence of a loss counts, and
// Lost otherwise. A hold of another run is answered as by Acquire.
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
