package currentrun_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

// inAnActivity calls fn in an activity of the SDK's test environment, in which every run counts as the current one.
func inAnActivity(t *testing.T, fn func(ctx context.Context)) {
	t.Helper()
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivityWithOptions(func(ctx context.Context) error { fn(ctx); return nil }, activity.RegisterOptions{Name: "A"})
	_, err := env.ExecuteActivity("A")
	require.NoError(t, err)
}

// A bar of a run that was reset twice waits for the steps of all three runs: its own, the first one, and the one in between, which only
// the database knows.
func TestRaise_TwoResets_WaitsForStepsOfEveryRun(t *testing.T) {
	t.Parallel()
	locker, err := lockcore.NewWithStore(lockcoretest.NewStore(time.Now), lockcore.Config{})
	require.NoError(t, err)
	of := func(runID string) wire.Run { return wire.Run{Namespace: "n", WorkflowID: "w", RunID: runID} }
	guard := wire.Guard{
		Part: "3/Write", Schedule: 3, Scope: wire.ScopeSaga, Saga: "1", Resources: []wire.Resource{{Resource: lockcore.Shared("r")}}, TTL: wire.Duration(time.Minute),
	}
	inAnActivity(t, func(ctx context.Context) {
		var steps []lockcore.Lease
		for _, runID := range []string{"one", "two"} {
			leases, err := currentrun.Enter(ctx, locker.Steps(), false, of(runID), guard.Request(of(runID), 1, ""))
			require.ErrorIs(t, err, map[bool]error{true: nil, false: lockcore.ErrBusy}[runID == "one"], "the step of run one is cut off, and may still run")
			steps = append(steps, leases...)
		}
		bar := lockcore.Raise{LockID: of("three").LockID(), Run: "three", Saga: "1", Order: lockcore.LastAttempt(2), Resources: []string{"r"}}
		require.ErrorIs(t, currentrun.Raise(ctx, locker.Steps(), of("three"), bar), lockcore.ErrBusy)
		require.NoError(t, locker.Leave(ctx, steps...))
		require.NoError(t, currentrun.Raise(ctx, locker.Steps(), of("three"), bar))
	})
}

// A bar takes over what the run before it holds, on all resources.
func TestRaise_AnotherRunHolds_TakesOver(t *testing.T) {
	t.Parallel()
	locker, err := lockcore.NewWithStore(lockcoretest.NewStore(time.Now), lockcore.Config{})
	require.NoError(t, err)
	of := func(runID string) wire.Run { return wire.Run{Namespace: "n", WorkflowID: "w", RunID: runID} }
	guard := wire.Guard{Part: "3/Write", Schedule: 3, Scope: wire.ScopeSaga, Saga: "1", Resources: []wire.Resource{{Resource: lockcore.Exclusive("r")}}}
	inAnActivity(t, func(ctx context.Context) {
		leases, err := currentrun.Enter(ctx, locker.Steps(), false, of("one"), guard.Request(of("one"), 1, ""))
		require.NoError(t, err)
		require.NoError(t, locker.Leave(ctx, leases...))
		bar := lockcore.Raise{LockID: of("two").LockID(), Run: "two", Saga: "1", Order: lockcore.LastAttempt(3), Resources: []string{"q", "r"}}
		require.ErrorIs(t, locker.Steps().Raise(ctx, bar), lockcore.ErrOtherRun)
		require.NoError(t, currentrun.Raise(ctx, locker.Steps(), of("two"), bar))
		_, err = currentrun.Enter(ctx, locker.Steps(), false, of("two"), guard.Request(of("two"), 2, ""))
		require.ErrorIs(t, err, lockcore.ErrSuperseded)
	})
}

func TestInlineWait_ShortAttempt_LeavesMostOfItsTime(t *testing.T) {
	t.Parallel()
	require.Equal(t, 2*time.Second, currentrun.InlineWait(activity.Info{StartToCloseTimeout: time.Minute}))
	require.Equal(t, 500*time.Millisecond, currentrun.InlineWait(activity.Info{StartToCloseTimeout: 2 * time.Second}))
	require.Equal(t, 250*time.Millisecond, currentrun.InlineWait(activity.Info{StartToCloseTimeout: time.Minute, HeartbeatTimeout: time.Second}))
}
