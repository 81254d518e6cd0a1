package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/janitor"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// entry is the lock on the account as a step saw it.
type entry struct {
	name, run string
	lease     lockcore.Lease
}

// enters is a step that notes its name and its lease.
func (b *bundle) enters(out *[]entry) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		e := entry{name: name, run: activity.GetInfo(ctx).WorkflowExecution.RunID}
		for _, l := range activities.Leases(ctx) {
			if l.Resource == account.Name {
				e.lease = l
			}
		}
		*out = append(*out, e)
		b.lines = append(b.lines, name)
		return nil
	}
}

func call(ctx workflow.Context, name string) error {
	return workflow.ExecuteActivity(ctx, "Enter", name).Get(ctx, nil)
}

func saga(ctx workflow.Context, fn func(ctx workflow.Context, s *workflows.Saga) error) error {
	return workflows.RunSaga(ctx, workflows.SagaOptions{}, fn)
}

func receive(ctx workflow.Context, name string) {
	workflow.GetSignalChannel(ctx, name).Receive(ctx, nil)
}

func (b *bundle) signal(t *testing.T, run client.WorkflowRun, name string) {
	t.Helper()
	require.NoError(t, b.client.SignalWorkflow(t.Context(), run.GetID(), "", name, nil))
}

// replayRun replays the history of a run that is closed.
func (b *bundle) replayRun(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	b.replay(t, b.historyOf(t, run.GetID(), run.GetRunID()))
}

// untilContinued waits until another run of the workflow is the current one, and returns that.
func (b *bundle) untilContinued(t *testing.T, run client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	require.Eventually(t, func() bool { return b.current(t, run).GetRunID() != run.GetRunID() }, within, 20*time.Millisecond, "it did not continue")
	return b.current(t, run)
}

// current is the run of the workflow that is open, or was the last.
func (b *bundle) current(t *testing.T, run client.WorkflowRun) client.WorkflowRun {
	t.Helper()
	d, err := b.client.DescribeWorkflowExecution(t.Context(), run.GetID(), "")
	require.NoError(t, err)
	return b.client.GetWorkflow(t.Context(), run.GetID(), d.GetWorkflowExecutionInfo().GetExecution().GetRunId())
}

// woken counts the waits of a history that were completed by the process that granted the lock, which completes them without a result.
func woken(events []*historypb.HistoryEvent) (n int) {
	waits := map[int64]bool{}
	for _, e := range events {
		if a := e.GetActivityTaskScheduledEventAttributes(); a.GetActivityType().GetName() == "lockstep.Wait" {
			waits[e.GetEventId()] = true
		}
		if a := e.GetActivityTaskCompletedEventAttributes(); a != nil && waits[a.GetScheduledEventId()] && len(a.GetResult().GetPayloads()) == 0 {
			n++
		}
	}
	return n
}

// The next run holds what the first run held, under a new fence, and no other party acquires it in between.
func TestHandOver_ContinueAsNew_OthersStayOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var entries []entry
	b.saga("W", func(ctx workflow.Context, _ *workflows.Saga) error {
		first := workflow.GetInfo(ctx).ContinuedExecutionRunID == ""
		if first {
			if err := call(workflows.Guard(ctx, account), "first"); err != nil {
				return err
			}
		}
		receive(ctx, "go on")
		if first {
			return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "W"))
		}
		return call(workflows.Guard(ctx, account), "second")
	})
	b.workflow("other", func(ctx workflow.Context) error { return call(workflows.Guard(ctx, account), "other") })
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	first := b.start(t, "W")
	b.untilWritten(t, 1)
	other := b.start(t, "other")
	b.untilParked(t, other)
	b.signal(t, first, "go on")
	second := b.untilContinued(t, first)
	b.signal(t, second, "go on")
	b.succeed(t, second)
	b.succeed(t, other)
	require.Equal(t, []string{"first", "second", "other"}, b.read())
	b.replayRun(t, first)
	require.NotEqual(t, entries[0].run, entries[1].run)
	require.Equal(t, []string{first.GetRunID(), second.GetRunID()}, []string{entries[0].lease.Run, entries[1].lease.Run})
	require.True(t, entries[1].lease.Joined, "it was taken anew")
	require.Equal(t, entries[0].lease.FirstFence, entries[1].lease.FirstFence)
	require.Greater(t, entries[1].lease.Fence, entries[0].lease.Fence)
	b.requireFree(t, account.Name)
}

// What is handed over twice, and never asked for again, is released when the last run ends.
func TestHandOver_UnusedByNextRun_ReleasedAtEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var entries []entry
	b.workflow("W", func(ctx workflow.Context) error {
		switch info := workflow.GetInfo(ctx); info.ContinuedExecutionRunID {
		case "":
			if err := call(workflows.WithLocks(ctx, saved(account)), "first"); err != nil {
				return err
			}
		case info.FirstRunID:
			if err := call(workflows.WithLocks(ctx, saved(second)), "second"); err != nil {
				return err
			}
		default:
			receive(ctx, "go on")
			return nil
		}
		return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "W"))
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	first := b.start(t, "W")
	b.untilWritten(t, 2)
	next := b.client.GetWorkflow(t.Context(), first.GetID(), entries[1].run)
	b.untilContinued(t, next)
	b.requireHolds(t, first, account)
	b.requireHolds(t, next, second)
	b.signal(t, first, "go on")
	require.NoError(t, b.last(t, first))
	b.requireFree(t, account.Name)
	b.requireFree(t, second.Name)
}

// saved are locks that outlive their step outside of a saga.
func saved(resources ...lockcore.Resource) workflows.Locks {
	return workflows.Locks{Resources: resources, Scope: workflows.ScopeSaga}
}

// last waits for the end of the whole chain of runs.
func (b *bundle) last(t *testing.T, run client.WorkflowRun) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	err := b.client.GetWorkflow(ctx, run.GetID(), "").Get(ctx, nil)
	require.NoError(t, ctx.Err(), "the workflow did not end")
	return err
}

// handsOver is a workflow whose first run takes the account, and whose second runs fn under it.
func handsOver(fn func(ctx workflow.Context) error) func(ctx workflow.Context) error {
	return func(ctx workflow.Context) error {
		return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
			if workflow.GetInfo(ctx).ContinuedExecutionRunID != "" {
				return fn(ctx)
			}
			if err := call(workflows.Guard(ctx, account), "first"); err != nil {
				return err
			}
			return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "W"))
		})
	}
}

var second = lockcore.Exclusive("account/2")

// A request of the next run is the next run's, and is woken there.
func TestHandOver_NextRunWaits_IsWoken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var entries []entry
	b.workflow("W", handsOver(func(ctx workflow.Context) error { return call(workflows.Guard(ctx, account, second), "second") }))
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	somebody := b.taken(t, second)
	first := b.start(t, "W")
	next := b.untilContinued(t, first)
	b.untilParked(t, next)
	require.NoError(t, somebody.Leave(t.Context()))
	events, err := b.end(t, next)
	require.NoError(t, err)
	require.Equal(t, 1, woken(events))
	require.Equal(t, []string{"first", "second"}, b.read())
	b.requireFree(t, account.Name)
	b.requireFree(t, second.Name)
}

// The continued run is terminated while it waits: its grant is returned long before the claim expires.
func TestHandOver_NextRunHasClosed_GrantIsReturned(t *testing.T) {
	t.Parallel()
	b := setupWith(t, lockcore.Config{ClaimTTL: 15 * time.Minute, WaiterTTL: time.Hour})
	var entries []entry
	b.workflow("W", handsOver(func(ctx workflow.Context) error { return call(workflows.Guard(ctx, account, second), "second") }))
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	somebody := b.taken(t, second)
	first := b.start(t, "W")
	next := b.untilContinued(t, first)
	b.untilParked(t, next)
	b.terminate(t, next)
	began := time.Now()
	require.NoError(t, somebody.Leave(t.Context()))
	b.requireFree(t, second.Name)
	t.Logf("given back after %v", time.Since(began))
}

// The server copies the header of a run to its retries. (Runs by a cron schedule it starts with the header of the first; a
// run that continues as new leaves its schedule behind.)
func TestHandOver_WorkflowRetry_InheritsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var entries []entry
	b.workflow("W", handsOver(func(ctx workflow.Context) error {
		info := workflow.GetInfo(ctx)
		if err := call(workflows.Guard(ctx, account), "next"); err != nil || info.ContinuedExecutionRunID == info.FirstRunID {
			return errors.Join(err, errors.New("again"))
		}
		return nil
	}))
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
	first, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		TaskQueue: b.queue, RetryPolicy: &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, MaximumAttempts: 2},
	}, "W")
	require.NoError(t, err)
	require.NoError(t, b.last(t, first))
	require.Equal(t, []string{"first", "next", "next"}, b.read())
	require.True(t, entries[1].lease.Joined)
	require.False(t, entries[2].lease.Joined)
	b.requireFree(t, account.Name)
}

// A workflow that asks for a hand-over and then ends in another way releases.
func TestHandOver_NotReturned_Releases(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		_ = saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
			if err := do(workflows.Guard(ctx, account), "Look"); err != nil {
				return err
			}
			return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "W"))
		})
		return do(ctx, "Look")
	})
	b.serve(t)
	run := b.start(t, "W")
	b.succeed(t, run)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, b.status(t, run))
	require.Equal(t, []string{"free: false", "free: false"}, b.read())
	b.requireFree(t, account.Name)
}

// A child that inherits its parent's party does so in all its runs, and one that does not ask has its own.
func TestOwner_ChildWorkflow_InheritsIfAsked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owners := map[string]string{}
	b.workflow("child", func(ctx workflow.Context) error {
		if workflow.GetInfo(ctx).ContinuedExecutionRunID == "" {
			if err := call(workflows.Guard(ctx, account), "child"); err != nil {
				return err
			}
			return workflow.NewContinueAsNewError(ctx, "child")
		}
		return call(workflows.Guard(ctx, account), "next")
	})
	b.workflow("W", func(ctx workflow.Context) error {
		ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{})
		alone := workflow.ExecuteChildWorkflow(ctx, "child").Get(ctx, nil)
		return errors.Join(alone, workflow.ExecuteChildWorkflow(workflows.WithOwner(ctx, ""), "child").Get(ctx, nil))
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Enter": func(ctx context.Context, name string) error {
		for s, err := range b.locker.Status(ctx, lockcore.Filter{Resource: account.Name}) {
			if err != nil {
				return err
			}
			b.write("%s: %v", name, s.Owner == owner(activity.GetInfo(ctx).WorkflowExecution.ID))
			b.mu.Lock()
			owners[s.Owner] = name
			b.mu.Unlock()
		}
		return nil
	}})
	run := b.start(t, "W")
	b.succeed(t, run)
	require.Contains(t, owners, owner(run.GetID()))
	require.Equal(t, []string{"child: true", "next: true", "child: false", "next: false"}, b.read())
}

// All runs of a cron schedule have the same first run. Each locks in its own name; one that continues as new hands its
// locks to the run that continues it, which leaves the schedule behind; and the janitor recognizes their owner.
func TestHandOver_CronSchedule_NextRunHolds(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"completed", "terminated"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var entries []entry
			b.workflows["W"] = func(ctx workflow.Context, heir bool) (string, error) {
				ctx = withOptions(ctx)
				again := workflow.HasLastCompletionResult(ctx)
				return "done", saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
					guarded := workflows.WithLocks(ctx, lasting(account))
					switch {
					case heir:
						receive(ctx, "go on")
						return call(guarded, "third")
					case again:
						if err := call(guarded, "second"); err != nil {
							return err
						}
						return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "W", true))
					default:
						return call(guarded, "first")
					}
				})
			}
			b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
			first, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue, CronSchedule: "@every 1s"}, "W", false)
			require.NoError(t, err)
			b.untilWritten(t, 2)
			own := b.client.GetWorkflow(t.Context(), first.GetID(), entries[1].run)
			heir := b.untilContinued(t, own)
			require.NotEqual(t, first.GetRunID(), own.GetRunID())
			require.Equal(t, first.GetRunID(), entries[0].lease.Run)
			b.requireHolds(t, own, account)
			require.Equal(t, janitor.Result{Listed: 1, Asked: 1, Open: 1}, b.round(t))
			b.requireHolds(t, own, account)
			if end == "terminated" {
				b.terminate(t, heir)
				require.Equal(t, janitor.Result{Listed: 1, Asked: 1, Closed: 1, Released: 1}, b.round(t))
				b.requireFree(t, account.Name)
				return
			}
			b.signal(t, heir, "go on")
			require.NoError(t, b.last(t, heir)) // the workflow's last run
			require.Equal(t, []string{"first", "second", "third"}, b.read())
			require.Equal(t, heir.GetRunID(), entries[2].lease.Run)
			require.True(t, entries[2].lease.Joined)
			b.requireFree(t, account.Name)
			for _, run := range []client.WorkflowRun{own, heir} {
				b.replayRun(t, run)
			}
		})
	}
}

// handsLocksOver is a workflow whose first run takes the account and account/2 around code, and whose second runs fn.
func handsLocksOver(fn func(ctx workflow.Context) error) func(ctx workflow.Context) error {
	return func(ctx workflow.Context) error {
		if workflow.GetInfo(ctx).ContinuedExecutionRunID != "" {
			return fn(ctx)
		}
		if _, err := workflows.Lock(ctx, lasting(account, second)); err != nil {
			return err
		}
		if err := call(ctx, "first"); err != nil {
			return err
		}
		return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "W"))
	}
}

// locksAgain takes the account around code in the run that continues another, and releases it before that ends.
func locksAgain(ctx workflow.Context) error {
	if err := call(workflows.Guard(ctx, account), "second"); err != nil {
		return err
	}
	err := under(ctx, lasting(account), func(*workflows.Hold) error {
		receive(ctx, "go on")
		return call(workflows.Guard(ctx, account), "third")
	})
	receive(ctx, "go on")
	return err
}

// The next run's own lock is what the lock of the run before was: its release frees it, also if that run is reset. What it does not
// take stays until its end.
func TestHandOver_Lock_NextRunReleasesIt(t *testing.T) {
	t.Parallel()
	for name, isReset := range map[string]bool{"at once": false, "after a reset": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var entries []entry
			b.workflow("W", handsLocksOver(func(ctx workflow.Context) error {
				receive(ctx, "go on")
				return locksAgain(ctx)
			}))
			b.work(t, sdkworker.Options{}, map[string]any{"Enter": b.enters(&entries)})
			first := b.start(t, "W")
			next := b.untilContinued(t, first)
			b.completed(t, next, 1)
			if isReset {
				next = b.reset(t, next, 1)
			}
			b.signal(t, next, "go on")
			b.untilWritten(t, 2)
			b.untilHeldBy(t, next)
			b.requireHolds(t, first, second)
			b.signal(t, next, "go on")
			b.requireFree(t, account.Name)
			b.requireHolds(t, first, second)
			b.signal(t, next, "go on")
			b.succeed(t, next)
			require.Equal(t, []string{"first", "second", "third"}, b.read())
			for _, e := range entries[1:] {
				require.Equal(t, next.GetRunID(), e.lease.Run)
			}
			b.requireFree(t, second.Name)
		})
	}
}

func (b *bundle) requireHolds(t *testing.T, run client.WorkflowRun, resources ...lockcore.Resource) {
	t.Helper()
	for _, r := range resources {
		require.Equal(t, []string{run.GetRunID()}, b.runs(t, r.Name))
	}
}
