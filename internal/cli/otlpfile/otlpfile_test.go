package otlpfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
	"github.com/temporal-lockstep/lockstep/internal/cli/otlpfile"
	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

func TestNew_SpansAndBrokenLine_AreReadBack(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "spans.json")
	exporter, err := otlpfile.New(t.Context(), path)
	require.NoError(t, err)
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter))
	_, span := provider.Tracer("test").Start(t.Context(), telemetry.SpanWait,
		oteltrace.WithAttributes(attribute.String(telemetry.Resource, "account/1"), attribute.String(telemetry.LockID, "a")))
	span.End()
	want := span.SpanContext()
	require.NoError(t, provider.Shutdown(t.Context()))

	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"resourceSpans":[{"scop`)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	spans, err := contention.Read(t.Context(), []string{path}, nil)
	require.NoError(t, err)
	read, err := contention.Analyze(t.Context(), spans, contention.Options{})
	require.NoError(t, err)
	require.Equal(t, 1, read.Read.Broken)
	require.Equal(t, 1, read.Read.LockSpans)
	require.Len(t, read.Waits, 1)
	require.Equal(t, want.TraceID().String(), read.Waits[0].Trace)
	require.Equal(t, want.SpanID().String(), read.Waits[0].Span)

	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(raw), `"traceId":"`+want.TraceID().String()+`"`, "IDs are hexadecimal, as in OTLP JSON")
}
