package worker_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"

	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/workflows"
)

// inParallel runs a step n times at once, under what the context asks for.
func inParallel(ctx workflow.Context, n int, name string) error {
	var errs []error
	steps := make([]workflow.Future, n)
	for i := range steps {
		steps[i] = workflow.ExecuteActivity(ctx, name)
	}
	for _, step := range steps {
		errs = append(errs, step.Get(ctx, nil))
	}
	return errors.Join(errs...)
}

// crowd is a step that counts how many run at once, and runs until the test ends it.
type crowd struct {
	running, most atomic.Int32
	letGo         chan struct{}
}

func newCrowd() *crowd { return &crowd{letGo: make(chan struct{})} }

func (c *crowd) step(ctx context.Context) error {
	n := c.running.Add(1)
	defer c.running.Add(-1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	select {
	case <-c.letGo:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Steps of one workflow count one by one under a limit, and exclude each other, in a saga that keeps the resource too.
func TestScopeStep_StepsOfOneWorkflow_AreIndependent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		resource lockcore.Resource
		at       int32
		saga     bool
	}{
		"a limit of 2": {lockcore.SharedLimit("license", 2), 2, false},
		"exclusive":    {lockcore.Exclusive("license"), 1, false},
		"in a saga":    {lockcore.Exclusive("license"), 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, c := setup(t), newCrowd()
			steps := func(ctx workflow.Context) error {
				l := workflows.Locks{Resources: []lockcore.Resource{tc.resource}, Scope: workflows.ScopeStep}
				return inParallel(workflows.WithLocks(ctx, l), 10, "Use")
			}
			b.workflow("W", func(ctx workflow.Context) error {
				if !tc.saga {
					return steps(ctx)
				}
				return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
					return errors.Join(do(workflows.Guard(ctx, tc.resource), "Nothing"), steps(ctx))
				})
			})
			b.work(t, sdkworker.Options{}, map[string]any{"Use": c.step})
			run := b.start(t, "W")
			require.Eventually(t, func() bool { return int(c.running.Load())+len(b.waiters(t, "license")) == 10 }, within, lookEvery, "not all have asked")
			close(c.letGo)
			b.succeed(t, run)
			require.Equal(t, tc.at, c.most.Load())
			b.requireFree(t, "license")
		})
	}
}

// use takes a resource again and again, for a moment each time, as one of several who always queue for it.
func (b *bundle) use(ctx context.Context, lockID string, resource lockcore.Resource) error {
	for {
		s, err := b.locker.Acquire(ctx, lockcore.StepRequest{Caller: lockcore.Caller{LockID: lockID}, Resources: []lockcore.Resource{resource}})
		if err != nil {
			return err
		}
		moment := time.NewTimer(100 * time.Millisecond)
		select {
		case <-moment.C:
		case <-ctx.Done():
			moment.Stop()
		}
		if err := s.Leave(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
}

// Others always queue for both resources of a step. The step keeps the first resource that it acquires while it waits for the other.
func TestScopeStep_TwoBusyResources_Runs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account, account2), "Nothing") })
	b.serve(t)
	ctx, stop := context.WithCancel(t.Context())
	var users sync.WaitGroup
	defer users.Wait()
	defer stop()
	for _, resource := range []lockcore.Resource{account, account2} {
		for _, name := range []string{"a", "b", "c"} {
			users.Go(func() {
				if err := b.use(ctx, name+resource.Name, resource); !errors.Is(err, context.Canceled) {
					t.Errorf("a user: %v", err)
				}
			})
		}
		b.untilQueued(t, resource.Name, 2)
	}
	for range 3 {
		events, err := b.end(t, b.start(t, "W"))
		require.NoError(t, err)
		require.LessOrEqual(t, countEvents(events), 40)
	}
}

// What a step keeps while it waits for the rest is released however its wait ends, while its workflow is open.
func TestScopeStep_KeptWhileWaiting_IsReleased(t *testing.T) {
	t.Parallel()
	step := func(ctx workflow.Context, maxWait time.Duration) workflow.Context {
		l := workflows.Locks{Resources: []lockcore.Resource{account, account2}, Scope: workflows.ScopeStep, MaxWait: maxWait}
		return workflow.WithRetryPolicy(workflows.WithLocks(ctx, l), temporal.RetryPolicy{MaximumAttempts: 1})
	}
	for name, fn := range map[string]func(ctx workflow.Context) error{
		"cancelled": func(ctx workflow.Context) error {
			ctx, cancel := workflow.WithCancel(ctx)
			future := workflow.ExecuteActivity(step(ctx, 0), "Nothing")
			receive(ctx, "waits")
			cancel()
			return future.Get(ctx, nil)
		},
		"after its time": func(ctx workflow.Context) error { return do(step(ctx, 3*time.Second), "Nothing") },
		"with its saga": func(ctx workflow.Context) error {
			var future workflow.Future
			err := saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
				future = workflow.ExecuteActivity(step(ctx, 0), "Nothing")
				receive(ctx, "waits")
				return nil
			})
			return errors.Join(err, future.Get(ctx, nil))
		},
		"when it has run": func(ctx workflow.Context) error { return do(step(ctx, 0), "Refuse") },
		"when it is late": func(ctx workflow.Context) error {
			return do(workflow.WithStartToCloseTimeout(step(ctx, 0), 5*time.Second), "Stay")
		},
		"with its workflow": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.workflow("W", func(ctx workflow.Context) error {
				if fn == nil {
					workflow.ExecuteActivity(step(ctx, 0), "Nothing")
					receive(ctx, "waits")
					return errLate
				}
				err := fn(ctx)
				receive(ctx, "end")
				return err
			})
			stay := newCrowd()
			b.work(t, sdkworker.Options{}, map[string]any{
				"Nothing": nothing, "Refuse": refuse, "Stay": func(context.Context) error { <-stay.letGo; return nil },
			})
			t.Cleanup(func() { close(stay.letGo) })
			other := b.taken(t, account2)
			run := b.start(t, "W")
			b.untilParked(t, run)
			require.Len(t, b.holders(t, account.Name), 1, "it keeps what it has")
			switch name {
			case "when it has run", "when it is late":
				require.NoError(t, other.Leave(t.Context()))
			case "after its time":
			default:
				b.signal(t, run, "waits")
			}
			require.Eventually(t, func() bool { return len(b.holders(t, account.Name)) == 0 }, soon, lookEvery, "it keeps what it had")
			b.untilQueued(t, account2.Name, 0)
			if fn != nil {
				b.signal(t, run, "end")
			}
			_, err := b.end(t, run)
			require.Error(t, err)
			require.NoError(t, other.Leave(t.Context()))
			require.Empty(t, b.holders(t, account2.Name))
		})
	}
}
