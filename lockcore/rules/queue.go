package rules

import "time"

// Answer is what a document means for a request.
type Answer int

const (
	// NextWait: others are in the way, or ahead in the queue.
	NextWait Answer = iota
	// NextGo: a request that asks now gets the resource.
	NextGo
	// NextSettle: nothing alive is in the way of the head of the queue, and any write of the document
	// grants it the resource. The head may be another request than the one that asks.
	NextSettle
	// NextGone: the request has no place. It was superseded, released or chosen as the victim of a
	// deadlock, or its place has expired.
	NextGone
)

// Look is the answer to one request.
type Decision struct {
	Answer
	// Place is the request's, nil if it has none.
	Waiter *Waiter
	// Position is its place among those that are waited for, from 1; 0 without a place.
	Position int
	// After, of NextWait and NextSettle, is after what time the answer may change by time alone; 0 is
	// never.
	ValidFor time.Duration
	// Verdict, of NextGone, is the deadlock that the request was the victim of.
	Verdict string
	// By, of NextGone, is what superseded the request; its Order is 0 if nothing did.
	By Supersession
}

// Next is the one look at a queue: what the document means for the request r, whose times do not
// count. A nil document has no holders and no queue.
func Next(d *Document, r *Waiter) Decision { return d.Queue().Next(r) }

// Waiter is the request as it stands in a queue, without its times.
func (op *Acquire) Waiter() *Waiter {
	w := &Waiter{LockID: op.LockID, Label: op.Label, Within: op.Within, Saga: op.Saga, Part: op.Part, Order: op.Order, Mode: op.Mode, Limit: op.Limit}
	if op.Mode == Exclusive {
		w.Limit = op.Room()
	}
	return w
}

// Queue is what a document says of all that wait in it, for many looks at the same document.
type Queue struct {
	d *Document
	// head is the first waiter, and due says that the next write grants it the resource.
	head *Waiter
	due  bool
	// change is after what time the answers may change by time alone; 0 is never.
	validFor time.Duration
	// places are the indices of the places that stand, and ahead how many each waiter waits for.
	positions map[requestKey]int
	ahead     []int
	// Waiting is how many places stand.
	Waiting int
}

type requestKey struct{ lockID, part string }

// Queue looks at the document as a whole.
func (d *Document) Queue() *Queue {
	q := &Queue{d: d}
	if d == nil {
		return q
	}
	q.positions, q.ahead = make(map[requestKey]int, len(d.Waiters)), make([]int, len(d.Waiters))
	ahead := 0
	for i := range d.Waiters {
		w := &d.Waiters[i]
		q.ahead[i] = ahead
		if !w.ExpiresAt.After(d.At) {
			continue
		}
		q.positions[requestKey{w.LockID, w.Part}] = i
		if w.Waits(d.At) {
			q.Waiting++
		}
		if d.Precedes(w) {
			ahead++
			if q.head == nil {
				q.head = w
			}
		}
	}
	q.due = q.head != nil && d.admitsHead(q.head)
	for i := range d.Entries {
		q.limitValidity(d.Entries[i].ExpiresAt)
	}
	if q.head != nil {
		q.limitValidity(q.head.OverdueAt)
		q.limitValidity(q.head.ExpiresAt)
	}
	return q
}

// until notes that the answers may change at a time, if that is yet to come.
func (q *Queue) limitValidity(at time.Time) { q.validFor = sooner(q.validFor, at.Sub(q.d.At)) }

// sooner is the shorter one of two times to go, of which those that are not positive do not count.
func sooner(a, b time.Duration) time.Duration {
	if b > 0 && (a <= 0 || b < a) {
		return b
	}
	return a
}

// Precedes reports whether those behind a waiter in the queue wait for it: it is not dead, overdue,
// or the victim of a deadlock, and may not join.
func (d *Document) Precedes(w *Waiter) bool {
	return w.Waits(d.At) && !w.Overdue(d.At) && !d.Joins(w.Party())
}

// Covered reports whether the party has a live hold in the same mode or a stronger one.
func (d *Document) Covered(p Party) bool {
	return d.holds(p.LockID, func(e *Entry) bool { return e.Alive(d.At) && Covers(e.Mode, p.Mode) })
}

// Joins reports whether the party may join its own hold.
func (d *Document) Joins(p Party) bool { return d.Covered(p) && d.AllowsJoin(p) }

// FitsBeside reports whether a party that is covered may join its hold. A party with a run label
// may not beside an incompatible entry, which lives within its hold or was cut off. The limit is
// for new holds.
func (d *Document) AllowsJoin(p Party) bool {
	p.Limit = 0
	return !p.Labelled || d.Admits(p)
}

func (d *Document) holds(lockID string, which func(*Entry) bool) bool {
	for i := range d.Entries {
		if e := &d.Entries[i]; e.BelongsTo(lockID) && e.Holds() && which(e) {
			return true
		}
	}
	return false
}

// AsksItself reports whether a request gets the resource if it asks, without a claim: so one that
// waits has to be told. It goes on with a hold of its party that covers it, also with one that has
// expired and still stands, if no other needed its room. It upgrades a hold, or lives within what
// its workflow keeps, if nothing is in its way.
func (d *Document) NeedsNoClaim(p Party) bool {
	covered := d.holds(p.LockID, func(e *Entry) bool { return Covers(e.Mode, p.Mode) })
	ahead := d.holds(p.LockID, func(*Entry) bool { return true }) || d.HeldByEnclosing(p)
	return (covered && d.AllowsJoin(p)) || (ahead && d.Admits(p))
}

// Surrounds reports whether the lock ID that the party lives within keeps the resource.
func (d *Document) HeldByEnclosing(p Party) bool {
	return d.holds(p.Within, func(e *Entry) bool { return p.enclosedBy(e) && e.Alive(d.At) })
}

// grants reports whether a write grants the resource to w, if w is the head of the queue: not
// beside a live exclusive entry, its own party's too, but for what is kept around it.
func (d *Document) admitsHead(w *Waiter) bool {
	p := w.Party()
	for i := range d.Entries {
		if e := &d.Entries[i]; e.Mode == Exclusive && e.ExpiresAt.After(d.At) && !p.enclosedBy(e) {
			return false
		}
	}
	return d.Admits(p)
}

// Due reports whether any write of the document grants the resource to the head of the queue.
func (q *Queue) Due() bool { return q.due }

// Change is after what time the document may mean something else, by time alone; 0 is never.
func (q *Queue) ValidFor() time.Duration { return q.validFor }

// Next is [Next] of the document.
func (q *Queue) Next(r *Waiter) Decision {
	d := q.d
	if d == nil {
		return Decision{Answer: NextGone}
	}
	if t := d.Tombstone(r.LockID, r.Part); t != nil && t.ExpiresAt.After(d.At) {
		return Decision{Answer: NextGone, Waiter: t, Verdict: t.Verdict}
	}
	if by, ok := d.SupersededBy(r.Request()); ok {
		return Decision{Answer: NextGone, By: by}
	}
	look := Decision{Answer: NextWait, ValidFor: q.validFor}
	if i, ok := q.positions[requestKey{r.LockID, r.Part}]; ok {
		look.Waiter, look.Position = &d.Waiters[i], q.ahead[i]+1
		look.ValidFor = sooner(look.ValidFor, look.Waiter.ExpiresAt.Sub(d.At))
	}
	claim := d.Claim(r.LockID, r.Part)
	switch {
	case claim == nil:
	case claim.Forfeited(d.At):
		claim = nil
	case !claim.Alive(d.At): // it has lapsed, and counts as long as its place would have stood
		look.ValidFor = sooner(look.ValidFor, claim.PositionExpiresAt.Sub(d.At))
	}
	switch {
	case look.Waiter != nil && look.Waiter.Order > r.Order:
		return Decision{Answer: NextGone, By: Supersession{Order: look.Waiter.Order}}
	case claim != nil && (claim.Alive(d.At) || d.Admits(r.Party())), d.NeedsNoClaim(r.Party()):
		look.Answer = NextGo
	case look.Waiter == nil && claim == nil:
		look.Answer = NextGone
	case q.due:
		look.Answer = NextSettle
	case look.Position == 1 && look.Waiter != q.head && d.admitsHead(r): // it is overdue
		look.Answer = NextGo
	}
	return look
}

// ExpiresBy reports whether something in the document ends, or is passed over, by at. A nil document
// has nothing that could.
func (d *Document) ExpiresBy(at time.Time) bool {
	if d == nil {
		return false
	}
	for i := range d.Entries {
		if e := &d.Entries[i]; !e.ExpiresAt.After(at) || (e.PositionExpiresAt != nil && !e.PositionExpiresAt.After(at)) {
			return true
		}
	}
	for i := range d.Waiters {
		if w := &d.Waiters[i]; !w.ExpiresAt.After(at) || (w.Verdict == "" && !w.OverdueAt.After(at)) {
			return true
		}
	}
	return false
}

// ReservedFor reports whether another process than this one has reserved the document at a time.
func (d *Document) ReservedByOther(process string, at time.Time) bool {
	return d != nil && d.Reserved != nil && d.Reserved.By != process && d.Reserved.Until.After(at)
}

// InTheWay reports whether the entry is among those that a refused request is told of: by its mode, or
// because it counts under the request's limit.
func (e *Entry) InTheWay(p Party, now time.Time) bool {
	return e.Blocks(p, now) || (p.Mode == Shared && p.Limit > 0 && e.Counts(p, now))
}

// KeepsOut returns what the waiter at an index of the queue waits for: the entries that block it by
// their mode; if there are none, all that count under its limit, if that is reached; if there are
// none either, the nearest waiter ahead with which it cannot hold at the same time, or else the first
// one ahead. Of waiters that may join their own hold only the former counts.
func (d *Document) Blockers(waiter int) (entries []*Entry, ahead *Waiter) {
	w := &d.Waiters[waiter]
	p := w.Party()
	var counted []*Entry
	parties := map[string]bool{}
	for i := range d.Entries {
		e := &d.Entries[i]
		switch {
		case e.Blocks(p, d.At):
			entries = append(entries, e)
		case e.Counts(p, d.At):
			counted = append(counted, e)
			parties[e.partyKey()] = true
		}
	}
	if len(entries) == 0 && w.Mode == Shared && w.Limit > 0 && int64(len(parties)) >= w.Limit {
		entries = counted
	}
	if len(entries) > 0 || d.Covered(p) {
		return entries, nil
	}
	for i := waiter - 1; i >= 0; i-- {
		a := &d.Waiters[i]
		if a.LockID == w.LockID || !d.Precedes(a) {
			continue
		}
		if ahead = a; !Compatible(a.Mode, w.Mode) {
			return nil, a
		}
	}
	return nil, ahead
}
