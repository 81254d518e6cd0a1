// Package otlpfile writes spans to a file as the OpenTelemetry Collector's file exporter does: one JSON
// object per line, each an ExportTraceServiceRequest in OTLP's JSON encoding.
package otlpfile

import (
	"context"
	"fmt"
	"os"
	"sync"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// New returns a span exporter that appends to the file at path, making it if there is none. Each batch is
// one write, so a process that is killed leaves at most one broken line, the last.
func New(ctx context.Context, path string) (*otlptrace.Exporter, error) {
	return otlptrace.New(ctx, &file{path: path})
}

// file is the transport that otlptrace sends to.
type file struct {
	path string
	mu   sync.Mutex
	f    *os.File
}

// Start opens the file.
func (f *file) Start(context.Context) (err error) {
	f.f, err = os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644) //nolint:gosec // traces are for others to read
	return err
}

// Stop closes the file.
func (f *file) Stop(context.Context) error { return f.f.Close() }

// UploadTraces appends a line.
func (f *file) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) error {
	raw, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return fmt.Errorf("otlpfile: %w", err)
	}
	traces, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(raw)
	if err != nil {
		return fmt.Errorf("otlpfile: %w", err)
	}
	line, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
	if err != nil {
		return fmt.Errorf("otlpfile: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err = f.f.Write(append(line, '\n'))
	return err
}
