package update

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// DoAll carries out independent operations, each on another resource, and returns all answers. The
// operations on idle lines share one read and one swap command; busy lines carry out theirs themselves.
// An answer has an error if ctx ends before it is known.
func (ls *Lines) DoAll(ctx context.Context, calls []*Call) []Answer {
	answers, _, _ := ls.doSeveral(ctx, calls, nil)
	return answers
}

// DoWhile carries out operations that depend on each other, each on another resource, with one read and
// one swap command. It stops before the first operation whose line is busy, whose document has changed,
// or whose predecessor's answer is one for which proceed returns false. DoWhile returns the answers of
// the operations before that one. An operation that was sent and whose outcome is unknown is taken back
// if its call defines how; the same operations may be carried out again.
//
// Before it writes, DoWhile looks at all documents. If an operation would be refused, or a document is damaged,
// nothing is written, and DoWhile returns the refusal. If it cannot look at all of them, nothing is written, and
// unseen holds the reason: ErrReserved, or the error of the read.
func (ls *Lines) DoWhile(ctx context.Context, calls []*Call, proceed func(Answer) bool) (answers []Answer, refused *Refusal, unseen error) {
	return ls.doSeveral(ctx, calls, proceed)
}

// ErrReserved reports that another process has reserved a document.
var ErrReserved = errors.New("lockstep: reserved by another process")

// Refusal is the answer to one of several operations because of which none was carried out. If the answer is
// ReadOnly, or has an error, it follows a read, and is final. Otherwise only a write can give it.
type Refusal struct {
	// Index is that of the operation.
	Index int
	Answer
}

// refuses reports whether an outcome of an Acquire is a refusal.
func refuses(o rules.Outcome) bool {
	switch o {
	case rules.Busy, rules.Full, rules.OtherRun, rules.Lost, rules.Superseded, rules.Deadlock, rules.Unreadable, rules.NoPool, rules.OnlyPool:
		return true
	}
	return false
}

// doSeveral is DoWhile, or DoAll if proceed is nil.
func (ls *Lines) doSeveral(ctx context.Context, calls []*Call, proceed func(Answer) bool) (answers []Answer, refused *Refusal, unseen error) {
	dependent := proceed != nil
	tickets := make([]*Ticket, 0, len(calls))
	var borrowed []*Ticket
	for _, c := range calls {
		t, idle := ls.borrow(c, !dependent)
		if t == nil {
			break
		}
		tickets = append(tickets, t)
		if idle {
			borrowed = append(borrowed, t)
		}
	}
	type outcome struct {
		refused *Refusal
		unseen  error
	}
	carriedOut := make(chan outcome, 1)
	go func() {
		refused, unseen := ls.swapSeveral(borrowed, calls[len(tickets):], proceed)
		carriedOut <- outcome{refused, unseen}
	}()
	select {
	case o := <-carriedOut:
		refused, unseen = o.refused, o.unseen
	case <-ctx.Done(): // a command may take longer than the caller waits
	}
	complete := true // as long as all answers are known
	for _, t := range tickets {
		if !dependent {
			select {
			case <-t.Ready():
			case <-ctx.Done():
			}
		}
		a, ok, unknown := t.Abandon()
		complete = complete && (ok || !dependent)
		if !complete {
			continue
		}
		if !ok {
			a = Answer{Err: context.Cause(ctx), Unknown: unknown}
		}
		answers = append(answers, a)
	}
	if refused != nil {
		return nil, refused, nil
	}
	return answers, nil, unseen
}

// borrow submits a call, and reports whether its line was idle. The caller must then drive the line and
// give it back. If the line is busy, the call is submitted only with evenIfBusy: otherwise the line might
// carry out a call that is about to be taken back, and its request would lose its position in the queue.
func (ls *Lines) borrow(c *Call, evenIfBusy bool) (t *Ticket, idle bool) {
	t = ls.newTicket(c)
	name := c.Op.ResourceName()
	ls.mu.Lock()
	e := ls.lines[name]
	idle = e == nil || (!e.running && !ls.debtors[e])
	if !idle && !evenIfBusy {
		ls.mu.Unlock()
		return nil, false
	}
	t.active = ls.use(name)
	if idle {
		t.active.running = true
		t.active.users++
	}
	ls.mu.Unlock()
	ls.handle(t.active, Joined{c})
	if !idle {
		ls.start(t.active)
	}
	return t, idle
}

// swapSeveral drives borrowed lines for one swap command, and gives them back. The calls in rest are only looked
// at, because their lines, or lines before them, are busy.
func (ls *Lines) swapSeveral(borrowed []*Ticket, rest []*Call, proceed func(Answer) bool) (refusal *Refusal, unseen error) {
	ctx, cancel := ls.clock.WithTimeout(ls.closed, CommandTimeout)
	defer cancel()
	steps, looked, unseen := ls.nextSteps(ctx, borrowed, rest, proceed != nil)
	if proceed != nil {
		refusal = ls.firstRefusal(borrowed, steps, rest, looked)
	}
	var swaps []store.Swap
	for i, t := range borrowed {
		if refusal != nil || (proceed != nil && unseen != nil) {
			break
		}
		if steps[i].Kind != StepSwap || (proceed != nil && !t.proceeds(steps[i].Replies, proceed)) {
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
			notify(steps[i].Replies)
		case steps[i].Kind >= StepLoad:
			ls.handle(t.active, swapResult(i, done, len(swaps), err))
		}
	}
	for _, t := range borrowed {
		ls.giveBack(t, proceed != nil)
	}
	return refusal, unseen
}

// firstRefusal returns the first refusal among the replies to the borrowed lines' tickets and the results of
// looking at the others, or nil.
func (ls *Lines) firstRefusal(borrowed []*Ticket, steps []Step, rest []*Call, looked store.Loaded) *Refusal {
	for i, t := range borrowed {
		if err := looked.Damaged[t.active.line.Name]; err != nil {
			return &Refusal{Index: i, Answer: Answer{Err: err}}
		}
		for _, r := range steps[i].Replies {
			if r.Call == t.call && refuses(r.Outcome) {
				r.ReadOnly = r.ReadOnly && steps[i].Kind == StepReply // otherwise it comes from the cache
				return &Refusal{Index: i, Answer: r.Answer}
			}
		}
	}
	if looked.At.IsZero() {
		return nil
	}
	settings := rules.Settings{ClaimTTL: ls.settings.ClaimTTL, Policies: looked.Identity.Policies}
	for i, c := range rest {
		if err := looked.Damaged[c.Op.ResourceName()]; err != nil {
			return &Refusal{Index: len(borrowed) + i, Answer: Answer{Err: err}}
		}
		after, result := c.Op.Apply(looked.Docs[c.Op.ResourceName()], looked.At, settings)
		if refuses(result.Outcome) {
			return &Refusal{Index: len(borrowed) + i, Answer: Answer{After: after, Result: result}}
		}
	}
	return nil
}

// proceeds reports whether proceed accepts the answer to the ticket's call.
func (t *Ticket) proceeds(replies []Reply, proceed func(Answer) bool) bool {
	for _, r := range replies {
		if r.Call == t.call && !proceed(r.Answer) {
			return false
		}
	}
	return true
}

// giveBack ends the driving of a borrowed line. Dependent calls without an answer are abandoned.
func (ls *Lines) giveBack(t *Ticket, dependent bool) {
	t.active.mu.Lock()
	defer t.active.mu.Unlock()
	if dependent {
		t.active.line.Handle(Abandoned{t.call})
	}
	ls.mu.Lock()
	t.active.running = false
	ls.mu.Unlock()
	if !t.active.line.Asleep() { // before leave, which may drop the line
		ls.start(t.active)
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.leave(t.active)
}

// nextSteps returns the next steps of borrowed lines, after one read for all that need one and for the others
// to look at. unseen is the reason why that did not give a swap or a reply for each. If the calls are dependent, lines
// do not reserve documents and pause only for reservations: their caller pauses.
func (ls *Lines) nextSteps(ctx context.Context, borrowed []*Ticket, rest []*Call, dependent bool) (steps []Step, loaded store.Loaded, unseen error) {
	steps = make([]Step, len(borrowed))
	var names []string
	for _, c := range rest {
		names = append(names, c.Op.ResourceName())
	}
	for i, t := range borrowed {
		if steps[i] = ls.nextOf(t.active); dependent {
			steps[i] = ls.withoutDelay(t.active, steps[i])
		}
		if steps[i].Kind == StepLoad {
			names = append(names, t.active.line.Name)
		}
	}
	if len(names) > 0 {
		loaded, unseen = ls.loadSeveral(ctx, borrowed, steps, names)
	}
	if slices.ContainsFunc(steps, func(s Step) bool { return s.Kind != StepSwap && s.Kind != StepReply }) {
		unseen = cmp.Or(unseen, ErrReserved)
	}
	return steps, loaded, unseen
}

// loadSeveral sends the read, and replaces the steps of the lines that needed it.
func (ls *Lines) loadSeveral(ctx context.Context, borrowed []*Ticket, steps []Step, names []string) (store.Loaded, error) {
	sent := clock.Now()
	loaded, err := ls.store.Load(ctx, names...)
	now := ls.learnTime(loaded, sent, err)
	for i, t := range borrowed {
		if steps[i].Kind != StepLoad {
			continue
		}
		name := t.active.line.Name
		failed := cmp.Or(err, loaded.Damaged[name])
		ls.handle(t.active, loadResult(loaded.Docs[name], now, failed))
		steps[i] = Step{}
		if failed == nil {
			steps[i] = ls.nextOf(t.active)
		}
	}
	return loaded, err
}

// withoutDelay returns the step after one that only delays the line, for another reason than a reservation.
func (ls *Lines) withoutDelay(e *activeLine, step Step) Step {
	if step.Kind == StepReserve {
		ls.handle(e, Reserved{})
		return ls.nextOf(e)
	}
	if step.Kind == StepPause && step.Pause != ReservedPause {
		return ls.nextOf(e)
	}
	return step
}

func (ls *Lines) nextOf(e *activeLine) Step {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.line.Next(ls.guess(), newRandom())
}
