package lockcore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// observer makes the spans and the metrics. Its cost must be small compared with a round trip to the
// database, so attributes are made only for recorded spans. docs/telemetry.md lists what it records.
type observer struct {
	tracer trace.Tracer
	metrics
}

func newObserver(cfg *Config) (observer, error) {
	m, err := newMetrics(cfg)
	return observer{cfg.TracerProvider.Tracer(telemetry.Scope), m}, err
}

// operation is one command, from sending it to its answer.
type operation struct {
	trace.Span
	ctx     context.Context
	metrics *metrics
	name    string
	began   time.Time
	// asked is nil unless the operation is an acquire.
	asked *rules.Acquire
}

func (o *observer) begin(ctx context.Context, name string, attrs func() []attribute.KeyValue) (context.Context, operation) {
	began := time.Now()
	ctx, span := o.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(began))
	if span.IsRecording() {
		span.SetAttributes(attrs()...)
	}
	return ctx, operation{Span: span, ctx: ctx, metrics: &o.metrics, name: name, began: began}
}

// start begins the span of a command for one lease.
func (o *observer) start(ctx context.Context, name string, l Lease) (context.Context, operation) {
	return o.begin(ctx, name, func() []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String(telemetry.Resource, l.Resource),
			attribute.String(telemetry.LockID, l.LockID),
			attribute.String(telemetry.Part, l.Part),
			attribute.String(telemetry.Order, l.Order.String()),
		}
	})
}

func (o *observer) batch(ctx context.Context, leases int) (context.Context, operation) {
	return o.begin(ctx, telemetry.SpanRenew, func() []attribute.KeyValue {
		return []attribute.KeyValue{attribute.Int(telemetry.BatchSize, leases)}
	})
}

func (o *observer) acquire(ctx context.Context, req *StepRequest, asked *rules.Acquire) (context.Context, operation) {
	ctx, op := o.begin(ctx, telemetry.SpanAcquire, func() []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String(telemetry.Resource, asked.Resource),
			modeAttr(Mode(asked.Mode)),
			attribute.String(telemetry.LockID, req.LockID),
			attribute.String(telemetry.Part, req.Part),
			attribute.String(telemetry.Order, req.Order.String()),
			attribute.String(telemetry.Owner, req.Owner),
			attribute.String(telemetry.Comment, req.Comment),
		}
	})
	number(op, telemetry.Limit, asked.Limit)
	number(op, telemetry.Priority, asked.Priority)
	if req.HoldOnly && op.IsRecording() {
		op.SetAttributes(attribute.Bool(telemetry.HoldOnly, true))
	}
	op.asked = asked
	return ctx, op
}

// end records the outcome of the command. A busy resource is an outcome, not an error.
func (o operation) end(a *update.Answer, err error) {
	outcome := outcomeOf(a, err)
	switch {
	case err == nil && o.name == telemetry.SpanDeadlock && a.Outcome != rules.Granted: // another process has ended the deadlock
		outcome = telemetry.OutcomeGone
	case err == nil && o.asked == nil:
		outcome = telemetry.OutcomeOK
	case (outcome == telemetry.OutcomeUnknown || outcome == telemetry.OutcomeError) && errors.Is(o.ctx.Err(), context.Canceled):
		outcome, err = telemetry.OutcomeCanceled, nil // by its caller
	}
	now := time.Now()
	o.metrics.countOperation(o.ctx, o.name, outcome, now.Sub(o.began))
	if o.asked != nil {
		o.metrics.countAcquire(o.ctx, o.asked, outcome, a)
	}
	if !o.IsRecording() {
		return
	}
	o.SetAttributes(attribute.String(telemetry.Outcome, outcome))
	if o.asked != nil && a != nil && a.Length > 0 {
		o.SetAttributes(attribute.Int64(telemetry.Length, a.Length))
	}
	var busy *BusyError
	var deadlock *DeadlockError
	switch {
	case errors.As(err, &busy):
		if busy.Position > 0 {
			o.SetAttributes(attribute.Int(telemetry.Position, busy.Position))
		}
		nameBlockers(o.Span, blockersIn(busy.Holders), now)
	case errors.As(err, &deadlock):
		o.SetAttributes(attribute.String(telemetry.Cycle, deadlock.Cycle))
		o.SetStatus(codes.Error, err.Error())
	case err != nil:
		o.SetStatus(codes.Error, err.Error())
	}
	o.Span.End(trace.WithTimestamp(now))
}

// took records the hold that an acquire made or joined.
func (o operation) took(d *rules.Document, lockID string, lease *Lease) {
	if o.IsRecording() {
		o.SetAttributes(attribute.Int64(telemetry.Fence, lease.Fence), attribute.Int64(telemetry.Hold, d.FirstFence(lockID)))
		optional(o, telemetry.Member, lease.Member)
	}
}

func outcomeOf(a *update.Answer, err error) string {
	switch {
	case a != nil && (err == nil || errors.Is(err, ErrBusy)):
		return string(a.Outcome)
	case errors.Is(err, ErrBusy):
		return telemetry.OutcomeBusy
	case errors.Is(err, ErrLost):
		return telemetry.OutcomeLost
	case errors.Is(err, ErrDeadlock):
		return telemetry.OutcomeDeadlock
	case errors.Is(err, ErrSuperseded):
		return telemetry.OutcomeSuperseded
	case errors.Is(err, ErrUnknownOutcome):
		return telemetry.OutcomeUnknown
	}
	return telemetry.OutcomeError
}

var traceContext propagation.TraceContext

// traceparent returns, in the W3C form, the span of the step if there is one, otherwise the span of the
// acquire.
func traceparent(outer, inner context.Context) string {
	if trace.SpanContextFromContext(outer).IsValid() {
		inner = outer
	}
	carrier := propagation.MapCarrier{}
	traceContext.Inject(inner, carrier)
	return carrier["traceparent"]
}

func remoteSpan(traceparent string) trace.SpanContext {
	if traceparent == "" {
		return trace.SpanContext{}
	}
	ctx := traceContext.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent})
	return trace.SpanContextFromContext(ctx)
}

// metrics holds the instruments. Resource names are not among their attributes, because the number of
// time series must stay small.
type metrics struct {
	class func(resource string) string

	waits, holds, operations       metric.Float64Histogram
	queue                          metric.Int64Histogram
	grants, contentions            metric.Int64Counter
	losses, expirations, deadlocks metric.Int64Counter
}

func newMetrics(cfg *Config) (metrics, error) {
	meter := cfg.MeterProvider.Meter(telemetry.Scope)
	var errs []error
	duration := func(m telemetry.Metric) metric.Float64Histogram {
		h, err := meter.Float64Histogram(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help), metric.WithExplicitBucketBoundaries(m.Buckets...))
		errs = append(errs, err)
		return h
	}
	counter := func(m telemetry.Metric) metric.Int64Counter {
		c, err := meter.Int64Counter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
		errs = append(errs, err)
		return c
	}
	q := telemetry.QueueLength
	queue, err := meter.Int64Histogram(q.Name, metric.WithUnit(q.Unit), metric.WithDescription(q.Help), metric.WithExplicitBucketBoundaries(q.Buckets...))
	m := metrics{
		class: cfg.ResourceClass, queue: queue,
		waits: duration(telemetry.WaitDuration), holds: duration(telemetry.HoldDuration), operations: duration(telemetry.OperationDuration),
		grants: counter(telemetry.Granted), contentions: counter(telemetry.Contended), losses: counter(telemetry.Lost),
		expirations: counter(telemetry.Expired), deadlocks: counter(telemetry.Deadlocks),
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return m, fmt.Errorf("lockstep: Config.MeterProvider: %w", err)
	}
	return m, nil
}

// of returns the attributes of a measurement for a resource.
func (m *metrics) of(resource string, attrs ...attribute.KeyValue) metric.MeasurementOption {
	if m.class != nil {
		if class := m.class(resource); class != "" {
			attrs = append(attrs, attribute.String(telemetry.Class, class))
		}
	}
	return metric.WithAttributeSet(attribute.NewSet(attrs...))
}

func modeAttr(mode Mode) attribute.KeyValue { return attribute.String(telemetry.Mode, mode.String()) }

func outcomeAttr(outcome string) attribute.KeyValue {
	return attribute.String(telemetry.Outcome, outcome)
}

// countOperation counts a command.
func (m *metrics) countOperation(ctx context.Context, span, outcome string, took time.Duration) {
	if m.operations.Enabled(ctx) {
		m.operations.Record(ctx, took.Seconds(), metric.WithAttributeSet(attribute.NewSet(
			attribute.String(telemetry.Operation, strings.TrimPrefix(span, "lock.")), outcomeAttr(outcome))))
	}
}

// countAcquire counts the answer to a request.
func (m *metrics) countAcquire(ctx context.Context, op *rules.Acquire, outcome string, a *update.Answer) {
	if a == nil || !m.grants.Enabled(ctx) {
		return
	}
	of := m.of(op.Resource, modeAttr(Mode(op.Mode)), outcomeAttr(outcome))
	switch outcome {
	case telemetry.OutcomeAgain:
		if a.Retried { // the answer of the first attempt was lost, so it is counted now
			m.grants.Add(ctx, 1, of)
		}
	case telemetry.OutcomeGranted, telemetry.OutcomeJoined:
		m.grants.Add(ctx, 1, of)
	case telemetry.OutcomeBusy, telemetry.OutcomeFull:
		m.contentions.Add(ctx, 1, of)
	case telemetry.OutcomeQueued:
		if queuedNow(a.After, op) { // otherwise it was queued already
			m.contentions.Add(ctx, 1, of)
			m.queue.Record(ctx, a.Length, m.of(op.Resource))
		}
	case telemetry.OutcomeLost:
		m.count(ctx, m.losses, op.Resource)
	}
}

// queuedNow reports whether the write that left the document put a request into the queue.
func queuedNow(d *rules.Document, op *rules.Acquire) bool {
	i := slices.IndexFunc(d.Waiters, func(w rules.Waiter) bool { return w.SamePart(&op.Caller) })
	return i >= 0 && d.Waiters[i].Since.Equal(d.At)
}

func (m *metrics) count(ctx context.Context, counter metric.Int64Counter, resource string) {
	if counter.Enabled(ctx) {
		counter.Add(ctx, 1, m.of(resource))
	}
}

func (m *metrics) countWait(ctx context.Context, w *waitRecord) {
	if m.waits.Enabled(ctx) {
		m.waits.Record(ctx, w.until.Sub(w.since).Seconds(), m.of(w.resource, modeAttr(w.mode), outcomeAttr(w.outcome)))
	}
}

func (m *metrics) countHold(ctx context.Context, resource string, mode Mode, outcome string, stood time.Duration) {
	if !m.holds.Enabled(ctx) {
		return
	}
	m.holds.Record(ctx, stood.Seconds(), m.of(resource, modeAttr(mode), outcomeAttr(outcome)))
	if outcome == telemetry.OutcomeExpired {
		m.count(ctx, m.expirations, resource)
	}
}
