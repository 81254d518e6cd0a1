package tracefile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// suffix ends the names of all files of this package, of whichever process.
const suffix = ".spans.jsonl"

// Spans contain the names of resources and workflows.
const (
	filePermissions   = 0o640
	folderPermissions = 0o750
)

// errClosed reports an export after the exporter was shut down.
var errClosed = errors.New("tracefile: the exporter was shut down")

// files is the transport that otlptrace sends batches to: the files of one process.
type files struct {
	folder  string
	options Options

	mu sync.Mutex
	// file is the current one, with the number of bytes that it has. It is nil before the start, after the end, and if the latest one could
	// not be made.
	file *os.File
	size int64
	// torn is set if the last line of the file is incomplete, because a write has failed.
	torn   bool
	closed bool
}

// Start makes the first file, so that a folder without permission is noticed at once.
func (f *files) Start(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if f.folder == "" {
		return &FolderError{Err: fs.ErrInvalid}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begin(0)
}

// Stop closes the file, and removes it if it is empty.
func (f *files) Stop(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return f.end()
}

// UploadTraces appends a line.
func (f *files) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	line, err := encode(spans)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return errClosed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	if err := f.room(int64(len(line))); err != nil {
		return err
	}
	if f.torn {
		line = append([]byte{'\n'}, line...)
	}
	n, err := f.file.Write(line)
	f.size += int64(n)
	if err != nil {
		f.torn = f.torn || n > 0
		return f.failed(err)
	}
	f.torn = false
	return nil
}

// encode returns a batch as a line. The encoder of the Collector writes IDs and enumerations as OTLP's JSON requires, other than protobuf's own.
func encode(spans []*tracepb.ResourceSpans) ([]byte, error) {
	message, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return nil, fmt.Errorf("tracefile: encode spans: %w", err)
	}
	traces, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(message)
	if err != nil {
		return nil, fmt.Errorf("tracefile: encode spans: %w", err)
	}
	line, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
	if err != nil {
		return nil, fmt.Errorf("tracefile: encode spans: %w", err)
	}
	return append(line, '\n'), nil
}

// room begins a new file if there is none, if the current one has no room for so many bytes, or if it is no longer in the folder.
func (f *files) room(bytes int64) error {
	if f.file == nil {
		return f.begin(bytes)
	}
	if (f.size == 0 || f.size+bytes <= f.options.MaxFileBytes) && f.present() {
		return nil
	}
	// What a write has reported as written is in the file, whatever Close returns.
	_ = f.end()
	return f.begin(bytes)
}

// present reports whether the file's name still leads to the current file: the folder may be cleared while the process runs.
func (f *files) present() bool {
	open, err := f.file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(f.file.Name())
	return err == nil && os.SameFile(open, named)
}

// begin makes a file, and the folder if it does not exist, and removes old files to have room for so many bytes.
func (f *files) begin(bytes int64) error {
	if err := os.MkdirAll(f.folder, folderPermissions); err != nil {
		return f.failed(err)
	}
	for {
		file, err := os.OpenFile(f.path(time.Now()), os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, filePermissions)
		if errors.Is(err, fs.ErrExist) { // within the same microsecond
			continue
		}
		if err != nil {
			return f.failed(err)
		}
		f.file, f.size, f.torn = file, 0, false
		f.removeOldest(max(bytes, f.options.MaxFileBytes))
		return nil
	}
}

func (f *files) path(at time.Time) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	name := fmt.Sprintf("%s-%s-%d-%s%s", f.options.Name, fileName(host), os.Getpid(), at.UTC().Format("20060102T150405.000000"), suffix)
	return filepath.Join(f.folder, name)
}

// end closes the current file, and removes it if it is empty.
func (f *files) end() error {
	if f.file == nil {
		return nil
	}
	if f.size == 0 && f.present() {
		_ = os.Remove(f.file.Name()) // on Windows a file that is open; an empty one does no harm
	}
	err := f.file.Close()
	f.file = nil
	if err != nil {
		return f.failed(err)
	}
	return nil
}

// removeOldest removes the files of this package that were written to least recently, until the folder has room for so many bytes. What
// cannot be removed, such as a file of another user, stays.
func (f *files) removeOldest(bytes int64) {
	entries, err := os.ReadDir(f.folder)
	if err != nil {
		return // the right to make files in a folder does not include that to list it
	}
	var found []fs.FileInfo
	total := bytes
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() || !strings.HasSuffix(entry.Name(), suffix) || entry.Name() == filepath.Base(f.file.Name()) {
			continue
		}
		found, total = append(found, info), total+info.Size()
	}
	slices.SortFunc(found, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, info := range found {
		if total <= f.options.MaxFolderBytes {
			return
		}
		if os.Remove(filepath.Join(f.folder, info.Name())) == nil {
			total -= info.Size()
		}
	}
}

func (f *files) failed(err error) error { return &FolderError{Folder: f.folder, Err: err} }
