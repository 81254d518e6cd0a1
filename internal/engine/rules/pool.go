package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// A pool is a resource whose policy lists members. A request in mode Pool gets one of them: any that is free, or, if its
// party has a member or has lost one, that member. There is one document and one queue for all members.

// Member is a member of a pool.
type Member struct {
	Name string `bson:"name"`
	// Out is set while the member is out of service. It is granted only to a party that has lost it.
	Out bool `bson:"out,omitempty"`
	// Reason is why it is out of service, for people.
	Reason string `bson:"reason,omitempty"`
}

// IsPool reports whether the policy lists members.
func (p *Policy) IsPool() bool { return p != nil && len(p.Members) > 0 }

// checkMembers returns an error if the policy may not be added to others because of its members.
func (p *Policy) checkMembers(others []Policy) error {
	of := map[string]PolicyID{}
	for i := range others {
		for _, m := range others[i].Members {
			of[m.Name] = others[i].PolicyID
		}
	}
	for _, m := range p.Members {
		other, listed := of[m.Name]
		switch {
		case m.Name == "":
			return &RefusedError{"Policy.Members", `""`, "names of 1 byte or more"}
		case listed && other == p.PolicyID:
			return &RefusedError{"Policy.Members", strconv.Quote(m.Name), "each member once"}
		case listed:
			return &RefusedError{"Policy.Members", strconv.Quote(m.Name), fmt.Sprintf("no member of another pool, which would be granted twice: remove it from the pool %s first", other)}
		}
		of[m.Name] = p.PolicyID
	}
	if p.IsPool() && (p.Prefix || p.Until != nil || p.Limit != 0) {
		return &RefusedError{"Policy.Members", "set", "none with a prefix, a limit or an end"}
	}
	return nil
}

// refuses returns the outcome of a new request to which the resource's policy does not apply, or "": a policy that cannot
// be decoded decides about it, or one of the two is for a pool and the other is not. A request for a certain member needs
// no policy.
func (d *Document) refuses(p Party) Outcome {
	switch {
	case d.Policy != nil && d.Policy.Unreadable && (p.Limit > 0 || p.Mode == Pool):
		return Unreadable
	case d.isOfOtherKind(p.Mode, p.Member) && p.Mode == Pool:
		return NoPool
	case d.isOfOtherKind(p.Mode, p.Member):
		return OnlyPool
	}
	return ""
}

// isOfOtherKind reports whether a request is for a member of a pool and the resource is none, or the other way round.
func (d *Document) isOfOtherKind(mode, member string) bool {
	return (mode == Pool) != d.Policy.IsPool() && (mode != Pool || member == "")
}

// with returns the party with the member of the pool that it must get, if there is one: that of its own entries, of what
// its enclosing lock ID keeps, or the lost one.
func (p Party) with(v view) Party {
	if p.Mode == Pool {
		p.Member = cmp.Or(v.member(p), p.Member)
	}
	return p
}

// givesMember reports whether the entry decides which member a party gets.
func (e *Entry) givesMember(p *Party, now time.Time) bool {
	if e.Member == "" {
		return false
	}
	if p.Within != "" && e.keeps(p.Within) {
		return true
	}
	switch e.State {
	case StateDraining:
		return e.BelongsTo(p.LockID) && e.Alive(now)
	case StateClaimed: // of any member, perhaps from before the loss
		return e.BelongsTo(p.LockID) && p.Member == ""
	}
	return e.BelongsTo(p.LockID)
}

func (d *Document) member(p Party) string { return d.prepare().member(p) }

// member returns the member of what the party has itself, whatever its enclosing lock ID has got since, and of its hold rather
// than of a claim.
func (p *prepared) member(of Party) string {
	for _, lockID := range []string{of.LockID, of.Within} {
		claimed := ""
		for _, e := range p.of[lockID] {
			if !e.givesMember(&of, p.d.At) {
				continue
			}
			if e.State != StateClaimed {
				return e.Member
			}
			claimed = e.Member
		}
		if claimed != "" {
			return claimed
		}
	}
	return ""
}

// reservedFor returns, by member, the lock ID of the first waiter that must get it. The member is granted to no other one.
func (d *Document) reservedFor() map[string]string {
	reserved := map[string]string{}
	for i := range d.Waiters {
		if w := &d.Waiters[i]; w.Member != "" && d.Precedes(w) && reserved[w.Member] == "" {
			reserved[w.Member] = w.LockID
		}
	}
	return reserved
}

// hasMemberFor reports whether there is a member for a party that no living entry excludes. Another waiter must not get
// the member first, unless that one waits for the party's own hold or for that of its enclosing lock ID.
func (p *prepared) hasMemberFor(of Party) bool {
	if of.Member != "" {
		reserved := p.reserved[of.Member]
		return reserved == "" || reserved == of.LockID || skipsQueue(p, of)
	}
	return p.choose() != ""
}

// choose returns the member for a party that may get any one, or "" if none is free: in turn after the member that was
// granted last, the next one that no entry has, and otherwise that of the expired hold that ended first.
func (p *prepared) choose() (member string) {
	if !p.d.Policy.IsPool() {
		return ""
	}
	members := p.d.Policy.Members
	last := slices.IndexFunc(members, func(m Member) bool { return m.Name == p.d.LastMember })
	var first time.Time
	for n := range members {
		m := &members[(last+1+n)%len(members)]
		used := p.members[m.Name]
		switch {
		case m.Out || p.reserved[m.Name] != "":
		case len(used) == 0:
			return m.Name
		case slices.ContainsFunc(used, func(e *Entry) bool { return e.Alive(p.d.At) }):
		default:
			if ended := lastEnd(used); member == "" || ended.Before(first) {
				member, first = m.Name, ended
			}
		}
	}
	return member
}

// lastEnd returns the latest expiry of some entries.
func lastEnd(entries []*Entry) (at time.Time) {
	for _, e := range entries {
		at = Later(at, e.ExpiresAt)
	}
	return at
}

// lostMember returns the member that a request must get, because its lock ID has lost it, in whichever run; or "".
func (s *state) lostMember(op *Acquire) string {
	if op.member != "" || op.Mode != Pool || !op.Reacquire {
		return op.member
	}
	if e := s.doc.LossEvidence(op.LockID, "", time.Time{}); e != nil {
		return e.Member
	}
	return ""
}

// withMember returns the party of a grant with its member. Only a grant chooses one.
func (s *state) withMember(p Party) Party {
	if p = p.with(s.doc); p.Mode == Pool && p.Member == "" {
		p.Member = s.doc.prepare().choose()
		s.doc.LastMember = p.Member
	}
	return p
}
