package contention

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// readOTLP gives to each what one ExportTraceServiceRequest in OTLP's JSON encoding holds. A document that is broken gives nothing.
func readOTLP(document []byte, each visitor) error {
	return readTraces(&ptrace.JSONUnmarshaler{}, document, each)
}

// protobufStart is how one in protobuf begins: with its first field. Documents are trimmed, and JSON does not begin so.
const protobufStart = '\n'

// readProtobuf reads one in OTLP's protobuf encoding.
func readProtobuf(document []byte, each visitor) error {
	return readTraces(&ptrace.ProtoUnmarshaler{}, document, each)
}

func readTraces(with ptrace.Unmarshaler, document []byte, each visitor) error {
	traces, err := with.UnmarshalTraces(document)
	if err != nil {
		return err
	}
	each.lock()
	defer each.unlock()
	var s span
	for _, resource := range traces.ResourceSpans().All() {
		service := ""
		if v, ok := resource.Resource().Attributes().Get("service.name"); ok {
			service = v.AsString()
		}
		for _, scope := range resource.ScopeSpans().All() {
			for _, from := range scope.Spans().All() {
				k, ok := kindOf[from.Name()]
				if !ok {
					each.foreign(service, from.Name(), func(key string) string {
						if v, ok := from.Attributes().Get(key); ok {
							return valueText(v)
						}
						return ""
					})
				} else {
					s.reset()
					s.kind = k
					s.fromOTLP(from)
					each.span(service, &s)
				}
				s.lossesFromOTLP(from, each)
			}
		}
	}
	return nil
}

func (s *span) fromOTLP(from ptrace.Span) {
	s.trace, s.id = traceID(from.TraceID()), spanID(from.SpanID())
	s.start, s.end = nanoseconds(from.StartTimestamp()), nanoseconds(from.EndTimestamp())
	for k, v := range from.Attributes().All() {
		s.attribute(k, valueText(v))
	}
	for _, event := range from.Events().All() {
		switch event.Name() {
		case telemetry.EventBlockedBy:
			var b blockedBy
			for k, v := range event.Attributes().All() {
				b.attribute(k, valueText(v))
			}
			s.blockers = append(s.blockers, b)
		case telemetry.EventDrained:
			s.drained = nanoseconds(event.Timestamp())
		case telemetry.EventExpired:
			s.expired = nanoseconds(event.Timestamp())
		}
	}
}

// lossesFromOTLP gives the losses that a span tells of: it may be anybody's who held.
func (s *span) lossesFromOTLP(from ptrace.Span, each visitor) {
	for _, event := range from.Events().All() {
		if event.Name() != telemetry.EventLost {
			continue
		}
		s.reset()
		s.lost(traceID(from.TraceID()), spanID(from.SpanID()), nanoseconds(event.Timestamp()))
		for k, v := range event.Attributes().All() {
			s.attribute(k, valueText(v))
		}
		each.loss(s)
	}
}

// nanoseconds is 0 for a time that has no place in 64 bits.
func nanoseconds(t pcommon.Timestamp) int64 {
	return max(int64(t), 0) //nolint:gosec // what overflows is negative, and so 0
}

func valueText(v pcommon.Value) string {
	if v.Type() == pcommon.ValueTypeStr {
		return v.Str()
	}
	return v.AsString()
}
