package lockcore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

// observed contains two processes on one database, whose clock is stopped, and all that they record.
type observed struct {
	*lockcore.Steps
	other  *lockcore.Steps
	clock  *lockcoretest.Clock
	faults *faultStore
	tracer trace.Tracer
	spans  *tracetest.SpanRecorder
	reader *metric.ManualReader
}

// start is a time in whole milliseconds, as databases keep them.
var start = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func observe(t *testing.T, cfg lockcore.Config) *observed {
	t.Helper()
	o := &observed{clock: lockcoretest.NewClock(start), spans: tracetest.NewSpanRecorder(), reader: metric.NewManualReader()}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(o.spans))
	cfg.TracerProvider, cfg.MeterProvider = provider, metric.NewMeterProvider(metric.WithReader(o.reader))
	o.tracer = provider.Tracer("test")
	o.faults = newFaultStoreAt(o.clock.Now)
	for _, l := range []**lockcore.Steps{&o.Steps, &o.other} {
		made, err := lockcore.NewWithStore(o.faults, cfg)
		require.NoError(t, err)
		t.Cleanup(made.Steps().EndSessions)
		*l = made.Steps()
	}
	return o
}

// fail fails swaps and extensions with an error; nil fails none.
func (o *observed) fail(err error) {
	o.faults.set(failing(err, of(kindSwap, kindExtend)), nil)
}

// step runs f under a span of its own.
func (o *observed) step(t *testing.T, name string, f func(ctx context.Context)) trace.SpanContext {
	t.Helper()
	ctx, span := o.tracer.Start(t.Context(), name)
	defer span.End()
	f(ctx)
	return span.SpanContext()
}

func asks(lockID string, schedule uint32, res ...lockcore.Resource) lockcore.StepRequest {
	return lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: lockID, Part: "1/Debit", Order: lockcore.Order{Schedule: schedule, Attempt: 1}}, Owner: "owner-" + lockID, Resources: res, Keep: true,
		Call: "the same",
	}
}

func (o *observed) enters(t *testing.T, l *lockcore.Steps, req lockcore.StepRequest) trace.SpanContext {
	t.Helper()
	return o.step(t, "step of "+req.LockID, func(ctx context.Context) {
		_, err := l.Enter(ctx, req)
		require.NoError(t, err)
	})
}

func (o *observed) queues(t *testing.T, l *lockcore.Steps, req lockcore.StepRequest) {
	t.Helper()
	o.step(t, "step of "+req.LockID, func(ctx context.Context) {
		_, err := l.Enter(ctx, req)
		require.ErrorIs(t, err, lockcore.ErrBusy)
	})
}

// only is the one span of a name and lock ID.
func (o *observed) only(t *testing.T, name, lockID string) sdktrace.ReadOnlySpan {
	t.Helper()
	var found []sdktrace.ReadOnlySpan
	for _, s := range o.spans.Ended() {
		if s.Name() == name && text(s.Attributes(), telemetry.LockID) == lockID {
			found = append(found, s)
		}
	}
	require.Len(t, found, 1, "spans %s of %s", name, lockID)
	return found[0]
}

func value(attrs []attribute.KeyValue, key string) attribute.Value {
	for _, a := range attrs {
		if string(a.Key) == key {
			return a.Value
		}
	}
	return attribute.Value{}
}

func text(attrs []attribute.KeyValue, key string) string { return value(attrs, key).AsString() }

func eventsNamed(s sdktrace.ReadOnlySpan, name string) []sdktrace.Event {
	var found []sdktrace.Event
	for _, e := range s.Events() {
		if e.Name == name {
			found = append(found, e)
		}
	}
	return found
}

func (o *observed) until(t *testing.T, why string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, time.Minute, time.Millisecond, why)
}

// waiting returns the number of waiters of a resource.
func (o *observed) waiting(t *testing.T, name string) int {
	t.Helper()
	n := 0
	for s, err := range o.Status(t.Context(), lockcore.Filter{Resource: name, States: []lockcore.State{lockcore.StateWaiting}}) {
		require.NoError(t, err)
		require.Equal(t, name, s.Resource)
		n++
	}
	return n
}

// deadlock has old and young wait for each other, on two resources.
func (o *observed) deadlock(t *testing.T, x, y string) {
	t.Helper()
	first, second := asks("old", 1, lockcore.Exclusive(x)), asks("young", 1, lockcore.Exclusive(y))
	o.enters(t, o.Steps, first)
	o.enters(t, o.Steps, second)
	first.Resources, second.Resources = second.Resources, first.Resources
	first.Order.Schedule, second.Order.Schedule = 2, 2
	first.Started, second.Started = start.Add(-time.Hour), start
	o.queues(t, o.Steps, first)
	o.queues(t, o.Steps, second)
}

// deadlocked has the deadlock ended by another process.
func (o *observed) deadlocked(t *testing.T) {
	t.Helper()
	o.deadlock(t, "x", "y")
	o.clock.Advance(2 * time.Second)
	broken, err := o.other.BreakDeadlocks(t.Context())
	require.NoError(t, err)
	require.Len(t, broken, 1)
	_, err = o.Enter(t.Context(), asks("young", 2, lockcore.Exclusive("x")))
	require.ErrorIs(t, err, lockcore.ErrDeadlock)
}
