package lockcore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// Spans of waits and holds are written, from the document, by the process that ends the wait or hold.
// They start and end at times of the database server's clock, so that their durations can be compared.

// mostBlockers bounds the holds that a span names and links to.
const mostBlockers = 16

// blockingHold is a hold that was in the way of a request.
type blockingHold struct {
	lockID, owner string
	fence         int64
	trace         string
}

// blockersIn returns the first of holders, each lock ID once: its hold if there is one, because a
// draining part has fewer facts.
func blockersIn(holders []Holder) (found []blockingHold) {
	for _, draining := range []bool{false, true} {
		for _, h := range holders {
			known := slices.ContainsFunc(found, func(f blockingHold) bool { return f.lockID == h.LockID })
			if (h.State == StateDraining) == draining && !known && len(found) < mostBlockers {
				found = append(found, blockingHold{h.LockID, h.Owner, h.FirstFence, h.Trace})
			}
		}
	}
	return found
}

// addBlockers adds holders to the blockers that are known.
func addBlockers(behind []blockingHold, holders []Holder) []blockingHold {
	for _, b := range blockersIn(holders) {
		known := slices.ContainsFunc(behind, func(k blockingHold) bool { return k.lockID == b.lockID && k.fence == b.fence })
		if !known && len(behind) < mostBlockers {
			behind = append(behind, b)
		}
	}
	return behind
}

func endedBlocker(e *rules.EndedHold) []blockingHold {
	if e == nil {
		return nil
	}
	return []blockingHold{{e.LockID, cmp.Or(e.Owner, e.LockID), e.Fence, e.Trace}}
}

// nameBlockers records blockers on a span: each by an event at that time and a link to its step, and the
// last one by attributes too.
func nameBlockers(span trace.Span, found []blockingHold, at time.Time) {
	for i, b := range found {
		attrs := []attribute.KeyValue{attribute.String(telemetry.BlockedByID, b.lockID)}
		if b.owner != "" { // a draining part has no owner
			attrs = append(attrs, attribute.String(telemetry.BlockedByOwner, b.owner))
		}
		if b.fence != 0 { // a claim has none yet
			attrs = append(attrs, attribute.Int64(telemetry.BlockedByFence, b.fence))
		}
		if link := remoteSpan(b.trace); link.IsValid() {
			attrs = append(attrs,
				attribute.String(telemetry.BlockedByTrace, link.TraceID().String()),
				attribute.String(telemetry.BlockedBySpan, link.SpanID().String()))
			span.AddLink(trace.Link{SpanContext: link, Attributes: attrs})
		}
		span.AddEvent(telemetry.EventBlockedBy, trace.WithTimestamp(at), trace.WithAttributes(attrs...))
		if i == len(found)-1 {
			span.SetAttributes(attrs...)
		}
	}
}

// waitRecord is a wait that has ended.
type waitRecord struct {
	resource, lockID, part, owner string
	order, limit, priority        int64
	mode                          Mode
	member                        string
	since, until                  time.Time
	fence                         int64
	outcome                       string
	// before lists the blockers at the time it queued. after is the hold whose end let it in, or lists
	// the blockers at the time it was withdrawn.
	before, after []blockingHold
}

func (o *observer) recordWait(ctx context.Context, w *waitRecord) {
	if w.until.Before(w.since) { // the database's clock ran backwards
		w.until = w.since
	}
	o.metrics.countWait(ctx, w)
	_, span := o.tracer.Start(ctx, telemetry.SpanWait, trace.WithTimestamp(w.since))
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(
		attribute.String(telemetry.Resource, w.resource),
		modeAttr(w.mode),
		attribute.String(telemetry.LockID, w.lockID),
		attribute.String(telemetry.Part, w.part),
		attribute.String(telemetry.Order, orderOf(w.order).String()),
		attribute.String(telemetry.Owner, w.owner),
		attribute.String(telemetry.Outcome, w.outcome),
	)
	number(span, telemetry.Limit, w.limit)
	number(span, telemetry.Priority, w.priority)
	optional(span, telemetry.Member, w.member)
	if w.fence != 0 {
		span.SetAttributes(attribute.Int64(telemetry.Fence, w.fence))
	}
	before := slices.DeleteFunc(slices.Clone(w.before), func(b blockingHold) bool {
		return slices.ContainsFunc(w.after, func(a blockingHold) bool { return a.lockID == b.lockID && (a.fence == b.fence || b.fence == 0) })
	})
	before = before[:min(len(before), mostBlockers-min(len(w.after), mostBlockers))]
	nameBlockers(span, before, w.since)
	nameBlockers(span, w.after, w.until)
	span.End(trace.WithTimestamp(w.until))
}

// recordGrant writes the span of a wait that ended with a grant, which the request has now confirmed.
func (o *observer) recordGrant(ctx context.Context, req *StepRequest, op *rules.Acquire, d *rules.Document, before []blockingHold) {
	p := d.Part(op.Caller)
	if p == nil || p.Since == nil || p.ClaimedAt == nil {
		return
	}
	o.recordWait(ctx, &waitRecord{
		resource: op.Resource, lockID: op.LockID, part: op.Part, owner: req.Owner, order: op.Order, limit: op.Limit, mode: Mode(op.Mode),
		priority: op.Priority, member: p.Member,
		since: *p.Since, until: *p.ClaimedAt, fence: p.Fence, outcome: telemetry.OutcomeGranted,
		before: before, after: lastBlocker(d, p),
	})
}

// recordHoldGrants writes the spans of waits that a write ended by granting the holds.
func (o *observer) recordHoldGrants(ctx context.Context, a *update.Answer) {
	for i := range a.Holds {
		h := &a.Holds[i]
		of := ctx
		if remote := remoteSpan(h.Trace); remote.IsValid() {
			of = trace.ContextWithRemoteSpanContext(ctx, remote)
		}
		o.grants.Add(of, 1, o.of(a.After.ID, modeAttr(Mode(h.Mode)), outcomeAttr(telemetry.OutcomeGranted)))
		o.recordWait(of, &waitRecord{
			resource: a.After.ID, lockID: h.LockID, part: h.Part, owner: cmp.Or(h.Owner, h.LockID), order: h.Order, limit: h.Limit, mode: Mode(h.Mode),
			priority: h.Priority, member: h.Member,
			since: *h.Since, until: *h.ClaimedAt, fence: h.Fence, outcome: telemetry.OutcomeGranted, after: lastBlocker(a.After, h),
		})
	}
}

// lastBlocker returns the hold whose end let a request in. If no hold ended at that time, it returns the
// draining part or the unconfirmed claim that ended last. A claim has no fence.
func lastBlocker(d *rules.Document, p *rules.Entry) []blockingHold {
	if p.Predecessor != nil {
		return endedBlocker(p.Predecessor)
	}
	var last *rules.Entry
	for i := range d.Entries {
		e := &d.Entries[i]
		if (e.State == rules.StateClaimed || e.State == rules.StateDraining) && e.LockID != p.LockID && e.ExpiresAt.After(*p.Since) && !e.ExpiresAt.After(*p.ClaimedAt) &&
			(last == nil || e.ExpiresAt.After(last.ExpiresAt)) {
			last = e
		}
	}
	switch {
	case last == nil:
		return nil
	case last.State == rules.StateClaimed:
		return []blockingHold{{lockID: last.LockID, owner: cmp.Or(last.Owner, last.LockID)}}
	}
	return []blockingHold{{last.LockID, last.Owner, last.Fence, last.Trace}}
}

// recordEnded writes the spans that a write ended: of withdrawn waits, and of holds of its caller and of
// others.
func (o *observer) recordEnded(ctx context.Context, a *update.Answer, why ending) {
	d := a.After
	for _, g := range a.Withdrawn(d.At) {
		o.recordWithdrawn(ctx, d, &g, why)
	}
	told := map[string]bool{}
	write := func(entries []rules.Entry, why ending) {
		for i := range entries {
			// The span of a kept hold is made from its own entries, not from its parts.
			if e := &entries[i]; e.CreatedAt != nil && !told[e.LockID] {
				told[e.LockID] = true
				o.recordHold(ctx, a, e, why)
			}
		}
	}
	write(a.HoldsEnded(d), why)
	if len(a.Expired) > 0 {
		write(a.Expired, ending{outcome: telemetry.OutcomeExpired, reason: why.reason, by: roomGivenTo(d, why.by)})
	}
}

// ending is the reason for which a wait or a hold ends, and who ended it, unless its own party released
// it.
type ending struct {
	outcome, reason string
	// by is the lock ID of the operation.
	by string
	// cycle describes the deadlock whose victim is owner.
	cycle, owner string
}

// on records the reason as attributes of a span.
func (e *ending) on(span trace.Span) {
	optional(span, telemetry.Reason, e.reason)
	optional(span, telemetry.Owner, e.owner)
	optional(span, telemetry.Cycle, e.cycle)
}

// roomGivenTo returns the lock ID for which expired holds were evicted: the waiter that was granted a claim
// or a hold in that write, or the lock ID that requested the resource.
func roomGivenTo(d *rules.Document, by string) string {
	for i := range d.Entries {
		e := &d.Entries[i]
		if (e.State == rules.StateClaimed || e.State == rules.StateKept) && e.ClaimedAt != nil && e.ClaimedAt.Equal(d.At) {
			return e.LockID
		}
	}
	return by
}

func (o *observer) recordWithdrawn(ctx context.Context, d *rules.Document, g *rules.Entry, why ending) {
	if g.Since == nil { // a damaged document: the length of the wait is unknown
		return
	}
	w := waitRecord{
		resource: d.ID, lockID: g.LockID, part: g.Part, owner: cmp.Or(g.Owner, g.LockID), order: g.Order, mode: Mode(g.Mode),
		priority: g.Priority, member: g.Member,
		since: *g.Since, until: d.At, outcome: telemetry.OutcomeLeft,
	}
	if w.mode == ModeShared {
		w.limit = g.Limit
	}
	switch {
	case why.cycle != "":
		w.outcome = telemetry.OutcomeDeadlock
	case g.ClaimedAt != nil:
		w.outcome, w.until, w.after = telemetry.OutcomeUnclaimed, *g.ClaimedAt, endedBlocker(g.Predecessor)
	}
	if g.ClaimedAt == nil {
		found, _, _ := blockingHolders(d, rules.Party{LockID: g.LockID, Mode: g.Mode, Limit: g.Limit, Within: g.Within, Member: g.Member})
		w.after = blockersIn(found)
	}
	o.recordWait(ctx, &w)
}

func (o *observer) recordHold(ctx context.Context, a *update.Answer, e *rules.Entry, why ending) {
	d := a.After
	outcome, end := cmp.Or(why.outcome, telemetry.OutcomeReleased), d.At
	if end.Before(*e.CreatedAt) {
		end = *e.CreatedAt
	}
	o.metrics.countHold(ctx, d.ID, Mode(e.Mode), outcome, end.Sub(*e.CreatedAt))
	// In the trace of the step that held, as far as that is known.
	if remote := remoteSpan(e.Trace); remote.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, remote)
	}
	_, span := o.tracer.Start(ctx, telemetry.SpanHold, trace.WithTimestamp(*e.CreatedAt))
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(
		attribute.String(telemetry.Resource, d.ID),
		modeAttr(Mode(e.Mode)),
		attribute.String(telemetry.LockID, e.LockID),
		attribute.String(telemetry.Owner, cmp.Or(e.Owner, e.LockID)),
		attribute.Int64(telemetry.Fence, e.FirstFence),
		attribute.String(telemetry.Host, e.Host),
		attribute.String(telemetry.Outcome, outcome),
	)
	number(span, telemetry.Limit, e.Limit)
	optional(span, telemetry.Member, e.Member)
	optional(span, telemetry.Comment, e.Comment)
	optional(span, telemetry.Reason, why.reason)
	if outcome == telemetry.OutcomeExpired {
		optional(span, telemetry.EndedBy, why.by)
		span.AddEvent(telemetry.EventExpired, trace.WithTimestamp(e.ExpiresAt))
	}
	if until := drainsUntil(d, e.LockID); until.After(end) {
		span.AddEvent(telemetry.EventDrained, trace.WithTimestamp(until))
	}
	for i := range d.Entries {
		if c := &d.Entries[i]; c.State == rules.StateClaimed && c.ClaimedAt != nil && c.ClaimedAt.Equal(d.At) {
			grantedTo(span, c, end)
		}
	}
	for i := range a.Holds {
		grantedTo(span, &a.Holds[i], end)
	}
	span.End(trace.WithTimestamp(end))
}

// grantedTo records on the span of a hold a waiter that its end let in.
func grantedTo(span trace.Span, e *rules.Entry, at time.Time) {
	span.AddEvent(telemetry.EventGrantedTo, trace.WithTimestamp(at), trace.WithAttributes(
		attribute.String(telemetry.LockID, e.LockID), attribute.String(telemetry.Part, e.Part)))
}

// drainsUntil returns the time until which parts of a lock ID keep others out although its hold has
// ended. It is zero if there are none.
func drainsUntil(d *rules.Document, lockID string) (until time.Time) {
	for i := range d.Entries {
		if e := &d.Entries[i]; e.State == rules.StateDraining && e.LockID == lockID && e.ExpiresAt.After(until) {
			until = e.ExpiresAt
		}
	}
	return until
}

// addLostEvent records the loss of a lock on the span of its holder, such as a step.
func addLostEvent(ctx context.Context, lost *LostError) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	attrs := []attribute.KeyValue{
		attribute.String(telemetry.Resource, lost.Resource),
		attribute.String(telemetry.LockID, lost.LockID),
		attribute.String(telemetry.Part, lost.Part),
		attribute.String(telemetry.Reason, lost.Reason),
	}
	if lost.By != "" {
		attrs = append(attrs, attribute.String(telemetry.EndedBy, lost.By))
	}
	span.AddEvent(telemetry.EventLost, trace.WithAttributes(attrs...))
}

func number(span trace.Span, key string, value int64) {
	if value != 0 && span.IsRecording() {
		span.SetAttributes(attribute.Int64(key, value))
	}
}

func optional(span trace.Span, key, value string) {
	if value != "" {
		span.SetAttributes(attribute.String(key, value))
	}
}
