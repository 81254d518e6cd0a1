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
	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// CommandTimeout bounds one command. The next attempt may reach another, healthy server.
const CommandTimeout = 10 * time.Second

const (
	// reservedFor is the length of a reservation, unless the server is far away. See serverClock.reservation.
	reservedFor = time.Second
	// mostGathering bounds the time for which a line waits for more operations before a swap.
	mostGathering = 2 * time.Millisecond
	// firstPause and mostPause are the first and the longest pause after failures.
	firstPause, mostPause = 10 * time.Millisecond, 30 * time.Second
	// mostCollected bounds the lines in debt that are retried at the same time.
	mostCollected = 16
	// policiesLast is the time for which a process that only uses its cache follows the policies that it has read. A
	// Locker reads them more often.
	policiesLast = 9 * time.Second
	// debtPoll is the pause between two checks of WaitForDebts.
	debtPoll = 20 * time.Millisecond
)

// Lines carries out the operations of one process. A line is the queue of operations on one resource, and
// has a goroutine while operations wait. If the outcome of a swap is unknown, its line is in debt: it owes
// an acknowledged swap, see the package documentation. Lines is safe for concurrent use.
type Lines struct {
	store    store.Store
	clock    clock.Clock
	settings rules.Settings
	process  string
	server   serverClock
	// Changed is called when the collection has another identity than at the read before, while no lock is held.
	// Set it before the first operation.
	Changed func(before, now *rules.Identity)
	// PoliciesChanged is called when the policies have changed, while no lock is held. Set it before the first operation. May be nil.
	PoliciesChanged func()
	// Wrote is called with the answers of each acknowledged swap, after OnWrite and before the callers are notified.
	// Set it before the first operation. May be nil.
	Wrote func([]Answer)
	// closed ends all commands.
	closed context.Context
	close  context.CancelFunc

	mu    sync.Mutex
	lines map[string]*activeLine
	// recent lists the lines that only cache a document, most recent first. cached is their size in bytes.
	recent list.List
	cached int
	// debtors are lines that owe a swap which could not be written at once. collecting is set while a
	// goroutine retries them.
	debtors    map[*activeLine]bool
	collecting bool
	// identity is that of the collection at the latest read from the primary, which was sent at the time identified.
	identity   rules.Identity
	identified time.Time
	// extensions has the statements of Extend that wait, for each document that has one under way.
	extensions map[string][]*merged
}

// activeLine is a line together with the state of its goroutine. If both mutexes are needed, its own is
// locked before Lines.mu.
type activeLine struct {
	mu   sync.Mutex
	line Line
	// wake ends a pause after a failure.
	wake chan struct{}
	// users counts the tickets and goroutines that use the line. running is set while a goroutine or
	// DoAll drives it. Both are guarded by Lines.mu.
	users   int
	running bool
	// swapTook is the duration of the last swap. Only what drives the line uses it.
	swapTook time.Duration
	// cache is the element of Lines.recent, or nil. bytes is its share of Lines.cached.
	cache *list.Element
	bytes int
}

// New returns the lines of one process on a store.
func New(s store.Store, c clock.Clock, settings rules.Settings) *Lines {
	ls := &Lines{
		store: s, clock: c, settings: settings, process: rand.Text(), lines: map[string]*activeLine{}, debtors: map[*activeLine]bool{},
		extensions: map[string][]*merged{},
	}
	ls.closed, ls.close = context.WithCancel(context.Background())
	if s, ok := s.(Exact); ok {
		ls.server.exact = s.ServerTime
	}
	return ls
}

// Close ends all commands. Calls that still wait fail.
func (ls *Lines) Close() { ls.close() }

// start starts the goroutine of a line. If the line has one, start ends its pause.
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

// run is the update loop of one line. It ends when there is nothing to do, or only a debt is left that
// cannot be paid now.
func (ls *Lines) run(e *activeLine) {
	for {
		ls.gather(e)
		step, ok := ls.next(e)
		if !ok {
			return
		}
		ls.carryOut(e, step)
	}
}

// gather waits a moment if calls in the line wait for a grant. The callers that the last swap answered, such
// as the previous and the next holder, often submit another operation at once, which then shares a swap.
// Waiting costs a tenth of the time of a swap, and saves about half of the swaps.
func (ls *Lines) gather(e *activeLine) {
	e.mu.Lock()
	sleeps := e.line.Sleeps()
	e.mu.Unlock()
	if d := min(e.swapTook/10, mostGathering); sleeps && d > 0 {
		ls.sleep(d, nil)
	}
}

// next returns the next step of a line. If there is none, or only a debt that cannot be paid now, the
// line is not driven any longer, and ok is false.
func (ls *Lines) next(e *activeLine) (step Step, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	step = e.line.Next(ls.guess(), newRandom())
	if step.Kind > StepOwe {
		return step, true
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	e.running = false
	if step.Kind == StepOwe {
		ls.debtors[e] = true
		if !ls.collecting && ls.closed.Err() == nil {
			ls.collecting = true
			go ls.collect()
		}
	}
	ls.leave(e)
	return step, false
}

// newRandom returns the random value of a version.
func newRandom() string { return rand.Text()[:16] }

// carryOut carries out one step and passes its result to the line.
func (ls *Lines) carryOut(e *activeLine, step Step) {
	ctx, cancel := ls.clock.WithTimeout(ls.closed, CommandTimeout)
	defer cancel()
	name := e.line.Name
	switch step.Kind {
	case StepReply:
		notify(step.Replies)
	case StepPause:
		ls.pause(e, step)
	case StepLoad:
		sent := clock.Now()
		loaded, err := ls.store.Load(ctx, name)
		now := ls.learnTime(loaded, sent, err)
		ls.handle(e, loadResult(loaded.Docs[name], now, cmp.Or(err, loaded.Damaged[name])))
	case StepReserve:
		if r := ls.server.reservation(ls.process); !r.Until.IsZero() {
			_ = ls.store.Reserve(ctx, name, r)
		}
		ls.handle(e, Reserved{})
	case StepSwap:
		sent := time.Now()
		done, err := ls.store.Swap(ctx, step.Swap)
		ls.forgetTimeAfter(err)
		e.swapTook = time.Since(sent)
		ls.handle(e, swapResult(0, done, 1, err))
	case StepIdle, StepOwe:
	}
}

// loadResult returns the result of a command that loads the document of a line.
func loadResult(d *rules.Document, now Now, err error) Event {
	if err != nil {
		return Failed{err}
	}
	return Loaded{d, now}
}

// swapResult returns the result of a command that swaps the documents of several lines, for the line that is
// number i of them. The command contained the first sent lines, and the store reports done.
func swapResult(i, done, sent int, err error) Event {
	switch {
	case i >= sent:
		return Unsent{}
	case err != nil:
		return Failed{err}
	case i < done:
		return Swapped{}
	}
	return Conflicted{Before: i > done}
}

// handle passes an event to a line. It passes the answers that the event causes to OnWrite and Wrote, and then
// notifies the callers, so that a caller finds its spans written.
func (ls *Lines) handle(e *activeLine, event Event) {
	e.mu.Lock()
	replies := e.line.Handle(event)
	e.mu.Unlock()
	var wrote []Answer
	for _, r := range replies {
		if r.Err != nil {
			continue
		}
		wrote = append(wrote, r.Answer)
		if r.Call.OnWrite != nil {
			r.Call.OnWrite(r.Answer)
		}
	}
	if len(wrote) > 0 && ls.Wrote != nil {
		ls.Wrote(wrote)
	}
	notify(replies)
}

// notify wakes the callers that have been answered.
func notify(replies []Reply) {
	for _, r := range replies {
		if !r.Abandoned {
			r.Call.notify()
		}
	}
}

// pause waits before the next step of a line. A new operation ends a pause after a failure.
func (ls *Lines) pause(e *activeLine, step Step) {
	switch step.Pause {
	case NoPause:
	case ConflictPause:
		ls.sleep(ls.clock.Jitter(5*time.Millisecond), nil)
	case ReservedPause:
		ls.sleep(pace.Jitter(20*time.Millisecond, ls.clock.Jitter), nil)
	case FailurePause:
		// The pause is bounded: after mostTries no call waits, and collect retries the debts.
		d := failurePause(min(step.Failures, mostTries))
		ls.sleep(pace.Jitter(d, ls.clock.Jitter), e.wake)
	}
}

// failurePause is four times as long after each further failure.
func failurePause(failures int) time.Duration {
	return pace.Backoff(firstPause, mostPause, 2*failures-1)
}

// sleep waits for d, until wake receives, or until Close.
func (ls *Lines) sleep(d time.Duration, wake <-chan struct{}) {
	timer := ls.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ls.closed.Done():
	}
}

// collect retries the swaps that lines owe after their callers have given up, a few lines at a time, until
// none is in debt. Its pauses begin where those of the callers' attempts ended.
func (ls *Lines) collect() {
	for round := 3; ; round++ {
		ls.sleep(pace.Jitter(failurePause(round), ls.clock.Jitter), nil)
		debtors := ls.takeDebtors()
		if debtors == nil {
			return
		}
		var all sync.WaitGroup
		for _, e := range debtors {
			ls.handle(e, Resumed{})
			all.Go(func() { ls.run(e) })
		}
		all.Wait()
	}
}

// takeDebtors returns a few lines in debt, which the caller must run. If there are none, it returns nil
// and collect must end.
func (ls *Lines) takeDebtors() []*activeLine {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	var debtors []*activeLine
	for e := range ls.debtors {
		if len(debtors) < mostCollected {
			debtors = append(debtors, e)
		}
	}
	if len(debtors) == 0 || ls.closed.Err() != nil {
		ls.collecting = false
		return nil
	}
	slices.SortFunc(debtors, func(a, b *activeLine) int { return cmp.Compare(a.line.Name, b.line.Name) })
	for _, e := range debtors {
		delete(ls.debtors, e)
		e.running = true
		e.users++
	}
	return debtors
}

// WaitForDebts waits until no line owes a swap, or ctx ends. It returns the operations that are owed
// then, by resource; nil if there are none.
func (ls *Lines) WaitForDebts(ctx context.Context) map[string][]*Call {
	for {
		owed := ls.owed()
		if len(owed) == 0 {
			return nil
		}
		timer := ls.clock.NewTimer(debtPoll)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return owed
		}
	}
}

func (ls *Lines) owed() map[string][]*Call {
	ls.mu.Lock()
	var lines []*activeLine
	for _, e := range ls.lines {
		if e.cache == nil {
			lines = append(lines, e)
		}
	}
	ls.mu.Unlock()
	owed := map[string][]*Call{}
	for _, e := range lines {
		e.mu.Lock()
		if e.line.debt {
			owed[e.line.Name] = slices.Clone(e.line.owed)
		}
		e.mu.Unlock()
	}
	return owed
}

// serverClock estimates the time of the database's server from one of its answers.
type serverClock struct {
	mu sync.Mutex
	// at is the server's time of that answer, sent and received the local times of its command. at is zero if
	// nothing is known.
	at, sent, received time.Time
	// exact, if set, returns the server's time without a command. See Exact.
	exact func() time.Time
}

// Exact is implemented by stores in memory whose clock is set by a test. A sample of such a clock is no
// basis for an estimate.
type Exact interface {
	ServerTime() time.Time
}

const (
	// sampleLasts is the time for which a sample of the server's time is used.
	sampleLasts = 10 * time.Second
	// sampleWithin is the longest round trip of a sample that dates leases. An answer may take seconds, or be read after
	// the process was stopped. Leases that are dated by such an answer would have ended when they are
	// granted, and would be renewed again and again.
	sampleWithin = 250 * time.Millisecond
)

// learn records an answer. That of a long round trip does not replace that of a short one.
func (c *serverClock) learn(at, sent, received time.Time) Now {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.age(); !known || isShort(sent, received) || !isShort(c.sent, c.received) {
		c.at, c.sent, c.received = at, sent, received
	}
	return Now{At: at, Sent: sent}
}

// isShort reports whether the answer of a command may date leases.
func isShort(sent, received time.Time) bool { return clock.Elapsed(sent, received) <= sampleWithin }

// age returns a lower bound of the time since the answer, or ok false if it is too old.
func (c *serverClock) age() (passed time.Duration, ok bool) {
	now := clock.Now()
	return max(0, clock.ElapsedAtLeast(c.received, now)).Truncate(time.Millisecond), !c.at.IsZero() && clock.Elapsed(c.received, now) <= sampleLasts
}

func (c *serverClock) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Time{}
}

// guess returns a lower bound of the server's time, or zero if nothing is known that may date leases.
func (c *serverClock) guess() Now {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exact != nil {
		return Now{At: c.exact(), Sent: clock.Now()}
	}
	passed, ok := c.age()
	if !ok || !isShort(c.sent, c.received) {
		return Now{}
	}
	return Now{At: c.at.Add(passed), Sent: c.sent.Add(passed)}
}

// reservation returns a reservation that a process makes now, without an end if nothing is known of the server's
// time. Four round trips suffice for the reservation, and the read and the swap that follow. The server's time
// is estimated from the middle of a round trip of any length: a process far away needs reservations most.
func (c *serverClock) reservation(process string) rules.Reservation {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exact != nil {
		return rules.Reservation{By: process, From: c.exact(), Until: c.exact().Add(reservedFor)}
	}
	passed, ok := c.age()
	if !ok {
		return rules.Reservation{}
	}
	trip := clock.Elapsed(c.sent, c.received)
	from := c.at.Add(passed + trip/2)
	return rules.Reservation{By: process, From: from, Until: from.Add(min(max(reservedFor, 4*trip), rules.LongestReservation))}
}

// learnTime records the server's time of a read. After an error it forgets the time.
func (ls *Lines) learnTime(loaded store.Loaded, sent time.Time, err error) Now {
	ls.forgetTimeAfter(err)
	if err != nil {
		return Now{}
	}
	ls.Adopt(&loaded.Identity, sent)
	now := ls.server.learn(loaded.At, sent, clock.Now())
	now.In, now.Policies = loaded.Identity.Generation(), loaded.Identity.Policies
	return now
}

// guess returns what is known without a read.
func (ls *Lines) guess() Now {
	now := ls.server.guess()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.server.exact == nil && clock.Elapsed(ls.identified, clock.Now()) > policiesLast {
		return Now{} // so that the document is read, and with it the identity
	}
	now.Policies = ls.identity.Policies
	return now
}

// forgetTimeAfter forgets the server's time after an error, because another server may answer next.
func (ls *Lines) forgetTimeAfter(err error) {
	if err != nil {
		ls.server.forget()
	}
}

// Now returns a lower bound of the server's time, or zero if nothing is known.
func (ls *Lines) Now() Now { return ls.server.guess() }

// Learn records the server's time at, from the answer to a read that was sent at the local time sent.
func (ls *Lines) Learn(at, sent time.Time) Now { return ls.server.learn(at, sent, clock.Now()) }
