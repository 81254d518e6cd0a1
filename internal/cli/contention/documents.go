package contention

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxDocument bounds a document, so that memory stays bounded. A batch of the Collector is a few MB.
const maxDocument = 256 << 20

// splitter cuts a stream into documents: a line each, or one over many lines, or a mixture. It never fails on what a document
// holds, and finds its way back after one that ends in the middle, as a killed process leaves it.
type splitter struct {
	in *bufio.Reader
	// take gives a document away: it is the taker's from then on.
	take func(line int, document []byte) error
	// refuse says why something at a line is no document.
	refuse func(line int, why string)
	// buffer gives memory for a line.
	buffer func() []byte
	// longest bounds a document.
	longest int

	line int // of what was read last, from 1
	// open is a document over several lines, from line begun on, in which depth braces and brackets are open.
	open  []byte
	begun int
	depth int
}

var (
	errTooLong = errors.New("it is longer than a document may be (256 MiB)")
	byteOrder  = []byte("\xef\xbb\xbf")
)

func (s *splitter) split() error {
	for {
		line, err := s.next()
		if s.line == 1 {
			line = bytes.TrimPrefix(line, byteOrder)
		}
		switch {
		case errors.Is(err, errTooLong):
			s.refuse(s.line, err.Error())
			s.open = nil
			continue
		case err != nil && !errors.Is(err, io.EOF):
			s.refuse(s.line, err.Error()) // such as the end of a compressed file that is missing
			return s.flush()
		}
		if err := s.feed(line); err != nil {
			return err
		}
		if err != nil {
			return s.flush()
		}
	}
}

// next reads a line.
func (s *splitter) next() (line []byte, err error) {
	s.line++
	line = s.buffer()
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

// feed takes a line in.
func (s *splitter) feed(line []byte) error {
	if s.open != nil && startsDocument(line) {
		if err := s.flush(); err != nil { // that one was cut off
			return err
		}
	}
	trimmed := bytes.TrimSpace(line)
	switch {
	case s.open != nil:
		if len(s.open)+len(line) > s.longest {
			s.refuse(s.begun, errTooLong.Error())
			s.open = nil
			return nil
		}
		s.open = append(s.open, line...)
	case len(trimmed) == 0:
		return nil
	case trimmed[0] != '{':
		s.refuse(s.line, "no JSON object begins here")
		return nil
	case trimmed[len(trimmed)-1] == '}':
		return s.pieces(s.line, trimmed)
	default:
		s.open, s.begun, s.depth = line, s.line, 0
	}
	if s.depth += depth(line); s.depth <= 0 {
		return s.flush()
	}
	return nil
}

// flush gives away the document that is open, whole or not.
func (s *splitter) flush() error {
	if s.open == nil {
		return nil
	}
	document := s.open
	s.open = nil
	return s.pieces(s.begun, bytes.TrimSpace(document))
}

// pieces gives a document away. Where a process was killed while it wrote, and another went on in the same file, the line has two.
func (s *splitter) pieces(line int, document []byte) error {
	for firstKey(document) != "result" {
		next := bytes.Index(document[1:], otlpStart) + 1
		if next == 0 {
			break
		}
		if err := s.take(line, bytes.Clone(document[:next])); err != nil {
			return err
		}
		document = document[next:]
	}
	return s.take(line, document)
}

// otlpStart begins a document, and stands nowhere else: inside of a string the quotation mark would be escaped.
var otlpStart = []byte(`{"resourceSpans"`)

// startsDocument reports whether a line begins one, and does not go on with another.
func startsDocument(line []byte) bool {
	if len(line) == 0 || line[0] != '{' {
		return false
	}
	switch firstKey(line) {
	case "resourceSpans", "resourceLogs", "resourceMetrics", "data", "result":
		return true
	}
	return false
}

// firstKey is that of a JSON object, empty if there is none.
func firstKey(document []byte) string {
	rest, ok := bytes.CutPrefix(bytes.TrimSpace(document[:min(len(document), 256)]), []byte("{"))
	if !ok {
		return ""
	}
	rest, ok = bytes.CutPrefix(bytes.TrimSpace(rest), []byte(`"`))
	if !ok {
		return ""
	}
	name, _, ok := bytes.Cut(rest, []byte(`"`))
	if !ok {
		return ""
	}
	return string(name)
}

// depth is how many more braces and brackets a line opens than it closes. No string goes beyond a line.
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
