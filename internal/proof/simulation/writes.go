package simulation

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// partKey names a request on a resource: the part of a lock ID.
type partKey struct{ resource, lockID, part string }

// entryKey names an entry of a document. A kept hold has no part and no order.
type entryKey struct {
	partKey
	order int64
}

func keyOf(resource string, e *rules.Entry) entryKey {
	if e.State == rules.StateKept {
		return entryKey{partKey{resource, e.LockID, ""}, 0}
	}
	return entryKey{partKey{resource, e.LockID, e.Part}, e.Order}
}

// ledger is the state of the checks of single writes.
type ledger struct {
	// fences contains the greatest fence of each resource.
	fences map[string]int64
	// endedHolds contains, by resource and lock ID, the greatest first fence of holds that have ended. endedParts contains
	// the entries, by ID, that were ended before they expired and after their calls had returned.
	endedHolds map[partKey]int64
	endedParts map[partKey]bool
	// granted contains the fences that applied writes have granted to each part.
	granted map[entryKey][]int64
	// relied contains the parts to which a kept hold was reported.
	relied map[partKey]bool
	// calls contains the latest call about each part, and requests the latest one of each order. Their keys have no resource.
	calls    map[partKey]*call
	requests map[entryKey]*call
	// leaving contains the parts that their holders have begun to leave, and releases the releases that have begun.
	leaving  map[entryKey]bool
	releases []release
	// excused contains the parts of requests whose answers were lost.
	excused map[entryKey]bool
	// runs numbers the runs in the order in which they began. closed contains the runs that have ended.
	runs   map[string]int
	closed map[string]bool
	// barred contains the order up to which each run has raised a bar successfully.
	barred map[string]int64
	// admissions lists the grants to parts, and renewals counts the renewals of each part.
	admissions []admission
	renewals   map[partKey]int
}

// release is a call that ends holds of a lock ID on some resources: the hold that first names; or, if
// first is 0, holds of the run up to an order.
type release struct {
	call      *call
	lockID    string
	runID     string
	resources []string
	order     int64
	first     int64
	force     bool
}

// admission is a grant to a part of a lock ID.
type admission struct {
	resource, lockID string
	mode             lockcore.Mode
	at               time.Time
}

func newLedger() ledger {
	return ledger{
		fences: map[string]int64{}, endedHolds: map[partKey]int64{}, endedParts: map[partKey]bool{}, granted: map[entryKey][]int64{}, relied: map[partKey]bool{},
		calls: map[partKey]*call{}, requests: map[entryKey]*call{}, leaving: map[entryKey]bool{}, excused: map[entryKey]bool{}, runs: map[string]int{}, closed: map[string]bool{}, barred: map[string]int64{},
		renewals: map[partKey]int{},
	}
}

// change is an applied write of one document. It may contain several operations. The world's mutex is held.
type change struct {
	w             *world
	p             *process
	before, after *rules.Document
	// judged is the time by which the write has judged expiry, zero if it has not.
	judged time.Time
}

// begin is called before the write can be seen.
func (c *change) begin() {
	if len(c.condemned()) > 0 {
		c.w.recordDeadlocks() // the last write may be long ago
	}
}

// run checks the write.
func (c *change) run() {
	moved := c.record()
	c.register()
	c.expiryIsRead()
	c.fencesGrow()
	c.endsAreMeant()
	c.nothingReturns()
	c.grantsAreDue()
	c.queueKeepsItsOrder()
	c.waitsInOrder()
	c.verdictsAreTrue()
	if moved {
		c.w.recordDeadlocks()
	}
	c.w.checkTrust(c.after.ID)
}

// each returns pointers to the elements of a slice.
func each[T any](all []T) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for i := range all {
			if !yield(&all[i]) {
				return
			}
		}
	}
}

// missing returns the elements of a slice that another slice does not contain.
func missing[T any](all, in []T, same func(a, b *T) bool) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for e := range each(all) {
			if !slices.ContainsFunc(in, func(o T) bool { return same(&o, e) }) && !yield(e) {
				return
			}
		}
	}
}

// record adds the changes of the write to the history, and reports whether it changed more than expiry times.
func (c *change) record() (moved bool) {
	same := func(o, e *rules.Entry) bool {
		return keyOf("", o) == keyOf("", e) && o.State == e.State && o.Mode == e.Mode && o.Fence == e.Fence && o.Run == e.Run
	}
	waits := func(o, q *rules.Waiter) bool { return o.SameRequest(&q.Caller) && o.Verdict == q.Verdict }
	request := func(q *rules.Waiter) string { return q.LockID + "/" + q.Part + "/" + order(q.Order).String() }
	var out []string
	for e := range missing(c.before.Entries, c.after.Entries, same) {
		out = append(out, "-"+shown(e))
	}
	for e := range missing(c.after.Entries, c.before.Entries, same) {
		out = append(out, "+"+shown(e))
	}
	for q := range missing(c.before.Waiters, c.after.Waiters, waits) {
		out = append(out, "-waiter "+request(q))
	}
	for q := range missing(c.after.Waiters, c.before.Waiters, waits) {
		out = append(out, "+waiter "+q.Mode+" "+request(q)+" "+q.Verdict)
	}
	if len(out) > 0 {
		c.w.noted(c.p.name, "", "%s: %s", c.after.ID, strings.Join(out, ", "))
	}
	return len(out) > 0
}

// register records grants and renewals.
func (c *change) register() {
	for e := range each(c.after.Entries) {
		was := find(c.before, keyOf(c.before.ID, e))
		// A write may also grant a part and release its hold.
		if (e.State == rules.StateRunning || e.State == rules.StateDraining) && (was == nil || was.State != e.State || was.Fence != e.Fence) {
			key := keyOf(c.after.ID, e)
			c.w.granted[key] = append(c.w.granted[key], e.Fence)
			if e.State == rules.StateRunning && (was == nil || was.State != e.State) {
				c.w.admissions = append(c.w.admissions, admission{c.after.ID, e.LockID, lockcore.Mode(e.Mode), time.Now()})
			}
		}
		if was != nil && was.State == e.State && e.RenewedAt != nil && (was.RenewedAt == nil || !e.RenewedAt.Equal(*was.RenewedAt)) {
			c.w.renewals[keyOf(c.after.ID, e).partKey]++
		}
		// A write may also end a claim that is not alone by its own clock, and make another one.
		same := was != nil && was.State == e.State && was.ID == e.ID && was.FirstFence == e.FirstFence &&
			(e.ClaimedAt == nil || was.ClaimedAt == nil || e.ClaimedAt.Equal(*was.ClaimedAt))
		if same && e.ExpiresAt.Before(was.ExpiresAt) && !c.w.excused[keyOf(c.after.ID, e)] {
			c.w.broken("I5 end", e.LockID, "the %s entry of %s on %s ends %v sooner than before", e.State, e.LockID, c.after.ID, was.ExpiresAt.Sub(e.ExpiresAt))
		}
	}
}

func find(d *rules.Document, key entryKey) *rules.Entry {
	for e := range each(d.Entries) {
		if keyOf(d.ID, e) == key && (e.State == rules.StateKept) == (key.part == "" && key.order == 0) {
			return e
		}
	}
	return nil
}

// expiryIsRead: nothing ends because its time is over except by the time that was read together with
// the document.
func (c *change) expiryIsRead() {
	if c.judged.IsZero() || !c.before.ExpiresBy(c.judged) {
		return
	}
	if !slices.ContainsFunc(c.p.reads[c.before.ID], func(r reading) bool { return r.version == c.before.Version && r.at.Equal(c.judged) }) {
		c.w.broken("expiry", "", "%s judges expiry on %s by a time that was not read with the document", c.p.name, c.before.ID)
	}
}

// fencesGrow is I3.
func (c *change) fencesGrow() {
	w, most := c.w, max(c.w.fences[c.after.ID], c.before.Fence)
	fresh := map[int64]string{}
	for e := range each(c.after.Entries) {
		known := slices.ContainsFunc(c.before.Entries, func(b rules.Entry) bool { return b.LockID == e.LockID && b.Fence == e.Fence })
		if !e.Holds() || known {
			continue
		}
		if other, taken := fresh[e.Fence]; e.Fence <= most || (taken && other != e.LockID) {
			w.broken("I3", e.LockID, "%s was granted %s with the fence %d, which is not above %d", e.LockID, c.after.ID, e.Fence, most)
		}
		fresh[e.Fence] = e.LockID
	}
	if c.after.Fence < most {
		w.broken("I3", "", "the fence of %s falls from %d to %d", c.after.ID, most, c.after.Fence)
	}
	w.fences[c.after.ID] = c.after.Fence
}

// endsAreMeant is I5: an entry in force ends only if a call named it.
func (c *change) endsAreMeant() {
	for e := range each(c.before.Entries) {
		key := keyOf(c.before.ID, e)
		now := find(c.after, key)
		if e.State == rules.StateKept && now == nil && !lives(e, c.after.At) { // it has expired and was evicted
			c.forgetReliance(e.LockID)
		}
		if !e.Holds() || !lives(e, c.after.At) {
			continue
		}
		if now != nil && now.Holds() {
			if e.Run != now.Run && c.w.runs[now.Run] < c.w.runs[e.Run] {
				c.w.broken("I5 run", e.LockID, "%s of %s takes %s over from %s, which is later", now.Run, e.LockID, c.after.ID, e.Run)
			}
			continue
		}
		if why := c.unmeant(e); why != "" {
			c.w.broken("I5", e.LockID, "%s ended %s on %s: %s", c.p.name, shown(e), c.before.ID, why)
		}
		if e.State == rules.StateRunning && !c.w.requests[entryKey{partKey{"", e.LockID, e.Part}, e.Order}].underWay() {
			c.w.endedParts[partKey{c.before.ID, e.LockID, e.ID}] = true
		}
		if e.State == rules.StateKept {
			c.forgetReliance(e.LockID)
		}
	}
}

// forgetReliance forgets the parts to which a hold was reported that has ended.
func (c *change) forgetReliance(lockID string) {
	for p := range c.w.relied {
		if p.resource == c.before.ID && p.lockID == lockID {
			delete(c.w.relied, p)
		}
	}
}

// unmeant returns the reason why an entry should not have ended, or "" if a call named it.
func (c *change) unmeant(e *rules.Entry) string {
	w := c.w
	if e.LockID == lastLockID {
		return ""
	}
	for _, r := range w.releases {
		switch {
		case r.lockID != e.LockID || !slices.Contains(r.resources, c.before.ID), r.runID != "" && r.runID != e.Run:
		case r.first > 0 && r.first == e.FirstFence, r.first == 0 && e.Order <= r.order:
			return ""
		}
	}
	if e.Run != "" && e.State == rules.StateRunning {
		over := slices.ContainsFunc(c.after.Evidence, func(o rules.Evidence) bool {
			return o.LockID == e.LockID && o.Run == e.Run && o.To != "" && w.runs[o.To] > w.runs[e.Run]
		})
		bars := slices.Clone(c.after.Bars)
		for i := range c.after.Entries {
			bars = append(bars, c.after.Entries[i].Bars...)
		}
		barred := slices.ContainsFunc(bars, func(b rules.Bar) bool {
			past := (b.Run == e.Run && e.Order <= b.Order) || w.runs[b.Run] > w.runs[e.Run] // of a run that was replaced
			return past && (b.Saga == e.Saga || strings.HasPrefix(e.Saga, b.Saga+"/")) && strings.HasPrefix(e.LockID, b.LockID)
		})
		if over || barred {
			return ""
		}
	}
	if e.State == rules.StateKept {
		for p := range w.relied {
			if p.resource == c.before.ID && p.lockID == e.LockID {
				return "the holder of " + p.part + " was told that it holds, and relies on it"
			}
		}
		return "" // a request that gave up has begun it
	}
	for o := range each(c.after.Entries) {
		if o.SamePart(&e.Caller) && o.Holds() && o.Order > e.Order {
			return "" // superseded
		}
	}
	call := w.requests[entryKey{partKey{"", e.LockID, e.Part}, e.Order}]
	if w.leaving[keyOf(c.before.ID, e)] || (call != nil && !call.kept) {
		return ""
	}
	return "no call has named it"
}

// nothingReturns is I8 and half of I6: no late command brings back a hold or a part that has ended.
func (c *change) nothingReturns() {
	has := func(d *rules.Document, lockID string, first int64) bool {
		return slices.ContainsFunc(d.Entries, func(e rules.Entry) bool { return e.BelongsTo(lockID) && e.Holds() && e.FirstFence == first })
	}
	for e := range each(c.after.Entries) {
		key := partKey{resource: c.after.ID, lockID: e.LockID}
		if !e.Holds() || has(c.before, e.LockID, e.FirstFence) {
			continue
		}
		if e.FirstFence <= c.w.endedHolds[key] {
			c.w.broken("I8", e.LockID, "%s holds %s with the first fence %d again, which had ended", e.LockID, c.after.ID, e.FirstFence)
		}
	}
	for e := range each(c.after.Entries) {
		if e.State == rules.StateRunning && c.w.endedParts[partKey{c.after.ID, e.LockID, e.ID}] {
			c.w.broken("I6", e.LockID, "%s of %s on %s had ended, and exists again", e.Part, e.LockID, c.after.ID)
		}
	}
	for e := range each(c.before.Entries) {
		if key := (partKey{resource: c.before.ID, lockID: e.LockID}); e.Holds() && !has(c.after, e.LockID, e.FirstFence) {
			c.w.endedHolds[key] = max(c.w.endedHolds[key], e.FirstFence)
		}
	}
}

// grantsAreDue checks each grant of a write: a claim, or a new hold without one.
func (c *change) grantsAreDue() {
	for i := range c.after.Entries {
		e := &c.after.Entries[i]
		if e.State == rules.StateKept || e.State == rules.StateDraining || !isNew(c.before, c.after.At, e) {
			continue
		}
		own := func(o rules.Entry) bool { return o.LockID == e.LockID && o.Holds() }
		if !slices.ContainsFunc(c.after.Entries[:i], own) { // otherwise it joins what the same write has granted
			c.firstComeFirstServed(e)
			if !slices.ContainsFunc(c.after.Entries[i+1:], own) { // which moves a lock ID's entries behind later ones
				c.isCompatible(i, e)
			}
		}
	}
}

// isNew reports whether a write granted an entry: neither its request nor its lock ID had anything
// before.
func isNew(before *rules.Document, now time.Time, e *rules.Entry) bool {
	return !slices.ContainsFunc(before.Entries, func(b rules.Entry) bool {
		return b.LockID == e.LockID && (b.Holds() || (b.Part == e.Part && (b.State == e.State || lives(&b, now))))
	})
}

// isCompatible is I2, and I1 as the document shows it: a grant finds no incompatible entries, and
// fewer others than its limit. Entries that the same write made later do not count: they are behind
// it in the document.
func (c *change) isCompatible(at int, e *rules.Entry) {
	others := map[string]bool{}
	for i := range c.after.Entries {
		o := &c.after.Entries[i]
		stood := i <= at || slices.ContainsFunc(c.before.Entries, func(b rules.Entry) bool {
			return keyOf("", &b) == keyOf("", o) && b.Holds() == o.Holds() && b.Fence == o.Fence
		})
		around := e.Within != "" && o.State == rules.StateKept && o.LockID == e.Within
		// A claim that the same write confirmed is behind the claims that were granted after it.
		behind := e.ClaimedAt != nil && o.ClaimedAt != nil && o.ClaimedAt.Equal(*e.ClaimedAt)
		if o.LockID == e.LockID || around || !lives(o, c.after.At) || !stood || behind {
			continue
		}
		others[o.LockID] = true
		if e.Member != "" && o.Member == e.Member {
			c.w.broken("I13 grant", e.LockID, "%s was granted the member %s of %s, which %s has", e.LockID, e.Member, c.after.ID, shown(o))
		}
		if !rules.Compatible(o.Mode, e.Mode) && e.State == rules.StateRunning {
			c.w.broken("I1 grant", e.LockID, "%s was granted %s (%s), which is incompatible with %s", e.LockID, c.after.ID, e.Mode, shown(o))
		}
	}
	confirmed := e.State == rules.StateRunning && e.ClaimedAt != nil && !e.ClaimedAt.Equal(c.after.At) // a claim keeps its room
	decided := time.Now().Add(c.after.At.Sub(c.w.clock()))
	if e.Member != "" && !confirmed && c.w.skew.Load() == 0 && !c.w.inService(c.after.ID, e.Member, decided) {
		c.w.broken("I13 policy", e.LockID, "%s was granted the member %s of %s, which was not in service in the last seconds", e.LockID, e.Member, c.after.ID)
	}
	if confirmed || e.Limit == 0 {
		return
	}
	limit, policy := e.Limit, int64(0)
	if c.after.Policy != nil {
		limit, policy = c.after.Policy.Limit, c.after.Policy.Limit
	}
	if int64(len(others)) >= limit {
		c.w.broken("I2", e.LockID, "%s was granted %s with the limit %d beside %d others", e.LockID, c.after.ID, limit, len(others))
	}
	if c.w.skew.Load() == 0 && !c.w.followed(c.after.ID, policy, decided) {
		c.w.broken("I2 policy", e.LockID, "%s was granted %s under the policy %d, which was not in force in the last seconds", e.LockID, c.after.ID, policy)
	}
}

// firstComeFirstServed is I4: no request still waits that was ahead of one that was granted, except
// waiters that may join or are overdue, and those of a greater rank.
func (c *change) firstComeFirstServed(e *rules.Entry) {
	who := rules.Party{LockID: e.LockID, Within: e.Within}
	if c.before.Claim(e.Caller) != nil || c.before.HeldByEnclosing(who) || c.after.HeldByEnclosing(who) {
		return // it slept through its claim; or all wait for the workflow that it belongs to
	}
	for q := range each(c.before.Waiters) {
		if q.SamePart(&e.Caller) {
			return
		}
		j := slices.IndexFunc(c.after.Waiters, func(a rules.Waiter) bool { return a.SamePart(&q.Caller) && a.Since.Equal(q.Since) })
		if j < 0 || (c.after.Waiters[j].Ahead && !q.Ahead) { // in between it had a claim, for which there was no room
			continue
		}
		if c.ranks(q) > c.ranks(&rules.Waiter{Caller: e.Caller, Since: c.after.At}) {
			continue
		}
		if q.LockID != e.LockID && c.before.Precedes(q) && c.after.Precedes(&c.after.Waiters[j]) {
			c.w.broken("I4", e.LockID, "%s was granted %s, and %s was ahead of it and still waits", e.LockID, c.before.ID, q.LockID)
		}
	}
}

// ranks returns the rank of a waiter: the priority of its call, and one less for each ten minutes that it has waited.
func (c *change) ranks(q *rules.Waiter) int64 {
	rank := q.Priority
	if call := c.w.requests[entryKey{partKey{"", q.LockID, q.Part}, q.Order}]; call != nil {
		rank = call.priority
	}
	return max(1, cmp.Or(rank, 3)-int64(c.after.At.Sub(q.Since)/(10*time.Minute)))
}

// queueKeepsItsOrder is the other half of I4: waiters keep their positions, and new waiters queue behind
// those whose rank is not greater, except upgrades and waiters whose claim has lapsed.
func (c *change) queueKeepsItsOrder() {
	last := -1
	for i, q := range c.after.Waiters {
		j := slices.IndexFunc(c.before.Waiters, func(b rules.Waiter) bool { return b.SamePart(&q.Caller) })
		if j >= 0 {
			b := &c.before.Waiters[j]
			if b.Order == q.Order && b.Waits(c.after.At) && !q.Since.Equal(b.Since) && !q.Ahead {
				c.w.broken("I4", q.LockID, "%s waits for %s since %v, and its time has changed to %v by %s, at %v", q.LockID, c.before.ID, b.Since, q.Since, c.p.name, c.after.At)
			}
			if !q.Since.Equal(b.Since) {
				j = -1
			}
		}
		if q.Ahead {
			continue
		}
		if j < 0 {
			for b := range each(c.after.Waiters[i+1:]) {
				stood := slices.ContainsFunc(c.before.Waiters, func(w rules.Waiter) bool { return w.SamePart(&b.Caller) && w.Since.Equal(b.Since) })
				if stood && c.ranks(b) <= c.ranks(&q) {
					c.w.broken("I4", q.LockID, "%s has passed %s in the queue of %s", q.LockID, b.LockID, c.before.ID)
				}
			}
			continue
		}
		if j < last {
			c.w.broken("I4", q.LockID, "%s has fallen back in the queue of %s", q.LockID, c.before.ID)
		}
		last = j
	}
}

// waitsInOrder checks that a request that waits for a resource holds no later one. Otherwise requests
// for several resources could wait for each other in a cycle.
func (c *change) waitsInOrder() {
	for q := range each(c.after.Waiters) {
		for _, name := range c.w.plan.resources {
			key := entryKey{partKey{name, q.LockID, q.Part}, q.Order}
			if name <= c.after.ID || c.w.excused[key] || c.w.leaving[key] {
				continue
			}
			if d := c.w.doc(name); d.Part(q.Caller) != nil {
				c.w.broken("circle", q.LockID, "%s waits for %s and holds %s", q.LockID, c.after.ID, name)
			}
		}
	}
}

// condemned returns the requests that the write withdrew as victims of a deadlock.
func (c *change) condemned() []partKey {
	var out []partKey
	for q := range each(c.after.Waiters) {
		if q.Verdict != "" && c.before.Tombstone(q.Caller) == nil {
			out = append(out, partKey{c.before.ID, q.LockID, q.Part})
		}
	}
	return out
}

// verdictsAreTrue is the half of I12 that no request is withdrawn for a deadlock that does not exist.
func (c *change) verdictsAreTrue() {
	for _, key := range c.condemned() {
		if at, ever := c.w.circled[key]; !ever || time.Since(at) > recently {
			c.w.broken("I12", key.lockID, "%s is told of a deadlock on %s, and is in none", key.lockID, key.resource)
		}
	}
}

// lives reports whether an entry has not expired.
func lives(e *rules.Entry, now time.Time) bool { return e.ExpiresAt.After(now) }

// answeredSwap records the answer that the sender of a swap received: which of its requests wait, or
// that their outcome is unknown.
func (w *world) answeredSwap(p *process, next *rules.Document, err error) {
	for e := range each(next.Entries) {
		if c := w.requests[entryKey{partKey{"", e.LockID, e.Part}, e.Order}]; c != nil && c.p == p && err != nil {
			w.excused[keyOf(next.ID, e)] = true
		}
	}
	for q := range each(next.Waiters) {
		if c := w.requests[entryKey{partKey{"", q.LockID, q.Part}, q.Order}]; c != nil && c.p == p && err == nil {
			c.queued = true
		}
	}
}
