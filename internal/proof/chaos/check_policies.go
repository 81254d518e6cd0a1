package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// policies returns the policies that may have been in force at some time between from and to.
type policies struct {
	from, to int64
	list     []Policy
}

// readPolicies returns what the policies were: what the operator has logged, in the order of the audit. Between the begin of a call and
// its answer, or the time at which the audit showed the change, it may have been in force already, or not yet.
func readPolicies(records []Record) []policies {
	changes := map[string]*Record{}
	for i := range records {
		if r := &records[i]; r.What == Change {
			changes[r.Key] = r
		}
	}
	all := []policies{{from: math.MinInt64, to: math.MaxInt64}}
	for i := range records {
		r := &records[i]
		if r.What != Audited {
			continue
		}
		last := &all[len(all)-1]
		to, next := r.Policy, policies{from: last.from, to: math.MaxInt64}
		last.to = r.At
		if c := changes[r.Key]; c != nil {
			to, next.from = c.Policy, c.Began
			if c.Result == done {
				last.to = min(last.to, c.At)
			}
		}
		next.list = slices.DeleteFunc(slices.Clone(last.list), func(p Policy) bool { return p.Name == to.Name && p.Prefix == to.Prefix })
		if to.Limit > 0 {
			next.list = append(next.list, *to)
		}
		slices.SortFunc(next.list, func(a, b Policy) int {
			if a.precedes(&b) {
				return -1
			}
			return 1
		})
		all = append(all, next)
	}
	return all
}

// limitsOf returns the smallest and the greatest limit of a request that may have been in force in a time. The limit own is that of the
// request itself. The clocks of the database and of this program may differ by a moment.
func (s *story) limitsOf(resource string, own int, from, to int64) (least, greatest int) {
	const differ = int64(time.Second)
	least = math.MaxInt
	for _, state := range s.policies {
		begin, end := max(from, state.from), min(to, state.to)
		if begin > end {
			continue
		}
		limits := []int{own}
		for i := range slices.Backward(state.list) { // the winner comes last
			p := &state.list[i]
			switch {
			case !p.applies(resource) || p.Until > 0 && p.Until < begin-differ:
			case p.Until > 0 && p.Until <= end+differ: // it may have ended
				limits = append(limits, p.Limit)
			default:
				limits = []int{p.Limit}
			}
		}
		least, greatest = min(least, slices.Min(limits)), max(greatest, slices.Max(limits))
	}
	return least, greatest
}

// limits finds a semaphore that more parties trusted at the same time than each limit of the last ten seconds before the last of them was
// granted it. The decision for a party that a fault concerned may have reached the database late.
func (s *story) limits() (found []string) {
	for name, leases := range s.resources() {
		for _, l := range leases {
			if l.Limit == 0 || !l.seen {
				continue
			}
			others, granted, late := 0, l.asked, time.Duration(0)
			for _, other := range leases {
				if !other.seen || other.first > l.first || l.first > other.trusted {
					continue
				}
				if other != l {
					others++
				}
				granted = max(granted, other.asked)
				if s.faulty(other.Slot, other.asked, l.first) {
					late = stuckBound
				}
			}
			_, limit := s.limitsOf(name, l.Limit, granted-int64(adopted+late), l.first)
			if limit < l.Limit {
				s.limited++
			}
			if others >= limit {
				found = append(found, fmt.Sprintf("%s: %s trusted one of %d permits at %s, while %d others trusted theirs", name, l.LockID, limit, s.at(l.first), others))
			}
		}
	}
	return found
}

// waiters finds a request for a semaphore that waited in vain although there was room for it under each limit of the last ten seconds,
// whenever the queue was read. No fault concerned it, and it was not overdue.
func (s *story) waiters() (found []string) {
	looks, refusals := map[[2]string][]*Record{}, map[string]*Record{}
	room := map[[2]string]bool{}
	for i := range s.records {
		switch r := &s.records[i]; r.What {
		case Not:
			if r.Result == refused {
				refusals[r.LockID] = r
			}
		case Queue:
			for n, id := range r.LockIDs {
				key := [2]string{id, r.Resource}
				ask := s.asked[key]
				if ask == nil || ask.Limit == 0 {
					continue
				}
				least, _ := s.limitsOf(r.Resource, ask.Limit, r.Began-int64(adopted), r.At)
				room[key] = (len(looks[key]) == 0 || room[key]) && r.Heard[n] > r.At && r.Holders < least
				looks[key] = append(looks[key], r)
			}
		}
	}
	for key, seen := range looks {
		ask, end := s.asked[key], refusals[key[0]]
		waited := time.Duration(seen[len(seen)-1].Began - seen[0].At)
		if end == nil || waited < ttl || s.faulty(ask.Slot, ask.At-int64(adopted), end.At) {
			continue
		}
		s.refused++
		if room[key] {
			found = append(found, fmt.Sprintf("%s: %s asked at %s, was seen in the queue for %v, and was refused, although %d holders left room for it",
				key[1], key[0], s.at(ask.At), waited.Round(time.Millisecond), seen[len(seen)-1].Holders))
		}
	}
	return found
}

// ownClock is the reason of a loss that a session has found by its own clock. The database has reported the others.
const ownClock = "it could not be renewed in time"

// losses finds a lease that the database reported lost although its holder trusted it just before: it cannot have expired.
func (s *story) losses() (found []string) {
	for i := range s.records {
		r := &s.records[i]
		if r.What != Loss || strings.Contains(r.Error, ownClock) {
			continue
		}
		if l := s.byID[[2]string{r.LockID, r.Resource}]; l != nil && l.seen && r.At-l.trusted < int64(ttl/10) {
			found = append(found, fmt.Sprintf("%s: %s trusted its lease at %s, and had lost it at %s: %s", l.Resource, l.LockID, s.at(l.trusted), s.at(r.At), r.Error))
		}
	}
	return found
}

// audit finds changes of policies that succeeded and that the audit does not show, and changes that it shows although none was made.
func (s *story) audit() (found []string) {
	made, shown := map[string]*Record{}, map[string]bool{}
	for i := range s.records {
		if r := &s.records[i]; r.What == Change {
			made[r.Key] = r
		}
	}
	for i := range s.records {
		r := &s.records[i]
		if r.What != Audited {
			continue
		}
		shown[r.Key] = true
		c := made[r.Key]
		if c == nil || c.Policy.Name != r.Policy.Name || c.Policy.Prefix != r.Policy.Prefix || c.Policy.Limit != r.Policy.Limit || (c.Policy.Until == 0) != (r.Policy.Until == 0) {
			found = append(found, fmt.Sprintf("the audit shows %q, %+v, which nobody did", r.Key, *r.Policy))
		}
	}
	for key, c := range made {
		if c.Result == done && !shown[key] {
			found = append(found, fmt.Sprintf("the audit does not show %q at %s, %+v", key, s.at(c.At), *c.Policy))
		}
	}
	return found
}
