package party

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/temporal-lockstep/lockstep/internal/engine/update"
	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// observer makes the spans and keeps the metrics. What it costs must not be noticed beside a round
// trip: attributes are made only for spans that are recorded. docs/telemetry.md lists all that it
// says.
type observer struct {
	tracer trace.Tracer
	metrics
}

func newObserver(cfg *Config) (observer, error) {
	m, err := newMetrics(cfg)
	return observer{cfg.TracerProvider.Tracer(telemetry.Scope), m}, err
}

// operation is one command, from when it is sent to its answer.
type operation struct {
	trace.Span
	ctx     context.Context
	metrics *metrics
	name    string
	began   time.Time
	// asked is set for an acquire.
	asked *asked
}

func (o *observer) begin(ctx context.Context, name string, attrs func() []attribute.KeyValue) (context.Context, operation) {
	began := time.Now()
	ctx, span := o.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(began))
	if span.IsRecording() {
		span.SetAttributes(attrs()...)
	}
	return ctx, operation{Span: span, ctx: ctx, metrics: &o.metrics, name: name, began: began}
}

// start is the span of a command that is about one lease.
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

func (o *observer) acquire(ctx context.Context, req *Request, res Resource) (context.Context, operation) {
	ctx, op := o.begin(ctx, telemetry.SpanAcquire, func() []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String(telemetry.Resource, res.Name),
			attribute.String(telemetry.Mode, res.Mode.String()),
			attribute.String(telemetry.LockID, req.LockID),
			attribute.String(telemetry.Part, req.Part),
			attribute.String(telemetry.Order, req.Order.String()),
			attribute.String(telemetry.Owner, req.Owner),
			attribute.String(telemetry.Comment, req.Comment),
		}
	})
	limited(op, int64(res.Limit))
	op.asked = &asked{resource: res.Name, lockID: req.LockID, part: req.Part, mode: res.Mode}
	return ctx, op
}

// end says how the command ended. That a resource is busy is an answer, not an error.
func (o operation) end(a *update.Answer, err error) {
	outcome := outcomeOf(a, err)
	switch {
	case err == nil && o.name == telemetry.SpanDeadlock && a.Outcome != rules.Granted: // another process was faster
		outcome = telemetry.OutcomeGone
	case err == nil && o.asked == nil:
		outcome = telemetry.OutcomeOK
	case (outcome == telemetry.OutcomeUnknown || outcome == telemetry.OutcomeError) && errors.Is(o.ctx.Err(), context.Canceled):
		outcome, err = telemetry.OutcomeCanceled, nil // as its caller wished
	}
	o.ended(a, outcome, err)
}

func (o operation) ended(a *update.Answer, outcome string, err error) {
	now := time.Now()
	o.metrics.operated(o.ctx, o.name, outcome, now.Sub(o.began))
	if o.asked != nil {
		o.metrics.acquired(o.ctx, o.asked, outcome, a)
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
		blockers(o.Span, blockersIn(busy.Holders), now)
	case errors.As(err, &deadlock):
		o.SetAttributes(attribute.String(telemetry.Cycle, deadlock.Cycle))
		o.SetStatus(codes.Error, err.Error())
	case err != nil:
		o.SetStatus(codes.Error, err.Error())
	}
	o.Span.End(trace.WithTimestamp(now))
}

// took says which hold an acquire made or joined.
func (o operation) took(d *rules.Document, lockID string, fence int64) {
	if o.IsRecording() {
		o.SetAttributes(attribute.Int64(telemetry.Fence, fence), attribute.Int64(telemetry.Hold, d.HoldFence(lockID)))
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

// traceparent is the span that ctx is in, in the W3C form: that of the step if there is one, and
// else the acquire's own.
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
