package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/temporal-lockstep/lockstep/internal/cli/otlpfile"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// observed compares locks that are not observed with those whose spans go to a file, in batches, and whose metrics are kept.
func (b *bench) observed(ctx context.Context) (section, func(), error) {
	dir, err := os.MkdirTemp("", "lockstep-bench-")
	if err != nil {
		return section{}, nil, err
	}
	exporter, err := otlpfile.New(ctx, filepath.Join(dir, "spans.json"))
	if err != nil {
		_ = os.RemoveAll(dir)
		return section{}, nil, err
	}
	spans, metrics := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter)), sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	stop := func() {
		ctx := context.WithoutCancel(ctx)
		_ = spans.Shutdown(ctx)
		_ = metrics.Shutdown(ctx)
		_ = os.RemoveAll(dir)
	}
	s := section{name: "telemetry, two commands", cases: []benchCase{
		{name: "acquire + release, no telemetry", once: b.pair("o0", lockcore.Exclusive("bench/o0"), 0)},
	}}
	for i, with := range []struct {
		name string
		cfg  lockcore.Config
	}{
		{"spans, in batches", lockcore.Config{TracerProvider: spans}},
		{"spans, and metrics", lockcore.Config{TracerProvider: spans, MeterProvider: metrics}},
	} {
		with.cfg.MaxWaiters = 5000
		locker, err := party.New(b.db.Collection("locks"), with.cfg)
		if err != nil {
			stop()
			return section{}, nil, err
		}
		name := fmt.Sprintf("o%d", i+1)
		s.cases = append(s.cases, benchCase{name: with.name, limit: 1.1, once: b.pairOf(locker, name, lockcore.Exclusive("bench/"+name), 0)})
	}
	return s, stop, nil
}
