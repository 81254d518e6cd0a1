package interceptors

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// runStep runs step as a guarded activity and returns its error.
func runStep(t *testing.T, l locker, guard wire.Guard, step func(ctx context.Context) (string, error)) (string, error) {
	t.Helper()
	payload, err := wire.EncodeHeader(nil, "n", "w", guard)
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
		Part: "3/Debit", Schedule: 5, Scope: wire.ScopeSaga, Resources: []wire.Resource{{Resource: lockcore.Exclusive("account/1")}, {Resource: lockcore.Shared("rates"), HeldSince: 3}},
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
	require.Equal(t, lockcore.Order{Schedule: 5, Attempt: 1}, req.Order)
	require.True(t, req.Keep)
	require.Equal(t, []lockcore.Resource{lockcore.Exclusive("account/1"), lockcore.Shared("rates")}, req.Resources)
	require.Equal(t, map[string]uint32{"rates": 3}, req.HeldSince)
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
		l := &fakeLocker{enter: func(context.Context, int, lockcore.StepRequest) error {
			return &lockcore.InvalidError{Field: "resource"}
		}}
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
			l := &fakeLocker{enter: func(context.Context, int, lockcore.StepRequest) error { return tc.err }}
			ran := false
			_, err := runStep(t, l, sagaGuard(), func(context.Context) (string, error) { ran = true; return "", nil })
			requireFailure(t, err, tc.failureType, tc.nonRetryable)
			app := application(t, err)
			require.False(t, ran)
			require.Empty(t, l.kept())
			if tc.failureType == wire.FailureBusy {
				require.Equal(t, temporal.ApplicationErrorCategoryBenign, app.Category())
				require.InDelta(t, 150, app.NextRetryDelay().Milliseconds(), 51)
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
	payload, err := wire.EncodeHeader(nil, "n", "w", sagaGuard())
	require.NoError(t, err)
	_, err = runWithHeader(t, []interceptor.WorkerInterceptor{New(Options{})}, payload, done)
	requireFailure(t, err, wire.FailureUnavailable, false)
}

// However a step ends, its part leaves. A step whose lock was lost fails, also if it returned nil, or if its process was suspended for
// longer than the TTL and the session has not noticed the loss.
func TestStep_Ends_LeavesAndReportsIt(t *testing.T) {
	t.Parallel()
	noMoney := temporal.NewNonRetryableApplicationError("no money", "NoMoney", nil)
	for name, tc := range map[string]struct {
		locker      *fakeLocker
		loses       bool
		err         error
		panics      bool
		failureType string
		cause       string
	}{
		"well":                           {},
		"well, and leaving fails":        {locker: &fakeLocker{leaveErr: errors.New("no primary")}},
		"with an error":                  {err: noMoney, failureType: "NoMoney"},
		"in a panic":                     {panics: true, failureType: "none"},
		"pending":                        {err: activity.ErrResultPending, failureType: wire.FailureResultPending},
		"well, after a loss":             {loses: true, failureType: wire.FailureLost},
		"with an error, after a loss":    {loses: true, err: noMoney, failureType: wire.FailureLost, cause: "NoMoney"},
		"by a loss":                      {loses: true, err: context.Canceled, failureType: wire.FailureLost},
		"late, and its lease is lost":    {locker: &fakeLocker{renewErr: &lockcore.LostError{By: "another"}}, failureType: wire.FailureLost},
		"late, and the database is away": {locker: &fakeLocker{renewErr: errors.New("no database")}, failureType: wire.FailureLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := cmp.Or(tc.locker, &fakeLocker{})
			result, err := runStep(t, l, sagaGuard(), func(ctx context.Context) (string, error) {
				if tc.loses {
					l.loseAll("another")
				}
				if tc.panics {
					panic("boom")
				}
				if errors.Is(tc.err, context.Canceled) {
					<-ctx.Done()
					require.ErrorIs(t, context.Cause(ctx), lockcore.ErrLost)
				}
				return "done", tc.err
			})
			require.Equal(t, 1, l.kept()[0].leaves())
			if tc.failureType == "" {
				require.NoError(t, err)
				require.Equal(t, "done", result)
				return
			}
			if tc.panics {
				require.ErrorContains(t, err, "boom")
				return
			}
			requireFailure(t, err, tc.failureType, true)
			var lost *lockcore.LostError
			require.Equal(t, tc.failureType == wire.FailureLost, errors.As(wire.LockError(err), &lost))
			if tc.loses {
				require.Equal(t, "another", lost.By)
				var cause *temporal.ApplicationError
				require.Equal(t, tc.cause != "", errors.As(application(t, err).Unwrap(), &cause), "a cancellation that the loss caused says nothing")
				require.True(t, cause == nil || cause.Type() == tc.cause)
			}
		})
	}
}

func TestStep_InterceptorInstalledTwice_EntersOnce(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	payload, err := wire.EncodeHeader(nil, "n", "w", sagaGuard())
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
	err := a.enterFailure(ctx, sagaGuard(), lockcore.StepRequest{}, &lockcore.UnknownOutcomeError{Op: "enter", Err: context.Canceled})
	require.ErrorIs(t, err, context.Canceled)
	var app *temporal.ApplicationError
	require.NotErrorAs(t, err, &app)
	require.ErrorAs(t, a.enterFailure(ctx, sagaGuard(), lockcore.StepRequest{}, &lockcore.LostError{}), &app)
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
	}{"plenty": {time.Hour, endTimeout}, "little": {time.Second, time.Second / 2}, "none": {-time.Second, endTimeout}} {
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

// A step that wrongly counts as never run would not be undone. So the database must know that its run has not held the resource since
// before the step was scheduled.
func TestPartThatNeverRan_OnlyIfCertain(t *testing.T) {
	t.Parallel()
	own, reset := sagaGuard(), sagaGuard()
	own.Run, reset.Run = "default-test-run-id", "the run before a reset"
	long := time.Now().Add(-time.Hour)
	undo, undoOfBefore := own, reset
	undo.Undoes, undo.Started = "1/Debit", time.Now()
	undoOfBefore.Undoes, undoOfBefore.Started = undo.Undoes, undo.Started
	undoOfAReset := undo
	undoOfAReset.Inherits = true
	for name, tc := range map[string]struct {
		guard wire.Guard
		since time.Time
		want  string
	}{
		"known": {own, long, own.Part}, "scheduled by a run before": {reset, long, ""}, "it may have held": {own, time.Time{}, ""},
		"evidence is too young":           {own, time.Now().Add(time.Hour), ""},
		"the step that it undoes, too":    {undo, long, "1/Debit"},
		"the step may have run before it": {undo, time.Now(), ""},
		"the run before may have held it": {undoOfAReset, long, ""}, "a run before scheduled the undo": {undoOfBefore, long, ""},
	} {
		for _, verdict := range []error{&lockcore.DeadlockError{Resource: "account/1", NotHeldSince: tc.since}, &lockcore.BusyError{Resource: "account/1", NotHeldSince: tc.since}} {
			l := &fakeLocker{enter: func(context.Context, int, lockcore.StepRequest) error { return verdict }}
			tc.guard.Park = true
			_, err := runStep(t, l, tc.guard, done)
			var details struct {
				NeverRan string `json:"neverRan"`
			}
			require.NoError(t, application(t, err).Details(&details))
			require.Equal(t, tc.want, details.NeverRan, "%s: %v", name, err)
		}
	}
}

func parkedAs(d wire.BusyDetails) wire.ParkedDetails {
	return wire.ParkedDetails{BusyDetails: d}
}

// A parked attempt has a failure type of its own, and is not retried.
func TestStep_LocksBusy_Parks(t *testing.T) {
	t.Parallel()
	unavailable := wire.ParkedDetails{Unavailable: true}
	unavailable.Resource, unavailable.LockID = "account/1", "default-test-namespace/default-test-workflow-id"
	for name, tc := range map[string]struct {
		err  error
		want wire.ParkedDetails
	}{
		"busy":      {&lockcore.BusyError{Resource: "rates", LockID: "w", Position: 2}, parkedAs(wire.BusyDetails{Resource: "rates", LockID: "w", Position: 2})},
		"full":      {&lockcore.BusyError{Resource: "rates", Waiting: 9, Full: true}, parkedAs(wire.BusyDetails{Resource: "rates", Waiting: 9, Full: true})},
		"no answer": {&lockcore.UnknownOutcomeError{Op: "acquire", Err: errors.New("reset")}, unavailable},
		"no server": {errors.New("server selection error"), unavailable},
	} {
		guard := sagaGuard()
		guard.Park = true
		_, err := runStep(t, &fakeLocker{enter: func(context.Context, int, lockcore.StepRequest) error { return tc.err }}, guard, done)
		requireFailure(t, err, wire.FailureParked, true)
		require.Equal(t, temporal.ApplicationErrorCategoryBenign, application(t, err).Category())
		details, parked := wire.Parked(err)
		require.True(t, parked)
		tc.want.Attempt = 1
		require.Equal(t, tc.want, details, name)
		require.Equal(t, !tc.want.Unavailable, wire.LockError(err) != nil)
	}
}

// A request stays in the queue if another attempt follows, which finds it there.
func TestStep_AttemptFails_WithdrawsOnlyAfterTheLast(t *testing.T) {
	t.Parallel()
	lost, layout, invalid := &lockcore.LostError{Resource: "account/1"}, &lockcore.LayoutError{}, &lockcore.InvalidError{Field: "TTL"}
	for name, tc := range map[string]struct {
		err            error
		stop, try      bool
		ends, endsStep int32
	}{
		"parked":                             {err: &lockcore.BusyError{Resource: "account/1"}},
		"lost":                               {err: lost, ends: 1, endsStep: 1},
		"lost where it only tries":           {err: lost, try: true, endsStep: 1},
		"the collection is of a newer build": {err: layout, endsStep: 1},
		"the worker stops":                   {err: context.Canceled, stop: true, endsStep: 1},
		"nothing was sent":                   {err: invalid},
		"a later attempt has overtaken it":   {err: &lockcore.SupersededError{Resource: "account/1"}},
	} {
		for scope, want := range map[string]int32{wire.ScopeSaga: tc.ends, wire.ScopeStep: tc.endsStep} {
			t.Run(name+", scope "+scope, func(t *testing.T) {
				t.Parallel()
				background, stop := context.WithCancel(t.Context())
				defer stop()
				l := &fakeLocker{enter: func(context.Context, int, lockcore.StepRequest) error {
					if tc.stop {
						stop()
					}
					return tc.err
				}}
				guard := sagaGuard()
				guard.Park, guard.Try, guard.Scope = !tc.try, tc.try, scope
				payload, err := wire.EncodeHeader(nil, "n", "w", guard)
				require.NoError(t, err)
				_, err = runWithOptions(t, sdkworker.Options{Interceptors: []interceptor.WorkerInterceptor{with(l)}, BackgroundActivityContext: background}, payload, done)
				require.Error(t, err)
				require.Equal(t, want, l.ends.Load())
			})
		}
	}
}

// An attempt that took long to get its locks does not run if Temporal has given it up, and another one may run.
func TestCheckNotAbandoned_LongEntry_AsksTemporal(t *testing.T) {
	t.Parallel()
	c, queue := testenv.Temporal(t), testenv.TaskQueue(t)
	long := time.Now().Add(-time.Hour)
	first, second := make(chan error, 1), make(chan error, 1)
	w := sdkworker.New(c, queue, sdkworker.Options{})
	w.RegisterActivityWithOptions(func(ctx context.Context) error {
		if activity.GetInfo(ctx).Attempt > 1 {
			err := checkNotAbandoned(ctx, long)
			second <- err
			return err
		}
		require.NoError(t, checkNotAbandoned(ctx, time.Now()))
		<-ctx.Done() // it has timed out, and another attempt runs
		result := <-second
		first <- checkNotAbandoned(context.WithoutCancel(ctx), long)
		return result
	}, activity.RegisterOptions{Name: "Do"})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			StartToCloseTimeout: 3 * time.Second, RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Millisecond, MaximumAttempts: 2},
		})
		return workflow.ExecuteActivity(ctx, "Do").Get(ctx, nil)
	}, workflow.RegisterOptions{Name: "W"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue}, "W")
	require.NoError(t, err)
	require.NoError(t, run.Get(t.Context(), nil))
	require.ErrorIs(t, <-first, errAbandoned)
}
