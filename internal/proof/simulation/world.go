package simulation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// world is the state of one play: the database, the processes, the actors, and what they observed.
type world struct {
	seed    uint64
	plan    *plan
	procs   []*process
	began   time.Time
	actors  sync.WaitGroup
	cast    []*actor
	base    context.Context // ends with the play
	cancel  context.CancelFunc
	stop    chan struct{} // closed when the checks are over: a violation, or the end
	stopped sync.Once

	mu sync.Mutex
	database
	// faultless is set when nothing fails any longer.
	faultless bool
	lines     []line
	ledger
	answers
	waiting
	// limits are the changes of policies, by resource.
	limits map[string][]limitChange
	result *Violation
}

// Run plays a seed, inside a bubble of package synctest, and returns the first violation, or nil.
func Run(seed uint64) *Violation { return play(seed, newPlan(seed)) }

// RunWorkflows plays a seed of workflows, whose runs take over from each other, in the same way.
func RunWorkflows(seed uint64) *Violation { return play(seed, newRunsPlan(seed)) }

func play(seed uint64, p *plan) *Violation {
	w := &world{
		seed: seed, plan: p, began: time.Now(), stop: make(chan struct{}), ledger: newLedger(), answers: newAnswers(), waiting: newWaiting(),
		limits:   map[string][]limitChange{},
		database: database{docs: map[string]*rules.Document{}, past: map[string][]state{}, blocked: map[string]time.Time{}},
	}
	w.base, w.cancel = context.WithCancel(context.Background())
	w.db = store.NewMemory(w.serverNow)
	for n := range p.processes {
		w.procs = append(w.procs, newProcess(w, n))
	}
	w.run()
	return w.result
}

// run plays from beginning to end.
func (w *world) run() {
	for _, e := range w.plan.events {
		go w.runEvent(e)
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
	w.shutDown()
	<-quiet
	time.Sleep(10 * time.Minute) // for everything that is still running: virtual time ends with this function
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

// isOver is over, with the mutex held.
func (w *world) isOver() bool { return w.over() || w.result != nil }

// calm reports whether nothing fails any longer.
func (w *world) calm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.faultless
}

func (w *world) since() time.Duration { return time.Since(w.began) }

// runEvent lets an event begin and end.
func (w *world) runEvent(e event) {
	if w.phase(e.at, nil); w.over() {
		return
	}
	until := time.Now().Add(e.lasts)
	if e.what == "clock back" { // the processes need not wait until it is as late again
		until = time.Now().Add(min(e.lasts, 10*time.Second))
	}
	name := e.resource
	if e.process >= 0 && e.resource == "" {
		name = w.procs[e.process].name
	}
	w.note(name, "", "%s for %v", e.what, e.lasts.Round(time.Millisecond))
	for _, p := range w.procs {
		if e.resource != "" || e.process < 0 || e.process == p.n {
			p.addTrouble(trouble{from: time.Now(), to: until, resource: e.resource})
		}
	}
	switch e.what {
	case "freeze":
		p := w.procs[e.process]
		p.freeze()
		w.phase(e.lasts, nil)
		p.thaw()
		w.note(name, "", "continues")
	case "kill":
		w.procs[e.process].kill()
	case "outage":
		w.outage(name, until)
	case "deposed":
		w.mu.Lock()
		w.procs[e.process].deposed = trouble{from: time.Now(), to: until}
		w.mu.Unlock()
	case "unwritable":
		w.mu.Lock()
		w.blocked[e.resource] = until
		w.mu.Unlock()
	case "clock back":
		w.skew.Add(int64(e.lasts))
	case policyChanges:
		w.setPolicy(e)
	}
}

// setPolicy sets or removes the policy of a resource.
func (w *world) setPolicy(e event) {
	change := rules.PolicyChange{PolicyID: rules.PolicyID{Name: e.resource}, By: "ops"}
	switch {
	case len(e.members) > 0:
		change.To = &rules.Policy{Members: e.members}
	case e.limit > 0:
		change.To = &rules.Policy{Limit: e.limit}
		if e.until > 0 {
			until := w.clock().Add(e.until)
			change.To.Until = &until
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.db.SetPolicy(forDB, change) // an error if there is none to remove
	w.limits[e.resource] = append(w.limits[e.resource], limitChange{time.Now(), e})
}

// limitChange is a change of the policy of a resource.
type limitChange struct {
	at time.Time
	event
}

// inService reports whether a member of a pool was in service in the last ten seconds before a process decided. The mutex is
// held.
func (w *world) inService(pool, member string, decided time.Time) bool {
	known := decided.Add(-followWithin - time.Second)
	changes := w.limits[pool]
	for i, c := range changes {
		if i+1 < len(changes) && changes[i+1].at.Before(known) {
			continue
		}
		if slices.ContainsFunc(c.members, func(m rules.Member) bool { return m.Name == member && !m.Out }) {
			return true
		}
	}
	return false
}

// followed reports whether a limit, 0 without a policy, was in force in the last ten seconds before a process decided. The
// mutex is held.
func (w *world) followed(resource string, limit int64, decided time.Time) bool {
	known := decided.Add(-followWithin - time.Second)
	changes := append([]limitChange{{}}, w.limits[resource]...)
	for i, c := range changes {
		if i+1 < len(changes) && changes[i+1].at.Before(known) {
			continue
		}
		if limit == c.limit || limit == 0 && c.until > 0 {
			return true
		}
	}
	return false
}

// Violation is a broken invariant, and what led to it.
type Violation struct {
	Seed uint64
	// Kind is a short name of the invariant, such as "I1", and Text the details.
	Kind, Text string
	// At is the virtual time since the beginning.
	At time.Duration
	// History lists what happened around it.
	History []string
}

// String returns the report of a failing seed.
func (v *Violation) String() string {
	return fmt.Sprintf("seed %d: %s after %d ms: %s\n  %s\nrepeat it: make simulate FROM=%d SEEDS=1",
		v.Seed, v.Kind, v.At.Milliseconds(), v.Text, strings.Join(v.History, "\n  "), v.Seed)
}

// line is one event of the history: when, who, and which lock ID or resource it is about.
type line struct {
	at         time.Duration
	who, about string
	text       string
}

const (
	// historyWithin and historyMost bound what is printed.
	historyWithin = 30 * time.Second
	historyMost   = 80
)

// note records an event.
func (w *world) note(who, about, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noted(who, about, format, args...)
}

// noted is note, with the mutex held.
func (w *world) noted(who, about, format string, args ...any) {
	if w.result == nil {
		w.lines = append(w.lines, line{w.since(), who, about, fmt.Sprintf(format, args...)})
	}
}

// violate records the first violation, and ends the play.
func (w *world) violate(kind, who, about, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken(kind, about, "("+who+") "+format, args...)
}

// broken is violate, with the mutex held.
func (w *world) broken(kind, about, format string, args ...any) {
	if w.isOver() {
		return
	}
	v := &Violation{Seed: w.seed, Kind: kind, Text: fmt.Sprintf(format, args...), At: w.since()}
	v.History = w.around(v.At, v.Text, about)
	w.result = v
	w.stopped.Do(func() { close(w.stop) })
}

// around picks the lines that mention a resource, lock ID or process that the text names.
func (w *world) around(at time.Duration, text, about string) []string {
	words := strings.FieldsFunc(text+" "+about, separates)
	mentions := func(name string) bool { return name != "" && slices.Contains(words, name) }
	var out []string
	for _, l := range slices.Backward(w.lines) {
		if at-l.at > historyWithin || len(out) == historyMost {
			break
		}
		related := mentions(l.who) || mentions(l.about)
		for _, word := range strings.FieldsFunc(l.text, separates) {
			related = related || (slices.Contains(w.plan.resources, word) && mentions(word))
		}
		if related {
			out = append(out, fmt.Sprintf("%6d ms  %-12s %s", l.at.Milliseconds(), l.who, l.text))
		}
	}
	slices.Reverse(out)
	for _, r := range w.plan.resources {
		if mentions(r) {
			out = append(out, w.contentOf(r)...)
		}
	}
	return out
}

// contentOf lists the entries and waiters of a document, with their remaining times.
func (w *world) contentOf(resource string) []string {
	var out []string
	left := func(t time.Time) string {
		if !t.Before(rules.Never) {
			return "no end"
		}
		return fmt.Sprintf("%d ms left", t.Sub(w.clock()).Milliseconds())
	}
	d := w.doc(resource)
	for e := range each(d.Entries) {
		out = append(out, fmt.Sprintf("now %s: %s, first %d, %s", d.ID, shown(e), e.FirstFence, left(e.ExpiresAt)))
	}
	for i, q := range d.Waiters {
		out = append(out, fmt.Sprintf("now %s: waits at %d %s %s/%s/%d since %d ms, limit %d, %s, overdue: %s", d.ID, i+1, q.Mode, q.LockID, q.Part, q.Order,
			w.clock().Sub(q.Since).Milliseconds(), q.Limit, left(q.ExpiresAt), left(q.OverdueAt)))
	}
	return out
}

func shown(e *rules.Entry) string {
	return fmt.Sprintf("%s %s%s %s/%s/%s fence %d", e.State, e.Mode, e.Member, e.LockID, e.Part, order(e.Order), e.Fence)
}

// order is a stored order for people.
func order(n int64) lockcore.Order {
	return lockcore.Order{Schedule: uint32(n >> 32), Attempt: uint32(n)} //nolint:gosec // both halves fit
}

// number is an order as it is stored.
func number(o lockcore.Order) int64 { return int64(o.Schedule)<<32 | int64(o.Attempt) }

func separates(r rune) bool { return strings.ContainsRune(" ,:;()[]/\"'", r) }
