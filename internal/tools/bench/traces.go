package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// perLine is how many spans a batch of the OpenTelemetry SDK has.
const perLine = 512

// traces writes OTLP's JSON lines.
type traces struct {
	w     *bufio.Writer
	rng   *rand.Rand
	inRow int // spans on this line
	spans int
	size  int64
	err   error
}

// attr is an attribute: a string, or an integer.
type attr struct {
	key   string
	value any
}

// makeTraces writes what write makes of n = 0, 1, 2, …, until there are enough spans. It returns the bytes written.
func makeTraces(ctx context.Context, path string, spans int, write func(t *traces, n int)) (int64, error) {
	f, err := os.Create(path) //nolint:gosec // a temporary file
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	t := &traces{w: bufio.NewWriterSize(f, 1<<20), rng: rand.New(rand.NewPCG(1, 2))} //nolint:gosec // reproducible, and no secret
	for n := 0; t.spans < spans && t.err == nil && ctx.Err() == nil; n++ {
		write(t, n)
	}
	t.endLine()
	if t.err == nil {
		t.err = t.w.Flush()
	}
	if t.err == nil {
		t.err = ctx.Err()
	}
	return t.size, t.err
}

// firstTime is when the first comes, in nanoseconds since 1970.
const firstTime = 1_790_000_000_000_000_000

// spread are sagas that queue for resources, a quarter of their spans not of locks.
func spread(resources int) func(t *traces, n int) {
	queues := make([]queue, resources)
	for i := range queues {
		queues[i] = queue{resource: fmt.Sprintf("account/%d", i), arrival: firstTime, free: firstTime}
	}
	return func(t *traces, n int) { t.saga(n, &queues[t.rng.IntN(resources)]) }
}

// hot is one resource that is held for 10 ms by one after the other, while depth wait for it. Nothing else is done.
func hot(depth int) func(t *traces, n int) {
	const ms = 1_000_000
	var holder []attr
	return func(t *traces, n int) {
		owner, trace := fmt.Sprintf("transfer-%d", n), fmt.Sprintf("%032x", n+1)
		lockID := fmt.Sprintf("temporal:default/default/%s/0195f0c2-7f1a-7000-8000-%012d", owner, n)
		from, queued := firstTime+int64(n)*10*ms, firstTime+int64(max(n-depth, 0))*10*ms
		fence := from / ms
		common := func(more ...attr) []attr {
			return append([]attr{{telemetry.Resource, "account/hot"}, {telemetry.LockID, lockID}, {telemetry.Owner, owner}, {telemetry.Mode, "exclusive"}}, more...)
		}
		request := []attr{{telemetry.Part, "1/Debit"}, {telemetry.Order, "1.1"}, {telemetry.Outcome, telemetry.OutcomeGranted}, {telemetry.Fence, fence}}
		if n > 0 {
			t.span(trace, t.id(), telemetry.SpanWait, queued, from, append(common(request...), holder...), holder)
		}
		t.span(trace, t.id(), telemetry.SpanAcquire, from, from+ms, common(append(request, attr{telemetry.Hold, fence})...))
		t.span(trace, t.id(), telemetry.SpanHold, from, from+10*ms, common(attr{telemetry.Fence, fence}, attr{telemetry.Outcome, telemetry.OutcomeReleased}))
		holder = []attr{{telemetry.BlockedByID, lockID}, {telemetry.BlockedByFence, fence}, {telemetry.BlockedByOwner, owner}}
	}
}

// pool is a semaphore that limit hold at a time, for 10 ms times limit on average, while depth wait for it. Nothing else is done. A wait names as many of
// those that held when it came as Lockstep's do.
func pool(limit, depth int) func(t *traces, n int) {
	const (
		ms    = 1_000_000
		named = 15
	)
	type hold struct {
		until int64
		name  []attr
	}
	slots := make([]hold, limit)
	for i := range slots {
		slots[i].until = firstTime
	}
	// place is of one who waits: since when, and who held then.
	type place struct {
		since int64
		named [][]attr
	}
	queue := make([]place, depth)
	for i := range queue {
		queue[i].since = firstTime
	}
	return func(t *traces, n int) {
		slot := 0
		for i := range slots {
			if slots[i].until < slots[slot].until {
				slot = i
			}
		}
		owner, trace := fmt.Sprintf("transfer-%d", n), fmt.Sprintf("%032x", n+1)
		lockID := fmt.Sprintf("temporal:default/default/%s/0195f0c2-7f1a-7000-8000-%012d", owner, n)
		from, last, mine := slots[slot].until, slots[slot].name, &queue[n%depth]
		until := from + int64((0.2+0.8*t.rng.ExpFloat64())*float64(10*limit))*ms
		fence := firstTime/ms + int64(n)
		common := func(more ...attr) []attr {
			return append([]attr{
				{telemetry.Resource, "pool/hot"}, {telemetry.LockID, lockID}, {telemetry.Owner, owner},
				{telemetry.Mode, "shared"}, {telemetry.Limit, int64(limit)},
			}, more...)
		}
		request := []attr{{telemetry.Part, "1/Call"}, {telemetry.Order, "1.1"}, {telemetry.Outcome, telemetry.OutcomeGranted}, {telemetry.Fence, fence}}
		if n >= limit {
			t.span(trace, t.id(), telemetry.SpanWait, mine.since, from, append(common(request...), last...), append(mine.named, last)...)
		}
		t.span(trace, t.id(), telemetry.SpanAcquire, from, from+ms, common(append(request, attr{telemetry.Hold, fence})...))
		t.span(trace, t.id(), telemetry.SpanHold, from, until, common(attr{telemetry.Fence, fence}, attr{telemetry.Outcome, telemetry.OutcomeReleased}))
		slots[slot] = hold{until, []attr{{telemetry.BlockedByID, lockID}, {telemetry.BlockedByFence, fence}, {telemetry.BlockedByOwner, owner}}}
		mine.since, mine.named = from, mine.named[:0]
		for i := 0; n >= limit && i < min(limit, named); i++ {
			mine.named = append(mine.named, slots[i].name)
		}
	}
}

// queue is a resource: when the next saga comes, and when those before it will have gone.
type queue struct {
	resource      string
	arrival, free int64
	fence         int64
	holder        []attr // what names who holds
}

// saga is one that takes a resource for two steps.
func (t *traces) saga(n int, q *queue) {
	const ms = 1_000_000
	owner := fmt.Sprintf("transfer-%d", n)
	lockID := fmt.Sprintf("temporal:default/default/%s/0195f0c2-7f1a-7000-8000-%012d", owner, n)
	trace := fmt.Sprintf("%032x", n+1)
	q.arrival += int64(t.rng.ExpFloat64() * 500 * ms)
	from := max(q.arrival, q.free)
	length := int64((0.2 + t.rng.ExpFloat64()) * 350 * ms)
	q.fence = max(q.fence+1, from/ms)
	common := func(more ...attr) []attr {
		return append([]attr{{telemetry.Resource, q.resource}, {telemetry.LockID, lockID}, {telemetry.Owner, owner}, {telemetry.Mode, "exclusive"}}, more...)
	}
	step := func(part string, at, until int64, outcome string) string {
		id := t.id()
		request := []attr{{telemetry.Part, part}, {telemetry.Order, "1.1"}}
		t.span(trace, id, telemetry.SpanAcquire, at-2*ms, at+ms, common(append(request, attr{telemetry.Outcome, outcome}, attr{telemetry.Hold, q.fence})...))
		t.span(trace, t.id(), telemetry.SpanLeave, until, until+ms, common(append(request, attr{telemetry.Outcome, telemetry.OutcomeOK})...))
		activity := []attr{{"temporalWorkflowID", owner}, {"temporalActivityID", "5"}, {"temporalRunID", lockID}}
		t.span(trace, t.id(), "RunActivity:"+part[2:], at-3*ms, until+2*ms, activity)
		t.span(trace, t.id(), "StartActivity:"+part[2:], at-3*ms, at-3*ms, activity)
		return id
	}
	if from > q.arrival {
		t.span(trace, t.id(), telemetry.SpanAcquire, q.arrival-ms, q.arrival,
			common(attr{telemetry.Part, "1/Debit"}, attr{telemetry.Order, "1.1"}, attr{telemetry.Outcome, telemetry.OutcomeQueued}), q.holder)
		t.span(trace, t.id(), telemetry.SpanWait, q.arrival, from,
			append(common(attr{telemetry.Part, "1/Debit"}, attr{telemetry.Fence, q.fence}, attr{telemetry.Outcome, telemetry.OutcomeGranted}), q.holder...), q.holder)
	}
	step("1/Debit", from, from+length*2/5, telemetry.OutcomeGranted)
	last := step("2/Credit", from+length/2, from+length, telemetry.OutcomeJoined)
	t.span(trace, t.id(), telemetry.SpanHold, from, from+length, common(attr{telemetry.Fence, q.fence}, attr{telemetry.Outcome, telemetry.OutcomeReleased}))
	t.span(trace, t.id(), telemetry.SpanRelease, from+length, from+length+ms, common(attr{telemetry.Outcome, telemetry.OutcomeOK}))
	q.free = from + length
	q.holder = []attr{
		{telemetry.BlockedByID, lockID}, {telemetry.BlockedByFence, q.fence}, {telemetry.BlockedByOwner, owner},
		{telemetry.BlockedByTrace, trace}, {telemetry.BlockedBySpan, last},
	}
}

func (t *traces) id() string { return fmt.Sprintf("%016x", t.rng.Uint64()|1) }

// span writes one, with an event for each that blocked it.
func (t *traces) span(trace, id, name string, start, end int64, attrs []attr, blockedBy ...[]attr) {
	if t.inRow == 0 {
		t.write(`{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"payments"}}]},"scopeSpans":[{"scope":{"name":"`,
			telemetry.Scope, `"},"spans":[`)
	} else {
		t.write(",")
	}
	t.write(`{"traceId":"`, trace, `","spanId":"`, id, `","parentSpanId":"`, trace[16:], `","flags":256,"name":"`, name, `","kind":3,"startTimeUnixNano":"`,
		strconv.FormatInt(start, 10), `","endTimeUnixNano":"`, strconv.FormatInt(max(end, start), 10), `","attributes":[`)
	t.attributes(attrs)
	t.write(`]`)
	if len(blockedBy) > 0 {
		t.write(`,"events":[`)
		for i, b := range blockedBy {
			if i > 0 {
				t.write(",")
			}
			t.write(`{"timeUnixNano":"`, strconv.FormatInt(start, 10), `","name":"`, telemetry.EventBlockedBy, `","attributes":[`)
			t.attributes(b)
			t.write(`]}`)
		}
		t.write(`]`)
	}
	t.write(`,"status":{}}`)
	t.spans++
	if t.inRow++; t.inRow == perLine {
		t.endLine()
	}
}

func (t *traces) endLine() {
	if t.inRow > 0 {
		t.write("]}]}]}\n")
		t.inRow = 0
	}
}

func (t *traces) attributes(attrs []attr) {
	for i, a := range attrs {
		if i > 0 {
			t.write(",")
		}
		switch v := a.value.(type) {
		case string:
			t.write(`{"key":"`, a.key, `","value":{"stringValue":"`, v, `"}}`)
		case int64:
			t.write(`{"key":"`, a.key, `","value":{"intValue":"`, strconv.FormatInt(v, 10), `"}}`)
		}
	}
}

func (t *traces) write(texts ...string) {
	for _, s := range texts {
		n, err := t.w.WriteString(s)
		t.size += int64(n)
		if t.err == nil {
			t.err = err
		}
	}
}
