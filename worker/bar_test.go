package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"

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

func TestBar_StepStillRuns_WaitsUntilItLeft(t *testing.T) {
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
	b.serve(t)
	run := b.start(t, "W")
	b.untilActivity(t, run, func(a *workflowpb.PendingActivityInfo) bool {
		if a.GetActivityType().GetName() != "lockstep.Bar" || a.GetState() != enumspb.PENDING_ACTIVITY_STATE_SCHEDULED || !isBusy(a) {
			return false
		}
		pause := a.GetNextAttemptScheduleTime().AsTime().Sub(a.GetLastAttemptCompleteTime().AsTime())
		return pause > time.Second && pause < 4*time.Second
	}, "the bar is not in back-off")
	require.NoError(t, b.locker.Leave(t.Context(), lockcore.Lease{
		Resource: account.Name, LockID: lockID(run), Run: run.GetRunID(), Part: run.GetRunID() + "/step", Order: lockcore.Order{Schedule: 1, Attempt: 1},
	}))
	b.succeed(t, run)
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
	b.serve(t)
	o := client.StartWorkflowOptions{TaskQueue: b.queue, ID: b.queue}
	old, err := b.client.ExecuteWorkflow(t.Context(), o, "Old")
	require.NoError(t, err)
	b.untilWritten(t, 1)
	b.terminate(t, old)
	run, err := b.client.ExecuteWorkflow(t.Context(), o, "New")
	require.NoError(t, err)
	b.succeed(t, run)
	require.Equal(t, []string{run.GetRunID()}, b.runs(t, account.Name))
}

func TestBar_TestEnvironment_ReturnsWhenPartsEnded(t *testing.T) {
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

// starter starts the step of a saga.
type starter = func(ctx workflow.Context) workflow.Future

// Four ways in which a step still runs when its saga has failed.
func stepTimesOut(ctx workflow.Context, start starter) error {
	return start(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 2 * time.Second, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})).Get(ctx, nil)
}

// stepIsRepeated is a step whose first attempt times out, and whose second one succeeds.
func stepIsRepeated(ctx workflow.Context, start starter) error {
	err := start(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 2 * time.Second, RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Millisecond, MaximumAttempts: 2},
	})).Get(ctx, nil)
	return errors.Join(err, errors.New("a later step fails"))
}

func stepIsCancelled(ctx workflow.Context, start starter) error {
	own, cancel := workflow.WithCancel(ctx)
	slow := start(own)
	receive(ctx, "cancel")
	cancel()
	return slow.Get(ctx, nil)
}

func stepIsNotWaitedFor(ctx workflow.Context, start starter) error {
	start(ctx)
	receive(ctx, "cancel")
	return errors.New("the saga does not wait for its step")
}

// Three ways to register its compensation.
func undoByActivity(ctx workflow.Context, s *workflows.Saga) starter {
	if err := s.CompensateWith(ctx, "Undo"); err != nil {
		panic(err)
	}
	return slowStep
}

func undoByFunction(ctx workflow.Context, s *workflows.Saga) starter {
	if err := s.Compensate(ctx, func(ctx workflow.Context) error { return do(ctx, "Undo") }); err != nil {
		panic(err)
	}
	return slowStep
}

func undoOfStep(_ workflow.Context, s *workflows.Saga) starter {
	return func(ctx workflow.Context) workflow.Future { return s.Step(ctx, "Slow", "Undo") }
}

func slowStep(ctx workflow.Context) workflow.Future { return workflow.ExecuteActivity(ctx, "Slow") }

// A step that timed out, that ignores its cancellation, or that its saga does not wait for still runs. Each kind of compensation waits
// for its end.
func TestCompensation_StepStillRuns_WaitsForIt(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		scope    workflows.Scope
		register func(ctx workflow.Context, s *workflows.Saga) starter
		run      func(ctx workflow.Context, start starter) error
	}{
		"timed out, CompensateWith":  {"", undoByActivity, stepTimesOut},
		"timed out, Compensate":      {"", undoByFunction, stepTimesOut},
		"timed out, Step":            {"", undoOfStep, stepTimesOut},
		"timed out, scope step":      {workflows.ScopeStep, undoByActivity, stepTimesOut},
		"repeated, CompensateWith":   {"", undoByActivity, stepIsRepeated},
		"repeated, Compensate":       {"", undoByFunction, stepIsRepeated},
		"repeated, Step":             {"", undoOfStep, stepIsRepeated},
		"cancelled, CompensateWith":  {"", undoByActivity, stepIsCancelled},
		"cancelled, Step":            {"", undoOfStep, stepIsCancelled},
		"not waited for, Compensate": {"", undoByFunction, stepIsNotWaitedFor},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
				ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, Scope: tc.scope})
				return tc.run(ctx, tc.register(ctx, s))
			})
			running, leave := make(chan struct{}), make(chan struct{})
			b.work(t, sdkworker.Options{}, map[string]any{
				"Slow": func(ctx context.Context) error {
					if activity.GetInfo(ctx).Attempt > 1 {
						return nil
					}
					close(running)
					<-leave // it does not look at its context
					b.write("step")
					return nil
				},
				"Undo": b.writer("undo"),
			})
			run := b.start(t, "W")
			<-running
			b.signal(t, run, "cancel")
			b.untilActivity(t, run, func(a *workflowpb.PendingActivityInfo) bool {
				return a.GetActivityType().GetName() == "lockstep.Bar" && a.GetLastFailure() != nil
			}, "the saga does not wait for its step")
			b.requireUndoneAfter(t, run, leave)
			b.requireFree(t, account.Name)
		})
	}
}

// While a saga waits for the step of a saga inside it, that saga is undone too, and waits as well.
func TestCompensation_OuterSagaWaitsAlready_WaitsToo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	// The bar of the inner saga blocks on a context of another coroutine. Remove this line when bars run in the coroutine of the
	// saga that fails.
	b.workflow("W", func(ctx workflow.Context) error {
		timedOut, undone := false, false
		err := saga(ctx, func(ctx workflow.Context, outer *workflows.Saga) error {
			if err := outer.Compensate(ctx, func(workflow.Context) error { return nil }); err != nil {
				return err
			}
			workflow.Go(ctx, func(ctx workflow.Context) {
				_ = saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
					if err := s.CompensateWith(ctx, "Undo"); err != nil { // without a lock
						return err
					}
					ctx = workflows.Guard(ctx, account)
					_ = stepTimesOut(ctx, slowStep)
					timedOut = true
					return errors.Join(workflow.Sleep(ctx, 10*time.Millisecond), errors.New("it fails, too"))
				})
				undone = true
			})
			return errors.Join(workflow.Await(ctx, func() bool { return timedOut }), errors.New("it fails"))
		})
		return errors.Join(err, workflow.Await(ctx, func() bool { return undone }))
	})
	leave := make(chan struct{})
	b.work(t, sdkworker.Options{}, map[string]any{
		"Slow": func(context.Context) error { <-leave; b.write("step"); return nil }, // it does not look at its context
		"Undo": b.writer("undo"),
	})
	run := b.start(t, "W")
	b.untilEvents(t, run, enumspb.EVENT_TYPE_TIMER_FIRED, 1)
	b.untilActivity(t, run, func(a *workflowpb.PendingActivityInfo) bool {
		return a.GetActivityType().GetName() == "lockstep.Bar" && a.GetAttempt() > 2
	}, "the saga does not wait for its step")
	b.requireUndoneAfter(t, run, leave)
}

// requireUndoneAfter lets the step end, and requires that the compensation ran after it.
func (b *bundle) requireUndoneAfter(t *testing.T, run client.WorkflowRun, leave chan struct{}) {
	t.Helper()
	require.Empty(t, b.read())
	close(leave)
	_, err := b.end(t, run)
	require.Error(t, err)
	require.Equal(t, []string{"step", "undo"}, b.read())
}

// A coroutine that the saga did not wait for keeps running while the saga is undone. Its next guarded step would not be undone.
func TestSaga_StepDuringUndo_IsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.run(t, func(ctx workflow.Context) error {
		var late error
		went := false
		failed := saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			err := s.Compensate(ctx, func(ctx workflow.Context) error {
				return errors.Join(workflow.Await(ctx, func() bool { return went }), do(ctx, "Look"))
			})
			if err != nil {
				return err
			}
			workflow.Go(ctx, func(ctx workflow.Context) {
				late = errors.Join(workflow.Sleep(ctx, 10*time.Millisecond), do(ctx, "Look"))
				went = true
			})
			return errors.New("the saga does not wait for its coroutine")
		})
		if !errors.Is(late, lockcore.ErrEnded) {
			return errors.Join(errors.New("the step was not refused"), late, failed)
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"free: false"}, b.read(), "only the compensation ran")
}

// A step that is still scheduled when its saga fails is refused when a worker takes it.
func TestSaga_StepComesLate_DoesNotRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		err := saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			if err := s.CompensateWith(ctx, "Undo"); err != nil {
				return err
			}
			workflow.ExecuteActivity(workflow.WithTaskQueue(ctx, b.queue+"-later"), "Do")
			return errors.New("the saga does not wait for its step")
		})
		receive(ctx, "end")
		return err
	})
	b.work(t, sdkworker.Options{}, b.writes())
	run := b.start(t, "W")
	b.untilWritten(t, 1)
	later := b.on(b.queue + "-later")
	later.work(t, sdkworker.Options{DisableWorkflowWorker: true}, map[string]any{"Do": b.writer("late")})
	b.untilEvents(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED, 1) // it is refused
	b.signal(t, run, "end")
	_, err := b.end(t, run)
	require.Error(t, err)
	require.Equal(t, []string{"undo"}, b.read())
	b.requireFree(t, account.Name)
}
