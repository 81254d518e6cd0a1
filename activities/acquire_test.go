package activities_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// attempt runs one attempt of lockstep.Acquire under an activity ID, and returns its failure.
func attempt(t *testing.T, f *fakeLocker, id, in string) *temporal.ApplicationError {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	activities.Register(env, f)
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			ActivityID: id, StartToCloseTimeout: time.Minute, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
		})
		return workflow.ExecuteActivity(ctx, wire.ActivityAcquire, json.RawMessage(in)).Get(ctx, nil)
	})
	var app *temporal.ApplicationError
	require.ErrorAs(t, env.GetWorkflowError(), &app)
	return app
}

const twoForTheHold = `{"resources":[{"name":"account/1"},{"name":"account/2"}],"part":"lock/1","schedule":4,"holdOnly":true`

// The worker that frees the lock completes the activity by this ID, so the next attempt need not come soon.
func TestAcquire_HoldOnly_WaitsInBackoff(t *testing.T) {
	t.Parallel()
	busy := &lockcore.BusyError{Resource: "account/2", Position: 2}
	f := &fakeLocker{err: busy}
	app := attempt(t, f, wire.WaitID(4), twoForTheHold+"}")
	require.Equal(t, "lockstep.Busy", app.Type())
	require.False(t, app.NonRetryable())
	require.Equal(t, 7*time.Second, app.NextRetryDelay(), "as Recheck says")
	require.Equal(t, []string{"account/2"}, f.tended)
	require.Len(t, f.rechecked, 1)
	require.Equal(t, []lockcore.Resource{{Name: "account/2"}}, f.rechecked[0].Resources)
	require.True(t, f.rechecked[0].HoldOnly)
	require.Equal(t, lockcore.Order{Schedule: 4, Attempt: 1}, f.rechecked[0].Order)

	for _, id := range []string{"mine", wire.WaitID(5)} {
		f = &fakeLocker{err: busy}
		app = attempt(t, f, id, twoForTheHold+"}")
		require.Equal(t, "lockstep.Busy", app.Type())
		require.LessOrEqual(t, app.NextRetryDelay(), time.Second, "nothing wakes it")
		require.Empty(t, f.rechecked)
	}
}

func TestAcquire_HoldOnly_FailsWithCurrentState(t *testing.T) {
	t.Parallel()
	busy := &lockcore.BusyError{Resource: "account/2", Position: 2}
	for name, tc := range map[string]struct {
		enter, recheck error
		want           string
		final          bool
		longest        time.Duration
	}{
		"victim when it looks": {busy, &lockcore.DeadlockError{Resource: "account/2"}, "lockstep.Deadlock", true, 0},
		"victim when it asks":  {&lockcore.DeadlockError{Resource: "account/2"}, nil, "lockstep.Deadlock", true, 0},
		"lost":                 {&lockcore.LostError{Resource: "account/2"}, nil, "lockstep.Lost", true, 0},
		"full":                 {&lockcore.BusyError{Resource: "account/2", Full: true}, errors.New("not asked"), "lockstep.Busy", false, time.Second},
		"no database":          {errors.New("no primary"), nil, "lockstep.Unavailable", false, time.Second},
		"it cannot look":       {busy, errors.New("no primary"), "lockstep.Busy", false, time.Second},
	} {
		f := &fakeLocker{err: tc.enter, recheckErr: tc.recheck}
		app := attempt(t, f, wire.WaitID(4), twoForTheHold+"}")
		require.Equal(t, tc.want, app.Type(), name)
		require.Equal(t, tc.final, app.NonRetryable(), name)
		require.LessOrEqual(t, app.NextRetryDelay(), tc.longest, name)
		require.Equal(t, tc.longest > 0, app.NextRetryDelay() > 0, name)
	}
}

func TestAcquire_MaxWait_EndsIt(t *testing.T) {
	t.Parallel()
	busy := &lockcore.BusyError{Resource: "account/2", Holders: []lockcore.Holder{{LockID: "in the way"}}}
	for _, id := range []string{wire.WaitID(4), "mine"} {
		app := attempt(t, &fakeLocker{err: busy}, id, twoForTheHold+`,"maxWait":"1ns"}`)
		require.True(t, app.NonRetryable(), id)
		require.ErrorContains(t, wire.LockError(app), "in the way")
		app = attempt(t, &fakeLocker{err: busy}, id, twoForTheHold+`,"maxWait":"3s"}`)
		require.False(t, app.NonRetryable(), id)
		require.LessOrEqual(t, app.NextRetryDelay(), 3*time.Second, id)
		app = attempt(t, &fakeLocker{}, id, twoForTheHold+`,"maxWait":"-1s"}`)
		require.Equal(t, "lockstep.Invalid", app.Type())
		require.ErrorContains(t, app, "maxWait")
	}
}
