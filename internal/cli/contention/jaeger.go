package contention

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// jaegerTrace is one element of "data" in an answer of Jaeger's query API.
type jaegerTrace struct {
	Spans     []jaegerSpan `json:"spans"`
	Processes map[string]struct {
		ServiceName string `json:"serviceName"`
	} `json:"processes"`
}

type jaegerSpan struct {
	TraceID   string      `json:"traceID"`
	SpanID    string      `json:"spanID"`
	Name      string      `json:"operationName"`
	StartTime json.Number `json:"startTime"` // microseconds
	Duration  json.Number `json:"duration"`  // microseconds
	Tags      []jaegerTag `json:"tags"`
	Logs      []jaegerLog `json:"logs"`
	ProcessID string      `json:"processID"`
}

type jaegerLog struct {
	Timestamp json.Number `json:"timestamp"`
	Fields    []jaegerTag `json:"fields"`
}

type jaegerTag struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

// text is the value as text: a string's content, and everything else as it stands there.
func (t *jaegerTag) text() string {
	var s string
	if len(t.Value) > 0 && t.Value[0] == '"' && json.Unmarshal(t.Value, &s) == nil {
		return s
	}
	return string(t.Value)
}

var errNotJaeger = errors.New(`"data" is not a list of traces`)

// readJaeger gives to each what an answer of Jaeger's query API holds, one trace at a time. Of a document that ends too early it gives the
// traces before its end.
func readJaeger(document []byte, each visitor) error {
	d := json.NewDecoder(bytes.NewReader(document))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errNotJaeger
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		if name != "data" {
			var skipped json.RawMessage
			if err := d.Decode(&skipped); err != nil {
				return err
			}
			continue
		}
		if err := readJaegerTraces(d, each); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	return nil
}

func readJaegerTraces(d *json.Decoder, each visitor) error {
	switch t, err := d.Token(); {
	case err != nil:
		return err
	case t == nil: // nothing was found
		return nil
	case t != json.Delim('['):
		return errNotJaeger
	}
	for d.More() {
		var trace jaegerTrace
		if err := d.Decode(&trace); err != nil {
			var wrong *json.UnmarshalTypeError
			if !errors.As(err, &wrong) {
				return err
			}
			// The rest of it was decoded.
			each.broken(fmt.Errorf("a trace of Jaeger's has %s where it should have %s", wrong.Value, wrong.Type))
		}
		trace.give(each)
	}
	_, err := d.Token()
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (t *jaegerTrace) give(each visitor) {
	each.lock()
	defer each.unlock()
	var s span
	for i := range t.Spans {
		from := &t.Spans[i]
		service := t.Processes[from.ProcessID].ServiceName
		k, ok := kindOf[from.Name]
		if !ok {
			each.foreign(service, from.Name, from.tag)
		} else {
			s.reset()
			s.kind = k
			s.fromJaeger(from)
			each.span(service, &s)
		}
		for j := range from.Logs {
			if l := &from.Logs[j]; l.name() == telemetry.EventLost {
				s.reset()
				s.lost(parseTraceID(from.TraceID), parseSpanID(from.SpanID), microseconds(l.Timestamp))
				s.tags(l.Fields)
				each.loss(&s)
			}
		}
	}
}

func (s *span) fromJaeger(from *jaegerSpan) {
	s.trace = parseTraceID(from.TraceID)
	s.id = parseSpanID(from.SpanID)
	s.start = microseconds(from.StartTime)
	s.end = s.start + microseconds(from.Duration)
	s.tags(from.Tags)
	for i := range from.Logs {
		l := &from.Logs[i]
		switch l.name() {
		case telemetry.EventBlockedBy:
			var b blockedBy
			for j := range l.Fields {
				b.attribute(l.Fields[j].Key, l.Fields[j].text())
			}
			s.blockers = append(s.blockers, b)
		case telemetry.EventDrained:
			s.drained = microseconds(l.Timestamp)
		case telemetry.EventExpired:
			s.expired = microseconds(l.Timestamp)
		}
	}
}

// tag is the value of one, empty if there is none.
func (from *jaegerSpan) tag(key string) string {
	for i := range from.Tags {
		if from.Tags[i].Key == key {
			return from.Tags[i].text()
		}
	}
	return ""
}

func (s *span) tags(all []jaegerTag) {
	for i := range all {
		s.attribute(all[i].Key, all[i].text())
	}
}

// name is the event's.
func (l *jaegerLog) name() string {
	for i := range l.Fields {
		if l.Fields[i].Key == "event" {
			return l.Fields[i].text()
		}
	}
	return ""
}

// microseconds is a time or duration in nanoseconds; 0 for one that is none or is beyond the year 2116.
func microseconds(n json.Number) int64 {
	us := integer(string(n))
	if us < 0 || us > 1<<62/1000 {
		return 0
	}
	return us * 1000
}
