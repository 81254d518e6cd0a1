package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// A worker's one slot is taken by other work whenever the step that waits could be in time for what its workflow was granted, but for no
// longer than a second after that; and is free when others have just been let in. Each claim that the step comes too late for is
// followed by one that stands twice as long, until one still stands when the slot is free.
func TestAStepThatWaitsForASlotLongerThanAClaimStandsGetsItsLock(t *testing.T) {
	t.Parallel()
	b := setupWith(t, lockcore.Config{ClaimTTL: 300 * time.Millisecond})
	b.workflow("Late", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Note") })
	b.workflow("Load", func(ctx workflow.Context) error { return again(ctx, "Take") })
	b.workflow("Rival", func(ctx workflow.Context) error { return again(workflows.Guard(ctx, account), "Use") })
	b.work(t, sdkworker.Options{MaxConcurrentActivityExecutionSize: 1}, map[string]any{"Note": b.noteRun, "Take": b.takeSlot})
	var rivals atomic.Int64
	queue := b.elsewhere(t, map[string]any{"Use": func(ctx context.Context) error {
		rivals.Add(1)
		select { // longer than a step waits inline
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
		}
		return ctx.Err()
	}})

	other := b.taken(t, account)
	late := b.start(t, "Late")
	b.untilParked(t, late)
	load := b.start(t, "Load")
	b.terminateAtEnd(t, load)
	b.untilActivity(t, load, func(a *workflowpb.PendingActivityInfo) bool {
		return a.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED
	}, "the slot was not taken")
	for range 2 { // one alone may come too late for the slot
		b.terminateAtEnd(t, b.start(t, "Load"))
	}
	for range 2 {
		rival, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue}, "Rival")
		require.NoError(t, err)
		b.terminateAtEnd(t, rival)
	}
	b.untilQueued(t, account.Name, 3)
	require.NoError(t, other.Leave(t.Context()))

	began := time.Now()
	events, err := b.end(t, late)
	require.NoError(t, err)
	steps := scheduled(events, "Note")
	t.Logf("after %v: %d events, the step scheduled %d times, others let in %d times", time.Since(began), len(events), steps, rivals.Load())
	require.Equal(t, []string{late.GetRunID()}, b.read())
	require.Less(t, steps, 12, "the history grows")
	require.Positive(t, rivals.Load(), "nobody else was let in, so nothing is shown")
}

// takeSlot is an activity that takes its slot until somebody has just entered the account, or a claim to it has stood for a second.
func (b *bundle) takeSlot(ctx context.Context) error {
	filter := lockcore.Filter{Resource: account.Name, States: []lockcore.State{lockcore.StateHolding, lockcore.StateClaimed}}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		for s, err := range b.locker.Status(ctx, filter) {
			switch {
			case err != nil:
				return err
			case s.ExpiresIn <= 0:
			case s.State == lockcore.StateHolding && s.LockID != "somebody" && s.Silent < 500*time.Millisecond,
				s.State == lockcore.StateClaimed && s.Silent >= time.Second:
				return nil
			}
		}
	}
}

// again does a step for as long as the workflow is not terminated.
func again(ctx workflow.Context, name string) error {
	for {
		if err := do(ctx, name); err != nil {
			return err
		}
	}
}

// elsewhere starts a second worker, with a task queue of its own, until the test ends.
func (b *bundle) elsewhere(t *testing.T, activities map[string]any) (queue string) {
	t.Helper()
	queue = b.queue + "-elsewhere"
	w := sdkworker.New(b.client, queue, sdkworker.Options{Plugins: []sdkworker.Plugin{b.plugin}})
	for name, fn := range b.workflows {
		w.RegisterWorkflowWithOptions(fn, workflow.RegisterOptions{Name: name})
	}
	for name, fn := range activities {
		w.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return queue
}

// terminateAtEnd ends a run that does not end by itself.
func (b *bundle) terminateAtEnd(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	t.Cleanup(func() {
		require.NoError(t, b.client.TerminateWorkflow(context.Background(), run.GetID(), "", "the test has ended"))
	})
}

// scheduled counts how often an activity was scheduled.
func scheduled(events []*historypb.HistoryEvent, name string) int {
	n := 0
	for _, e := range events {
		if e.GetEventType() == enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED && e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() == name {
			n++
		}
	}
	return n
}
