package rules

import (
	"slices"
	"time"
)

// Part returns the running part of a request with exactly its order, or nil.
func (d *Document) Part(c Caller) *Entry {
	return d.last(&c, func(e *Entry) bool { return e.State == StateRunning && e.Order == c.Order })
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

// Latest returns the latest running part or claim of a request's part, or nil.
func (d *Document) Latest(c Caller) *Entry {
	return d.last(&c, func(e *Entry) bool { return e.State == StateRunning || e.State == StateClaimed })
}

// Claim returns the claim of a request's part, or nil. The claim may have lapsed.
func (d *Document) Claim(c Caller) *Entry {
	if e := d.Latest(c); e != nil && e.State == StateClaimed {
		return e
	}
	return nil
}

func (d *Document) last(c *Caller, which func(*Entry) bool) *Entry {
	for i := len(d.Entries) - 1; i >= 0; i-- {
		if e := &d.Entries[i]; e.ofPart(c) && which(e) {
			return e
		}
	}
	return nil
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

// Forfeited reports whether a claim has lapsed, and its position in the queue has expired too.
func (e *Entry) Forfeited(now time.Time) bool {
	return e.State == StateClaimed && !e.ExpiresAt.After(now) && (e.QueuedUntil == nil || !e.QueuedUntil.After(now))
}

// Tombstone returns the waiter of a request's part that was withdrawn to end a deadlock, or nil.
func (d *Document) Tombstone(c Caller) *Waiter {
	i := slices.IndexFunc(d.Waiters, func(w Waiter) bool { return w.SamePart(&c) && w.Verdict != "" })
	if i < 0 {
		return nil
	}
	return &d.Waiters[i]
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

// plain reports whether a release up to an order ends plain requests only.
func plain(run string, order int64) bool { return run == "" && order == LastPlain }

func (d *Document) releaseRecord(lockID, run string) *ReleaseRecord {
	for i := range d.Releases {
		if o := &d.Releases[i]; o.LockID == lockID && o.Run == run {
			return o
		}
	}
	return nil
}

// Supersession describes what superseded a request.
type Supersession struct {
	// Order is the order of the later request, of the release, or of the bar.
	Order int64
	// Released is set for a release or a bar; otherwise a later request of the same part superseded it.
	Released bool
	// Reason is set for a bar.
	Reason string
}

// ReasonBarred is the reason for refusing a request that a compensation has barred.
const ReasonBarred = "a compensation undoes it"

// SupersededBy returns what superseded a request: a release up to its order or a later one, a bar, or
// a later request of the same part.
func (d *Document) SupersededBy(c Caller) (by Supersession, ok bool) {
	for i := range d.Releases {
		if o := &d.Releases[i]; o.LockID == c.LockID && o.Run == c.Run && o.Order >= c.Order {
			return Supersession{Order: o.Order, Released: true}, true
		}
	}
	if b := d.barred(&c); b != nil {
		return Supersession{Order: b.Order, Released: true, Reason: ReasonBarred}, true
	}
	if later, ok := d.LaterOrder(c); ok {
		return Supersession{Order: later}, true
	}
	return Supersession{}, false
}

// LaterOrder returns the order of a later request of the same part that runs, waits, has a claim or
// drains. If the request itself drains, it returns this order.
func (d *Document) LaterOrder(c Caller) (later int64, ok bool) {
	for i := range d.Entries {
		e := &d.Entries[i]
		own := e.ofPart(&c) && e.State != StateKept
		if own && (e.Order > c.Order || (e.Order == c.Order && e.State == StateDraining)) {
			later, ok = max(later, e.Order), true
		}
	}
	for i := range d.Waiters {
		if w := &d.Waiters[i]; w.SamePart(&c) && w.Order > c.Order {
			later, ok = max(later, w.Order), true
		}
	}
	return later, ok
}

// Replaced returns a run, and the runs that it is known to have replaced or
// that replaced it, directly or indirectly.
func (d *Document) Replaced(lockID, run string) []string {
	runs := []string{run}
	for n := 0; n < len(runs); n++ {
		for i := range d.Evidence {
			e := &d.Evidence[i]
			if e.LockID != lockID || e.To == "" || (e.To != runs[n] && e.Run != runs[n]) {
				continue
			}
			for _, other := range []string{e.Run, e.To} {
				if !slices.Contains(runs, other) {
					runs = append(runs, other)
				}
			}
		}
	}
	return runs
}
