package rules

import "time"

// RenewParts renews many parts, each like Renew, in one pass over the document. A part that is missing, or
// drains, is not renewed. The outcome is Granted even then: the document shows which parts it contains.
type RenewParts struct {
	Policy
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
func (op RenewParts) Apply(before *Document, now time.Time) (*Document, Result) {
	s := begin(before, op.Resource, op.Policy, now)
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
