package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

var errLate = errors.New("too late")

// untilWaiting blocks until the workflow is told that its step waits.
func untilWaiting(ctx workflow.Context) { workflow.GetSignalChannel(ctx, "waits").Receive(ctx, nil) }

func (b *bundle) tellWaiting(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	b.untilParked(t, run)
	require.NoError(t, b.client.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "waits", nil))
}

// Whether its saga fails or succeeds, and wherever its locks are taken, a step that waits when the saga's function returns does
// not run afterwards, and leaves nothing.
func TestAStepThatWaitsWhenItsSagaEndsDoesNotRunAnyMore(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		locks  workflows.Locks
		result error
		want   []string
	}{
		"undone":          {workflows.Locks{}, errLate, []string{"undo"}},
		"step scope":      {workflows.Locks{Scope: workflows.ScopeStep}, errLate, []string{"undo"}},
		"committed":       {workflows.Locks{}, nil, nil},
		"committed, step": {workflows.Locks{Scope: workflows.ScopeStep}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			tc.locks.Resources = []lockcore.Resource{account}
			b.workflow("W", func(ctx workflow.Context) error {
				var step workflow.Future
				err := workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
					s.CompensateWith(workflows.Unguarded(ctx), "Undo")
					step = workflow.ExecuteActivity(workflows.WithLocks(ctx, tc.locks), "Do")
					untilWaiting(ctx)
					return tc.result
				})
				if left := step.Get(ctx, nil); !errors.Is(err, tc.result) || !errors.Is(left, lockcore.ErrEnded) {
					return fmt.Errorf("saga: %w, step: %w", err, left)
				}
				return nil
			})
			b.work(t, sdkworker.Options{}, map[string]any{
				"Do":   func(context.Context) error { b.write("do"); return nil },
				"Undo": func(context.Context) error { b.write("undo"); return nil },
			})
			other := b.taken(t, account)
			run := b.start(t, "W")
			b.tellWaiting(t, run)
			_, err := b.end(t, run)
			require.NoError(t, err)
			require.Equal(t, tc.want, b.read())
			b.untilQueued(t, account.Name, 0)
			require.NoError(t, other.Leave(t.Context()))
			b.requireFree(t, account.Name)
		})
	}
}

func TestAStepOfASagaThatEndedWhileItWaitedNeedsNoUndoing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			s.Step(workflows.Guard(ctx, account), "Do", "Undo")
			untilWaiting(ctx)
			return errLate
		})
	})
	note := func(context.Context) error { b.write("ran"); return nil }
	b.work(t, sdkworker.Options{}, map[string]any{"Do": note, "Undo": note})
	other := b.taken(t, account)
	run := b.start(t, "W")
	b.tellWaiting(t, run)
	_, err := b.end(t, run)
	require.ErrorContains(t, err, errLate.Error())
	require.Empty(t, b.read(), "an undo would wait for the same lock")
	b.untilQueued(t, account.Name, 0)
	require.NoError(t, other.Leave(t.Context()))
	b.requireFree(t, account.Name)
}

// A run that ends in whatever way leaves the queues in which its steps wait, and who comes behind them has not to wait for grants to
// lapse.
func TestARunThatEndsWhileAStepWaitsLeavesTheQueue(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(ctx workflow.Context) error{
		"completed": func(workflow.Context) error { return nil },
		"continued": func(ctx workflow.Context) error { return workflow.NewContinueAsNewError(ctx, "Next") },
		"handed over": func(ctx workflow.Context) error {
			return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "Next"))
		},
	} {
		for _, scope := range []workflows.Scope{workflows.ScopeStep, workflows.ScopeSaga} {
			t.Run(name+", "+string(scope), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.workflow("Next", func(ctx workflow.Context) error { return workflow.Sleep(ctx, longer) })
				b.workflow("W", func(ctx workflow.Context) error {
					_ = workflow.ExecuteActivity(workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, Scope: scope}), "Do")
					untilWaiting(ctx)
					return end(ctx)
				})
				b.work(t, sdkworker.Options{}, map[string]any{"Do": func(context.Context) error { b.write("do"); return nil }})
				other := b.taken(t, account)
				run := b.start(t, "W")
				t.Cleanup(func() { _ = b.client.TerminateWorkflow(context.Background(), run.GetID(), "", "the test is over") })
				b.tellWaiting(t, run)
				history := b.untilClosed(t, run)
				b.untilQueued(t, account.Name, 0)
				b.replay(t, history)
				require.NoError(t, other.Leave(t.Context()))
				b.requireFree(t, account.Name)
				require.Empty(t, b.read())
			})
		}
	}
}

// untilClosed waits for the end of a run itself, and not of those that continue it.
func (b *bundle) untilClosed(t *testing.T, run client.WorkflowRun) *historypb.History {
	t.Helper()
	require.Eventually(t, func() bool {
		d, err := b.client.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
		return err == nil && d.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	}, within, lookEvery, "the run did not end")
	return b.historyOf(t, run.GetID(), run.GetRunID())
}
