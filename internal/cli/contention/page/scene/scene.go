// Package scene makes reports of contention as large as one likes, for tests and for looking at pages: a crowd of sagas that lock two resources
// each, played through with a seeded generator. The same options give the same report.
package scene

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
)

// Options are those of a scene.
type Options struct {
	// Seed begins the generator.
	Seed uint64
	// Least is how many holds, and how many waits, there are at least.
	Least int
	// Resources are how many there are: the first is the most wanted. Defaults to 12.
	Resources int
	// Crowd is how many sagas run at once. Defaults to 16.
	Crowd int
}

// begin is when every scene begins.
var begin = time.Date(2026, time.November, 20, 9, 30, 0, 0, time.UTC)

// ttl is how long a hold of a dead saga stands.
const ttl = 400 * time.Millisecond

// New plays a scene.
func New(o Options) *contention.Report {
	if o.Resources == 0 {
		o.Resources = 12
	}
	if o.Crowd == 0 {
		o.Crowd = 16
	}
	//nolint:gosec // a scene is made up, and the same each time
	s := &stage{options: o, random: rand.New(rand.NewPCG(o.Seed, 7)), report: &contention.Report{From: begin}}
	for i := range o.Resources {
		s.resources = append(s.resources, &queue{name: resourceName(i, o.Resources), room: 1})
	}
	if o.Resources > 3 {
		s.resources[3].room = 3
	}
	for i := range o.Crowd {
		s.after(time.Duration(i)*3*time.Millisecond, s.newSaga)
	}
	for s.events.Len() > 0 {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.run()
	}
	summarise(s.report)
	return s.report
}

func resourceName(i, n int) string {
	if i == 3 && n > 3 {
		return "inventory/widgets"
	}
	return fmt.Sprintf("account/%d", i)
}

// stage is a scene that is being played.
type stage struct {
	options   Options
	random    *rand.Rand
	report    *contention.Report
	resources []*queue
	now       time.Duration
	events    events
	sagas     int
	numbers   int
}

// queue is a resource: who holds it, and who waits.
type queue struct {
	name    string
	room    int
	holders int
	waiters []*waiter
	fence   int64
}

type waiter struct {
	saga    *saga
	step    int
	wait    int
	granted func(hold int)
}

// saga locks its resources in order, runs a step under each, and lets all of them go at the end.
type saga struct {
	name  string
	run   string
	trace string
	wants []int
	steps []string
	holds []int
	dies  bool
}

type event struct {
	at     time.Duration
	number int
	run    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].number < e[j].number
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (s *stage) after(d time.Duration, run func()) {
	s.numbers++
	heap.Push(&s.events, event{at: s.now + d, number: s.numbers, run: run})
}

// about is a duration whose median is d; some are much longer.
func (s *stage) about(d time.Duration) time.Duration {
	return time.Duration(float64(d) * math.Exp(0.6*s.random.NormFloat64())).Truncate(time.Microsecond)
}

func (s *stage) id(digits int) string {
	const hex = "0123456789abcdef"
	id := make([]byte, digits)
	for i := range id {
		id[i] = hex[s.random.IntN(16)]
	}
	return string(id)
}

// pick is any of them: the first becomes the most wanted by being locked first, and held while its saga waits for another.
func (s *stage) pick() int { return s.random.IntN(len(s.resources)) }

func (s *stage) newSaga() {
	if len(s.report.Holds) >= s.options.Least && len(s.report.Waits) >= s.options.Least {
		return
	}
	s.sagas++
	kind, steps := "transfer", []string{"Debit", "Credit"}
	if s.random.IntN(9) == 0 {
		kind, steps = "statement", []string{"ReadLedger", "Print"}
	}
	a, b := s.pick(), s.pick()
	for a == b && len(s.resources) > 1 {
		b = s.pick()
	}
	g := &saga{
		name: fmt.Sprintf("%s-%04d", kind, s.sagas), run: s.id(8), trace: s.id(32), steps: steps,
		wants: []int{min(a, b), max(a, b)}, dies: s.random.IntN(400) == 0,
	}
	if a == b {
		g.wants = g.wants[:1]
	}
	s.next(g)
}

// next runs a saga's next step, or ends it.
func (s *stage) next(g *saga) {
	at := len(g.holds)
	if at == len(g.wants) {
		s.end(g, "released")
		return
	}
	s.acquire(g, at, func(hold int) {
		g.holds = append(g.holds, hold)
		d := s.about(9 * time.Millisecond)
		h := &s.report.Holds[hold]
		h.Steps = append(h.Steps, contention.Step{
			Name: g.steps[at], Part: fmt.Sprintf("%d/%s", at+1, g.steps[at]), Start: begin.Add(s.now), End: begin.Add(s.now + d),
			Trace: g.trace, Span: s.id(16), Host: "worker-1",
		})
		if g.dies && at == len(g.wants)-1 {
			s.after(ttl+s.about(5*time.Millisecond), func() { s.end(g, "expired") })
			return
		}
		s.after(d, func() { s.next(g) })
	})
}

func (s *stage) end(g *saga, outcome string) {
	for _, hold := range g.holds {
		s.release(hold, outcome)
	}
	s.after(s.about(4*time.Millisecond), s.newSaga)
}
