package update

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
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

// mostCached bounds the estimated size in bytes of the documents of lines without a user.
const mostCached = 16 << 20

// use returns the line of a resource, with one more user. The caller holds ls.mu.
func (ls *Lines) use(name string) *activeLine {
	e := ls.lines[name]
	if e == nil {
		e = &activeLine{line: Line{Name: name, Process: ls.process, Settings: ls.settings}, wake: make(chan struct{}, 1)}
		ls.lines[name] = e
	}
	if e.cache != nil {
		ls.recent.Remove(e.cache)
		ls.cached -= e.bytes
		e.cache = nil
	}
	e.users++
	return e
}

// leave removes one user from a line. A line without a user stays as a cache of its document as long as
// there is room. The caller holds e.mu and ls.mu.
func (ls *Lines) leave(e *activeLine) {
	if e.users--; e.users > 0 || ls.debtors[e] {
		return
	}
	if e.bytes = size(e.line.doc); !e.line.known || e.bytes > mostCached/16 {
		delete(ls.lines, e.line.Name)
		return
	}
	ls.cached += e.bytes
	e.cache = ls.recent.PushFront(e)
	for ls.cached > mostCached {
		oldest := ls.recent.Back().Value.(*activeLine)
		ls.recent.Remove(oldest.cache)
		ls.cached -= oldest.bytes
		delete(ls.lines, oldest.line.Name)
	}
}

// size estimates the size of a document in memory, in bytes.
func size(d *rules.Document) int {
	const entry, waiter, record = 600, 400, 200
	if d == nil {
		return record
	}
	records := len(d.Evidence) + len(d.Releases) + len(d.Bars) + len(d.Forced) + len(d.Missed)
	for i := range d.Entries {
		records += len(d.Entries[i].Bars)
	}
	return 2*record + entry*len(d.Entries) + waiter*len(d.Waiters) + record*records
}

// Offer gives a document that was read elsewhere to the line of its resource, which may use it as its
// cache. It does not keep lines that have no user.
func (ls *Lines) Offer(d *rules.Document) {
	ls.mu.Lock()
	e := ls.lines[d.ID]
	if e == nil || e.cache != nil {
		ls.mu.Unlock()
		return
	}
	ls.mu.Unlock()
	ls.handle(e, Offered{d})
}

// Adopt records the collection's identity, as a read from the primary that was sent at the local time sent has it. If
// the collection is of another generation, all cached documents are dropped. An identity that was read before the
// known one is ignored.
func (ls *Lines) Adopt(now *rules.Identity, sent time.Time) {
	ls.mu.Lock()
	before := ls.identity
	if sent.Before(ls.identified) {
		ls.mu.Unlock()
		return
	}
	policiesChanged := !ls.identified.IsZero() && before.PolicyVersion != now.PolicyVersion
	ls.identity, ls.identified = *now, sent
	var lines []*activeLine
	if before.ID != "" && before.Generation() != now.Generation() {
		lines = slices.Collect(maps.Values(ls.lines))
	} else {
		before.ID = ""
	}
	ls.mu.Unlock()
	for _, e := range lines {
		ls.handle(e, Outdated{})
	}
	if policiesChanged && ls.PoliciesChanged != nil {
		ls.PoliciesChanged()
	}
	if before.ID != "" && ls.Changed != nil {
		ls.Changed(&before, now)
	}
}

// Identity returns the collection's identity, and the time at which the read was sent; zero if there was none.
func (ls *Lines) Identity() (rules.Identity, time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.identity, ls.identified
}

func (ls *Lines) find(name string) *activeLine {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.lines[name]
}
