package worker_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// driver does what a workflow meets whose history is recorded.
type driver = func(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun

// whileTaken starts the workflow while somebody else holds its lock; then does what comes then, and lets go.
func whileTaken(then func(*bundle, *testing.T, client.WorkflowRun, *party.Session)) driver {
	return func(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
		t.Helper()
		other := b.taken(t, account)
		run := start()
		if then != nil {
			then(b, t, run, other)
		} else {
			_ = run.Get(t.Context(), nil) // how it ends stands in its history
		}
		require.NoError(t, other.Leave(t.Context()))
		return run
	}
}

func (b *bundle) leaveWhenParked(t *testing.T, run client.WorkflowRun, other *party.Session) {
	b.untilParked(t, run)
	require.NoError(t, other.Leave(t.Context()))
}

func (b *bundle) goOnWhenParked(t *testing.T, run client.WorkflowRun, _ *party.Session) {
	b.untilParked(t, run)
	require.NoError(t, b.client.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "go", nil))
	_ = run.Get(t.Context(), nil) // how it ends stands in its history
}

func (b *bundle) cancelWhenParked(t *testing.T, run client.WorkflowRun, _ *party.Session) {
	b.untilParked(t, run)
	require.NoError(t, b.client.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
	_ = run.Get(t.Context(), nil) // how it ends stands in its history
}

func lostBetweenSteps(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	run := start()
	b.untilEvent(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
	b.forceRelease(t, run)
	require.NoError(t, b.client.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "go", nil))
	return run
}

func cancelledBetweenSteps(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	run := start()
	b.untilEvent(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
	require.NoError(t, b.client.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
	return run
}

func updated(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	run := start()
	handle, err := b.client.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
		UpdateID: "update", WorkflowID: run.GetID(), RunID: run.GetRunID(), UpdateName: "do", WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	require.NoError(t, err)
	require.NoError(t, handle.Get(t.Context(), nil))
	return run
}

// resetBetweenSteps resets a workflow as often as it waits for a signal, where it waits.
func resetBetweenSteps(times int) driver {
	return func(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
		t.Helper()
		run := start()
		for range times {
			run = b.reset(t, run, b.untilIdle(t, run))
			b.signal(t, run, "go")
		}
		return run
	}
}

// untilHeldBy waits until a run holds the account, alone.
func (b *bundle) untilHeldBy(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	require.Eventually(t, func() bool {
		return slices.Equal(b.runs(t, account.Name), []string{run.GetRunID()})
	}, within, lookEvery, "the account is not held")
}

// resetAfterAWait lets the workflow wait for its lock in vain, and resets it after that.
func resetAfterAWait(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	other := b.taken(t, account)
	old := start()
	b.untilParked(t, old)
	b.untilQueued(t, account.Name, 0)
	require.NoError(t, other.Leave(t.Context()))
	tasks := b.untilIdle(t, old)
	b.signal(t, old, "noise")
	b.completed(t, old, tasks+1)
	run := b.reset(t, old, tasks+1)
	b.signal(t, run, "go")
	return run
}

// nextRun is the run that continues the one which is started.
func nextRun(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	return b.untilContinued(t, start())
}

// inACircle lets somebody older wait for what the workflow holds, and hold what it waits for.
func inACircle(t *testing.T, b *bundle, start func() client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	older := party.Request{
		LockID: "somebody", Owner: "somebody", Started: time.Now().Add(-time.Hour), Resources: []lockcore.Resource{account2},
	}
	holds, err := b.locker.Core().TryAcquire(t.Context(), older)
	require.NoError(t, err)
	run := start()
	b.untilParked(t, run)
	older.Resources = []lockcore.Resource{account}
	got, err := b.locker.Core().Acquire(t.Context(), older)
	require.NoError(t, err)
	require.NoError(t, errors.Join(got.Leave(t.Context()), holds.Leave(t.Context())))
	return run
}
