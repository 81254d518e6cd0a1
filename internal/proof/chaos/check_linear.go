package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/proof/linear"
)

const (
	// linearLimit bounds the check of one resource.
	linearLimit = 5 * time.Second
	// forever is the time of an answer that never comes.
	forever = time.Duration(1<<63 - 1)
	// dating is the longest time by which a lease may end earlier than a TTL after its request: leases are dated by the estimate of
	// the server's time, which is a lower bound.
	dating = time.Second
	// ending is the longest time by which a lease may end later than a TTL after the answer.
	ending = time.Second
)

// linearizability finds histories of try, renew and release that no lock can have. Leases may expire: this is a leave at any time
// after the earliest end. An operation without an answer, or with an unknown outcome, may be applied at any time.
func (s *story) linearizability() (found []string) {
	for _, ops := range s.allHistories() {
		r := linear.Result{Undecided: true}
		if ops != nil {
			r = linear.Check(ops, linearLimit)
		}
		if r.Undecided {
			s.undecided++
			continue
		}
		if s.histories++; !r.OK {
			found = append(found, r.Seen)
		}
	}
	return found
}

// allHistories returns the operations of each resource; nil if it had more parties at the same time than the model.
func (s *story) allHistories() map[string][]linear.Operation {
	byResource := map[string]map[string][]*Record{}
	for i := range s.records {
		r := &s.records[i]
		if r.What != Try && r.What != Renew && r.What != Release {
			continue
		}
		if byResource[r.Resource] == nil {
			byResource[r.Resource] = map[string][]*Record{}
		}
		byResource[r.Resource][r.LockID] = append(byResource[r.Resource][r.LockID], r)
	}
	all := map[string][]linear.Operation{}
	for name, byID := range byResource {
		all[name] = s.history(name, byID)
	}
	return all
}

// history returns the operations on one resource.
func (s *story) history(name string, byID map[string][]*Record) (ops []linear.Operation) {
	parties := slices.SortedFunc(func(yield func([]*Record) bool) {
		for _, records := range byID {
			if !yield(records) {
				return
			}
		}
	}, func(a, b []*Record) int { return cmp.Compare(a[0].Began, b[0].Began) })
	var busy [linear.MaxClients]time.Duration // until when each client of the model has operations
	for i := range busy {
		busy[i] = -forever
	}
	for _, records := range parties {
		own := s.operations(name, records)
		client := slices.IndexFunc(busy[:], func(until time.Duration) bool { return until < own[0].From })
		if client < 0 {
			return nil
		}
		for _, o := range own {
			o.Client = client
			busy[client] = max(busy[client], o.To)
			ops = append(ops, o)
		}
	}
	return ops
}

// operations returns the operations of one party, which has one lease. Each record of a call without an answer is followed by
// the one with the answer, unless its process was killed.
func (s *story) operations(name string, records []*Record) (ops []linear.Operation) {
	var last *Record           // the last operation that is known to have given or renewed the lease
	may := false               // it may hold the resource
	latest := time.Duration(0) // its lease ends then at the latest, and later commands have no effect on others
	var expires, release time.Duration
	for i, r := range records {
		if r.Result == "" && i+1 < len(records) {
			continue // its answer follows
		}
		o := linear.Operation{Resource: name, From: s.since(r.Began), To: s.since(r.At), OK: r.Result == granted, Fence: r.Fence}
		o.Unknown = r.Result == unknown || r.Result == ""
		if (o.OK || o.Unknown) && r.What != Release {
			latest = max(latest, s.sentUntil(r)+ttl+ending)
		}
		if o.Unknown {
			o.To = max(latest, o.To)
		}
		switch r.What {
		case Try:
			o.Do, o.Try = linear.TakeExclusive, 1
			if r.Shared {
				o.Do = linear.TakeShared
			}
			if r.Result == failed {
				continue
			}
			may = o.OK || o.Unknown
			if o.Unknown {
				expires = o.From
			}
		case Renew:
			if r.Result != granted && r.Result != lost {
				continue
			}
			o.Do = linear.Renew
		default:
			o.Do, o.OK = linear.Leave, true
			if r.Result == failed {
				continue
			}
			o.Unknown = false
			release = o.To
		}
		if o.OK && r.What != Release {
			last = r
		}
		ops = append(ops, o)
	}
	if len(ops) == 0 {
		return []linear.Operation{{Resource: name, Do: linear.Leave, OK: true, From: s.since(records[0].Began), To: s.since(records[0].Began) + 1}}
	}
	if last != nil {
		expires = s.since(last.Began) + ttl - dating
		if s.clockJumped(last.Slot, last.Began) {
			expires = s.since(last.Began)
		}
	}
	if may && (release == 0 || release > expires) {
		end := linear.Operation{Resource: name, Do: linear.Leave, OK: true, From: expires, To: latest}
		if ops[0].Unknown { // and is not applied after it
			end.Do, end.Try = linear.Settle, ops[0].Try
		}
		ops = append(ops, end)
	}
	return ops
}

// sentUntil returns the time until which a process may have sent the commands of an operation: its answer, or without one the end of
// the process.
func (s *story) sentUntil(r *Record) time.Duration {
	if r.Result != "" {
		return s.since(r.At)
	}
	if died, ok := s.died[r.Process]; ok {
		return s.since(died)
	}
	return forever - ttl - ending
}

func (s *story) since(t int64) time.Duration { return time.Duration(t - s.began) }

// clockJumped reports whether a wall clock was made wrong shortly before. For ten seconds the estimate of the server's time may
// stop advancing, which shortens leases.
func (s *story) clockJumped(slot int, at int64) bool {
	return slices.ContainsFunc(s.disturbed, func(d disturbance) bool {
		return d.Kind == WrongClock && d.Slot == slot && d.from <= at && at-d.from < int64(12*time.Second)
	})
}

// describe returns the first line of a text.
func describe(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
