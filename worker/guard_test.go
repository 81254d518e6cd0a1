package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"

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
	b.serve(t)
	b.succeed(t, b.start(t, "W"))
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
	b.saga("saga", func(ctx workflow.Context, _ *workflows.Saga) error {
		ctx = workflows.Guard(ctx, account)
		if err := do(ctx, "First"); err != nil {
			return err
		}
		receive(ctx, "go on")
		return do(ctx, "Second")
	})
	b.workflow("other", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Other") })
	entered := make(chan struct{})
	b.work(t, sdkworker.Options{}, map[string]any{
		"First":  func(context.Context) error { b.write("first"); close(entered); return nil },
		"Second": b.writer("second"),
		"Other":  b.writer("other"),
	})
	saga := b.start(t, "saga")
	<-entered
	other := b.start(t, "other")
	b.untilBusy(t, other)
	b.signal(t, saga, "go on")
	b.succeed(t, saga)
	b.succeed(t, other)
	require.Equal(t, []string{"first", "second", "other"}, b.read())
}

func TestGuard_ManyWorkflows_NoLostUpdate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const many = 8
	var balance, seen int
	b.saga("W", func(ctx workflow.Context, _ *workflows.Saga) error {
		ctx = workflows.Guard(ctx, account)
		var read int
		if err := workflow.ExecuteActivity(ctx, "Read").Get(ctx, &read); err != nil {
			return err
		}
		return workflow.ExecuteActivity(ctx, "Write", read+1).Get(ctx, nil)
	})
	b.work(t, sdkworker.Options{}, map[string]any{
		"Read":  func(context.Context) (int, error) { b.mu.Lock(); defer b.mu.Unlock(); seen++; return balance, nil },
		"Write": func(_ context.Context, v int) error { b.mu.Lock(); defer b.mu.Unlock(); balance = v; return nil },
	})
	runs := make([]client.WorkflowRun, 0, many)
	for range many {
		runs = append(runs, b.start(t, "W"))
	}
	b.succeed(t, runs...)
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
		if err := b.locker.Release(ctx, lockcore.Release{LockID: lease.LockID, Resources: []string{account.Name}, Order: lease.Order}); err != nil {
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
	b.serve(t)
	run := b.start(t, "W")
	handle, err := b.client.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: run.GetID(), RunID: run.GetRunID(), UpdateName: "pay", WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	require.NoError(t, err)
	require.NoError(t, handle.Get(t.Context(), nil))
	b.succeed(t, run)
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
	b.saga("saga", func(ctx workflow.Context, _ *workflows.Saga) error {
		return do(workflows.Guard(ctx, account, account), "Look")
	})
	b.workflow("lock", func(ctx workflow.Context) error {
		return under(ctx, workflows.Locks{Resources: []lockcore.Resource{lockcore.Shared(account.Name), account}}, func(*workflows.Hold) error { return do(ctx, "Look") })
	})
	b.workflow("rule", func(ctx workflow.Context) error { return do(ctx, "Ruled") })
	b.work(t, sdkworker.Options{}, map[string]any{"Ruled": b.look})
	for _, name := range []string{"guard", "saga", "lock", "rule"} {
		_, err := b.end(t, b.start(t, name))
		require.NoError(t, err, name)
		b.requireFree(t, account.Name)
	}
	require.Equal(t, []string{"free: false", "free: false", "free: false", "free: false", "free: false"}, b.read())
}

// A step and a Lock are refused, nearly always before anything is scheduled, and the error names the field.
func TestLocks_Invalid_NothingIsScheduled(t *testing.T) {
	t.Parallel()
	one := []lockcore.Resource{account}
	step := func(l workflows.Locks) func(ctx workflow.Context) error {
		return func(ctx workflow.Context) error { return do(workflows.WithLocks(ctx, l), "Look") }
	}
	lock := func(l workflows.Locks) func(ctx workflow.Context) error {
		return func(ctx workflow.Context) error {
			_, err := workflows.Lock(ctx, l)
			return err
		}
	}
	both := []func(l workflows.Locks) func(ctx workflow.Context) error{step, lock}
	b := setup(t)
	fields := map[string]string{}
	for _, tc := range []struct {
		field string
		locks workflows.Locks
		uses  []func(l workflows.Locks) func(ctx workflow.Context) error
	}{
		{"Locks.TTL", workflows.Locks{Resources: one, TTL: -time.Second}, both},
		{"Locks.HoldTTL", workflows.Locks{Resources: one, HoldTTL: -time.Second}, both},
		{"Locks.MaxWait", workflows.Locks{Resources: one, MaxWait: -time.Second}, both},
		{"Locks.Resources[0].Name", locks(lockcore.Exclusive("\xff\xfe")), both},
		{"Locks.Resources[1].Name", locks(account, lockcore.Exclusive("\xff\xfe")), both},
		{"Locks.Resources[0].Mode", locks(account, lockcore.Resource{Name: account.Name, Mode: "Z"}), both},
		{"Locks.Scope", workflows.Locks{Resources: one, Scope: workflows.ScopeSaga}, both[1:]},
	} {
		for i, use := range tc.uses {
			name := fmt.Sprintf("%s %d", tc.field, i)
			fields[name] = tc.field
			b.workflow(name, use(tc.locks))
		}
	}
	b.serve(t)
	for name, field := range fields {
		events, err := b.end(t, b.start(t, name))
		var invalid *lockcore.InvalidError
		require.ErrorAs(t, workflows.LockError(err), &invalid, name)
		if strings.HasSuffix(field, "Mode") { // which the worker refuses, and a Lock under the name that its activity has
			require.Contains(t, invalid.Field, "Resources[0].Mode", name)
			continue
		}
		require.Equal(t, field, invalid.Field, name)
		require.Equal(t, []string{"failed: lockstep.Invalid"}, commands(&historypb.History{Events: events}), name)
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
	b.serve(t)
	held, err := b.locker.TryAcquire(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "somebody"}, Resources: resources})
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
	b.succeed(t, run)
}
