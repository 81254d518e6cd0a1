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
	"runtime/debug"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// InputError is something that was to be read and cannot be.
type InputError struct {
	// Path is what was named, and Reason why it cannot be read.
	Path, Reason string
}

func (e *InputError) Error() string { return fmt.Sprintf("%s: %s", e.Path, e.Reason) }

// SpareMemory makes the process collect its garbage earlier, for a program that does nothing else than make a report: of a million spans
// that costs a second, and saves a third of a GiB. Where the environment has GOGC, that is left as it is.
func SpareMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

// inWork bounds the bytes of the documents that are parsed at a time; a longer one is parsed alone.
const inWork = 64 << 20

// Read reads all spans of files, of folders (their *.json and *.jsonl, also with .gz or .zst, and those of the folders in them), and of stdin where a
// path is "-". Whether a file is compressed, and what it holds, is found by looking at it. Links to files are followed, and a link to a
// folder if it is named itself.
//
// Broken lines and foreign spans are counted, and so are files and folders inside of a folder that cannot be read, where others can. The
// error is an *InputError if a path cannot be read at all, or the cause with which ctx was cancelled. Then Read returns at once, also
// where stdin does not, which is left to a goroutine that ends when stdin does.
func Read(ctx context.Context, paths []string, stdin io.Reader) (*Spans, error) {
	in := input{spans: newSpans(), work: semaphore.NewWeighted(inWork)}
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
	in.spans.finish()
	return in.spans, nil
}

// source is a file, and whether it was found in a folder, and not named itself.
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

// folder finds the files of one. Links to folders inside of it are not followed: they may lead around in a circle.
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
			in.cannotRead(shown, err)
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
	return nil, &InputError{path, "there is no *.json or *.jsonl (or one of them with .gz or .zst) in this folder"}
}

// isFile reports whether an entry is one, or a link to one.
func isFile(name string, d fs.DirEntry) bool {
	if d.Type()&fs.ModeSymlink == 0 {
		return d.Type().IsRegular()
	}
	info, err := os.Stat(name)
	return err != nil || info.Mode().IsRegular() // what leads nowhere is told when it is opened
}

// cannotRead counts something inside of a folder.
func (in *input) cannotRead(path string, err error) {
	err = inputError(path, err)
	if in.unreadable == nil {
		in.unreadable = err
	}
	in.spans.unreadable(path, err)
}

// hasTraces tells by its name whether a file in a folder may have traces. One that is compressed may have a time between its endings: the Collector
// puts it before the last one when it starts a new file.
func hasTraces(name string) bool {
	name = strings.ToLower(filepath.Base(name))
	if plain, packed := strings.CutSuffix(name, ".gz"); packed {
		name = beforeTime(plain)
	} else if plain, packed := strings.CutSuffix(name, ".zst"); packed {
		name = beforeTime(plain)
	}
	return strings.HasSuffix(name, ".json") || strings.HasSuffix(name, ".jsonl")
}

// beforeTime is a name without a time at its end, such as -2026-09-14t05-02-14.173.
func beforeTime(name string) string {
	for _, ending := range []string{".json-2", ".jsonl-2"} {
		if i := strings.LastIndex(name, ending); i >= 0 {
			return name[:i+len(ending)-len("-2")]
		}
	}
	return name
}

func inputError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &InputError{path, "there is no such file or folder"}
	}
	var of *fs.PathError
	if errors.As(err, &of) {
		return &InputError{of.Path, of.Err.Error()}
	}
	return &InputError{path, err.Error()}
}

// input is what reads: documents are cut off one after the other, and parsed several at a time.
type input struct {
	spans   *Spans
	work    *semaphore.Weighted
	buffers sync.Pool // of *[]byte
	// unreadable is the first of what is inside of a folder and cannot be read.
	unreadable error
}

func (in *input) file(ctx context.Context, number int, of source, stdin io.Reader) error {
	path, from := of.path, stdin
	if path == "-" {
		path = "standard input"
	} else {
		f, err := open(ctx, path)
		switch {
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil && of.found:
			in.cannotRead(path, err)
			return nil
		case err != nil:
			return inputError(path, err)
		}
		defer func() { _ = f.Close() }()
		from = f
	}
	if info, err := os.Stat(of.path); err != nil || !info.Mode().IsRegular() { // it may be a pipe
		p := &patient{ctx: ctx, from: from}
		defer p.stop()
		from = p
	}
	at := place{file: number, path: path}
	in.spans.reading.Files++
	buffered := bufio.NewReaderSize(from, 1<<20)
	text, err := unpacked(buffered)
	if err != nil {
		in.spans.broken(at.line(1), err)
		return nil
	}
	return in.documents(ctx, at, text)
}

// documents parses those of one file.
func (in *input) documents(ctx context.Context, at place, from *bufio.Reader) error {
	var parsing errgroup.Group
	parsing.SetLimit(runtime.GOMAXPROCS(0))
	take := func(line int, document []byte) error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		size := min(int64(len(document)), inWork)
		if err := in.work.Acquire(ctx, size); err != nil {
			return context.Cause(ctx)
		}
		parsing.Go(func() error {
			defer in.work.Release(size)
			in.parse(document, visitor{in.spans, at.line(line)})
			in.recycle(document)
			return nil
		})
		return nil
	}
	refuse := func(line int, why string) { in.spans.broken(at.line(line), errors.New(why)) }
	var err error
	if isFramed(from) {
		f := framed{in: from, take: take, refuse: refuse, longest: maxDocument}
		err = f.split()
	} else {
		s := splitter{in: from, take: take, refuse: refuse, buffer: in.buffer, longest: maxDocument}
		err = s.split()
	}
	if waited := parsing.Wait(); err == nil {
		err = waited
	}
	return err
}

// keptBuffer bounds the buffers that are used again.
const keptBuffer = 4 << 20

func (in *input) buffer() []byte {
	if b, ok := in.buffers.Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return nil
}

func (in *input) recycle(b []byte) {
	if cap(b) <= keptBuffer {
		in.buffers.Put(&b)
	}
}

// parse reads a document in whichever format it is.
func (in *input) parse(document []byte, each visitor) {
	read := formatOf(document)
	if read == nil {
		each.broken(errors.New("it is neither OTLP nor the JSON of Jaeger's query API"))
		return
	}
	if err := read(document, each); err != nil {
		short, _, _ := strings.Cut(err.Error(), ", error found in") // what follows quotes the document
		each.broken(errors.New("broken JSON: " + short))
	}
}
