package lockcore

import (
	"cmp"
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// telemetry makes the spans. Starts and ends of waits and holds are the database server's times, so that
// their lengths compare whichever process reports them.
type telemetry struct{ tracer trace.Tracer }

func newTelemetry(tp trace.TracerProvider) telemetry {
	return telemetry{tp.Tracer("github.com/temporal-lockstep/lockstep/lockcore")}
}

// operation is the span of one command.
type operation struct{ trace.Span }

func (t telemetry) start(ctx context.Context, name string, l Lease) (context.Context, operation) {
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("lock.resource", l.Resource),
		attribute.String("lock.id", l.LockID),
		attribute.String("lock.part", l.Part),
		attribute.String("lock.order", l.Order.String()),
	))
	return ctx, operation{span}
}

func (t telemetry) batch(ctx context.Context, leases int) (context.Context, operation) {
	ctx, span := t.tracer.Start(ctx, "lock.renew", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.Int("lock.batch.size", leases),
	))
	return ctx, operation{span}
}

func (t telemetry) acquire(ctx context.Context, req *Request, res Resource) (context.Context, operation) {
	ctx, span := t.start(ctx, "lock.acquire", Lease{Resource: res.Name, LockID: req.LockID, Part: req.Part, Order: req.Order})
	span.SetAttributes(attribute.String("lock.mode", res.Mode.String()), attribute.String("lock.owner", req.Owner))
	return ctx, span
}

// end says how the command ended. That a resource is busy is an answer, not an error.
func (o operation) end(d *engine.Document, err error) {
	defer o.Span.End()
	if d != nil {
		o.SetAttributes(attribute.Int64("lock.fence", d.Fence))
	}
	var busy *BusyError
	switch {
	case err == nil:
		o.SetAttributes(attribute.String("lock.outcome", "ok"))
	case errors.As(err, &busy):
		o.SetAttributes(attribute.String("lock.outcome", "busy"), attribute.Int("lock.queue.position", busy.Position))
		if len(busy.Holders) > 0 {
			h := busy.Holders[0]
			o.SetAttributes(
				attribute.String("lock.blocked_by.id", h.LockID),
				attribute.String("lock.blocked_by.owner", h.Owner),
				attribute.Int64("lock.blocked_by.fence", h.Fence),
			)
			if link := remoteSpan(h.Trace); link.IsValid() {
				o.AddLink(trace.Link{SpanContext: link})
			}
		}
	default:
		o.SetAttributes(attribute.String("lock.outcome", outcomeOf(err)))
		o.SetStatus(codes.Error, err.Error())
	}
}

func outcomeOf(err error) string {
	switch {
	case errors.Is(err, ErrLost):
		return "lost"
	case errors.Is(err, ErrSuperseded):
		return "superseded"
	case errors.Is(err, ErrUnknownOutcome):
		return "unknown"
	}
	return "error"
}

// waited writes the span of a wait that has ended with a grant.
func (t telemetry) waited(ctx context.Context, req *Request, op *engine.Acquire, d *engine.Document) {
	p := d.Part(op.LockID, op.Part, op.Order)
	if p == nil || p.Since == nil || p.ClaimedAt == nil {
		return
	}
	end := *p.ClaimedAt
	if end.Before(*p.Since) {
		end = *p.Since
	}
	_, span := t.tracer.Start(ctx, "lock.wait", trace.WithTimestamp(*p.Since), trace.WithAttributes(
		attribute.String("lock.resource", op.Resource),
		attribute.String("lock.mode", Mode(op.Mode).String()),
		attribute.String("lock.id", op.LockID),
		attribute.String("lock.owner", req.Owner),
		attribute.Int64("lock.fence", p.Fence),
		attribute.String("lock.outcome", "granted"),
	))
	span.End(trace.WithTimestamp(end))
}

// ended writes the spans of the holds that a write ended: its caller's own, or those of others that had
// expired. Each stands in the trace of the step that held, as far as that is known.
func (t telemetry) ended(ctx context.Context, d *engine.Document) {
	told := map[string]bool{}
	write := func(entries []engine.Entry, how string) {
		for _, e := range entries {
			// A kept hold is told of by its own entry, and not by its parts'.
			if e.CreatedAt != nil && !told[e.LockID] {
				told[e.LockID] = true
				t.hold(ctx, d, &e, how)
			}
		}
	}
	write(d.Last.Released, "released")
	write(d.Last.Expired, "expired")
}

func (t telemetry) hold(ctx context.Context, d *engine.Document, e *engine.Entry, how string) {
	if remote := remoteSpan(e.Trace); remote.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, remote)
	}
	end := d.At
	if end.Before(*e.CreatedAt) {
		end = *e.CreatedAt
	}
	_, span := t.tracer.Start(ctx, "lock.hold", trace.WithTimestamp(*e.CreatedAt), trace.WithAttributes(
		attribute.String("lock.resource", d.ID),
		attribute.String("lock.mode", Mode(e.Mode).String()),
		attribute.String("lock.id", e.LockID),
		attribute.String("lock.owner", cmp.Or(e.Owner, e.LockID)),
		attribute.Int64("lock.fence", cmp.Or(e.Granted, e.Fence)),
		attribute.String("lock.outcome", how),
	))
	span.End(trace.WithTimestamp(end))
}

var traceContext propagation.TraceContext

// traceparent is ctx's span in the W3C form, empty without one.
func (t telemetry) traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	traceContext.Inject(ctx, carrier)
	return carrier["traceparent"]
}

func remoteSpan(traceparent string) trace.SpanContext {
	if traceparent == "" {
		return trace.SpanContext{}
	}
	ctx := traceContext.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent})
	return trace.SpanContextFromContext(ctx)
}
