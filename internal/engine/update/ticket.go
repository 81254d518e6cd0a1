package update

import (
	"context"
	"sync"
	"time"
)

// Ticket is a submitted call.
type Ticket struct {
	lines  *Lines
	active *activeLine
	call   *Call

	mu      sync.Mutex
	answers []Answer
	ready   chan struct{}
}

// Submit puts an operation in the line of its resource. The caller must call Abandon on the ticket in
// the end, even after the last answer.
func (ls *Lines) Submit(c *Call) *Ticket {
	t := ls.add(c)
	ls.start(t.active)
	return t
}

func (ls *Lines) newTicket(c *Call) *Ticket {
	t := &Ticket{lines: ls, call: c, ready: make(chan struct{}, 1)}
	c.Deliver, c.Notify = t.deliver, t.signal
	return t
}

// add puts an operation in the line of its resource without starting the line.
func (ls *Lines) add(c *Call) *Ticket {
	t := ls.newTicket(c)
	ls.mu.Lock()
	t.active = ls.use(c.Op.ResourceName())
	ls.mu.Unlock()
	t.active.mu.Lock()
	t.active.line.Add(c)
	t.active.mu.Unlock()
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

// Ready returns a channel that receives a value when there may be an answer.
func (t *Ticket) Ready() <-chan struct{} { return t.ready }

// Answer returns the latest answer, if there is one that was not returned before.
func (t *Ticket) Answer() (latest Answer, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.answers) == 0 {
		return Answer{}, false
	}
	latest = t.answers[len(t.answers)-1]
	t.answers = nil // an answer has a whole document, with its queue
	return latest, true
}

// Wake applies a call again that sleeps in the queue.
func (t *Ticket) Wake() {
	t.active.mu.Lock()
	t.active.line.Wake(t.call)
	t.active.mu.Unlock()
	t.lines.start(t.active)
}

// InFlight reports whether a swap is on its way that applies the operation.
func (t *Ticket) InFlight() bool {
	t.active.mu.Lock()
	defer t.active.mu.Unlock()
	return t.active.line.InFlight(t.call)
}

// Abandon ends the ticket. It reports whether the operation may have been applied without an answer, in
// which case the line takes it back.
func (t *Ticket) Abandon() (unknown bool) {
	t.active.mu.Lock()
	defer t.active.mu.Unlock()
	unknown = t.active.line.Abandon(t.call)
	if unknown {
		t.lines.start(t.active)
	}
	t.lines.mu.Lock()
	defer t.lines.mu.Unlock()
	t.lines.leave(t.active)
	return unknown
}

// Do carries out an operation and waits for its answer. If ctx ends first, Answer.Err is its cause.
func (ls *Lines) Do(ctx context.Context, c *Call) Answer {
	if ctx.Err() != nil {
		return Answer{Err: context.Cause(ctx)}
	}
	return ls.Submit(c).wait(ctx)
}

// DoWithin carries out operations that may be delayed, and waits for their answers like Do. Each is
// carried out after d, or together with the next operation on its resource if that comes first. If
// requests wait for the resource, or its update loop still runs, it is carried out at once.
func (ls *Lines) DoWithin(ctx context.Context, d time.Duration, calls []*Call) []Answer {
	answers := make([]Answer, len(calls))
	var all sync.WaitGroup
	for i, c := range calls {
		t, pause := ls.add(c), d
		if t.active.waitedFor() {
			pause = 0
		}
		all.Go(func() {
			timer := ls.clock.NewTimer(pause)
			defer timer.Stop()
			select {
			case <-timer.C:
				ls.start(t.active) // still in use, because the ticket has not ended
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

// waitedFor reports whether requests wait for the resource, according to the cached document.
func (e *activeLine) waitedFor() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.line.known && e.line.doc != nil && len(e.line.doc.Waiters) > 0
}
