package contention

import (
	"bytes"
	"encoding/json"
)

// formatOf finds what reads a document, by its first key, or else by what it holds. It is nil if nothing does.
func formatOf(document []byte) func([]byte, visitor) error {
	if len(document) > 0 && document[0] == protobufStart {
		return readProtobuf
	}
	switch firstKey(document) {
	case "resourceSpans":
		return readOTLP
	case "resourceLogs", "resourceMetrics":
		return readNothing
	case "result":
		return readResult
	case "data":
		return readJaeger
	}
	switch {
	case bytes.Contains(document, []byte(`"resourceSpans"`)):
		return readOTLP
	case bytes.Contains(document, []byte(`"data"`)) && bytes.Contains(document, []byte(`"spans"`)):
		return readJaeger
	case bytes.Equal(document, []byte("{}")):
		return readNothing
	}
	return nil
}

// readNothing is for what the Collector writes beside traces.
func readNothing([]byte, visitor) error { return nil }

// readResult reads what version 3 of Jaeger's query API answers: OTLP in an envelope.
func readResult(document []byte, each visitor) error {
	var envelope struct {
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(document, &envelope); err != nil {
		return err
	}
	return readOTLP(envelope.Result, each)
}
