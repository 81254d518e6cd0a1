package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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

// Telemetry is where a process of the command line sends its spans and metrics.
type Telemetry struct {
	Traces  *sdktrace.TracerProvider
	Metrics *sdkmetric.MeterProvider
}

// Environment variables of OpenTelemetry that say where to send, and how. The exporters read the others of them.
const (
	endpointVariable = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesVariable   = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	protocolVariable = "OTEL_EXPORTER_OTLP_PROTOCOL"
	metricsVariable  = "OTEL_METRICS_EXPORTER"
)

// shutdownWithin bounds how long a process that ends tries to send what it has.
const shutdownWithin = 5 * time.Second

// TelemetryOptions are those of a process.
type TelemetryOptions struct {
	// Service is its name, unless OTEL_SERVICE_NAME says another.
	Service string
	// Errs is told of what cannot be sent, once.
	Errs io.Writer
	// NoMetrics sends spans alone, as OTEL_METRICS_EXPORTER=none does: for endpoints that take no metrics, such as Jaeger's.
	NoMetrics bool
	// Beside are exporters beside OTLP's.
	Beside []sdktrace.TracerProviderOption
}

// NewTelemetry makes providers that export over OTLP if the environment says so, by OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT. What cannot be
// sent stops no process.
func NewTelemetry(ctx context.Context, o TelemetryOptions) (*Telemetry, error) {
	who, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", o.Service)), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	traces := append([]sdktrace.TracerProviderOption{sdktrace.WithResource(who)}, o.Beside...)
	metrics := []sdkmetric.Option{sdkmetric.WithResource(who)}
	if endpoint := cmp.Or(os.Getenv(endpointVariable), os.Getenv(tracesVariable)); endpoint != "" {
		if p := os.Getenv(protocolVariable); p != "" && p != "http/protobuf" {
			return nil, fmt.Errorf("%s is %q: lockstep's processes speak http/protobuf alone, on port 4318 of most collectors: leave it unset", protocolVariable, p)
		}
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
				_, _ = fmt.Fprintf(o.Errs, "lockstep: telemetry cannot be sent to %s (%s=none sends spans alone); this is not told again: %v\n",
					endpoint, metricsVariable, err)
			})
		}))
	}
	return &Telemetry{sdktrace.NewTracerProvider(traces...), sdkmetric.NewMeterProvider(metrics...)}, nil
}

// Shutdown sends what there is, for a few seconds at most, also if ctx has ended.
func (t *Telemetry) Shutdown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownWithin)
	defer cancel()
	// Spans are lost at worst; the error handler has told why.
	if err := errors.Join(t.Traces.Shutdown(ctx), t.Metrics.Shutdown(ctx)); err != nil {
		otel.Handle(err)
	}
}
