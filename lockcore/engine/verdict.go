package engine

// Verdict is what a document says of a request, once the request's write has been applied to it.
type Verdict int

const (
	// Granted: the part stands, and may trust until its expiry.
	Granted Verdict = iota
	// Queued: a place in the queue stands.
	Queued
	// Busy: others are in the way, and there is no place in the queue.
	Busy
	// Lost: the lock ID held before and does not any more.
	Lost
	// Full: the queue has no room.
	Full
	// Overtaken: a later request of the same part, or a release, came first.
	Overtaken
)

// Judge reads the outcome of a from the document that its write left.
func (a *Acquire) Judge(d *Document) Verdict {
	if _, ok := d.Overtaker(a.LockID, a.Part, a.Order); ok {
		return Overtaken
	}
	if p := d.Part(a.LockID, a.Part, a.Order); p != nil && Covers(p.Mode, a.Mode) {
		return Granted
	}
	switch {
	case a.Lost(d):
		return Lost
	case d.Last.Position > 0:
		return Queued
	case a.Queue && !a.Refresh && d.Last.Length >= a.MaxWaiters:
		return Full
	}
	return Busy
}

// Covers tells whether holding in mode have is enough for who asks for mode want.
func Covers(have, want string) bool { return have == Exclusive || want == SharedBy }

// Compatible tells whether two lock IDs may hold in these modes at the same time.
func Compatible(a, b string) bool { return a == SharedBy && b == SharedBy }

// Lost tells whether a finds that its lock ID lost the hold.
func (a *Acquire) Lost(d *Document) bool {
	if a.Reacquire || d.Hold(a.LockID) != nil {
		return false
	}
	return a.Held || (a.Keep && d.EvictedRecord(a.LockID) != nil)
}

// Hold returns the hold of a lock ID, or nil.
func (d *Document) Hold(lockID string) *Hold {
	if d.Exclusive.Acquired && d.Exclusive.LockID == lockID {
		return &d.Exclusive
	}
	for i := range d.Shared.Locks {
		if d.Shared.Locks[i].LockID == lockID {
			return &d.Shared.Locks[i]
		}
	}
	return nil
}

// Part returns the part with exactly this order that may still be renewed, or nil.
func (d *Document) Part(lockID, part string, order int64) *Part {
	for i := range d.Parts {
		p := &d.Parts[i]
		if p.LockID == lockID && p.Part == part && p.Order == order && !p.Revoked {
			return p
		}
	}
	return nil
}

// EvictedRecord returns what is remembered of a lock ID's displacement, or nil.
func (d *Document) EvictedRecord(lockID string) *Evicted {
	for i := range d.Evicted {
		if d.Evicted[i].LockID == lockID {
			return &d.Evicted[i]
		}
	}
	return nil
}

// Overtaker returns what overtook a request: a release up to its order or beyond, or a later request of
// the same part.
func (d *Document) Overtaker(lockID, part string, order int64) (by Released, ok bool) {
	for _, r := range d.Released {
		if r.LockID == lockID && (r.Part == nil || *r.Part == part) && r.Order >= order {
			return r, true
		}
	}
	for _, p := range d.Parts {
		if p.LockID == lockID && p.Part == part && (p.Order > order || (p.Order == order && p.Revoked)) {
			return Released{LockID: lockID, Part: &p.Part, Order: p.Order}, true
		}
	}
	return Released{}, false
}
