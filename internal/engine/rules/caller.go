package rules

import "slices"

// Caller identifies a request: who asks, in the name of whom. Operations on one request embed its Caller, and so do the
// waiters and the entries that the request makes. Operations and records of a whole lock ID do not, because a Part in
// them would have no meaning.
type Caller struct {
	// LockID names the hold. Requests of one lock ID never block each other.
	LockID string `bson:"lockId"`
	// Run is the workflow run for which the request is made, empty outside of Temporal.
	Run string `bson:"run,omitempty"`
	// Part names the user of the hold. It is empty in a kept entry.
	Part  string `bson:"part"`
	Order int64  `bson:"order"`
	// Saga is the path of the request's saga: see Bar.
	Saga string `bson:"saga,omitempty"`
	// Within is the enclosing lock ID.
	Within string `bson:"within,omitempty"`
}

// SamePart reports whether both are requests of one part.
func (c *Caller) SamePart(o *Caller) bool { return c.LockID == o.LockID && c.Part == o.Part }

// SameRequest reports whether both are the request of one part with one order.
func (c *Caller) SameRequest(o *Caller) bool { return c.SamePart(o) && c.Order == o.Order }

// isUpTo reports whether the request is another one, or an earlier one of its part.
func (c *Caller) isUpTo(o *Caller) bool { return c.SamePart(o) && c.Order <= o.Order }

// bytes returns the length of the texts.
func (c *Caller) bytes() int {
	return len(c.LockID) + len(c.Run) + len(c.Part) + len(c.Saga) + len(c.Within)
}

// BelongsTo reports whether the entry is a lock ID's own. A draining part that was cut off (CutOff) also
// blocks its own lock ID, so it is treated like an entry of another party.
func (e *Entry) BelongsTo(lockID string) bool { return e.LockID == lockID && !e.CutOff }

// ofPart reports whether the entry is a lock ID's own, and of the same part as a request.
func (e *Entry) ofPart(c *Caller) bool { return e.BelongsTo(c.LockID) && e.Part == c.Part }

// Part returns the running part of a request with exactly its order, or nil.
func (d *Document) Part(c Caller) *Entry {
	return d.last(&c, func(e *Entry) bool { return e.State == StateRunning && e.Order == c.Order })
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

// Tombstone returns the waiter of a request's part that was withdrawn to end a deadlock, or nil.
func (d *Document) Tombstone(c Caller) *Waiter {
	i := slices.IndexFunc(d.Waiters, func(w Waiter) bool { return w.SamePart(&c) && w.Verdict != "" })
	if i < 0 {
		return nil
	}
	return &d.Waiters[i]
}
