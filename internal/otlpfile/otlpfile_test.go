package otlpfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/temporal-lockstep/lockstep/internal/otlpfile"
)

func TestSpansAreReadBackAndABrokenLineIsCounted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "spans.json")
	exporter, err := otlpfile.New(t.Context(), path)
	require.NoError(t, err)
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter))
	_, span := provider.Tracer("test").Start(t.Context(), "lock.wait")
	span.End()
	want := span.SpanContext()
	require.NoError(t, provider.Shutdown(t.Context()))

	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"resourceSpans":[{"scop`)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	var names, traces []string
	broken, err := otlpfile.Read(path, func(s ptrace.Span) {
		names = append(names, s.Name())
		traces = append(traces, s.TraceID().String())
	})
	require.NoError(t, err)
	require.Equal(t, 1, broken)
	require.Equal(t, []string{"lock.wait"}, names)
	require.Equal(t, []string{want.TraceID().String()}, traces)

	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(raw), `"traceId":"`+want.TraceID().String()+`"`, "IDs are hexadecimal, as OTLP's JSON wants them")
}
