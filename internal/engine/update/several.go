package update

import (
	"context"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// DoAll carries out operations on several resources, each another one, with one read and one command
// for as many of them as possible: those before the first whose line is busy, or whose document is
// not what was expected.
//
// With goesOn the operations depend on each other: those after the first whose answer does not go on
// are not carried out, and neither are those after one that could not be carried out together. DoAll
// returns the answers that it has, of the operations at the beginning. What was sent and has an
// unknown outcome is taken back if the call says how; the same operations may be carried out again.
//
// Without it they are independent: all are carried out, and DoAll returns all answers.
func (ls *Lines) DoAll(ctx context.Context, calls []*Call, goesOn func(Answer) bool) []Answer {
	tickets := make([]*Ticket, 0, len(calls))
	var borrowed []*Ticket
	for _, c := range calls {
		t, idle := ls.borrow(c, goesOn == nil)
		if t == nil {
			break
		}
		tickets = append(tickets, t)
		if idle {
			borrowed = append(borrowed, t)
		}
	}
	carriedOut := make(chan struct{})
	go func() {
		defer close(carriedOut)
		ls.swapTogether(borrowed, goesOn)
	}()
	select {
	case <-carriedOut:
	case <-ctx.Done(): // a command may take longer than the caller waits
	}
	var answers []Answer
	whole := true
	for _, t := range tickets {
		if goesOn == nil {
			select {
			case <-t.Ready():
			case <-ctx.Done():
			}
		}
		unknown := t.Abandon()
		a, ok := t.Answer()
		if whole = whole && (ok || goesOn == nil); !whole {
			continue
		}
		if !ok {
			a = Answer{Err: context.Cause(ctx), Unknown: unknown}
		}
		answers = append(answers, a)
	}
	return answers
}

// borrow submits a call, and reports whether its line was idle: then the caller drives it. If the line
// is busy, the call is only submitted with evenBusy. Without it the line might carry out a call that
// is about to be taken back, and its request would lose its position in the queue.
func (ls *Lines) borrow(c *Call, evenBusy bool) (t *Ticket, idle bool) {
	t = &Ticket{lines: ls, call: c, ready: make(chan struct{}, 1)}
	c.Deliver, c.Notify = t.deliver, t.signal
	ls.mu.Lock()
	name := c.Op.ResourceName()
	e := ls.lines[name]
	if idle = e == nil || (!e.running && !ls.debtors[e]); !idle && !evenBusy {
		ls.mu.Unlock()
		return nil, false
	}
	if t.entry = ls.use(name); idle {
		t.entry.running = true
		t.entry.users++
	}
	ls.mu.Unlock()
	t.entry.mu.Lock()
	t.entry.line.Add(c)
	t.entry.mu.Unlock()
	if !idle {
		ls.start(t.entry)
	}
	return t, idle
}

// together drives borrowed lines for one swap, and gives them back.
func (ls *Lines) swapTogether(borrowed []*Ticket, goesOn func(Answer) bool) {
	ctx, cancel := ls.clock.WithTimeout(ls.closed, CommandTimeout)
	defer cancel()
	steps := ls.nextAll(ctx, borrowed)
	var swaps []store.Swap
	for i, t := range borrowed {
		going := steps[i].Kind == StepSwap
		if going && goesOn != nil {
			for _, told := range steps[i].Replies {
				going = going && (told.Call != t.call || goesOn(told.Answer))
			}
		}
		if !going {
			break
		}
		swaps = append(swaps, steps[i].Swap)
	}
	done, err := 0, error(nil)
	if len(swaps) > 0 {
		done, err = ls.store.Swap(ctx, swaps...)
		ls.forgetTimeAfter(err)
	}
	for i, t := range borrowed {
		switch {
		case steps[i].Kind == StepReply:
			notify(steps[i].Replies, false)
		case steps[i].Kind < StepLoad:
		case i < len(swaps) && i <= done:
			t.entry.finish(func(l *Line) []Reply { return l.swapFinished(i < done, err) })
		case i < len(swaps) && err != nil:
			t.entry.finish(func(l *Line) []Reply { return l.Failed(err) })
		case i < len(swaps):
			t.entry.finish(func(l *Line) []Reply { l.Skipped(); return nil })
		default:
			t.entry.finish(func(l *Line) []Reply { l.Unsent(); return nil })
		}
	}
	for _, t := range borrowed {
		ls.giveBack(t, goesOn != nil)
	}
}

// giveBack ends the driving of a borrowed line. Dependent calls that were not answered do not wait
// any longer.
func (ls *Lines) giveBack(t *Ticket, dependent bool) {
	t.entry.mu.Lock()
	defer t.entry.mu.Unlock()
	if dependent {
		t.entry.line.Abandon(t.call)
	}
	ls.mu.Lock()
	t.entry.running = false
	ls.mu.Unlock()
	if !t.entry.line.Idle() && !t.entry.line.Asleep() { // before leave, which may forget the line
		ls.start(t.entry)
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.leave(t.entry)
}

// loadAll returns the next steps of lines, after one read for all that need one.
func (ls *Lines) nextAll(ctx context.Context, borrowed []*Ticket) []Step {
	steps := make([]Step, len(borrowed))
	var names []string
	for i, t := range borrowed {
		if steps[i] = ls.nextOf(t); steps[i].Kind == StepLoad {
			names = append(names, t.entry.line.Name)
		}
	}
	if len(names) == 0 {
		return steps
	}
	sent := time.Now()
	loaded, err := ls.store.Load(ctx, names...)
	now, err := ls.learnTime(loaded, sent, err)
	for i, t := range borrowed {
		if steps[i].Kind == StepLoad {
			t.entry.finish(func(l *Line) []Reply { return l.loadFinished(loaded.Docs[l.Name], now, err) })
			if err == nil {
				steps[i] = ls.nextOf(t)
			} else {
				steps[i] = Step{}
			}
		}
	}
	return steps
}

func (ls *Lines) nextOf(t *Ticket) Step {
	t.entry.mu.Lock()
	defer t.entry.mu.Unlock()
	step := t.entry.line.Next(ls.server.guess(), newRandom())
	if step.Kind == StepReply {
		deliver(step.Replies)
	}
	return step
}
