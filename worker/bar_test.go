package worker_test

import (
	"errors"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// byName calls an activity with JSON, as callers in other languages do.
func byName(ctx workflow.Context, name string, in map[string]any) error {
	return workflow.ExecuteActivity(ctx, name, in).Get(ctx, nil)
}

// acquire is the input of an Acquire of the account, in saga 1.
func acquire(schedule int, more map[string]any) map[string]any {
	in := map[string]any{"resources": []any{map[string]any{"name": account.Name}}, "schedule": schedule, "saga": "1"}
	for key, value := range more {
		in[key] = value
	}
	return in
}

func barUpTo(schedule int) map[string]any {
	return map[string]any{"resources": []string{account.Name, "another"}, "saga": "1", "schedule": schedule}
}

func TestBar_StepStillRuns_WaitsInBackOffUntilItHasLeft(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		if err := byName(ctx, "lockstep.Acquire", acquire(1, map[string]any{"part": "step", "ttl": "1h"})); err != nil {
			return err
		}
		if err := byName(ctx, "lockstep.Bar", barUpTo(1)); err != nil {
			return err
		}
		err := byName(ctx, "lockstep.Acquire", acquire(1, map[string]any{"part": "late"}))
		if !errors.Is(workflows.LockError(err), lockcore.ErrSuperseded) {
			return errors.Join(errors.New("a late attempt was not refused"), err)
		}
		return byName(ctx, "lockstep.Acquire", acquire(2, map[string]any{"holdOnly": true}))
	})
	b.work(t, sdkworker.Options{}, nil)
	run := b.start(t, "W")
	b.untilActivity(t, run, func(a *workflowpb.PendingActivityInfo) bool {
		if a.GetActivityType().GetName() != "lockstep.Bar" || a.GetState() != enumspb.PENDING_ACTIVITY_STATE_SCHEDULED || !isBusy(a) {
			return false
		}
		pause := a.GetNextAttemptScheduleTime().AsTime().Sub(a.GetLastAttemptCompleteTime().AsTime())
		return pause > time.Second && pause < 4*time.Second
	}, "the bar is not in back-off")
	require.NoError(t, b.locker.Core().Leave(t.Context(), lockcore.Lease{
		Resource: account.Name, LockID: lockID(run), Run: run.GetRunID(), Part: run.GetRunID() + "/step", Order: party.Order{Schedule: 1, Attempt: 1},
	}))
	_, err := b.end(t, run)
	require.NoError(t, err)
}

func TestBar_RunBeforeHolds_IsTakenOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("Old", func(ctx workflow.Context) error {
		err := byName(ctx, "lockstep.Acquire", acquire(1, map[string]any{"holdOnly": true, "holdTtl": "1h"}))
		b.write("locked: %v", err)
		receive(ctx, "go on")
		return err
	})
	b.workflow("New", func(ctx workflow.Context) error { return byName(ctx, "lockstep.Bar", barUpTo(1)) })
	b.work(t, sdkworker.Options{}, nil)
	o := client.StartWorkflowOptions{TaskQueue: b.queue, ID: b.queue}
	old, err := b.client.ExecuteWorkflow(t.Context(), o, "Old")
	require.NoError(t, err)
	b.untilWritten(t, 1)
	b.terminate(t, old)
	run, err := b.client.ExecuteWorkflow(t.Context(), o, "New")
	require.NoError(t, err)
	_, err = b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{run.GetRunID()}, b.runs(t, account.Name))
}

func TestBar_TestEnvironment_ReturnsWhenThePartsHaveEnded(t *testing.T) {
	t.Parallel()
	for name, clock := range map[string]func(*testsuite.TestWorkflowEnvironment) func() time.Time{"the environment's clock": itsClock, "the wall clock": wallClock} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := inMemory(t, clock)
			s.ExecuteWorkflow(func(ctx workflow.Context) error {
				ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: within})
				if err := byName(ctx, "lockstep.Acquire", acquire(1, map[string]any{"part": "step", "ttl": "1s"})); err != nil {
					return err
				}
				return byName(ctx, "lockstep.Bar", barUpTo(1))
			})
			require.True(t, s.IsWorkflowCompleted())
			require.NoError(t, s.GetWorkflowError())
		})
	}
}
