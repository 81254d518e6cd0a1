package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// meeting returns a step that notes its name, and that the first two meet in.
func (b *bundle) meeting() func(context.Context, string) error {
	var came atomic.Int32
	both := make(chan struct{})
	return func(ctx context.Context, name string) error {
		if came.Add(1) == 2 {
			close(both)
		}
		select {
		case <-both:
			b.write("did %s", name)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A step that gives up its wait ends its saga then, and not when the lock is free: it is not undone, since it never ran.
func TestCompensation_StepNeverGranted_IsNotUndone(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]workflows.Locks{
		"max wait": {MaxWait: time.Second}, "try": {Try: true}, "cancel": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			l.Resources = []lockcore.Resource{account}
			b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
				return s.Step(workflows.WithLocks(ctx, l), "Look", "Look").Get(ctx, nil)
			})
			b.serve(t)
			other := b.taken(t, account)
			run := b.start(t, "W")
			if name == "cancel" {
				b.untilParked(t, run)
				b.cancel(t, run)
			}
			_, err := b.end(t, run) // while the lock is held
			require.Equal(t, name == "cancel", temporal.IsCanceledError(err), "%v", err)
			require.Equal(t, name != "cancel", lockcoreBusy(workflows.LockError(err)), "%v", err)
			require.Empty(t, b.read())
			require.NoError(t, other.Leave(t.Context()))
			b.requireFree(t, account.Name)
		})
	}
}

// What CompensateWith registered always runs: which step it undoes is not said.
func TestCompensateWith_StepNeverRan_Runs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
		if err := s.CompensateWith(workflows.Guard(ctx, account), "Look"); err != nil {
			return err
		}
		return do(workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, Try: true}), "Look")
	})
	b.serve(t)
	other := b.taken(t, account)
	run := b.start(t, "W")
	b.untilParked(t, run) // the compensation, for the step tried
	require.NoError(t, other.Leave(t.Context()))
	_, err := b.end(t, run)
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrBusy)
	require.Equal(t, []string{"free: false"}, b.read())
	b.requireFree(t, account.Name)
}

// Two steps are cancelled in the moment in which they find their locks busy, so that their
// workflows do not hear of it. Their compensations would wait for each other: the victim of
// the deadlock asks the database, which knows that its step never ran.
func TestCompensation_DeadlockAndStepNeverRan_IsDropped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	crossed := func(own, others lockcore.Resource) func(ctx workflow.Context) error {
		return func(ctx workflow.Context) error {
			return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
				if err := s.Step(workflows.Guard(ctx, own), "Meet", "Undo", own.Name).Get(ctx, nil); err != nil {
					return err
				}
				inner, cancel := workflow.WithCancel(workflows.Guard(ctx, others))
				vain := s.Step(inner, "Never", "Undo", "never")
				receive(ctx, "go on")
				cancel()
				return vain.Get(ctx, nil)
			})
		}
	}
	b.workflow("A", crossed(account, account2))
	b.workflow("B", crossed(account2, account))
	b.work(t, sdkworker.Options{}, map[string]any{
		"Meet": b.meeting(), "Undo": func(_ context.Context, name string) error { b.write("undid %s", name); return nil },
		"Never": func(context.Context) error { return errors.New("it ran") },
	})
	runs := []client.WorkflowRun{b.start(t, "A"), b.start(t, "B")}
	for _, run := range runs {
		b.untilActivity(t, run, func(a *workflowpb.PendingActivityInfo) bool {
			return a.GetActivityType().GetName() == "Never" && a.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED
		}, "the step did not begin")
		b.signal(t, run, "go on")
	}
	for _, run := range runs {
		_, err := b.end(t, run)
		require.True(t, temporal.IsCanceledError(err), "it was undone: %v", err)
	}
	for _, r := range []lockcore.Resource{account, account2} {
		require.Contains(t, b.read(), "undid "+r.Name)
		b.requireFree(t, r.Name)
	}
}

// Compensations wait for each other in a deadlock: one fails, and the error of its saga reports that. The other runs.
func TestCompensation_DeadlockOfCompensations_Ends(t *testing.T) {
	t.Parallel()
	b := setup(t)
	crossed := func(own, others lockcore.Resource) func(ctx workflow.Context) error {
		return func(ctx workflow.Context) error {
			err := workflows.RunSaga(ctx, workflows.SagaOptions{DeadlockRetries: 3}, func(ctx workflow.Context, s *workflows.Saga) error {
				if err := s.CompensateWith(workflows.Guard(ctx, own), "Undo", "own"); err != nil {
					return err
				}
				if err := s.CompensateWith(workflows.Guard(ctx, own, others), "Undo", "both"); err != nil {
					return err
				}
				if err := workflow.ExecuteActivity(workflows.Guard(ctx, own), "Meet", own.Name).Get(ctx, nil); err != nil {
					return err
				}
				return temporal.NewNonRetryableApplicationError("no money", "NoMoney", nil)
			})
			var failed *workflows.SagaError
			if !errors.As(err, &failed) {
				return err
			}
			var deadlock *lockcore.DeadlockError
			return temporal.NewNonRetryableApplicationError(err.Error(), "NotUndone", nil, errors.As(failed.Compensations[0], &deadlock))
		}
	}
	b.workflow("A", crossed(account, account2))
	b.workflow("B", crossed(account2, account))
	var undone atomic.Int32
	b.work(t, sdkworker.Options{}, map[string]any{
		"Meet": b.meeting(), "Undo": func(context.Context, string) error { undone.Add(1); return nil },
	})
	failed := 0
	for _, run := range []client.WorkflowRun{b.start(t, "A"), b.start(t, "B")} {
		_, err := b.end(t, run)
		require.Error(t, err)
		var app *temporal.ApplicationError
		require.ErrorAs(t, err, &app)
		if app.Type() == "NotUndone" {
			var isDeadlock bool
			require.NoError(t, app.Details(&isDeadlock))
			require.True(t, isDeadlock, "%v", err)
			require.ErrorContains(t, err, "compensations failed: compensation 2 (Undo)")
			failed++
		}
	}
	require.Equal(t, 1, failed)
	require.EqualValues(t, 3, undone.Load(), "all but the one that was given up")
	b.requireFree(t, account.Name) // what a request that was given up may have got is given back within a second, or after that
	b.requireFree(t, account2.Name)
}

type bill struct{ Account string }

// A workflow uses one variable for the arguments of all its steps.
func TestUndo_ArgumentsChangedLater_KeepsThoseOfItsStep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflows.Guard(ctx, account)
		in := &bill{}
		for _, name := range []string{"a", "b"} {
			in.Account = name
			if err := s.Step(ctx, "Pay", "Undo", in, []string{name}).Get(ctx, nil); err != nil {
				return err
			}
		}
		in.Account = "c"
		if err := s.CompensateWith(ctx, "Undo", in, []string{"c"}); err != nil {
			return err
		}
		in.Account = "d"
		return do(ctx, "Refuse")
	})
	step := func(what string) any {
		return func(_ context.Context, in bill, names []string) error {
			b.write("%s %s %v", what, in.Account, names)
			return nil
		}
	}
	b.work(t, sdkworker.Options{}, map[string]any{"Pay": step("pay"), "Undo": step("undo"), "Refuse": refuse})
	_, err := b.end(t, b.start(t, "W"))
	_ = failedAs(t, err, "NoMoney")
	require.Equal(t, []string{"pay a [a]", "pay b [b]", "undo c [c]", "undo b [b]", "undo a [a]"}, b.read())
}

// A step that waits for its locks is scheduled again, with the arguments of its first scheduling.
func TestStep_ArgumentsChangedWhileWaiting_KeepsItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		in := &bill{Account: "a"}
		step := workflow.ExecuteActivity(workflows.Guard(ctx, account), "Pay", in)
		in.Account = "b"
		return step.Get(ctx, nil)
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Pay": func(_ context.Context, in bill) error {
		b.write("pay %s", in.Account)
		return nil
	}})
	run, other := b.parked(t, "W")
	require.NoError(t, other.Leave(t.Context()))
	b.succeed(t, run)
	require.Equal(t, []string{"pay a"}, b.read())
}

// What did not run is not undone: its undo would fail as it did.
func TestSagaStep_DidNotRun_IsNotUndone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		context func(ctx workflow.Context) workflow.Context
		arg     any
		refused bool
	}{
		"Cancelled": {context: func(ctx workflow.Context) workflow.Context {
			ctx, cancel := workflow.WithCancel(ctx)
			cancel()
			return ctx
		}},
		"CancelledUnderLocks": {context: func(ctx workflow.Context) workflow.Context {
			ctx, cancel := workflow.WithCancel(workflows.Guard(ctx, account))
			cancel()
			return ctx
		}},
		"RefusedByTheWorkflow": {refused: true, context: func(ctx workflow.Context) workflow.Context {
			return workflows.Guard(ctx, lockcore.Exclusive("\xff"))
		}},
		"RefusedByTheWorker": {refused: true, context: func(ctx workflow.Context) workflow.Context {
			return workflows.Guard(ctx, lockcore.SharedLimit("places", -1))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.workflow("W", func(ctx workflow.Context) error {
				err := saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
					return s.Step(c.context(ctx), "Pay", "Undo", c.arg).Get(ctx, nil)
				})
				var failed *workflows.SagaError
				if err == nil || errors.As(err, &failed) || errors.Is(err, lockcore.ErrInvalid) != c.refused {
					return fmt.Errorf("the saga ended with %w", err)
				}
				return nil
			})
			write := func(what string) any {
				return func(context.Context, any) error { b.write("%s", what); return nil }
			}
			b.work(t, sdkworker.Options{}, map[string]any{"Pay": write("pay"), "Undo": write("undo")})
			b.succeed(t, b.start(t, "W"))
			require.Empty(t, b.read())
		})
	}
}

func TestUndo_StepHasAnActivityID_HasAnother(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
		o := workflow.GetActivityOptions(ctx)
		o.ActivityID = "pay"
		err := s.Step(workflow.WithActivityOptions(workflows.Guard(ctx, account), o), "Note", "Undo", "paid").Get(ctx, nil)
		return errors.Join(err, do(ctx, "Refuse"))
	})
	b.serve(t)
	events, err := b.end(t, b.start(t, "W"))
	require.Error(t, err)
	ids := map[string]string{}
	for _, e := range events {
		if a := e.GetActivityTaskScheduledEventAttributes(); a != nil {
			ids[a.GetActivityType().GetName()] = a.GetActivityId()
		}
	}
	require.Equal(t, "pay", ids["Note"])
	require.NotEqual(t, "pay", ids["Undo"])
}

// The steps of a saga run in a session, and the session's worker dies.
func TestUndo_SessionFailed_RunsOutsideOfIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	there := b.queue + "-there"
	b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
		session, err := workflow.CreateSession(workflow.WithTaskQueue(workflows.Guard(ctx, account), there), &workflow.SessionOptions{
			CreationTimeout: time.Minute, ExecutionTimeout: time.Hour, HeartbeatTimeout: 3 * time.Second,
		})
		if err != nil {
			return err
		}
		err = s.Step(session, "Note", "Undo", "paid").Get(ctx, nil)
		return errors.Join(err, do(session, "Block"))
	})
	b.serve(t)
	block := make(chan struct{})
	activities := map[string]any{
		"Note": b.note, "Undo": b.undoes,
		"Block": func(ctx context.Context) error { b.write("blocked"); <-block; return ctx.Err() },
	}
	dies := sdkworker.New(b.client, there, sdkworker.Options{
		EnableSessionWorker: true, DisableWorkflowWorker: true, Plugins: []sdkworker.Plugin{b.plugin}, WorkerStopTimeout: time.Millisecond,
	})
	for name, fn := range activities {
		dies.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	require.NoError(t, dies.Start())
	run := b.start(t, "W")
	b.untilWritten(t, 2)
	dies.Stop()
	unblock := sync.OnceFunc(func() { close(block) })
	t.Cleanup(unblock)
	survives := sdkworker.New(b.client, there, sdkworker.Options{DisableWorkflowWorker: true, Plugins: []sdkworker.Plugin{b.plugin}})
	for name, fn := range activities {
		survives.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	require.NoError(t, survives.Start())
	t.Cleanup(survives.Stop)
	_, err := b.end(t, run)
	require.Error(t, err)
	require.Equal(t, []string{"paid", "blocked", "undid paid"}, b.read(), "%v", err)
	unblock() // it heeds no cancellation
	b.requireFree(t, account.Name)
}

// A step hangs, and its run is reset, twice. The step of the last run fails, and what undoes it writes. Then the steps of the runs
// before wake up: they are the same step, and what they write comes too late.
func TestUndo_AfterReset_BarsStepsOfEarlierRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	accounts := testenv.Mongo(t).Collection("accounts")
	_, err := accounts.InsertOne(t.Context(), bson.M{"_id": "1"})
	require.NoError(t, err)
	write := func(lease lockcore.Lease, by string) error {
		return lockcore.UpdateFenced(context.Background(), accounts, lease, bson.M{"_id": "1"}, bson.M{"$set": bson.M{"by": by}})
	}
	b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, TTL: time.Second})
		if err := do(ctx, "First"); err != nil {
			return err
		}
		workflow.Go(ctx, func(ctx workflow.Context) { receive(ctx, "noise") })
		return s.Step(ctx, "Write", "UndoWrite").Get(ctx, nil)
	})
	const hang = 2
	wake, late := make(chan struct{}), make(chan error, hang)
	b.work(t, sdkworker.Options{}, map[string]any{
		"First": nothing,
		"Write": func(ctx context.Context) error {
			lease := activities.Leases(ctx)[0]
			b.write("write")
			if len(b.read()) > hang {
				return temporal.NewNonRetryableApplicationError("no money", "NoMoney", nil)
			}
			<-wake // it does not look at its context
			late <- write(lease, "late")
			return nil
		},
		"UndoWrite": func(ctx context.Context) error { return write(activities.Leases(ctx)[0], "undo") },
	})
	run := b.start(t, "W")
	for n := 1; n <= hang; n++ {
		b.untilWritten(t, n)
		b.signal(t, run, "noise")
		b.completed(t, run, 3)
		run = b.reset(t, run, 3)
	}
	_, err = b.end(t, run)
	require.ErrorContains(t, err, "no money")
	close(wake)
	for range hang {
		require.ErrorAs(t, <-late, new(*lockcore.FencedError))
	}
	var found struct{ By string }
	require.NoError(t, accounts.FindOne(t.Context(), bson.M{"_id": "1"}).Decode(&found))
	require.Equal(t, "undo", found.By)
}
