package runstate

import (
	"errors"
	"fmt"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
)

// Encode returns the arguments of an activity as they are now, encoded by the data converter of ctx.
// What the caller changes later, through a pointer, does not change them.
func Encode(ctx workflow.Context, args []any) (raw []any, err error) {
	defer func() {
		if r := recover(); r != nil { // NewContinueAsNewError reports in this way what it cannot encode
			err = fmt.Errorf("%v", r)
		}
	}()
	for _, arg := range args {
		// The SDK has no function that encodes a value with the data converter of a context, except
		// this one. A future decodes the codec's part again, because ExecuteActivity will repeat that.
		var next *workflow.ContinueAsNewError
		errors.As(workflow.NewContinueAsNewError(ctx, "lockstep-arguments", arg), &next)
		future, settable := workflow.NewFuture(ctx)
		settable.SetValue(next.Input)
		var value converter.RawValue
		if err := future.Get(ctx, &value); err != nil {
			return nil, err
		}
		if value.Payload() == nil {
			return nil, errors.New("the data converter does not support converter.RawValue")
		}
		raw = append(raw, value)
	}
	return raw, nil
}
