package wire

import (
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
)

// EncodeGuardWith makes the payload of [HeaderKey] by a data converter, as for a payload of the workflow. If dc is nil, the payload is
// plain JSON.
func EncodeGuardWith(dc converter.DataConverter, namespace, workflowID string, g Guard) (*commonpb.Payload, error) {
	if dc == nil {
		return EncodeGuard(g)
	}
	p, err := ofWorkflow(dc, namespace, workflowID).ToPayload(g)
	if err != nil {
		return nil, fmt.Errorf("lockstep: encode the guard of %q by worker.Options.DataConverter: %w", g.Part, err)
	}
	return p, nil
}

// DecodeGuardWith reads the payload of [HeaderKey]. Even with a data converter it accepts plain JSON, so that workers can be given the
// converter one after the other. The error is a *lockcore.InvalidError, or a retryable failure if this worker cannot decode what another
// one has encoded: the step must not run without its locks, and the next attempt may reach a worker that can.
func DecodeGuardWith(dc converter.DataConverter, namespace, workflowID string, p *commonpb.Payload) (Guard, error) {
	reason := "it lacks the worker.Options.DataConverter of the workflow's worker"
	if dc != nil {
		var g Guard
		err := ofWorkflow(dc, namespace, workflowID).FromPayload(p, &g)
		if err == nil {
			return g, g.check()
		}
		reason = Cut(err.Error(), 128)
	}
	switch string(p.GetMetadata()[converter.MetadataEncoding]) {
	case converter.MetadataEncodingJSON, "":
		return DecodeGuard(p)
	default:
		return Guard{}, temporal.NewApplicationError("lockstep: this worker cannot read the locks of the step: "+reason, FailureUnavailable)
	}
}

func ofWorkflow(dc converter.DataConverter, namespace, workflowID string) converter.DataConverter {
	return converter.WithDataConverterSerializationContext(dc, converter.WorkflowSerializationContext{Namespace: namespace, WorkflowID: workflowID})
}
