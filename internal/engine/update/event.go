package update

import (
	"errors"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// Event is an input of a Line: a value of one of the types below.
type Event any

// The events that callers cause.
type (
	// Joined reports that a call arrives. It is put at the end of the line, or at its head if it is First.
	Joined struct{ Call *Call }
	// Woken reports that a sleeping call must be applied again, to refresh its waiter or because something
	// has changed.
	Woken struct{ Call *Call }
	// Abandoned reports that the caller does not wait any longer. The call leaves the line, which takes it
	// back if it Owes that.
	Abandoned struct{ Call *Call }
	// Resumed reports that a line that is left for later (StepOwe) must try again to pay its debt.
	Resumed struct{}
)

// The events that are the result of a command.
type (
	// Loaded has the document that was read at Now, or nil if none is stored.
	Loaded struct {
		Doc *rules.Document
		Now Now
	}
	// Swapped reports that the swap was acknowledged.
	Swapped struct{}
	// Conflicted reports that the document has another version, or if Before is set, that a command for several
	// documents stopped at a conflict before this document. The driver may have sent the swap twice, and this may be
	// the answer to the second attempt, so the swap may have been applied. The calls are applied again, also those
	// that slept, and find their grants by their IDs.
	Conflicted struct{ Before bool }
	// Failed reports an error. The outcome of a swap that was sent is unknown.
	Failed struct{ Err error }
	// Reserved reports that the document was reserved, or that the attempt failed, which does no harm.
	Reserved struct{}
	// Unsent reports that the command was not carried out, although nothing failed.
	Unsent struct{}
)

// The events that concern the cached document.
type (
	// Offered has a document that was read elsewhere. It is cached if no document is.
	Offered struct{ Doc *rules.Document }
	// Outdated reports that the document may have changed.
	Outdated struct{}
	// Extended reports that the process has raised the ends of entries, by ID, in a command that gave the
	// document a new version with the random value R. When the command was sent, the line had as many
	// acknowledged Swaps.
	Extended struct {
		Ends  map[string]time.Time
		R     string
		Swaps uint64
	}
)

// Handle changes the line by an event, and returns the answers that the event causes.
func (l *Line) Handle(event Event) []Reply {
	switch e := event.(type) {
	case Joined:
		l.ticks++
		e.Call.arrived = l.ticks
		if e.Call.First {
			l.calls = slices.Insert(l.calls, 0, e.Call)
		} else {
			l.calls = append(l.calls, e.Call)
		}
	case Woken:
		if c := e.Call; c.asleep && slices.Contains(l.calls, c) {
			l.ticks++
			c.asleep, c.arrived, c.failures = false, l.ticks, 0
		}
	case Abandoned:
		l.drop(e.Call)
	case Resumed:
		l.failures, l.delay = min(l.failures, 1), NoPause
	case Loaded:
		l.loaded(e.Doc, e.Now)
	case Swapped:
		return l.swapped()
	case Conflicted:
		l.conflicted(e.Before)
	case Failed:
		return l.failed(e.Err)
	case Reserved:
		l.sent, l.known, l.fresh, l.conflicts = nil, false, false, 1
	case Unsent:
		l.sent, l.fresh = nil, false
	case Offered:
		if !l.known && l.sent == nil {
			l.doc, l.known, l.fresh, l.committed = e.Doc, true, false, false
		}
	case Outdated:
		l.forget()
	case Extended:
		l.extended(e)
	}
	return nil
}

func (l *Line) remove(c *Call) {
	l.calls = slices.DeleteFunc(l.calls, func(other *Call) bool { return other == c })
}

// drop removes a call. If the line Owes that, the next swap takes the call back, or carries it out if it is Owed.
func (l *Line) drop(c *Call) {
	if l.Owes(c) {
		l.debt = true
		switch {
		case c.Owed: // what it ends may have no end of its own
			l.owed, l.lapses = append(l.owed, c), rules.Never
		case c.TakeBack != nil:
			l.owed = append(l.owed, c.TakeBack)
		}
	}
	l.remove(c)
}

// writeOff drops the debt.
func (l *Line) writeOff() { l.debt, l.owed, l.lapses = false, nil, time.Time{} }

// forget drops the cached document.
func (l *Line) forget() { l.doc, l.known, l.fresh, l.changed = nil, false, false, true }

func (l *Line) loaded(doc *rules.Document, now Now) {
	l.sent = nil // the count of failures stays: a document that can be read may not be writable
	if doc != nil {
		doc.At = now.At
	}
	if l.in.ID != "" && l.in.ID != now.In.ID { // what the line owes was lost with the collection before
		l.writeOff()
	}
	l.in = now.In
	l.doc, l.known, l.fresh, l.at, l.committed = doc, true, true, now, false
	if l.changed { // by an extension of this process, perhaps after the read
		l.fresh = false
		l.known = false
		l.conflicts++ // otherwise frequent extensions of this process would keep it from ever writing
	}
}

func (l *Line) swapped() []Reply {
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
		l.answer(c, t.Answer)
	}
	return step.Replies
}

// answer gives a call the answer of a swap or of a read. The call leaves the line, unless it sleeps in the queue.
func (l *Line) answer(c *Call, a Answer) {
	c.answer, c.failures = &a, 0
	c.queued = c.queued || a.Outcome == rules.Queued
	if c.asleep = c.waitsAfter(a.Outcome); !c.asleep {
		l.remove(c)
	}
}

func (l *Line) conflicted(before bool) {
	for _, t := range l.sent.Replies {
		t.Call.unknown, t.Call.asleep = true, false
	}
	l.sent, l.fresh = nil, false
	if before {
		return
	}
	l.known = false
	l.failures = 0
	if l.conflicts++; l.conflicts > 1 {
		l.delay = ConflictPause
	}
}

func (l *Line) failed(err error) (told []Reply) {
	step := l.sent
	l.sent = nil
	l.known, l.fresh = false, false
	l.failures++
	l.delay = FailurePause
	if step.Kind == StepSwap && !errors.Is(err, store.ErrNotSent) {
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
		a := Answer{Err: err, Unknown: c.unknown}
		c.answer, told = &a, append(told, Reply{Call: c, Answer: a})
		if c.Sleeps && !fatal && c.queued { // it keeps its position in the queue
			c.asleep, c.failures = true, 0
			continue
		}
		l.drop(c)
	}
	return told
}

// extended advances the cached document, but only if this process wrote it, and before the command was sent:
//
//   - A document that was only read may have been rolled back, and the extension may follow on another
//     state with the same counter.
//   - A document that was written after the command was sent may already contain the extension. If its
//     counter grew twice for one extension, it could reach the version of a different state.
func (l *Line) extended(e Extended) {
	if l.sent != nil || !l.known || l.doc == nil || !l.committed || l.swaps != e.Swaps {
		l.forget()
		return
	}
	d := l.doc.Clone()
	d.Version = rules.Version{N: d.Version.N + 1, R: e.R}
	for i := range d.Entries {
		if end, named := e.Ends[d.Entries[i].ID]; named {
			d.Entries[i].ExpiresAt = rules.Later(d.Entries[i].ExpiresAt, end)
			d.IdleAt = rules.Later(d.IdleAt, rules.IdleAt(end))
		}
	}
	l.doc, l.fresh = d, false
}
