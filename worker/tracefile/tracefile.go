package tracefile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// batchTimeout bounds the time for which a span that has ended is only in memory.
const batchTimeout = time.Second

// Options configure the files. The zero value is valid.
type Options struct {
	// Name begins the names of the files of this process, with its first 100 bytes. Characters other than ASCII letters, digits, ".", "-"
	// and "_" become "_". Defaults to the name of the program.
	Name string
	// MaxFileBytes bounds a file, in bytes: at least 4096. Defaults to 64 MiB.
	MaxFileBytes int64
	// MaxFolderBytes bounds the files in the folder, in bytes: at least MaxFileBytes. It must be the same in all processes that share the
	// folder, or the least one counts. Defaults to 1 GiB, or to MaxFileBytes if that is greater.
	MaxFolderBytes int64
}

const (
	minFileBytes          = 4096
	defaultMaxFileBytes   = 64 << 20
	defaultMaxFolderBytes = 1 << 30
)

func (o Options) withDefaults() (Options, error) {
	o.Name = fileName(cmp.Or(o.Name, filepath.Base(os.Args[0])))
	o.MaxFileBytes = cmp.Or(o.MaxFileBytes, defaultMaxFileBytes)
	o.MaxFolderBytes = cmp.Or(o.MaxFolderBytes, max(defaultMaxFolderBytes, o.MaxFileBytes))
	switch {
	case o.MaxFileBytes < minFileBytes:
		return o, fmt.Errorf("tracefile: MaxFileBytes is %d: want at least %d", o.MaxFileBytes, minFileBytes)
	case o.MaxFolderBytes < o.MaxFileBytes:
		return o, fmt.Errorf("tracefile: MaxFolderBytes is %d: want at least MaxFileBytes, %d", o.MaxFolderBytes, o.MaxFileBytes)
	}
	return o, nil
}

// maxName bounds a part of a file's name.
const maxName = 100

var notInNames = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// fileName returns a text as a part of a file's name.
func fileName(text string) string {
	text = notInNames.ReplaceAllString(text, "_")
	return text[:min(len(text), maxName)]
}

// NewTracerProvider returns a provider whose spans go to files in a folder, in batches, at most a second after they have ended. A process that is
// killed loses the spans of that second. Shutdown writes the rest and closes the file.
//
// The spans have the resource of the environment (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES), and are sampled as OTEL_TRACES_SAMPLER says, by
// default all of them. For other resources, samplers or processors, use [New].
//
// The folder is made if it does not exist. The error is that of New.
func NewTracerProvider(ctx context.Context, folder string, o Options) (*sdktrace.TracerProvider, error) {
	exporter, err := New(ctx, folder, o)
	if err != nil {
		return nil, err
	}
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter, sdktrace.WithBatchTimeout(batchTimeout))), nil
}

// New returns an exporter that appends spans to files in a folder, for a tracer provider of the caller's. The provider's Shutdown closes the file.
// An exporter is safe for concurrent use. With sdktrace.WithSyncer each span is written when it ends, before the call that ended it returns:
// a process that is killed loses only spans that are open, but a slow disk delays locks.
//
// The folder is made if it does not exist. The error is a [*FolderError] if it cannot be made or written, reports an option that is out of
// bounds, or is the cause with which ctx was cancelled. ctx matters only to New itself. If the context of a later export is cancelled before the
// batch is written, the batch is lost and the file is unchanged.
func New(ctx context.Context, folder string, o Options) (*otlptrace.Exporter, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return otlptrace.New(ctx, &files{folder: folder, options: o})
}

// A FolderError reports a folder in which no file can be made or written. Err contains the reason: fs.ErrPermission, for example, matches it.
type FolderError struct {
	// Folder is the folder as the caller named it.
	Folder string
	// Err is the error of the operating system.
	Err error
}

// Error names the folder and the reason, and the remedy if a permission is missing.
func (e *FolderError) Error() string {
	if e.Folder == "" {
		return "tracefile: the name of the folder for traces is empty"
	}
	text := fmt.Sprintf("tracefile: traces cannot be written to the folder %s: %v", e.Folder, e.Err)
	if !errors.Is(e.Err, fs.ErrPermission) {
		return text
	}
	return fmt.Sprintf("%s: allow user ID %d to make files there, or name another folder", text, os.Getuid())
}

// Unwrap returns Err.
func (e *FolderError) Unwrap() error { return e.Err }
