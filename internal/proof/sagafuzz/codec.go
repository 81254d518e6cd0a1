package main

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
)

// failsOneIn is the share of the conversions that fail in plans with a codec.
const failsOneIn = 60

// errConverter is the error of a conversion that the plan lets fail.
var errConverter = errors.New("the plan lets this conversion fail")

// sealing is a data converter with a codec, some of whose conversions fail. What the SDK does not treat as Lockstep does stays plain and
// never fails: arguments of workflows, which fail the workflow if they cannot be read; signals, which are dropped; and updates, which are
// refused, also during replay.
type sealing struct {
	converter.DataConverter
	fails func() bool
}

// newConverter returns the converter of a plan with a codec. If fails is nil no conversion fails. The codec is in the role of encryption: a
// payload cannot be read without it.
func newConverter(fails func() bool) converter.DataConverter {
	if fails == nil {
		fails = func() bool { return false }
	}
	codec := converter.NewZlibCodec(converter.ZlibCodecOptions{AlwaysEncode: true})
	return &sealing{converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), codec), fails}
}

// failuresWith returns a failure converter that converts the details of failures by dc. Their messages stay plain.
func failuresWith(dc converter.DataConverter) converter.FailureConverter {
	return temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{DataConverter: dc})
}

func staysPlain(value any) bool {
	switch value.(type) {
	case Input, *Input, Update, *Update, string, *string:
		return true
	}
	return false
}

// ToPayload encodes a value.
func (s *sealing) ToPayload(value any) (*commonpb.Payload, error) {
	switch {
	case staysPlain(value):
		return converter.GetDefaultDataConverter().ToPayload(value)
	case s.fails():
		return nil, errConverter
	}
	return s.DataConverter.ToPayload(value)
}

// FromPayload decodes a value.
func (s *sealing) FromPayload(payload *commonpb.Payload, to any) error {
	switch {
	case staysPlain(to):
		return converter.GetDefaultDataConverter().FromPayload(payload, to)
	case s.fails():
		return errConverter
	}
	return s.DataConverter.FromPayload(payload, to)
}

// ToPayloads encodes values.
func (s *sealing) ToPayloads(values ...any) (*commonpb.Payloads, error) {
	all := &commonpb.Payloads{}
	for _, value := range values {
		payload, err := s.ToPayload(value)
		if err != nil {
			return nil, err
		}
		all.Payloads = append(all.Payloads, payload)
	}
	return all, nil
}

// FromPayloads decodes values.
func (s *sealing) FromPayloads(payloads *commonpb.Payloads, to ...any) error {
	for i, payload := range payloads.GetPayloads() {
		if i == len(to) {
			break
		}
		if err := s.FromPayload(payload, to[i]); err != nil {
			return err
		}
	}
	return nil
}

// succeedAfter is the number of conversions that succeed after one that has failed. A workflow task that replays many steps makes hundreds,
// and would not end otherwise.
const succeedAfter = 300

// failing returns a function that reports whether a conversion fails: one in so many, from the time when begun is closed. Before that a
// worker checks its converter.
func failing(oneIn int, begun <-chan struct{}) func() bool {
	var left atomic.Int64 // conversions that succeed
	return func() bool {
		select {
		case <-begun:
		default:
			return false
		}
		if left.Add(-1) >= 0 || rand.IntN(oneIn) != 0 { //nolint:gosec // a run does not repeat itself exactly
			return false
		}
		left.Store(succeedAfter)
		return true
	}
}

// ofServer are texts of failures that the server causes. It gives a worker whose cache has lost a run a history that lacks the events of a
// workflow task for an update (https://github.com/temporalio/temporal/issues/7741).
var ofServer = []string{"history_events: premature end of stream", "history contains events past expected last event ID"}

// unasked returns the failures of workflow tasks that the plan does not ask for. It asks for those whose reason is a conversion that has
// failed. The code may not decide differently because of it, and so fail by non-determinism.
func unasked(plan Plan, failed []string) []string {
	return slices.DeleteFunc(slices.Clone(failed), func(text string) bool {
		if slices.ContainsFunc(ofServer, func(server string) bool { return strings.Contains(text, server) }) {
			return true
		}
		return plan.FailsOneIn > 0 && strings.Contains(text, errConverter.Error()) && !strings.Contains(text, "TMPRL1100") &&
			!strings.Contains(text, enumspb.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR.String())
	})
}
