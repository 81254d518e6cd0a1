package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// Violation is a broken guarantee.
type Violation struct{ Check, Text string }

// checks are pure functions over the records of a run, in the order of time.
var checks = []struct {
	name  string
	check func(*story) []string
}{
	{"trust", (*story).trust},
	{"limits", (*story).limits},
	{"waiters", (*story).waiters},
	{"losses", (*story).losses},
	{"audit", (*story).audit},
	{"fences", (*story).fences},
	{"order", (*story).order},
	{"lost updates", (*story).lostUpdates},
	{"isolation", (*story).isolation},
	{"sagas", (*story).sagas},
	{"crashes", (*story).crashes},
	{"left locks", (*story).leftLocks},
	{"linearizability", (*story).linearizability},
	{"recovery", (*story).recovery},
}

// Check returns the violations that the log proves.
func (s *story) Check() (found []Violation) {
	for _, c := range checks {
		for _, text := range c.check(s) {
			found = append(found, Violation{c.name, text})
		}
	}
	return found
}

// lease contains the facts known about one lease.
type lease struct {
	Record // of its grant
	// asked is the time before the request.
	asked int64
	// first and trusted are the first and the last time at which the lease was seen to be valid; seen is set if it was. A process that
	// was stopped until its answer came may have a lease that never was.
	first, trusted int64
	seen           bool
}

// overlaps reports whether two leases were trusted at the same time.
func (l *lease) overlaps(other *lease) bool {
	return l.seen && other.seen && l.first <= other.trusted && other.first <= l.trusted
}

// partyOf returns the lock ID without the number of the attempt of a saga's step.
func partyOf(lockID string) string {
	name, _, _ := strings.Cut(lockID, "@")
	return name
}

// story is the content of a log.
type story struct {
	records []Record
	began   int64
	leases  []*lease
	byID    map[[2]string]*lease // by lock ID and resource
	asked   map[[2]string]*Record
	died    map[string]int64 // by process
	// disturbed lists the faults that acted or may have acted, each with the time of its end.
	disturbed []disturbance
	// policies are the limits that operators set, in the order of time. limited counts the grants of semaphores whose limit they had
	// lowered, and refused the requests that waited in vain.
	policies         []policies
	limited, refused int
	// histories counts the histories that the check of linearizability has decided, and undecided the other histories. compared
	// counts the pairs of requests whose order was compared.
	histories, undecided, compared int
}

type disturbance struct {
	*Fault
	from, to int64
	acted    bool
}

func read(records []Record) *story {
	s := &story{records: records, byID: map[[2]string]*lease{}, asked: map[[2]string]*Record{}, died: map[string]int64{}}
	s.policies = readPolicies(records)
	open := map[int]*disturbance{}
	for i := range records {
		r := &records[i]
		if i == 0 || r.What == Total && r.Version == 0 { // the load begins
			s.began = r.At
		}
		key := [2]string{r.LockID, r.Resource}
		switch r.What {
		case Asked:
			s.asked[key] = r
		case Got:
			l := &lease{Record: *r, asked: cmp.Or(r.Began, r.At)}
			if a := s.asked[key]; a != nil {
				l.Limit = a.Limit
			}
			s.leases = append(s.leases, l)
			s.byID[key] = l
		case Trusted:
			if l := s.byID[key]; l != nil {
				if !l.seen {
					l.first, l.seen = r.At, true
				}
				l.trusted = r.At
			}
		case Dead:
			s.died[r.Process] = r.At
		case Began:
			open[r.Number] = &disturbance{Fault: r.Fault, from: r.At, to: 1<<63 - 1}
		case Acted:
			open[r.Number].acted = true
		case Ended:
			open[r.Number].to = r.At
		}
	}
	for _, d := range open {
		s.disturbed = append(s.disturbed, *d)
	}
	slices.SortFunc(s.disturbed, func(a, b disturbance) int { return cmp.Compare(a.from, b.from) })
	slices.SortFunc(s.leases, func(a, b *lease) int { return cmp.Compare(a.At, b.At) })
	return s
}

// at formats a time.
func (s *story) at(t int64) string { return fmt.Sprintf("%.3f s", float64(t-s.began)/1e9) }

// resources returns the leases of each resource, in the order of their grants.
func (s *story) resources() map[string][]*lease {
	all := map[string][]*lease{}
	for _, l := range s.leases {
		all[l.Resource] = append(all[l.Resource], l)
	}
	return all
}

// trust finds an exclusive lease that a process trusted while another party trusted its own.
func (s *story) trust() (found []string) {
	for name, leases := range s.resources() {
		for i, l := range leases {
			for _, earlier := range leases[:i] {
				if earlier.overlaps(l) && partyOf(earlier.LockID) != partyOf(l.LockID) && !(earlier.Shared && l.Shared) {
					found = append(found, fmt.Sprintf("%s: %s trusted its lease from %s to %s, and %s from %s to %s",
						name, l.LockID, s.at(l.first), s.at(l.trusted), earlier.LockID, s.at(earlier.first), s.at(earlier.trusted)))
				}
			}
		}
	}
	return found
}

// fences finds a grant whose fence is not greater than that of a grant that was known before it was asked for, or that
// occurs twice. It also finds an exclusive lease that was valid after another party's, and whose fence is not greater. Steps of one
// saga share the fence of its hold.
func (s *story) fences() (found []string) {
	for name, leases := range s.resources() {
		seen := map[int64]*lease{}
		for i, l := range leases {
			if other := seen[l.Fence]; other != nil && partyOf(other.LockID) != partyOf(l.LockID) {
				found = append(found, fmt.Sprintf("%s: %s and %s have the same fence %d", name, other.LockID, l.LockID, l.Fence))
			}
			seen[l.Fence] = l
			for _, earlier := range leases[:i] {
				if earlier.seen && l.seen && !earlier.Shared && !l.Shared && partyOf(earlier.LockID) != partyOf(l.LockID) &&
					earlier.trusted < l.trusted && earlier.Fence > l.Fence {
					found = append(found, fmt.Sprintf("%s: %s trusted fence %d at %s, after %s had trusted fence %d",
						name, l.LockID, l.Fence, s.at(l.trusted), earlier.LockID, earlier.Fence))
				}
			}
			if strings.Contains(l.LockID, "@") {
				continue // the log does not have the time at which a step asked
			}
			for _, earlier := range leases[:i] {
				if earlier.At < l.asked && earlier.Fence >= l.Fence {
					found = append(found, fmt.Sprintf("%s: %s asked at %s and got fence %d, but %s had fence %d since %s",
						name, l.LockID, s.at(l.asked), l.Fence, earlier.LockID, earlier.Fence, s.at(earlier.At)))
				}
			}
		}
	}
	return found
}

// order finds a request that was granted before one that had been seen in the queue before the later one was asked for, and that
// still waited after the grant. Both are exclusive, no fault concerned the earlier one, and it was not overdue yet when the other was
// granted: the queue passes over a waiter that is not heard of. Steps are left out: they refresh their requests at other times.
func (s *story) order() (found []string) {
	type look struct{ began, at, heard int64 }
	looks := map[[2]string][]look{} // at a request that surely was in the queue
	for i := range s.records {
		if r := &s.records[i]; r.What == Queue {
			for n, id := range r.LockIDs {
				key := [2]string{id, r.Resource}
				looks[key] = append(looks[key], look{r.Began, r.At, r.Heard[n]})
			}
		}
	}
	all := s.resources()
	for key, waited := range looks {
		lockID, name := key[0], key[1]
		ask := s.asked[key]
		if ask == nil || ask.Shared || strings.Contains(lockID, "@") {
			continue
		}
		until := waited[len(waited)-1].began // it waited at least until then
		if l := s.byID[key]; l != nil {
			until = l.At
		}
		if s.faulty(ask.Slot, waited[0].at-int64(ttl), until) {
			continue
		}
		for _, other := range all[name] {
			passed := slices.IndexFunc(waited, func(w look) bool { return w.at < other.asked && w.heard > other.At })
			if passed < 0 || other.Shared || other.LockID == lockID || strings.Contains(other.LockID, "@") {
				continue
			}
			s.compared++
			if other.At < until {
				found = append(found, fmt.Sprintf("%s: %s waited at %s, but %s, which asked at %s, was granted the lock before it",
					name, lockID, s.at(waited[passed].at), other.LockID, s.at(other.asked)))
			}
		}
	}
	return found
}

// faulty reports whether a fault concerned a process at some time.
func (s *story) faulty(slot int, from, to int64) bool {
	return slices.ContainsFunc(s.disturbed, func(d disturbance) bool { return d.concerns(slot) && d.from <= to && d.to >= from })
}

// lostUpdates finds a write to a register that overwrote another one.
func (s *story) lostUpdates() (found []string) {
	last := map[string]*Record{}
	for i := range s.records {
		r := &s.records[i]
		if r.What != Access || r.Result != done || r.Error == "read" {
			continue
		}
		if r.Error == "write" && r.Base != r.Version {
			by := "another party"
			if l := last[r.Resource]; l != nil {
				by = l.LockID
			}
			found = append(found, fmt.Sprintf("%s: at %s %s overwrote the update of %s: it had read version %d, and there was %d",
				r.Resource, s.at(r.At), r.LockID, by, r.Base, r.Version))
		}
		last[r.Resource] = r
	}
	return found
}

// isolation finds an access to a register between two accesses of another party.
func (s *story) isolation() (found []string) {
	present := map[string]string{}
	over := map[[2]string]string{} // a party that was followed by another, and by which
	for i := range s.records {
		r := &s.records[i]
		if r.What != Access || r.Result != done {
			continue
		}
		before := present[r.Resource]
		if before == r.LockID {
			continue
		}
		if by, again := over[[2]string{r.LockID, r.Resource}]; again {
			found = append(found, fmt.Sprintf("%s: at %s %s used it again, after %s had used it in between", r.Resource, s.at(r.At), r.LockID, by))
		}
		over[[2]string{before, r.Resource}] = r.LockID
		present[r.Resource] = r.LockID
	}
	return found
}

// sagas finds sagas that did not end, ended half done, or ended otherwise than planned without a reason, compensations in the wrong
// order, and money that was made or destroyed.
func (s *story) sagas() (found []string) {
	applied := map[string]map[string]bool{} // of each attempt, the steps that were applied and not undone
	undone := map[string]bool{}
	for i := range s.records {
		switch r := &s.records[i]; {
		case r.What == Access && r.Result == done && r.Key != "":
			if applied[r.LockID] == nil {
				applied[r.LockID] = map[string]bool{}
			}
			if first := r.Undo && !undone[r.Key]; first && r.Key == r.LockID+"/1" && undone[r.LockID+"/0"] {
				found = append(found, fmt.Sprintf("%s: at %s the second step was undone, after the first one", r.LockID, s.at(r.At)))
			}
			undone[r.Key] = undone[r.Key] || r.Undo
			applied[r.LockID][r.Key] = !undone[r.Key]
		case r.What == Open:
			found = append(found, fmt.Sprintf("the saga %s has not ended %v after the load", r.LockID, sagaBound))
		case r.What == Total && r.Version != 0 && r.Version != r.Base:
			found = append(found, fmt.Sprintf("there were %d at the beginning, and %d at the end", r.Base, r.Version))
		}
	}
	for i := range s.records {
		r := &s.records[i]
		if r.What != Closed {
			continue
		}
		effects := 0
		for attempt, steps := range applied {
			if saga, _, _ := strings.Cut(attempt, "#"); saga != r.LockID {
				continue
			}
			for _, stays := range steps {
				if stays {
					effects++
				}
			}
		}
		want := 0
		if r.Result == completed {
			want = transferSteps
		}
		if effects != want {
			found = append(found, fmt.Sprintf("the saga %s ended as %s, and %d of its steps are in effect instead of %d", r.LockID, r.Result, effects, want))
		}
		if planned := r.Undo; (r.Result == completed) == planned && !s.mayFail(r) {
			found = append(found, fmt.Sprintf("the saga %s ended as %s, and was planned to fail: %t; its error is %q", r.LockID, r.Result, planned, r.Error))
		}
	}
	return found
}

// mayFail reports whether a saga's failure has a reason that is not a defect: deadlocks, or a lost lock after a fault that concerned a
// worker. If a step cannot renew its lock for a TTL, it is lost.
func (s *story) mayFail(r *Record) bool {
	disturbed := slices.ContainsFunc(s.disturbed, func(d disturbance) bool {
		return d.from < r.At && (d.Kind == DatabaseRestart || d.Slot >= clients)
	})
	return strings.Contains(r.Error, wire.FailureDeadlock) || strings.Contains(r.Error, wire.FailureLost) && disturbed
}

// crashes finds processes that ended by themselves or by a panic.
func (s *story) crashes() (found []string) {
	for i := range s.records {
		if r := &s.records[i]; r.What == Crashed {
			found = append(found, fmt.Sprintf("%s ended at %s: %s", r.Process, s.at(r.At), r.Error))
		}
	}
	return found
}

// leftLocks finds locks that were left one TTL after all processes had been stopped.
func (s *story) leftLocks() (found []string) {
	for i := range s.records {
		if r := &s.records[i]; r.What == Remains {
			found = append(found, fmt.Sprintf("%v after the end: %s", ttl, r.Error))
		}
	}
	return found
}

// recovery finds a process that did not work again within the bound after a fault that concerned it, or that stopped to work without
// a fault.
func (s *story) recovery() (found []string) {
	for _, r := range s.recoveries() {
		if r.took > r.bound {
			found = append(found, fmt.Sprintf("%s: after %s, which ended at %s, it worked again after %v at the earliest; the bound is %v",
				slotName(r.slot), r.after, s.at(r.to), r.took.Round(time.Millisecond), r.bound))
		}
	}
	return found
}

// recovered is the time that a process needed until it worked again.
type recovered struct {
	// after is the fault, or what else the time begins with.
	after fmt.Stringer
	fault bool
	slot  int
	to    int64
	// took is the time until the answer of the first probe that began after the fault. If the end of the load or the next fault came
	// before, it is the time until then, and seen is not set.
	took  time.Duration
	seen  bool
	bound time.Duration
}

// begin is the reason of a recovered that follows no fault.
type begin string

func (b begin) String() string { return string(b) }

// recoveries returns how long each process needed to work again after each fault, and after each of its successful probes. Faults that
// were not seen to act count too: a process must work after them as well.
func (s *story) recoveries() (all []recovered) {
	var probes [slots][]*Record // the successful probes
	end := s.records[len(s.records)-1].At
	for i := range s.records {
		switch r := &s.records[i]; {
		case r.What == Probe && r.Result == done:
			probes[r.Slot] = append(probes[r.Slot], r)
		case r.What == Over:
			end = r.At
		}
	}
	for slot := range slots {
		if len(probes[slot]) == 0 && !s.faulty(slot, s.began, end) {
			continue // a log without this process
		}
		quiet := recovered{after: begin("the begin of the load"), slot: slot, to: s.began, bound: recoveryBound}
		for _, d := range s.disturbed {
			if !d.concerns(slot) {
				continue
			}
			if d.from > quiet.to {
				all = append(all, working(quiet, probes[slot], d.from)...)
			}
			remains := quiet.bound - time.Duration(d.to-quiet.to)
			if d.to < quiet.to { // an earlier fault lasts longer
				quiet.bound = max(quiet.bound, d.bound()-time.Duration(quiet.to-d.to))
				continue
			}
			quiet = recovered{after: d.Fault, fault: true, slot: slot, to: d.to, bound: max(d.bound(), remains)}
		}
		if end > quiet.to {
			all = append(all, working(quiet, probes[slot], end)...)
		}
	}
	return all
}

// working returns how long a process needed to work again in a time without faults: at its begin, and after each success.
func working(r recovered, probes []*Record, until int64) (all []recovered) {
	stuck := r.to + int64(r.bound) // commands that a fault has left without an answer may delay others until then
	for _, p := range probes {
		if p.Began < r.to {
			continue
		}
		if p.At > until {
			break
		}
		r.took, r.seen = time.Duration(p.At-r.to), true
		all = append(all, r)
		r = recovered{after: begin("a success"), slot: r.slot, to: p.At, bound: max(recoveryBound, time.Duration(stuck-p.At))}
	}
	r.took, r.seen = time.Duration(until-r.to), false
	return append(all, r)
}
