package rules

import "time"

// Renew extends a part by its TTL, and its kept hold.
type Renew struct {
	Resource string
	Caller
	// Downgrade makes the part shared, and what its lock ID keeps if no other part is running.
	Downgrade bool
	// TTL, unless 0, is the part's new TTL from now on, even if the part then ends sooner. It is for
	// parts whose lease nothing trusts. A part that has expired is not renewed: it is superseded.
	TTL int64
}

// ResourceName returns the name of the resource.
func (op Renew) ResourceName() string { return op.Resource }

// Apply renews the part. If the part is missing or drains, nothing is renewed.
func (op Renew) Apply(before *Document, now time.Time, settings Settings) (*Document, Result) {
	s := begin(before, op.Resource, now, settings)
	p := s.doc.Part(op.Caller)
	switch {
	case p == nil:
		s.result.Outcome = Lost
	case op.TTL > 0 && !p.Alive(s.now):
		s.result.Outcome = Superseded
	default:
		if op.Downgrade {
			s.downgrade(p.ID, op)
		}
		for i := range s.doc.Entries {
			e := &s.doc.Entries[i]
			if !op.renews(e) {
				continue
			}
			e.ExpiresAt = Later(e.ExpiresAt, expiry(now, e.TTL))
			if op.TTL > 0 {
				e.TTL, e.ExpiresAt = op.TTL, expiry(now, op.TTL)
			}
			e.RenewedAt = &s.now
		}
		s.renewKept(op.LockID)
	}
	return s.end()
}

// renews reports whether an entry belongs to the part.
func (op *Renew) renews(e *Entry) bool {
	return e.ofPart(&op.Caller) && e.State == StateRunning && e.Order == op.Order
}

// downgrade makes the entries of a part shared, and the settled entry too if no other part is running. Of a
// part that was upgraded only the latest entry stays.
func (s *state) downgrade(latest string, op Renew) {
	ofPart := map[string]bool{}
	for _, e := range filter(s.doc.Entries, op.renews) {
		ofPart[e.ID] = true
	}
	s.doc.Entries = without(s.doc.Entries, func(e *Entry) bool { return op.renews(e) && e.ID != latest })
	alone := !s.anyEntry(func(e *Entry) bool { return e.BelongsTo(op.LockID) && e.State == StateRunning && e.ID != latest })
	for i := range s.doc.Entries {
		e := &s.doc.Entries[i]
		part, madeWithPart := e.partOf()
		own := e.ID == latest || (madeWithPart && ofPart[part]) || (e.isSettled() && alone)
		if own && e.BelongsTo(op.LockID) && e.Mode == Exclusive {
			s.downgraded = append(s.downgraded, *e)
			e.Mode = Shared
		}
	}
}

// RenewParts renews many parts, each like Renew, in one pass over the document. A part that is missing, or
// drains, is not renewed. The outcome is Granted even then: the document shows which parts it contains.
type RenewParts struct {
	Resource string
	Parts    map[PartID]bool
}

// PartID names a part with exactly this order.
type PartID struct {
	LockID, Part string
	Order        int64
}

// PartID returns the part of the request, with its order.
func (c *Caller) PartID() PartID { return PartID{c.LockID, c.Part, c.Order} }

// ResourceName returns the name of the resource.
func (op RenewParts) ResourceName() string { return op.Resource }

// Apply renews the parts, and the kept entries of their lock IDs of whose time half is over.
func (op RenewParts) Apply(before *Document, now time.Time, settings Settings) (*Document, Result) {
	s := begin(before, op.Resource, now, settings)
	renewed := map[string]bool{}
	for i := range s.doc.Entries {
		if e := &s.doc.Entries[i]; e.State == StateRunning && !e.CutOff && op.Parts[e.PartID()] {
			e.ExpiresAt, e.RenewedAt = Later(e.ExpiresAt, expiry(now, e.TTL)), &s.now
			renewed[e.LockID] = true
		}
	}
	for i := range s.doc.Entries {
		if e := &s.doc.Entries[i]; e.State == StateKept && !e.CutOff && renewed[e.LockID] && e.ExpiresAt.Before(now.Add(ms(e.TTL)/2)) {
			e.ExpiresAt = Later(e.ExpiresAt, expiry(now, e.TTL))
		}
	}
	return s.end()
}
