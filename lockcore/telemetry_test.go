package lockcore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestSpans_WaitAndHold_AreLinkedBothWays(t *testing.T) {
	t.Parallel()
	o := observe(t, lockcore.Config{})
	r := lockcore.Exclusive("account/1")
	holding := o.enters(t, o.Steps, asks("a", 1, r))
	o.clock.Advance(time.Second)
	o.queues(t, o.other, asks("b", 1, r))
	o.clock.Advance(4 * time.Second)
	require.NoError(t, o.Release(t.Context(), lockcore.Release{LockID: "a", Resources: []string{"account/1"}, Leaving: new("1/Debit"), Order: lockcore.Order{Schedule: 1, Attempt: 1}}))
	o.clock.Advance(time.Second) // until it is taken up
	waiting := o.enters(t, o.other, asks("b", 2, r))

	wait, hold := o.only(t, telemetry.SpanWait, "b"), o.only(t, telemetry.SpanHold, "a")
	require.Equal(t, start.Add(time.Second), wait.StartTime())
	require.Equal(t, start.Add(5*time.Second), wait.EndTime(), "until it was granted, not until it was taken up")
	require.Equal(t, waiting.TraceID(), wait.SpanContext().TraceID(), "under the step that waited")
	require.Equal(t, telemetry.OutcomeGranted, text(wait.Attributes(), telemetry.Outcome))
	require.Equal(t, start, hold.StartTime())
	require.Equal(t, start.Add(5*time.Second), hold.EndTime())
	require.Equal(t, holding.SpanID(), hold.Parent().SpanID(), "under the step that held")
	require.Equal(t, telemetry.OutcomeReleased, text(hold.Attributes(), telemetry.Outcome))

	named := eventsNamed(wait, telemetry.EventBlockedBy)
	require.Len(t, named, 1)
	for _, attrs := range [][]attribute.KeyValue{wait.Attributes(), named[0].Attributes} {
		require.Equal(t, "a", text(attrs, telemetry.BlockedByID))
		require.Equal(t, "owner-a", text(attrs, telemetry.BlockedByOwner))
		require.Equal(t, value(hold.Attributes(), telemetry.Fence).AsInt64(), value(attrs, telemetry.BlockedByFence).AsInt64())
		require.Equal(t, holding.TraceID().String(), text(attrs, telemetry.BlockedByTrace))
		require.Equal(t, holding.SpanID().String(), text(attrs, telemetry.BlockedBySpan))
	}
	require.Len(t, wait.Links(), 1)
	require.Equal(t, holding.SpanID(), wait.Links()[0].SpanContext.SpanID())
	next := eventsNamed(hold, telemetry.EventGrantedTo)
	require.Len(t, next, 1)
	require.Equal(t, "b", text(next[0].Attributes, telemetry.LockID))
}

func TestReleaseCommitted_HoldWasLost_IsOnTheSpanOnce(t *testing.T) {
	t.Parallel()
	o := observe(t, lockcore.Config{})
	saga := asks("saga", 1, lockcore.Exclusive("r"))
	saga.Run = "run"
	leases, err := o.TryEnter(t.Context(), saga)
	require.NoError(t, err)
	require.NoError(t, o.Leave(t.Context(), leases...))
	o.clock.Advance(2 * time.Hour)
	_, err = o.other.TryEnter(t.Context(), asks("other", 1, lockcore.Exclusive("r")))
	require.NoError(t, err)
	commits := o.step(t, "commit", func(ctx context.Context) {
		for range 2 { // the second one finds what the first one has recorded
			missed, err := o.ReleaseCommitted(ctx, lockcore.Release{LockID: "saga", Run: "run", Resources: []string{"r"}, Order: lockcore.LastAttempt(1)})
			require.NoError(t, err)
			require.Len(t, missed, 1)
			o.clock.Advance(time.Second)
		}
	})
	var found []sdktrace.Event
	for _, s := range o.spans.Ended() {
		if s.SpanContext().SpanID() == commits.SpanID() {
			found = append(found, eventsNamed(s, telemetry.EventLost)...)
		}
	}
	require.Len(t, found, 1)
	require.Equal(t, "other", text(found[0].Attributes, telemetry.EndedBy))
	counted := o.measured(t)[telemetry.Lost.Name].Data.(metricdata.Sum[int64]).DataPoints
	require.Len(t, counted, 1)
	require.EqualValues(t, 1, counted[0].Value)
}

// A step that enters with a new fence, as compensations do, does not give its hold another name.
func TestHoldSpan_NewFence_KeepsItsFirstFence(t *testing.T) {
	t.Parallel()
	o := observe(t, lockcore.Config{})
	r := lockcore.Exclusive("r")
	o.enters(t, o.Steps, asks("a", 1, r))
	undo := asks("a", 2, r)
	undo.Part, undo.NewFence = "2/Undo", true
	leases, err := o.Enter(t.Context(), undo)
	require.NoError(t, err)
	o.queues(t, o.other, asks("b", 1, r))
	require.NoError(t, o.Release(t.Context(), lockcore.Release{LockID: "a", Resources: []string{"r"}, Order: lockcore.LastAttempt(2)}))
	o.clock.Advance(time.Minute) // its parts drain
	o.enters(t, o.other, asks("b", 2, r))

	wait := o.only(t, telemetry.SpanWait, "b")
	require.Equal(t, "a", text(wait.Attributes(), telemetry.BlockedByID), "whose parts drained until b was let in")
	drained := eventsNamed(o.only(t, telemetry.SpanHold, "a"), telemetry.EventDrained)
	require.Len(t, drained, 1)
	require.Equal(t, start.Add(30*time.Second), drained[0].Time)
	began := value(o.only(t, telemetry.SpanHold, "a").Attributes(), telemetry.Fence).AsInt64()
	require.Less(t, began, leases[0].Fence)
	for _, s := range o.spans.Ended() {
		switch {
		case s.Name() == telemetry.SpanAcquire && text(s.Attributes(), telemetry.LockID) == "a":
			require.Equal(t, began, value(s.Attributes(), telemetry.Hold).AsInt64())
		case s.Name() == telemetry.SpanAcquire && text(s.Attributes(), telemetry.Outcome) == telemetry.OutcomeQueued:
			require.Equal(t, began, value(s.Attributes(), telemetry.BlockedByFence).AsInt64())
		}
	}
}

// A request that waits in its process observes more of the queue than a request that the next schedule of a step repeats.
func TestWaitSpan_LocalWait_NamesAllBlockers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := observe(t, lockcore.Config{})
		r := lockcore.Exclusive("r")
		o.enters(t, o.Steps, asks("a", 1, r))
		o.queues(t, o.Steps, asks("b", 1, r))
		done := make(chan error, 1)
		go func() {
			s, err := o.other.Acquire(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "c"}, Resources: []lockcore.Resource{r}})
			if err == nil {
				err = s.Release(t.Context())
			}
			done <- err
		}()
		o.until(t, "c waits", func() bool { return o.waiting(t, "r") == 2 })
		o.clock.Advance(time.Second)
		require.NoError(t, o.Release(t.Context(), lockcore.Release{LockID: "a", Resources: []string{"r"}, Order: lockcore.LastAttempt(1), Reason: "its workflow is closed"}))
		o.clock.Advance(time.Minute) // the part of a drains
		o.enters(t, o.Steps, asks("b", 2, r))
		require.NoError(t, o.Release(t.Context(), lockcore.Release{LockID: "b", Resources: []string{"r"}, Leaving: new("1/Debit"), Order: lockcore.Order{Schedule: 2, Attempt: 1}}))
		require.NoError(t, <-done)
		var ids []string
		for _, e := range eventsNamed(o.only(t, telemetry.SpanWait, "c"), telemetry.EventBlockedBy) {
			ids = append(ids, text(e.Attributes, telemetry.BlockedByID))
		}
		require.Equal(t, []string{"a", "b"}, ids)
		orphan := o.only(t, telemetry.SpanHold, "a")
		require.Equal(t, telemetry.OutcomeOrphaned, text(orphan.Attributes(), telemetry.Outcome))
		require.Equal(t, "its workflow is closed", text(orphan.Attributes(), telemetry.Reason))
	})
}

func TestHoldSpan_DeadHolder_IsWrittenByTheNextHolder(t *testing.T) {
	t.Parallel()
	o := observe(t, lockcore.Config{TTL: 30 * time.Second, HoldTTL: time.Minute})
	r := lockcore.Exclusive("r")
	holding := o.enters(t, o.Steps, asks("a", 1, r))
	o.clock.Advance(10 * time.Second)
	o.queues(t, o.other, asks("b", 1, r))
	o.clock.Advance(70 * time.Second)
	o.enters(t, o.other, asks("b", 2, r)) // nothing was heard of a

	hold := o.only(t, telemetry.SpanHold, "a")
	require.Equal(t, holding.TraceID(), hold.SpanContext().TraceID(), "in the trace of the step that held")
	require.Equal(t, telemetry.OutcomeExpired, text(hold.Attributes(), telemetry.Outcome))
	require.Equal(t, "b", text(hold.Attributes(), telemetry.EndedBy))
	require.Equal(t, start.Add(80*time.Second), hold.EndTime())
	expired := eventsNamed(hold, telemetry.EventExpired)
	require.Len(t, expired, 1)
	require.Equal(t, start.Add(time.Minute), expired[0].Time)

	wait := o.only(t, telemetry.SpanWait, "b")
	require.Equal(t, value(hold.Attributes(), telemetry.Fence).AsInt64(), value(wait.Attributes(), telemetry.BlockedByFence).AsInt64())
	require.Equal(t, "a", text(wait.Attributes(), telemetry.BlockedByID))
	require.Equal(t, holding.SpanID().String(), text(wait.Attributes(), telemetry.BlockedBySpan))
}

func TestWaitSpan_GivenUp_IsWritten(t *testing.T) {
	t.Parallel()
	o := observe(t, lockcore.Config{})
	r := lockcore.Exclusive("r")
	o.enters(t, o.Steps, asks("a", 1, r))
	o.queues(t, o.other, asks("left", 1, r))
	o.queues(t, o.other, asks("unclaimed", 1, r))
	o.clock.Advance(3 * time.Second)
	lease := func(id string) lockcore.Lease {
		return lockcore.Lease{Resource: "r", LockID: id, Part: "1/Debit", Order: lockcore.Order{Schedule: 1, Attempt: 1}}
	}
	require.NoError(t, o.other.Leave(t.Context(), lease("left")))
	require.NoError(t, o.Release(t.Context(), lockcore.Release{LockID: "a", Resources: []string{"r"}, Leaving: new("1/Debit"), Order: lockcore.Order{Schedule: 1, Attempt: 1}}))
	o.clock.Advance(time.Second)
	require.NoError(t, o.other.Leave(t.Context(), lease("unclaimed")))

	left := o.only(t, telemetry.SpanWait, "left")
	require.Equal(t, telemetry.OutcomeLeft, text(left.Attributes(), telemetry.Outcome))
	require.Equal(t, 3*time.Second, left.EndTime().Sub(left.StartTime()))
	require.Equal(t, "a", text(left.Attributes(), telemetry.BlockedByID))
	unclaimed := o.only(t, telemetry.SpanWait, "unclaimed")
	require.Equal(t, telemetry.OutcomeUnclaimed, text(unclaimed.Attributes(), telemetry.Outcome))
	require.Equal(t, 3*time.Second, unclaimed.EndTime().Sub(unclaimed.StartTime()))
	require.Equal(t, "a", text(unclaimed.Attributes(), telemetry.BlockedByID))
}

// On the real database, whose answers leave out what no request is about.
func TestWaitSpan_GivenUpOnMongoDB_NamesTheBlocker(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	l := setup(t, lockcore.Config{TracerProvider: provider})
	o := &observed{Steps: l.Steps, tracer: provider.Tracer("test"), spans: spans}
	r := lockcore.Exclusive("r")
	holding := o.enters(t, l.Steps, asks("a", 1, r))
	o.queues(t, l.Steps, asks("b", 1, r))
	o.queues(t, l.Steps, asks("c", 1, r))
	require.NoError(t, l.Leave(t.Context(), lockcore.Lease{Resource: "r", LockID: "b", Part: "1/Debit", Order: lockcore.Order{Schedule: 1, Attempt: 1}}))
	require.NoError(t, l.Release(t.Context(), lockcore.Release{LockID: "c", Resources: []string{"r"}, Order: lockcore.LastAttempt(1)}))
	for _, id := range []string{"b", "c"} {
		wait := o.only(t, telemetry.SpanWait, id)
		require.Equal(t, telemetry.OutcomeLeft, text(wait.Attributes(), telemetry.Outcome))
		require.Equal(t, "a", text(wait.Attributes(), telemetry.BlockedByID))
		require.Equal(t, holding.SpanID().String(), text(wait.Attributes(), telemetry.BlockedBySpan))
	}
}

// The next attempt of a step supersedes the killed attempt, which may still trust its lease. The wait names the hold as its
// blocker, not the draining part.
func TestWaitSpan_RetriedStep_IsNamedByItsHold(t *testing.T) {
	t.Parallel()
	o := observe(t, lockcore.Config{})
	r := lockcore.Exclusive("r")
	first := asks("a", 1, r)
	o.enters(t, o.Steps, first)
	retry := first
	retry.Order.Attempt = 2
	second := o.enters(t, o.Steps, retry)
	o.queues(t, o.other, asks("b", 1, r))
	require.NoError(t, o.other.Leave(t.Context(), lockcore.Lease{Resource: "r", LockID: "b", Part: "1/Debit", Order: lockcore.Order{Schedule: 1, Attempt: 1}}))
	require.NoError(t, o.Release(t.Context(), lockcore.Release{LockID: "a", Resources: []string{"r"}, Order: lockcore.LastAttempt(1)}))
	wait, hold := o.only(t, telemetry.SpanWait, "b"), o.only(t, telemetry.SpanHold, "a")
	require.Equal(t, "owner-a", text(wait.Attributes(), telemetry.BlockedByOwner))
	require.Equal(t, value(hold.Attributes(), telemetry.Fence), value(wait.Attributes(), telemetry.BlockedByFence))
	require.Equal(t, second.SpanID().String(), text(wait.Attributes(), telemetry.BlockedBySpan))
	require.Len(t, eventsNamed(wait, telemetry.EventBlockedBy), 1)
}

// A semaphore is full of others who share: they are in the way.
func TestWaitSpan_Semaphore_NamesTheHolder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := observe(t, lockcore.Config{})
		r := lockcore.SharedLimit("r", 1)
		o.enters(t, o.Steps, asks("a", 1, r))
		_, err := o.other.Acquire(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "b"}, Resources: []lockcore.Resource{r}, MaxWait: time.Millisecond})
		require.ErrorIs(t, err, lockcore.ErrBusy)
		require.Equal(t, "a", text(o.only(t, telemetry.SpanWait, "b").Attributes(), telemetry.BlockedByID))
	})
}

// The database's clock can run backwards; a length is never negative.
func TestSpans_ClockRunsBackwards_AreNotNegative(t *testing.T) {
	t.Parallel()
	o := observe(t, lockcore.Config{})
	r := lockcore.Exclusive("r")
	o.enters(t, o.Steps, asks("a", 1, r))
	o.queues(t, o.other, asks("b", 1, r))
	o.clock.Advance(-time.Second)
	require.NoError(t, o.Release(t.Context(), lockcore.Release{LockID: "a", Resources: []string{"r"}, Leaving: new("1/Debit"), Order: lockcore.Order{Schedule: 1, Attempt: 1}}))
	o.enters(t, o.other, asks("b", 2, r))
	for _, s := range []sdktrace.ReadOnlySpan{o.only(t, telemetry.SpanWait, "b"), o.only(t, telemetry.SpanHold, "a")} {
		require.Equal(t, s.StartTime(), s.EndTime(), s.Name())
	}
}

func TestSpans_ManyBlockers_NameSixteen(t *testing.T) {
	t.Parallel()
	o := observe(t, lockcore.Config{})
	for i := range 20 {
		o.enters(t, o.Steps, asks(fmt.Sprintf("reader%d", i), 1, lockcore.Shared("r")))
	}
	o.queues(t, o.other, asks("writer", 1, lockcore.Exclusive("r")))
	require.Len(t, eventsNamed(o.only(t, telemetry.SpanAcquire, "writer"), telemetry.EventBlockedBy), 16)
	require.NoError(t, o.other.Leave(t.Context(), lockcore.Lease{Resource: "r", LockID: "writer", Part: "1/Debit", Order: lockcore.Order{Schedule: 1, Attempt: 1}}))
	require.Len(t, eventsNamed(o.only(t, telemetry.SpanWait, "writer"), telemetry.EventBlockedBy), 16)
}

// Every operation may be repeated; a wait is recorded once.
func TestWaitSpan_RepeatedRequest_IsWrittenOnce(t *testing.T) {
	t.Parallel()
	o := observe(t, lockcore.Config{})
	r := lockcore.Exclusive("r")
	o.enters(t, o.Steps, asks("a", 1, r))
	o.queues(t, o.other, asks("b", 1, r))
	require.NoError(t, o.Release(t.Context(), lockcore.Release{LockID: "a", Resources: []string{"r"}, Leaving: new("1/Debit"), Order: lockcore.Order{Schedule: 1, Attempt: 1}}))
	for range 3 {
		o.enters(t, o.other, asks("b", 2, r))
	}
	o.only(t, telemetry.SpanWait, "b")
}

func TestDeadlockSpan_Victim_IsNamed(t *testing.T) {
	t.Parallel()
	o := observe(t, lockcore.Config{})
	o.deadlocked(t)
	wait := o.only(t, telemetry.SpanWait, "young")
	require.Equal(t, telemetry.OutcomeDeadlock, text(wait.Attributes(), telemetry.Outcome))
	require.Equal(t, 2*time.Second, wait.EndTime().Sub(wait.StartTime()))
	require.Equal(t, "old", text(wait.Attributes(), telemetry.BlockedByID))
	deadlock := o.only(t, telemetry.SpanDeadlock, "young")
	require.Equal(t, "owner-old waits for owner-young on y, owner-young waits for owner-old on x", text(deadlock.Attributes(), telemetry.Cycle))
}

func TestHoldSpan_ForcedRelease_IsRevoked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := observe(t, lockcore.Config{TTL: 300 * time.Millisecond})
		var session *lockcore.Session
		step := o.step(t, "step", func(ctx context.Context) {
			var err error
			session, err = o.TryAcquire(ctx, lockcore.StepRequest{Caller: lockcore.Caller{LockID: "a"}, Resources: []lockcore.Resource{lockcore.Exclusive("r")}})
			require.NoError(t, err)
			revoke(t, o.other, "a", "the operator said so", "r")
			_, err = o.Renew(ctx, session.Leases()...)
			require.ErrorIs(t, err, lockcore.ErrLost)
			<-session.Context().Done() // the keeper finds out too
		})
		hold := o.only(t, telemetry.SpanHold, "a")
		require.Equal(t, step.TraceID(), hold.SpanContext().TraceID())
		require.Equal(t, telemetry.OutcomeRevoked, text(hold.Attributes(), telemetry.Outcome))
		require.Equal(t, "the operator said so", text(hold.Attributes(), telemetry.Reason))
	})
}

// The claim of b is slept through, and c is let in by a write that ends nothing: what it waited for last is the claim, which has no fence.
func TestWaitSpan_LapsedClaim_IsNamed(t *testing.T) {
	t.Parallel()
	o := observe(t, lockcore.Config{})
	r := lockcore.Exclusive("r")
	o.enters(t, o.Steps, asks("a", 1, r))
	o.queues(t, o.Steps, asks("b", 1, r))
	o.queues(t, o.other, asks("c", 1, r))
	require.NoError(t, o.Release(t.Context(), lockcore.Release{LockID: "a", Resources: []string{"r"}, Leaving: new("1/Debit"), Order: lockcore.Order{Schedule: 1, Attempt: 1}}))
	o.clock.Advance(40 * time.Second) // the claim stood for 30
	o.enters(t, o.other, asks("c", 2, r))
	wait := o.only(t, telemetry.SpanWait, "c").Attributes()
	require.Equal(t, "b", text(wait, telemetry.BlockedByID))
	require.Equal(t, "owner-b", text(wait, telemetry.BlockedByOwner))
	require.Zero(t, value(wait, telemetry.BlockedByFence), "it never held")
	// The sleeper was in c's way, and c in its.
	o.queues(t, o.Steps, asks("b", 2, r))
	require.NoError(t, o.Release(t.Context(), lockcore.Release{LockID: "c", Resources: []string{"r"}, Leaving: new("1/Debit"), Order: lockcore.Order{Schedule: 2, Attempt: 1}}))
	o.enters(t, o.Steps, asks("b", 3, r))
	slept := o.only(t, telemetry.SpanWait, "b")
	require.Equal(t, start, slept.StartTime())
	require.Equal(t, "c", text(slept.Attributes(), telemetry.BlockedByID))
}

// TestMetrics_ContendedResource_AreCounted: two that wait, one of whom gives up, behind a holder that dies.
func TestMetrics_ContendedResource_AreCounted(t *testing.T) {
	t.Parallel()
	classes := func(name string) string { class, _, _ := strings.Cut(name, "/"); return class }
	o := observe(t, lockcore.Config{HoldTTL: time.Minute, ResourceClass: classes})
	r := lockcore.Exclusive("account/1")
	o.enters(t, o.Steps, asks("a", 1, r))
	o.queues(t, o.other, asks("b", 1, r))
	o.clock.Advance(time.Second)
	o.queues(t, o.other, asks("b", 1, r)) // asks again, and is not counted again
	o.queues(t, o.other, asks("c", 1, r))
	_, err := o.TryEnter(t.Context(), asks("d", 1, r))
	require.ErrorIs(t, err, lockcore.ErrBusy)
	o.clock.Advance(8 * time.Second)
	require.NoError(t, o.other.Leave(t.Context(), lockcore.Lease{Resource: r.Name, LockID: "c", Part: "1/Debit", Order: lockcore.Order{Schedule: 1, Attempt: 1}}))
	o.clock.Advance(60 * time.Second)
	o.enters(t, o.other, asks("b", 2, r))

	class, mode := attribute.String(telemetry.Class, "account"), attribute.String(telemetry.Mode, "exclusive")
	with := func(outcome string) attribute.Set {
		return attribute.NewSet(class, mode, attribute.String(telemetry.Outcome, outcome))
	}
	found := o.measured(t)
	counted := func(m telemetry.Metric, of attribute.Set) int64 {
		for _, p := range found[m.Name].Data.(metricdata.Sum[int64]).DataPoints {
			if p.Attributes.Equals(&of) {
				return p.Value
			}
		}
		return 0
	}
	require.EqualValues(t, 2, counted(telemetry.Granted, with(telemetry.OutcomeGranted)))
	require.EqualValues(t, 2, counted(telemetry.Contended, with(telemetry.OutcomeQueued)))
	require.EqualValues(t, 1, counted(telemetry.Contended, with(telemetry.OutcomeBusy)))
	require.EqualValues(t, 1, counted(telemetry.Expired, attribute.NewSet(class)))
	sums := map[attribute.Set]float64{}
	for _, m := range []telemetry.Metric{telemetry.WaitDuration, telemetry.HoldDuration} {
		for _, p := range found[m.Name].Data.(metricdata.Histogram[float64]).DataPoints {
			sums[p.Attributes] += p.Sum
		}
	}
	require.Equal(t, map[attribute.Set]float64{with(telemetry.OutcomeGranted): 69, with(telemetry.OutcomeLeft): 8, with(telemetry.OutcomeExpired): 69}, sums)
	queue := found[telemetry.QueueLength.Name].Data.(metricdata.Histogram[int64]).DataPoints
	require.Len(t, queue, 1)
	require.EqualValues(t, 2, queue[0].Count)
	require.EqualValues(t, 1+2, queue[0].Sum)
}

// measured returns the metrics that were recorded, by name.
func (o *observed) measured(t *testing.T) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, o.reader.Collect(t.Context(), &all))
	found := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		require.Equal(t, telemetry.Scope, scope.Scope.Name)
		for _, m := range scope.Metrics {
			found[m.Name] = m
		}
	}
	return found
}
