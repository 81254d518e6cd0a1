package update

import (
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// Line is the update loop of one process on one resource, as a state machine without I/O. Handle changes it by
// an event, such as a new call or the result of a command, and Next returns what to do next.
//
// A Line is not safe for concurrent use. While a command is on its way, Next must not be called.
type Line struct {
	// Name is the resource, and Process identifies the process in reservations.
	Name, Process string
	Settings      rules.Settings

	// doc is the cached document if known is set, nil if no document is stored. The cache may be stale:
	// the swap compares versions. If fresh is set, doc was read since the last swap, at the server's time
	// at, and the read began at the tick read.
	doc          *rules.Document
	known, fresh bool
	at           Now
	read         uint64
	// in is the generation of the collection at the latest read.
	in rules.Generation
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
	// Owed is set if the operation must be applied even if the call is abandoned or fails, because it ends
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
	// OnWrite is called with the answer of each acknowledged swap, even if the call was abandoned, before the
	// caller is notified. May be nil. Lines calls it, not Line.
	OnWrite func(Answer)

	// answer is the latest answer, until the caller takes it. ready receives a value when there may be one.
	answer  *Answer
	ready   chan struct{}
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

// notify wakes the caller.
func (c *Call) notify() {
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

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
	In rules.Generation
	// Policies are those of the collection, as the process knows them.
	Policies *rules.Policies
}

// StepKind is the kind of command that a line asks for.
type StepKind int

// The kinds of steps.
const (
	// StepIdle: there is nothing to do until a call arrives.
	StepIdle StepKind = iota
	// StepOwe: no caller waits, and the swap that the line owes has failed repeatedly. Pass Resumed later.
	StepOwe
	// StepReply: pass on the replies, and call Next again.
	StepReply
	// StepPause: pause, and call Next again.
	StepPause
	// StepLoad: load the document. The result is Loaded or Failed.
	StepLoad
	// StepSwap: swap the document. The result is Swapped, Conflicted, Failed or Unsent.
	StepSwap
	// StepReserve: reserve the document. The result is Reserved.
	StepReserve
)

// Step is the next command of a line.
type Step struct {
	Kind StepKind
	// Pause is the reason for a pause, and Failures the number of successive failures.
	Pause    Pause
	Failures int
	Swap     store.Swap
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

// Owes reports whether the line takes a call back, or carries it out nevertheless, if it is abandoned.
func (l *Line) Owes(c *Call) bool {
	return slices.Contains(l.calls, c) && (l.InFlight(c) || c.unknown || c.Owed)
}

// InFlight reports whether a swap is on its way that applies a call.
func (l *Line) InFlight(c *Call) bool { return l.sent != nil && answered(l.sent.Replies, c) }

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

// WaitedFor reports whether requests wait for the resource, according to the cached document.
func (l *Line) WaitedFor() bool { return l.known && l.doc != nil && len(l.doc.Waiters) > 0 }

// Next returns the next step. guess is the server's time as it is known without a read, or zero. r is
// the random value of the next version.
func (l *Line) Next(guess Now, r string) Step {
	if l.debt && !l.hasWork() && !l.lapses.IsZero() && l.lapses.Before(guess.At) {
		l.writeOff()
	}
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
	case !l.hasWork() && l.failures > 1:
		return Step{Kind: StepOwe}
	case l.delay != NoPause:
		step := Step{Kind: StepPause, Pause: l.delay, Failures: l.failures}
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
	calls    []*Call
	settings rules.Settings
	now      Now
	doc      *rules.Document
	replies  []Reply
	// writes is set if the document must be written before the replies are valid.
	writes bool
	// cost is the number of entries and waiters that the calls have copied.
	cost int
}

// apply applies the calls that are first, then the owed operations, and then the other calls that are not asleep,
// up to mostCost. After each it also applies the sleeping calls that have been granted a claim.
func (l *Line) apply(now Now) *application {
	settings := rules.Settings{ClaimTTL: l.Settings.ClaimTTL, Policies: now.Policies}
	a := &application{calls: l.calls, settings: settings, now: now, doc: l.doc, writes: l.debt}
	var settled rules.Result
	if l.debt { // which needs a write, even if no operation is owed
		a.doc, settled = rules.Settle{Resource: l.Name}.Apply(a.doc, now.At, settings)
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
	after, result := c.Op.Apply(a.doc, a.now.At, a.settings)
	if result.Outcome == rules.Queued && c.isGranted(after) {
		first := result
		after, result = c.Op.Apply(after, a.now.At, a.settings)
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
				l.answer(t.Call, t.Answer)
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
