package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Telemetry has the OpenTelemetry providers of a process.
type Telemetry struct {
	Traces  *sdktrace.TracerProvider
	Metrics *sdkmetric.MeterProvider
}

// Environment variables of OpenTelemetry. The exporters read further ones.
const (
	endpointVariable = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesVariable   = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	protocolVariable = "OTEL_EXPORTER_OTLP_PROTOCOL"
	metricsVariable  = "OTEL_METRICS_EXPORTER"
)

// shutdownTimeout bounds the last export of a process.
const shutdownTimeout = 5 * time.Second

// TelemetryOptions configure NewTelemetry.
type TelemetryOptions struct {
	// Service is the service name. OTEL_SERVICE_NAME takes precedence.
	Service string
	// Errs gets the first error of an export.
	Errs io.Writer
	// NoMetrics sends only spans, as OTEL_METRICS_EXPORTER=none does, for endpoints such as Jaeger's.
	NoMetrics bool
	// Exporters are further exporters of spans.
	Exporters []sdktrace.TracerProviderOption
}

// NewTelemetry makes providers, which export over OTLP if OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT
// is set. A failed export does not stop the process.
func NewTelemetry(ctx context.Context, o TelemetryOptions) (*Telemetry, error) {
	service, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", o.Service)), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	traces := append([]sdktrace.TracerProviderOption{sdktrace.WithResource(service)}, o.Exporters...)
	metrics := []sdkmetric.Option{sdkmetric.WithResource(service)}
	if endpoint := cmp.Or(os.Getenv(endpointVariable), os.Getenv(tracesVariable)); endpoint != "" {
		if p := os.Getenv(protocolVariable); p != "" && p != "http/protobuf" {
			return nil, fmt.Errorf("%s is %q: lockstep supports only http/protobuf, on port 4318 of most collectors: leave it unset", protocolVariable, p)
		}
		if err := checkExporters(); err != nil {
			return nil, err
		}
		endpoint = withoutPassword(endpoint)
		spans, err := otlptracehttp.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", endpointVariable, endpoint, err)
		}
		traces = append(traces, sdktrace.WithBatcher(spans))
		wanted := cmp.Or(os.Getenv(endpointVariable), os.Getenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")) != ""
		if wanted && !o.NoMetrics && os.Getenv(metricsVariable) != "none" {
			numbers, err := otlpmetrichttp.New(ctx)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("%s %q: %w", endpointVariable, endpoint, err), spans.Shutdown(ctx))
			}
			metrics = append(metrics, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(numbers)))
		}
		var once sync.Once
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
			once.Do(func() {
				_, _ = fmt.Fprintf(o.Errs, "lockstep: telemetry cannot be sent to %s (%s=none sends spans alone); later failures are not reported: %v\n",
					endpoint, metricsVariable, err)
			})
		}))
	}
	return &Telemetry{sdktrace.NewTracerProvider(traces...), sdkmetric.NewMeterProvider(metrics...)}, nil
}

// checkExporters refuses endpoints and headers that the exporters cannot read: they would log the values, which may be secret.
func checkExporters() error {
	for _, signal := range []string{"", "TRACES_", "METRICS_"} {
		endpoint, headers := "OTEL_EXPORTER_OTLP_"+signal+"ENDPOINT", "OTEL_EXPORTER_OTLP_"+signal+"HEADERS"
		if _, err := url.Parse(os.Getenv(endpoint)); err != nil {
			return fmt.Errorf("%s is not a URL", endpoint)
		}
		for header := range strings.SplitSeq(os.Getenv(headers), ",") {
			name, value, found := strings.Cut(header, "=")
			if _, err := url.PathUnescape(value); err != nil || !headerName.MatchString(name) || !found {
				if strings.TrimSpace(os.Getenv(headers)) == "" {
					continue
				}
				return fmt.Errorf("%s: want name=value, with commas in between, and special characters written as %%2C", headers)
			}
		}
	}
	return nil
}

// headerName matches the name of a header, with space around it.
var headerName = regexp.MustCompile("^\\s*[0-9A-Za-z!#$%&'*+.^_`|~-]+\\s*$")

// withoutPassword returns an address for people.
func withoutPassword(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "…"
	}
	return u.Redacted()
}

// Shutdown exports the rest, for a few seconds at most, even if ctx has ended.
func (t *Telemetry) Shutdown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	// At worst spans are lost; the error handler reports it.
	if err := errors.Join(t.Traces.Shutdown(ctx), t.Metrics.Shutdown(ctx)); err != nil {
		otel.Handle(err)
	}
}
