package contention

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// readOTLP reads one ExportTraceServiceRequest in OTLP's JSON encoding. A broken document adds nothing.
func readOTLP(document []byte, to batch) error {
	return readTraces(&ptrace.JSONUnmarshaler{}, document, to)
}

// tempoAnswer is an answer of Tempo's query API: version 2 has it in an envelope, and earlier ones have batches.
type tempoAnswer struct {
	Trace         *tempoAnswer    `json:"trace"`
	Batches       json.RawMessage `json:"batches"`
	ResourceSpans json.RawMessage `json:"resourceSpans"`
}

// base64ID is an ID as protobuf's own JSON encoding writes it. OTLP has hexadecimal IDs.
var base64ID = regexp.MustCompile(`"(traceId|spanId|parentSpanId)":\s*"([A-Za-z0-9+/]{11}=|[A-Za-z0-9+/]{22}==)"`)

func readTempo(document []byte, to batch) error {
	var answer tempoAnswer
	if err := json.Unmarshal(document, &answer); err != nil {
		return err
	}
	if answer.Trace != nil {
		answer = *answer.Trace
	}
	spans := base64ID.ReplaceAllFunc(append(answer.Batches, answer.ResourceSpans...), func(found []byte) []byte {
		part := base64ID.FindSubmatch(found)
		id, _ := base64.StdEncoding.DecodeString(string(part[2])) // on an error the ID is empty, and the span malformed
		return fmt.Appendf(nil, `"%s":"%x"`, part[1], id)
	})
	return readOTLP(fmt.Appendf(nil, `{"resourceSpans":%s}`, spans), to)
}

// readProtobuf reads a request in OTLP's protobuf encoding.
func readProtobuf(document []byte, to batch) error {
	return readTraces(&ptrace.ProtoUnmarshaler{}, document, to)
}

func readTraces(with ptrace.Unmarshaler, document []byte, to batch) error {
	traces, err := with.UnmarshalTraces(document)
	if err != nil {
		return err
	}
	to.spans.mu.Lock()
	defer to.spans.mu.Unlock()
	for _, resource := range traces.ResourceSpans().All() {
		service := otlpText(resource.Resource().Attributes(), "service.name")
		for _, scope := range resource.ScopeSpans().All() {
			for _, from := range scope.Spans().All() {
				readOTLPSpan(from, service, to)
			}
		}
	}
	return nil
}

func readOTLPSpan(from ptrace.Span, service string, to batch) {
	s := parsedSpan{name: from.Name(), service: service}
	s.trace, s.id = traceID(from.TraceID()), spanID(from.SpanID())
	s.start, s.end = nanoseconds(from.StartTimestamp()), nanoseconds(from.EndTimestamp())
	for k, v := range from.Attributes().All() {
		s.set(k, valueText(v))
	}
	for _, event := range from.Events().All() {
		e := s.newEvent(event.Name(), nanoseconds(event.Timestamp()))
		for k, v := range event.Attributes().All() {
			e.set(k, valueText(v))
		}
		s.addEvent(&e)
	}
	to.add(&s)
}

func otlpText(attributes pcommon.Map, key string) string {
	if v, ok := attributes.Get(key); ok {
		return v.AsString()
	}
	return ""
}

// nanoseconds returns 0 for a time that does not fit.
func nanoseconds(t pcommon.Timestamp) int64 {
	return max(int64(t), 0) //nolint:gosec // what overflows is negative, and so 0
}

func valueText(v pcommon.Value) string {
	if v.Type() == pcommon.ValueTypeStr {
		return v.Str()
	}
	return v.AsString()
}
