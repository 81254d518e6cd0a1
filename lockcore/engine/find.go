package engine

// Covers tells whether holding in mode have is enough for who asks for mode want.
func Covers(have, want string) bool { return have == Exclusive || want == SharedBy }

// Compatible tells whether two lock IDs may hold in these modes at the same time.
func Compatible(a, b string) bool { return a == SharedBy && b == SharedBy }

// Part returns the part with exactly this order that may still be renewed, or nil.
func (d *Document) Part(lockID, part string, order int64) *Entry {
	return d.find(lockID, part, func(e *Entry) bool { return e.State == Part && e.Order == order })
}

// Claim returns the claim made for a request, or nil.
func (d *Document) Claim(lockID, part string) *Entry {
	return d.find(lockID, part, func(e *Entry) bool { return e.State == Claimed })
}

// Told returns the entry that tells of a lock ID's hold, or nil.
func (d *Document) Told(lockID string) *Entry {
	for i := range d.Held {
		if e := &d.Held[i]; e.LockID == lockID && e.Holds() && e.CreatedAt != nil {
			return e
		}
	}
	return nil
}

func (d *Document) find(lockID, part string, which func(*Entry) bool) *Entry {
	for i := range d.Held {
		if e := &d.Held[i]; e.LockID == lockID && e.Part == part && which(e) {
			return e
		}
	}
	return nil
}

// EvictedRecord returns what is remembered of a lock ID's displacement, or nil.
func (d *Document) EvictedRecord(lockID string) *Evicted {
	for i := len(d.Evicted) - 1; i >= 0; i-- {
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
	if e := d.Later(lockID, part, order); e != nil {
		return Released{LockID: lockID, Part: &e.Part, Order: e.Order}, true
	}
	return Released{}, false
}

// Later returns the entry of a later request of the same part, or of this one when it was cut off; or nil.
func (d *Document) Later(lockID, part string, order int64) *Entry {
	return d.find(lockID, part, func(e *Entry) bool {
		return e.State != Kept && (e.Order > order || (e.Order == order && e.State == Draining))
	})
}
