package lockcore_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// said contains the records of one kind of span: which attributes always and which at times, which events with which
// attributes, and which outcomes.
type said struct {
	spans      int
	attributes map[string]int
	types      map[string]string
	events     map[string]map[string]bool
	outcomes   map[string]bool
	links      bool
}

func (o *observed) said() map[string]*said {
	found := map[string]*said{}
	for _, s := range o.spans.Ended() {
		k := found[s.Name()]
		if k == nil {
			k = &said{attributes: map[string]int{}, types: map[string]string{}, events: map[string]map[string]bool{}, outcomes: map[string]bool{}}
			found[s.Name()] = k
		}
		k.spans++
		k.links = k.links || len(s.Links()) > 0
		for _, a := range s.Attributes() {
			k.attributes[string(a.Key)]++
			k.types[string(a.Key)] = map[attribute.Type]string{attribute.STRING: "string", attribute.INT64: "int", attribute.BOOL: "bool"}[a.Value.Type()]
			if string(a.Key) == telemetry.Outcome {
				k.outcomes[a.Value.AsString()] = true
			}
		}
		for _, e := range s.Events() {
			if k.events[e.Name] == nil {
				k.events[e.Name] = map[string]bool{}
			}
			for _, a := range e.Attributes {
				k.events[e.Name][string(a.Key)] = true
			}
		}
	}
	return found
}

// TestTelemetry_Catalogue_MatchesTheRecords provokes all that can be recorded, and compares it with the catalogue, from which
// docs/telemetry.md is made, both ways.
func TestTelemetry_Catalogue_MatchesTheRecords(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := observe(t, lockcore.Config{TTL: 300 * time.Millisecond, MaxWaiters: 3, ResourceClass: func(string) string { return "some" }})
		o.everything(t)
		found := o.said()
		for _, kind := range telemetry.Spans {
			k := found[kind.Name]
			require.NotNil(t, k, "no span %s", kind.Name)
			keys := map[string]bool{}
			for _, a := range kind.Attributes {
				keys[a.Key] = true
				require.Equal(t, a.Type, k.types[a.Key], "%s of %s", a.Key, kind.Name)
				require.Equal(t, !a.Optional, k.attributes[a.Key] == k.spans, "%s of %s is on %d of %d spans; optional: %v", a.Key, kind.Name, k.attributes[a.Key], k.spans, a.Optional)
			}
			require.ElementsMatch(t, slices.Collect(maps.Keys(keys)), slices.Collect(maps.Keys(k.attributes)), kind.Name)
			var outcomes, events []string
			for _, v := range kind.Outcomes {
				outcomes = append(outcomes, v.Name)
			}
			require.ElementsMatch(t, outcomes, slices.Collect(maps.Keys(k.outcomes)), "outcomes of %s", kind.Name)
			for _, e := range kind.Events {
				events = append(events, e.Name)
				require.Equal(t, keysOf(e), k.events[e.Name], "%s of %s", e.Name, kind.Name)
			}
			require.ElementsMatch(t, events, slices.Collect(maps.Keys(k.events)), "events of %s", kind.Name)
			require.Equal(t, kind.Links != "", k.links, "links of %s", kind.Name)
			delete(found, kind.Name)
		}
		require.Equal(t, keysOf(telemetry.LostEvent), found["step that loses"].events[telemetry.LostEvent.Name])
		for _, s := range o.spans.Ended() {
			if s.Name() == telemetry.SpanWait || s.Name() == telemetry.SpanHold {
				for _, parent := range o.spans.Ended() {
					if parent.SpanContext().SpanID() == s.Parent().SpanID() {
						// The parent of a hold that no step made is its acquire.
						require.Regexp(t, "step|^lock.acquire$", parent.Name(), "the parent of a %s", s.Name())
					}
				}
			}
		}
		for name := range found {
			require.Contains(t, name, "step", "a span that is not in the catalogue")
		}
		o.comparesMetrics(t)
	})
}

func keysOf(e telemetry.Event) map[string]bool {
	keys := map[string]bool{}
	for _, a := range e.Attributes {
		keys[a.Key] = true
	}
	return keys
}

func (o *observed) comparesMetrics(t *testing.T) {
	t.Helper()
	found := o.measured(t)
	for _, m := range telemetry.Metrics {
		got, ok := found[m.Name]
		require.True(t, ok, "no metric %s", m.Name)
		require.Equal(t, m.Unit, got.Unit)
		require.Equal(t, m.Help, got.Description)
		keys := map[string]bool{}
		note := func(set attribute.Set) {
			for _, a := range set.ToSlice() {
				keys[string(a.Key)] = true
			}
		}
		kind := "histogram"
		switch data := got.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				note(p.Attributes)
				require.Equal(t, m.Buckets, p.Bounds)
			}
		case metricdata.Histogram[int64]:
			for _, p := range data.DataPoints {
				note(p.Attributes)
				require.Equal(t, m.Buckets, p.Bounds)
			}
		case metricdata.Sum[int64]:
			kind = "counter"
			for _, p := range data.DataPoints {
				note(p.Attributes)
			}
		}
		require.Equal(t, m.Kind, kind, m.Name)
		require.ElementsMatch(t, m.Attributes, slices.Collect(maps.Keys(keys)), m.Name)
		delete(found, m.Name)
	}
	require.Empty(t, found, "metrics that are not in the catalogue")
}

// everything provokes each outcome of each span.
func (o *observed) everything(t *testing.T) {
	t.Helper()
	o.fullQueue(t)
	o.unknownBlockers(t)
	o.semaphore(t)
	o.holdOnly(t)
	o.pool(t)
	o.deadlocked(t)
	o.endings(t)
	o.losses(t)
	o.failures(t)
}

// fullQueue: granted, joined, again, queued, busy, full; waits that are granted, left and unclaimed.
func (o *observed) fullQueue(t *testing.T) {
	t.Helper()
	r := lockcore.Exclusive("queue")
	o.enters(t, o.Steps, asks("a", 1, r))
	o.enters(t, o.Steps, asks("a", 1, r)) // again
	joins := asks("a", 1, r)
	joins.Part, joins.Comment = "2/Credit", "a comment"
	o.enters(t, o.Steps, joins)
	for _, id := range []string{"b", "c", "d"} {
		o.queues(t, o.other, asks(id, 1, r))
	}
	o.queues(t, o.other, asks("e", 1, r)) // full
	_, err := o.TryEnter(t.Context(), asks("f", 1, r))
	require.ErrorIs(t, err, lockcore.ErrBusy)
	lease := func(id string) lockcore.Lease {
		return lockcore.Lease{Resource: "queue", LockID: id, Part: "1/Debit", Order: lockcore.Order{Schedule: 1, Attempt: 1}}
	}
	require.NoError(t, o.Leave(t.Context(), lease("c")))
	release := lockcore.Release{LockID: "a", Resources: []string{"queue"}, Leaving: new("1/Debit"), Order: lockcore.Order{Schedule: 1, Attempt: 1}}
	require.NoError(t, o.Leave(t.Context(), lockcore.Lease{Resource: "queue", LockID: "a", Part: "2/Credit", Order: lockcore.Order{Schedule: 1, Attempt: 1}}))
	require.NoError(t, o.Release(t.Context(), release))
	o.enters(t, o.other, asks("b", 2, r))
	release.LockID, release.Order.Schedule = "b", 2
	require.NoError(t, o.Release(t.Context(), release))
	require.NoError(t, o.Leave(t.Context(), lease("d"))) // which was granted
}

// holdOnly: a hold without a part.
func (o *observed) holdOnly(t *testing.T) {
	t.Helper()
	alone := asks("alone", 1, lockcore.Exclusive("alone"))
	alone.HoldOnly = true
	o.enters(t, o.Steps, alone)
	require.NoError(t, o.Release(t.Context(), lockcore.Release{LockID: "alone", Resources: []string{"alone"}, Order: lockcore.Order{Schedule: 1, Attempt: 1}}))
}

// semaphore: requests with a limit.
func (o *observed) semaphore(t *testing.T) {
	t.Helper()
	r := lockcore.SharedLimit("semaphore", 1)
	o.enters(t, o.Steps, asks("a", 1, r))
	o.queues(t, o.Steps, asks("b", 1, r))
	for _, id := range []string{"b", "a"} {
		require.NoError(t, o.Release(t.Context(), lockcore.Release{LockID: id, Resources: []string{r.Name}, Order: lockcore.LastAttempt(1)}))
	}
}

// pool: a member, and an urgent request that waits for it.
func (o *observed) pool(t *testing.T) {
	t.Helper()
	require.NoError(t, o.SetPolicy(t.Context(), lockcore.Policy{Name: "pool", Members: []string{"one"}}))
	r := lockcore.Pool("pool")
	o.enters(t, o.Steps, asks("a", 1, r))
	urgent := asks("b", 1, r)
	urgent.Priority = 1
	o.queues(t, o.Steps, urgent)
	release := func(id string, schedule uint32) {
		require.NoError(t, o.Release(t.Context(), lockcore.Release{
			LockID: id, Resources: []string{r.Name}, Order: lockcore.LastAttempt(schedule), Leaving: new("1/Debit"),
		}))
	}
	require.NoError(t, o.Leave(t.Context(), lockcore.Lease{Resource: r.Name, LockID: "a", Part: "1/Debit", Order: lockcore.Order{Schedule: 1, Attempt: 1}}))
	release("a", 1)
	urgent.Order.Schedule = 2
	o.enters(t, o.Steps, urgent)
	release("b", 2)
}

// unknownBlockers: a holder that keeps no traces, and a wait that is no longer blocked.
func (o *observed) unknownBlockers(t *testing.T) {
	t.Helper()
	untraced, err := lockcore.NewWithStore(o.faults, lockcore.Config{})
	require.NoError(t, err)
	r := lockcore.Exclusive("unknown")
	_, err = untraced.Steps().TryEnter(t.Context(), asks("a", 1, r))
	require.NoError(t, err)
	for _, id := range []string{"b", "c"} {
		o.queues(t, o.other, asks(id, 1, r))
	}
	lease := func(id string) lockcore.Lease {
		return lockcore.Lease{Resource: "unknown", LockID: id, Part: "1/Debit", Order: lockcore.Order{Schedule: 1, Attempt: 1}}
	}
	require.NoError(t, untraced.Steps().Release(t.Context(), lockcore.Release{LockID: "a", Resources: []string{"unknown"}, Leaving: new("1/Debit"), Order: lockcore.Order{Schedule: 1, Attempt: 1}}))
	o.queues(t, o.other, asks("d", 1, r)) // b has a claim, which has no fence yet
	require.NoError(t, o.other.Leave(t.Context(), lease("c")))
	require.NoError(t, o.other.Leave(t.Context(), lease("b")))
	require.NoError(t, o.other.Leave(t.Context(), lease("d")))
	o.enters(t, o.Steps, asks("e", 1, r))
	o.queues(t, o.other, asks("f", 1, r))
	o.clock.Advance(time.Hour / 12) // of the hold's time
	o.queues(t, o.other, asks("f", 1, r))
	o.clock.Advance(time.Hour/12 - time.Second)
	o.queues(t, o.other, asks("f", 1, r))
	o.clock.Advance(2 * time.Second) // the hold has expired, and no request has noticed
	require.NoError(t, o.other.Leave(t.Context(), lease("f")))
}

// endings: holds that expired, were revoked, and orphaned.
func (o *observed) endings(t *testing.T) {
	t.Helper()
	r := lockcore.Exclusive("endings")
	asksWith := asks("a", 1, r)
	asksWith.Comment = "a comment"
	o.enters(t, o.Steps, asksWith)
	o.clock.Advance(time.Hour)
	o.enters(t, o.other, asks("b", 1, r))
	revoke(t, o.Steps, "b", "by hand", "endings")
	o.clock.Advance(time.Hour)
	o.enters(t, o.other, asks("c", 1, r))
	require.NoError(t, o.Release(t.Context(), lockcore.Release{LockID: "c", Resources: []string{"endings"}, Order: lockcore.LastAttempt(1), Reason: "it is closed"}))
	_, err := o.TryEnter(t.Context(), asks("c", 1, r))
	require.ErrorIs(t, err, lockcore.ErrSuperseded)
}

// losses records an acquire, a renewal and a session that find a lock lost, and one of several leases that remains valid.
func (o *observed) losses(t *testing.T) {
	t.Helper()
	r := lockcore.Exclusive("losses")
	lost := asks("nobody", 1, r)
	lost.HeldSince = map[string]uint32{r.Name: 9}
	_, err := o.TryEnter(t.Context(), lost)
	require.ErrorIs(t, err, lockcore.ErrLost)
	var session *lockcore.Session
	o.step(t, "step that loses", func(ctx context.Context) {
		var err error
		session, err = o.TryAcquire(ctx, lockcore.StepRequest{Caller: lockcore.Caller{LockID: "a"}, Resources: []lockcore.Resource{r, lockcore.Exclusive("stands")}})
		require.NoError(t, err)
		o.clock.Advance(time.Hour)
		next, err := o.other.TryAcquire(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "b"}, Resources: []lockcore.Resource{r}})
		require.NoError(t, err)
		<-session.Context().Done()
		require.NoError(t, next.Release(t.Context()))
	})
	require.ErrorAs(t, context.Cause(session.Context()), new(*lockcore.LostError))
}

// failures: commands that the database refuses, and commands whose outcome is unknown.
func (o *observed) failures(t *testing.T) {
	t.Helper()
	r := lockcore.Exclusive("failures")
	leases, err := o.TryEnter(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "a"}, Resources: []lockcore.Resource{r}})
	require.NoError(t, err)
	o.deadlock(t, "p", "q")
	free := lockcore.Exclusive("failures too")
	for _, fault := range []error{errNotSent, errors.New("the line is dead")} {
		o.faults.set(failing(fault, withdraws), nil)
		_, err := o.BreakDeadlocks(t.Context())
		require.ErrorContains(t, err, fault.Error())
		o.fail(fault)
		_, err = o.TryEnter(t.Context(), asks("b", 1, free))
		require.Error(t, err)
		_, err = o.Renew(t.Context(), leases...)
		require.Error(t, err)
		require.Error(t, o.Leave(t.Context(), leases...))
		require.Error(t, o.Release(t.Context(), lockcore.Release{LockID: "a", Resources: []string{"failures"}, FirstFence: leases[0].FirstFence}))
		o.fail(nil)
	}
	ctx, cancel := context.WithCancel(t.Context())
	o.faults.set(func(ctx context.Context, c command) error {
		if withdraws(c) {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}, nil)
	_, err = o.BreakDeadlocks(ctx)
	require.ErrorIs(t, err, context.Canceled)
	o.fail(nil)
	_, err = o.TryEnter(ctx, asks("b", 1, r))
	require.ErrorIs(t, err, context.Canceled)
	_, err = o.Renew(ctx, leases...)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, o.Leave(ctx, leases...), context.Canceled)
	leaving, cancelLeave := context.WithCancel(t.Context())
	o.faults.set(times(1, func(context.Context, command) error {
		cancelLeave()
		elapse(time.Millisecond)
		return nil
	}, ends("a")), nil)
	require.ErrorIs(t, o.Leave(leaving, leases...), context.Canceled)
	o.fail(nil)
	require.ErrorIs(t, o.Release(ctx, lockcore.Release{LockID: "a", Resources: []string{"failures"}, FirstFence: leases[0].FirstFence}), context.Canceled)
	require.NoError(t, o.Leave(t.Context(), leases...))
	_, err = o.Renew(t.Context(), leases...)
	require.ErrorIs(t, err, lockcore.ErrLost, "its holder left")
	o.faults.set(times(1, func(ctx context.Context, c command) error { // another process is faster
		i := slices.IndexFunc(c.swaps[0].Next.Waiters, func(w rules.Waiter) bool { return w.Verdict != "" })
		w := c.swaps[0].Next.Waiters[i]
		err := change(ctx, o.faults.Store, rules.Withdraw{Resource: c.names[0], Caller: w.Caller, Reason: w.Verdict})
		return err
	}, withdraws), nil)
	broken, err := o.BreakDeadlocks(t.Context())
	require.NoError(t, err)
	require.Empty(t, broken, "somebody was faster")
}
