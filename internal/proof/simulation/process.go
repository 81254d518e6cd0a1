package simulation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// process is a process that uses the library: a Locker, its clock, and its connection to the database (network.go).
// While it is frozen, its timers, timeouts and the answers to its commands are delayed, and it sends nothing. A killed
// process stays frozen.
type process struct {
	w      *world
	n      int
	name   string
	locker *lockcore.Steps
	// plain is set if the process does not use Temporal, and so receives no wake-ups.
	plain bool
	// stopListening unregisters the receiver of wake-ups.
	stopListening func()

	mu sync.Mutex
	// shut is closed when the process continues; it is nil while the process runs.
	shut   chan struct{}
	killed bool
	// sent counts the commands of each kind, so that latencies follow from the seed.
	sent map[string]uint64
	// spins counts the uses of the clock at the instant at.
	at    time.Time
	spins int
	// spun is set if there were too many. From then on all timers fire later, so that time passes and the play can end.
	spun bool
	// commands and kinds count the commands in the second that began at second. most is the limit.
	second         time.Time
	commands, most int
	kinds          map[string]int
	// troubles lists the faults that affected it.
	troubles []trouble

	// deposed is the time in which it asks a primary that was deposed. reads are its latest loads by resource, and acked the
	// times at which it heard that a swap was applied. They are guarded by the world's mutex.
	deposed trouble
	reads   map[string][]reading
	acked   map[string]time.Time
}

// trouble is a time in which a process could not do its work, everywhere or on one resource.
type trouble struct {
	from, to time.Time
	resource string
	// single is one command that failed; a process in good health copes with a few.
	single bool
}

// mostSpins bounds the uses of its clock by a process in one instant.
const mostSpins = 20_000

func newProcess(w *world, n int) *process {
	p := &process{
		w: w, n: n, name: fmt.Sprintf("p%d", n), sent: map[string]uint64{}, most: mostCommands, reads: map[string][]reading{}, acked: map[string]time.Time{},
	}
	for _, c := range w.plan.actors {
		if c.process == n && strings.HasPrefix(c.lockID, "hurry") {
			p.most += hurryCommands
		}
	}
	if w.plan.farTrip > 0 {
		p.most = rushingCommands
	}
	cfg := w.plan.cfg
	cfg.Host = p.name
	l, err := lockcore.NewWithStore(p, cfg)
	if err != nil {
		panic(err)
	}
	p.locker = l.Steps()
	p.plain, p.stopListening = n == 0 && w.seed%4 == 0, func() {}
	if !p.plain {
		p.stopListening = p.locker.OnWakeup(func(t lockcore.Wakeup) { w.wakeup(p, t) })
	}
	return p
}

// freeze stops the process; kill does so for good.
func (p *process) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shut == nil {
		p.shut = make(chan struct{})
	}
}

func (p *process) kill() {
	p.freeze()
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
}

// thaw lets the process continue, unless it was killed.
func (p *process) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shut != nil && !p.killed {
		close(p.shut)
		p.shut = nil
	}
}

// revive lets a killed process continue after the checks, so that it can be closed.
func (p *process) revive() {
	p.mu.Lock()
	p.killed = false
	p.mu.Unlock()
	p.thaw()
}

func (p *process) dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

func (p *process) running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shut == nil
}

// hold blocks while the process is frozen. The key determines the order in which blocked callers continue.
func (p *process) hold(key uint64) {
	for {
		p.mu.Lock()
		shut := p.shut
		p.mu.Unlock()
		if shut == nil {
			return
		}
		<-shut
		time.Sleep(time.Duration(key % uint64(5*time.Millisecond)))
	}
}

// sleep pauses in the process.
func (p *process) sleep(d time.Duration) {
	time.Sleep(d)
	p.hold(p.ring(d))
}

// ring draws the key for the order in which delayed timers continue. It follows from the time and the duration of the
// timer, not from the order in which goroutines of the same instant are scheduled. It also detects a process that uses its
// clock again and again while no time passes.
func (p *process) ring(d time.Duration) uint64 {
	p.mu.Lock()
	if now := time.Now(); now.Equal(p.at) {
		p.spins++
	} else {
		p.at, p.spins = now, 0
	}
	spins := p.spins == mostSpins
	p.spun = p.spun || spins
	p.mu.Unlock()
	if spins {
		p.w.violate("spin", p.name, "", "%s does something again and again while no time passes", p.name)
	}
	return draw(p.w.seed, "ring", uint64(p.n), uint64(p.w.since()), uint64(d)) //nolint:gosec // a few processes
}

// pause returns the delay of timers, which is not zero after too many spins.
func (p *process) pause() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spun {
		return time.Second
	}
	return 0
}

const (
	// mostCommands is the number of commands that a process may send in a second.
	mostCommands = 100
	// hurryCommands is added for each of its actors that hurry, which try about every 55 ms.
	hurryCommands = 50
	// rushingCommands is the number for processes whose actors rush.
	rushingCommands = 500
)

// countCommand detects a process that sends commands again and again.
func (p *process) countCommand(c *command) {
	p.mu.Lock()
	if now := time.Now(); now.Sub(p.second) > time.Second {
		p.second, p.commands = now, 0
		p.kinds = map[string]int{}
	}
	p.commands++
	p.kinds[c.String()]++
	many := p.commands > p.most
	p.mu.Unlock()
	if many {
		p.w.violate("cost: commands", p.name, c.resources[0], "%s sends more than %d commands in a second, such as %v: %v", p.name, p.most, c, p.kinds)
	}
}

// addTrouble records a fault that affects the process.
func (p *process) addTrouble(t trouble) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.troubles = append(p.troubles, t)
}

// suffered reports whether the process had a trouble in the last ttl that may cost it a lease on the resource: a long
// one, or several commands that failed.
func (p *process) suffered(ttl time.Duration, resource string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	to := time.Now()
	from, single := to.Add(-ttl), 0
	for _, t := range p.troubles {
		if t.to.Before(from) || t.from.After(to) || (t.resource != "" && t.resource != resource) {
			continue
		}
		if !t.single || t.to.Sub(t.from) > ttl/6 {
			return true
		}
		single++
	}
	return single >= 3
}

// lastTrouble returns the time at which the last trouble on the resource ends, which may be in the future.
func (p *process) lastTrouble(resource string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	var last time.Time
	for _, t := range p.troubles {
		if t.resource == "" || t.resource == resource {
			last = later(last, t.to)
		}
	}
	return last
}

// Clock returns the clock by which the process's Locker waits.
func (p *process) Clock() clock.Clock { return ticks{p} }

// ticks is the clock of a process.
type ticks struct{ p *process }

// NewTimer is time.NewTimer, held while the process is frozen.
func (c ticks) NewTimer(d time.Duration) *clock.Timer {
	ch := make(chan time.Time, 1)
	a := &alarm{p: c.p, send: ch}
	a.reset(d)
	return &clock.Timer{C: ch, Stop: a.stop, Reset: a.reset}
}

// AfterFunc is time.AfterFunc, held while the process is frozen.
func (c ticks) AfterFunc(d time.Duration, f func()) *clock.Timer {
	a := &alarm{p: c.p, call: f}
	a.reset(d)
	return &clock.Timer{Stop: a.stop, Reset: a.reset}
}

// WithTimeout is context.WithTimeout, held while the process is frozen.
func (c ticks) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(ctx)
	t := c.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
	return bounded{inner, time.Now().Add(d)}, func() {
		t.Stop()
		cancel(nil)
	}
}

// Jitter follows from the seed.
func (c ticks) Jitter(most time.Duration) time.Duration {
	return newDice(c.p.ring(most)).between(0, most)
}

// bounded is a context that ends at a deadline of the process's clock.
type bounded struct {
	context.Context
	deadline time.Time
}

func (b bounded) Deadline() (time.Time, bool) { return b.deadline, true }

func (b bounded) Err() error {
	err := b.Context.Err()
	if err != nil && errors.Is(context.Cause(b.Context), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

// alarm is a timer that does nothing while its process is frozen. It sends or calls.
type alarm struct {
	p    *process
	send chan time.Time
	call func()

	mu    sync.Mutex
	timer *time.Timer
	// set counts the calls of reset and stop. live is set until the alarm fires.
	set  int
	live bool
}

func (a *alarm) stop() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.live
	a.live = false
	a.set++
	a.timer.Stop()
	a.drain()
	return was
}

func (a *alarm) reset(d time.Duration) bool {
	key := a.p.ring(d)
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.live
	a.live = true
	a.set++
	set := a.set
	if a.timer != nil {
		a.timer.Stop()
	}
	a.drain()
	a.timer = time.AfterFunc(d+a.p.pause(), func() { a.rings(set, key) })
	return was
}

func (a *alarm) drain() {
	if a.send != nil {
		select {
		case <-a.send:
		default:
		}
	}
}

func (a *alarm) rings(set int, key uint64) {
	a.p.hold(key)
	a.mu.Lock()
	if a.set != set {
		a.mu.Unlock()
		return
	}
	a.live = false
	if a.send != nil {
		a.send <- time.Now()
	}
	a.mu.Unlock()
	if a.call != nil {
		a.call()
	}
}

// later returns the later of two times. The checks do not use the rules for this.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
