package rules

import (
	"slices"
	"time"
)

// Answer is the next step of a waiting request.
type Answer int

const (
	// NextWait: the resource is busy, or others are ahead in the queue.
	NextWait Answer = iota
	// NextGo: an Acquire would be granted.
	NextGo
	// NextSettle: any write of the document grants the resource to the head of the queue, which may be
	// another request.
	NextSettle
	// NextGone: the request is not queued. It was superseded, released or withdrawn, or its waiter has
	// expired.
	NextGone
)

// Decision is the meaning of a document for one waiting request.
type Decision struct {
	Answer
	// Waiter is the request's waiter in the document, or nil.
	Waiter *Waiter
	// Position counts the waiters that the request waits for, plus 1; 0 if it is not queued.
	Position int
	// ValidFor, of NextWait and NextSettle, is the time after which the answer may change without a
	// write; 0 if only a write can change it.
	ValidFor time.Duration
	// Verdict, of NextGone, describes the deadlock because of which the request was withdrawn.
	Verdict string
	// By, of NextGone, describes what superseded the request. Its Order is 0 if nothing did.
	By Supersession
}

// Next returns the meaning of a document for the request r, whose times are ignored. A nil document
// has no holders and no queue.
func Next(d *Document, r *Waiter) Decision { return d.Queue().Next(r) }

// Waiter returns the waiter of the request, without its times.
func (op *Acquire) Waiter() *Waiter {
	return &Waiter{Caller: op.Caller, Mode: op.Mode, Limit: op.Limit}
}

// Queue prepares a document for the questions of many waiters.
type Queue struct {
	d *Document
	// all is prepared, and waiters contains the queue by request, expired waiters and tombstones included.
	all     *prepared
	waiters map[requestKey][]int
	// head is the first waiter that others wait for. due is set if the next write grants it the resource.
	head *Waiter
	due  bool
	// validFor is the time after which the answers may change without a write; 0 is never.
	validFor time.Duration
	// positions contains the indices of the waiters that have not expired, and ahead, by index, the
	// number of waiters that each one waits for. preceding contains the indices of the waiters that
	// others wait for.
	positions        map[requestKey]int
	ahead, preceding []int
	// before and exclusiveBefore contain, by index, the index of the nearest waiter ahead that others wait
	// for, and of the nearest such exclusive one; -1 if there is none.
	before, exclusiveBefore []int
	// Waiting is the number of waiters that have not expired and are not tombstones.
	Waiting int
}

type requestKey struct{ lockID, part string }

// Queue prepares the document for the questions of many waiters.
func (d *Document) Queue() *Queue {
	q := &Queue{d: d}
	if d == nil {
		return q
	}
	q.all, q.waiters = d.prepare(), make(map[requestKey][]int, len(d.Waiters))
	n := len(d.Waiters)
	q.positions, q.ahead, q.before, q.exclusiveBefore = make(map[requestKey]int, n), make([]int, n), make([]int, n), make([]int, n)
	last, lastExclusive := -1, -1
	for i := range d.Waiters {
		w := &d.Waiters[i]
		q.ahead[i], q.before[i], q.exclusiveBefore[i] = len(q.preceding), last, lastExclusive
		key := requestKey{w.LockID, w.Part}
		q.waiters[key] = append(q.waiters[key], i)
		if !w.ExpiresAt.After(d.At) {
			continue
		}
		q.positions[key] = i
		if w.Waits(d.At) {
			q.Waiting++
		}
		if !d.Precedes(w) {
			continue
		}
		q.preceding = append(q.preceding, i)
		if last = i; w.Mode != Shared {
			lastExclusive = i
		}
		if q.head == nil {
			q.head = w
		}
	}
	q.due = q.head != nil && d.Admits(q.head.Party())
	for i := range d.Entries {
		q.limitValidity(d.Entries[i].ExpiresAt)
	}
	if q.head != nil {
		q.limitValidity(q.head.OverdueAt)
		q.limitValidity(q.head.ExpiresAt)
	}
	return q
}

// limitValidity records that the answers may change at a time, unless it has passed.
func (q *Queue) limitValidity(at time.Time) { q.validFor = sooner(q.validFor, at.Sub(q.d.At)) }

// sooner returns the shorter of two durations. Durations that are not positive do not count.
func sooner(a, b time.Duration) time.Duration {
	if b > 0 && (a <= 0 || b < a) {
		return b
	}
	return a
}

// Due reports whether any write of the document grants the resource to the head of the queue.
func (q *Queue) Due() bool { return q.due }

// ValidFor returns the time after which the answers may change without a write; 0 is never.
func (q *Queue) ValidFor() time.Duration { return q.validFor }

// own returns the document with the entries and the waiters of the request's part only.
func (q *Queue) own(r *Waiter) *Document {
	own := &Document{ID: q.d.ID, At: q.d.At, Releases: q.d.Releases, Bars: slices.Clip(q.d.Bars)}
	for _, lockID := range []string{r.LockID, r.Within} {
		for _, e := range q.all.parts[requestKey{lockID, ""}] { // what the lock ID keeps
			own.Bars = append(own.Bars, e.Bars...)
		}
	}
	for _, e := range q.all.parts[requestKey{r.LockID, r.Part}] {
		own.Entries = append(own.Entries, *e)
	}
	for _, i := range q.waiters[requestKey{r.LockID, r.Part}] {
		own.Waiters = append(own.Waiters, q.d.Waiters[i])
	}
	return own
}

// Joins is like Document.Joins.
func (q *Queue) Joins(p Party) bool { return covered(q.all, p) && allowsJoin(q.all, p) }

// Latest is like Document.Latest for a request.
func (q *Queue) Latest(r *Waiter) *Entry { return q.own(r).Latest(r.Caller) }

// Next is like the function [Next] for the document of the queue.
func (q *Queue) Next(r *Waiter) Decision {
	d := q.d
	if d == nil {
		return Decision{Answer: NextGone}
	}
	own := q.own(r)
	if t := own.Tombstone(r.Caller); t != nil && t.IsTombstone(d.At) {
		return Decision{Answer: NextGone, Waiter: t, Verdict: t.Verdict}
	}
	if by, ok := own.SupersededBy(r.Caller); ok {
		return Decision{Answer: NextGone, By: by}
	}
	decision := Decision{Answer: NextWait, ValidFor: q.validFor}
	if i, ok := q.positions[requestKey{r.LockID, r.Part}]; ok {
		decision.Waiter, decision.Position = &d.Waiters[i], q.ahead[i]+1
		decision.ValidFor = sooner(decision.ValidFor, decision.Waiter.ExpiresAt.Sub(d.At))
	}
	claim := own.Claim(r.Caller)
	switch {
	case claim == nil:
	case claim.Forfeited(d.At):
		claim = nil
	case !claim.Alive(d.At): // a lapsed claim counts until it is forfeited
		decision.ValidFor = sooner(decision.ValidFor, claim.QueuedUntil.Sub(d.At))
	}
	switch {
	case decision.Waiter != nil && decision.Waiter.Order > r.Order:
		return Decision{Answer: NextGone, By: Supersession{Order: decision.Waiter.Order}}
	case claim != nil && (confirms(q.all, claim, r.Party()) || q.all.Admits(r.Party())), needsNoClaim(q.all, r.Party()):
		decision.Answer = NextGo
	case decision.Waiter == nil && claim == nil:
		decision.Answer = NextGone
	case q.due:
		decision.Answer = NextSettle
	case decision.Position == 1 && decision.Waiter != q.head && d.Admits(r.Party()): // the waiter is overdue
		decision.Answer = NextGo
	}
	return decision
}

// Blockers returns what the waiter at an index of the queue waits for: the entries that are in its way, at most
// a number of them. If there are none, and no hold of its own covers it, it is the nearest incompatible waiter
// ahead, or the first one ahead if all are compatible.
func (q *Queue) Blockers(waiter, most int) (entries []*Entry, ahead *Waiter) {
	d := q.d
	one := &d.Waiters[waiter]
	if entries = q.all.blockers(one.Party(), most); len(entries) > 0 || covered(q.all, one.Party()) {
		return entries, nil
	}
	nearest := q.before
	if one.Mode == Shared {
		nearest = q.exclusiveBefore
	}
	for i := nearest[waiter]; i >= 0; i = nearest[i] {
		if d.Waiters[i].LockID != one.LockID {
			return nil, &d.Waiters[i]
		}
	}
	for _, i := range q.preceding { // all are compatible
		if i >= waiter {
			break
		}
		if d.Waiters[i].LockID != one.LockID {
			return nil, &d.Waiters[i]
		}
	}
	return nil, nil
}
