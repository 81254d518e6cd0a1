package interceptors

import (
	"context"
	"errors"
	"strings"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// First returns an interceptor for the beginning of a list of interceptors. It returns the failures of Lockstep to Temporal as they are, even if
// another interceptor of the list has wrapped them: the server and the workflow read the type of a failure and the delay before the next attempt
// from the failure itself and not from its causes. Everything else passes unchanged.
func First() interceptor.Interceptor { return theFirst }

type first struct{ interceptor.InterceptorBase }

var theFirst = &first{}

// InterceptActivity returns the activity side, one for each attempt.
func (*first) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &firstInbound{interceptor.ActivityInboundInterceptorBase{Next: next}}
}

type firstInbound struct {
	interceptor.ActivityInboundInterceptorBase
}

// ownFailure is the failure with which Lockstep's own interceptor has ended an attempt, or nil.
type ownFailure struct{ err error }

type ownFailureKey struct{}

func (f *firstInbound) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	if _, inner := ctx.Value(ownFailureKey{}).(*ownFailure); inner { // the client's list begins with another one, which does it
		return f.Next.ExecuteActivity(ctx, in)
	}
	own := &ownFailure{}
	result, err := f.Next.ExecuteActivity(context.WithValue(ctx, ownFailureKey{}, own), in)
	if own.err != nil && errors.Is(err, own.err) {
		return nil, own.err
	}
	return result, err
}

// note records the error of an attempt for the first interceptor, if it is a failure of Lockstep.
func note(ctx context.Context, err error) {
	own, ok := ctx.Value(ownFailureKey{}).(*ownFailure)
	if !ok {
		return
	}
	own.err = nil
	if app, ok := err.(*temporal.ApplicationError); ok && strings.HasPrefix(app.Type(), wire.ActivityPrefix) { //nolint:errorlint // not its causes
		own.err = err
	}
}
