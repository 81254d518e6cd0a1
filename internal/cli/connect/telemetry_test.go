package connect_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

// collector records the requests of exporters, by path.
type collector struct {
	mu   sync.Mutex
	sent map[string][]byte
}

func (c *collector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(r.Body)
	}
	data, _ := io.ReadAll(body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent[r.URL.Path] = append(c.sent[r.URL.Path], data...)
}

// Not parallel: the environment is the process's.
func TestTelemetry_Endpoint_GetsSpansAndMetrics(t *testing.T) {
	c := &collector{sent: map[string][]byte{}}
	server := httptest.NewServer(c)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_SERVICE_NAME", "mine")
	var errs bytes.Buffer
	observed, err := connect.NewTelemetry(t.Context(), connect.TelemetryOptions{Service: "lockstep-test", Errs: &errs})
	require.NoError(t, err)
	l, err := lockcore.NewWithStore(lockcoretest.NewStore(time.Now), lockcore.Config{TracerProvider: observed.Traces, MeterProvider: observed.Metrics})
	require.NoError(t, err)
	session, err := l.TryAcquire(t.Context(), lockcore.Request{LockID: "a", Resources: []lockcore.Resource{lockcore.Exclusive("r")}})
	require.NoError(t, err)
	require.NoError(t, session.Leave(t.Context()))
	observed.Shutdown(t.Context())

	c.mu.Lock()
	defer c.mu.Unlock()
	var traces coltracepb.ExportTraceServiceRequest
	require.NoError(t, proto.Unmarshal(c.sent["/v1/traces"], &traces))
	require.Equal(t, telemetry.SpanAcquire, traces.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0].GetName())
	require.Contains(t, traces.GetResourceSpans()[0].GetResource().String(), "mine")
	require.Contains(t, string(c.sent["/v1/metrics"]), telemetry.Granted.Name)
	require.Empty(t, errs.String())
}

func TestTelemetry_MetricsExporterNone_SendsOnlySpans(t *testing.T) {
	c := &collector{sent: map[string][]byte{}}
	server := httptest.NewServer(c)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_METRICS_EXPORTER", "none")
	observed, err := connect.NewTelemetry(t.Context(), connect.TelemetryOptions{Service: "lockstep-test", Errs: io.Discard})
	require.NoError(t, err)
	counter, err := observed.Metrics.Meter("test").Int64Counter("test")
	require.NoError(t, err)
	counter.Add(t.Context(), 1)
	observed.Shutdown(t.Context())
	require.Empty(t, c.sent)
}

func TestTelemetry_NoCollector_IsReportedOnce(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close() // refuses connections from now on
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	var errs bytes.Buffer
	observed, err := connect.NewTelemetry(t.Context(), connect.TelemetryOptions{Service: "lockstep-test", Errs: &errs})
	require.NoError(t, err)
	_, span := observed.Traces.Tracer("test").Start(t.Context(), "test")
	span.End()
	observed.Shutdown(t.Context())
	require.Equal(t, 1, strings.Count(errs.String(), "telemetry cannot be sent to "+server.URL), errs.String())
}

func TestTelemetry_OtherProtocol_IsRefused(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	_, err := connect.NewTelemetry(t.Context(), connect.TelemetryOptions{Service: "lockstep-test", Errs: io.Discard})
	require.ErrorContains(t, err, `OTEL_EXPORTER_OTLP_PROTOCOL is "grpc"`)
}
