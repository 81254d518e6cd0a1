package update

import (
	"cmp"
	"container/list"
	"context"
	"crypto/rand"
	"errors"
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

// use returns the line of a resource, with one more user. The mutex is held.
func (ls *Lines) use(name string) *activeLine {
	e := ls.lines[name]
	if e == nil {
		e = &activeLine{line: Line{Name: name, Process: ls.process, Policy: ls.policy}, wake: make(chan struct{}, 1)}
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

// leave takes one user from a line. Without one it is only cached, as long as there is room. Both
// mutexes are held.
func (ls *Lines) leave(e *activeLine) {
	if e.users--; e.users > 0 || ls.debtors[e] {
		return
	}
	doc, known := e.line.Cached()
	if e.bytes = size(doc); !known || e.bytes > mostCached/16 {
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

// size estimates the bytes of a document in memory.
func size(d *rules.Document) int {
	const entry, waiter, record = 600, 400, 200
	if d == nil {
		return record
	}
	return 2*record + entry*len(d.Entries) + waiter*len(d.Waiters) + record*(len(d.Evidence)+len(d.Releases)+len(d.Bars))
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

// learn notes the server's time of a read.
func (ls *Lines) learnTime(loaded store.Loaded, sent time.Time, err error) (Now, error) {
	if err != nil {
		ls.server.forget()
		return Now{}, err
	}
	return ls.server.learn(loaded.At, sent, time.Now()), nil
}

// heard forgets the server's time after an error: another server may answer next.
func (ls *Lines) forgetTimeAfter(err error) {
	if err != nil {
		ls.server.forget()
	}
}

// Seen gives a line a document that was read by a majority, as a guess.
func (ls *Lines) Offer(d *rules.Document) {
	ls.mu.Lock()
	e := ls.lines[d.ID]
	if e == nil || e.cache != nil {
		ls.mu.Unlock()
		return
	}
	ls.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.line.Offer(d)
}

// Now is the server's time as far as it is known.
func (ls *Lines) Now() Now { return ls.server.guess() }

// Learn notes the server's time of a read that was sent then.
func (ls *Lines) Learn(at, sent time.Time) Now { return ls.server.learn(at, sent, time.Now()) }

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

// Extend raises the ends of entries, and reports whether all of them are known to have been raised.
func (ls *Lines) Extend(ctx context.Context, parts []store.Extension) (all bool, err error) {
	ends, names := map[string]map[string]time.Time{}, 0
	for _, p := range parts {
		if ends[p.Resource] == nil {
			ends[p.Resource] = map[string]time.Time{}
			names++
		}
		ends[p.Resource][p.ID] = p.End
	}
	before, swaps := map[string]*activeLine{}, map[string]uint64{}
	for name := range ends {
		if e := ls.find(name); e != nil {
			e.mu.Lock()
			before[name], swaps[name] = e, e.line.Swaps()
			e.mu.Unlock()
		}
	}
	found, r, err := ls.store.Extend(ctx, parts)
	all = err == nil && found == names
	for name, ends := range ends {
		e := ls.find(name)
		if e == nil {
			continue
		}
		e.mu.Lock()
		if all && before[name] == e {
			e.line.Extended(ends, r, swaps[name])
		} else {
			e.line.Forget()
		}
		e.mu.Unlock()
	}
	if err != nil && !errors.Is(err, store.ErrNotSent) {
		ls.server.forget()
	}
	return all, err
}

func (ls *Lines) find(name string) *activeLine {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.lines[name]
}
