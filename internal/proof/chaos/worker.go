package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"
	temporalclient "go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// Transfer is the argument of a saga that moves money from one register to another.
type Transfer struct {
	From, To string
	Amount   int64
	// Fail makes its last step fail, so that it is undone.
	Fail bool
	// HoldTTL is the TTL of its locks between two steps, or 0. With Bare its last step does not ask for its lock.
	HoldTTL time.Duration
	Bare    bool
	// HalfUndone makes the compensation of its first step do nothing.
	HalfUndone bool
}

// Step is the argument of its steps and their compensations.
type Step struct {
	Resource, Owner, Key string
	Delta                int64
	Fail, Bare, NoUndo   bool
}

const (
	transferName = "transfer"
	// transferSteps is the number of its steps that have an effect, and completed Temporal's name of its success.
	transferSteps = 2
	completed     = "Completed"
	stepName      = "step"
	undoName      = "undo"
	// sagaHoldTTL is the TTL of kept locks, as by default. The janitor of each worker extends them, if it can ask Temporal. With two
	// minutes the locks of a saga ended in a soak, because on a busy machine two restarts of Temporal took longer.
	sagaHoldTTL = time.Hour
)

// bank runs the transfers of one worker process.
type bank struct {
	*client
	attempts atomic.Int64
}

// runWorker is the main function of a worker process. It works until its standard input ends.
func runWorker(c Child) error {
	cl, err := openClient(c, sagaHoldTTL)
	if err != nil {
		return err
	}
	tc, err := dialTemporal(c.Temporal, os.Stderr)
	if err != nil {
		return err
	}
	defer tc.Close()
	plugin, err := worker.NewPlugin(worker.Options{Locker: cl.locker, Janitor: worker.JanitorOptions{Interval: time.Second}})
	if err != nil {
		return err
	}
	w := sdkworker.New(tc, c.Database, sdkworker.Options{
		Plugins: []sdkworker.Plugin{plugin}, StickyScheduleToStartTimeout: time.Second, WorkerStopTimeout: time.Second,
		OnFatalError: func(err error) { // the worker polls no longer
			fmt.Fprintln(os.Stderr, err)
			os.Exit(panicked)
		},
	})
	b := &bank{client: cl}
	w.RegisterWorkflowWithOptions(transfer, workflow.RegisterOptions{Name: transferName})
	w.RegisterActivityWithOptions(b.step, activity.RegisterOptions{Name: stepName})
	w.RegisterActivityWithOptions(b.undo, activity.RegisterOptions{Name: undoName})
	if err := w.Start(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	var probes sync.WaitGroup
	probes.Go(func() { cl.repeat(ctx, 0, cl.probe) })
	cl.log.Write(&Record{What: Born})
	fmt.Println(harness.Ready)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent has ended
	w.Stop()
	stop()
	probes.Wait()
	return nil
}

func dialTemporal(address string, out io.Writer) (temporalclient.Client, error) {
	return temporalclient.NewLazyClient(temporalclient.Options{
		HostPort: address, Logger: sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn}))),
	})
}

// transfer takes money from a register, gives it to another, and looks at the first one again. Between its steps it keeps its
// locks, so no other party may use the registers in between.
func transfer(ctx workflow.Context, t Transfer) error {
	id := workflow.GetInfo(ctx).WorkflowExecution.ID
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 2 * ttl, RetryPolicy: &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 1},
	})
	return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		owner := fmt.Sprintf("%s#%d", id, s.Attempt())
		on := func(resource string) workflow.Context {
			return workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{lockcore.Exclusive(resource)}, HoldTTL: t.HoldTTL})
		}
		for i, step := range []Step{{Resource: t.From, Delta: -t.Amount}, {Resource: t.To, Delta: t.Amount}} {
			step.Owner, step.Key, step.NoUndo = owner, fmt.Sprintf("%s/%d", owner, i), t.HalfUndone && i == 0
			if err := s.Step(on(step.Resource), stepName, undoName, step).Get(ctx, nil); err != nil {
				return err
			}
		}
		last := Step{Resource: t.From, Owner: owner, Key: owner + "/2", Fail: t.Fail, Bare: t.Bare}
		if t.Bare {
			return workflow.ExecuteActivity(ctx, stepName, last).Get(ctx, nil)
		}
		return workflow.ExecuteActivity(on(t.From), stepName, last).Get(ctx, nil)
	})
}

// errPlanned is the reason of a transfer that is undone.
var errPlanned = errors.New("as planned")

// step changes a register under the step's lock.
func (b *bank) step(ctx context.Context, in Step) error { return b.apply(ctx, in, false) }

// undo takes back what a step may have changed.
func (b *bank) undo(ctx context.Context, in Step) error {
	if in.NoUndo {
		return nil
	}
	return b.apply(ctx, in, true)
}

func (b *bank) apply(ctx context.Context, in Step, undo bool) error {
	use := &Use{Resource: in.Resource, LockID: in.Owner, Key: in.Key, Delta: in.Delta, Undo: undo}
	if in.Bare {
		// The registers of this control check no fences.
		_, err := b.registers.call("Apply", use)
		return err
	}
	fence, ok := activities.Fence(ctx, in.Resource)
	if !ok {
		return temporal.NewNonRetryableApplicationError("the step has no lock", "chaos", nil)
	}
	use.Fence = fence
	attempt := fmt.Sprintf("%s@%s.%d", in.Owner, b.Name, b.attempts.Add(1))
	b.log.Write(&Record{What: Got, Resource: in.Resource, LockID: attempt, Fence: fence})
	if _, err := b.registers.call("Apply", use); err != nil {
		return err
	}
	observe(b.log, attempt, 30*time.Millisecond, func() []lockcore.Lease { return activities.Leases(ctx) })
	if in.Fail {
		return temporal.NewNonRetryableApplicationError(errPlanned.Error(), "planned", errPlanned)
	}
	return nil
}
