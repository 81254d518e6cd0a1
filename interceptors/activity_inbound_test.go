package interceptors

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// runStep runs step as a guarded activity and returns its error.
func runStep(t *testing.T, l locker, guard wire.Guard, step func(ctx context.Context) (string, error)) (string, error) {
	t.Helper()
	payload, err := wire.EncodeGuard(guard)
	require.NoError(t, err)
	return runWithHeader(t, []interceptor.WorkerInterceptor{with(l)}, payload, step)
}

func runWithHeader(t *testing.T, list []interceptor.WorkerInterceptor, payload *commonpb.Payload, step func(ctx context.Context) (string, error)) (string, error) {
	t.Helper()
	return runWithOptions(t, sdkworker.Options{Interceptors: list}, payload, step)
}

func runWithOptions(t *testing.T, o sdkworker.Options, payload *commonpb.Payload, step func(ctx context.Context) (string, error)) (string, error) {
	t.Helper()
	suite := quietSuite()
	if payload != nil {
		suite.SetHeader(&commonpb.Header{Fields: map[string]*commonpb.Payload{wire.HeaderKey: payload}})
	}
	env := suite.NewTestActivityEnvironment()
	env.SetWorkerOptions(o)
	env.RegisterActivityWithOptions(step, activity.RegisterOptions{Name: "Debit"})
	value, err := env.ExecuteActivity("Debit")
	if err != nil {
		return "", err
	}
	var result string
	require.NoError(t, value.Get(&result))
	return result, nil
}

func sagaGuard() wire.Guard {
	return wire.Guard{
		Part: "3/Debit", Schedule: 5, Scope: wire.ScopeSaga, Resources: []lockcore.Resource{lockcore.Exclusive("account/1"), lockcore.Shared("rates")},
	}
}

func done(context.Context) (string, error) { return "done", nil }

func requireFailure(t *testing.T, err error, failureType string, nonRetryable bool) {
	t.Helper()
	app := application(t, err)
	require.Equal(t, failureType, app.Type(), "%v", err)
	require.Equal(t, nonRetryable, app.NonRetryable())
}

func application(t *testing.T, err error) *temporal.ApplicationError {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	return app
}

func TestStep_LocksFree_RunsAndLeaves(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	result, err := runStep(t, l, sagaGuard(), func(ctx context.Context) (string, error) {
		require.Zero(t, l.kept()[0].leaves())
		require.Len(t, activities.Leases(ctx), 2)
		fence, ok := activities.Fence(ctx, "account/1")
		require.True(t, ok)
		require.EqualValues(t, 100, fence)
		_, ok = activities.Fence(ctx, "account/2")
		require.False(t, ok)
		return "done", nil
	})
	require.NoError(t, err)
	require.Equal(t, "done", result)
	require.Equal(t, 1, l.kept()[0].leaves())

	req := l.asked()[0]
	require.Equal(t, []bool{true}, l.queued)
	require.Equal(t, "default-test-run-id/3/Debit", req.Part)
	require.Equal(t, party.Order{Schedule: 5, Attempt: 1}, req.Order)
	require.True(t, req.Persist)
	require.Equal(t, sagaGuard().Resources, req.Resources)
	require.True(t, strings.HasPrefix(req.LockID, "default-test-namespace/"), req.LockID)
	require.Contains(t, req.Comment, "Debit")
}

func TestStep_MaxWaitShort_BoundsTheInlineWait(t *testing.T) {
	t.Parallel()
	for left, want := range map[time.Duration]time.Duration{0: 2 * time.Second, time.Minute: 2 * time.Second, 300 * time.Millisecond: 300 * time.Millisecond} {
		l, guard := &fakeLocker{}, sagaGuard()
		guard.MaxWait = wire.Duration(left)
		_, err := runStep(t, l, guard, done)
		require.NoError(t, err)
		require.Equal(t, want, l.asked()[0].MaxWait, left)
	}
}

func TestStep_NoGuard_TakesNoLocks(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	_, err := runWithHeader(t, []interceptor.WorkerInterceptor{with(l)}, nil, func(ctx context.Context) (string, error) {
		require.Nil(t, activities.Leases(ctx))
		return "", nil
	})
	require.NoError(t, err)
	require.Empty(t, l.asked())
}

// A request that was refused has left nothing to withdraw.
func TestStep_InvalidLocks_WithdrawsNothing(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{wire.ScopeStep, wire.ScopeSaga} {
		l := &fakeLocker{enter: func(context.Context, int, party.Request) error { return &lockcore.InvalidError{Field: "resource"} }}
		guard := sagaGuard()
		guard.Scope = scope
		_, err := runStep(t, l, guard, func(context.Context) (string, error) { return "", nil })
		requireFailure(t, err, wire.FailureInvalid, true)
		require.Zero(t, l.ends.Load(), scope)
	}
}

func TestStep_LocksNotAcquired_DoesNotRun(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err          error
		failureType  string
		nonRetryable bool
	}{
		"busy":       {&lockcore.BusyError{Resource: "account/1", Position: 2}, wire.FailureBusy, false},
		"lost":       {&lockcore.LostError{Resource: "account/1"}, wire.FailureLost, true},
		"superseded": {&lockcore.SupersededError{Resource: "account/1", Released: true}, wire.FailureSuperseded, true},
		"invalid":    {&lockcore.InvalidError{Field: "resource"}, wire.FailureInvalid, true},
		"unknown":    {&lockcore.UnknownOutcomeError{Op: "enter", Err: errors.New("connection reset")}, wire.FailureUnavailable, false},
		"database":   {errors.New("no primary"), wire.FailureUnavailable, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &fakeLocker{enter: func(context.Context, int, party.Request) error { return tc.err }}
			ran := false
			_, err := runStep(t, l, sagaGuard(), func(context.Context) (string, error) { ran = true; return "", nil })
			requireFailure(t, err, tc.failureType, tc.nonRetryable)
			app := application(t, err)
			require.False(t, ran)
			require.Empty(t, l.kept())
			if tc.failureType == wire.FailureBusy {
				require.Equal(t, temporal.ApplicationErrorCategoryBenign, app.Category())
				require.InDelta(t, 150, app.NextRetryDelay().Milliseconds(), 38)
			}
		})
	}
}

func TestStep_UnknownGuard_DoesNotRun(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	bad := &commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(`{"scope":"galaxy"}`)}
	_, err := runWithHeader(t, []interceptor.WorkerInterceptor{with(l)}, bad, done)
	requireFailure(t, err, wire.FailureInvalid, true)
	require.Empty(t, l.asked())
}

func TestStep_WorkerWithoutLocker_DoesNotRun(t *testing.T) {
	t.Parallel()
	payload, err := wire.EncodeGuard(sagaGuard())
	require.NoError(t, err)
	_, err = runWithHeader(t, []interceptor.WorkerInterceptor{New(Options{})}, payload, done)
	requireFailure(t, err, wire.FailureUnavailable, false)
}

func TestStep_LockLost_IsCancelledWithTheCause(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	_, err := runStep(t, l, sagaGuard(), func(ctx context.Context) (string, error) {
		l.loseAll("another")
		<-ctx.Done()
		var lost *lockcore.LostError
		require.ErrorAs(t, context.Cause(ctx), &lost)
		return "", ctx.Err()
	})
	requireFailure(t, err, wire.FailureLost, true)
	app := application(t, err)
	require.NoError(t, app.Unwrap(), "the cancellation that the loss caused says nothing")
	var lost *lockcore.LostError
	require.ErrorAs(t, wire.LockError(err), &lost)
	require.Equal(t, "another", lost.By)
	require.Equal(t, 1, l.kept()[0].leaves())
}

func TestStep_LockLost_FailsAlthoughItReturnedNil(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	_, err := runStep(t, l, sagaGuard(), func(context.Context) (string, error) {
		l.loseAll("another")
		return "done", nil
	})
	requireFailure(t, err, wire.FailureLost, true)
}

// The process was suspended for longer than the TTL: the step returns before the session has noticed the loss.
func TestStep_ReturnsLate_LeaseIsRenewed(t *testing.T) {
	t.Parallel()
	for _, err := range []error{&lockcore.LostError{By: "another"}, errors.New("no database")} {
		l := &fakeLocker{renewErr: err}
		_, err := runStep(t, l, sagaGuard(), func(context.Context) (string, error) { return "done", nil })
		requireFailure(t, err, wire.FailureLost, true)
	}
}

func TestStep_LostAndFailed_KeepsItsErrorAsCause(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	_, err := runStep(t, l, sagaGuard(), func(context.Context) (string, error) {
		l.loseAll("another")
		return "", temporal.NewApplicationError("no money", "NoMoney")
	})
	requireFailure(t, err, wire.FailureLost, true)
	app := application(t, err)
	var cause *temporal.ApplicationError
	require.ErrorAs(t, app.Unwrap(), &cause)
	require.Equal(t, "NoMoney", cause.Type())
}

func TestStep_Fails_KeepsItsErrorAndLeaves(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	_, err := runStep(t, l, sagaGuard(), func(context.Context) (string, error) {
		return "", temporal.NewNonRetryableApplicationError("no money", "NoMoney", nil)
	})
	requireFailure(t, err, "NoMoney", true)
	require.Equal(t, 1, l.kept()[0].leaves())
}

func TestStep_Panics_Leaves(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	_, err := runStep(t, l, sagaGuard(), func(context.Context) (string, error) { panic("boom") })
	require.ErrorContains(t, err, "boom")
	require.Equal(t, 1, l.kept()[0].leaves())
}

func TestGuard_ResultPending_IsRefused(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	_, err := runStep(t, l, sagaGuard(), func(context.Context) (string, error) { return "", activity.ErrResultPending })
	requireFailure(t, err, wire.FailureResultPending, true)
	require.Equal(t, 1, l.kept()[0].leaves())
}

func TestStep_LeaveFails_SucceedsNevertheless(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{leaveErr: errors.New("no primary")}
	result, err := runStep(t, l, sagaGuard(), done)
	require.NoError(t, err)
	require.Equal(t, "done", result)
}

func TestStep_InterceptorInstalledTwice_EntersOnce(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	payload, err := wire.EncodeGuard(sagaGuard())
	require.NoError(t, err)
	_, err = runWithHeader(t, []interceptor.WorkerInterceptor{with(l), with(l)}, payload, done)
	require.NoError(t, err)
	require.Len(t, l.asked(), 1)
	require.Len(t, l.kept(), 1)
}

// Temporal decides about an attempt that times out while it requests its locks: the locks have not failed.
func TestEnterFailure_ContextEnded_IsNotALockFailure(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := &activityInbound{}
	err := a.enterFailure(ctx, sagaGuard(), party.Request{}, &lockcore.UnknownOutcomeError{Op: "enter", Err: context.Canceled})
	require.ErrorIs(t, err, context.Canceled)
	var app *temporal.ApplicationError
	require.NotErrorAs(t, err, &app)
	require.ErrorAs(t, a.enterFailure(ctx, sagaGuard(), party.Request{}, &lockcore.LostError{}), &app)
}

// In virtual time.
func TestLeave_DeadlineNear_TakesHalfOfTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, leavingTakesAtMostHalf)
}

func leavingTakesAtMostHalf(t *testing.T) {
	for name, tc := range map[string]struct {
		left time.Duration
		want time.Duration
	}{"plenty": {time.Hour, leaveTimeout}, "little": {time.Second, time.Second / 2}, "none": {-time.Second, leaveTimeout}} {
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(tc.left))
		defer cancel()
		_, keep := context.WithCancelCause(ctx)
		s := &fakeSession{cancel: keep}
		leave(ctx, s.Leave)
		deadline, ok := s.bound.Deadline()
		require.True(t, ok, name)
		require.Equal(t, tc.want, time.Until(deadline), name)
	}
}
