package rules

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Covers reports whether a hold in mode have suffices for a request in mode want.
func Covers(have, want string) bool { return have == want || (have == Exclusive && want == Shared) }

// Stronger returns the mode of a hold in both modes, of which one may be from before its resource became a pool.
func Stronger(a, b string) string {
	if a == b {
		return a
	}
	return Exclusive
}

// Compatible reports whether two lock IDs may hold in these modes at the same time: of a pool, unless they would have the
// same member.
func Compatible(a, b string) bool { return a == b && (a == Shared || a == Pool) }

// Party contains the fields of a request that decide whether it is compatible with others. The terms
// are those of document.go.
type Party struct {
	LockID string
	Mode   string
	// Limit is the request's own: the number of lock IDs that may hold, including this one; 0 means unlimited, or
	// exclusive mode. Document.LimitFor has the limit that is in force.
	Limit int64
	// Within is the enclosing lock ID, for a step with a lock ID of its own. The enclosing kept hold
	// neither blocks the party nor counts.
	Within string
	// Member is the member of a pool that it must get; "" is any.
	Member string
}

// Party returns the fields of the request that decide about compatibility.
func (op *Acquire) Party() Party {
	return Party{op.LockID, op.Mode, op.Limit, op.Within, op.member}
}

// Party returns the fields of the queued request that decide about compatibility.
func (w *Waiter) Party() Party { return Party{w.LockID, w.Mode, w.Limit, w.Within, w.Member} }

// partyKey is the key under which an entry counts under a limit.
type partyKey struct {
	lockID string
	cutOff bool
}

func (e *Entry) partyKey() partyKey { return partyKey{e.LockID, e.CutOff} }

// Counts reports whether the entry is alive at now and counts under the party's limit: it belongs
// neither to the party nor to the kept hold of the enclosing lock ID.
func (e *Entry) Counts(p Party, now time.Time) bool {
	return !e.BelongsTo(p.LockID) && e.ExpiresAt.After(now) && !p.enclosedBy(e)
}

func (p *Party) enclosedBy(e *Entry) bool {
	return p.Within != "" && e.BelongsTo(p.Within) && e.State == StateKept
}

// Blocks reports whether the entry is alive at now and excludes the party, by its mode or by its member of a pool.
func (e *Entry) Blocks(p Party, now time.Time) bool {
	return e.Counts(p, now) && p.Excludes(e.Mode, e.Member)
}

// Excludes reports whether another party may not hold at the same time, by its mode or its member of a pool.
func (p *Party) Excludes(mode, member string) bool {
	return !Compatible(mode, p.Mode) || (p.Mode == Pool && p.Member != "" && member == p.Member)
}

// Blockers returns the entries that keep the party out at d.At, the server's time of the read. These are the
// entries that exclude it. If there are none and its limit is reached, or no member of a pool is free, these are the
// entries that count.
func (d *Document) Blockers(p Party) []*Entry {
	if p.Mode == Pool {
		return d.prepare().blockers(p, len(d.Entries))
	}
	var excluding, counted []*Entry
	others, limit := map[partyKey]bool{}, d.LimitFor(p.Limit)
	for i := range d.Entries {
		switch e := &d.Entries[i]; {
		case e.Blocks(p, d.At):
			excluding = append(excluding, e)
		case limit > 0 && e.Counts(p, d.At):
			counted = append(counted, e)
			others[e.partyKey()] = true
		}
	}
	if len(excluding) == 0 && limit > 0 && int64(len(others)) >= limit {
		return counted
	}
	return excluding
}

// Admits reports whether the party may hold in addition to all entries that are alive at d.At.
func (d *Document) Admits(p Party) bool {
	if p.Mode == Pool {
		return d.prepare().Admits(p)
	}
	return d.refuses(p) == "" && len(d.Blockers(p)) == 0
}

func (d *Document) excludes(p Party) bool {
	p = p.with(d)
	for i := range d.Entries {
		if d.Entries[i].Blocks(p, d.At) {
			return true
		}
	}
	return false
}

// view answers for a party what the rules below are made of. A Document passes over its entries for each
// answer; prepared has done so once.
type view interface {
	Admits(p Party) bool
	// excludes reports whether a living entry excludes the party, whatever its limit.
	excludes(p Party) bool
	// member returns the member of a pool that the party, or what its enclosing lock ID keeps, has; or "".
	member(p Party) string
	// holds reports whether a lock ID has a hold that meets a condition, also an expired one.
	holds(lockID string, which func(*Entry) bool) bool
	// time is the server's time of the read.
	time() time.Time
}

func (d *Document) time() time.Time { return d.At }

// confirms reports whether a claim suffices for a request of its party, even if the claim has lapsed: it was
// not passed, it was granted under a limit that is not greater, and no living entry excludes the request by
// its mode or its member. The limit is not tested again: the claim keeps its room.
func confirms(v view, claim *Entry, p Party) bool {
	p = p.with(v)
	return !claim.Passed && claim.roomFor(p) && !v.excludes(p)
}

// roomFor reports whether the limit of a claim is not greater than that of a request, or the claim has the member of a pool
// that the request must get.
func (e *Entry) roomFor(p Party) bool {
	if e.Mode == Pool || p.Mode == Pool {
		return e.Mode == p.Mode && e.Member == p.Member
	}
	return p.Limit == 0 || (e.Limit > 0 && e.Limit <= p.Limit)
}

// Precedes reports whether the waiters behind w wait for it: it has not expired, it is neither overdue nor a
// tombstone, and the resource is a pool if and only if it is for a member.
func (d *Document) Precedes(w *Waiter) bool {
	return w.Waits(d.At) && !w.Overdue(d.At) && !d.isOfOtherKind(w.Mode, w.Member)
}

// covered reports whether the party has a live hold in the same mode or a stronger one.
func covered(v view, p Party) bool {
	return v.holds(p.LockID, func(e *Entry) bool { return e.Alive(v.time()) && Covers(e.Mode, p.Mode) })
}

// Joins reports whether the party may join its own hold.
func (d *Document) Joins(p Party) bool { return covered(d, p) && allowsJoin(d, p) }

// allowsJoin reports whether a party that is covered may join its hold. It may not if there is an
// incompatible entry: the lock of a step within its hold, or a part that was cut off. Limits apply to new
// holds only.
func allowsJoin(v view, p Party) bool { return !v.excludes(p) }

func (d *Document) holds(lockID string, which func(*Entry) bool) bool {
	for i := range d.Entries {
		if e := &d.Entries[i]; e.BelongsTo(lockID) && e.Holds() && which(e) {
			return true
		}
	}
	return false
}

// NeedsNoClaim reports whether a request would be granted the resource if it asked again. The queue makes
// no claim for it, so its waiter must be woken. It continues a hold of its party that covers it, even an
// expired one that was not evicted; or it upgrades a hold, or is within what its enclosing lock ID keeps,
// and nothing blocks it.
func (q *Queue) NeedsNoClaim(p Party) bool { return needsNoClaim(q.all, p) }

func needsNoClaim(v view, p Party) bool {
	continues := v.holds(p.LockID, func(e *Entry) bool { return Covers(e.Mode, p.Mode) })
	return (continues && allowsJoin(v, p)) || (skipsQueue(v, p) && v.Admits(p))
}

// SkipsQueue reports whether a request of the party is granted ahead of the queue: its lock ID, or the
// enclosing lock ID, holds the resource, and the waiters wait for that hold.
func (q *Queue) SkipsQueue(p Party) bool { return skipsQueue(q.all, p) }

func skipsQueue(v view, p Party) bool {
	return v.holds(p.LockID, func(*Entry) bool { return true }) || heldByEnclosing(v, p)
}

// HeldByEnclosing reports whether the party's enclosing lock ID keeps the resource.
func (d *Document) HeldByEnclosing(p Party) bool { return heldByEnclosing(d, p) }

func heldByEnclosing(v view, p Party) bool {
	return v.holds(p.Within, func(e *Entry) bool { return p.enclosedBy(e) && e.Alive(v.time()) })
}

// Policy is a rule of an operator for a resource, or for all resources whose names begin alike. It replaces the limit
// of shared requests that have one, for waiters and for new holds, and does not concern other requests; or it makes the
// resource a pool. It ends no hold.
type Policy struct {
	PolicyID `bson:",inline"`
	// Limit is the number of lock IDs that may hold: 1 to MaxPolicyLimit, and 0 for a pool.
	Limit int64 `bson:"limit,omitempty"`
	// Members are those of a pool, of an exact name.
	Members []Member `bson:"members,omitempty"`
	// Until, unless it is nil, is the server's time at which the policy ends.
	Until *time.Time `bson:"until,omitempty"`
	// By, At and Reason record who set it, when and why, for people.
	By     string    `bson:"by"`
	At     time.Time `bson:"at"`
	Reason string    `bson:"reason"`
	// Unreadable is set if the stored policy could not be decoded. Then no request to which it applies is granted anything.
	Unreadable bool `bson:"-"`
}

// Valid reports whether the policy is one that a client can have written: a limit, or a pool.
func (p *Policy) Valid() bool {
	if p.IsPool() {
		return p.checkMembers(nil) == nil && p.Name != ""
	}
	return p.Limit >= 1 && p.Limit <= MaxPolicyLimit && (p.Name != "" || p.Prefix)
}

// PolicyID names a resource, or the beginning of names.
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
	// Edit, if it is set, returns To from the present policy, which is nil if there is none. It may be called several times.
	Edit func(*Policy) (*Policy, error) `bson:"-"`
}

// enables reports whether the change concerns no policy: it only permits priorities.
func (c *PolicyChange) enables() bool { return c.PolicyID == PolicyID{} }

// edit sets To by Edit.
func (c *PolicyChange) edit(list []Policy) (err error) {
	var present *Policy
	for i := range list {
		if list[i].PolicyID == c.PolicyID {
			present = &list[i]
		}
	}
	c.To, err = c.Edit(present)
	return err
}

// ErrNoPolicy reports that there is no policy to remove.
var ErrNoPolicy = errors.New("lockstep: there is no policy")

// RefusedError reports a policy for which there is no room, or which would have ended already.
type RefusedError struct {
	// Field, Value and Bound are those of lockcore.InvalidError.
	Field, Value, Bound string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("lockstep: invalid %s %s: want %s", e.Field, e.Value, e.Bound)
}

// Change sets or removes a policy, and records that. It does not change the lists, but replaces them. After an error, ErrNoPolicy
// or a *RefusedError, nothing has changed.
func (p *Policies) Change(change *PolicyChange) error {
	if change.Edit != nil {
		if err := change.edit(p.List); err != nil {
			return err
		}
	}
	list := slices.DeleteFunc(slices.Clone(p.List), func(old Policy) bool { return old.PolicyID == change.PolicyID })
	switch {
	case change.enables():
	case change.To == nil && len(list) == len(p.List):
		return fmt.Errorf("%w for %s", ErrNoPolicy, change.PolicyID)
	case change.To == nil:
	case change.To.Until != nil && !change.To.Until.After(change.At):
		return &RefusedError{"Policy.Until", change.To.Until.UTC().Format(time.RFC3339), "a time after that of the database, which is " + change.At.UTC().Format(time.RFC3339)}
	case len(list) >= MaxPolicies:
		return &RefusedError{"number of policies", strconv.Itoa(len(list) + 1), fmt.Sprintf("at most %d: remove one first", MaxPolicies)}
	default:
		to := *change.To
		to.PolicyID, to.By, to.At, to.Reason = change.PolicyID, change.By, change.At, change.Reason
		if err := to.checkMembers(list); err != nil {
			return err
		}
		change.To = &to
		list = append(list, to)
	}
	bytes := 0
	for i := range list {
		bytes += len(list[i].Name) + len(list[i].By) + len(list[i].Reason)
		for _, m := range list[i].Members {
			bytes += len(m.Name) + len(m.Reason)
		}
	}
	if bytes > MaxPolicyBytes {
		return &RefusedError{
			"size of all policies", fmt.Sprintf("%d bytes", bytes), fmt.Sprintf("at most %d bytes of names and reasons: remove one, or give shorter reasons", MaxPolicyBytes),
		}
	}
	p.Version.N++
	done := *change
	done.Edit = nil
	p.List, p.Changes = list, append(tail(p.Changes, MaxPolicyChanges-1), done)
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

// Capacity returns the number of lock IDs that may hold in a mode at the same time: the limit that is in force, or the
// number of members of a pool that are in service. 0 is unlimited, or one in exclusive mode.
func (d *Document) Capacity(mode string, own int64) int64 {
	if mode != Pool || !d.Policy.IsPool() {
		return d.LimitFor(own)
	}
	return int64(len(filter(d.Policy.Members, func(m *Member) bool { return !m.Out })))
}

// LimitFor returns the limit that is in force for a request with a limit of its own, which is 0 if it has none.
func (d *Document) LimitFor(own int64) int64 {
	if own == 0 || d == nil || d.Policy == nil || d.Policy.IsPool() {
		return own
	}
	return d.Policy.Limit
}
