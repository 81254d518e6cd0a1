package contention

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Read reads the spans in files, in folders (each *.json and *.jsonl in them and in their subfolders, also with .gz or .zst), and in
// stdin if a path is "-". The content of a file determines its format and compression. Links to files are followed; links to folders only
// if they are named in paths.
//
// Broken lines and spans of others are counted, and so are files inside a folder that cannot be read, as long as others can. The error
// reports a path that cannot be read, or more than [MaxSpans] lock spans, or is the cause with which ctx was cancelled. After a
// cancellation Read returns at once, even while stdin or a pipe blocks; a goroutine then ends when that does.
func Read(ctx context.Context, paths []string, stdin io.Reader) (*Spans, error) {
	type result struct {
		spans *Spans
		err   error
	}
	done := make(chan result, 1)
	go func() {
		spans, err := read(ctx, paths, stdin, MaxSpans)
		done <- result{spans, err}
	}()
	select {
	case r := <-done:
		return r.spans, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func read(ctx context.Context, paths []string, stdin io.Reader, maxSpans int) (*Spans, error) {
	in := input{spans: newSpans(maxSpans), parsing: semaphore.NewWeighted(maxParsing)}
	files, err := in.expand(paths)
	if err != nil {
		return nil, err
	}
	for i, f := range files {
		err := in.file(ctx, i, f, stdin)
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(files) > 0 && in.spans.reading.Files == 0 {
		return nil, in.unreadable
	}
	if err := in.spans.finish(); err != nil {
		return nil, err
	}
	return in.spans, nil
}

// maxParsing bounds the bytes of the documents that are parsed at the same time. A longer document is parsed alone.
const maxParsing = 64 << 20

type input struct {
	spans   *Spans
	parsing *semaphore.Weighted
	// unreadable is the first error about something inside a folder.
	unreadable error
}

// source is a file to read. It is found if it was not named itself, but is in a folder that was.
type source struct {
	path  string
	found bool
}

// expand replaces folders by the files in them.
func (in *input) expand(paths []string) ([]source, error) {
	var files []source
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case path == "-":
			files = append(files, source{path: path})
		case err != nil:
			return nil, inputError(path, err)
		case !info.IsDir():
			files = append(files, source{path: path})
		default:
			found, err := in.folder(path)
			if err != nil {
				return nil, err
			}
			files = append(files, found...)
		}
	}
	return files, nil
}

// folder finds the files of a folder. It does not follow links to folders, which may form a cycle.
func (in *input) folder(path string) (files []source, err error) {
	root, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, inputError(path, err)
	}
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		shown := filepath.Join(path, strings.TrimPrefix(name, root))
		switch {
		case err != nil && name == root:
			return inputError(path, err)
		case err != nil:
			in.skip(shown, err)
		case hasTraces(name) && isFile(name, d):
			files = append(files, source{shown, true})
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(files) > 0:
		return files, nil
	case in.unreadable != nil:
		return nil, in.unreadable
	}
	return nil, fmt.Errorf("%s: there is no *.json or *.jsonl (or one of them with .gz or .zst) in this folder", path)
}

// isFile reports whether a folder's entry is a file or a link to one. A dangling link counts: opening it reports the error.
func isFile(name string, d fs.DirEntry) bool {
	if d.Type()&fs.ModeSymlink == 0 {
		return d.Type().IsRegular()
	}
	info, err := os.Stat(name)
	return err != nil || info.Mode().IsRegular()
}

// skip counts a file or folder inside a folder that cannot be read.
func (in *input) skip(path string, err error) {
	err = inputError(path, err)
	if in.unreadable == nil {
		in.unreadable = err
	}
	in.spans.reading.Unreadable++
	in.spans.problem(problemUnreadable, place{path: path}, err.Error())
}

// hasTraces reports whether a file's name is one that traces have. Before .gz or .zst a name may also end in a time, such as
// -2026-09-14t05-02-14.173: the Collector puts it there when it starts a new file.
func hasTraces(name string) bool {
	name = strings.ToLower(filepath.Base(name))
	plain, packed := strings.CutSuffix(name, ".gz")
	if !packed {
		plain, packed = strings.CutSuffix(name, ".zst")
	}
	return strings.HasSuffix(plain, ".json") || strings.HasSuffix(plain, ".jsonl") ||
		packed && (strings.Contains(plain, ".json-2") || strings.Contains(plain, ".jsonl-2"))
}

// inputError reports a file or folder that cannot be read.
func inputError(path string, err error) error {
	var of *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: there is no such file or folder", path)
	case errors.As(err, &of):
		return fmt.Errorf("%s: %w", of.Path, of.Err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

func (in *input) file(ctx context.Context, number int, of source, stdin io.Reader) error {
	path, from := of.path, stdin
	if path == "-" {
		path = "standard input"
	} else {
		f, err := os.Open(path) //nolint:gosec // the caller names the file
		switch {
		case err != nil && of.found:
			in.skip(path, err)
			return nil
		case err != nil:
			return inputError(path, err)
		}
		defer func() { _ = f.Close() }()
		from = f
	}
	at := place{file: number, path: path}
	in.spans.reading.Files++
	read := &counter{from: untilCancelled{ctx, from}}
	text, err := decompress(read)
	if err != nil {
		at.line = 1
		in.spans.broken(at, err)
		return nil
	}
	in.documents(ctx, at, read, text)
	return nil
}

// documents cuts a file into documents, and parses as many at a time as there are processors.
func (in *input) documents(ctx context.Context, at place, file *counter, content *bufio.Reader) {
	var parsing sync.WaitGroup
	defer parsing.Wait()
	splitDocuments(file, content, maxDocument, func(d document) {
		at.line = d.line
		if d.err != nil {
			in.spans.broken(at, d.err)
			return
		}
		size := min(max(int64(len(d.data)), int64(maxParsing/runtime.GOMAXPROCS(0))), maxParsing)
		if in.parsing.Acquire(ctx, size) != nil { // ctx is cancelled
			return
		}
		to := batch{in.spans, at}
		parsing.Go(func() {
			defer in.parsing.Release(size)
			to.parse(d.data)
		})
	})
}

// untilCancelled is a reader that fails when the context is cancelled.
type untilCancelled struct {
	ctx context.Context
	io.Reader
}

func (u untilCancelled) Read(p []byte) (int, error) {
	if err := context.Cause(u.ctx); err != nil {
		return 0, err
	}
	return u.Reader.Read(p)
}

func (b batch) parse(document []byte) {
	read := formatOf(document)
	if read == nil {
		b.broken(errors.New("it is neither OTLP nor the JSON of Jaeger's query API"))
		return
	}
	if err := checkBounds(document); err != nil {
		b.broken(err)
		return
	}
	if err := read(document, b); err != nil {
		short, _, _ := strings.Cut(err.Error(), ", error found in") // the rest quotes the document
		b.broken(errors.New("broken JSON: " + short))
	}
}
