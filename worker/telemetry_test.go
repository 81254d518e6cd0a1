package worker_test

import (
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

// traced is a bundle whose locks and Temporal's SDK make spans.
func traced(t *testing.T) (*bundle, *tracetest.InMemoryExporter) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	tracing, err := opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{Tracer: provider.Tracer("test")})
	require.NoError(t, err)
	b := setupWith(t, lockcore.Config{TracerProvider: provider})
	b.reach(t, client.Options{Interceptors: []interceptor.ClientInterceptor{tracing}})
	return b, spans
}

func attributeOf(s tracetest.SpanStub, key string) attribute.Value {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value
		}
	}
	return attribute.Value{}
}

// Spans of locks are children of the steps that made them, and a wait links to the step of another workflow that blocked it.
func TestSpans_OfLocks_AreChildrenOfTheStep(t *testing.T) {
	t.Parallel()
	b, exported := traced(t)
	b.workflow("W", secretStep)
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.lookFor})
	b.waitAndRelease(t) // one party holds, two wait one behind the other
	spans := exported.GetSpans()
	steps := map[string]tracetest.SpanStub{} // by span ID
	for _, s := range spans {
		if strings.HasPrefix(s.Name, "RunActivity:") {
			steps[s.SpanContext.SpanID().String()] = s
		}
	}
	var waits, holds []tracetest.SpanStub
	for _, s := range spans {
		switch s.Name {
		case telemetry.SpanAcquire, telemetry.SpanLeave:
			if strings.HasPrefix(attributeOf(s, telemetry.LockID).AsString(), namespaceID) {
				require.Contains(t, steps, s.Parent.SpanID().String(), "%s is under no step", s.Name)
			}
		case telemetry.SpanWait:
			waits = append(waits, s)
		case telemetry.SpanHold:
			holds = append(holds, s)
		}
	}
	require.Len(t, waits, 2)
	for _, w := range waits {
		step := steps[w.Parent.SpanID().String()]
		require.Equal(t, "RunActivity:Look", step.Name, "the attempt that was granted")
		blockers := slices.DeleteFunc(slices.Clone(holds), func(h tracetest.SpanStub) bool {
			return attributeOf(h, telemetry.LockID) != attributeOf(w, telemetry.BlockedByID) || attributeOf(h, telemetry.Fence) != attributeOf(w, telemetry.BlockedByFence)
		})
		require.Len(t, blockers, 1, "the hold that the wait names")
		require.Equal(t, blockers[0].EndTime, w.EndTime, "its end let the wait in")
		if strings.HasPrefix(attributeOf(blockers[0], telemetry.LockID).AsString(), namespaceID) {
			held := steps[attributeOf(w, telemetry.BlockedBySpan).AsString()]
			require.Equal(t, "RunActivity:Look", held.Name, "the step that held")
			require.NotEqual(t, held.SpanContext.TraceID(), w.SpanContext.TraceID(), "it is another workflow's")
			require.Equal(t, blockers[0].Parent.SpanID(), held.SpanContext.SpanID())
		}
	}
}

// The span of a hold whose workflow was terminated is written by the janitor, in the trace of the step that held, with an attribute for that.
func TestSpans_OrphanedHold_EndedByJanitor(t *testing.T) {
	t.Parallel()
	b, exported := traced(t)
	leftBehind(b)
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.writer("entered")})
	holder := b.start(t, "Hold")
	b.untilWritten(t, 1)
	b.terminate(t, holder)
	require.Equal(t, 1, b.round(t).Released)
	var hold, step tracetest.SpanStub
	for _, s := range exported.GetSpans() {
		switch s.Name {
		case telemetry.SpanHold:
			hold = s
		case "RunActivity:Note":
			step = s
		}
	}
	require.Equal(t, telemetry.OutcomeOrphaned, attributeOf(hold, telemetry.Outcome).AsString())
	require.Contains(t, attributeOf(hold, telemetry.Reason).AsString(), "Terminated")
	require.Equal(t, step.SpanContext.SpanID(), hold.Parent.SpanID())
}

// A replay makes no spans: neither of kept histories, nor where a query makes a worker replay.
func TestSpans_Replay_MakesNone(t *testing.T) {
	t.Parallel()
	b, exported := traced(t)
	for _, file := range kept(t) {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		f := features[slices.IndexFunc(features, func(f feature) bool { return f.name == name })]
		plugin, err := worker.NewPlugin(worker.Options{Locker: b.locker.Locker})
		require.NoError(t, err)
		replayer, err := sdkworker.NewWorkflowReplayerWithOptions(sdkworker.WorkflowReplayerOptions{Plugins: []sdkworker.Plugin{plugin}, DisableDeadlockDetection: true})
		require.NoError(t, err)
		replayer.RegisterWorkflowWithOptions(f.workflow, workflow.RegisterOptions{Name: name})
		require.NoError(t, replayer.ReplayWorkflowHistory(log.NewStructuredLogger(slog.New(slog.DiscardHandler)), readHistory(t, file)), file)
	}
	require.Empty(t, exported.GetSpans())
}

// A workflow that is queried after it has ended is replayed by a worker that does not have it in its cache.
func TestSpans_QueryReplays_MakesNone(t *testing.T) {
	t.Parallel()
	b, exported := traced(t)
	b.workflow("W", func(ctx workflow.Context) error {
		if err := workflow.SetQueryHandler(ctx, "state", func() (string, error) { return "there", nil }); err != nil {
			return err
		}
		return secretStep(ctx)
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.lookFor})
	b.waitAndRelease(t)
	run := b.start(t, "W")
	require.NoError(t, run.Get(t.Context(), nil))
	b.requireFree(t, account.Name)
	before := locksIn(exported)
	require.NotZero(t, before)
	sdkworker.PurgeStickyWorkflowCache() // of all workers of this process: they replay what they need
	answer, err := b.client.QueryWorkflow(t.Context(), run.GetID(), run.GetRunID(), "state")
	require.NoError(t, err)
	require.True(t, answer.HasValue())
	require.Equal(t, before, locksIn(exported))
}

func locksIn(exported *tracetest.InMemoryExporter) int {
	n := 0
	for _, s := range exported.GetSpans() {
		if s.InstrumentationScope.Name == telemetry.Scope {
			n++
		}
	}
	return n
}
