package update

import (
	"cmp"
	"container/list"
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// newRandom returns the random value of a version.
func newRandom() string { return rand.Text()[:16] }

// CommandTimeout bounds one command: the next try may find a better server.
const CommandTimeout = 10 * time.Second

const (
	// mostCached bounds the documents that are kept without a call, in bytes as they are estimated.
	mostCached = 16 << 20
	// reservedFor is how long a reservation lasts.
	reservedFor = time.Second
	// mostPause bounds the pause after failures, and firstPause is the first.
	mostPause, firstPause = 30 * time.Second, 10 * time.Millisecond
)

// Lines carries out the operations of one process: one goroutine for each resource on which
// operations wait. It is safe for concurrent use.
type Lines struct {
	store   store.Store
	clock   clock.Clock
	policy  rules.Policy
	process string
	server  serverClock
	// closed ends all commands.
	closed context.Context
	close  context.CancelFunc

	mu    sync.Mutex
	lines map[string]*activeLine
	// recent are the lines that only cache a document, most recent first, and cached their bytes.
	recent list.List
	cached int
	// debtors are lines that owe a swap which could not be paid at once. collecting is set while a
	// goroutine tries again, and paid is closed when no line owes anything any longer.
	debtors    map[*activeLine]bool
	collecting bool
}

// entry is a line with its goroutine.
type activeLine struct {
	mu   sync.Mutex
	line Line
	// wake ends a pause.
	wake chan struct{}
	// users counts the tickets and goroutines that use the entry, and running is set while a goroutine
	// drives the line. Both are guarded by Lines.mu.
	users   int
	running bool
	// took is how long the last swap took.
	swapTook time.Duration
	// cache is the element of Lines.recent, nil if there is none, and bytes what it counts.
	cache *list.Element
	bytes int
}

// New makes the lines of one process on a store.
func New(s store.Store, c clock.Clock, policy rules.Policy) *Lines {
	ls := &Lines{store: s, clock: c, policy: policy, process: rand.Text(), lines: map[string]*activeLine{}, debtors: map[*activeLine]bool{}}
	ls.closed, ls.close = context.WithCancel(context.Background())
	if s, ok := s.(Exact); ok {
		ls.server.exact = s.ServerTime
	}
	return ls
}

// start drives a line, unless that is being done.
func (ls *Lines) start(e *activeLine) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.debtors, e)
	if e.running {
		select {
		case e.wake <- struct{}{}:
		default:
		}
		return
	}
	e.running = true
	e.users++
	go ls.run(e)
}

// run drives a line until nothing is to be done, or only a debt is left that cannot be paid now.
func (ls *Lines) run(e *activeLine) {
	for {
		ls.gather(e)
		step, again := ls.next(e)
		if !again {
			return
		}
		ls.carryOut(e, step)
	}
}

// gather waits a moment if others wait in the queue: those who were told by the last swap, such as the
// one that has released and the one that was granted the resource, often ask again at once, and share
// a swap then. It costs a tenth of what a swap takes, and saves every second one.
func (ls *Lines) gather(e *activeLine) {
	e.mu.Lock()
	d := min(e.swapTook/10, mostGathering)
	if !e.line.Sleeps() {
		d = 0
	}
	e.mu.Unlock()
	if d == 0 {
		return
	}
	timer := ls.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ls.closed.Done():
	}
}

// mostGathering bounds the time for which a line waits for more operations.
const mostGathering = 2 * time.Millisecond

// next returns the next step of a line. If there is none, or only a debt that could not be paid, it
// stops driving the line.
func (ls *Lines) next(e *activeLine) (step Step, again bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	owes, lapses := e.line.InDebt()
	guess := ls.server.guess()
	if owes && !lapses.IsZero() && lapses.Before(guess.At) {
		e.line.WriteOff()
		owes = false
	}
	stuck := owes && (e.line.Failures() > 1 || ls.closed.Err() != nil)
	if !stuck {
		step = e.line.Next(guess, newRandom())
	}
	if !stuck && step.Kind != StepIdle {
		if step.Kind == StepReply {
			deliver(step.Replies)
		}
		return step, true
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	e.running = false
	if stuck {
		ls.debtors[e] = true
		if !ls.collecting && ls.closed.Err() == nil {
			ls.collecting = true
			go ls.collect()
		}
	}
	ls.leave(e)
	return step, false
}

// carryOut carries out one step, and tells the calls.
func (ls *Lines) carryOut(e *activeLine, step Step) {
	ctx, cancel := ls.clock.WithTimeout(ls.closed, CommandTimeout)
	defer cancel()
	name := e.line.Name
	switch step.Kind {
	case StepReply:
		notify(step.Replies, false)
	case StepPause:
		ls.pause(e, step.Pause)
	case StepLoad:
		sent := time.Now()
		loaded, err := ls.store.Load(ctx, name)
		now, err := ls.learnTime(loaded, sent, err)
		e.finish(func(l *Line) []Reply { return l.loadFinished(loaded.Docs[name], now, err) })
	case StepReserve:
		guess := ls.server.guess()
		if !guess.At.IsZero() {
			_ = ls.store.Reserve(ctx, name, rules.Reservation{By: ls.process, Until: guess.At.Add(reservedFor)})
		}
		e.finish(func(l *Line) []Reply { l.Reserved(); return nil })
	case StepSwap:
		sent := time.Now()
		done, err := ls.store.Swap(ctx, step.Swap)
		ls.forgetTimeAfter(err)
		e.mu.Lock()
		e.swapTook = time.Since(sent)
		e.mu.Unlock()
		e.finish(func(l *Line) []Reply { return l.swapFinished(done > 0, err) })
	case StepIdle:
	}
}

// did gives the result of a command to the line, and tells the calls outside of its mutex.
func (e *activeLine) finish(result func(*Line) []Reply) {
	e.mu.Lock()
	told := result(&e.line)
	deliver(told)
	e.mu.Unlock()
	notify(told, true)
}

// tell reports the writes, and then the answers, so that a caller finds its spans written.
func notify(told []Reply, wrote bool) {
	for _, t := range told {
		if wrote && t.Err == nil && t.Call.OnWrite != nil {
			t.Call.OnWrite(t.Answer)
		}
	}
	for _, t := range told {
		if !t.Abandoned && t.Call.Notify != nil {
			t.Call.Notify()
		}
	}
}

// give gives the calls their answers, in the same critical section in which they leave the line: a
// call that Abandon does not find in the line has its answer.
func deliver(told []Reply) {
	for _, t := range told {
		if !t.Abandoned && t.Call.Deliver != nil {
			t.Call.Deliver(t.Answer)
		}
	}
}

func (ls *Lines) pause(e *activeLine, why Pause) {
	e.mu.Lock()
	failures := e.line.Failures()
	e.mu.Unlock()
	var d time.Duration
	switch why {
	case NoPause:
	case ConflictPause:
		d = ls.clock.Jitter(5 * time.Millisecond)
	case ReservedPause:
		d = 10*time.Millisecond + ls.clock.Jitter(10*time.Millisecond)
	case FailurePause:
		d = failurePause(min(failures, mostTries)) // no call waits longer, and collect tries again for debts
		d = d/2 + ls.clock.Jitter(d/2+1)
	}
	timer := ls.clock.NewTimer(d)
	defer timer.Stop()
	wake := e.wake
	if why != FailurePause {
		wake = nil
	}
	select {
	case <-timer.C:
	case <-wake:
	case <-ls.closed.Done():
	}
}

func failurePause(failures int) time.Duration {
	return min(firstPause<<(2*min(max(failures-1, 0), 6)), mostPause)
}

// collect pays the debts of lines whose callers have given up, a few at a time, until none is left.
func (ls *Lines) collect() {
	for round := 3; ; round++ {
		d := failurePause(round)
		timer := ls.clock.NewTimer(d/2 + ls.clock.Jitter(d/2+1))
		select {
		case <-timer.C:
		case <-ls.closed.Done():
			timer.Stop()
		}
		ls.mu.Lock()
		var debtors []*activeLine
		for e := range ls.debtors {
			if len(debtors) < mostCollected {
				debtors = append(debtors, e)
			}
		}
		if len(debtors) == 0 || ls.closed.Err() != nil {
			ls.collecting = false
			ls.mu.Unlock()
			return
		}
		slices.SortFunc(debtors, func(a, b *activeLine) int { return cmp.Compare(a.line.Name, b.line.Name) })
		for _, e := range debtors {
			delete(ls.debtors, e)
			e.running = true
			e.users++
		}
		ls.mu.Unlock()
		var all sync.WaitGroup
		for _, e := range debtors {
			e.mu.Lock()
			e.line.Retry()
			e.mu.Unlock()
			all.Go(func() { ls.run(e) })
		}
		all.Wait()
	}
}

// mostCollected bounds the debts that are paid at once.
const mostCollected = 16

// Settled waits until no line owes anything, or ctx ends, and returns what is owed by resource.
func (ls *Lines) WaitForDebts(ctx context.Context) map[string][]*Call {
	for {
		owed := ls.owed()
		if len(owed) == 0 {
			return nil
		}
		timer := ls.clock.NewTimer(settledPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return owed
		}
	}
}

// settledPause is the pause between two looks at what is owed.
const settledPause = 20 * time.Millisecond

func (ls *Lines) owed() map[string][]*Call {
	ls.mu.Lock()
	var entries []*activeLine
	for _, e := range ls.lines {
		if e.cache == nil {
			entries = append(entries, e)
		}
	}
	ls.mu.Unlock()
	owed := map[string][]*Call{}
	for _, e := range entries {
		e.mu.Lock()
		if !e.line.Idle() && e.line.debt {
			owed[e.line.Name] = e.line.Owed()
		}
		e.mu.Unlock()
	}
	return owed
}

// Close ends all commands. What waits is told so.
func (ls *Lines) Close() { ls.close() }
