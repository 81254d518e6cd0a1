package collector

import (
	"context"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/envprovider"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

const root = "../../../.."

func TestCollectorConfiguration_SpansOfLocker_BecomeAReport(t *testing.T) {
	traces, address := t.TempDir(), freeAddress(t)
	t.Setenv("TRACES", traces)
	t.Setenv("OTLP_HTTP", address)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+address)
	stop := startCollector(t, root+"/docs/monitoring/collector.yaml")
	waitOnce(t)
	stop()

	report := exec.CommandContext(t.Context(), "go", "run", "./cmd/lockstep", "contention", traces)
	report.Dir = root
	out, err := report.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "order-2 waited")
	require.Contains(t, string(out), "for stock/sku-7")
	require.Contains(t, string(out), "100 % of the waiting was for order-1")
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// startCollector runs a Collector that has what the configuration names of the distribution "contrib". The returned function ends it.
func startCollector(t *testing.T, configuration string) (stop func()) {
	t.Helper()
	receivers, err := otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory())
	require.NoError(t, err)
	exporters, err := otelcol.MakeFactoryMap[exporter.Factory](fileexporter.NewFactory())
	require.NoError(t, err)
	collector, err := otelcol.NewCollector(otelcol.CollectorSettings{
		BuildInfo:               component.NewDefaultBuildInfo(),
		DisableGracefulShutdown: true,
		Factories: func() (otelcol.Factories, error) {
			return otelcol.Factories{Receivers: receivers, Exporters: exporters, Telemetry: otelconftelemetry.NewFactory()}, nil
		},
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs: []string{configuration}, DefaultScheme: "env",
			ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory(), envprovider.NewFactory()},
		}},
	})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- collector.Run(context.WithoutCancel(t.Context())) }()
	require.Eventually(t, func() bool {
		return collector.GetState() == otelcol.StateRunning || len(ended) > 0
	}, time.Minute, 10*time.Millisecond)
	return func() {
		collector.Shutdown()
		require.NoError(t, <-ended)
	}
}

// waitOnce lets order-2 wait for order-1, and exports the spans of both.
func waitOnce(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	exporter, err := otlptracehttp.New(ctx) // it reads OTEL_EXPORTER_OTLP_ENDPOINT
	require.NoError(t, err)
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter))
	locker, err := lockcore.NewWithStore(lockcoretest.NewStore(time.Now), lockcore.Config{TracerProvider: provider})
	require.NoError(t, err)

	request := lockcore.Request{LockID: "order-1", Resources: []lockcore.Resource{lockcore.Exclusive("stock/sku-7")}}
	held, err := locker.Acquire(ctx, request)
	require.NoError(t, err)
	second := make(chan error, 1)
	go func() {
		request.LockID = "order-2"
		session, err := locker.Acquire(ctx, request)
		if err == nil {
			err = session.Leave(ctx)
		}
		second <- err
	}()
	require.Eventually(t, func() bool {
		waiting := 0
		for s, err := range locker.Status(ctx, lockcore.Filter{Resource: "stock/sku-7"}) {
			if err == nil && s.Position > 0 {
				waiting++
			}
		}
		return waiting == 1
	}, time.Minute, time.Millisecond)
	require.NoError(t, held.Leave(ctx))
	require.NoError(t, <-second)
	require.NoError(t, locker.Close(ctx))
	require.NoError(t, provider.Shutdown(ctx))
}
