package contention

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// jaegerTrace is one element of "data" in an answer of Jaeger's query API.
type jaegerTrace struct {
	Spans []jaegerSpan `json:"spans"`
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

// readJaeger reads an answer of Jaeger's query API. Values of a wrong type are left out.
func readJaeger(document []byte, to batch) error {
	var answer struct {
		Data []jaegerTrace `json:"data"`
	}
	var wrong *json.UnmarshalTypeError
	if err := json.NewDecoder(bytes.NewReader(document)).Decode(&answer); errors.As(err, &wrong) {
		to.broken(fmt.Errorf("a trace of Jaeger's has %s where it should have %s", wrong.Value, wrong.Type))
	} else if err != nil {
		return err
	}
	to.spans.mu.Lock()
	defer to.spans.mu.Unlock()
	for i := range answer.Data {
		for j := range answer.Data[i].Spans {
			readJaegerSpan(&answer.Data[i].Spans[j], to)
		}
	}
	return nil
}

func readJaegerSpan(from *jaegerSpan, to batch) {
	s := parsedSpan{name: from.Name}
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
