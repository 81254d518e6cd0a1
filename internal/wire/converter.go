package wire

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// compressFrom is the size of JSON from which on a header is compressed: 480 steps in one workflow task may have guards of 100 names each,
	// and the server accepts 4 MB.
	compressFrom = 2000
	// maxHeader bounds what a compressed header may contain.
	maxHeader = 4 << 20
)

// compressed is the JSON of a compressed header.
type compressed struct {
	Gzip []byte `json:"gzip"`
}

// EncodeHeader makes the payload of [HeaderKey] or [DueKey] by a data converter, as for a payload of the workflow. If dc is nil, the payload is
// plain JSON. Over 2 kB are compressed.
func EncodeHeader(dc converter.DataConverter, namespace, workflowID string, v any) (*commonpb.Payload, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("lockstep: write a header: %w", err)
	}
	if len(text) > compressFrom {
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // the level is valid; each replay compresses again
		_, _ = w.Write(text)                            // a buffer accepts everything
		_ = w.Close()
		v = compressed{b.Bytes()}
	}
	if dc == nil {
		dc = converter.GetDefaultDataConverter()
	}
	p, err := ofWorkflow(dc, namespace, workflowID).ToPayload(v)
	if err != nil {
		return nil, fmt.Errorf("lockstep: encode a header by worker.Options.DataConverter: %w", err)
	}
	return p, nil
}

// DecodeHeader reads what EncodeHeader has made. Even with a data converter it accepts plain JSON, so that workers can be given the
// converter one after the other. The error is a *lockcore.InvalidError, or a retryable failure if this worker cannot decode what another
// one has encoded: the step must not run without its locks, and the next attempt may reach a worker that can.
func DecodeHeader[T any](dc converter.DataConverter, namespace, workflowID string, p *commonpb.Payload, header string) (v T, err error) {
	var text json.RawMessage
	reason := "it lacks the worker.Options.DataConverter of the workflow's worker"
	if dc != nil {
		if err = ofWorkflow(dc, namespace, workflowID).FromPayload(p, &text); err != nil {
			reason = Cut(err.Error(), 128)
		}
	}
	if dc == nil || err != nil {
		switch string(p.GetMetadata()[converter.MetadataEncoding]) {
		case converter.MetadataEncodingJSON, "":
			text = p.GetData()
		default:
			return v, temporal.NewApplicationError("lockstep: this worker cannot read the locks of the step: "+reason, FailureUnavailable)
		}
	}
	if err = decodeText(text, &v); err != nil {
		var zero T
		return zero, &lockcore.InvalidError{Field: "header " + header, Value: Cut(err.Error(), 128), Bound: "what Lockstep's workflow side writes"}
	}
	return v, nil
}

// decodeText decodes JSON that may be compressed.
func decodeText(text []byte, v any) error {
	var c compressed
	if json.Unmarshal(text, &c) == nil && len(c.Gzip) > 0 {
		r, err := gzip.NewReader(bytes.NewReader(c.Gzip))
		if err != nil {
			return err
		}
		if text, err = io.ReadAll(io.LimitReader(r, maxHeader)); err != nil {
			return err
		}
	}
	return json.Unmarshal(text, v)
}

func ofWorkflow(dc converter.DataConverter, namespace, workflowID string) converter.DataConverter {
	return converter.WithDataConverterSerializationContext(dc, converter.WorkflowSerializationContext{Namespace: namespace, WorkflowID: workflowID})
}

// DecodeGuard reads the payload of [HeaderKey]. The errors are those of [DecodeHeader]: a guard that the worker does not understand must not be
// ignored.
func DecodeGuard(dc converter.DataConverter, namespace, workflowID string, p *commonpb.Payload) (Guard, error) {
	g, err := DecodeHeader[Guard](dc, namespace, workflowID, p, HeaderKey)
	if err == nil {
		err = g.check()
	}
	if err != nil {
		return Guard{}, err
	}
	return g, nil
}
