package unittests_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

func issueTicket(context.Context) error { return nil }

func buy(ctx workflow.Context) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	ctx = workflows.Guard(ctx, lockcore.Exclusive("seat/12"))
	return workflow.ExecuteActivity(ctx, issueTicket).Get(ctx, nil)
}

func TestBuy_SeatIsLocked_Waits(t *testing.T) {
	env := (&testsuite.WorkflowTestSuite{}).NewTestWorkflowEnvironment()
	// The locks expire by the clock of the environment, which skips the time in which nothing happens.
	locker, err := lockcore.NewWithStore(lockcoretest.NewStore(env.Now), lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locker.Close(context.Background())) })
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker})
	require.NoError(t, err)
	// The environment's own limits, of a second and of three, are those of a machine that is not busy.
	env.SetWorkerOptions(sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}, DeadlockDetectionTimeout: time.Minute})
	env.SetTestTimeout(time.Minute)
	env.RegisterActivity(issueTicket)

	// Another customer has the seat, and releases it a minute later.
	session, err := locker.TryAcquire(t.Context(), lockcore.Request{
		LockID: "another customer", Resources: []lockcore.Resource{lockcore.Exclusive("seat/12")}, TTL: time.Hour,
	})
	require.NoError(t, err)
	began := env.Now()
	env.RegisterDelayedCallback(func() { require.NoError(t, session.Leave(t.Context())) }, time.Minute)

	env.ExecuteWorkflow(buy)
	require.NoError(t, env.GetWorkflowError())
	require.GreaterOrEqual(t, env.Now().Sub(began), time.Minute)
}
