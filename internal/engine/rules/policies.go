package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Policy is what an operator has set for a resource, or for all resources whose names begin alike. It replaces the limit
// of shared requests that have one, for waiters and for new holds. It ends no hold, and does not concern other requests.
type Policy struct {
	PolicyID `bson:",inline"`
	// Limit is the number of lock IDs that may hold: 1 to MaxPolicyLimit.
	Limit int64 `bson:"limit"`
	// Until, unless it is nil, is the server's time at which the policy ends.
	Until *time.Time `bson:"until,omitempty"`
	// By, At and Reason record who set it, when and why, for people.
	By     string    `bson:"by"`
	At     time.Time `bson:"at"`
	Reason string    `bson:"reason"`
	// Unreadable is set if the stored policy could not be decoded. Then no request to which it applies is granted anything.
	Unreadable bool `bson:"-"`
}

// PolicyID is what a policy is for.
type PolicyID struct {
	// Name is the name of the resource; with Prefix, the beginning of names.
	Name   string `bson:"name"`
	Prefix bool   `bson:"prefix,omitempty"`
}

// String returns the name, or the prefix with a star.
func (id PolicyID) String() string {
	if id.Prefix {
		return strconv.Quote(id.Name + "*")
	}
	return strconv.Quote(id.Name)
}

// Bounds of policies.
const (
	MaxPolicies      = 1000
	MaxPolicyBytes   = 256 << 10
	MaxPolicyLimit   = 1_000_000
	MaxPolicyChanges = 20
)

// Policies are those of a collection. A nil *Policies has none.
type Policies struct {
	// Version changes with every change of the list.
	Version Version
	List    []Policy
	// Changes has the last MaxPolicyChanges changes, the latest last, for the audit.
	Changes []PolicyChange
}

// PolicyChange records a change of one policy. To is nil if it was removed.
type PolicyChange struct {
	PolicyID `bson:",inline"`
	To       *Policy   `bson:"to,omitempty"`
	By       string    `bson:"by"`
	At       time.Time `bson:"at"`
	Reason   string    `bson:"reason"`
}

// Change sets or removes a policy, and records that. It does not change the lists, but replaces them. After an error nothing has
// changed.
func (p *Policies) Change(change *PolicyChange) error {
	list := slices.DeleteFunc(slices.Clone(p.List), func(old Policy) bool { return old.PolicyID == change.PolicyID })
	switch {
	case change.To == nil && len(list) == len(p.List):
		return fmt.Errorf("lockstep: there is no policy for %s", change.PolicyID)
	case change.To == nil:
	case len(list) >= MaxPolicies:
		return fmt.Errorf("lockstep: there are %d policies already: remove one first", MaxPolicies)
	default:
		to := *change.To
		to.PolicyID, to.By, to.At, to.Reason = change.PolicyID, change.By, change.At, change.Reason
		change.To = &to
		list = append(list, to)
	}
	bytes := 0
	for i := range list {
		bytes += len(list[i].Name) + len(list[i].By) + len(list[i].Reason)
	}
	if bytes > MaxPolicyBytes {
		return fmt.Errorf("lockstep: the names and reasons of all policies would have %d bytes, and may have %d: remove one, or give shorter reasons", bytes, MaxPolicyBytes)
	}
	p.Version.N++
	p.List, p.Changes = list, append(tail(p.Changes, MaxPolicyChanges-1), *change)
	return nil
}

// For returns the policy that applies to a resource at a time, or nil. The exact name wins over prefixes, and a longer
// prefix over a shorter one.
func (p *Policies) For(resource string, at time.Time) *Policy {
	if p == nil {
		return nil
	}
	var best *Policy
	for i := range p.List {
		one := &p.List[i]
		switch {
		case !one.names(resource), one.Until != nil && !one.Until.After(at):
		case best == nil, !one.Prefix || len(one.Name) > len(best.Name):
			best = one
		}
	}
	return best
}

// names reports whether the policy is for a resource.
func (id *PolicyID) names(resource string) bool {
	if id.Prefix {
		return strings.HasPrefix(resource, id.Name)
	}
	return id.Name == resource
}

// LimitFor returns the limit that is in force for a request with a limit of its own, which is 0 if it has none.
func (d *Document) LimitFor(own int64) int64 {
	if own == 0 || d == nil || d.Policy == nil {
		return own
	}
	return d.Policy.Limit
}

// limitUnknown reports whether a policy that cannot be decoded decides about a request.
func (d *Document) limitUnknown(own int64) bool {
	return own > 0 && d.Policy != nil && d.Policy.Unreadable
}
