package simulation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// world is one seed's: the database, the processes, the actors, and what they were told.
type world struct {
	seed    uint64
	plan    *plan
	db      *lockcoretest.Engine
	procs   []*process
	began   time.Time
	actors  sync.WaitGroup
	cast    []*actor
	base    context.Context // ends with the play
	cancel  context.CancelFunc
	hush    []func()
	end     chan struct{} // closed when every session has been ended
	stop    chan struct{} // closed when the checks are over: a violation, or the end
	stopped sync.Once

	// applying is held while a command is applied, and writes counts them.
	applying sync.Mutex
	writes   atomic.Uint64

	mu sync.Mutex
	history
	// faultless is from when on nothing goes wrong any more.
	faultless bool
	blocked   map[string]time.Time // resources that cannot be written, and until when
	outages   []trouble            // with the process's name as resource, "" for all
	dbChecks
	told
	waiting
	result *Violation
}

// callKey is the context's, under which a call of the library stands.
type callKey struct{}

// call is one call of the library by an actor.
type call struct {
	id     int
	p      *process
	actor  string
	what   string
	lockID string
	began  time.Time
	done   bool
	// patient says that it waits as long as it takes.
	patient bool
	// queued says that it was told of its place in a queue.
	queued bool
	// fence is that of the one hold that it names, 0 if it names none.
	fence int64
	// takes says that it asks for locks which it gives back if it fails, and gaveUp is when it did.
	takes  bool
	gaveUp time.Time
	// first is when it first took effect on each resource.
	first map[string]time.Time
	// left says on which resources something was left since it has ended.
	left map[string]bool
}

// Run plays a seed, inside a bubble of package synctest, and returns the first violation, or nil.
func Run(seed uint64) *Violation { return play(seed, newPlan(seed)) }

// RunWorkflows plays a seed of workflows, whose runs take over from each other, in the same way.
func RunWorkflows(seed uint64) *Violation { return play(seed, newRunsPlan(seed)) }

func play(seed uint64, p *plan) *Violation {
	w := newWorld(seed, p)
	w.run()
	return w.result
}

func newWorld(seed uint64, p *plan) *world {
	w := &world{
		seed: seed, plan: p, began: time.Now(), end: make(chan struct{}), stop: make(chan struct{}),
		blocked: map[string]time.Time{}, dbChecks: newDBChecks(), told: newTold(), waiting: newWaiting(),
	}
	w.base, w.cancel = context.WithCancel(context.Background())
	w.db = lockcoretest.NewEngine(w.serverNow)
	for n := range w.plan.processes {
		p := newProcess(w, n)
		cfg := w.plan.cfg
		cfg.Host = p.name
		l, err := lockcore.NewOn(p, cfg)
		if err != nil {
			panic(err)
		}
		p.locker = l
		w.hush = append(w.hush, l.OnWakeup(func(t lockcore.Wakeup) { w.turn(p, t) }))
		w.procs = append(w.procs, p)
	}
	return w
}

// serverNow is the database's clock, which is not the same for any two commands where it jumps.
func (w *world) serverNow() time.Time {
	now := time.Now()
	if j := w.plan.jump; j > 0 {
		now = now.Add(newDice(draw(w.seed, "now", w.writes.Load())).between(-j/2, j/2))
	}
	return now
}

// run plays from beginning to end.
func (w *world) run() {
	for i, e := range w.plan.events {
		go w.happen(i, e)
	}
	for i, c := range w.plan.actors {
		w.cast = append(w.cast, newActor(w, i, c))
	}
	for _, a := range w.cast {
		w.actors.Add(1)
		go a.run()
	}
	quiet := make(chan struct{})
	go func() {
		w.actors.Wait()
		close(quiet)
	}()
	ticking := make(chan struct{})
	go func() {
		defer close(ticking)
		w.tick()
	}()
	w.phase(w.plan.busy, nil)
	w.mu.Lock()
	w.faultless = true
	w.mu.Unlock()
	for _, p := range w.procs {
		p.thaw()
	}
	w.settleDown(quiet)
	w.stopped.Do(func() { close(w.stop) })
	<-ticking
	w.wreck()
	close(w.end)
	<-quiet
	time.Sleep(10 * time.Minute) // time stands still when this ends, and what is under way needs some
}

// phase lets d pass, or less: until done, or a violation.
func (w *world) phase(d time.Duration, done <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-done:
	case <-w.stop:
	}
}

// over reports whether all checks are over.
func (w *world) over() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// calm reports whether nothing goes wrong any more.
func (w *world) calm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.faultless
}

// happen lets an event begin and end.
func (w *world) happen(_ int, e event) {
	if w.phase(e.at, nil); w.over() {
		return
	}
	until := time.Now().Add(e.lasts)
	name := e.resource
	if e.process >= 0 && e.resource == "" {
		name = w.procs[e.process].name
	}
	w.note(name, "", "%s for %v", e.what, e.lasts.Round(time.Millisecond))
	switch e.what {
	case "freeze":
		p := w.procs[e.process]
		p.suffer(trouble{from: time.Now(), to: until})
		p.freeze()
		w.phase(e.lasts, nil)
		p.thaw()
		w.note(name, "", "goes on")
	case "kill":
		w.procs[e.process].kill()
	case "outage":
		w.outage(name, until)
		for _, p := range w.procs {
			if e.process < 0 || e.process == p.n {
				p.suffer(trouble{from: time.Now(), to: until})
			}
		}
	case "unwritable":
		w.mu.Lock()
		w.blocked[e.resource] = until
		w.mu.Unlock()
		for _, p := range w.procs {
			p.suffer(trouble{from: time.Now(), to: until, resource: e.resource})
		}
	}
}

// outage keeps a process, or all if the name is "", from the database from now on.
func (w *world) outage(name string, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outages = append(w.outages, trouble{from: time.Now(), to: until, resource: name})
}

// cutOff begins an outage of a process after a while.
func (w *world) cutOff(p *process, after, lasts time.Duration) {
	time.AfterFunc(after, func() {
		until := time.Now().Add(lasts)
		w.note(p.name, "", "is cut off for %v", lasts.Round(time.Millisecond))
		w.outage(p.name, until)
		p.suffer(trouble{from: time.Now(), to: until})
	})
}

// away is the error of a command of a process that cannot reach the database, after the time that it takes to see it.
func (w *world) away(ctx context.Context, p *process, key uint64) error {
	w.mu.Lock()
	out := !w.faultless && slices.ContainsFunc(w.outages, func(o trouble) bool {
		return (o.resource == "" || o.resource == p.name) && time.Now().Before(o.to)
	})
	w.mu.Unlock()
	if !out {
		return nil
	}
	pause(ctx, time.Duration(key%uint64(2*time.Second)))
	if key&1 == 0 {
		return errReset
	}
	return errAway
}

func (w *world) unwritable(resource string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.faultless && time.Now().Before(w.blocked[resource])
}

// apply lets a command take effect, and checks what it did.
func (w *world) apply(c *command) ([]rules.Document, []bool, error) {
	if c.kind == "read" || c.kind == "identify" || c.kind == "acquireAll" {
		return c.run()
	}
	if c.kind != "renewAll" && w.unwritable(c.resources[0]) {
		return nil, nil, errInvalid
	}
	w.applying.Lock()
	defer w.applying.Unlock()
	w.writes.Add(1)
	if c.kind == "withdraw" {
		w.seeCircles() // the last write may be long ago
	}
	before := make([]rules.Document, len(c.resources))
	for i, r := range c.resources {
		before[i] = w.db.Document(r)
	}
	docs, renewed, err := c.run()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isOver() && !(c.kind == "acquire" && len(docs) == 0) { // one of several, which was not simply free
		for i, r := range c.resources {
			w.written(c, before[i], w.db.Document(r))
		}
	}
	c.copy++
	return docs, renewed, err
}

// isOver is over, with the mutex held.
func (w *world) isOver() bool { return w.over() || w.result != nil }

func (w *world) since() time.Duration { return time.Since(w.began) }

func (c *command) about() string { return c.lockID }

func (c *command) String() string { return fmt.Sprintf("%s %v %s", c.kind, c.resources, c.lockID) }
