package update

import (
	"errors"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Line is the update loop of one process on one resource, as a step function: Next names the next
// command, and the result of the command is given to Loaded, Swapped, Conflicted or Failed. It does
// no I/O and starts no goroutine, so that a test can drive it through every interleaving.
//
// A Line is not safe for concurrent use. Between Next and the result of its command, operations may
// be added and abandoned, but Next must not be called.
type Line struct {
	// Name is the resource, and Process identifies the process in reservations.
	Name, Process string
	Policy        rules.Policy

	// doc is what the process knows of the document, if known is set: a guess, which a swap verifies.
	// It is nil if no document is stored. If fresh is set, it was read at the server's time at since
	// the last swap, and the read began at the tick read.
	doc          *rules.Document
	known, fresh bool
	// committed is set if doc was written by this process, and acknowledged.
	committed bool
	// swaps counts acknowledged swaps.
	swaps uint64
	at    Now
	read  uint64
	// ticks counts reads and arrivals.
	ticks uint64
	calls []*Call
	// debt is set while the outcome of a swap is unknown: the line owes an acknowledged swap, which
	// settles all lost ones because it replaces the version on which they depend. owed are applied
	// with it. lapses is the time from which nothing of a lost swap can be in force.
	debt   bool
	owed   []*Call
	lapses time.Time
	// sent is the command that Next returned last, until its result is known. changed is set if the
	// document was extended in the meantime.
	sent    *Step
	changed bool
	// conflicts counts swaps in a row that found another version, and failures commands in a row that
	// failed. delay is set if the line pauses before its next command.
	conflicts, failures int
	delay               Pause
}

// Call is an operation that waits in a line.
type Call struct {
	Op rules.Op
	// TakeBack undoes what the operation may have done. It is applied with the next acknowledged swap
	// if the call is abandoned, or fails, while its outcome is unknown. Nil undoes nothing.
	TakeBack *Call
	// Owed: TakeBack is applied even if the operation was surely not applied, since it ends what the
	// caller has or may have.
	Owed bool
	// Sleeps: once the operation, an Acquire, has queued, the call stays in the line, and is applied
	// again by the swap in which its claim is made.
	Sleeps bool
	// Tell, if it is set, is called with every answer, while the line is locked, unless the call was
	// abandoned. Wrote is called afterwards with the answer of each acknowledged swap, and Told when
	// that has returned. The line itself calls none of them.
	OnWrite, Deliver func(Answer)
	Notify           func()

	arrived uint64
	// queued is set once the call has queued, and asleep until it is asked again. unknown is set once
	// the outcome of a swap that contained the call was unknown.
	queued, asleep, unknown bool
	failures                int
	// swaps counts the swaps that contained the call.
	swaps int
}

// Unknown reports whether the call may have been applied by a swap whose outcome is unknown. The line
// must not have the call any longer.
func (c *Call) Unknown() bool { return c.unknown }

// Answer is what a call is told.
type Answer struct {
	// After is the document after the call's own operation; it must not be changed. Before the
	// operation it was as in a document of the same write.
	After *rules.Document
	rules.Result
	// Sent is the local time from which the lease of a part may be trusted for as long as After says:
	// see Now.
	Sent time.Time
	// Retried is set if another swap contained the call before, which may have been applied.
	Retried bool
	// Err is set if there is no result. Unknown is set if the operation may have been applied.
	Err     error
	Unknown bool
}

// Now is the server's time as a process knows it when it decides. At is not later than the server's
// time, and when the server's time is At+d the process's clock shows no less than Sent+d.
type Now struct {
	At, Sent time.Time
}

// StepKind is the kind of command that a line asks for.
type StepKind int

// What a line asks for.
const (
	// StepIdle: nothing is to be done until a call arrives.
	StepIdle StepKind = iota
	// StepTell: the answers are known; ask again.
	StepReply
	// StepPause: ask again after the pause.
	StepPause
	// StepLoad: load the document, and give it to Loaded.
	StepLoad
	// StepSwap: swap it, and call Swapped or Conflicted.
	StepSwap
	// StepReserve: reserve the document, and call Reserved.
	StepReserve
)

// Step is the next command of a line.
type Step struct {
	Kind  StepKind
	Pause Pause
	Swap  store.Swap
	// Answers are what calls are told: with StepSwap once the swap is acknowledged, and otherwise now.
	Replies []Reply
}

// Told is the answer to a call.
type Reply struct {
	Call *Call
	Answer
	// Gone is set if the call was abandoned: only Wrote is called.
	Abandoned bool
}

// Pause is why a line waits.
type Pause int

// The pauses. Conflict and Reserved are short and jittered; Failure grows with Line.Failures.
const (
	NoPause Pause = iota
	ConflictPause
	ReservedPause
	FailurePause
)

// mostTries bounds the commands that may fail before a call is told, and reserveAfter is the number
// of conflicts in a row after which a line reserves the document.
const (
	mostTries    = 3
	reserveAfter = 4
)

// Add puts a call at the end of the line.
func (l *Line) Add(c *Call) {
	l.ticks++
	c.arrived = l.ticks
	l.calls = append(l.calls, c)
}

// Ask applies a sleeping call again: its waiter is to be refreshed, or something has changed.
func (l *Line) Wake(c *Call) {
	if c.asleep && slices.Contains(l.calls, c) {
		l.ticks++
		c.asleep, c.arrived, c.failures = false, l.ticks, 0
	}
}

// Abandon removes a call, and reports whether it may have been applied, or may still be, or is owed.
// Then the line takes it back.
func (l *Line) Abandon(c *Call) (unknown bool) {
	if !slices.Contains(l.calls, c) {
		return false
	}
	l.remove(c)
	sent := l.sent != nil && slices.ContainsFunc(l.sent.Replies, func(t Reply) bool { return t.Call == c })
	if !sent && !c.unknown && !c.Owed {
		return false
	}
	l.takeBack(c)
	return true
}

func (l *Line) remove(c *Call) {
	l.calls = slices.DeleteFunc(l.calls, func(other *Call) bool { return other == c })
}

func (l *Line) takeBack(c *Call) {
	l.debt = true
	if c.TakeBack != nil {
		l.owed = append(l.owed, c.TakeBack)
	}
	if c.Owed { // what it ends is not in a lost swap, and may last forever
		l.lapses = rules.Never
	}
}

// Idle reports whether nothing waits in the line and nothing is owed.
func (l *Line) Idle() bool { return l.sent == nil && len(l.calls) == 0 && !l.debt }

// Sleeps reports whether a call sleeps in the queue.
func (l *Line) Sleeps() bool {
	return slices.ContainsFunc(l.calls, func(c *Call) bool { return c.asleep })
}

// Asleep reports whether all that wait in the line are asleep, and nothing is owed.
func (l *Line) Asleep() bool {
	return l.sent == nil && !l.debt && !slices.ContainsFunc(l.calls, func(c *Call) bool { return !c.asleep })
}

// InDebt reports whether the line owes a swap that no caller waits for, and until when.
func (l *Line) InDebt() (owes bool, lapses time.Time) {
	return l.debt && !slices.ContainsFunc(l.calls, func(c *Call) bool { return !c.asleep }), l.lapses
}

// Owed returns the operations that are owed.
func (l *Line) Owed() []*Call { return l.owed }

// WriteOff forgets what is owed.
func (l *Line) WriteOff() { l.debt, l.owed, l.lapses = false, nil, time.Time{} }

// Failures is the number of commands in a row that have failed.
func (l *Line) Failures() int { return l.failures }

// Cached returns what the process knows of the document.
func (l *Line) Cached() (doc *rules.Document, known bool) { return l.doc, l.known }

// Guess sets what the process knows of the document, if it knows nothing.
func (l *Line) Offer(doc *rules.Document) {
	if !l.known && l.sent == nil {
		l.doc, l.known, l.fresh, l.committed = doc, true, false, false
	}
}

// Forget drops what the process knows of the document.
func (l *Line) Forget() { l.doc, l.known, l.fresh, l.changed = nil, false, false, true }

// Next returns the next command. guess is the server's time as far as it is known without a read; its
// zero value is unknown. r is the random value of the next version.
func (l *Line) Next(guess Now, r string) Step {
	step := l.next(guess, r)
	if step.Kind == StepLoad {
		l.ticks++
		l.read = l.ticks
	}
	if step.Kind == StepSwap {
		for i := range step.Replies {
			t := &step.Replies[i]
			t.Retried = t.Call.swaps > 0
			t.Call.swaps++
		}
	}
	if step.Kind >= StepLoad {
		l.sent, l.changed = &step, false
	}
	return step
}

func (l *Line) next(guess Now, r string) Step {
	runs := slices.ContainsFunc(l.calls, func(c *Call) bool { return !c.asleep })
	switch {
	case !runs && !l.debt:
		l.fresh = false // what arrives later must not be dated by the time of an old read
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
	// Nothing ends because its time is over except by the time that was read together with the
	// document.
	if !l.fresh && (guess.At.IsZero() || l.doc.ExpiresBy(guess.At) || l.isOld(guess.At)) {
		return Step{Kind: StepLoad}
	}
	if l.fresh && l.doc.ReservedByOther(l.Process, now.At) {
		l.known, l.fresh = false, false
		return Step{Kind: StepPause, Pause: ReservedPause}
	}
	after, told, writes := l.apply(now)
	if !writes {
		return l.replyFromRead(told)
	}
	after.Version = rules.Version{N: now.At.UnixMilli(), R: r}
	var prev rules.Version
	if l.doc != nil {
		prev = l.doc.Version
		after.Version.N = prev.N + 1
	}
	if !after.ReservedByOther(l.Process, now.At) {
		after.Reserved = nil
	}
	return Step{Kind: StepSwap, Swap: store.Swap{Prev: prev, Next: after}, Replies: told}
}

// isOld reports whether the cached document may have been removed as an idle one since: a swap of
// several documents would insert it again.
func (l *Line) isOld(now time.Time) bool { return l.doc != nil && now.Sub(l.doc.At) > cacheLasts }

// cacheLasts is far less than the time for which documents of idle resources are kept.
const cacheLasts = 10 * time.Minute

// apply applies what is owed, all calls that are not asleep, in order of arrival, and after each the
// sleeping calls for which it has made a claim.
func (l *Line) apply(now Now) (after *rules.Document, told []Reply, writes bool) {
	after, writes = l.doc, l.debt
	do := func(c *Call) {
		var result rules.Result
		after, result = c.Op.Apply(after, now.At)
		if result.Outcome == rules.Queued && c.isGranted(after) { // what was in its way had expired
			first := result
			after, result = c.Op.Apply(after, now.At)
			result.Ended = slices.Concat(first.Ended, result.Ended)
			result.Expired = slices.Concat(first.Expired, result.Expired)
		}
		writes = writes || !result.ReadOnly
		told = append(told, Reply{Call: c, Answer: Answer{After: after, Result: result, Sent: now.Sent}})
	}
	serve := func() {
		for _, sleeper := range l.calls {
			// Once: what holds already would be served again, and its second answer would find it gone.
			if sleeper.asleep && !answered(told, sleeper) && sleeper.isGranted(after) {
				do(sleeper)
			}
		}
	}
	var settled rules.Result
	if l.debt { // a write, even if nothing is to be taken back
		after, settled = rules.Settle{Policy: l.Policy, Resource: l.Name}.Apply(after, now.At)
		serve()
	}
	for _, c := range l.owed {
		do(c)
		serve()
	}
	for _, c := range l.calls {
		if !c.asleep {
			do(c)
			serve()
		}
	}
	if len(told) > 0 {
		told[0].Holds = slices.Concat(settled.Holds, told[0].Holds)
	}
	return after, told, writes
}

func answered(told []Reply, c *Call) bool {
	return slices.ContainsFunc(told, func(t Reply) bool { return t.Call == c })
}

// waitsAfter reports whether the call stays in the line after an outcome: it queued now, or it did
// before, and the queue was full when it asked again. That passes, and its caller waits for it.
func (c *Call) waitsAfter(outcome rules.Outcome) bool {
	return c.Sleeps && (outcome == rules.Queued || (c.queued && outcome == rules.Full))
}

// isServed reports whether a document has a claim for a sleeping call, or a hold that it may join.
func (c *Call) isGranted(d *rules.Document) bool {
	op, ok := c.Op.(rules.Acquire)
	if !ok || op.Refresh {
		return false
	}
	claim := d.Claim(op.LockID, op.Part)
	return claim != nil && claim.Alive(d.At) && claim.Order <= op.Order || d.Joins(op.Party())
}

// tellRead answers calls without a swap if the document was read since they arrived. A read that
// began before a call is too old: what the call waits for may have ended in between.
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
	l.fresh = false // what comes next is another pass
	step.Kind = StepLoad
	if len(step.Replies) > 0 {
		step.Kind, l.failures = StepReply, 0
	}
	return step
}

// Loaded gives the line the document that StepLoad asked for, nil if there is none, as the server had
// it at now.
func (l *Line) Loaded(doc *rules.Document, now Now) {
	l.sent = nil // failures stay: a document that cannot be written can be read
	if doc != nil {
		doc.At = now.At
	}
	l.doc, l.known, l.fresh, l.at, l.committed = doc, true, true, now, false
	if l.changed { // by this process, perhaps after the read
		l.fresh = false
		l.known = false
	}
}

// Swapped reports that the swap was acknowledged, and returns the answers.
func (l *Line) Swapped() []Reply {
	step := l.sent
	l.sent = nil
	l.doc, l.known, l.fresh, l.committed = step.Swap.Next, !l.changed, false, true
	l.swaps++
	l.conflicts, l.failures = 0, 0
	// What was abandoned while the swap was under way is taken back by the next one.
	l.owed = slices.DeleteFunc(l.owed, func(c *Call) bool {
		return slices.ContainsFunc(step.Replies, func(t Reply) bool { return t.Call == c })
	})
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
		c.unknown, c.failures = false, 0
	}
	return step.Replies
}

// Conflicted reports that the document has another version. It does not prove that nothing was
// applied: the calls are applied again, and find what they were granted by their IDs.
func (l *Line) Conflicted() {
	for _, t := range l.sent.Replies {
		t.Call.unknown = true // the driver may have sent the swap twice: then this is the answer to the second time
	}
	l.sent = nil
	l.known, l.fresh = false, false
	l.failures = 0
	if l.conflicts++; l.conflicts > 1 {
		l.delay = ConflictPause
	}
}

// Reserved reports that the document is reserved, or that the attempt failed: it is advice.
func (l *Line) Reserved() {
	l.sent = nil
	l.known, l.fresh = false, false
	l.conflicts = 1
}

// Failed reports that the command failed, and returns the answers. After a swap that was sent its
// outcome is unknown.
func (l *Line) Failed(err error) (told []Reply) {
	step := l.sent
	l.sent = nil
	l.known, l.fresh = false, false
	l.failures++
	l.delay = FailurePause
	lost := step.Kind == StepSwap && !errors.Is(err, store.ErrNotSent)
	if lost {
		l.debt = true
		l.lapses = later(l.lapses, step.Swap.Next.IdleAt)
		for _, t := range step.Replies {
			t.Call.unknown = true
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
		if c.Sleeps && !fatal && c.queued { // its position in the queue outlasts a failure that passes
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

// Retry lets a line that has only a debt try again.
func (l *Line) Retry() { l.failures, l.delay = min(l.failures, 1), NoPause }

// Unsent reports that the command was not carried out, for another reason than a failure.
func (l *Line) Unsent() { l.sent, l.fresh = nil, false }

// Skipped reports that a command for several documents has stopped before this one because of a
// conflict. Like Conflicted it does not prove that nothing was applied.
func (l *Line) Skipped() {
	for _, t := range l.sent.Replies {
		t.Call.unknown = true
	}
	l.Unsent()
}

// Swaps counts the line's acknowledged swaps.
func (l *Line) Swaps() uint64 { return l.swaps }

// Extended reports that the process has raised the ends of entries, by ID, in a command that gave the
// document a new version with the random value r. What was only read is dropped: it may have been
// rolled back, and replaced by another state with the same counter, on which the new version follows.
// So is what was written since the command was sent, when Swaps was swaps: it may contain the
// extension already. Its counter must not grow for it twice, and reach that of a state in which the
// same process's next extension has followed on a write of another one.
func (l *Line) Extended(ends map[string]time.Time, r string, swaps uint64) {
	if l.sent != nil || !l.known || l.doc == nil || !l.committed || l.swaps != swaps {
		l.Forget()
		return
	}
	d := l.doc.Clone()
	d.Version = rules.Version{N: d.Version.N + 1, R: r}
	for i := range d.Entries {
		if end, named := ends[d.Entries[i].ID]; named {
			d.Entries[i].ExpiresAt = later(d.Entries[i].ExpiresAt, end)
			d.IdleAt = later(d.IdleAt, rules.IdleAt(end))
		}
	}
	l.doc, l.fresh = d, false
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// took gives the line a document that was read, or the error.
func (l *Line) loadFinished(d *rules.Document, now Now, err error) []Reply {
	if err != nil {
		return l.Failed(err)
	}
	l.Loaded(d, now)
	return nil
}

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
