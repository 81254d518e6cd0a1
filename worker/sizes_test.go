package worker_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/workflows"
)

// What one workflow task schedules exceeds what the server accepts at once. The cases are heavy, so they run one after the other.
func TestSizes_ExceedWhatTheServerAccepts_AreSplit(t *testing.T) {
	t.Parallel()
	t.Run("steps", testManySteps)
	t.Run("Locks", testManyLocks)
	t.Run("steps that are woken at once", testManyStepsWoken)
}

// The guards of one workflow task, and the releases of a saga, exceed what the server accepts at once. A worker without the plugin runs most
// of the steps, because 24,000 locks take minutes.
func testManySteps(t *testing.T) {
	t.Helper()
	const steps, locked = 480, 8
	limited := hundred(20)
	for i, r := range limited { // JSON has six bytes for each "&": 8 MB in all, unless they are compressed
		limited[i] = lockcore.SharedLimit(r.Name+strings.Repeat("&", 20), 1_000_000)
	}
	b := setup(t)
	unlocked := b.on(b.queue + "-unlocked")
	b.workflow("W", func(ctx workflow.Context) error {
		err := saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
			futures := make([]workflow.Future, steps)
			for i := range futures {
				if i == locked {
					ctx = workflow.WithTaskQueue(ctx, unlocked.queue)
				}
				futures[i] = workflow.ExecuteActivity(workflows.Guard(ctx, limited...), "Nothing")
			}
			for _, f := range futures {
				if err := f.Get(ctx, nil); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		err = saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
			var refused error
			for range steps {
				f := workflow.ExecuteActivity(workflows.Guard(ctx, hundred(500)...), "Nothing")
				if f.IsReady() {
					refused = f.Get(ctx, nil)
					break
				}
			}
			var invalid *lockcore.InvalidError
			if !errors.As(refused, &invalid) || invalid.Field != "the guards of one workflow task" {
				return fmt.Errorf("more than the server accepts was not refused: %w", refused)
			}
			return nil
		})
		return err
	})
	b.serve(t)
	unlocked.work(t, sdkworker.Options{DisableWorkflowWorker: true, Plugins: []sdkworker.Plugin{}}, nil)
	b.succeed(t, b.start(t, "W"))
	require.Eventually(t, func() bool { return b.documentsHeld(t) == 0 }, within, lookEvery*10, "locks remain")
}

// Locks around code at the same time exceed what the server accepts in one workflow task.
func testManyLocks(t *testing.T) {
	t.Helper()
	const locksAtOnce = 100
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		group, errs := workflow.NewWaitGroup(ctx), make([]error, locksAtOnce)
		for i := range locksAtOnce {
			group.Add(1)
			workflow.Go(ctx, func(ctx workflow.Context) {
				defer group.Done()
				_, errs[i] = workflows.Lock(ctx, locks(longNames(i, 100)...))
			})
		}
		group.Wait(ctx)
		return errors.Join(errs...)
	})
	b.work(t, sdkworker.Options{MaxConcurrentActivityExecutionSize: 8}, nil)
	run := b.start(t, "W")
	require.Eventually(t, func() bool {
		d, err := b.client.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
		return err == nil && (len(d.GetPendingActivities()) > 0 || d.GetWorkflowExecutionInfo().GetHistoryLength() > 10)
	}, within, lookEvery*10, "no lock was requested: the workflow task is refused")
	b.terminate(t, run)
}

// Steps that waited are scheduled again. If many are woken while no worker takes the workflow task, the guards of that one task exceed what the
// server accepts, although they were admitted over several tasks.
func testManyStepsWoken(t *testing.T) {
	t.Helper()
	const steps, inOneTask = 120, 35
	b := setup(t)
	const hot = " hot" // the first of the names
	b.hold(t, "other", "r", hot)
	guard := append(longNames(0, 99), lockcore.Shared(hot))
	b.workflow("W", func(ctx workflow.Context) error {
		return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
			futures := make([]workflow.Future, steps)
			for i := range futures {
				if i%inOneTask == inOneTask-1 {
					if err := workflow.Sleep(ctx, time.Second); err != nil {
						return err
					}
				}
				futures[i] = workflow.ExecuteActivity(workflows.Guard(ctx, guard...), "Nothing")
			}
			for _, f := range futures {
				if err := f.Get(ctx, nil); err != nil {
					return err
				}
			}
			return nil
		})
	})
	w := b.serve(t)
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		TaskQueue: b.queue, WorkflowTaskTimeout: time.Minute, // the race detector makes replays of so much slow
	}, "W")
	require.NoError(t, err)
	pending := func(name string) (n int) {
		d, err := b.client.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
		require.NoError(t, err)
		for _, a := range d.GetPendingActivities() {
			if a.GetActivityType().GetName() == name {
				n++
			}
		}
		return n
	}
	require.Eventually(t, func() bool { return pending("lockstep.Wait") == steps }, within, lookEvery*10, "they do not wait")
	w.Stop()
	require.NoError(t, b.locker.Release(t.Context(), lockcore.Release{LockID: "other", Run: "r", Resources: []string{hot}, Order: lockcore.LastAttempt(1)}))
	require.Eventually(t, func() bool { return pending("lockstep.Wait") == 0 }, within, lookEvery*10, "they are not woken")
	b.serve(t)
	require.Eventually(t, func() bool {
		return b.hasEnded(t, run) || pending("Nothing") > 0
	}, within, lookEvery*10, "no step was scheduled again: the workflow task is refused")
	b.terminate(t, run)
}

// longNames returns n shared resources with names of 500 bytes, which hardly compress.
func longNames(group, n int) []lockcore.Resource {
	all, random := make([]lockcore.Resource, n), rand.New(rand.NewPCG(uint64(group), 0))
	for i := range all {
		name := make([]byte, 0, 500)
		for len(name) < cap(name) {
			name = append(name, byte('!'+random.IntN('~'-'!')))
		}
		all[i] = lockcore.Shared(string(name))
	}
	return all
}

// hundred returns a hundred shared resources with names of the given length.
func hundred(length int) []lockcore.Resource {
	all := make([]lockcore.Resource, 100)
	for i := range all {
		all[i] = lockcore.Shared(fmt.Sprintf("%0*d", length, i))
	}
	return all
}

func (b *bundle) documentsHeld(t *testing.T) (n int) {
	t.Helper()
	for s, err := range b.locker.Status(t.Context(), lockcore.Filter{}) {
		require.NoError(t, err)
		if strings.HasPrefix(s.Resource, "0") {
			n++
		}
	}
	return n
}
