package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

var account = lockcore.Exclusive("account/1")

func lockcoreBusy(err error) bool { return errors.Is(err, lockcore.ErrBusy) }

func do(ctx workflow.Context, name string) error {
	return workflow.ExecuteActivity(ctx, name).Get(ctx, nil)
}

func nothing(context.Context) error { return nil }

// lockID is the lock ID of a workflow of this test, whichever of its runs.
func lockID(run client.WorkflowRun) string {
	return wire.Run{Namespace: namespaceID, WorkflowID: run.GetID(), RunID: run.GetRunID()}.LockID()
}

// owner is that of a workflow.
func owner(workflowID string) string {
	return wire.Run{Namespace: namespaceID, WorkflowID: workflowID}.Owner()
}

func TestHistory_Guard_AddsNoEvent_SagaAddsOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	steps := func(ctx workflow.Context) error { return errors.Join(do(ctx, "A"), do(ctx, "B"), do(ctx, "A")) }
	b.workflow("unguarded", steps)
	b.workflow("guarded", func(ctx workflow.Context) error { return steps(workflows.Guard(ctx, account)) })
	b.workflow("saga", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account, lockcore.Shared("rates"))
			s.CompensateWith(ctx, "B")
			return steps(ctx)
		})
	})
	b.workflow("unlocked saga", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error { return steps(ctx) })
	})
	b.work(t, sdkworker.Options{}, map[string]any{"A": nothing, "B": nothing})
	count := map[string]int{}
	for name := range b.workflows {
		events, err := b.end(t, b.start(t, name))
		require.NoError(t, err)
		count[name] = countEvents(events)
	}
	require.Equal(t, count["unguarded"], count["guarded"])
	require.Equal(t, count["unguarded"], count["unlocked saga"])
	require.Equal(t, count["unguarded"]+1, count["saga"])
	b.requireFree(t, account.Name)
}

// countEvents counts a history's events, except those of workflow tasks that timed out on a busy machine.
func countEvents(events []*historypb.HistoryEvent) int {
	n := 0
	for _, e := range events {
		switch e.GetEventType() {
		case enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
			n += 3 // scheduled, started, completed
		case enumspb.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED, enumspb.EVENT_TYPE_WORKFLOW_TASK_STARTED,
			enumspb.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT, enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED:
		default:
			n++
		}
	}
	return n
}

func TestScopeStep_StepEnds_LocksAreFree(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return errors.Join(do(workflows.Guard(ctx, account), "Look"), do(ctx, "Look"))
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look})
	_, err := b.end(t, b.start(t, "W"))
	require.NoError(t, err)
	require.Equal(t, []string{"free: false", "free: true"}, b.read())
}

// look is a step that records whether another party could acquire the account.
func (b *bundle) look(ctx context.Context) error {
	free, err := b.isFree(ctx, account.Name)
	b.write("free: %v", free)
	return err
}

func TestSaga_BetweenSteps_OthersStayOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("saga", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			if err := do(ctx, "First"); err != nil {
				return err
			}
			workflow.GetSignalChannel(ctx, "go on").Receive(ctx, nil)
			return do(ctx, "Second")
		})
	})
	b.workflow("other", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Other") })
	entered := make(chan struct{})
	b.work(t, sdkworker.Options{}, map[string]any{
		"First":  func(context.Context) error { b.write("first"); close(entered); return nil },
		"Second": func(context.Context) error { b.write("second"); return nil },
		"Other":  func(context.Context) error { b.write("other"); return nil },
	})
	saga := b.start(t, "saga")
	<-entered
	other := b.start(t, "other")
	b.untilBusy(t, other)
	require.NoError(t, b.client.SignalWorkflow(t.Context(), saga.GetID(), saga.GetRunID(), "go on", nil))
	_, err := b.end(t, saga)
	require.NoError(t, err)
	_, err = b.end(t, other)
	require.NoError(t, err)
	require.Equal(t, []string{"first", "second", "other"}, b.read())
}

func TestGuard_ManyWorkflows_NoLostUpdate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const many = 8
	var balance, seen int
	b.workflow("W", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			var read int
			if err := workflow.ExecuteActivity(ctx, "Read").Get(ctx, &read); err != nil {
				return err
			}
			return workflow.ExecuteActivity(ctx, "Write", read+1).Get(ctx, nil)
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{
		"Read":  func(context.Context) (int, error) { b.mu.Lock(); defer b.mu.Unlock(); seen++; return balance, nil },
		"Write": func(_ context.Context, v int) error { b.mu.Lock(); defer b.mu.Unlock(); balance = v; return nil },
	})
	runs := make([]client.WorkflowRun, 0, many)
	for range many {
		runs = append(runs, b.start(t, "W"))
	}
	for _, run := range runs {
		_, err := b.end(t, run)
		require.NoError(t, err)
	}
	require.Equal(t, many, balance)
	require.Equal(t, many, seen)
}

func TestGuard_LockLost_StepIsCancelledWithTypedError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var told, released bool
	b.workflow("W", func(ctx workflow.Context) error {
		ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, TTL: 3 * time.Second})
		err := do(ctx, "Stuck")
		var lost *lockcore.LostError
		told = errors.As(err, &lost) && lost.Resource == account.Name
		return err
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Stuck": func(ctx context.Context) error {
		lease := activities.Leases(ctx)[0]
		if err := b.locker.Release(ctx, party.Release{LockID: lease.LockID, Resources: []string{account.Name}, Order: lease.Order}); err != nil {
			return err
		}
		<-ctx.Done()
		released = errors.Is(context.Cause(ctx), lockcore.ErrLost)
		return ctx.Err()
	}})
	_, err := b.end(t, b.start(t, "W"))
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
	require.True(t, told)
	require.True(t, released)
}

func TestGuard_MaxWaitOver_TypedErrorAndNotQueued(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var busy *lockcore.BusyError
	failed, once := make(chan struct{}), sync.Once{}
	b.workflow("W", func(ctx workflow.Context) error {
		ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, MaxWait: time.Second})
		err := do(ctx, "A")
		errors.As(err, &busy)
		once.Do(func() { close(failed) }) // a replay comes by again
		workflow.GetSignalChannel(ctx, "go on").Receive(ctx, nil)
		return err
	})
	b.work(t, sdkworker.Options{}, map[string]any{"A": nothing})
	holder, err := b.locker.Acquire(t.Context(), party.Request{LockID: "holder", Owner: "alice", Resources: []lockcore.Resource{account}})
	require.NoError(t, err)
	run := b.start(t, "W")
	<-failed
	require.NoError(t, holder.Release(t.Context()))
	// The workflow has left the queue, although it has not ended.
	b.requireFree(t, account.Name)
	require.NoError(t, b.client.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "go on", nil))
	_, err = b.end(t, run)
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrBusy)
	require.NotNil(t, busy)
	require.Equal(t, "alice", busy.Holders[0].Owner)
}

// A retry policy that names lockstep.Busy asks once, and leaves no place in a queue.
func TestGuard_BusyIsNotRetryable_TriesOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	failed, once := make(chan struct{}), sync.Once{}
	b.workflow("W", func(ctx workflow.Context) error {
		ctx = workflow.WithRetryPolicy(workflows.Guard(ctx, account), temporal.RetryPolicy{NonRetryableErrorTypes: []string{"lockstep.Busy"}})
		err := do(ctx, "A")
		once.Do(func() { close(failed) }) // a replay comes by again
		workflow.GetSignalChannel(ctx, "go on").Receive(ctx, nil)
		return err
	})
	b.work(t, sdkworker.Options{}, map[string]any{"A": nothing})
	holder, err := b.locker.Acquire(t.Context(), request("holder"))
	require.NoError(t, err)
	run := b.start(t, "W")
	<-failed
	require.NoError(t, holder.Release(t.Context()))
	b.requireFree(t, account.Name)
	require.NoError(t, b.client.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "go on", nil))
	_, err = b.end(t, run)
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrBusy)
}

func TestGuard_ResultPending_IsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Pending") })
	b.work(t, sdkworker.Options{}, map[string]any{"Pending": func(context.Context) error { return activity.ErrResultPending }})
	_, err := b.end(t, b.start(t, "W"))
	_ = failedAs(t, err, "lockstep.ResultPending")
	b.requireFree(t, account.Name)
}

func TestGuard_InUpdateHandler_StepsRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		ended := false
		err := workflow.SetUpdateHandler(ctx, "pay", func(uctx workflow.Context) error {
			uctx = workflow.WithActivityOptions(uctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
			err := do(workflows.Guard(uctx, account), "Look")
			ended = true
			return err
		})
		if err != nil {
			return err
		}
		return workflow.Await(ctx, func() bool { return ended })
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look})
	run := b.start(t, "W")
	handle, err := b.client.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: run.GetID(), RunID: run.GetRunID(), UpdateName: "pay", WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	require.NoError(t, err)
	require.NoError(t, handle.Get(t.Context(), nil))
	_, err = b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{"free: false"}, b.read())
}

func TestReplay_HistoryWithoutLockstep_ReplaysWithIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error { return errors.Join(do(ctx, "A"), do(ctx, "A")) })
	b.work(t, sdkworker.Options{Plugins: []sdkworker.Plugin{}}, map[string]any{"A": nothing})
	events, err := b.end(t, b.start(t, "W"))
	require.NoError(t, err)
	for _, e := range events {
		require.NotEqual(t, enumspb.EVENT_TYPE_MARKER_RECORDED, e.GetEventType())
	}
}

// A transfer from an account to itself names the account twice.
func TestGuard_SameNameTwice_TakesTheStrongerLock(t *testing.T) {
	t.Parallel()
	b := setup(t, worker.RuleFor("Ruled", func(any) []lockcore.Resource {
		return []lockcore.Resource{account, lockcore.Shared(account.Name)}
	}))
	b.workflow("guard", func(ctx workflow.Context) error {
		return errors.Join(
			do(workflows.Guard(ctx, account, account), "Look"),
			do(workflows.Guard(ctx, lockcore.Shared(account.Name), account, lockcore.SharedLimit(account.Name, 3)), "Look"),
		)
	})
	b.workflow("saga", func(ctx workflow.Context) error {
		return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
			return do(workflows.Guard(ctx, account, account), "Look")
		})
	})
	b.workflow("lock", func(ctx workflow.Context) error {
		return under(ctx, workflows.Locks{Resources: []lockcore.Resource{lockcore.Shared(account.Name), account}}, func(*workflows.Hold) error { return do(ctx, "Look") })
	})
	b.workflow("rule", func(ctx workflow.Context) error { return do(ctx, "Ruled") })
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look, "Ruled": b.look})
	for _, name := range []string{"guard", "saga", "lock", "rule"} {
		_, err := b.end(t, b.start(t, name))
		require.NoError(t, err, name)
		b.requireFree(t, account.Name)
	}
	require.Equal(t, []string{"free: false", "free: false", "free: false", "free: false", "free: false"}, b.read())
}

func TestGuard_SameNameTwiceOnceInvalid_IsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	invalid := lockcore.Resource{Name: account.Name, Mode: "Z"}
	b.workflow("guard", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account, invalid), "Run") })
	b.workflow("lock", func(ctx workflow.Context) error {
		return under(ctx, locks(account, invalid), func(*workflows.Hold) error { return nil })
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Run": func(context.Context) error { b.write("ran"); return nil }})
	for _, name := range []string{"guard", "lock"} {
		_, err := b.end(t, b.start(t, name))
		var refused *lockcore.InvalidError
		require.ErrorAs(t, workflows.LockError(err), &refused, name)
		require.Contains(t, refused.Field, "Mode", name)
		require.Equal(t, `"Z"`, refused.Value, name)
	}
	require.Empty(t, b.read())
}

// Temporal terminates a workflow that sets a search attribute of more than 2,048 bytes: these names have more.
func TestGuard_ManyLongNamesBusy_WorkflowTaskSucceeds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	resources := make([]lockcore.Resource, 45)
	for i := range resources {
		resources[i] = lockcore.Exclusive(fmt.Sprintf("%s/%d", strings.Repeat("x", 50), i))
	}
	b.workflow("W", func(ctx workflow.Context) error {
		steps := make([]workflow.Future, len(resources))
		for i, r := range resources {
			steps[i] = workflow.ExecuteActivity(workflows.Guard(ctx, r), "Nothing")
		}
		for _, step := range steps {
			if err := step.Get(ctx, nil); err != nil {
				return err
			}
		}
		return nil
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Nothing": nothing})
	held, err := b.locker.TryAcquire(t.Context(), party.Request{LockID: "somebody", Resources: resources})
	require.NoError(t, err)
	run := b.start(t, "W")
	require.Eventually(t, func() bool {
		d, err := b.client.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
		steps := slices.ContainsFunc(d.GetPendingActivities(), func(a *workflowpb.PendingActivityInfo) bool {
			return a.GetActivityType().GetName() != "lockstep.Wait"
		})
		ended := d.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
		return err == nil && (ended || len(d.GetPendingActivities()) == len(resources) && !steps)
	}, within, lookEvery, "the steps do not wait")
	require.NoError(t, held.Leave(t.Context()))
	_, err = b.end(t, run)
	require.NoError(t, err)
}

func TestOptions_OfAnotherFunction_AreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	resources := []lockcore.Resource{account}
	b.workflow("scope", func(ctx workflow.Context) error {
		_, err := workflows.Lock(ctx, workflows.Locks{Resources: resources, Scope: workflows.ScopeSaga})
		return err
	})
	odd := lockcore.Exclusive("\xff\xfe")
	b.workflow("name of a step", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account, odd), "Look") })
	b.workflow("name", func(ctx workflow.Context) error {
		_, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{odd}})
		return err
	})
	b.workflow("wait", func(ctx workflow.Context) error {
		return do(workflows.WithLocks(ctx, workflows.Locks{Resources: resources, MaxWait: -time.Second}), "Look")
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look})
	for name, field := range map[string]string{
		"scope":          "Locks.Scope",
		"name of a step": "Locks.Resources[1].Name", "name": "Locks.Resources[0].Name", "wait": "Locks.MaxWait",
	} {
		_, err := b.end(t, b.start(t, name))
		require.ErrorContains(t, err, field)
		require.Empty(t, b.read())
		b.requireFree(t, account.Name)
	}
}

func TestLocks_NegativeDuration_IsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	resources := []lockcore.Resource{account}
	for field, l := range map[string]workflows.Locks{
		"Locks.TTL": {Resources: resources, TTL: -time.Second}, "Locks.HoldTTL": {Resources: resources, HoldTTL: -time.Second},
		"Locks.MaxWait": {Resources: resources, MaxWait: -time.Second},
	} {
		b.workflow("step "+field, func(ctx workflow.Context) error { return do(workflows.WithLocks(ctx, l), "Look") })
		b.workflow("lock "+field, func(ctx workflow.Context) error {
			_, err := workflows.Lock(ctx, l)
			return err
		})
	}
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.look})
	for _, field := range []string{"Locks.TTL", "Locks.HoldTTL", "Locks.MaxWait"} {
		for _, name := range []string{"step ", "lock "} {
			events, err := b.end(t, b.start(t, name+field))
			var invalid *lockcore.InvalidError
			require.ErrorAs(t, workflows.LockError(err), &invalid, name+field)
			require.Equal(t, field, invalid.Field)
			require.Equal(t, "-1s", invalid.Value)
			require.Equal(t, []string{"failed: lockstep.Invalid"}, commands(t, &historypb.History{Events: events}), "nothing was scheduled")
		}
	}
	require.Empty(t, b.read())
}

func TestAcquire_NegativeDuration_IsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, field := range []string{"ttl", "holdTtl"} {
		b.workflow(field, func(ctx workflow.Context) error {
			in := map[string]any{"resources": []lockcore.Resource{account}, "schedule": 1, "holdOnly": true, field: "-1s"}
			return workflow.ExecuteActivity(ctx, "lockstep.Acquire", in).Get(ctx, nil)
		})
	}
	b.work(t, sdkworker.Options{}, nil)
	for field, refused := range map[string]string{"ttl": "TTL", "holdTtl": "HoldTTL"} {
		_, err := b.end(t, b.start(t, field))
		var invalid *lockcore.InvalidError
		require.ErrorAs(t, workflows.LockError(err), &invalid, field)
		require.Equal(t, refused, invalid.Field)
		require.Equal(t, "-1s", invalid.Value)
	}
	b.requireFree(t, account.Name)
}
