package interceptors

import (
	"errors"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// brokenSaga returns the error of a saga whose compensation failed.
func brokenSaga(ctx workflow.Context) error {
	err := workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		if err := s.CompensateWith(ctx, "Refuse"); err != nil {
			return err
		}
		return temporal.NewApplicationError("too late", "TooLate")
	})
	var failed *workflows.SagaError
	if !errors.As(err, &failed) || len(failed.Compensations) != 1 {
		return errors.New("it is no SagaError inside")
	}
	return err
}

// invalid checks that the error matches ErrInvalid inside the workflow, and returns it.
func invalid(err error) error {
	var refused *lockcore.InvalidError
	if !errors.As(err, &refused) || !errors.Is(err, lockcore.ErrInvalid) {
		return errors.New("it is no InvalidError inside")
	}
	return err
}

func TestFailures_InAHistory_HaveTheirTypes(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		fn    func(ctx workflow.Context) error
		is    string
		cause string
	}{
		"saga": {brokenSaga, "lockstep.SagaFailed", "TooLate"},
		"saga options": {func(ctx workflow.Context) error {
			return invalid(workflows.RunSaga(ctx, workflows.SagaOptions{DeadlockRetries: -2}, nil))
		}, "lockstep.Invalid", ""},
		"lock": {func(ctx workflow.Context) error {
			_, err := workflows.Lock(ctx, workflows.Locks{Scope: workflows.ScopeStep})
			return invalid(err)
		}, "lockstep.Invalid", ""},
		"step": {func(ctx workflow.Context) error {
			return invalid(step(workflows.WithLocks(ctx, workflows.Locks{MaxWait: -1}), "Debit"))
		}, "lockstep.Invalid", ""},
		"a bare error of lockcore": {func(workflow.Context) error {
			return &lockcore.InvalidError{Field: "f"}
		}, "lockstep.Invalid", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := runWorkflow(t, workflowEnv(t, with(&fakeLocker{})), &releases{}, tc.fn)
			var app *temporal.ApplicationError
			require.ErrorAs(t, err, &app)
			require.Equal(t, tc.is, app.Type())
			require.True(t, app.NonRetryable())
			if tc.cause != "" {
				require.ErrorAs(t, app.Unwrap(), &app)
				require.Equal(t, tc.cause, app.Type())
			}
		})
	}
}

// The parent sees the type of its child's failure.
func TestFailures_OfChild_AreTypedInParent(t *testing.T) {
	t.Parallel()
	env := workflowEnv(t, with(&fakeLocker{}))
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		return brokenSaga(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute}))
	}, workflow.RegisterOptions{Name: "Child"})
	var seen *temporal.ApplicationError
	require.NoError(t, runWorkflow(t, env, &releases{}, func(ctx workflow.Context) error {
		if err := workflow.ExecuteChildWorkflow(ctx, "Child").Get(ctx, nil); !errors.As(err, &seen) {
			return errors.New("it is not an application error")
		}
		return nil
	}))
	require.Equal(t, "lockstep.SagaFailed", seen.Type())
	require.True(t, seen.NonRetryable())
}

// The caller of an update sees the type of its failure.
func TestFailures_OfUpdate_AreTypedInClient(t *testing.T) {
	t.Parallel()
	env := workflowEnv(t, with(&fakeLocker{}))
	var seen error
	env.RegisterDelayedCallback(func() {
		env.UpdateWorkflow("pay", "", &testsuite.TestUpdateCallback{
			OnAccept: func() {}, OnReject: func(err error) { panic(err) }, OnComplete: func(_ any, err error) { seen = err },
		})
	}, time.Second)
	require.NoError(t, runWorkflow(t, env, &releases{}, func(ctx workflow.Context) error {
		return errors.Join(workflow.SetUpdateHandler(ctx, "pay", func(ctx workflow.Context) error {
			return brokenSaga(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute}))
		}), workflow.Await(ctx, func() bool { return seen != nil }))
	}))
	app, ok := seen.(*temporal.ApplicationError) //nolint:errorlint // what is recorded, and not what it wraps
	require.True(t, ok, "%T", seen)
	require.Equal(t, "lockstep.SagaFailed", app.Type())
}
