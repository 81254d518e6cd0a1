package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// A query handler may not run steps, locks or not; it neither takes nor releases anything, also where the run has to be
// replayed for it.
func TestAQueryChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		err := workflow.SetQueryHandler(ctx, "ask", func(step bool) (string, error) {
			if step {
				return "", do(workflows.Guard(ctx, account), "Look")
			}
			return "answer", nil
		})
		return errors.Join(err, holds(briefly)(ctx))
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look})
	run := b.start(t, "W")
	b.completed(t, run, 2)
	_, err := b.client.QueryWorkflow(t.Context(), run.GetID(), run.GetRunID(), "ask", true)
	require.Error(t, err)
	sdkworker.PurgeStickyWorkflowCache()
	_, err = b.client.QueryWorkflow(t.Context(), run.GetID(), run.GetRunID(), "ask", false)
	require.NoError(t, err)
	require.Equal(t, []string{lockID(run)}, b.holders(t, account.Name))
	b.signal(t, run, "go on")
	_, err = b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{"free: false"}, b.read())
	b.requireFree(t, account.Name)
}

// The run ends while an update's step runs, in scope saga: the release cuts it off, and others wait until it has returned.
func TestAnUpdateThatOutlivesItsRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	b.workflow("W", func(ctx workflow.Context) error {
		err := workflow.SetUpdateHandler(ctx, "pay", func(uctx workflow.Context) error {
			uctx = workflow.WithActivityOptions(uctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
			return do(workflows.WithLocks(uctx, workflows.Locks{Resources: []lockcore.Resource{account}, Scope: workflows.ScopeSaga}), "Step")
		})
		receive(ctx, "go on")
		return err
	})
	b.workflow("other", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Other") })
	b.work(t, sdkworker.Options{}, map[string]any{
		"Step":  func(context.Context) error { close(entered); <-leave; b.write("step"); return nil },
		"Other": func(context.Context) error { b.write("other"); return nil },
	})
	run := b.start(t, "W")
	_, err := b.client.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: run.GetID(), RunID: run.GetRunID(), UpdateName: "pay", WaitForStage: client.WorkflowUpdateStageAccepted,
	})
	require.NoError(t, err)
	<-entered
	b.signal(t, run, "go on")
	_, err = b.end(t, run)
	require.NoError(t, err)
	other := b.start(t, "other")
	b.untilParked(t, other)
	close(leave)
	_, err = b.end(t, other)
	require.NoError(t, err)
	require.Equal(t, []string{"step", "other"}, b.read())
}

// A child has its own locks: its parent's keep it out, and how it ends is its own end.
func TestAChildLocksInItsOwnName(t *testing.T) {
	t.Parallel()
	for policy, free := range map[enumspb.ParentClosePolicy]bool{
		enumspb.PARENT_CLOSE_POLICY_REQUEST_CANCEL: true,  // it is cancelled, and so releases
		enumspb.PARENT_CLOSE_POLICY_ABANDON:        false, // it goes on, and holds
	} {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.workflow("child", func(ctx workflow.Context) error {
				return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
					err := do(workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, Try: true}), "Look")
					if !lockcoreBusy(err) {
						return errors.Join(errors.New("the parent's lock did not keep its child out"), err)
					}
					if err := do(workflows.Guard(ctx, second), "Look"); err != nil {
						return err
					}
					selector := workflow.NewSelector(ctx)
					selector.AddReceive(workflow.GetSignalChannel(ctx, "go on"), func(workflow.ReceiveChannel, bool) {})
					selector.AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {})
					selector.Select(ctx)
					return ctx.Err()
				})
			})
			b.workflow("W", func(ctx workflow.Context) error {
				return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
					if err := do(workflows.Guard(ctx, account), "Look"); err != nil {
						return err
					}
					child := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
						WorkflowID: b.queue, ParentClosePolicy: policy,
					}), "child")
					if err := child.GetChildWorkflowExecution().Get(ctx, nil); err != nil {
						return err
					}
					receive(ctx, "go on")
					return nil
				})
			})
			b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look})
			run := b.start(t, "W")
			b.untilWritten(t, 2)
			child := b.client.GetWorkflow(t.Context(), b.queue, "")
			require.Eventually(t, func() bool { return len(b.holders(t, second.Name)) == 1 }, within, lookEvery, "the child holds nothing")
			b.signal(t, run, "go on")
			_, err := b.end(t, run)
			require.NoError(t, err)
			b.requireFree(t, account.Name)
			if !free {
				require.Len(t, b.holders(t, second.Name), 1)
				b.signal(t, child, "go on")
			}
			b.requireFree(t, second.Name)
		})
	}
}
