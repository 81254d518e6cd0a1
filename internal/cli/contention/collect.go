package contention

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Spans are the lock spans that were read, for [Analyze].
type Spans struct {
	mu      sync.Mutex
	reading Reading
	symbols *symbols
	seen    map[fullID]struct{}
	records [kinds][]record
	// services and names count, of all spans, what made them and, of foreign ones, what they are called.
	services, names map[string]int
	// types are workflow types, by run ID and by workflow ID.
	types    map[string]string
	problems [problems]problem
}

type fullID struct {
	trace traceID
	span  spanID
}

// place is a line of a file.
type place struct {
	file int // its number in the order of reading
	path string
	at   int
}

func (p place) line(n int) place {
	p.at = n
	return p
}

// problemKind is a way in which something cannot be read.
type problemKind int

const (
	problemBroken problemKind = iota
	problemMalformed
	problemDuplicate
	problemUnreadable
	problems
)

// problem is the first of its kind.
type problem struct {
	place
	text string
}

func newSpans() *Spans {
	return &Spans{symbols: newSymbols(), seen: map[fullID]struct{}{}, services: map[string]int{}, names: map[string]int{}, types: map[string]string{}}
}

// visitor is what the readers give a document's spans to.
type visitor struct {
	spans *Spans
	place place
}

// lock is held while a document's spans are given.
func (v visitor) lock()   { v.spans.mu.Lock() }
func (v visitor) unlock() { v.spans.mu.Unlock() }

// maxNames bounds the different names that are remembered of services and of foreign spans.
const maxNames = 1000

// foreign counts a span that is not Lockstep's. One of a workflow says of which type it is.
func (v visitor) foreign(service, name string, tag func(key string) string) {
	v.count(service)
	count(v.spans.names, name)
	v.spans.learnType(name, tag)
}

func (v visitor) count(service string) {
	v.spans.reading.Spans++
	count(v.spans.services, cmp.Or(service, "(no service name)"))
}

func count(m map[string]int, name string) {
	if _, ok := m[name]; ok || len(m) < maxNames {
		m[name]++
	}
}

// span takes one of Lockstep's.
func (v visitor) span(service string, s *span) {
	v.count(service)
	r := &v.spans.reading
	r.LockSpans++
	if lacks := s.lacks(); lacks != "" {
		r.Malformed++
		trace, id := hexIDs(s.trace, s.id)
		v.spans.problem(problemMalformed, v.place, fmt.Sprintf("span %s of trace %s lacks %s", id, trace, lacks))
		return
	}
	id := fullID{s.trace, s.id}
	if _, twice := v.spans.seen[id]; twice && s.id != (spanID{}) {
		r.Duplicates++
		v.spans.problem(problemDuplicate, v.place, "its spans were read before")
		return
	}
	v.spans.seen[id] = struct{}{}
	if s.kind == kindRelease {
		return // its hold's span tells more
	}
	v.spans.records[s.kind] = append(v.spans.records[s.kind], v.spans.symbols.keep(s))
}

// loss takes what a span, of any party, tells of a lost lock. A span that is read twice tells it twice: findLosses knows.
func (v visitor) loss(s *span) {
	if s.lacks() == "" && s.texts[textResource] != "" {
		v.spans.records[kindLost] = append(v.spans.records[kindLost], v.spans.symbols.keep(s))
	}
}

func (v visitor) broken(err error) { v.spans.broken(v.place, err) }

func (s *Spans) broken(at place, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading.Broken++
	s.problem(problemBroken, at, err.Error())
}

// unreadable counts a file or folder that cannot be read.
func (s *Spans) unreadable(path string, err error) {
	s.reading.Unreadable++
	s.problem(problemUnreadable, place{path: path}, err.Error())
}

// problem keeps the first of each kind, whichever is found first.
func (s *Spans) problem(kind problemKind, at place, text string) {
	p := &s.problems[kind]
	if p.text == "" || at.file < p.file || at.file == p.file && at.at < p.at {
		*p = problem{at, text}
	}
}

// finish is called when all is read.
func (s *Spans) finish() {
	s.seen = nil
	s.symbols.finish()
	found := slices.SortedStableFunc(slices.Values(s.problems[:]), func(x, y problem) int {
		return cmp.Or(cmp.Compare(x.file, y.file), cmp.Compare(x.at, y.at))
	})
	for _, p := range found {
		switch {
		case p.text == "":
		case p.at == 0: // it names what it is about
			s.reading.Problems = append(s.reading.Problems, oneLine(p.text))
		default:
			s.reading.Problems = append(s.reading.Problems, fmt.Sprintf("%s:%d: %s", p.path, p.at, oneLine(p.text)))
		}
	}
}

// oneLine is text without line ends, and short: some errors quote what they could not read.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if runes := []rune(text); len(runes) > 200 {
		return string(runes[:200]) + "…"
	}
	return text
}

// ErrNoLockSpans is that nothing was read that Lockstep had written.
var ErrNoLockSpans = errors.New("no lock spans were found")

// Empty is nil if there are lock spans, or else an ErrNoLockSpans that says what was found, and what to do.
func (s *Spans) Empty() error {
	r := s.reading
	if r.LockSpans > r.Malformed {
		return nil
	}
	const remedy = "Do the workers export traces (an OpenTelemetry SDK with an exporter, given to Lockstep or set as the global one), and were " +
		"these files exported from the services that run them?"
	first := ""
	if len(r.Problems) > 0 {
		first = " (the first: " + r.Problems[0] + ")"
	}
	switch {
	case r.LockSpans > 0:
		return fmt.Errorf("%w that can be used: %d lack what they need%s", ErrNoLockSpans, r.Malformed, first)
	case r.Spans > 0:
		return fmt.Errorf("%w among %s of %s, such as %s. %s", ErrNoLockSpans, many(r.Spans, "span"), most(s.services, "services"), most(s.names, "names"), remedy)
	case r.Broken > 0:
		return fmt.Errorf("%w: nothing in %s is OTLP or the JSON of Jaeger's query API; %s%s",
			ErrNoLockSpans, many(r.Files, "file"), many(r.Broken, "broken line"), first)
	}
	return fmt.Errorf("%w: there are no spans at all in %s. %s", ErrNoLockSpans, many(r.Files, "file"), remedy)
}

// most names the three most frequent.
func most(counts map[string]int, what string) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if d := counts[b] - counts[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	more := ""
	if len(names) > 3 {
		more = fmt.Sprintf(" and %d more %s", len(names)-3, what)
	}
	var quoted []string
	for _, name := range names[:min(len(names), 3)] {
		quoted = append(quoted, fmt.Sprintf("%q", oneLine(name)))
	}
	return strings.Join(quoted, ", ") + more
}
