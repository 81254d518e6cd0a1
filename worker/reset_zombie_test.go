package worker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// A zombie is an attempt that a worker took before its run was reset, and that asks for its locks afterwards. It is refused,
// does not run, and changes nothing.
func TestAZombieOfTheRunBeforeAResetChangesNothing(t *testing.T) {
	t.Parallel()
	for name, resources := range map[string][]lockcore.Resource{
		"the old run has held it": {account, second}, "the old run has never held it": {second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zombieOfAReset(t, resources)
		})
	}
}

func zombieOfAReset(t *testing.T, resources []lockcore.Resource) {
	t.Helper()
	b := setup(t)
	z := &zombies{taken: make(chan struct{}), goes: make(chan struct{}), ended: make(chan error, 1)}
	b.workflow("W", func(ctx workflow.Context) error {
		return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
			if err := do(workflows.Guard(ctx, account), "First"); err != nil {
				return err
			}
			workflow.Go(ctx, func(ctx workflow.Context) { receive(ctx, "noise") })
			err := do(workflows.Guard(ctx, resources...), "Step")
			receive(ctx, "go on")
			return err
		})
	})
	b.work(t, sdkworker.Options{Interceptors: []interceptor.WorkerInterceptor{z}}, map[string]any{
		"First": nothing, "Step": func(ctx context.Context) error {
			b.write("step of %s", activity.GetInfo(ctx).WorkflowExecution.RunID)
			return nil
		},
	})
	old := b.start(t, "W")
	<-z.taken
	b.signal(t, old, "noise")
	b.completed(t, old, 3)
	run := b.reset(t, old, 3)
	b.untilWritten(t, 1)
	require.Eventually(t, func() bool { return len(b.runs(t, second.Name)) == 1 }, within, lookEvery, "account/2 is not held")
	before := b.leases(t)
	close(z.goes)
	err := <-z.ended
	var other *party.OtherRunError
	require.ErrorAs(t, workflows.LockError(err), &other)
	require.Equal(t, []string{old.GetRunID(), run.GetRunID()}, []string{other.Run, other.Other})
	app := failedAs(t, err, "lockstep.OtherRun")
	require.False(t, app.NonRetryable(), "Temporal's answer may have been an old one")
	require.Equal(t, before, b.leases(t))
	b.signal(t, run, "go on")
	_, err = b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{"step of " + run.GetRunID()}, b.read())
	b.requireFree(t, account.Name)
	b.requireFree(t, second.Name)
}

// leases are who holds what, and under which fences.
func (b *bundle) leases(t *testing.T) (all []string) {
	t.Helper()
	for s, err := range b.locker.Status(t.Context(), lockcore.Filter{}) {
		require.NoError(t, err)
		all = append(all, fmt.Sprintf("%s %s %s %s %d", s.Resource, s.State, s.LockID, s.Run, s.Fence))
	}
	return all
}

// zombies keeps the first attempt of Step from asking for its locks until it goes.
type zombies struct {
	interceptor.WorkerInterceptorBase
	once        sync.Once
	taken, goes chan struct{}
	ended       chan error
}

type zombie struct {
	interceptor.ActivityInboundInterceptorBase
	all *zombies
}

func (z *zombies) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &zombie{interceptor.ActivityInboundInterceptorBase{Next: next}, z}
}

func (z *zombie) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (result any, err error) {
	first := false
	if activity.GetInfo(ctx).ActivityType.Name == "Step" {
		z.all.once.Do(func() { first = true })
	}
	if !first {
		return z.Next.ExecuteActivity(ctx, in)
	}
	close(z.all.taken)
	<-z.all.goes
	result, err = z.Next.ExecuteActivity(ctx, in)
	z.all.ended <- err
	return result, err
}
