package activities

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/converter"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// registered has the activities as workers register them. Their input is decoded here and not by the SDK, which would refuse an input that
// is not the JSON of the activity with a failure that is retried forever. A codec has decoded it before: its failure may pass, and is
// retryable.
type registered struct{ *lockActivities }

func (r *registered) Acquire(ctx context.Context, in converter.RawValue) (wire.AcquireResult, error) {
	return decoded(ctx, in, r.lockActivities.Acquire)
}

func (r *registered) Renew(ctx context.Context, in converter.RawValue) (wire.RenewResult, error) {
	return decoded(ctx, in, r.lockActivities.Renew)
}

func (r *registered) Leave(ctx context.Context, in converter.RawValue) (wire.LeaveResult, error) {
	return decoded(ctx, in, r.lockActivities.Leave)
}

func (r *registered) Release(ctx context.Context, in converter.RawValue) (wire.ReleaseResult, error) {
	return decoded(ctx, in, r.lockActivities.Release)
}

func (r *registered) Verify(ctx context.Context, in converter.RawValue) (wire.VerifyResult, error) {
	return decoded(ctx, in, r.lockActivities.Verify)
}

func (r *registered) Bar(ctx context.Context, in converter.RawValue) (wire.BarResult, error) {
	return decoded(ctx, in, r.lockActivities.Bar)
}

func (r *registered) Wait(ctx context.Context, in converter.RawValue) error {
	_, err := decoded(ctx, in, func(ctx context.Context, p wire.WaitParams) (struct{}, error) {
		return struct{}{}, r.lockActivities.Wait(ctx, p)
	})
	return err
}

// decoded calls an activity with its input. The error of an input that is missing, or is not the JSON of the activity, is a
// lockstep.Invalid, which is not retryable.
func decoded[P, R any](ctx context.Context, in converter.RawValue, activity func(context.Context, P) (R, error)) (result R, err error) {
	var p P
	err = errors.New("it is missing")
	if payload := in.Payload(); payload != nil {
		err = converter.GetDefaultDataConverter().FromPayload(payload, &p)
	}
	if errors.Is(err, converter.ErrEncodingIsNotSupported) { // another worker may have the codec
		return result, wire.UnavailableFailure(0, fmt.Errorf("this worker cannot decode the input, and may lack the workflow's codec: %w", err))
	}
	if err != nil {
		return result, wire.Failure(&lockcore.InvalidError{Field: "input", Value: wire.Cut(err.Error(), 256), Bound: "one JSON object, with the fields of the activity"})
	}
	return activity(ctx, p)
}
