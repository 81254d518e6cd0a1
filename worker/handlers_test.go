package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// A query handler may not run steps, locks or not; it neither takes nor releases anything, even if the run must be
// replayed for it.
func TestQuery_ChangesNothing(t *testing.T) {
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
	b.serve(t)
	run := b.start(t, "W")
	b.completed(t, run, 2)
	_, err := b.client.QueryWorkflow(t.Context(), run.GetID(), run.GetRunID(), "ask", true)
	require.Error(t, err)
	sdkworker.PurgeStickyWorkflowCache()
	_, err = b.client.QueryWorkflow(t.Context(), run.GetID(), run.GetRunID(), "ask", false)
	require.NoError(t, err)
	require.Equal(t, []string{lockID(run)}, b.holders(t, account.Name))
	b.signal(t, run, "go on")
	b.succeed(t, run)
	require.Equal(t, []string{"free: false"}, b.read())
	b.requireFree(t, account.Name)
}

// A child has its own locks: its parent's keep it out, and how it ends is its own end.
func TestChild_LocksAreItsOwn(t *testing.T) {
	t.Parallel()
	for policy, free := range map[enumspb.ParentClosePolicy]bool{
		enumspb.PARENT_CLOSE_POLICY_REQUEST_CANCEL: true,  // it is cancelled, and so releases
		enumspb.PARENT_CLOSE_POLICY_ABANDON:        false, // it continues, and holds
	} {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.saga("child", func(ctx workflow.Context, _ *workflows.Saga) error {
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
			b.saga("W", func(ctx workflow.Context, _ *workflows.Saga) error {
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
			b.serve(t)
			run := b.start(t, "W")
			b.untilWritten(t, 2)
			child := b.client.GetWorkflow(t.Context(), b.queue, "")
			require.Eventually(t, func() bool { return len(b.holders(t, second.Name)) == 1 }, within, lookEvery, "the child holds nothing")
			b.signal(t, run, "go on")
			b.succeed(t, run)
			b.requireFree(t, account.Name)
			if !free {
				require.Len(t, b.holders(t, second.Name), 1)
				b.signal(t, child, "go on")
			}
			b.requireFree(t, second.Name)
		})
	}
}

// A parent holds a lock and waits for its child, whose step, or whose lock around code, wants the same one: the child's error names the parent.
func TestChild_WaitsForParent_ErrorNamesParent(t *testing.T) {
	t.Parallel()
	wanted := locks(account)
	wanted.MaxWait = time.Second
	for name, child := range map[string]func(ctx workflow.Context) error{
		"step": func(ctx workflow.Context) error { return do(workflows.WithLocks(ctx, wanted), "Look") },
		"lock": func(ctx workflow.Context) error {
			_, err := workflows.Lock(ctx, wanted)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.workflow("child", child)
			b.workflow("parent", func(ctx workflow.Context) error {
				return under(ctx, locks(account), func(*workflows.Hold) error {
					return workflow.ExecuteChildWorkflow(ctx, "child").Get(ctx, nil)
				})
			})
			b.serve(t)
			run := b.start(t, "parent")
			_, err := b.end(t, run)
			require.True(t, lockcoreBusy(workflows.LockError(err)), "%v", err)
			require.ErrorContains(t, err, "it is held by the workflow \""+run.GetID()+"\", an ancestor of this one")
			require.Empty(t, b.read())
		})
	}
}

// The SDK sends all activities in a session to the session's worker, which need not know of locks. Those by which the
// workflow takes, keeps and releases its own go to the workflow's workers. (Local ones fail here.)
func TestSession_UnderLock_WorkerNeedsNoPlugin(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		elsewhere := workflow.WithTaskQueue(ctx, b.queue+"-elsewhere")
		session, err := workflow.CreateSession(elsewhere, &workflow.SessionOptions{CreationTimeout: time.Minute, ExecutionTimeout: time.Hour})
		if err != nil {
			return err
		}
		l := locks(account)
		err = under(session, l, func(*workflows.Hold) error {
			return errors.Join(say(session, "in"), say(session, "out"))
		})
		workflow.CompleteSession(session)
		return err
	})
	without, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1").SetServerSelectionTimeout(50 * time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { _ = without.Disconnect(context.Background()) })
	locker, err := lockcore.New(without.Database("none").Collection(lockCollection), lockcore.Config{})
	require.NoError(t, err)
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker, TaskQueue: b.queue})
	require.NoError(t, err)
	b.work(t, sdkworker.Options{LocalActivityWorkerOnly: true, Plugins: []sdkworker.Plugin{plugin}}, nil)
	b.work(t, sdkworker.Options{DisableWorkflowWorker: true}, nil)
	w := sdkworker.New(b.client, b.queue+"-elsewhere", sdkworker.Options{EnableSessionWorker: true, DisableWorkflowWorker: true})
	w.RegisterActivityWithOptions(b.note, activity.RegisterOptions{Name: "Note"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)

	run, other := b.parked(t, "W")
	require.NoError(t, other.Leave(t.Context()))
	b.untilWritten(t, 1)
	b.requireHolds(t, run, account)
	events, err := b.end(t, run)
	require.NoError(t, err)
	ours := map[string]int{}
	for _, e := range events {
		if a := e.GetActivityTaskScheduledEventAttributes(); a.GetTaskQueue().GetName() == b.queue {
			ours[a.GetActivityType().GetName()]++
		}
	}
	require.Equal(t, map[string]int{"lockstep.Acquire": 1, "lockstep.Release": 1}, ours)
	require.Equal(t, []string{"in", "out"}, b.read())
	b.requireFree(t, account.Name)
}

// Who cancels a wait in a session cancels the activity by which the workflow waits.
func TestSession_StepWaits_IsCancelled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		session, err := workflow.CreateSession(ctx, &workflow.SessionOptions{CreationTimeout: time.Minute, ExecutionTimeout: time.Hour})
		if err != nil {
			return err
		}
		waits, cancel := workflow.WithCancel(session)
		workflow.Go(ctx, func(ctx workflow.Context) {
			receive(ctx, "go on")
			cancel()
		})
		_, err = workflows.Lock(waits, locks(account))
		workflow.CompleteSession(session)
		if !temporal.IsCanceledError(err) {
			return errors.Join(err, errors.New("it was not cancelled"))
		}
		return nil
	})
	b.work(t, sdkworker.Options{EnableSessionWorker: true}, nil)
	run, other := b.parked(t, "W")
	b.signal(t, run, "go on")
	b.succeed(t, run)
	b.untilQueued(t, account.Name, 0)
	require.NoError(t, other.Leave(t.Context()))
	b.requireFree(t, account.Name)
}
