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
	return &Waiter{Caller: op.Caller, Mode: op.Mode, Limit: op.Limit, Member: op.member}
}

// Queue prepares a document for the questions of many waiters.
type Queue struct {
	d *Document
	// all is prepared, and waiters contains the queue by request, expired waiters and tombstones included.
	all     *prepared
	waiters map[requestKey][]int
	// stop is the index of the first waiter that must be granted the resource before the waiters behind it, or the length of the queue.
	// due is set if the next write grants the resource to a waiter.
	stop int
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
	q.stop = n
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
		if i <= q.stop {
			q.limitValidity(w.OverdueAt)
			q.limitValidity(w.ExpiresAt)
			if d.holdsUp(q.all, w) {
				q.stop = i
			}
		}
	}
	q.due = nextGrant(d, q.all, 0) >= 0
	for i := range d.Entries {
		q.limitValidity(d.Entries[i].ExpiresAt)
	}
	if d.Policy != nil && d.Policy.Until != nil {
		q.limitValidity(*d.Policy.Until)
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

// Due reports whether any write of the document grants the resource to a waiter.
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
	index, ok := q.positions[requestKey{r.LockID, r.Part}]
	if ok {
		decision.Waiter, decision.Position = &d.Waiters[index], q.ahead[index]+1
		decision.ValidFor = sooner(decision.ValidFor, decision.Waiter.ExpiresAt.Sub(d.At))
	}
	claim, party := own.Claim(r.Caller), r.Party()
	if decision.Waiter != nil {
		party.Member = decision.Waiter.Member
	}
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
	case claim != nil && (confirms(q.all, claim, party) || q.all.Admits(party)), needsNoClaim(q.all, party):
		decision.Answer = NextGo
	case decision.Waiter == nil && claim == nil:
		decision.Answer = NextGone
	case q.due:
		decision.Answer = NextSettle
	case decision.Waiter != nil && index < q.stop && q.all.Admits(party): // the waiter is overdue
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
	for i := nearest[waiter]; i >= 0 && one.Mode != Pool; i = nearest[i] {
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

// prepared is a view of a document for the questions of many parties. It is made in one pass over the entries. An
// answer then costs no pass: it looks only at entries of the party itself, of its enclosing lock ID, and at as many
// others as it returns.
type prepared struct {
	d *Document
	// alive contains the living entries, and notShared and notPool those of other modes.
	alive, notShared, notPool []*Entry
	// counts is, by the key under which a party counts, the number of its living entries.
	counts map[partyKey]int
	// of contains all entries, by lock ID, and parts those of each part. A lock ID may have thousands of parts.
	of    map[string][]*Entry
	parts map[requestKey][]*Entry
	// members contains the entries with each member of a pool, and reserved the lock ID that must get it.
	members  map[string][]*Entry
	reserved map[string]string
}

func (d *Document) prepare() *prepared {
	p := &prepared{
		d: d, counts: map[partyKey]int{}, of: map[string][]*Entry{}, parts: map[requestKey][]*Entry{},
		members: map[string][]*Entry{}, reserved: d.reservedFor(),
	}
	for i := range d.Entries {
		e := &d.Entries[i]
		key := requestKey{e.LockID, e.Part}
		p.of[e.LockID], p.parts[key] = append(p.of[e.LockID], e), append(p.parts[key], e)
		if e.Member != "" {
			p.members[e.Member] = append(p.members[e.Member], e)
		}
		if !e.Alive(d.At) {
			continue
		}
		p.alive = append(p.alive, e)
		p.counts[e.partyKey()]++
		if e.Mode != Shared {
			p.notShared = append(p.notShared, e)
		}
	}
	p.notPool = p.alive
	if isPool := func(e *Entry) bool { return e.Mode == Pool }; slices.ContainsFunc(p.alive, isPool) {
		p.notPool = slices.DeleteFunc(slices.Clone(p.alive), isPool)
	}
	return p
}

// blockers returns the first entries, at most a number of them, that Document.Blockers returns.
func (p *prepared) blockers(of Party, most int) []*Entry {
	of = of.with(p)
	found := p.excluding(of, most)
	limit := p.d.LimitFor(of.Limit)
	switch {
	case len(found) > 0:
	case of.Mode == Pool && !p.hasMemberFor(of), limit > 0 && int64(p.others(of)) >= limit:
		return p.first(p.alive, of, most)
	}
	return found
}

// excluding returns the first entries that exclude a party, which has the member that it must get.
func (p *prepared) excluding(of Party, most int) (found []*Entry) {
	switch of.Mode {
	case Shared:
		return p.first(p.notShared, of, most)
	case Pool:
		if found = p.first(p.notPool, of, most); len(found) == 0 && of.Member != "" {
			found = p.first(p.members[of.Member], of, most)
		}
		return found
	}
	return p.first(p.alive, of, most)
}

// first returns the first entries that count for a party.
func (p *prepared) first(among []*Entry, of Party, most int) (found []*Entry) {
	for _, e := range among {
		if len(found) == most {
			break
		}
		if e.Counts(of, p.d.At) {
			found = append(found, e)
		}
	}
	return found
}

// others returns the number of other parties that count under the limit of a party.
func (p *prepared) others(of Party) int {
	n := len(p.counts)
	if p.has(of.LockID, func(*Entry) bool { return true }) {
		n--
	}
	if of.Within != of.LockID && p.has(of.Within, of.enclosedBy) && !p.has(of.Within, func(e *Entry) bool { return !of.enclosedBy(e) }) {
		n--
	}
	return n
}

// has reports whether a lock ID has a living entry that meets a condition.
func (p *prepared) has(lockID string, which func(*Entry) bool) bool {
	for _, e := range p.of[lockID] {
		if e.BelongsTo(lockID) && e.Alive(p.d.At) && which(e) {
			return true
		}
	}
	return false
}

func (p *prepared) holds(lockID string, which func(*Entry) bool) bool {
	for _, e := range p.of[lockID] {
		if e.BelongsTo(lockID) && e.Holds() && which(e) {
			return true
		}
	}
	return false
}

// Admits is like Document.Admits.
func (p *prepared) Admits(of Party) bool {
	of = of.with(p)
	return p.d.refuses(of) == "" && len(p.blockers(of, 1)) == 0 && (of.Mode != Pool || p.hasMemberFor(of))
}

func (p *prepared) excludes(of Party) bool { return len(p.excluding(of.with(p), 1)) > 0 }

func (p *prepared) time() time.Time { return p.d.At }
