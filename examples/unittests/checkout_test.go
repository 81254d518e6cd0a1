package unittests_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.uber.org/goleak"

	"github.com/temporal-lockstep/lockstep/examples/unittests"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const seat = "seat/12"

// theatre has a workflow environment, locks and a shop of a test's own.
type theatre struct {
	env    *testsuite.TestWorkflowEnvironment
	locker *lockcore.Locker
	shop   *unittests.Shop
	// did has the steps that the shop ran, with a note if the seat was not locked.
	did []string
}

func setup(t *testing.T) *theatre {
	t.Helper()
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	th := &theatre{env: suite.NewTestWorkflowEnvironment()}
	// The locks expire by the clock of the environment, which skips the time in which nothing happens.
	locker, err := lockcore.NewWithStore(lockcoretest.NewStore(th.env.Now), lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locker.Close(context.Background())) })
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker})
	require.NoError(t, err)
	// The environment's own limits, of a second and of three, are those of a machine that is not busy.
	th.env.SetWorkerOptions(sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}, DeadlockDetectionTimeout: time.Minute})
	th.env.SetTestTimeout(time.Minute)
	th.locker = locker
	th.shop = &unittests.Shop{
		OnCharge: func(ctx context.Context, _ string) (string, error) { return "charge/1", th.do(ctx, "charge") },
		OnRefund: func(ctx context.Context, _, charge string) error { return th.do(ctx, "refund of "+charge) },
		OnIssue:  func(ctx context.Context, _ string) error { return th.do(ctx, "issue") },
	}
	th.env.RegisterActivity(th.shop)
	return th
}

func (th *theatre) do(ctx context.Context, what string) error {
	if th.isFree(ctx) {
		what += " without a lock"
	}
	th.did = append(th.did, what)
	return nil
}

// isFree reports whether another customer could lock the seat.
func (th *theatre) isFree(ctx context.Context) bool {
	session, err := th.locker.TryAcquire(ctx, th.otherCustomer())
	if err != nil {
		return false
	}
	return session.Leave(ctx) == nil
}

func (th *theatre) otherCustomer() lockcore.Request {
	return lockcore.Request{LockID: "other customer", Resources: []lockcore.Resource{lockcore.Exclusive(seat)}, TTL: time.Hour}
}

func TestCheckout_Success_HoldsSeatUntilItsEnd(t *testing.T) {
	t.Parallel()
	th := setup(t)
	th.env.ExecuteWorkflow(unittests.Checkout, seat)
	require.True(t, th.env.IsWorkflowCompleted())
	require.NoError(t, th.env.GetWorkflowError())
	require.Equal(t, []string{"charge", "issue"}, th.did)
	require.True(t, th.isFree(t.Context()))
}

func TestCheckout_IssueFails_RefundsUnderTheLock(t *testing.T) {
	t.Parallel()
	th := setup(t)
	th.shop.OnIssue = func(context.Context, string) error {
		return temporal.NewNonRetryableApplicationError("no paper", "NoPaper", nil)
	}
	th.env.ExecuteWorkflow(unittests.Checkout, seat)
	require.True(t, th.env.IsWorkflowCompleted())
	require.ErrorContains(t, th.env.GetWorkflowError(), "no paper")
	require.Equal(t, []string{"charge", "refund of charge/1"}, th.did)
	require.True(t, th.isFree(t.Context()))
}

func TestCheckout_ChargeFails_RefundsWithoutItsID(t *testing.T) {
	t.Parallel()
	th := setup(t)
	th.shop.OnCharge = func(context.Context, string) (string, error) {
		return "", temporal.NewNonRetryableApplicationError("no answer", "NoAnswer", nil)
	}
	th.env.ExecuteWorkflow(unittests.Checkout, seat)
	require.True(t, th.env.IsWorkflowCompleted())
	require.ErrorContains(t, th.env.GetWorkflowError(), "no answer")
	require.Equal(t, []string{"refund of "}, th.did)
}

func TestCheckout_WaitsTooLong_Fails(t *testing.T) {
	t.Parallel()
	th := setup(t)
	_, err := th.locker.TryAcquire(t.Context(), th.otherCustomer())
	require.NoError(t, err)
	th.env.ExecuteWorkflow(unittests.Checkout, seat)
	require.True(t, th.env.IsWorkflowCompleted())
	var app *temporal.ApplicationError
	require.ErrorAs(t, th.env.GetWorkflowError(), &app)
	require.Equal(t, unittests.FailureTaken, app.Type())
}

// No janitor works in the environment. A lock lasts for its HoldTTL, which must be longer than the time that the test skips.
func TestLock_SkippedTime_LastsForHoldTTL(t *testing.T) {
	t.Parallel()
	th := setup(t)
	th.env.ExecuteWorkflow(func(ctx workflow.Context) error {
		hold, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{lockcore.Exclusive(seat)}, HoldTTL: 48 * time.Hour})
		if err != nil {
			return err
		}
		err = workflow.Sleep(ctx, 24*time.Hour)
		if th.isFree(t.Context()) {
			err = errors.New("it was not held")
		}
		if lost := hold.Release(ctx); err == nil {
			err = lost // another party may have had the lock
		}
		return err
	})
	require.True(t, th.env.IsWorkflowCompleted())
	require.NoError(t, th.env.GetWorkflowError())
	require.True(t, th.isFree(t.Context()))
}
