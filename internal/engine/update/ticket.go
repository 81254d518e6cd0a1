package update

import (
	"context"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
)

// Ticket is a call that was submitted.
type Ticket struct {
	lines *Lines
	entry *activeLine
	call  *Call

	mu      sync.Mutex
	answers []Answer
	ready   chan struct{}
}

// Submit puts an operation in the line of its resource. The ticket must be ended by Abandon, which
// does no harm after the last answer.
func (ls *Lines) Submit(c *Call) *Ticket {
	t := ls.add(c)
	ls.start(t.entry)
	return t
}

func (ls *Lines) add(c *Call) *Ticket {
	t := &Ticket{lines: ls, call: c, ready: make(chan struct{}, 1)}
	c.Deliver, c.Notify = t.deliver, t.signal
	ls.mu.Lock()
	t.entry = ls.use(c.Op.ResourceName())
	ls.mu.Unlock()
	t.entry.mu.Lock()
	t.entry.line.Add(c)
	t.entry.mu.Unlock()
	return t
}

func (t *Ticket) deliver(a Answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers = append(t.answers, a)
}

func (t *Ticket) signal() {
	select {
	case t.ready <- struct{}{}:
	default:
	}
}

// Ready receives when an answer may be there.
func (t *Ticket) Ready() <-chan struct{} { return t.ready }

// Answer returns the latest answer that was not returned yet, if there is one.
func (t *Ticket) Answer() (latest Answer, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.answers) == 0 {
		return Answer{}, false
	}
	latest = t.answers[len(t.answers)-1]
	t.answers = t.answers[:0]
	return latest, true
}

// Ask asks again for a call that sleeps in the queue.
func (t *Ticket) Wake() {
	t.entry.mu.Lock()
	t.entry.line.Wake(t.call)
	t.entry.mu.Unlock()
	t.lines.start(t.entry)
}

// Abandon ends the ticket, and reports whether the operation may have been applied without the caller
// having been told. Then it is taken back.
func (t *Ticket) Abandon() (unknown bool) {
	t.entry.mu.Lock()
	defer t.entry.mu.Unlock()
	unknown = t.entry.line.Abandon(t.call)
	if unknown {
		t.lines.start(t.entry)
	}
	t.lines.mu.Lock()
	defer t.lines.mu.Unlock()
	t.lines.leave(t.entry)
	return unknown
}

// Do carries out an operation, and waits for its answer until ctx ends. Answer.Err is ctx's cause
// then.
func (ls *Lines) Do(ctx context.Context, c *Call) Answer {
	if ctx.Err() != nil {
		return Answer{Err: context.Cause(ctx)}
	}
	return ls.Submit(c).wait(ctx)
}

// DoWithin carries out operations that are in no hurry, and waits for their answers like Do. Each is
// carried out after d, or with the next operation on its resource if that comes before; at once if
// requests wait for the resource.
func (ls *Lines) DoWithin(ctx context.Context, d time.Duration, calls []*Call) []Answer {
	answers := make([]Answer, len(calls))
	var all sync.WaitGroup
	for i, c := range calls {
		t, pause := ls.add(c), d
		if t.entry.waitedFor() {
			pause = 0
		}
		all.Go(func() {
			timer := ls.clock.NewTimer(pause)
			defer timer.Stop()
			select {
			case <-timer.C:
				ls.start(t.entry) // the ticket is not ended yet, and so the entry is in use
			case <-t.Ready():
				t.signal()
			case <-ctx.Done():
			}
			answers[i] = t.wait(ctx)
		})
	}
	all.Wait()
	return answers
}

// wait waits for the answer until ctx ends, and ends the ticket.
func (t *Ticket) wait(ctx context.Context) Answer {
	select {
	case <-t.Ready():
	case <-ctx.Done():
	}
	unknown := t.Abandon()
	if a, ok := t.Answer(); ok {
		return a
	}
	return Answer{Err: context.Cause(ctx), Unknown: unknown}
}

// waitedFor reports whether requests wait for the resource, as far as this process knows.
func (e *activeLine) waitedFor() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	doc, known := e.line.Cached()
	return known && doc != nil && len(doc.Waiters) > 0
}
