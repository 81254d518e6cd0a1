package activities_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// A caller in any language gets the refusal at once, and not a failure that is retried forever.
func TestActivities_OtherInput_IsInvalid(t *testing.T) {
	t.Parallel()
	for _, activity := range []string{wire.ActivityAcquire, wire.ActivityRenew, wire.ActivityLeave, wire.ActivityBar, wire.ActivityWait} {
		for name, in := range map[string][]any{
			"nothing": nil, "text": {"account/1"}, "list": {[]string{"account/1"}}, "bytes": {[]byte("account/1")}, "number": {7},
			"wrong type":     {map[string]any{"resources": 7, "resource": 7, "leases": 7}},
			"wrong duration": {map[string]any{"ttl": "soon", "maxWait": "soon", "leases": []any{map[string]any{"left": "soon"}}, "resources": "soon"}},
		} {
			var suite testsuite.WorkflowTestSuite
			suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
			env, f := suite.NewTestActivityEnvironment(), &fakeLocker{}
			activities.Register(env, f)
			_, err := env.ExecuteActivity(activity, in...)
			var app *temporal.ApplicationError
			require.ErrorAs(t, err, &app, "%s, %s", activity, name)
			require.Equal(t, wire.FailureInvalid, app.Type(), "%s, %s: %v", activity, name, err)
			require.True(t, app.NonRetryable())
			require.ErrorIs(t, wire.LockError(err), lockcore.ErrInvalid)
			require.ErrorContains(t, err, "input")
			require.Empty(t, f.request)
		}
	}
}
