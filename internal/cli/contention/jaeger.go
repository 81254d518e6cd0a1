package contention

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	Logs      []struct {
		Timestamp json.Number `json:"timestamp"`
		Fields    []jaegerTag `json:"fields"`
	} `json:"logs"`
	ProcessID string `json:"processID"`
}

type jaegerTag struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

// text returns a string's content, and any other value as it is written.
func (t *jaegerTag) text() string {
	var s string
	if len(t.Value) > 0 && t.Value[0] == '"' && json.Unmarshal(t.Value, &s) == nil {
		return s
	}
	return string(t.Value)
}

var errNotJaeger = errors.New(`"data" is not a list of traces`)

// readJaeger reads an answer of Jaeger's query API, one trace at a time. Of a document that is cut off it reads the complete traces.
func readJaeger(document []byte, to batch) error {
	d := json.NewDecoder(bytes.NewReader(document))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errNotJaeger
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		if name == "data" {
			err = readJaegerTraces(d, to)
		} else {
			var skipped json.RawMessage
			err = d.Decode(&skipped)
		}
		if err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

func readJaegerTraces(d *json.Decoder, to batch) error {
	switch t, err := d.Token(); {
	case err != nil:
		return err
	case t == nil: // the query found nothing
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
			// The rest of the trace was decoded.
			to.broken(fmt.Errorf("a trace of Jaeger's has %s where it should have %s", wrong.Value, wrong.Type))
		}
		to.spans.mu.Lock()
		for i := range trace.Spans {
			from := &trace.Spans[i]
			readJaegerSpan(from, trace.Processes[from.ProcessID].ServiceName, to)
		}
		to.spans.mu.Unlock()
	}
	_, err := d.Token()
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func readJaegerSpan(from *jaegerSpan, service string, to batch) {
	s := parsedSpan{name: from.Name, service: service}
	parseHex(s.trace[:], from.TraceID)
	parseHex(s.id[:], from.SpanID)
	s.start = microseconds(from.StartTime)
	s.end = s.start + microseconds(from.Duration)
	for i := range from.Tags {
		s.set(from.Tags[i].Key, from.Tags[i].text())
	}
	for _, log := range from.Logs {
		e := s.newEvent("", microseconds(log.Timestamp))
		for i := range log.Fields {
			if f := &log.Fields[i]; f.Key == "event" {
				e.name = f.text()
			} else {
				e.set(f.Key, f.text())
			}
		}
		s.addEvent(&e)
	}
	to.add(&s)
}

// microseconds returns a time or duration in nanoseconds; 0 for anything else, and for times after the year 2116.
func microseconds(n json.Number) int64 {
	us := integer(string(n))
	if us < 0 || us > 1<<62/1000 {
		return 0
	}
	return us * 1000
}
