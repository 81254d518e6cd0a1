package update

import (
	"errors"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// Line is the update loop of one process on one resource, as a step function without I/O: Next returns
// the next command, and the caller passes its result to Loaded, Swapped, Conflicted or Failed.
//
// A Line is not safe for concurrent use. While a command is on its way, operations may be added and
// abandoned, but Next must not be called.
type Line struct {
	// Name is the resource, and Process identifies the process in reservations.
	Name, Process string
	Policy        rules.Policy

	// doc is the cached document if known is set, nil if no document is stored. The cache may be stale:
	// the swap compares versions. If fresh is set, doc was read since the last swap, at the server's time
	// at, and the read began at the tick read.
	doc          *rules.Document
	known, fresh bool
	at           Now
	read         uint64
	// in is the generation of the collection at the latest read.
	in store.Generation
	// committed is set if doc was written by this process and acknowledged.
	committed bool
	// swaps counts acknowledged swaps.
	swaps uint64
	// ticks counts reads and arrivals of calls.
	ticks uint64
	calls []*Call
	// debt is set while the outcome of a swap is unknown. The line then owes an acknowledged swap, which
	// settles all lost ones because it replaces the version on which they depend. The operations owed are
	// applied with it. lapses is the time after which no effect of a lost swap can be in force.
	debt   bool
	owed   []*Call
	lapses time.Time
	// sent is the command whose result is not known yet. changed is set if the document was extended
	// while it was on its way.
	sent    *Step
	changed bool
	// conflicts counts successive swaps that found another version, and failures successive commands
	// that failed. delay is the reason for a pause before the next command.
	conflicts, failures int
	delay               Pause
}

// Call is an operation that waits in a line.
type Call struct {
	Op rules.Op
	// TakeBack undoes what the operation may have done. It is applied with the next acknowledged swap if
	// the call is abandoned or fails while its outcome is unknown. May be nil.
	TakeBack *Call
	// Owed is set if TakeBack must be applied even if the operation was not, because the operation ends
	// something that the caller holds.
	Owed bool
	// Reads is set if the operation must be applied to a document that was read after the call arrived.
	Reads bool
	// Sleeps keeps the call, an Acquire, in the line after it has queued. The swap that makes its claim
	// applies it again.
	Sleeps bool
	// First puts the call ahead of others. From the local time Urgent on, unless it is zero, the line does not
	// wait for a reservation to end. Renewals of many parts set both.
	First  bool
	Urgent time.Time
	// Deliver is called with every answer, while the line is locked, unless the call was abandoned.
	// OnWrite is called after that with the answer of each acknowledged swap, and then Notify. All may be
	// nil. Lines calls them, not Line.
	OnWrite, Deliver func(Answer)
	Notify           func()

	arrived uint64
	// queued is set once the call has queued. asleep is set while it sleeps in the queue. unknown is set
	// while a swap that contained the call has an unknown outcome.
	queued, asleep, unknown bool
	// lost is set once the answer to a swap that contained the call was lost.
	lost     bool
	failures int
	// swaps counts the swaps that contained the call.
	swaps int
}

// Unknown reports whether the call may have been applied by a swap whose outcome is unknown. It must be
// called only when the line no longer contains the call.
func (c *Call) Unknown() bool { return c.unknown }

// Answer is the result of a call.
type Answer struct {
	// After is the document after the call's operation, which must not be changed. Other operations of
	// the same swap may have been applied before it.
	After *rules.Document
	rules.Result
	// Sent is the local time at which the trust in a granted lease begins. See Now.
	Sent time.Time
	// Retried is set if an earlier swap contained the call, which may have been applied. Lost is set if the answer
	// to one of these swaps was lost; otherwise they found another version, and were hardly applied.
	Retried, Lost bool
	// Err is set if the result is missing. Unknown is then set if the operation may have been applied.
	Err     error
	Unknown bool
}

// Now is the server's time as a process knows it: At is not later than the server's time, and when the
// server's time is At+d, the process's clock shows at least Sent+d.
type Now struct {
	At, Sent time.Time
	// In is the generation of the collection, if the time comes from a read.
	In store.Generation
}

// StepKind is the kind of command that a line asks for.
type StepKind int

// The kinds of steps.
const (
	// StepIdle: there is nothing to do until a call arrives.
	StepIdle StepKind = iota
	// StepReply: pass on the replies, and call Next again.
	StepReply
	// StepPause: pause, and call Next again.
	StepPause
	// StepLoad: load the document, and call Loaded or Failed.
	StepLoad
	// StepSwap: swap the document, and call Swapped, Conflicted or Failed.
	StepSwap
	// StepReserve: reserve the document, and call Reserved.
	StepReserve
)

// Step is the next command of a line.
type Step struct {
	Kind  StepKind
	Pause Pause
	Swap  store.Swap
	// Replies are the answers to calls. With StepSwap they are valid once the swap is acknowledged.
	Replies []Reply
}

// Reply is the answer to a call.
type Reply struct {
	Call *Call
	Answer
	// Abandoned is set if the call was abandoned. Then only OnWrite is called.
	Abandoned bool
}

// Pause is the reason why a line pauses.
type Pause int

// The pauses. ConflictPause and ReservedPause are short and jittered; FailurePause grows with
// the number of failures.
const (
	NoPause Pause = iota
	ConflictPause
	ReservedPause
	FailurePause
)

const (
	// mostTries is the number of failed commands after which a call fails.
	mostTries = 3
	// reserveAfter is the number of successive conflicts after which a line reserves the document.
	reserveAfter = 4
	// mostCost bounds the work for one swap, which takes a second or two. Hundreds of requests for a document with
	// thousands of entries take longer than its leases last, and renewals would wait for them.
	mostCost = 200_000
	// cacheLasts bounds the age of a cached document. It is far less than the time for which documents of
	// idle resources are kept, so a swap seldom finds that its document was removed.
	cacheLasts = 10 * time.Minute
)

// Add puts a call at the end of the line, or at its head.
func (l *Line) Add(c *Call) {
	l.ticks++
	c.arrived = l.ticks
	if c.First {
		l.calls = slices.Insert(l.calls, 0, c)
		return
	}
	l.calls = append(l.calls, c)
}

// Wake applies a sleeping call again, to refresh its waiter or because something has changed.
func (l *Line) Wake(c *Call) {
	if c.asleep && slices.Contains(l.calls, c) {
		l.ticks++
		c.asleep, c.arrived, c.failures = false, l.ticks, 0
	}
}

// Abandon removes a call. It reports whether the call may have been or may still be applied, or is owed,
// in which case the line takes it back.
func (l *Line) Abandon(c *Call) (unknown bool) {
	if !slices.Contains(l.calls, c) {
		return false
	}
	l.remove(c)
	if !l.InFlight(c) && !c.unknown && !c.Owed {
		return false
	}
	l.takeBack(c)
	return true
}

// InFlight reports whether a swap is on its way that applies a call.
func (l *Line) InFlight(c *Call) bool { return l.sent != nil && answered(l.sent.Replies, c) }

func (l *Line) remove(c *Call) {
	l.calls = slices.DeleteFunc(l.calls, func(other *Call) bool { return other == c })
}

func (l *Line) takeBack(c *Call) {
	l.debt = true
	if c.TakeBack != nil {
		l.owed = append(l.owed, c.TakeBack)
	}
	if c.Owed { // what it ends may have no end of its own
		l.lapses = rules.Never
	}
}

// Idle reports whether nothing waits in the line and nothing is owed.
func (l *Line) Idle() bool { return l.sent == nil && len(l.calls) == 0 && !l.debt }

// Sleeps reports whether a call sleeps in the line.
func (l *Line) Sleeps() bool {
	return slices.ContainsFunc(l.calls, func(c *Call) bool { return c.asleep })
}

// Asleep reports whether all calls in the line are asleep, and nothing is owed.
func (l *Line) Asleep() bool { return l.sent == nil && !l.debt && !l.hasWork() }

// hasWork reports whether a call is not asleep.
func (l *Line) hasWork() bool {
	return slices.ContainsFunc(l.calls, func(c *Call) bool { return !c.asleep })
}

// InDebt reports whether the line owes a swap for which no caller waits, and the time at which the debt
// lapses.
func (l *Line) InDebt() (owes bool, lapses time.Time) { return l.debt && !l.hasWork(), l.lapses }

// WriteOff drops the debt.
func (l *Line) WriteOff() { l.debt, l.owed, l.lapses = false, nil, time.Time{} }

// Offer sets the cached document, if there is none.
func (l *Line) Offer(doc *rules.Document) {
	if !l.known && l.sent == nil {
		l.doc, l.known, l.fresh, l.committed = doc, true, false, false
	}
}

// Forget drops the cached document.
func (l *Line) Forget() { l.doc, l.known, l.fresh, l.changed = nil, false, false, true }

// Next returns the next step. guess is the server's time as it is known without a read, or zero. r is
// the random value of the next version.
func (l *Line) Next(guess Now, r string) Step {
	step := l.next(guess, r)
	if step.Kind == StepLoad {
		l.ticks++
		l.read = l.ticks
	}
	if step.Kind == StepSwap {
		for i := range step.Replies {
			t := &step.Replies[i]
			t.Retried, t.Lost = t.Call.swaps > 0, t.Call.lost
			t.Call.swaps++
		}
	}
	if step.Kind >= StepLoad {
		l.sent, l.changed = &step, false
	}
	return step
}

func (l *Line) next(guess Now, r string) Step {
	switch {
	case !l.hasWork() && !l.debt:
		l.fresh = false // later calls must not be dated by the time of an old read
		return Step{Kind: StepIdle}
	case l.delay != NoPause:
		step := Step{Kind: StepPause, Pause: l.delay}
		l.delay = NoPause
		return step
	case l.conflicts >= reserveAfter:
		return Step{Kind: StepReserve}
	case !l.known:
		return Step{Kind: StepLoad}
	}
	now := guess
	if l.fresh {
		now = l.at
	}
	if slices.ContainsFunc(l.calls, func(c *Call) bool { return c.Reads && (!l.fresh || l.read < c.arrived) }) {
		return Step{Kind: StepLoad}
	}
	// Nothing may expire by a time that was not read together with the document.
	if !l.fresh && (guess.At.IsZero() || l.doc.ExpiresBy(guess.At) || l.isOld(guess.At)) {
		return Step{Kind: StepLoad}
	}
	if l.doc.ReservedByOther(l.Process, now.At) && !l.isUrgent(now.Sent) {
		l.known, l.fresh = false, false
		return Step{Kind: StepPause, Pause: ReservedPause}
	}
	a := l.apply(now)
	if !a.writes {
		return l.replyFromRead(a.replies)
	}
	after := a.doc
	after.Version = rules.Version{N: now.At.UnixMilli(), R: r}
	var prev rules.Version
	if l.doc != nil {
		prev = l.doc.Version
		after.Version.N = prev.N + 1
	}
	if !after.ReservedByOther(l.Process, now.At) {
		after.Reserved = nil
	}
	return Step{Kind: StepSwap, Swap: store.Swap{Prev: prev, Next: after, In: l.in}, Replies: a.replies}
}

// isUrgent reports whether a call must not wait for a reservation any longer.
func (l *Line) isUrgent(now time.Time) bool {
	return slices.ContainsFunc(l.calls, func(c *Call) bool { return !c.asleep && !c.Urgent.IsZero() && !now.Before(c.Urgent) })
}

// isOld reports whether the cached document may have been removed as idle in the meantime.
func (l *Line) isOld(now time.Time) bool { return l.doc != nil && now.Sub(l.doc.At) > cacheLasts }

// application is the document of a line while calls are applied to it.
type application struct {
	calls   []*Call
	now     Now
	doc     *rules.Document
	replies []Reply
	// writes is set if the document must be written before the replies are valid.
	writes bool
	// cost is the number of entries and waiters that the calls have copied.
	cost int
}

// apply applies the calls that are first, then the owed operations, and then the other calls that are not asleep,
// up to mostCost. After each it also applies the sleeping calls that have been granted a claim.
func (l *Line) apply(now Now) *application {
	a := &application{calls: l.calls, now: now, doc: l.doc, writes: l.debt}
	var settled rules.Result
	if l.debt { // which needs a write, even if no operation is owed
		a.doc, settled = rules.Settle{Policy: l.Policy, Resource: l.Name}.Apply(a.doc, now.At)
		a.applySleepers()
	}
	calls := l.calls
	if len(l.owed) > 0 {
		first := slices.IndexFunc(calls, func(c *Call) bool { return !c.First })
		if first < 0 {
			first = len(calls)
		}
		calls = slices.Concat(calls[:first], l.owed, calls[first:])
	}
	for _, c := range calls {
		if a.cost > mostCost {
			break
		}
		if !c.asleep {
			a.apply(c)
			a.applySleepers()
		}
	}
	if len(a.replies) > 0 {
		a.replies[0].Holds = slices.Concat(settled.Holds, a.replies[0].Holds)
	}
	return a
}

// apply applies one call. If settling grants it a claim at once, because the entries that blocked it had
// expired, apply confirms the claim.
func (a *application) apply(c *Call) {
	after, result := c.Op.Apply(a.doc, a.now.At)
	if result.Outcome == rules.Queued && c.isGranted(after) {
		first := result
		after, result = c.Op.Apply(after, a.now.At)
		result.Ended = slices.Concat(first.Ended, result.Ended)
		result.Expired = slices.Concat(first.Expired, result.Expired)
	}
	a.doc = after
	a.cost += 1 + len(after.Entries) + len(after.Waiters)
	a.writes = a.writes || !result.ReadOnly
	a.replies = append(a.replies, Reply{Call: c, Answer: Answer{After: after, Result: result, Sent: a.now.Sent}})
}

// applySleepers applies the sleeping calls that have been granted a claim, each at most once: the
// second answer to a call would not find the claim that the first one confirmed.
//
// Each passes over the entries only if its lock ID has a claim or a hold: a thousand sleepers may wait for a
// thousand holders.
func (a *application) applySleepers() {
	var granted map[string]bool // lock IDs
	for _, sleeper := range a.calls {
		if a.cost > mostCost { // their claims wake the others
			return
		}
		op, ok := sleeper.Op.(rules.Acquire)
		if !sleeper.asleep || !ok {
			continue
		}
		if granted == nil {
			granted = a.doc.Granted()
		}
		if granted[op.LockID] && !answered(a.replies, sleeper) && sleeper.isGranted(a.doc) {
			a.apply(sleeper)
			granted = nil
		}
	}
}

func answered(replies []Reply, c *Call) bool {
	return slices.ContainsFunc(replies, func(r Reply) bool { return r.Call == c })
}

// waitsAfter reports whether the call stays in the line after an outcome: it has queued, or it had queued
// before and the queue was full when it asked again, which passes.
func (c *Call) waitsAfter(outcome rules.Outcome) bool {
	return c.Sleeps && (outcome == rules.Queued || (c.queued && outcome == rules.Full))
}

// isGranted reports whether a document has a claim for a call, or a hold that it may join.
func (c *Call) isGranted(d *rules.Document) bool {
	op, ok := c.Op.(rules.Acquire)
	if !ok || op.Refresh {
		return false
	}
	claim := d.Claim(op.Caller)
	return claim != nil && claim.Alive(d.At) && claim.Order <= op.Order || d.Joins(op.Party())
}

// replyFromRead answers calls without a swap if the document was read after they arrived. A read that
// began before is too old, because the hold that blocks the call may have ended in between.
func (l *Line) replyFromRead(told []Reply) Step {
	var step Step
	if l.fresh {
		for _, t := range told {
			if t.Call.arrived < l.read {
				if t.Call.asleep = t.Call.waitsAfter(t.Outcome); !t.Call.asleep {
					l.remove(t.Call)
				}
				step.Replies = append(step.Replies, t)
			}
		}
	}
	l.fresh = false
	step.Kind = StepLoad
	if len(step.Replies) > 0 {
		step.Kind, l.failures = StepReply, 0
	}
	return step
}

// Loaded passes the document that was read at now, or nil if none is stored.
func (l *Line) Loaded(doc *rules.Document, now Now) {
	l.sent = nil // the count of failures stays: a document that can be read may not be writable
	if doc != nil {
		doc.At = now.At
	}
	if l.in.ID != "" && l.in.ID != now.In.ID { // what the line owes was lost with the collection before
		l.WriteOff()
	}
	l.in = now.In
	l.doc, l.known, l.fresh, l.at, l.committed = doc, true, true, now, false
	if l.changed { // by an extension of this process, perhaps after the read
		l.fresh = false
		l.known = false
		l.conflicts++ // otherwise frequent extensions of this process would keep it from ever writing
	}
}

// Swapped reports that the swap was acknowledged, and returns the answers.
func (l *Line) Swapped() []Reply {
	step := l.sent
	l.sent = nil
	l.doc, l.known, l.fresh, l.committed = step.Swap.Next, !l.changed, false, true
	l.swaps++
	l.conflicts, l.failures = 0, 0
	for _, c := range l.calls { // those of lost swaps that slept, too: it replaces the version on which these depend
		c.unknown = false
	}
	// Calls that were abandoned while the swap was on its way are taken back by the next one.
	l.owed = slices.DeleteFunc(l.owed, func(c *Call) bool { return answered(step.Replies, c) })
	l.debt = len(l.owed) > 0
	if !l.debt {
		l.lapses = time.Time{}
	}
	for i := range step.Replies {
		t := &step.Replies[i]
		c := t.Call
		if t.Abandoned = !slices.Contains(l.calls, c); t.Abandoned {
			continue
		}
		c.queued = c.queued || t.Outcome == rules.Queued
		if c.asleep = c.waitsAfter(t.Outcome); !c.asleep {
			l.remove(c)
		}
		c.failures = 0
	}
	return step.Replies
}

// Conflicted reports that the document has another version. The driver may have sent the swap twice, and
// this may be the answer to the second attempt, so the swap may have been applied. The calls are applied
// again, also those that slept, and find their grants by their IDs.
func (l *Line) Conflicted() {
	for _, t := range l.sent.Replies {
		t.Call.unknown, t.Call.asleep = true, false
	}
	l.sent = nil
	l.known, l.fresh = false, false
	l.failures = 0
	if l.conflicts++; l.conflicts > 1 {
		l.delay = ConflictPause
	}
}

// Reserved reports that the document was reserved, or that the attempt failed, which does no harm.
func (l *Line) Reserved() {
	l.sent = nil
	l.known, l.fresh = false, false
	l.conflicts = 1
}

// Failed reports that the command failed, and returns the replies to calls that fail with it. The outcome
// of a swap that was sent is unknown.
func (l *Line) Failed(err error) (told []Reply) {
	step := l.sent
	l.sent = nil
	l.known, l.fresh = false, false
	l.failures++
	l.delay = FailurePause
	lost := step.Kind == StepSwap && !errors.Is(err, store.ErrNotSent)
	if lost {
		l.debt = true
		l.lapses = rules.Later(l.lapses, step.Swap.Next.IdleAt)
		for _, t := range step.Replies {
			t.Call.unknown, t.Call.lost = true, true
		}
	}
	var refused *rules.LayoutError
	fatal := errors.As(err, &refused)
	for _, c := range slices.Clone(l.calls) {
		if c.asleep {
			continue
		}
		if c.failures++; c.failures < mostTries && !fatal {
			continue
		}
		told = append(told, Reply{Call: c, Answer: Answer{Err: err, Unknown: c.unknown}})
		if c.Sleeps && !fatal && c.queued { // it keeps its position in the queue
			c.asleep, c.failures = true, 0
			continue
		}
		l.remove(c)
		if c.unknown || c.Owed {
			l.takeBack(c)
		}
	}
	return told
}

// Retry ends the pause of a line that has only a debt.
func (l *Line) Retry() { l.failures, l.delay = min(l.failures, 1), NoPause }

// Unsent reports that the command was not carried out, although nothing failed.
func (l *Line) Unsent() { l.sent, l.fresh = nil, false }

// Skipped reports that a command for several documents stopped at a conflict before this document. Like
// after Conflicted, the swap may have been applied.
func (l *Line) Skipped() {
	for _, t := range l.sent.Replies {
		t.Call.unknown, t.Call.asleep = true, false
	}
	l.Unsent()
}

// Extended reports that the process has raised the ends of entries, by ID, in a command that gave the
// document a new version with the random value r. When the command was sent, the line had as many acknowledged swaps.
//
// The cached document is advanced only if this process wrote it, and before the command was sent:
//
//   - A document that was only read may have been rolled back, and the extension may follow on another
//     state with the same counter.
//   - A document that was written after the command was sent may already contain the extension. If its
//     counter grew twice for one extension, it could reach the version of a different state.
func (l *Line) Extended(ends map[string]time.Time, r string, swaps uint64) {
	if l.sent != nil || !l.known || l.doc == nil || !l.committed || l.swaps != swaps {
		l.Forget()
		return
	}
	d := l.doc.Clone()
	d.Version = rules.Version{N: d.Version.N + 1, R: r}
	for i := range d.Entries {
		if end, named := ends[d.Entries[i].ID]; named {
			d.Entries[i].ExpiresAt = rules.Later(d.Entries[i].ExpiresAt, end)
			d.IdleAt = rules.Later(d.IdleAt, rules.IdleAt(end))
		}
	}
	l.doc, l.fresh = d, false
}

// loadFinished passes the result of a load.
func (l *Line) loadFinished(d *rules.Document, now Now, err error) []Reply {
	if err != nil {
		return l.Failed(err)
	}
	l.Loaded(d, now)
	return nil
}

// swapFinished passes the result of a swap, and returns the replies.
func (l *Line) swapFinished(done bool, err error) []Reply {
	switch {
	case err != nil:
		return l.Failed(err)
	case !done:
		l.Conflicted()
		return nil
	}
	return l.Swapped()
}
