package contention

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// MaxSpans is the number of lock spans from which a report can be made.
const MaxSpans = 1_000_000

// ErrNoLockSpans is returned if no span was read that Lockstep had written.
var ErrNoLockSpans = errors.New("no lock spans were found")

type (
	traceID [16]byte
	spanID  [8]byte
)

type spanKind uint8

const (
	kindAcquire spanKind = iota + 1
	kindWait
	kindHold
	kindRenew
	kindLeave
	kindRelease
	kindDeadlock
	// kindLost is not a span but an event, on the span of the holder.
	kindLost
	kinds
)

var kindOf = map[string]spanKind{
	telemetry.SpanAcquire:  kindAcquire,
	telemetry.SpanWait:     kindWait,
	telemetry.SpanHold:     kindHold,
	telemetry.SpanRenew:    kindRenew,
	telemetry.SpanLeave:    kindLeave,
	telemetry.SpanRelease:  kindRelease,
	telemetry.SpanDeadlock: kindDeadlock,
}

// lockSpan is one of Lockstep's spans. Times are in nanoseconds since 1970.
type lockSpan struct {
	kind       spanKind
	trace      traceID
	id         spanID
	start, end int64

	resource, lockID, owner, mode, part, order string
	outcome, reason, host, endedBy, cycle      string
	member                                     string

	fence, hold      int64
	position, limit  int64
	priority         int64
	expired, drained int64
	// holdOnly is set for an acquire of a hold without a step.
	holdOnly bool
	// blockedBy are the holds that a wait or a busy acquire names. If namesLast is set, the last one is named by the span's own attributes: the last hold
	// that the waiter saw in its way.
	blockedBy []*namedHold
	namesLast bool
}

// namedHold is a hold as the span of a wait names it.
type namedHold struct {
	lockID, owner string
	fence         int64
	trace         traceID
	span          spanID
}

// request names a part's request for a resource.
type request struct{ resource, lockID, part, order string }

func (s *lockSpan) request() request { return request{s.resource, s.lockID, s.part, s.order} }

// flaw returns what makes the span useless, such as the lack of a necessary attribute, or "".
func (s *parsedSpan) flaw() string {
	if s.tooLong != "" {
		return fmt.Sprintf("has more than %s bytes in %s", thousands(maxText), s.tooLong)
	}
	if lacks := s.lacks(); lacks != "" {
		return "lacks " + lacks
	}
	return ""
}

// lacks returns a necessary attribute that the span does not have, or "".
func (s *lockSpan) lacks() string {
	switch {
	case s.start <= 0 || s.end <= 0:
		return "a time"
	case s.kind == kindRenew || s.kind == kindLost:
		return ""
	case s.resource == "":
		return telemetry.Resource
	case s.lockID == "":
		return telemetry.LockID
	case s.kind == kindHold && s.fence == 0:
		return telemetry.Fence
	}
	return ""
}

// parsedSpan is a span of anybody, or an event on one, while it is read.
type parsedSpan struct {
	lockSpan
	name, service string
	// temporalRun and temporalWorkflow are IDs in the spans of the tracing interceptor of Temporal's SDK.
	temporalRun, temporalWorkflow string
	// last is the hold that the span's own attributes name, and named are the holds that its events name.
	last    namedHold
	named   []namedHold
	lost    []parsedSpan // the events about a lost lock
	tooLong string       // one of Lockstep's attributes whose text no span of Lockstep has
}

// texts and integers contain the fields of the attributes of type string and of type int.
var (
	texts = map[string]func(*parsedSpan) *string{
		telemetry.Resource:       func(s *parsedSpan) *string { return &s.resource },
		telemetry.LockID:         func(s *parsedSpan) *string { return &s.lockID },
		telemetry.Owner:          func(s *parsedSpan) *string { return &s.owner },
		telemetry.Mode:           func(s *parsedSpan) *string { return &s.mode },
		telemetry.Member:         func(s *parsedSpan) *string { return &s.member },
		telemetry.Part:           func(s *parsedSpan) *string { return &s.part },
		telemetry.Order:          func(s *parsedSpan) *string { return &s.order },
		telemetry.Outcome:        func(s *parsedSpan) *string { return &s.outcome },
		telemetry.Reason:         func(s *parsedSpan) *string { return &s.reason },
		telemetry.Host:           func(s *parsedSpan) *string { return &s.host },
		telemetry.EndedBy:        func(s *parsedSpan) *string { return &s.endedBy },
		telemetry.Cycle:          func(s *parsedSpan) *string { return &s.cycle },
		telemetry.BlockedByID:    func(s *parsedSpan) *string { return &s.last.lockID },
		telemetry.BlockedByOwner: func(s *parsedSpan) *string { return &s.last.owner },
		"temporalRunID":          func(s *parsedSpan) *string { return &s.temporalRun },
		"temporalWorkflowID":     func(s *parsedSpan) *string { return &s.temporalWorkflow },
	}
	integers = map[string]func(*parsedSpan) *int64{
		telemetry.Fence:          func(s *parsedSpan) *int64 { return &s.fence },
		telemetry.Hold:           func(s *parsedSpan) *int64 { return &s.hold },
		telemetry.Limit:          func(s *parsedSpan) *int64 { return &s.limit },
		telemetry.Priority:       func(s *parsedSpan) *int64 { return &s.priority },
		telemetry.Position:       func(s *parsedSpan) *int64 { return &s.position },
		telemetry.BlockedByFence: func(s *parsedSpan) *int64 { return &s.last.fence },
	}
)

// set sets an attribute. Integers may come as text, or as floating-point numbers. A text that is too long is not kept.
func (s *parsedSpan) set(key, value string) {
	if field := texts[key]; field != nil {
		if len(value) > maxText {
			s.tooLong = key
			return
		}
		*field(s) = value
	} else if field := integers[key]; field != nil {
		*field(s) = integer(value)
	} else if key == telemetry.HoldOnly {
		s.holdOnly = value == "true"
	} else if key == telemetry.BlockedByTrace {
		parseHex(s.last.trace[:], value)
	} else if key == telemetry.BlockedBySpan {
		parseHex(s.last.span[:], value)
	}
}

// newEvent returns an event on s, whose attributes are set next.
func (s *parsedSpan) newEvent(name string, at int64) parsedSpan {
	return parsedSpan{name: name, lockSpan: lockSpan{trace: s.trace, id: s.id, start: at, end: at, outcome: telemetry.OutcomeLost}}
}

func (s *parsedSpan) addEvent(e *parsedSpan) {
	s.tooLong = cmp.Or(s.tooLong, e.tooLong)
	switch e.name {
	case telemetry.EventBlockedBy:
		s.named = append(s.named, e.last)
	case telemetry.EventDrained:
		s.drained = e.start
	case telemetry.EventExpired:
		s.expired = e.start
	case telemetry.EventLost:
		s.lost = append(s.lost, *e)
	}
}

// Spans are the lock spans that were read, for [Analyze].
type Spans struct {
	mu      sync.Mutex
	max     int
	reading Reading
	byKind  [kinds][]lockSpan
	// types are workflow types, by run ID and by workflow ID.
	types map[string]string
	// services and names count the spans of each service, and the spans of others by their names.
	services, names map[string]int
	problems        [problemKinds]problem

	// The rest finds what was seen before: spans, and the texts and holds that many spans have in common.
	seen  map[fullID]struct{}
	texts map[string]*string
	named map[namedHold]*namedHold
}

type fullID struct {
	trace traceID
	span  spanID
}

// place is a line of a file. Files are numbered in the order of reading.
type place struct {
	file int
	path string
	line int
}

type problemKind int

const (
	problemBroken problemKind = iota
	problemMalformed
	problemDuplicate
	problemUnreadable
	problemKinds
)

// problem is the first of its kind.
type problem struct {
	place
	text string
}

func newSpans(limit int) *Spans {
	return &Spans{
		max: limit, types: map[string]string{}, services: map[string]int{}, names: map[string]int{},
		seen: map[fullID]struct{}{}, texts: map[string]*string{}, named: map[namedHold]*namedHold{},
	}
}

// batch adds the spans of one document. Its methods need the lock of spans, except broken.
type batch struct {
	spans *Spans
	place place
}

// add counts a span, and keeps it if it is Lockstep's.
func (b batch) add(s *parsedSpan) {
	r := &b.spans.reading
	r.Spans++
	s.name, s.service = shortened(s.name), shortened(s.service)
	count(b.spans.services, cmp.Or(s.service, "(no service name)"))
	if kind, ok := kindOf[s.name]; ok {
		s.kind = kind
		r.LockSpans++
		b.keep(s)
	} else {
		count(b.spans.names, s.name)
		b.spans.learnType(s)
	}
	for i := range s.lost { // findLosses removes those of a span that was read twice
		l := &s.lost[i]
		if l.kind = kindLost; l.flaw() == "" && l.resource != "" {
			b.spans.keep(l)
		}
	}
}

func (b batch) keep(s *parsedSpan) {
	r := &b.spans.reading
	if flaw := s.flaw(); flaw != "" {
		r.Malformed++
		trace, id := hexIDs(s.trace, s.id)
		b.spans.problem(problemMalformed, b.place, fmt.Sprintf("span %s of trace %s %s", id, trace, flaw))
		return
	}
	id := fullID{s.trace, s.id}
	if _, twice := b.spans.seen[id]; twice && s.id != (spanID{}) {
		r.Duplicates++
		b.spans.problem(problemDuplicate, b.place, "its spans were read before")
		return
	}
	if r.LockSpans > b.spans.max {
		return // finish refuses them
	}
	b.spans.seen[id] = struct{}{}
	if s.kind != kindRelease { // the hold's own span has more
		b.spans.keep(s)
	}
}

// keep stores a span. Equal texts, and equal named holds, are stored once.
func (s *Spans) keep(p *parsedSpan) {
	for _, field := range texts {
		if text := field(p); *text != "" {
			*text = *intern(s.texts, *text)
		}
	}
	l := p.lockSpan
	l.end = max(l.end, l.start)
	if l.kind == kindWait {
		l.namesLast = p.last.lockID != ""
		if l.namesLast { // most waits name one hold, in both ways
			p.named = append(slices.DeleteFunc(p.named, func(n namedHold) bool { return n == p.last }), p.last)
		}
		for _, n := range p.named {
			l.blockedBy = append(l.blockedBy, intern(s.named, n))
		}
	}
	if l.kind == kindAcquire && p.last.fence != 0 {
		l.blockedBy = append(l.blockedBy, intern(s.named, p.last))
	}
	s.byKind[l.kind] = append(s.byKind[l.kind], l)
}

// intern returns the first of equal values.
func intern[T comparable](known map[T]*T, v T) *T {
	p := known[v]
	if p == nil {
		p = new(v)
		known[v] = p
	}
	return p
}

// learnType takes the type of a workflow from a span of the tracing interceptor of Temporal's Go SDK: the workflow's own span, or its
// client's. It names the run, the workflow ID, or both. Of two types of one workflow ID the greater name stays: files come in any order.
func (s *Spans) learnType(p *parsedSpan) {
	operation, of, _ := strings.Cut(p.name, ":")
	if operation != "RunWorkflow" && operation != "StartWorkflow" {
		return
	}
	for _, id := range []string{p.temporalRun, p.temporalWorkflow} {
		if id != "" && of > s.types[id] {
			s.types[id] = of
		}
	}
}

// shortened returns a name of a few bytes more than maxText at most. The rest of a longer name is not kept in memory.
func shortened(name string) string {
	if len(name) > maxText {
		return wire.Cut(name, maxText) + "…"
	}
	return name
}

// count counts up to 1,000 different names.
func count(m map[string]int, name string) {
	if _, ok := m[name]; ok || len(m) < 1000 {
		m[name]++
	}
}

func (b batch) broken(err error) { b.spans.broken(b.place, err) }

// broken counts a document that cannot be parsed.
func (s *Spans) broken(at place, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading.Broken++
	s.problem(problemBroken, at, err.Error())
}

// problem keeps the first of each kind, in the order of files and lines.
func (s *Spans) problem(kind problemKind, at place, text string) {
	p := &s.problems[kind]
	if p.text == "" || at.file < p.file || at.file == p.file && at.line < p.line {
		*p = problem{at, text}
	}
}

// finish must be called after the last span. It refuses more spans than a report can be made of.
func (s *Spans) finish() error {
	s.seen, s.texts, s.named = nil, nil, nil
	found := slices.SortedStableFunc(slices.Values(s.problems[:]), func(x, y problem) int {
		return cmp.Or(cmp.Compare(x.file, y.file), cmp.Compare(x.line, y.line))
	})
	for _, p := range found {
		switch {
		case p.text == "":
		case p.line == 0: // the text names the file
			s.reading.Problems = append(s.reading.Problems, oneLine(p.text))
		default:
			s.reading.Problems = append(s.reading.Problems, fmt.Sprintf("%s:%d: %s", p.path, p.line, oneLine(p.text)))
		}
	}
	if s.reading.LockSpans > s.max {
		return fmt.Errorf("there are %s spans of locks: a report is made of %s at most; name fewer files, or traces of a shorter time",
			thousands(s.reading.LockSpans), thousands(s.max))
	}
	return nil
}

// Empty returns nil if there are lock spans, or an [ErrNoLockSpans] whose text describes what was found and what to do.
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
		return fmt.Errorf("%w among %s of %s, such as %s. %s", ErrNoLockSpans, many(r.Spans, "span"),
			mostFrequent(s.services, "services"), mostFrequent(s.names, "names"), remedy)
	case r.Broken > 0:
		return fmt.Errorf("%w: nothing in %s is OTLP or the JSON of Jaeger's query API; %s%s",
			ErrNoLockSpans, many(r.Files, "file"), many(r.Broken, "broken line"), first)
	}
	return fmt.Errorf("%w: there are no spans at all in %s. %s", ErrNoLockSpans, many(r.Files, "file"), remedy)
}

// mostFrequent quotes the three most frequent names.
func mostFrequent(counts map[string]int, what string) string {
	names := slices.SortedFunc(maps.Keys(counts), func(x, y string) int {
		return cmp.Or(cmp.Compare(counts[y], counts[x]), strings.Compare(x, y))
	})
	var quoted []string
	for _, name := range names[:min(len(names), 3)] {
		quoted = append(quoted, fmt.Sprintf("%q", oneLine(name)))
	}
	text := strings.Join(quoted, ", ")
	if len(names) > 3 {
		text += fmt.Sprintf(" and %d more %s", len(names)-3, what)
	}
	return text
}

// oneLine shortens text, such as an error that quotes its input, and removes its line ends.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if runes := []rune(text); len(runes) > 200 {
		return string(runes[:200]) + "…"
	}
	return text
}

// integer returns 0 for anything else. Some tools write integers as floating-point numbers.
func integer(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil {
		return n
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || math.Abs(f) >= 1<<63 {
		return 0
	}
	return int64(f)
}

// parseHex fills id from its end, since leading zeros may be missing. If s is not hexadecimal or too long, id stays zero.
func parseHex(id []byte, s string) {
	if len(s) > 2*len(id) {
		return
	}
	padded := strings.Repeat("0", 2*len(id)-len(s)) + s
	if _, err := hex.Decode(id, []byte(padded)); err != nil {
		clear(id)
	}
}

// hexIDs returns the IDs as text, "" if they are zero.
func hexIDs(t traceID, s spanID) (trace, span string) {
	if t == (traceID{}) {
		return "", ""
	}
	if s == (spanID{}) {
		return hex.EncodeToString(t[:]), ""
	}
	both := hex.EncodeToString(append(t[:], s[:]...)) // one allocation for both
	return both[:2*len(t)], both[2*len(t):]
}
