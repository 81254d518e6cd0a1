package browser

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// sagaOptions configure a simulation.
type sagaOptions struct {
	// Seed is that of the random numbers.
	Seed uint64
	// Least is the least number of holds, and of waits.
	Least int
	// Resources is the number of resources, of which the first is the most requested. Defaults to 12.
	Resources int
	// Crowd is the number of sagas at a time. Defaults to 16.
	Crowd int
}

// begin is the start of every simulation.
var begin = time.Date(2026, time.November, 20, 9, 30, 0, 0, time.UTC)

// ttl is the time after which the holds of a dead saga expire.
const ttl = 400 * time.Millisecond

// sagaReport simulates sagas that lock two resources each, and analyses the spans that they would write. Equal options give equal
// reports. It panics if its own spans cannot be analysed.
func sagaReport(o sagaOptions) *contention.Report {
	if o.Resources == 0 {
		o.Resources = 12
	}
	if o.Crowd == 0 {
		o.Crowd = 16
	}
	s := &stage{options: o, random: rand.New(rand.NewPCG(o.Seed, 7)), spans: ptrace.NewSpanSlice()}
	for i := range o.Resources {
		s.queues = append(s.queues, &queue{name: fmt.Sprintf("account/%d", i), mode: "exclusive", room: 1})
	}
	if o.Resources > 3 {
		s.queues[3] = &queue{name: "inventory/widgets", mode: "shared", room: 3}
	}
	for i := range o.Crowd {
		s.after(time.Duration(i)*3*time.Millisecond, s.newSaga)
	}
	for len(s.events) > 0 {
		e := s.events[0]
		s.events, s.now = s.events[1:], e.at
		e.run()
	}
	return s.report()
}

// stage is the state of a simulation. Times are since begin.
type stage struct {
	options      sagaOptions
	random       *rand.Rand
	spans        ptrace.SpanSlice
	queues       []*queue
	now          time.Duration
	events       []event // the next one first
	sagas        int
	holds, waits int
}

// batch is the number of spans in a document: one with all of them would have more values than a document may have.
const batch = 2_000

func (s *stage) report() *contention.Report {
	var file []byte
	for from := 0; from < s.spans.Len(); from += batch { // as the Collector writes them
		traces := ptrace.NewTraces()
		spans := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
		for i := from; i < min(from+batch, s.spans.Len()); i++ {
			s.spans.At(i).CopyTo(spans.AppendEmpty())
		}
		document, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
		if err != nil {
			panic(err)
		}
		file = append(append(file, document...), '\n')
	}
	spans, err := contention.Read(context.Background(), []string{"-"}, bytes.NewReader(file))
	if err != nil {
		panic(err)
	}
	r, err := contention.Analyze(context.Background(), spans, contention.Options{})
	if err != nil {
		panic(err)
	}
	return r
}

type event struct {
	at  time.Duration
	run func()
}

// after adds an event, after those of the same time.
func (s *stage) after(d time.Duration, run func()) {
	e := event{s.now + d, run}
	i := sort.Search(len(s.events), func(i int) bool { return s.events[i].at > e.at })
	s.events = slices.Insert(s.events, i, e)
}

// about returns a random duration whose median is d.
func (s *stage) about(d time.Duration) time.Duration {
	return time.Duration(float64(d) * math.Exp(0.6*s.random.NormFloat64())).Truncate(time.Microsecond)
}

// saga locks its resources in order, runs a step under each, and releases all of them at its end.
type saga struct {
	name   string
	trace  pcommon.TraceID
	steps  []string
	queues []*queue
	holds  []*hold
	dies   bool
}

// queue is a resource with its holds and waiters.
type queue struct {
	name, mode string
	room       int
	fence      int64
	holds      []*hold
	waiters    []*waiter
}

type hold struct {
	*saga
	queue *queue
	fence int64
	from  time.Duration
}

type waiter struct {
	*saga
	from time.Duration
	seen *hold // the hold that was in the way when the wait began
}

func (s *stage) newSaga() {
	if s.holds >= s.options.Least && s.waits >= s.options.Least {
		return
	}
	s.sagas++
	kind, steps := "transfer", []string{"Debit", "Credit"}
	if s.random.IntN(9) == 0 {
		kind, steps = "statement", []string{"ReadLedger", "Print"}
	}
	g := &saga{name: fmt.Sprintf("%s-%04d", kind, s.sagas), steps: steps, dies: s.random.IntN(400) == 0}
	binary.BigEndian.PutUint64(g.trace[8:], uint64(s.sagas))
	// The first resource becomes the most requested, since it is held while its saga waits for another.
	a, b := s.random.IntN(len(s.queues)), s.random.IntN(len(s.queues))
	for _, i := range slices.Compact([]int{min(a, b), max(a, b)}) {
		g.queues = append(g.queues, s.queues[i])
	}
	run := s.span(g, "RunWorkflow:"+kind, s.now, s.now)
	run.Attributes().PutStr("temporalWorkflowID", g.name)
	s.next(g)
}

// next requests a saga's next resource, or ends the saga.
func (s *stage) next(g *saga) {
	if len(g.holds) == len(g.queues) {
		s.end(g, telemetry.OutcomeReleased)
		return
	}
	q := g.queues[len(g.holds)]
	if len(q.holds) < q.room && len(q.waiters) == 0 {
		s.grant(g)
		return
	}
	w := &waiter{saga: g, from: s.now, seen: q.holds[0]}
	q.waiters = append(q.waiters, w)
	s.waits++
	switch s.random.IntN(300) {
	case 0:
		s.after(s.about(60*time.Millisecond), func() { s.leave(q, w, telemetry.OutcomeDeadlock) })
	case 1, 2:
		s.after(s.about(90*time.Millisecond), func() { s.leave(q, w, telemetry.OutcomeLeft) })
	}
}

// grant gives a saga its next resource, and runs a step.
func (s *stage) grant(g *saga) {
	q, step := g.queues[len(g.holds)], len(g.holds)
	q.fence = max(q.fence+1, begin.Add(s.now).UnixMilli())
	h := &hold{saga: g, queue: q, fence: q.fence, from: s.now}
	q.holds, g.holds = append(q.holds, h), append(g.holds, h)
	s.holds++
	part := fmt.Sprintf("%d/%s", step+1, g.steps[step])
	acquire := s.lockSpan(g, q, telemetry.SpanAcquire, s.now, s.now, telemetry.OutcomeGranted)
	acquire.PutStr(telemetry.Part, part)
	acquire.PutStr(telemetry.Host, "worker-1")
	acquire.PutInt(telemetry.Hold, h.fence)
	if g.dies && len(g.holds) == len(g.queues) {
		s.after(ttl+s.about(5*time.Millisecond), func() { s.end(g, telemetry.OutcomeExpired) })
		return
	}
	s.after(s.about(9*time.Millisecond), func() {
		s.lockSpan(g, q, telemetry.SpanLeave, s.now, s.now, telemetry.OutcomeOK).PutStr(telemetry.Part, part)
		s.next(g)
	})
}

// end releases a saga's holds, and grants their resources to the waiters while there is room.
func (s *stage) end(g *saga, outcome string) {
	for _, h := range g.holds {
		q := h.queue
		s.lockSpan(g, q, telemetry.SpanHold, h.from, s.now, outcome).PutInt(telemetry.Fence, h.fence)
		q.holds = slices.DeleteFunc(q.holds, func(o *hold) bool { return o == h })
		for len(q.holds) < q.room && len(q.waiters) > 0 {
			w := q.waiters[0]
			q.waiters = q.waiters[1:]
			s.endWait(q, w, telemetry.OutcomeGranted).PutInt(telemetry.Fence, max(q.fence+1, begin.Add(s.now).UnixMilli()))
			s.grant(w.saga)
		}
	}
	s.after(s.about(4*time.Millisecond), s.newSaga)
}

// leave ends a wait without a grant, and its saga.
func (s *stage) leave(q *queue, w *waiter, outcome string) {
	if i := slices.Index(q.waiters, w); i >= 0 {
		q.waiters = slices.Delete(q.waiters, i, i+1)
		s.endWait(q, w, outcome)
		if outcome == telemetry.OutcomeDeadlock {
			cycle := fmt.Sprintf("%[1]s waits for %[2]s on %[3]s, %[2]s waits for %[1]s on %[4]s", w.name, w.seen.name, q.name, s.queues[0].name)
			s.lockSpan(w.saga, q, telemetry.SpanDeadlock, s.now, s.now, telemetry.OutcomeOK).PutStr(telemetry.Cycle, cycle)
		}
		s.end(w.saga, telemetry.OutcomeReleased)
	}
}

func (s *stage) endWait(q *queue, w *waiter, outcome string) pcommon.Map {
	a := s.lockSpan(w.saga, q, telemetry.SpanWait, w.from, s.now, outcome)
	step := len(w.saga.holds)
	a.PutStr(telemetry.Part, fmt.Sprintf("%d/%s", step+1, w.steps[step]))
	a.PutStr(telemetry.BlockedByID, w.seen.lockID())
	a.PutInt(telemetry.BlockedByFence, w.seen.fence)
	return a
}

func (g *saga) lockID() string {
	return wire.Run{Namespace: "3d1e1f0c-6f5a-4c9e-9d51-0a6f4b1c2d3e", WorkflowID: g.name}.LockID()
}

// lockSpan writes a span of Lockstep's, and returns its attributes.
func (s *stage) lockSpan(g *saga, q *queue, name string, from, to time.Duration, outcome string) pcommon.Map {
	a := s.span(g, name, from, to).Attributes()
	a.PutStr(telemetry.Resource, q.name)
	a.PutStr(telemetry.LockID, g.lockID())
	a.PutStr(telemetry.Owner, g.name)
	a.PutStr(telemetry.Mode, q.mode)
	a.PutInt(telemetry.Limit, int64(q.room))
	a.PutStr(telemetry.Order, "1.1")
	a.PutStr(telemetry.Outcome, outcome)
	return a
}

func (s *stage) span(g *saga, name string, from, to time.Duration) ptrace.Span {
	span := s.spans.AppendEmpty()
	n := s.spans.Len()
	span.SetName(name)
	span.SetTraceID(g.trace)
	var id pcommon.SpanID
	binary.BigEndian.PutUint64(id[:], uint64(n))
	span.SetSpanID(id)
	span.SetStartTimestamp(pcommon.NewTimestampFromTime(begin.Add(from)))
	span.SetEndTimestamp(pcommon.NewTimestampFromTime(begin.Add(to)))
	return span
}
