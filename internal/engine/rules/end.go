package rules

import (
	"slices"
	"time"
)

// Leave ends a part, its claim, and its waiters up to an order. A hold that is not kept ends with its last
// part.
type Leave struct {
	Resource string
	// Caller is that of the request. If its Run is set, the leave also ends entries of the part that were cut off.
	Caller
	// QueueOnly ends waiters and claims, but no running part.
	QueueOnly bool
	// Keep lets what a step within another lock ID keeps end HoldTTL from now. Requests that wait for other
	// resources set it. Otherwise it ends with the part.
	Keep    bool
	HoldTTL int64
}

// ResourceName returns the name of the resource.
func (op Leave) ResourceName() string { return op.Resource }

// Apply ends the part, its claim and its waiter.
func (op Leave) Apply(before *Document, now time.Time, settings Settings) (*Document, Result) {
	s := begin(before, op.Resource, now, settings)
	own := func(e *Entry) bool {
		return e.SamePart(&op.Caller) && (!e.CutOff || op.Run != "")
	}
	s.endEntries(func(e *Entry) bool {
		switch e.State {
		case StateKept:
			return false
		case StateClaimed:
			return own(e) && e.Order <= op.Order
		}
		return own(e) && e.Order == op.Order && !op.QueueOnly
	})
	var queue []Waiter
	if before != nil {
		queue = before.Waiters
	}
	s.removeWaiters(queue, func(w *Waiter) bool { return w.isUpTo(&op.Caller) })
	if !op.QueueOnly {
		s.leaveWaiting(&op)
	}
	return s.end()
}

// leaveWaiting ends what a step kept while it waited for other resources. With Keep it stays for HoldTTL
// instead.
func (s *state) leaveWaiting(op *Leave) {
	waiting := func(e *Entry) bool {
		return e.BelongsTo(op.LockID) && e.waitsForMore() && e.Order <= op.Order && !s.partRuns(e)
	}
	if !op.Keep {
		s.endEntries(waiting)
		return
	}
	for i := range s.doc.Entries {
		if e := &s.doc.Entries[i]; waiting(e) {
			e.TTL, e.ExpiresAt = op.HoldTTL, expiry(s.now, op.HoldTTL)
		}
	}
}

// TakeBack undoes an Acquire, and nothing else: it ends what the call with the ID Call was granted, and its
// claim and waiter, which are those of exactly this part and order. Fences stay.
type TakeBack struct {
	Resource string
	Caller
	Call string
}

// ResourceName returns the name of the resource.
func (op TakeBack) ResourceName() string { return op.Resource }

// Apply takes back what the call was granted, its claim and its position in the queue.
func (op TakeBack) Apply(before *Document, now time.Time, settings Settings) (*Document, Result) {
	s := begin(before, op.Resource, now, settings)
	s.endEntries(func(e *Entry) bool {
		switch {
		case e.LockID != op.LockID:
			return false
		case e.State == StateClaimed:
			return e.SameRequest(&op.Caller)
		}
		return e.ID == op.Call || e.ID == keptID(op.Call) || e.ID == drainingID(op.Call)
	})
	s.removeWaiters(s.doc.Waiters, func(w *Waiter) bool { return w.SameRequest(&op.Caller) })
	return s.end()
}

// endEntries ends the matching entries.
func (s *state) endEntries(which func(*Entry) bool) {
	for _, e := range filter(s.doc.Entries, which) {
		s.recordEnded(e)
		s.homeless = append(s.homeless, e.Bars...)
	}
	s.doc.Entries = without(s.doc.Entries, which)
	s.dropDead()
}

// Release ends the hold of a lock ID that FirstFence names; or, if FirstFence is 0, everything up to
// an order, including claims and queued requests.
type Release struct {
	Resource, LockID string
	// Run, unless it is empty, restricts the release to entries of that run. It must be empty with Force,
	// which also ends parts of the hold that were cut off.
	Run string
	// FirstFence is the fence with which the hold began. Draining entries match too.
	FirstFence int64
	// Order is the greatest order that ends. With FirstFence it is only the order of the part Leaving.
	Order int64
	// Leaving names a part whose request with exactly this order is known to have stopped, so that it
	// need not drain. May be nil.
	Leaving *string
	// Committed, without FirstFence and with Run, states that the saga that used the resource has committed
	// without asking whether it still held it. If there is evidence that it had lost it, that is recorded as
	// Missed.
	Committed bool
	// Force, with FirstFence, leaves evidence with the reason. Now, with Force, lets no part drain.
	Force, Now bool
	Reason     string
}

// ResourceName returns the name of the resource.
func (op Release) ResourceName() string { return op.Resource }

// Apply ends the hold. Parts that may still run drain.
func (op Release) Apply(before *Document, now time.Time, settings Settings) (*Document, Result) {
	s := begin(before, op.Resource, now, settings)
	s.recordMissed(&op)
	var draining []Entry
	for _, e := range s.doc.Entries {
		if !op.names(&e) {
			continue
		}
		if op.Force {
			s.recordForced(&op, &e)
		}
		s.homeless = append(s.homeless, filter(e.Bars, func(b *Bar) bool { return op.FirstFence > 0 || b.Order > op.Order })...)
		if !op.stopped(&e) && (e.State == StateDraining || e.State == StateRunning) {
			draining = append(draining, s.drain(e))
		}
	}
	s.doc.Forced = tail(slices.Concat(s.doc.Forced, s.evidence), MaxForced)
	s.recordEnded(filter(s.doc.Entries, func(e *Entry) bool { return op.names(e) && e.State != StateDraining })...)
	s.doc.Entries = append(without(s.doc.Entries, op.names), draining...)
	s.dropDead()
	if op.FirstFence == 0 {
		var queue []Waiter
		if before != nil {
			queue = before.Waiters
		}
		s.removeWaiters(queue, func(w *Waiter) bool {
			return w.LockID == op.LockID && (op.Run == "" || w.Run == op.Run) && w.Order <= op.Order
		})
		s.recordRelease(&op)
	}
	return s.end()
}

// recordForced records that an entry was ended by force: a hold, or with Now a part that was cut off.
func (s *state) recordForced(op *Release, e *Entry) {
	switch {
	case e.Holds():
		s.lose(e, Evidence{Reason: op.Reason})
	case op.Now && e.State == StateDraining:
		cutOff := Evidence{LockID: e.LockID, Run: e.Run, Fence: e.FirstFence, Order: e.Order, Member: e.Member, At: s.now, Reason: op.Reason}
		s.doc.Forced = append(s.doc.Forced, cutOff)
	}
}

// names reports whether the release ends an entry.
func (op *Release) names(e *Entry) bool {
	switch {
	case op.Force:
		return e.LockID == op.LockID && e.FirstFence == op.FirstFence
	case !e.BelongsTo(op.LockID) || (op.Run != "" && e.Run != op.Run):
		return false
	case op.FirstFence > 0:
		return e.FirstFence == op.FirstFence
	}
	return e.Order <= op.Order
}

// stopped reports whether a part is known to have stopped.
func (op *Release) stopped(e *Entry) bool {
	return op.Now || (op.Leaving != nil && e.Part == *op.Leaving && e.Order == op.Order)
}

// recordRelease records the order up to which everything is released, and erases the evidence of losses up to
// it. A release that is repeated keeps the first record. A release of plain requests records nothing,
// because the record would refuse every later plain request.
func (s *state) recordRelease(op *Release) {
	s.doc.Evidence = without(s.doc.Evidence, func(e *Evidence) bool {
		return e.LockID == op.LockID && e.To == "" && (op.Run == "" || e.Run == op.Run) && e.Order <= op.Order
	})
	if was := s.doc.releaseRecord(op.LockID, op.Run); plain(op.Run, op.Order) || (was != nil && was.Order >= op.Order) {
		return
	}
	s.doc.Releases = without(s.doc.Releases, func(old *ReleaseRecord) bool { return old.LockID == op.LockID && old.Run == op.Run })
	s.doc.Releases = tail(append(s.doc.Releases, ReleaseRecord{LockID: op.LockID, Run: op.Run, Order: op.Order}), MaxReleases)
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

// Withdraw turns the waiter of a request into a tombstone with a reason, which must not be empty. See
// Waiter.Verdict. The outcome is Lost if the request does not wait any longer.
type Withdraw struct {
	Resource string
	Caller
	Reason string
}

// ResourceName returns the name of the resource.
func (op Withdraw) ResourceName() string { return op.Resource }

// Apply turns the waiter into a tombstone.
func (op Withdraw) Apply(before *Document, now time.Time, settings Settings) (*Document, Result) {
	s := begin(before, op.Resource, now, settings)
	s.result.Outcome = Lost
	for i := range s.doc.Waiters {
		if w := &s.doc.Waiters[i]; w.SameRequest(&op.Caller) && w.Verdict == "" {
			s.result.Outcome = Granted
			s.recordEnded(asEntry(w))
			w.Verdict, w.OverdueAt = op.Reason, LongAgo
		}
	}
	return s.end()
}

// Settle only settles the document: see the package documentation.
type Settle struct {
	Resource string
}

// ResourceName returns the name of the resource.
func (op Settle) ResourceName() string { return op.Resource }

// Apply settles the document.
func (op Settle) Apply(before *Document, now time.Time, settings Settings) (*Document, Result) {
	return begin(before, op.Resource, now, settings).end()
}
