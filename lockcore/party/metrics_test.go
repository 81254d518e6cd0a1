package party_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// TestMetricsCountWhatHappened: two that wait, one of whom gives up, behind a holder that dies.
func TestMetricsCountWhatHappened(t *testing.T) {
	t.Parallel()
	classes := func(name string) string { class, _, _ := strings.Cut(name, "/"); return class }
	o := observe(t, party.Config{HoldTTL: time.Minute, ResourceClass: classes})
	r := party.Exclusive("account/1")
	o.enters(t, o.Locker, asks("a", 1, r))
	o.queues(t, o.other, asks("b", 1, r))
	o.clock.Advance(time.Second)
	o.queues(t, o.other, asks("b", 1, r)) // asks again, and is not counted again
	o.queues(t, o.other, asks("c", 1, r))
	_, err := o.TryEnter(t.Context(), asks("d", 1, r))
	require.ErrorIs(t, err, party.ErrBusy)
	o.clock.Advance(8 * time.Second)
	require.NoError(t, o.other.Leave(t.Context(), party.Lease{Resource: r.Name, LockID: "c", Part: "1/Debit", Order: party.Order{Schedule: 1, Attempt: 1}}))
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

// measured is what was counted, by metric and attributes.
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
