package tracefile_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/worker/tracefile"
)

// writeSpan writes a wait for a lock of this ID.
func writeSpan(provider trace.TracerProvider, lockID string) trace.SpanContext {
	_, span := provider.Tracer("test").Start(context.Background(), telemetry.SpanWait,
		trace.WithAttributes(attribute.String(telemetry.Resource, "account/1"), attribute.String(telemetry.LockID, lockID)))
	span.End()
	return span.SpanContext()
}

// syncing returns a provider that writes each span when it ends, and collects the errors.
func syncing(t *testing.T, folder string, o tracefile.Options) (*sdktrace.TracerProvider, *failures) {
	t.Helper()
	exporter, err := tracefile.New(t.Context(), folder, o)
	require.NoError(t, err)
	f := &failures{SpanExporter: exporter}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(f))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.WithoutCancel(t.Context()))) })
	return provider, f
}

// failures collects the errors of an exporter, which the SDK hands to a handler of the whole process.
type failures struct {
	sdktrace.SpanExporter
	mu   sync.Mutex
	errs []error
}

func (f *failures) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := f.SpanExporter.ExportSpans(ctx, spans)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
	return nil
}

func (f *failures) error() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.errs...)
}

// report is what `lockstep contention FOLDER` has read.
func report(t *testing.T, folder string) *contention.Report {
	t.Helper()
	spans, err := contention.Read(t.Context(), []string{folder}, nil)
	require.NoError(t, err)
	r, err := contention.Analyze(t.Context(), spans, contention.Options{})
	require.NoError(t, err)
	return r
}

// traceFiles returns the files of the package in a folder.
func traceFiles(t *testing.T, folder string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, "*.spans.jsonl"))
	require.NoError(t, err)
	return found
}

// wait lets one lock ID wait for another on two Lockers.
func wait(t *testing.T, holder, waiter *lockcore.Locker) {
	t.Helper()
	request := lockcore.Request{LockID: "order-1", Resources: []lockcore.Resource{lockcore.Exclusive("stock/sku-7")}}
	held, err := holder.Acquire(t.Context(), request)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		request.LockID = "order-2"
		session, err := waiter.Acquire(t.Context(), request)
		if err == nil {
			err = session.Leave(t.Context())
		}
		ended <- err
	}()
	require.Eventually(t, func() bool {
		for s, err := range holder.Status(t.Context(), lockcore.Filter{Resource: "stock/sku-7"}) {
			if err == nil && s.Position > 0 {
				return true
			}
		}
		return false
	}, time.Minute, time.Millisecond, "it waits")
	require.NoError(t, held.Leave(t.Context()))
	require.NoError(t, <-ended)
}

func TestNewTracerProvider_TwoProcessesInOneFolder_ContentionNamesTheHolder(t *testing.T) {
	t.Parallel()
	folder, store := filepath.Join(t.TempDir(), "new", "traces"), lockcoretest.NewStore(time.Now)
	var lockers []*lockcore.Locker
	var providers []*sdktrace.TracerProvider
	for _, name := range []string{"holder", "waiter"} {
		provider, err := tracefile.NewTracerProvider(t.Context(), folder, tracefile.Options{Name: name})
		require.NoError(t, err)
		locker, err := lockcore.NewWithStore(store, lockcore.Config{TracerProvider: provider})
		require.NoError(t, err)
		lockers, providers = append(lockers, locker), append(providers, provider)
	}
	wait(t, lockers[0], lockers[1])
	for i, locker := range lockers {
		require.NoError(t, locker.Close(t.Context()))
		require.NoError(t, providers[i].Shutdown(t.Context()))
	}

	files := traceFiles(t, folder)
	require.Len(t, files, 2)
	require.Regexp(t, fmt.Sprintf(`^holder-.+-%d-\d{8}T\d{6}\.\d{6}\.spans\.jsonl$`, os.Getpid()), filepath.Base(files[0]))
	r := report(t, folder)
	require.Zero(t, r.Read.Broken)
	require.Len(t, r.Waits, 1)
	require.Equal(t, "order-2", r.Waits[0].LockID)
	require.Len(t, r.Waits[0].Blockers, 1)
	require.Equal(t, "order-1", r.Waits[0].Blockers[0].LockID)
	require.GreaterOrEqual(t, r.Waits[0].Blockers[0].Hold, 0, "the span of the hold was read")
}

func TestNew_ProcessEndedInALine_OtherLinesAreRead(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	provider, failed := syncing(t, folder, tracefile.Options{})
	want := writeSpan(provider, "a")
	require.NoError(t, failed.error())
	path := traceFiles(t, folder)[0]
	line, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(line), `"traceId":"`+want.TraceID().String()+`"`, "IDs are hexadecimal, as in OTLP's JSON")
	require.NoError(t, os.WriteFile(path, append(line, line[:len(line)/2]...), 0o600))

	r := report(t, folder)
	require.Equal(t, 1, r.Read.Broken)
	require.Len(t, r.Waits, 1)
	require.Equal(t, want.SpanID().String(), r.Waits[0].Span)
}

func TestNew_BoundedFolder_OldestFilesAreRemoved(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	foreign := filepath.Join(folder, "notes.jsonl")
	require.NoError(t, os.WriteFile(foreign, nil, 0o600))
	const file, spans = 4096, 100
	provider, failed := syncing(t, folder, tracefile.Options{MaxFileBytes: file, MaxFolderBytes: 4 * file})
	for i := range spans {
		writeSpan(provider, fmt.Sprint(i))
		total := int64(0)
		for _, path := range traceFiles(t, folder) {
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.LessOrEqual(t, info.Size(), int64(file))
			total += info.Size()
		}
		require.LessOrEqual(t, total, int64(4*file))
	}
	require.NoError(t, failed.error())
	require.FileExists(t, foreign)
	require.GreaterOrEqual(t, len(traceFiles(t, folder)), 3)
	var kept []string
	for _, w := range report(t, folder).Waits {
		kept = append(kept, w.LockID)
	}
	require.Contains(t, kept, fmt.Sprint(spans-1))
	require.NotContains(t, kept, "0")
	require.Greater(t, len(kept), 8)
}

func TestNew_FolderIsCleared_NewFileBegins(t *testing.T) {
	t.Parallel()
	for name, clearIt := range map[string]func(t *testing.T, folder string){
		"the files are removed":  func(t *testing.T, folder string) { require.NoError(t, os.Remove(traceFiles(t, folder)[0])) },
		"the folder is removed":  func(t *testing.T, folder string) { require.NoError(t, os.RemoveAll(folder)) },
		"the folder is archived": func(t *testing.T, folder string) { require.NoError(t, os.Rename(folder, folder+".old")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "traces")
			provider, failed := syncing(t, folder, tracefile.Options{})
			writeSpan(provider, "before")
			clearIt(t, folder)
			writeSpan(provider, "after")
			require.NoError(t, failed.error())
			r := report(t, folder)
			require.Len(t, r.Waits, 1)
			require.Equal(t, "after", r.Waits[0].LockID)
		})
	}
}

func TestNew_NoSpans_LeavesNoFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	provider, err := tracefile.NewTracerProvider(t.Context(), folder, tracefile.Options{})
	require.NoError(t, err)
	require.Len(t, traceFiles(t, folder), 1, "so that a folder without permission is noticed on construction")
	require.NoError(t, provider.Shutdown(t.Context()))
	require.Empty(t, traceFiles(t, folder))
}

func TestNew_AfterShutdown_ExportFails(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	exporter, err := tracefile.New(t.Context(), folder, tracefile.Options{})
	require.NoError(t, err)
	require.NoError(t, exporter.Shutdown(t.Context()))
	provider := sdktrace.NewTracerProvider()
	_, span := provider.Tracer("test").Start(t.Context(), "late")
	late, ok := span.(sdktrace.ReadOnlySpan)
	require.True(t, ok)
	require.ErrorContains(t, exporter.ExportSpans(t.Context(), []sdktrace.ReadOnlySpan{late}), "shut down")
	require.Empty(t, traceFiles(t, folder))
}

func TestNew_CancelledExport_WritesNothing(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	exporter, err := tracefile.New(t.Context(), folder, tracefile.Options{})
	require.NoError(t, err)
	_, span := sdktrace.NewTracerProvider().Tracer("test").Start(t.Context(), "cancelled")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, exporter.ExportSpans(ctx, []sdktrace.ReadOnlySpan{span.(sdktrace.ReadOnlySpan)}), context.Canceled)
	info, err := os.Stat(traceFiles(t, folder)[0])
	require.NoError(t, err)
	require.Zero(t, info.Size())
	require.NoError(t, exporter.Shutdown(t.Context()))

	_, err = tracefile.New(ctx, folder, tracefile.Options{})
	require.ErrorIs(t, err, context.Canceled)
}

func TestNew_UnusableFolder_IsAFolderError(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for folder, want := range map[string]string{
		"":                            "the name of the folder for traces is empty",
		file:                          "traces cannot be written to the folder " + file,
		filepath.Join(file, "traces"): "traces cannot be written to the folder " + filepath.Join(file, "traces"),
	} {
		_, err := tracefile.NewTracerProvider(t.Context(), folder, tracefile.Options{})
		var refused *tracefile.FolderError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, folder, refused.Folder)
		require.ErrorContains(t, err, want)
		require.NotErrorIs(t, err, fs.ErrPermission)
	}
}

func TestNew_OptionsOutOfBounds_AreRefused(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]tracefile.Options{
		"MaxFileBytes is -1: want at least 4096":                   {MaxFileBytes: -1},
		"MaxFolderBytes is 5000: want at least MaxFileBytes, 6000": {MaxFileBytes: 6000, MaxFolderBytes: 5000},
	} {
		folder := t.TempDir()
		_, err := tracefile.New(t.Context(), folder, o)
		require.ErrorContains(t, err, want)
		require.Empty(t, traceFiles(t, folder))
	}
	folder := t.TempDir()
	exporter, err := tracefile.New(t.Context(), folder, tracefile.Options{Name: "../a b/ü", MaxFileBytes: 2 << 30})
	require.NoError(t, err)
	require.Regexp(t, `^\.\._a_b_-`, filepath.Base(traceFiles(t, folder)[0]))
	require.NoError(t, exporter.Shutdown(t.Context()))
}
