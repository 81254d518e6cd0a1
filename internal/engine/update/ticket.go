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
}

// Submit puts an operation in the line of its resource. The caller must call Abandon on the ticket in
// the end, even after the last answer.
func (ls *Lines) Submit(c *Call) *Ticket {
	t := ls.add(c)
	ls.start(t.active)
	return t
}

func (ls *Lines) newTicket(c *Call) *Ticket {
	c.ready = make(chan struct{}, 1)
	return &Ticket{lines: ls, call: c}
}

// add puts an operation in the line of its resource without starting the line.
func (ls *Lines) add(c *Call) *Ticket {
	t := ls.newTicket(c)
	ls.mu.Lock()
	t.active = ls.use(c.Op.ResourceName())
	ls.mu.Unlock()
	ls.handle(t.active, Joined{c})
	return t
}

// Ready returns a channel that receives a value when there may be an answer.
func (t *Ticket) Ready() <-chan struct{} { return t.call.ready }

// Answer returns the latest answer, if there is one that was not returned before.
func (t *Ticket) Answer() (latest Answer, ok bool) {
	t.active.mu.Lock()
	defer t.active.mu.Unlock()
	return t.call.take()
}

// take returns the latest answer, and forgets it: it has a whole document, with its queue.
func (c *Call) take() (latest Answer, ok bool) {
	if c.answer == nil {
		return Answer{}, false
	}
	latest, c.answer = *c.answer, nil
	return latest, true
}

// Wake applies a call again that sleeps in the queue.
func (t *Ticket) Wake() {
	t.lines.handle(t.active, Woken{t.call})
	t.lines.start(t.active)
}

// InFlight reports whether a swap is on its way that applies the operation.
func (t *Ticket) InFlight() bool {
	t.active.mu.Lock()
	defer t.active.mu.Unlock()
	return t.active.line.InFlight(t.call)
}

// Abandon ends the ticket, and returns the latest answer like Answer. unknown is set if the operation may
// have been applied without an answer, in which case the line takes it back.
func (t *Ticket) Abandon() (latest Answer, ok, unknown bool) {
	t.active.mu.Lock()
	defer t.active.mu.Unlock()
	unknown = t.active.line.Owes(t.call)
	t.active.line.Handle(Abandoned{t.call})
	if unknown {
		t.lines.start(t.active)
	}
	latest, ok = t.call.take()
	t.lines.mu.Lock()
	defer t.lines.mu.Unlock()
	t.lines.leave(t.active)
	return latest, ok, unknown
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
		t.active.mu.Lock()
		if t.active.line.WaitedFor() {
			pause = 0
		}
		t.active.mu.Unlock()
		all.Go(func() {
			timer := ls.clock.NewTimer(pause)
			defer timer.Stop()
			select {
			case <-timer.C:
				ls.start(t.active) // still in use, because the ticket has not ended
			case <-t.Ready():
				c.notify()
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
	a, ok, unknown := t.Abandon()
	if !ok {
		a = Answer{Err: context.Cause(ctx), Unknown: unknown}
	}
	return a
}
