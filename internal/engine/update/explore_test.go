package update

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

var mostStates = flag.Int("states", 1<<40, "end a scenario before it exceeds so many states")

var deeper = flag.Int("deeper", 0, "explore so many actions deeper than by default")

// shallower is the number of actions by which a slow build explores less deeply.
var shallower = 0

// scenario describes the beginning of an exploration, and the budgets of its actions.
type scenario struct {
	name    string
	parties []partySpec
	// prepare lists actions that are taken first, at no cost. Each ends with a semicolon. See play.
	prepare string
	// settles and withdrawals are the budgets of an additional process.
	settles, withdrawals int8
	faults, ticks, depth int
	// conflicts is the number of conflicts that each line has met before.
	conflicts int
	// policies are the changes of the resource's policy, in their order.
	policies []policyChange
}

func (s *scenario) begin() *world {
	w := &world{faults: 9, ticks: 9, changes: s.policies}
	if s.policies != nil {
		w.set = []policySet{{0, &rules.Policies{}}}
	}
	most := 0
	for _, spec := range s.parties {
		most = max(most, spec.process)
	}
	if s.settles+s.withdrawals > 0 {
		most++
	}
	for i := range most + 1 {
		name := fmt.Sprintf("p%d", i)
		p := &process{name: name, line: Line{Name: resource, Process: name, Settings: settings}}
		for n := range s.parties {
			if spec := &s.parties[n]; spec.process == i {
				can := spec.can
				for v := range can {
					can[v]++ // for prepare
				}
				p.parties = append(p.parties, party{partySpec: spec, left: can})
			}
		}
		w.processes = append(w.processes, p)
	}
	last := w.processes[most]
	last.can[settle], last.can[withdraw] = s.settles, s.withdrawals
	for label := range strings.SplitAfterSeq(s.prepare, ";") {
		if label != "" {
			w = w.play(strings.Trim(label, " ;"))
		}
	}
	for i, p := range w.processes {
		p = p.clone()
		for n := range p.parties {
			p.parties[n].left = p.parties[n].can
		}
		p.line.conflicts = s.conflicts
		w.processes[i] = p
	}
	w.faults, w.ticks = s.faults, s.ticks
	return w
}

// play takes the action with a label.
func (w *world) play(label string) *world {
	var found *world
	var labels []string
	w.actions(func(next *world) {
		labels = append(labels, next.trail.label)
		if next.trail.label == label {
			found = next
		}
	})
	if found == nil {
		panic(fmt.Sprintf("%q is not among %q", label, labels))
	}
	return found
}

// exploration visits all worlds up to a depth, breadth first.
type exploration struct {
	seen   [64]shard
	states int
	depth  int
	failed *world
	widths []int
}

type shard struct {
	mu   sync.Mutex
	seen map[uint64]struct{}
}

func (x *exploration) isNew(h uint64) bool {
	s := &x.seen[h%64]
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.seen[h]; ok {
		return false
	}
	if s.seen == nil {
		s.seen = map[uint64]struct{}{}
	}
	s.seen[h] = struct{}{}
	return true
}

func (x *exploration) run(begin *world, depth int) {
	level := []*world{begin}
	for x.depth = 0; x.depth < depth && len(level) > 0 && x.failed == nil && x.states+len(level) < *mostStates; x.depth++ {
		x.states += len(level)
		x.widths = append(x.widths, len(level))
		level = x.next(level)
	}
	x.states += len(level)
}

// next returns the new worlds that one action leads to.
func (x *exploration) next(level []*world) []*world {
	workers := runtime.GOMAXPROCS(0)
	found := make([][]*world, workers)
	failed := make([]*world, workers)
	var all sync.WaitGroup
	for k := range workers {
		all.Go(func() {
			var e encoder
			for i := k; i < len(level); i += workers {
				level[i].actions(func(w *world) {
					switch {
					case w.err != nil:
						if failed[k] == nil {
							failed[k] = w
						}
					case x.isNew(w.hash(&e)):
						found[k] = append(found[k], w)
					}
				})
				level[i] = nil
			}
		})
	}
	all.Wait()
	var out []*world
	for k := range workers {
		if failed[k] != nil {
			x.failed = failed[k]
		}
		out = append(out, found[k]...)
	}
	return out
}

var (
	x = rules.Exclusive
	s = rules.Shared
	o = rules.Pool
)

// Members of a pool. The third is out of service.
var m, n, outOfService = rules.Member{Name: "m"}, rules.Member{Name: "n"}, rules.Member{Name: "m", Out: true}

// Steps that prepare scenarios.
const (
	aHolds  = "acquire a; go p0; go p0;"
	bQueues = "acquire b; go p1; go p1;"
	cQueues = "acquire c; go p2; go p2;"
)

// scenarios are the starting points of the exploration, each with what its parties may do.
var scenarios = []scenario{
	{name: "three try", faults: 1, ticks: 3, depth: 8, parties: []partySpec{
		{lockID: "a", process: 0, mode: x, can: budget{acquire: 1, leave: 1, extend: 1}},
		{lockID: "b", process: 1, mode: s, can: budget{acquire: 1, leave: 1, renew: 1}},
		{lockID: "c", process: 2, mode: s, can: budget{acquire: 1}},
	}},
	{name: "three queue", faults: 1, ticks: 2, depth: 8, parties: []partySpec{
		{lockID: "a", process: 0, mode: x, queues: true, can: budget{acquire: 1, leave: 1}},
		{lockID: "b", process: 1, mode: x, queues: true, can: budget{acquire: 1, ask: 1, abandon: 1}},
		{lockID: "c", process: 2, mode: s, queues: true, can: budget{acquire: 1, ask: 1}},
	}},
	{name: "two wait", faults: 1, ticks: 3, depth: 6, prepare: aHolds + bQueues + cQueues, parties: []partySpec{
		{lockID: "a", process: 0, mode: x, can: budget{leave: 1, extend: 1}},
		{lockID: "b", process: 1, mode: x, queues: true, can: budget{ask: 2, abandon: 1, leave: 1}},
		{lockID: "c", process: 2, mode: s, queues: true, can: budget{ask: 2}},
	}},
	{name: "an open claim", faults: 1, ticks: 3, depth: 6, settles: 1, prepare: aHolds + bQueues + "leave a; go p0;", parties: []partySpec{
		{lockID: "a", process: 0, mode: x, can: budget{acquire: 1}},
		{lockID: "b", process: 1, mode: x, queues: true, can: budget{ask: 2, abandon: 1, leave: 1, extend: 1}},
	}},
	{name: "a swap in flight", faults: 2, ticks: 2, depth: 5, settles: 1, prepare: "acquire a; go p0;", parties: []partySpec{
		{lockID: "a", process: 0, mode: x, can: budget{acquire: 1, abandon: 1, leave: 1}},
		{lockID: "b", process: 1, mode: x, can: budget{acquire: 1, abandon: 1}},
	}},
	{name: "a part drains", faults: 1, ticks: 3, depth: 5, prepare: aHolds + "acquire a'; go p1; go p1;", parties: []partySpec{
		{lockID: "a", process: 0, mode: x, can: budget{renew: 1, extend: 1, leave: 1}},
		{lockID: "a", order: 10, process: 1, mode: x, can: budget{extend: 1, leave: 1, release: 1}},
		{lockID: "b", process: 2, mode: x, queues: true, can: budget{acquire: 1, ask: 1}},
	}},
	{name: "a request that was overtaken", faults: 1, ticks: 1, depth: 9, parties: []partySpec{
		{lockID: "a", process: 0, mode: x, can: budget{acquire: 2, abandon: 1}},
		{lockID: "a", order: 10, process: 1, mode: x, can: budget{acquire: 1, leave: 1}},
	}},
	{name: "two calls with one order", faults: 1, ticks: 1, depth: 9, parties: []partySpec{
		{lockID: "a", process: 0, mode: x, can: budget{acquire: 1, renew: 1}},
		{lockID: "a", suffix: "'", process: 1, mode: x, can: budget{acquire: 1}},
	}},
	{name: "a reservation", faults: 1, ticks: 1, depth: 7, conflicts: 3, prepare: aHolds, parties: []partySpec{
		{lockID: "a", process: 0, mode: s, can: budget{leave: 1}},
		{lockID: "b", process: 1, mode: s, can: budget{acquire: 1, leave: 1}},
		{lockID: "c", process: 2, mode: s, can: budget{acquire: 1}},
	}},
	{name: "upgrades", faults: 1, ticks: 2, depth: 6, withdrawals: 1, prepare: aHolds + bQueues, parties: []partySpec{
		{lockID: "a", process: 0, mode: s, queues: true, can: budget{upgrade: 1, abandon: 1, ask: 1, downgrade: 1, leave: 1}},
		{lockID: "b", process: 1, mode: s, queues: true, can: budget{upgrade: 1, leave: 1, extend: 1}},
	}},
	{name: "a deadlock", faults: 1, ticks: 1, depth: 6, withdrawals: 1, prepare: aHolds + bQueues + cQueues, parties: []partySpec{
		{lockID: "a", process: 0, mode: x, can: budget{leave: 1}},
		{lockID: "b", process: 1, mode: x, queues: true, can: budget{ask: 2, leave: 1, abandon: 1}},
		{lockID: "c", process: 2, mode: x, queues: true, can: budget{ask: 1}},
	}},
	{name: "the victim of a deadlock", faults: 1, ticks: 1, depth: 9, withdrawals: 1, parties: []partySpec{
		{lockID: "a", process: 0, mode: x, can: budget{leave: 1}},
		{lockID: "b", process: 1, mode: x, queues: true, can: budget{ask: 2, leave: 1, abandon: 1}},
	}, prepare: aHolds + bQueues + "withdraw b by p2; go p2; go p2;"},
	{name: "a claim that lapses", ticks: 3, depth: 10, prepare: aHolds + bQueues + cQueues + "leave a; go p0; tick;", parties: []partySpec{
		{lockID: "a", process: 0, mode: x},
		{lockID: "b", process: 1, mode: x, queues: true, can: budget{ask: 2, leave: 1}},
		{lockID: "c", process: 2, mode: x, queues: true, can: budget{ask: 2}},
	}},
	{name: "a lost hold", faults: 1, ticks: 2, depth: 7, prepare: aHolds + "tick; tick;" + bQueues, parties: []partySpec{
		{lockID: "a", process: 0, mode: x, can: budget{renew: 2, extend: 1, leave: 1}},
		{lockID: "b", process: 1, mode: x, can: budget{leave: 1, extend: 1}},
	}},
	{name: "an expired hold", faults: 1, ticks: 2, depth: 7, prepare: aHolds + "tick; tick;", parties: []partySpec{
		{lockID: "a", process: 0, mode: x, can: budget{acquire: 1, renew: 2, extend: 1, leave: 1}},
		{lockID: "b", process: 1, mode: x, can: budget{acquire: 1, leave: 1}},
		{lockID: "c", process: 2, mode: s, queues: true, can: budget{acquire: 1, ask: 1}},
	}},
	{name: "two in one process", faults: 1, ticks: 2, depth: 6, prepare: aHolds + "acquire b; go p0;", parties: []partySpec{
		{lockID: "a", process: 0, mode: x, queues: true, can: budget{acquire: 1, leave: 1, extend: 1}},
		{lockID: "b", process: 0, mode: x, queues: true, can: budget{ask: 1, abandon: 1, leave: 1}},
		{lockID: "c", process: 1, mode: x, queues: true, can: budget{acquire: 1, ask: 1}},
	}},
	{name: "a state that was rolled back", ticks: 1, depth: 9, parties: []partySpec{
		{lockID: "a", process: 0, mode: s, can: budget{extend: 1, leave: 1}},
		{lockID: "d", process: 0, mode: x, can: budget{acquire: 1}},
		{lockID: "b", process: 1, mode: s},
		{lockID: "c", process: 2, mode: s, can: budget{acquire: 1}},
	}, prepare: aHolds + bQueues + "leave b; a write that is rolled back for p1; acquire d; a read of state -1 for p0;"},
	{name: "stale reads", faults: 2, ticks: 1, depth: 6, prepare: aHolds + bQueues, parties: []partySpec{
		{lockID: "a", process: 0, mode: s, can: budget{extend: 1, leave: 1}},
		{lockID: "d", process: 0, mode: x, can: budget{acquire: 1}},
		{lockID: "b", process: 1, mode: s, can: budget{leave: 1}},
	}},
	{name: "a semaphore", faults: 1, ticks: 2, depth: 7, settles: 1, prepare: aHolds, parties: []partySpec{
		{lockID: "a", process: 0, mode: s, limit: 2, queues: true, can: budget{acquire: 1, leave: 1}},
		{lockID: "b", process: 1, mode: s, limit: 2, queues: true, can: budget{acquire: 1, ask: 1}},
		{lockID: "c", process: 2, mode: s, limit: 2, queues: true, can: budget{acquire: 1, ask: 1}},
	}},
	{name: "a limit is lowered and removed", faults: 1, ticks: 2, depth: 5, policies: []policyChange{{limit: 1}, {}}, parties: []partySpec{
		{lockID: "a", process: 0, mode: s, limit: 2, lasts: 4, can: budget{leave: 1}},
		{lockID: "d", process: 1, mode: s, limit: 2},
		{lockID: "b", process: 1, mode: s, limit: 2, queues: true, can: budget{acquire: 1, ask: 1}},
		{lockID: "c", process: 2, mode: s, limit: 2, queues: true, can: budget{acquire: 1, ask: 1}},
	}, prepare: aHolds + "acquire d; go p1; go p1; leave d; go p1;"},
	{name: "a limit is raised and lowered", faults: 1, ticks: 2, depth: 5, policies: []policyChange{{limit: 1}, {limit: 3}, {limit: 1}}, parties: []partySpec{
		{lockID: "a", process: 0, mode: s, limit: 2, lasts: 4, can: budget{leave: 1}},
		{lockID: "b", process: 1, mode: s, limit: 2, queues: true, can: budget{ask: 1, leave: 1}},
		{lockID: "c", process: 2, mode: s, limit: 2, queues: true, can: budget{ask: 1}},
	}, prepare: aHolds + "the policy changes;" + bQueues + cQueues + "poll by p1; poll by p2;"},
	{name: "a limit ends", faults: 1, ticks: 2, depth: 5, policies: []policyChange{{limit: 1, lasts: 3}, {limit: 3}}, parties: []partySpec{
		{lockID: "a", process: 0, mode: s, limit: 2, lasts: 4, can: budget{renew: 1, leave: 1}},
		{lockID: "b", process: 1, mode: s, limit: 2, queues: true, can: budget{leave: 1}},
		{lockID: "c", process: 1, mode: s, limit: 2, can: budget{acquire: 1}},
	}, prepare: aHolds + "the policy changes; tick; tick;" + bQueues + "poll by p1;"},
	{name: "members come and go", faults: 1, ticks: 2, depth: 5, parties: []partySpec{
		{lockID: "a", process: 0, mode: o, can: budget{leave: 1, extend: 1}},
		{lockID: "b", process: 1, mode: o, queues: true, can: budget{ask: 1, leave: 1}},
		{lockID: "c", process: 2, mode: o, queues: true, can: budget{ask: 1}},
	}, prepare: "the policy changes;" + aHolds + bQueues + cQueues, policies: []policyChange{
		{members: []rules.Member{m}}, {members: []rules.Member{m, n}}, {members: []rules.Member{outOfService, n}},
	}},
	{name: "a member is taken out", faults: 1, ticks: 1, depth: 5, parties: []partySpec{
		{lockID: "a", process: 0, mode: o, lasts: 4, can: budget{leave: 1, extend: 1}},
		{lockID: "b", process: 1, mode: o, lasts: 4, can: budget{leave: 1}},
		{lockID: "c", process: 2, mode: o, queues: true, can: budget{ask: 1}},
	}, prepare: "the policy changes;" + aHolds + bQueues + cQueues + "the policy changes; tick; tick;", policies: []policyChange{
		{members: []rules.Member{m, n}}, {members: []rules.Member{outOfService, n}},
	}},
	{name: "a pool of two", faults: 1, ticks: 2, depth: 6, parties: []partySpec{
		{lockID: "a", process: 0, mode: o, can: budget{leave: 1, renew: 1}},
		{lockID: "b", process: 1, mode: o, queues: true, can: budget{acquire: 1, ask: 1}},
		{lockID: "c", process: 2, mode: o, queues: true, can: budget{acquire: 1, ask: 1}},
	}, prepare: "the policy changes;" + aHolds, policies: []policyChange{{members: []rules.Member{m, n}}, {members: []rules.Member{n, m}}}},
	{name: "a full queue", faults: 1, ticks: 3, depth: 6, prepare: aHolds + bQueues, parties: []partySpec{
		{lockID: "a", process: 0, mode: x, can: budget{leave: 1, renew: 1}},
		{lockID: "b", process: 1, mode: x, queues: true, maxWaiters: 1, can: budget{ask: 1, abandon: 1}},
		{lockID: "c", process: 2, mode: x, queues: true, maxWaiters: 1, can: budget{acquire: 1, ask: 1}},
	}},
	{name: "a kept hold", faults: 1, ticks: 4, depth: 9, parties: []partySpec{
		{lockID: "a", process: 0, mode: x, keeps: true, can: budget{acquire: 2, renew: 1, leave: 1, release: 1, abandon: 1}},
		{lockID: "b", process: 1, mode: x, queues: true, can: budget{acquire: 1, ask: 1}},
	}},
}

// TestExplore explores every interleaving of the actions of parties, processes and the server, up to the
// depth of each scenario.
//
// The processes drive real Lines with the real rules. The model consists of the stored document and its
// earlier states, which a deposed primary may return; server time in ticks; each process's knowledge of that
// time; commands in flight and their late copies; and the leases that the parties trust.
//
// The actions are: a party acquires, is woken, abandons its request, renews by a swap, extends (in two halves,
// at the server and when the answer arrives), upgrades, downgrades, leaves, or releases; a process settles, or
// withdraws a waiter; a line's command in flight is carried out and answered; a tick passes; an operator changes the
// policy, which processes follow by their reads, and watchers poll after that and when it ends. Faults are: a
// process crashes; a swap is applied, lost, late or rolled back, and its answer is an error; a swap is applied
// and reported as a conflict; a read fails or returns an old state; all commands fail until the calls fail; an
// extend is lost or late; a process believes the clock of a server that is ahead. All are bounded in number.
//
// After every action the world is checked by check, checkWrite, checkServed, checkGrants and checkRead. Single operations are not: package rules
// checks them. Equivalent worlds are
// visited once: see hash. Runs, bars, requests within others and several resources are not modelled;
// TestExploreSeveral covers the last.
func TestExplore(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			began := time.Now()
			var x exploration
			x.run(s.begin(), s.depth+*deeper-shallower)
			t.Logf("%s: depth %d, %d states, %v, by depth %v", s.name, x.depth, x.states, time.Since(began).Round(time.Millisecond), x.widths)
			if x.failed != nil {
				require.NoError(t, x.failed.err, "after:\n\t%s", strings.Join(x.failed.trail.labels(), "\n\t"))
			}
		})
	}
}
