package worker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// suite is the SDK's test environment with the plugin, and locks in memory.
type suite struct {
	*testsuite.TestWorkflowEnvironment
	locker *lockcore.Steps
	// ran counts how often the step "Do" ran, and guarded how often another party could not acquire its lock meanwhile.
	ran, guarded int
}

func inMemory(t *testing.T, now func(*testsuite.TestWorkflowEnvironment) func() time.Time) *suite {
	t.Helper()
	return inMemoryLogging(t, now, slog.DiscardHandler)
}

func inMemoryLogging(t *testing.T, now func(*testsuite.TestWorkflowEnvironment) func() time.Time, logs slog.Handler) *suite {
	t.Helper()
	all := &testsuite.WorkflowTestSuite{}
	all.SetLogger(log.NewStructuredLogger(slog.New(logs)))
	s := &suite{TestWorkflowEnvironment: all.NewTestWorkflowEnvironment()}
	locker, err := lockcore.NewWithStore(lockcoretest.NewStore(now(s.TestWorkflowEnvironment)), lockcore.Config{})
	require.NoError(t, err)
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker})
	require.NoError(t, err)
	s.locker = locker.Steps()
	// Its own limits, of a second and of three, are those of a machine that is not busy.
	s.SetWorkerOptions(sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}, DeadlockDetectionTimeout: within})
	s.SetTestTimeout(within)
	s.RegisterActivityWithOptions(func(ctx context.Context) error {
		s.ran++
		if !s.isFree(ctx) {
			s.guarded++
		}
		return nil
	}, activity.RegisterOptions{Name: "Do"})
	return s
}

func itsClock(env *testsuite.TestWorkflowEnvironment) func() time.Time { return env.Now }
func wallClock(*testsuite.TestWorkflowEnvironment) func() time.Time    { return time.Now }

func (s *suite) isFree(ctx context.Context) bool {
	leases, err := s.locker.TryEnter(ctx, lockcore.StepRequest{Caller: lockcore.Caller{LockID: "nobody"}, Resources: []lockcore.Resource{account}})
	return err == nil && s.locker.Leave(ctx, leases...) == nil
}

// taken is another party's hold on the account.
func (s *suite) taken(t *testing.T, ttl time.Duration) []lockcore.Lease {
	t.Helper()
	leases, err := s.locker.TryEnter(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "somebody"}, Resources: []lockcore.Resource{account}, TTL: ttl})
	require.NoError(t, err)
	return leases
}

func (s *suite) run(t *testing.T, fn func(ctx workflow.Context) error) error {
	t.Helper()
	s.ExecuteWorkflow(func(ctx workflow.Context) error { return fn(workflows.Guard(withOptions(ctx), account)) })
	require.True(t, s.IsWorkflowCompleted())
	return s.GetWorkflowError()
}

func TestTestEnvironment_Busy_WaitsForRelease(t *testing.T) {
	t.Parallel()
	for clock, now := range map[string]func(*testsuite.TestWorkflowEnvironment) func() time.Time{"its clock": itsClock, "wall clock": wallClock} {
		s := inMemory(t, now)
		leases := s.taken(t, time.Hour)
		s.RegisterDelayedCallback(func() { require.NoError(t, s.locker.Leave(t.Context(), leases...)) }, time.Minute)
		began := s.Now()
		require.NoError(t, s.run(t, twoSteps), clock)
		require.GreaterOrEqual(t, s.Now().Sub(began), time.Minute)
		require.Positive(t, s.ran)
		require.Equal(t, s.ran, s.guarded)
		require.True(t, s.isFree(t.Context()))
	}
}

func TestTestEnvironment_Clock_ExpiresLocks(t *testing.T) {
	t.Parallel()
	s := inMemory(t, itsClock)
	s.taken(t, time.Minute)
	require.NoError(t, s.run(t, twoSteps))
	require.Equal(t, 2, s.guarded)
}

// The SDK gives up an activity after ten attempts there, or a test whose lock is never free would not end.
func TestTestEnvironment_NeverReleased_MaxWaitEndsWait(t *testing.T) {
	t.Parallel()
	s := inMemory(t, itsClock)
	s.taken(t, lockcore.Forever)
	err := s.run(t, twoSteps)
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrBusy)
	require.Zero(t, s.ran)
	require.Empty(t, s.waiting(t))
}

func TestTestEnvironment_WaitCancelled_LeavesTheQueue(t *testing.T) {
	t.Parallel()
	s := inMemory(t, itsClock)
	s.taken(t, lockcore.Forever)
	var waited int
	s.RegisterDelayedCallback(func() { waited = len(s.waiting(t)); s.CancelWorkflow() }, 30*time.Second)
	err := s.run(t, func(ctx workflow.Context) error {
		err := twoSteps(ctx)
		ctx, _ = workflow.NewDisconnectedContext(ctx)
		return errors.Join(err, workflow.Sleep(ctx, time.Minute)) // the environment ends the activity at its next attempt only
	})
	require.True(t, temporal.IsCanceledError(err), "%v", err)
	require.Equal(t, 1, waited)
	require.Empty(t, s.waiting(t))
}

func (s *suite) waiting(t *testing.T) (all []lockcore.Status) {
	t.Helper()
	for status, err := range s.locker.Status(t.Context(), lockcore.Filter{States: []lockcore.State{lockcore.StateWaiting}}) {
		require.NoError(t, err)
		all = append(all, status)
	}
	return all
}

// A mocked step takes no locks, which is neither a loss nor worth a log line.
func TestTestEnvironment_MockedSteps_LogsNothing(t *testing.T) {
	t.Parallel()
	var logs bytes.Buffer
	s := inMemoryLogging(t, itsClock, slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s.OnActivity("Do", mock.Anything).Return(nil)
	require.NoError(t, s.run(t, func(ctx workflow.Context) error {
		hold, err := workflows.Lock(ctx, locks(account))
		if err != nil {
			return err
		}
		return errors.Join(saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account, lockcore.Exclusive("account/2"))
			return s.Step(ctx, "Do", "Do").Get(ctx, nil)
		}), hold.Release(ctx))
	}))
	require.Empty(t, logs.String())
}
