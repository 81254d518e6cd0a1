package worker_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	nexuspb "go.temporal.io/api/nexus/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// A lock is taken anew at once after a reset, whatever the workflow waits for, and without a keep-alive.
func TestALockIsTakenAnewAtOnce(t *testing.T) {
	t.Parallel()
	waits := map[string]func(ctx workflow.Context){
		"a signal": func(ctx workflow.Context) { receive(ctx, "go on") },
		"a timer":  func(ctx workflow.Context) { _ = workflow.Sleep(ctx, longer) },
	}
	for name, wait := range waits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.workflow("W", func(ctx workflow.Context) error {
				return under(ctx, lasting(account), func(*workflows.Hold) error {
					wait(ctx)
					return nil
				})
			})
			b.work(t, sdkworker.Options{}, nil)
			old := b.start(t, "W")
			b.completed(t, old, 1)
			b.signal(t, old, "noise")
			b.completed(t, old, 2)
			run := b.reset(t, old, 2)
			b.untilHeldBy(t, run)
			tasks := b.untilIdle(t, run) + 1
			b.signal(t, run, "noise")
			b.completed(t, run, tasks)
			run = b.reset(t, run, tasks)
			b.untilHeldBy(t, run)
			b.replayRun(t, run)
			b.terminate(t, run)
		})
	}
}

// resetBehind resets a run that waits under the lock, in such a way that somebody gets in between.
func (b *bundle) resetBehind(t *testing.T, old client.WorkflowRun) (run client.WorkflowRun, somebody *lockcore.Session) {
	t.Helper()
	b.untilHeldBy(t, old)
	tasks := b.untilIdle(t, old) + 1
	b.signal(t, old, "noise")
	b.completed(t, old, tasks)
	queued := b.queues(t)
	run = b.reset(t, old, tasks)
	return run, <-queued
}

// queues has somebody stand in the queue of the account, and tells when they have got it.
func (b *bundle) queues(t *testing.T) <-chan *lockcore.Session {
	t.Helper()
	got := make(chan *lockcore.Session, 1)
	go func() {
		defer close(got)
		s, err := b.locker.Acquire(t.Context(), lockcore.Request{LockID: "somebody", Resources: []lockcore.Resource{account}})
		if err == nil {
			got <- s
		} else if t.Context().Err() == nil {
			t.Errorf("the one who stands in the queue: %v", err)
		}
	}()
	b.untilQueued(t, account.Name, 1)
	return got
}

// What the workflow does next under the lock, and others see, waits until that is taken anew. Time passes meanwhile.
func TestWhatComesAfterAResetIsBehindTheLock(t *testing.T) {
	t.Parallel()
	next := map[string]func(ctx workflow.Context, other string) error{
		"a child workflow": func(ctx workflow.Context, _ string) error {
			return workflow.ExecuteChildWorkflow(ctx, "Child").Get(ctx, nil)
		},
		"a child workflow in a selector": func(ctx workflow.Context, _ string) error {
			var err error
			child := workflow.ExecuteChildWorkflow(ctx, "Child")
			workflow.NewSelector(ctx).AddFuture(child, func(f workflow.Future) { err = f.Get(ctx, nil) }).Select(ctx)
			return err
		},
		"a child workflow after a timer": func(ctx workflow.Context, _ string) error {
			return errors.Join(workflow.Sleep(ctx, time.Millisecond), workflow.ExecuteChildWorkflow(ctx, "Child").Get(ctx, nil))
		},
		"a signal to another": func(ctx workflow.Context, other string) error {
			return workflow.SignalExternalWorkflow(ctx, other, "", "done", nil).Get(ctx, nil)
		},
		"a local activity": func(ctx workflow.Context, _ string) error {
			ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{ScheduleToCloseTimeout: time.Minute})
			return workflow.ExecuteLocalActivity(ctx, "Done").Get(ctx, nil)
		},
	}
	for name, fn := range next {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.workflow("Other", func(ctx workflow.Context) error {
				receive(ctx, "done")
				return do(ctx, "Done")
			})
			b.workflow("Child", func(ctx workflow.Context) error { return do(ctx, "Done") })
			var other string
			b.workflow("W", func(ctx workflow.Context) error {
				return under(ctx, lasting(account), func(*workflows.Hold) error {
					receive(ctx, "go on")
					err := fn(ctx, other)
					receive(ctx, "end")
					return err
				})
			})
			b.work(t, sdkworker.Options{}, map[string]any{"Done": func(context.Context) error {
				b.write("held by %v", b.holders(t, account.Name))
				return nil
			}})
			receiver := b.start(t, "Other")
			other = receiver.GetID()
			run, somebody := b.resetBehind(t, b.start(t, "W"))
			b.untilParked(t, run)
			tasks := b.tasks(t, run)
			b.signal(t, run, "go on")
			b.completed(t, run, tasks+1)
			require.NoError(t, somebody.Leave(t.Context()))
			b.untilWritten(t, 1)
			require.Equal(t, []string{"held by [" + lockID(run) + "]"}, b.read())
			b.signal(t, run, "end")
			_, err := b.end(t, run)
			require.NoError(t, err)
			_ = b.client.TerminateWorkflow(t.Context(), receiver.GetID(), "", "for the test") // it may have ended
			b.requireFree(t, account.Name)
		})
	}
}

// Where the lock cannot be taken anew, what needs it fails as Lock does, and is not done.
func TestWhatComesAfterAResetFailsWhereTheLockCannotBeHad(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("Child", func(ctx workflow.Context) error { return do(ctx, "Note") })
	b.workflow("W", func(ctx workflow.Context) error {
		l := lasting(account)
		l.Try = true
		return under(ctx, l, func(*workflows.Hold) error {
			receive(ctx, "go on")
			child := workflow.ExecuteChildWorkflow(ctx, "Child")
			return errors.Join(
				busyOr(child.Get(ctx, nil)), busyOr(child.GetChildWorkflowExecution().Get(ctx, nil)),
				busyOr(workflow.SignalExternalWorkflow(ctx, "nobody", "", "done", nil).Get(ctx, nil)),
			)
		})
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.note})
	run, somebody := b.resetBehind(t, b.start(t, "W"))
	b.signal(t, run, "go on")
	_, err := b.end(t, run)
	require.NoError(t, err)
	require.Empty(t, b.read())
	require.NoError(t, somebody.Leave(t.Context()))
	b.requireFree(t, account.Name)
}

func busyOr(err error) error {
	if lockcoreBusy(err) {
		return nil
	}
	return errors.Join(err, errors.New("it was not busy"))
}

// A Nexus operation is not scheduled before the lock is taken anew, either.
func TestANexusOperationAfterAResetIsBehindTheLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := b.nexusEndpoint(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return under(ctx, lasting(account), func(*workflows.Hold) error {
			receive(ctx, "go on")
			return workflow.NewNexusClient(endpoint, "service").ExecuteOperation(ctx, "operation", "", workflow.NexusOperationOptions{}).Get(ctx, nil)
		})
	})
	b.work(t, sdkworker.Options{}, nil)
	run, somebody := b.resetBehind(t, b.start(t, "W"))
	b.untilParked(t, run)
	tasks := b.tasks(t, run)
	b.signal(t, run, "go on")
	b.completed(t, run, tasks+1)
	for _, e := range b.historyOf(t, run.GetID(), run.GetRunID()).GetEvents() {
		require.Nil(t, e.GetNexusOperationScheduledEventAttributes(), "it is scheduled without the lock")
	}
	require.NoError(t, somebody.Leave(t.Context()))
	b.untilEvent(t, run, enumspb.EVENT_TYPE_NEXUS_OPERATION_SCHEDULED)
	require.Equal(t, []string{lockID(run)}, b.holders(t, account.Name))
	b.replayRun(t, run)
	b.terminate(t, run)
}

// nexusEndpoint makes one whose operations go to the test's own task queue.
func (b *bundle) nexusEndpoint(t *testing.T) (name string) {
	t.Helper()
	name = "e-" + strings.ToLower(rand.Text())
	made, err := b.client.OperatorService().CreateNexusEndpoint(t.Context(), &operatorservice.CreateNexusEndpointRequest{Spec: &nexuspb.EndpointSpec{
		Name: name, Target: &nexuspb.EndpointTarget{Variant: &nexuspb.EndpointTarget_Worker_{
			Worker: &nexuspb.EndpointTarget_Worker{Namespace: "default", TaskQueue: b.queue},
		}},
	}})
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := b.client.OperatorService().DeleteNexusEndpoint(context.WithoutCancel(t.Context()), &operatorservice.DeleteNexusEndpointRequest{
			Id: made.GetEndpoint().GetId(), Version: made.GetEndpoint().GetVersion(),
		})
		require.NoError(t, err)
	})
	return name
}
