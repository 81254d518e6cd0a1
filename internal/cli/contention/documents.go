package contention

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// maxDocument bounds a document, and so the memory it takes. A batch of the Collector has a few MB.
const maxDocument = 64 << 20

const (
	gzipMagic = "\x1f\x8b"
	zstdMagic = "\x28\xb5\x2f\xfd"
	// frameHeader is the size of a message's length, which is big endian.
	frameHeader = 4
	// protobufStart is the first byte of a request in protobuf: its first field. Documents are trimmed, and JSON does not begin so.
	protobufStart = '\n'
)

var (
	errTooLong    = errors.New("it is longer than a document may be (64 MiB)")
	byteOrderMark = []byte("\xef\xbb\xbf")
	// otlpStart begins a document, and occurs nowhere inside one: in a string the quotation mark would be escaped.
	otlpStart = []byte(`{"resourceSpans"`)
)

// document is a part of a file that can be parsed alone, or the error why there is none at a line. For a file of messages, line is the
// number of the message.
type document struct {
	line int
	data []byte
	err  error
}

// decompress returns the content of a file that is compressed as a whole, or of another one. The content comes in small pieces, so that
// a false claim about its size takes no memory.
func decompress(file *counter) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(file, 1<<20)
	var content io.Reader
	var err error
	switch magic, _ := in.Peek(len(zstdMagic)); {
	case strings.HasPrefix(string(magic), gzipMagic):
		content, err = gzip.NewReader(in)
	case string(magic) == zstdMagic:
		content, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
	default:
		return in, nil
	}
	if err != nil {
		return nil, err
	}
	return bufio.NewReaderSize(&expanding{counter{from: content}, file}, 1<<20), nil
}

// splitDocuments calls each with the documents in the content of a file, none of which is longer than longest bytes.
func splitDocuments(file *counter, in *bufio.Reader, longest int, each func(document)) {
	// The Collector's file exporter writes messages with their lengths before them if it writes protobuf, or, in some versions, if it
	// compresses. No text begins so. A message in protobuf is recognized if it has less than 32 MiB.
	start, _ := in.Peek(frameHeader + len(zstdMagic))
	if len(start) > frameHeader && (string(start[frameHeader:]) == zstdMagic || start[0] <= 1 && start[frameHeader] == protobufStart) {
		splitMessages(file, in, longest, each)
		return
	}
	s := splitter{in: in, longest: longest, each: each}
	s.split()
}

// splitMessages stops at a message that is cut off or has an impossible length, since the next one cannot be found, and when the messages
// have become too much.
func splitMessages(file *counter, in *bufio.Reader, longest int, each func(document)) {
	unzip, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(longest))) //nolint:gosec // it is positive
	if err != nil {
		panic(err) // these options are valid
	}
	defer unzip.Close()
	content := int64(0)
	for n := 1; ; n++ {
		d := document{line: n}
		d.data, d.err = nextMessage(in, longest)
		cut := d.err != nil
		switch {
		case errors.Is(d.err, io.EOF):
			return
		case cut:
			d.err = fmt.Errorf("message %d: %w", n, d.err)
		case bytes.HasPrefix(d.data, []byte(zstdMagic)):
			if d.data, d.err = unzip.DecodeAll(d.data, nil); d.err != nil {
				d.err = fmt.Errorf("message %d cannot be decompressed: %w", n, d.err)
			}
			if content += int64(len(d.data)); !file.mayBecome(content) {
				d.err, cut = fmt.Errorf("message %d: %w", n, errExpands), true
			}
		}
		each(d)
		if cut {
			return
		}
	}
}

// nextMessage returns io.EOF only if the file ends before the message begins.
func nextMessage(in *bufio.Reader, longest int) ([]byte, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(in, header[:]); err != nil {
		return nil, err
	}
	size := int64(binary.BigEndian.Uint32(header[:]))
	if size > int64(longest) {
		return nil, errTooLong
	}
	message, err := io.ReadAll(io.LimitReader(in, size)) // and not a buffer of a size that is only claimed
	if err == nil && int64(len(message)) < size {
		err = io.ErrUnexpectedEOF
	}
	return message, err
}

// splitter cuts text into JSON documents: one a line, one over many lines, or a mixture. After a document that ends in the middle, as a
// killed process leaves it, it finds the next.
type splitter struct {
	in      *bufio.Reader
	longest int
	each    func(document)

	line int // the number of the last line that was read, from 1
	// open is a document over several lines; it began on line begun, and depth of its braces and brackets are open.
	open  []byte
	begun int
	depth int
}

func (s *splitter) split() {
	for {
		line, err := s.next()
		if s.line == 1 {
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		switch {
		case err == nil || errors.Is(err, io.EOF):
			s.add(line)
		case errors.Is(err, errTooLong):
			s.open = nil
			s.refuse(s.line, err)
			continue
		default: // such as a compressed file without its end
			s.refuse(s.line, err)
		}
		if err != nil {
			s.flush()
			return
		}
	}
}

func (s *splitter) refuse(line int, err error) { s.each(document{line: line, err: err}) }

// next reads a line, or, if the line is too long, skips it and returns errTooLong.
func (s *splitter) next() (line []byte, err error) {
	s.line++
	tooLong := false
	for {
		part, err := s.in.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > s.longest; !tooLong {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case tooLong && (err == nil || errors.Is(err, io.EOF)):
			return nil, errTooLong
		}
		return line, err
	}
}

func (s *splitter) add(line []byte) {
	if s.open != nil && startsDocument(line) { // the open one was cut off
		s.flush()
	}
	trimmed := bytes.TrimSpace(line)
	switch {
	case s.open != nil && len(s.open)+len(line) > s.longest:
		s.open = nil
		s.refuse(s.begun, errTooLong)
		return
	case s.open != nil:
		s.open = append(s.open, line...)
	case len(trimmed) == 0:
		return
	case trimmed[0] != '{':
		s.refuse(s.line, errors.New("no JSON object begins here"))
		return
	case trimmed[len(trimmed)-1] == '}':
		s.give(s.line, trimmed)
		return
	default:
		s.open, s.begun, s.depth = line, s.line, 0
	}
	if s.depth += depth(line); s.depth <= 0 {
		s.flush()
	}
}

// flush gives away the open document, whether it is complete or not.
func (s *splitter) flush() {
	if s.open != nil {
		s.give(s.begun, bytes.TrimSpace(s.open))
		s.open = nil
	}
}

// give gives a document away, or two: if a process was killed while it wrote, and another continued the file, a line has two.
func (s *splitter) give(line int, data []byte) {
	for firstKey(data) != "result" {
		next := bytes.Index(data[1:], otlpStart) + 1
		if next == 0 {
			break
		}
		s.each(document{line: line, data: data[:next]})
		data = data[next:]
	}
	s.each(document{line: line, data: data})
}

// startsDocument reports whether a line begins a document, rather than continuing one.
func startsDocument(line []byte) bool {
	return len(line) > 0 && line[0] == '{' && formats[firstKey(line)] != nil
}

var keyAtStart = regexp.MustCompile(`^\s*\{\s*"([^"]*)"`)

// firstKey returns the first key of a JSON object, or "".
func firstKey(document []byte) string {
	if found := keyAtStart.FindSubmatch(document[:min(len(document), 256)]); found != nil {
		return string(found[1])
	}
	return ""
}

// depth returns the number of braces and brackets that a line opens, minus the number that it closes. No string continues on the next line.
func depth(line []byte) int {
	n, quoted := 0, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			n++
		case c == '}' || c == ']':
			n--
		}
	}
	return n
}

// formats are the functions that read documents, by first key.
var formats = map[string]func([]byte, batch) error{
	"resourceSpans": readOTLP, "resourceLogs": readNothing, "resourceMetrics": readNothing, "result": readResult, "data": readJaeger,
	"batches": readTempo, "trace": readTempo,
}

// formatOf returns the function that reads a document, found by its first key or else by its content, or nil.
func formatOf(document []byte) func([]byte, batch) error {
	switch read := formats[firstKey(document)]; {
	case len(document) > 0 && document[0] == protobufStart:
		return readProtobuf
	case read != nil:
		return read
	case bytes.Contains(document, otlpStart[1:]):
		return readOTLP
	case bytes.Contains(document, []byte(`"data"`)) && bytes.Contains(document, []byte(`"spans"`)):
		return readJaeger
	case bytes.Equal(document, []byte("{}")):
		return readNothing
	}
	return nil
}

// readNothing accepts the other signals that the Collector writes.
func readNothing([]byte, batch) error { return nil }

// readResult reads an answer of version 3 of Jaeger's query API: OTLP in an envelope.
func readResult(document []byte, to batch) error {
	var envelope struct {
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(document, &envelope); err != nil {
		return err
	}
	return readOTLP(envelope.Result, to)
}
