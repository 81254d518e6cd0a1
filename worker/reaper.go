package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// DefaultReaperInterval is how often the orphan reaper runs where nothing else is asked for.
const DefaultReaperInterval = time.Minute

const (
	minInterval = 5 * time.Second
	maxInterval = 24 * time.Hour
	// catchUp is how late a reap may still start. The next one does all that one left out would have done.
	catchUp = 10 * time.Second
	maxID   = 255
	// reapTimeout ends a scheduled reap that is stuck, which would have all others skipped: longer than the ten minutes that an
	// attempt of its activity may take, and the attempts before that a dead worker cost.
	reapTimeout = 15 * time.Minute
	// leastSilence is the least ReaperOptions.MissingAfter: a run that has just begun, or is just being replicated, may be
	// unknown to the server for a moment.
	leastSilence = time.Minute
)

// ReaperOptions is what the orphan reaper is scheduled with.
type ReaperOptions struct {
	// TaskQueue is where the reaper runs: that of workers that run workflows and have Lockstep installed. They say in
	// which namespace it looks at locks, and in which collection. Required: 1 to 255 bytes.
	TaskQueue string
	// Interval is how often it runs: 5 s to 24 h, in whole seconds. A lock outlives its workflow for no longer than
	// that. Defaults to DefaultReaperInterval.
	Interval time.Duration
	// ID is the schedule's. One reaper for a collection and a namespace is enough; several do no harm. 1 to 255 bytes.
	// Defaults to "lockstep-reaper-" and the task queue.
	ID string
	// MissingAfter is for how long a lock must have given no sign of life before it is released for a workflow run that
	// the server does not know, and that the worker's reap before did not see open: 1 min or more. A lock between two steps gives signs
	// of life only where its HoldTTL has an end. Defaults to an hour.
	MissingAfter time.Duration
}

// checked fills in defaults and refuses what cannot be.
func (o ReaperOptions) checked(c client.Client) (ReaperOptions, error) {
	invalid := func(field, value, bound string) error {
		return &lockcore.InvalidError{Field: field, Value: value, Bound: bound}
	}
	if c == nil {
		return o, invalid("client", "nil", "a Temporal client")
	}
	if o.TaskQueue == "" || len(o.TaskQueue) > maxID {
		return o, invalid("worker.ReaperOptions.TaskQueue", fmt.Sprintf("%q", protocol.Cut(o.TaskQueue, 64)), fmt.Sprintf("1 to %d bytes", maxID))
	}
	if o.Interval == 0 {
		o.Interval = DefaultReaperInterval
	}
	if o.Interval < minInterval || o.Interval > maxInterval || o.Interval%time.Second != 0 {
		return o, invalid("worker.ReaperOptions.Interval", o.Interval.String(), fmt.Sprintf("%v to %v, in whole seconds", minInterval, maxInterval))
	}
	if o.MissingAfter != 0 && o.MissingAfter < leastSilence {
		return o, invalid("worker.ReaperOptions.MissingAfter", o.MissingAfter.String(), fmt.Sprintf("%v or more", leastSilence))
	}
	if o.ID == "" {
		o.ID = protocol.Cut("lockstep-reaper-"+o.TaskQueue, maxID)
	}
	if len(o.ID) > maxID {
		return o, invalid("worker.ReaperOptions.ID", fmt.Sprintf("%q", protocol.Cut(o.ID, 64)), fmt.Sprintf("1 to %d bytes", maxID))
	}
	return o, nil
}

func (o ReaperOptions) params() activities.ReapParams {
	return activities.ReapParams{MissingAfter: activities.Duration(o.MissingAfter)}
}

func (o ReaperOptions) spec() *client.ScheduleSpec {
	return &client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: o.Interval}}}
}

func (o ReaperOptions) action() *client.ScheduleWorkflowAction {
	return &client.ScheduleWorkflowAction{
		ID: o.ID, Workflow: workflows.ReapName, TaskQueue: o.TaskQueue, Args: []any{o.params()}, WorkflowRunTimeout: reapTimeout,
	}
}

// CreateReaper makes the Temporal Schedule that starts the orphan reaper, in the client's namespace. It may be called by
// every worker when it starts: where the schedule exists it is given these options, and stays paused if it is.
//
//	err := worker.CreateReaper(ctx, c, worker.ReaperOptions{TaskQueue: "payments"})
//
// The reaper looks at the locks of the worker's namespace, and releases what closed workflow runs have left;
// see [activities.Activities.Reap]. A reap that is still running when the next is due lets it be skipped, and times out
// after 15 minutes: so one that no worker takes does not end the reaping.
//
// The error is a *lockcore.InvalidError that names the option, or Temporal's.
func CreateReaper(ctx context.Context, c client.Client, o ReaperOptions) error {
	o, err := o.checked(c)
	if err != nil {
		return err
	}
	_, err = c.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID: o.ID, Spec: *o.spec(), Action: o.action(), Overlap: enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, CatchupWindow: catchUp,
		Note: "releases the locks of closed workflows",
	})
	if errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		err = o.update(ctx, c)
	}
	if err != nil {
		return fmt.Errorf("lockstep: create the schedule %q of the orphan reaper: %w", o.ID, err)
	}
	return nil
}

// update gives the schedule that exists these options, and leaves the rest of it, such as whether it is paused.
func (o ReaperOptions) update(ctx context.Context, c client.Client) error {
	return c.ScheduleClient().GetHandle(ctx, o.ID).Update(ctx, client.ScheduleUpdateOptions{
		DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
			s := in.Description.Schedule
			if action, ok := s.Action.(*client.ScheduleWorkflowAction); ok && action.Workflow != workflows.ReapName {
				return nil, &lockcore.InvalidError{
					Field: "worker.ReaperOptions.ID", Value: fmt.Sprintf("%q", o.ID), Bound: "a schedule of the orphan reaper, or none yet",
				}
			}
			s.Spec, s.Action = o.spec(), o.action()
			s.Policy = &client.SchedulePolicies{Overlap: enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, CatchupWindow: catchUp}
			return &client.ScheduleUpdate{Schedule: &s}, nil
		},
	})
}

// DeleteReaper removes the schedule that [CreateReaper] makes with the same options; where there is none it does nothing. A
// reap that is running goes on to its end. The error is a *lockcore.InvalidError that names the option, or Temporal's.
func DeleteReaper(ctx context.Context, c client.Client, o ReaperOptions) error {
	o, err := o.checked(c)
	if err != nil {
		return err
	}
	err = c.ScheduleClient().GetHandle(ctx, o.ID).Delete(ctx)
	var gone *serviceerror.NotFound
	if err != nil && !errors.As(err, &gone) {
		return fmt.Errorf("lockstep: delete the schedule %q of the orphan reaper: %w", o.ID, err)
	}
	return nil
}

// RunReaper reaps once, beside the schedule and whether there is one or not, and returns what was counted. It waits until
// a worker of the task queue has done it, or ctx ends; then the reap is cancelled. The error is a *lockcore.InvalidError that
// names the option, ctx's, or Temporal's.
func RunReaper(ctx context.Context, c client.Client, o ReaperOptions) (activities.ReapResult, error) {
	var result activities.ReapResult
	o, err := o.checked(c)
	if err != nil {
		return result, err
	}
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: o.ID + "-run", TaskQueue: o.TaskQueue, WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, workflows.ReapName, o.params())
	if err == nil {
		err = run.Get(ctx, &result)
	}
	if err == nil {
		return result, nil
	}
	if run != nil && ctx.Err() != nil {
		cancelCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = c.CancelWorkflow(cancelCtx, run.GetID(), run.GetRunID()) // it has ended, or is as good as harmless
	}
	return result, fmt.Errorf("lockstep: reap on task queue %q: %w", o.TaskQueue, err)
}

// WorkflowRegistry is what [RegisterReaper] registers with: a worker, or a replayer.
type WorkflowRegistry interface {
	RegisterWorkflowWithOptions(w any, options workflow.RegisterOptions)
}

// RegisterReaper registers the orphan reaper's workflow alone; it may be called again. [Register] and the plugin do so by
// themselves: it is for replayers, and for workers that run the reaper's workflow and leave its activity to others. It
// panics, as the SDK does, on a worker that runs no workflows.
func RegisterReaper(registry WorkflowRegistry) {
	registry.RegisterWorkflowWithOptions(workflows.Reap, workflow.RegisterOptions{
		Name: workflows.ReapName, DisableAlreadyRegisteredCheck: true,
		// It is one activity: any version of the worker goes on with it.
		VersioningBehavior: workflow.VersioningBehaviorAutoUpgrade,
	})
}

// tryRegisterReaper does so where workflows run. A worker does not tell whether they do, but by the SDK's panic.
func tryRegisterReaper(registry WorkflowRegistry) {
	defer func() { _ = recover() }()
	RegisterReaper(registry)
}
