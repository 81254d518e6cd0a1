package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/tools/failedtasks"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// sizesBench runs one saga after the other with very many resources, and ends each in another way. It fails if a saga does not end as it should,
// if a workflow task fails, or if locks remain.
type sizesBench struct {
	client    client.Client
	locker    *lockcore.Locker
	queue     string
	resources []int
	payload   int

	Rows []sizesRow `json:"rows"`
}

type sizesRow struct {
	Resources int     `json:"resources"`
	End       string  `json:"end"`
	Seconds   float64 `json:"seconds"`
	// Free is the time from the end of the workflow until no lock of it remained.
	Free    float64 `json:"freeSeconds"`
	Events  int64   `json:"events"`
	History float64 `json:"historyMB"`
}

// The ways in which a saga ends.
const (
	endCommits   = "commits"
	endFails     = "fails, and is undone"
	endHandsOver = "hands over"
)

// sizesStep is the number of resources of a step, the most that a guard can have.
const sizesStep = 100

// sizesLimit bounds one saga.
const sizesLimit = 20 * time.Minute

type sizesInput struct {
	ID, End            string
	Resources, Payload int
}

func runSizes(ctx context.Context, args []string) (err error) {
	b := &sizesBench{resources: []int{1_000, 5_000, 20_000}}
	flags := flag.NewFlagSet("bench sizes", flag.ExitOnError)
	delay := flags.Duration("write-delay", 0, "how long answers of the database to writes are held back")
	flags.IntVar(&b.payload, "payload", 50_000, "how many bytes each step returns; 200 steps of 50 kB are a history of 10 MB")
	flags.Func("resources", "how many resources a saga has, such as 1000,5000,20000", numbers(&b.resources))
	asJSON := parseFlags(flags, args)
	at, drop, err := newSite(ctx)
	if err != nil {
		return err
	}
	defer drop()
	at.WriteDelay = *delay
	w, err := at.open(sdkworker.Options{MaxConcurrentActivityExecutionSize: 8})
	if err != nil {
		return err
	}
	b.client, b.locker, b.queue = w.client, w.locker, at.Queue
	w.RegisterWorkflowWithOptions(sizesSaga, workflow.RegisterOptions{Name: "Sizes"})
	w.RegisterActivityWithOptions(func(_ context.Context, n int) ([]byte, error) { return make([]byte, n), nil }, activity.RegisterOptions{Name: "Return"})
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()
	for _, n := range b.resources {
		for _, end := range []string{endCommits, endFails, endHandsOver} {
			row, failed := b.play(ctx, n, end)
			if failed != nil {
				return errors.Join(fmt.Errorf("a saga of %d resources that %s: %w", n, end, failed), write(b, asJSON))
			}
			b.Rows = append(b.Rows, row)
		}
	}
	return write(b, asJSON)
}

// sizesSaga is a workflow with a saga whose steps run one after the other, each on a hundred resources of its own.
func sizesSaga(ctx workflow.Context, in sizesInput) error {
	if workflow.GetInfo(ctx).ContinuedExecutionRunID != "" {
		return nil
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: sizesLimit})
	err := workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		for first := 0; first < in.Resources; first += sizesStep {
			var guard []lockcore.Resource
			for i := first; i < first+sizesStep; i++ {
				guard = append(guard, lockcore.Exclusive(fmt.Sprintf("%s/%d", in.ID, i)))
			}
			future := workflow.ExecuteActivity(workflows.Guard(ctx, guard...), "Return", in.Payload)
			if first == 0 && in.End == endFails {
				future = s.Step(workflows.Guard(ctx, guard...), "Return", "Return", in.Payload)
			}
			if err := future.Get(ctx, nil); err != nil {
				return err
			}
		}
		if err := s.Verify(ctx); err != nil {
			return err
		}
		switch in.End {
		case endFails:
			return temporal.NewApplicationError("it fails, as it should", endFails)
		case endHandsOver:
			return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "Sizes", in))
		}
		return nil
	})
	var failed *temporal.ApplicationError
	if errors.As(err, &failed) && failed.Type() == endFails {
		return nil
	}
	return err
}

// play runs one saga.
func (b *sizesBench) play(ctx context.Context, n int, end string) (row sizesRow, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, sizesLimit, fmt.Errorf("it did not end within %s", sizesLimit))
	defer cancel()
	in := sizesInput{ID: fmt.Sprintf("%d/%s", n, end[:3]), End: end, Resources: n, Payload: b.payload}
	row = sizesRow{Resources: n, End: end}
	began := time.Now()
	run, err := b.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: b.queue}, "Sizes", in)
	if err != nil {
		return row, err
	}
	first := run.GetRunID()
	if err := run.Get(ctx, nil); err != nil {
		return row, err
	}
	row.Seconds = time.Since(began).Seconds()
	for held := true; held; {
		held = false
		for _, err := range b.locker.Status(ctx, lockcore.Filter{Prefix: in.ID + "/"}) {
			if err != nil {
				return row, err
			}
			held = true
			break
		}
	}
	row.Free = time.Since(began).Seconds() - row.Seconds
	d, err := b.client.DescribeWorkflowExecution(ctx, run.GetID(), first)
	if err != nil {
		return row, err
	}
	info := d.GetWorkflowExecutionInfo()
	row.Events, row.History = info.GetHistoryLength(), float64(info.GetHistorySizeBytes())/1e6
	failed, err := failedtasks.List(ctx, b.client.WorkflowService(), client.DefaultNamespace, b.queue)
	if len(failed) > 0 {
		err = fmt.Errorf("a workflow task failed: %s", failed[0])
	}
	return row, err
}

func (b *sizesBench) print(w io.Writer) {
	fmt.Fprintln(w, "resources\tthe saga\ts\tfree after s\tevents\thistory MB\t")
	for _, r := range b.Rows {
		fmt.Fprintf(w, "%d\t%s\t%.1f\t%.1f\t%d\t%.1f\t\n", r.Resources, r.End, r.Seconds, r.Free, r.Events, r.History)
	}
}
