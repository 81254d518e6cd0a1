package worker_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commandpb "go.temporal.io/api/command/v1"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// brief is a lock on the account whose holds last briefly after the last renewal.
var brief = workflows.Locks{Resources: []lockcore.Resource{account}, TTL: 300 * time.Millisecond, HoldTTL: 300 * time.Millisecond}

// goBetween lets another party acquire and release the account as soon as the run's lease has expired; then the run continues.
func (b *bundle) goBetween(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	require.Eventually(t, func() bool { return len(b.holders(t, account.Name)) == 1 }, within, lookEvery, "it holds nothing")
	other, err := b.locker.Acquire(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "other"}, Resources: []lockcore.Resource{account}})
	require.NoError(t, err)
	require.NoError(t, other.Leave(t.Context()))
	b.signal(t, run, "go on")
}

// Another party has held the account in between.
func TestLoss_BeforeTheEnd_IsReported(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fn   func(ctx workflow.Context) error
		want []string
	}{
		"Saga.Verify": {func(ctx workflow.Context) error {
			return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
				err := s.Step(workflows.WithLocks(ctx, brief), "Note", "Undo", "step").Get(ctx, nil)
				receive(ctx, "go on")
				return cmp.Or(err, s.Verify(ctx))
			})
		}, []string{"step", "undid step"}},
		"the next step": {func(ctx workflow.Context) error {
			return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
				err := s.Step(workflows.WithLocks(ctx, brief), "Note", "Undo", "step").Get(ctx, nil)
				receive(ctx, "go on")
				return cmp.Or(err, s.Step(workflows.WithLocks(ctx, brief), "Note", "Undo", "step 2").Get(ctx, nil))
			})
		}, []string{"step", "undid step 2", "undid step"}},
		"Hold.Verify": {func(ctx workflow.Context) error {
			hold, err := workflows.Lock(ctx, brief)
			receive(ctx, "go on")
			if err != nil {
				return err
			}
			return hold.Verify(ctx)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.workflow("W", tc.fn)
			b.serve(t)
			run := b.start(t, "W")
			b.goBetween(t, run)
			_, err := b.end(t, run)
			require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
			require.Equal(t, tc.want, b.read())
			b.requireFree(t, account.Name)
		})
	}
}

func (b *bundle) undoes(_ context.Context, what string) error {
	b.write("undid %s", what)
	return nil
}

// The worker that runs the step does not have the plugin, so the step ran without its lock.
func TestSagaVerify_StepRanWithoutPlugin_IsLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.saga("W", stepAndVerify)
	b.workWithoutPlugin(t)
	_, err := b.end(t, b.start(t, "W"))
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
	require.Equal(t, []string{"step", "undid step"}, b.read())
	b.requireFree(t, account.Name)
}

// workWithoutPlugin starts a worker for workflows, one without the plugin for their steps, and one for Lockstep's own activities.
func (b *bundle) workWithoutPlugin(t *testing.T) {
	t.Helper()
	own := b.on(b.queue + "-own")
	own.work(t, sdkworker.Options{DisableWorkflowWorker: true}, nil)
	plugin := newPlugin(t, worker.Options{Locker: b.locker.Locker, TaskQueue: own.queue})
	b.work(t, sdkworker.Options{LocalActivityWorkerOnly: true, Plugins: []sdkworker.Plugin{plugin}}, nil)
	b.work(t, sdkworker.Options{DisableWorkflowWorker: true, Plugins: []sdkworker.Plugin{}}, nil)
}

func stepAndVerify(ctx workflow.Context, s *workflows.Saga) error {
	if err := s.Step(workflows.Guard(ctx, account), "Note", "Undo", "step").Get(ctx, nil); err != nil {
		return err
	}
	return s.Verify(ctx)
}

// A run that continues a hand-over inherits holds, but its own steps have their locks or lose them like those of any other run.
func TestSagaVerify_StepOfNextRunRanWithoutPlugin_IsLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		if workflow.GetInfo(ctx).ContinuedExecutionRunID == "" {
			return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "W"))
		}
		return saga(ctx, stepAndVerify)
	})
	b.workWithoutPlugin(t)
	require.ErrorIs(t, workflows.LockError(b.last(t, b.start(t, "W"))), lockcore.ErrLost)
	require.Equal(t, []string{"step", "undid step"}, b.read())
}

// Two sagas lock one account, and the worker that runs the second one's step has its locks in another database: it must not run it
// in addition to the first. A worker with the workflow's database does.
func TestGuard_WorkerHasAnotherLockDatabase_IsRefused(t *testing.T) {
	t.Parallel()
	b, astray := setup(t), setup(t)
	elsewhere := b.queue + "-elsewhere"
	step := func(queue string) func(ctx workflow.Context) error {
		return func(ctx workflow.Context) error {
			return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
				ctx = workflow.WithTaskQueue(workflows.Guard(ctx, account), queue)
				if err := s.Step(ctx, "Note", "Undo", queue).Get(ctx, nil); err != nil {
					return err
				}
				receive(ctx, "go on")
				return nil
			})
		}
	}
	b.workflow("first", step(b.queue))
	b.workflow("second", step(elsewhere))
	steps := map[string]any{"Note": b.note, "Undo": b.undoes}
	b.work(t, sdkworker.Options{}, steps)
	astray.queue = elsewhere
	astray.work(t, sdkworker.Options{DisableWorkflowWorker: true}, steps)
	first := b.start(t, "first")
	b.untilWritten(t, 1)
	second := b.start(t, "second")
	b.untilActivity(t, second, func(a *workflowpb.PendingActivityInfo) bool {
		return a.GetLastFailure().GetApplicationFailureInfo().GetType() == "lockstep.OtherCollection"
	}, "the step was not refused")
	require.Equal(t, []string{b.queue}, b.read())
	b.signal(t, first, "go on")
	b.succeed(t, first)
	own := sdkworker.New(b.client, elsewhere, sdkworker.Options{DisableWorkflowWorker: true, Plugins: []sdkworker.Plugin{b.plugin}})
	for name, fn := range steps {
		own.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	require.NoError(t, own.Start())
	t.Cleanup(own.Stop)
	b.signal(t, second, "go on")
	b.succeed(t, second)
	require.Equal(t, []string{b.queue, elsewhere}, b.read())
}

// beforeTask calls do before the first completion of a workflow task is sent that is as the test wants it. If do returns false
// the completion is lost, as that of a worker that dies.
func (b *bundle) beforeTask(t *testing.T, is func(*workflowservice.RespondWorkflowTaskCompletedRequest) bool, do func(ctx context.Context) bool) {
	t.Helper()
	var done atomic.Bool
	b.intercept(t, func(ctx context.Context, req any) error {
		completed, ok := req.(*workflowservice.RespondWorkflowTaskCompletedRequest)
		if ok && is(completed) && done.CompareAndSwap(false, true) && !do(context.WithoutCancel(ctx)) {
			return status.Error(codes.InvalidArgument, "the test loses it")
		}
		return nil
	})
}

// intercept calls before before each call of the server. If it returns an error the call fails with it.
func (b *bundle) intercept(t *testing.T, before func(ctx context.Context, req any) error) {
	t.Helper()
	b.client = b.dial(t, client.Options{ConnectionOptions: client.ConnectionOptions{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if err := before(ctx, req); err != nil {
			return err
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	})}}})
}

// signalBefore sends a signal before a workflow task.
func (b *bundle) signalBefore(ctx context.Context, name string) {
	if err := b.client.SignalWorkflow(ctx, b.queue, "", name, nil); err != nil {
		b.write("%v", err)
	}
}

// closes reports whether a workflow task closes its run.
func closes(task *workflowservice.RespondWorkflowTaskCompletedRequest) bool {
	return slices.ContainsFunc(task.GetCommands(), func(c *commandpb.Command) bool {
		switch c.GetCommandType() {
		case enumspb.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION, enumspb.COMMAND_TYPE_FAIL_WORKFLOW_EXECUTION,
			enumspb.COMMAND_TYPE_CANCEL_WORKFLOW_EXECUTION, enumspb.COMMAND_TYPE_CONTINUE_AS_NEW_WORKFLOW_EXECUTION:
			return true
		default:
			return false
		}
	})
}

// lookAround notes whether another party could acquire the account now.
func (b *bundle) lookAround(ctx context.Context) {
	switch free, err := b.isFree(ctx, account.Name); {
	case err != nil:
		b.write("%v", err)
	case free:
		b.write("others were in")
	default:
		b.write("locked")
	}
}

// signalled reports whether a signal has come.
func signalled(ctx workflow.Context, name string) bool {
	return workflow.GetSignalChannel(ctx, name).ReceiveAsync(nil)
}

func (b *bundle) writes() map[string]any {
	return map[string]any{"Do": b.writer("do"), "Undo": b.writer("undo")}
}

func doOrUndo(ctx workflow.Context, s *workflows.Saga) error {
	return s.Step(workflows.Guard(ctx, account), "Do", "Undo").Get(ctx, nil)
}

// The server refuses the workflow task that closes a run if a signal or a cancellation arrived meanwhile. The code runs again and
// still holds its locks.
func TestRun_TaskRefused_StillHoldsItsLocks(t *testing.T) {
	t.Parallel()
	locked := workflows.Locks{Resources: []lockcore.Resource{account}, Scope: workflows.ScopeSaga}
	stopped := errors.New("stopped")
	for name, tc := range map[string]struct {
		fn    func(ctx workflow.Context) error
		want  []string
		fails bool
	}{
		"saga": {func(ctx workflow.Context) error {
			return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
				if err := doOrUndo(ctx, s); err != nil || !signalled(ctx, "stop") {
					return err
				}
				return stopped
			})
		}, []string{"do", "locked", "undo"}, true},
		"saga and continue as new": {func(ctx workflow.Context) error {
			return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
				if err := doOrUndo(ctx, s); err != nil {
					return err
				}
				if signalled(ctx, "stop") {
					return stopped
				}
				return workflow.NewContinueAsNewError(ctx, "W")
			})
		}, []string{"do", "locked", "undo"}, true},
		"scope saga outside a saga": {func(ctx workflow.Context) error {
			ctx = workflows.WithLocks(ctx, locked)
			if err := do(ctx, "Do"); err != nil || !signalled(ctx, "stop") {
				return err
			}
			return do(ctx, "Undo")
		}, []string{"do", "locked", "undo"}, false},
		"lock": {func(ctx workflow.Context) error {
			hold, err := workflows.Lock(ctx, locks(account))
			if err != nil {
				return err
			}
			if err = do(ctx, "Do"); err == nil && signalled(ctx, "stop") {
				err = do(ctx, "Undo")
			}
			return errors.Join(err, hold.Release(ctx))
		}, []string{"do", "locked", "undo"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.beforeTask(t, closes, func(ctx context.Context) bool {
				b.signalBefore(ctx, "stop")
				b.lookAround(ctx)
				return true
			})
			b.workflow("W", tc.fn)
			b.work(t, sdkworker.Options{}, b.writes())
			run := b.startAs(t, "W")
			_, err := b.end(t, run)
			require.Equal(t, tc.fails, err != nil, err)
			require.Equal(t, tc.want, b.read())
			b.requireFree(t, account.Name)
		})
	}
}

func TestSaga_CancelledDuringCommit_CompensatesUnderLocks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.beforeTask(t, closes, func(ctx context.Context) bool {
		if err := b.client.CancelWorkflow(ctx, b.queue, ""); err != nil {
			b.write("%v", err)
		}
		b.lookAround(ctx)
		return true
	})
	b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
		return errors.Join(doOrUndo(ctx, s), ctx.Err())
	})
	b.work(t, sdkworker.Options{}, b.writes())
	_, err := b.end(t, b.startAs(t, "W"))
	require.Error(t, err)
	require.Equal(t, []string{"do", "locked", "undo"}, b.read())
	b.requireFree(t, account.Name)
}

// The usual loop: each run does an order, drains its signals, and continues as new. Each run's end is met by a signal.
func TestSaga_ContinuesAsNewUnderSignals_AllAreReceived(t *testing.T) {
	t.Parallel()
	const orders = 6
	b := setup(t)
	var ends atomic.Int32
	b.intercept(t, func(ctx context.Context, req any) error {
		task, ok := req.(*workflowservice.RespondWorkflowTaskCompletedRequest)
		if ctx = context.WithoutCancel(ctx); ok && closes(task) && ends.Add(1)%2 == 1 { // the second one decides again
			b.lookAround(ctx)
			b.signalBefore(ctx, "order")
		}
		return nil
	})
	b.workflows["W"] = func(ctx workflow.Context, received int) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
		if err := saga(ctx, doOrUndo); err != nil {
			return err
		}
		for signalled(ctx, "order") {
			received++
		}
		if received == orders {
			return nil
		}
		return workflow.NewContinueAsNewError(ctx, "W", received)
	}
	b.work(t, sdkworker.Options{}, b.writes())
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: b.queue, TaskQueue: b.queue, WorkflowTaskTimeout: time.Second}, "W", 0)
	require.NoError(t, err)
	require.NoError(t, b.last(t, run))
	// A task that timed out is repeated, so one run may receive several orders.
	seen := slices.Compact(b.read())
	require.GreaterOrEqual(t, len(seen), 4, "no order arrives before the first run ends")
	require.Equal(t, slices.Repeat([]string{"do", "locked"}, len(seen)/2), seen)
	b.requireFree(t, account.Name)
}

// Numbers that the code gives out before it commits again must not make the commit another one.
func TestSaga_CommitRepeatedAfterActivity_IsNotUndone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.beforeTask(t, closes, func(ctx context.Context) bool {
		b.signalBefore(ctx, "more")
		return true
	})
	b.workflow("W", func(ctx workflow.Context) error {
		workflow.Go(ctx, func(ctx workflow.Context) {
			receive(ctx, "more")
			_ = do(ctx, "Do")
		})
		return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			err := doOrUndo(ctx, s)
			if signalled(ctx, "none") {
				return errors.New("no such signal was sent")
			}
			return err
		})
	})
	b.work(t, sdkworker.Options{}, b.writes())
	b.succeed(t, b.startAs(t, "W"))
	require.NotContains(t, b.read(), "undo")
	b.requireFree(t, account.Name)
}

// The worker dies after the commit and before Temporal has recorded it. The saga holds its locks until it has committed again.
func TestSaga_WorkerDiesWithTheCommit_IsNotUndone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.beforeTask(t, closes, func(ctx context.Context) bool {
		for n := range 70 { // more than a document remembers
			run := lockcore.StepRequest{Caller: lockcore.Caller{LockID: "other-" + strconv.Itoa(n), Run: "run"}, Resources: []lockcore.Resource{account}, Keep: true}
			leases, err := b.locker.TryEnter(ctx, run)
			if err != nil {
				break
			}
			b.write("others were in")
			err = b.locker.Release(ctx, lockcore.Release{LockID: run.LockID, Run: "run", Resources: []string{account.Name}, Order: lockcore.LastAttempt(1)})
			if err != nil || b.locker.Leave(ctx, leases...) != nil {
				b.write("%v", err)
			}
		}
		return false
	})
	b.workflow("W", func(ctx workflow.Context) error { return saga(ctx, doOrUndo) })
	b.work(t, sdkworker.Options{}, b.writes())
	b.succeed(t, b.startAs(t, "W"))
	require.Equal(t, []string{"do"}, b.read())
	b.requireFree(t, account.Name)
}

// The workflow task that asks for a Lock is lost. The next one decides otherwise, and the lock is free.
func TestLock_TaskIsLost_HoldsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.beforeTask(t, func(*workflowservice.RespondWorkflowTaskCompletedRequest) bool { return true }, func(ctx context.Context) bool {
		b.signalBefore(ctx, "never mind")
		return false
	})
	b.workflow("W", func(ctx workflow.Context) error {
		if signalled(ctx, "never mind") {
			b.write("decided otherwise")
			receive(ctx, "end")
			return nil
		}
		_, err := workflows.Lock(ctx, locks(account))
		receive(ctx, "end")
		return err
	})
	b.serve(t)
	run := b.startAs(t, "W")
	b.untilWritten(t, 1)
	free, err := b.isFree(t.Context(), account.Name)
	require.NoError(t, err)
	require.True(t, free, "the run holds a lock that it does not know of")
	b.signal(t, run, "end")
	require.NoError(t, b.last(t, run))
}

// A workflow task releases, and is lost. The next one has a step run under the lock before it releases.
func TestLock_ReleasingTaskLost_StepRunsUnderIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var released atomic.Bool
	b.beforeTask(t, func(*workflowservice.RespondWorkflowTaskCompletedRequest) bool { return released.Load() }, func(ctx context.Context) bool {
		b.signalBefore(ctx, "more")
		b.lookAround(ctx)
		return false
	})
	b.workflow("W", func(ctx workflow.Context) error {
		hold, err := workflows.Lock(ctx, locks(account))
		if err != nil {
			return err
		}
		receive(ctx, "go on")
		if signalled(ctx, "more") {
			err = do(workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, Scope: workflows.ScopeSaga}), "Do")
		}
		err = errors.Join(err, hold.Release(ctx))
		released.Store(true)
		receive(ctx, "end")
		return err
	})
	b.work(t, sdkworker.Options{}, b.writes())
	run := b.startAs(t, "W")
	require.Eventually(t, func() bool { return len(b.holders(t, account.Name)) == 1 }, within, lookEvery)
	b.signal(t, run, "go on")
	b.untilWritten(t, 2)
	b.signal(t, run, "end")
	require.NoError(t, b.last(t, run))
	b.requireFree(t, account.Name)
	require.Equal(t, []string{"locked", "do"}, b.read())
}

// startAs starts a workflow whose ID is the name of the task queue. A workflow task that is lost comes again after a second.
func (b *bundle) startAs(t *testing.T, name string) client.WorkflowRun {
	t.Helper()
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: b.queue, TaskQueue: b.queue, WorkflowTaskTimeout: time.Second}, name)
	require.NoError(t, err)
	return run
}

// The release is an activity, whose end is a workflow task.
func TestSaga_MidRun_AddsSixEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	plain := func(ctx workflow.Context) error {
		err := do(ctx, "Do")
		receive(ctx, "end")
		return err
	}
	b.workflow("plain", plain)
	b.workflow("saga", func(ctx workflow.Context) error {
		err := saga(ctx, doOrUndo)
		receive(ctx, "end")
		return err
	})
	b.work(t, sdkworker.Options{}, b.writes())
	count := map[string]int{}
	for i, name := range []string{"plain", "saga"} {
		run := b.start(t, name)
		b.untilWritten(t, i+1)
		b.completed(t, run, 2+i) // the task after the step, and the one after the release
		b.signal(t, run, "end")
		events, err := b.end(t, run)
		require.NoError(t, err)
		count[name] = countEvents(events)
	}
	require.Equal(t, count["plain"]+6, count["saga"])
	b.requireFree(t, account.Name)
}
