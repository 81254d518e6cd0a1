package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"github.com/temporal-lockstep/lockstep/worker"
)

// histories logs the workflow tasks of each run that the server has recorded. Records of other tasks do not count: their
// completion was refused or lost, and the code decided again.
func (p *play) histories(ctx context.Context) error {
	records, err := ReadLogs(p.dir)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for i := range records {
		r := &records[i]
		if r.Task == 0 || known[r.Run] {
			continue
		}
		known[r.Run] = true
		tasks, err := p.recorded(ctx, r.Workflow, r.Run)
		var gone *serviceerror.NotFound
		switch {
		case errors.As(err, &gone):
			continue
		case err != nil:
			return err
		}
		p.log.Write(&Record{What: Recorded, Workflow: r.Workflow, Run: r.Run, Tasks: tasks})
	}
	return nil
}

// recorded returns the workflow tasks of a run that have completed, by the IDs of the events that started them. It also replays the run, unless it was terminated.
func (p *play) recorded(ctx context.Context, workflowID, run string) (tasks []int64, err error) {
	history := &historypb.History{}
	events := p.tc.GetWorkflowHistory(ctx, workflowID, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return nil, err
		}
		history.Events = append(history.Events, event)
		if event.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			tasks = append(tasks, event.GetWorkflowTaskCompletedEventAttributes().GetStartedEventId())
		}
	}
	if !isTerminated(history) {
		p.replay(history, workflowID, run)
	}
	return tasks, nil
}

// isTerminated reports whether a run was terminated. The SDK's replayer would also run the workflow task that such a run had before it, and
// compare its commands, which no server has recorded.
func isTerminated(history *historypb.History) bool {
	events := history.GetEvents()
	return len(events) > 0 && events[len(events)-1].GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED
}

// replay replays a history with the data converter of the workers, which must match, and in plans with a codec without it.
func (p *play) replay(history *historypb.History, workflowID, run string) {
	p.replayed++
	var own converter.DataConverter
	if p.Codec {
		own = newConverter(nil)
		err := replay(proto.CloneOf(history), workflowID, run, nil)
		if err != nil {
			p.unread++
		}
		if !mayFailUnread(err) {
			p.violation("replay", fmt.Sprintf("the history of run %s of %s fails without the codec: %v", run, workflowID, err), workflowID)
		}
	}
	if err := replay(history, workflowID, run, own); err != nil {
		p.violation("replay", fmt.Sprintf("the history of run %s of %s does not replay: %v", run, workflowID, err), workflowID)
	}
}

// mayFailUnread reports whether a replay without the codec may have this outcome: it matches, or the workflow task fails because of
// Lockstep's panic, which names what it cannot read. Workflow code that decides without what it cannot read issues other commands, which is
// the error TMPRL1100.
func mayFailUnread(err error) bool {
	return err == nil || strings.Contains(err.Error(), "cannot be read") && !strings.Contains(err.Error(), "TMPRL1100")
}

// replay replays a history as a worker would whose cache lacks the run.
func replay(history *historypb.History, workflowID, run string, dc converter.DataConverter) error {
	silent := &player{}
	var failures converter.FailureConverter
	if dc != nil {
		failures = failuresWith(dc)
	}
	replayer, err := sdkworker.NewWorkflowReplayerWithOptions(sdkworker.WorkflowReplayerOptions{
		Plugins: []sdkworker.Plugin{worker.NewReplayPlugin()}, Interceptors: []interceptor.WorkerInterceptor{silent}, DisableDeadlockDetection: true,
		DataConverter: dc, FailureConverter: failures,
	})
	if err != nil {
		return err
	}
	replayer.RegisterWorkflowWithOptions(silent.Play, workflow.RegisterOptions{Name: playName})
	return replayer.ReplayWorkflowHistoryWithOptions(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)), history,
		sdkworker.ReplayWorkflowHistoryOptions{OriginalExecution: workflow.Execution{ID: workflowID, RunID: run}})
}
