package protocol

import (
	"errors"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// EncodeUnder makes the payload of [UnderKey].
func EncodeUnder(runID string) (*commonpb.Payload, error) {
	p, err := converter.GetDefaultDataConverter().ToPayload(runID)
	if err != nil {
		return nil, fmt.Errorf("lockstep: write the run that has a step's locks: %w", err)
	}
	return p, nil
}

// CheckUnder refuses a step that runs in another run than the one that has its locks, as the server starts it again after a reset.
// Where there is no payload there is nothing to check.
func CheckUnder(p *commonpb.Payload, runID string) error {
	if p == nil {
		return nil
	}
	var under string
	if err := converter.GetDefaultDataConverter().FromPayload(p, &under); err != nil {
		return Failure(&lockcore.InvalidError{Field: "header " + UnderKey, Value: Cut(err.Error(), 128), Bound: "a run ID as JSON"})
	}
	if under == runID {
		return nil
	}
	return temporal.NewApplicationErrorWithOptions(
		"lockstep: the run was reset, and the step's locks are to be taken anew before it", FailureReset,
		temporal.ApplicationErrorOptions{NonRetryable: true, Category: temporal.ApplicationErrorCategoryBenign},
	)
}

// WasReset tells whether a step failed so.
func WasReset(err error) bool {
	var act *temporal.ActivityError
	if !errors.As(err, &act) {
		return false
	}
	app, ok := act.Unwrap().(*temporal.ApplicationError) //nolint:errorlint // the failure itself, and not what caused it
	return ok && app.Type() == FailureReset
}
