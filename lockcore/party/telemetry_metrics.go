package party

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/temporal-lockstep/lockstep/internal/engine/update"
	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// metrics are the instruments. The names of resources are not among their attributes, of which
// there must be few.
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

// of are the attributes of a measurement about a resource.
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

// operated counts a command.
func (m *metrics) operated(ctx context.Context, span, outcome string, took time.Duration) {
	if m.operations.Enabled(ctx) {
		m.operations.Record(ctx, took.Seconds(), metric.WithAttributeSet(attribute.NewSet(
			attribute.String(telemetry.Operation, strings.TrimPrefix(span, "lock.")), outcomeAttr(outcome))))
	}
}

// acquired counts the answer to a request: d is nil if there was none.
func (m *metrics) acquired(ctx context.Context, r *asked, outcome string, a *update.Answer) {
	if a == nil || !m.grants.Enabled(ctx) {
		return
	}
	switch outcome {
	case telemetry.OutcomeAgain:
		if a.Retried { // the answer that was lost is counted now
			m.grants.Add(ctx, 1, m.of(r.resource, modeAttr(r.mode), outcomeAttr(outcome)))
		}
	case telemetry.OutcomeGranted, telemetry.OutcomeJoined:
		m.grants.Add(ctx, 1, m.of(r.resource, modeAttr(r.mode), outcomeAttr(outcome)))
	case telemetry.OutcomeBusy, telemetry.OutcomeFull:
		m.contentions.Add(ctx, 1, m.of(r.resource, modeAttr(r.mode), outcomeAttr(outcome)))
	case telemetry.OutcomeQueued:
		if !r.queuedIn(a.After) { // it had queued before, and asked again
			return
		}
		m.contentions.Add(ctx, 1, m.of(r.resource, modeAttr(r.mode), outcomeAttr(outcome)))
		m.queue.Record(ctx, a.Length, m.of(r.resource))
	case telemetry.OutcomeLost:
		m.losses.Add(ctx, 1, m.of(r.resource))
	}
}

// asked is what an acquire was for.
type asked struct {
	resource, lockID, part string
	mode                   Mode
}

// queuedIn reports whether the request took its place in the queue in the write that left the
// document.
func (r *asked) queuedIn(d *rules.Document) bool {
	for i := range d.Waiters {
		if w := &d.Waiters[i]; w.LockID == r.lockID && w.Part == r.part {
			return w.Since.Equal(d.At)
		}
	}
	return false
}

func (m *metrics) lost(ctx context.Context, resource string) {
	if m.losses.Enabled(ctx) {
		m.losses.Add(ctx, 1, m.of(resource))
	}
}

func (m *metrics) deadlock(ctx context.Context, resource string) {
	if m.deadlocks.Enabled(ctx) {
		m.deadlocks.Add(ctx, 1, m.of(resource))
	}
}

func (m *metrics) waited(ctx context.Context, w *wait) {
	if m.waits.Enabled(ctx) {
		m.waits.Record(ctx, w.until.Sub(w.since).Seconds(), m.of(w.resource, modeAttr(w.mode), outcomeAttr(w.outcome)))
	}
}

func (m *metrics) held(ctx context.Context, resource string, mode Mode, outcome string, stood time.Duration) {
	if !m.holds.Enabled(ctx) {
		return
	}
	m.holds.Record(ctx, stood.Seconds(), m.of(resource, modeAttr(mode), outcomeAttr(outcome)))
	if outcome == telemetry.OutcomeExpired {
		m.expirations.Add(ctx, 1, m.of(resource))
	}
}
