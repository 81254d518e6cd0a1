package update

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// This file contains the model of the exploration. TestExplore describes its coverage.
//
// A world is a value. An action copies the world, changes the copy, and lets every line run until it waits
// for a command or has nothing to do. One action carries out a command and passes its result to the line;
// between Next and that action, all other actions and ticks may happen. Every lost or late command costs a
// fault, and each path has a bounded number of faults and ticks.

// verb is an action of a party or a process. Each has a budget per verb.
type verb int

const (
	acquire verb = iota
	ask
	abandon
	renew
	extend
	upgrade
	downgrade
	leave
	release
	settle
	withdraw
	verbs
)

var verbNames = [verbs]string{
	"acquire", "ask", "abandon", "renew", "extend", "upgrade", "downgrade", "leave", "release", "settle", "withdraw",
}

type budget [verbs]int8

// partySpec describes a party: its requests, and its budget of actions.
type partySpec struct {
	lockID  string
	process int
	mode    string
	// limit is the limit of a semaphore. maxWaiters is the limit of the queue; 0 is 3.
	limit, maxWaiters int64
	// lasts is the TTL of its parts, in ticks; 0 is partTTL.
	lasts int64
	// queues is set if its requests queue and its calls sleep in the line. keeps is set if its holds are kept,
	// under the run "run".
	queues, keeps bool
	// order is the order of its first request, minus one. suffix distinguishes the calls of parties with the same
	// orders.
	order  int64
	suffix string
	can    budget
}

// The TTLs, in ticks.
const (
	partTTL, holdTTL, claimTTL, waiterTTL = 2, 3, 1, 3

	resource = "r"
	part     = "p"
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func at(tick int) time.Time { return epoch.Add(time.Duration(tick) * time.Second) }

func tickOf(t time.Time) int { return int(t.Sub(epoch) / time.Second) }

var settings = rules.Settings{ClaimTTL: claimTTL * 1000}

// world is the complete state: the server, the processes, and the commands in flight.
type world struct {
	now int
	// doc is the stored document, or nil. old contains earlier states, which a deposed primary may return.
	doc       *rules.Document
	old       []*rules.Document
	late      []lateCopy
	processes []*process
	// versions counts the random values of versions.
	versions int
	// faults and ticks are the remaining budgets.
	faults, ticks int
	// set lists the policies that were stored so far, the present ones last; nil in a scenario without policies. changes
	// are those to come.
	set     []policySet
	changes []policyChange
	err     error
	trail   *trail
}

// trail is the path to a world, latest action first.
type trail struct {
	before *trail
	label  string
}

func (t *trail) labels() (labels []string) {
	for ; t != nil; t = t.before {
		labels = append(labels, t.label)
	}
	slices.Reverse(labels)
	return labels
}

// lateCopy is a write that may be applied after its failure was reported, or a second time.
type lateCopy struct {
	from   int
	swap   *store.Swap
	extend []store.Extension
}

// process is one process: its line, its knowledge of the server's time, and its parties.
type process struct {
	name    string
	line    Line
	crashed bool
	sample  sample
	// issued is the tick at which the command in flight was sent.
	issued  int
	notes   []note
	parties []party
	extends []extending
	can     budget
	follower
	// mustGo lists requests that have ended. Once the line owes nothing, no trace of them may be left.
	mustGo []request
	// never lists the IDs of calls that were reported as not applied.
	never []string
}

// request identifies a request by its call and its order.
type request struct {
	lockID, id string
	order      int64
}

// sample is the latest server time that a process knows, with the local times of the command.
type sample struct {
	known, fast        bool
	at, sent, received int
}

// guess returns the server's time as the process knows it.
func (s *sample) guess(now int) Now {
	if !s.known {
		return Now{}
	}
	d := now - s.received
	return Now{At: at(s.at + d), Sent: at(s.sent + d)}
}

// note is the model's record of a call in a line.
type note struct {
	call  *Call
	party int
	verb  verb
	id    string
	// asked is set once a load was sent after the call arrived, and loaded once that load was answered.
	asked, loaded bool
}

// party is a lock ID in a process.
type party struct {
	*partySpec
	left budget
	// n counts the requests. busy is set while one is in the line.
	n    int64
	busy bool
	// held is set while the party believes that it holds. It trusts its lease before the tick until.
	held bool
	id   string
	mode string
	// member is that of a pool.
	member string
	order  int64
	fence  int64
	until  int
	// downgrading is set while a renewal that downgrades is under way.
	downgrading, deadlocked bool
	// lost lists the IDs of leases that were reported lost.
	lost []string
}

// extending is an Extend in flight. executed is set once the server has carried it out.
type extending struct {
	party    int
	parts    []store.Extension
	sent     int
	swaps    uint64
	guess    Now
	executed bool
	// drains is set if the part drained when it was extended.
	drains bool
	found  int
	r      string
}

func (of *party) trusts(now int) bool { return of.held && now < of.until }

func (w *world) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// fork copies a world, and the process that the next action changes.
func (w *world) fork(i int, label string) (*world, *process) {
	next := *w
	next.old, next.late, next.processes = slices.Clone(w.old), slices.Clone(w.late), slices.Clone(w.processes)
	next.trail = &trail{w.trail, label}
	if i < 0 {
		return &next, nil
	}
	next.processes[i] = w.processes[i].clone()
	return &next, next.processes[i]
}

func (p *process) clone() *process {
	c := *p
	copies := map[*Call]*Call{}
	var again func(*Call) *Call
	again = func(old *Call) *Call {
		if old == nil || copies[old] != nil {
			return copies[old]
		}
		call := *old
		copies[old] = &call
		call.TakeBack = again(old.TakeBack)
		return &call
	}
	all := func(calls []*Call) []*Call {
		out := make([]*Call, len(calls))
		for i := range calls {
			out[i] = again(calls[i])
		}
		return out
	}
	c.line.calls, c.line.owed = all(p.line.calls), all(p.line.owed)
	if p.line.sent != nil {
		sent := *p.line.sent
		sent.Replies = slices.Clone(sent.Replies)
		for i := range sent.Replies {
			sent.Replies[i].Call = again(sent.Replies[i].Call)
		}
		c.line.sent = &sent
	}
	c.notes, c.parties, c.extends = slices.Clone(p.notes), slices.Clone(p.parties), slices.Clone(p.extends)
	for i := range c.notes {
		c.notes[i].call = again(c.notes[i].call)
	}
	for i := range c.parties {
		c.parties[i].lost = slices.Clone(c.parties[i].lost)
	}
	c.mustGo, c.never = slices.Clone(p.mustGo), slices.Clone(p.never)
	return &c
}

// draw returns the random value of a version.
func (w *world) draw() string {
	w.versions++
	return fmt.Sprint("v", w.versions)
}

// pump runs a line until it waits for a command or is idle.
func (w *world) pump(p *process) {
	for !p.crashed && p.line.sent == nil && w.err == nil {
		step := p.line.Next(w.guess(p), w.draw())
		switch step.Kind {
		case StepIdle:
			return
		case StepOwe:
			w.handle(p, Resumed{})
		case StepReply:
			for _, t := range step.Replies {
				w.checkRead(p, &t)
			}
			w.tell(p, step.Replies)
		case StepPause:
		case StepLoad:
			p.issued = w.now
			for i := range p.notes {
				p.notes[i].asked = true
			}
		case StepSwap:
			p.issued = w.now
			w.checkServed(p, &step)
			w.checkGrants(p, step.Swap.Next)
		case StepReserve:
			p.issued = w.now
		}
	}
}

// write stores a document.
func (w *world) write(next *rules.Document) {
	w.checkWrite(w.doc, next)
	w.old = append(w.old, w.doc)
	if len(w.old) > 2 {
		w.old = w.old[1:]
	}
	stored := *next
	stored.Policy = nil // which is not stored
	w.doc = &stored
}

// matches reports whether a swap applies.
func (w *world) matches(s *store.Swap) bool {
	if w.doc == nil {
		return s.Prev == rules.Version{}
	}
	return w.doc.Version == s.Prev
}

// raise carries out an Extend with the store in memory.
func (w *world) raise(parts []store.Extension) (found int, r string) {
	if w.doc == nil {
		return 0, w.draw()
	}
	m := store.NewMemory(func() time.Time { return at(w.now) })
	if err := m.Put(w.doc); err != nil {
		panic(err)
	}
	rest, made, err := m.Extend(context.Background(), parts)
	if err != nil {
		panic(err)
	}
	found = 1 - len(rest)
	d, _ := m.Document(resource)
	r = w.draw()
	if d.Version.R == made {
		d.Version.R = r
	}
	if found > 0 {
		w.write(&d)
	}
	return found, r
}

var errLost = errors.New("the answer was lost")

// answer carries out a process's command in flight, without a fault.
func (w *world) answer(p *process) {
	switch p.line.sent.Kind {
	case StepLoad:
		w.loaded(p, w.doc)
	case StepReserve:
		if w.doc != nil {
			d := *w.doc
			d.Version = rules.Version{N: d.Version.N + 1, R: w.draw()}
			d.Reserved = &rules.Reservation{By: p.name, Until: at(w.now + 1)}
			w.write(&d)
		}
		w.handle(p, Reserved{})
	case StepSwap:
		w.handle(p, swapResult(0, w.apply(p), 1, nil))
	}
	w.pump(p)
}

// apply carries out a swap, and returns the number of documents that it has changed.
func (w *world) apply(p *process) (done int) {
	s := &p.line.sent.Swap
	if !w.matches(s) {
		return 0
	}
	w.write(s.Next)
	return 1
}

// handle passes an event to a line, and its answers to the parties.
func (w *world) handle(p *process, event Event) { w.tell(p, p.line.Handle(event)) }

func (w *world) loaded(p *process, d *rules.Document) {
	p.sample = sample{known: true, at: w.now, sent: p.issued, received: w.now}
	for i := range p.notes {
		p.notes[i].loaded = p.notes[i].asked
	}
	w.adopt(p, p.issued)
	now := p.sample.guess(w.now)
	now.Policies = w.policies()
	w.handle(p, Loaded{w.read(d), now})
}

// failed reports to the line that its command failed. During an outage all commands fail until the calls fail.
func (w *world) failed(p *process, err error, outage bool) {
	p.sample.known = false
	w.handle(p, Failed{err})
	for range mostTries {
		w.pump(p)
		if !outage || p.line.sent == nil || p.line.sent.Kind != StepLoad {
			return
		}
		w.handle(p, Failed{errLost})
	}
	w.pump(p)
}

// tell passes replies to the parties.
func (w *world) tell(p *process, told []Reply) {
	for _, t := range told {
		i := slices.IndexFunc(p.notes, func(n note) bool { return n.call == t.Call })
		if i < 0 {
			continue // an owed operation or an abandoned call
		}
		n := p.notes[i]
		if !slices.Contains(p.line.calls, t.Call) {
			p.notes = slices.Delete(p.notes, i, i+1)
		}
		if n.party >= 0 {
			w.told(p, &p.parties[n.party], n, &t)
		} else if t.Err != nil { // the watcher tries again
			p.polls = true
		}
	}
}

func (w *world) told(p *process, of *party, n note, t *Reply) {
	ended := !slices.Contains(p.line.calls, t.Call)
	if t.Err != nil {
		w.toldError(p, of, n, t, ended)
		return
	}
	if n.verb == acquire || n.verb == upgrade {
		of.busy = !ended
	}
	has := t.Outcome == rules.Granted || t.Outcome == rules.Joined || t.Outcome == rules.Again
	switch n.verb {
	case acquire, upgrade:
		switch {
		case has:
			w.trust(p, of, t, n.id)
		case t.Outcome == rules.Deadlock:
			of.deadlocked = true
		case t.Outcome == rules.Lost && n.verb == upgrade, t.Outcome == rules.Superseded && n.verb == upgrade:
			of.lose()
		}
	case renew, downgrade:
		of.downgrading = of.downgrading && n.verb != downgrade
		order := t.Call.Op.(rules.Renew).Order
		if !of.held || of.order != order {
			return
		}
		if p := t.After.Part(rules.Caller{LockID: of.lockID, Part: part, Order: order}); p == nil || t.Outcome != rules.Granted {
			of.lose()
			return
		} else if p.ID != of.id && !of.busy {
			w.fail("%s renewed %s, and was answered with %s", of.lockID, of.id, p.ID)
		}
		w.trust(p, of, t, of.id)
	case leave, release:
		e := t.After.Latest(rules.Caller{LockID: of.lockID, Part: part})
		if e != nil && e.ID == n.id {
			w.fail("%s was told that it has left, and %s is still there", of.lockID, n.id)
		}
	}
}

func (of *party) lose() {
	of.lost = append(of.lost, of.id)
	of.held = false
}

func (w *world) toldError(p *process, of *party, n note, t *Reply, ended bool) {
	if !ended { // it still sleeps in the queue
		return
	}
	switch n.verb {
	case acquire, upgrade:
		of.busy = false
		if t.Call.queued {
			w.fail("I9: %s has queued, and a failure that passes ended it", n.id)
		}
		if t.Unknown {
			p.mustGo = append(p.mustGo, request{of.lockID, n.id, t.Call.Op.(rules.Acquire).Order})
		} else {
			p.never = append(p.never, n.id)
		}
	case downgrade:
		of.downgrading = false
	}
}

// trust records a lease, like leaseOf in package lockcore, but without a margin.
func (w *world) trust(p *process, of *party, t *Reply, id string) {
	order := of.order
	if op, ok := t.Call.Op.(rules.Acquire); ok {
		order = op.Order
	}
	e := t.After.Part(rules.Caller{LockID: of.lockID, Part: part, Order: order})
	if e == nil {
		w.fail("%s was told %q, and has no part", of.lockID, t.Outcome)
		return
	}
	if slices.Contains(of.lost, e.ID) {
		w.fail("%s was told that it has lost %s, and then that it holds it", of.lockID, e.ID)
	}
	if of.held && of.id == id && e.Fence < of.fence {
		w.fail("the fence of %s went back from %d to %d", id, of.fence, e.Fence)
	}
	ttl := time.Duration(e.TTL) * time.Millisecond
	of.held, of.id, of.order, of.mode, of.member, of.fence = true, e.ID, order, e.Mode, e.Member, e.Fence
	of.until = tickOf(t.Sent.Add(min(e.ExpiresAt.Sub(t.After.At), ttl)))
	if of.downgrading {
		of.mode = rules.Shared
	}
}
