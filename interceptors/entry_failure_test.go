package interceptors

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

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
	undoOfAReset.Before = "the run before a reset"
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
			l := &fakeLocker{enter: func(context.Context, int, party.Request) error { return verdict }}
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
		_, err := runStep(t, &fakeLocker{enter: func(context.Context, int, party.Request) error { return tc.err }}, guard, done)
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
				l := &fakeLocker{enter: func(context.Context, int, party.Request) error {
					if tc.stop {
						stop()
					}
					return tc.err
				}}
				guard := sagaGuard()
				guard.Park, guard.Try, guard.Scope = !tc.try, tc.try, scope
				payload, err := wire.EncodeGuard(guard)
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
