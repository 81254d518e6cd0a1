package main

import (
	"context"
	"errors"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
)

// histories logs which workflow tasks of each run the server has recorded. What code wrote in any other task never happened: the
// completion was refused, or lost, and the code decided again.
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

// recorded returns the workflow tasks of a run that have completed, by the IDs of the events that started them.
func (p *play) recorded(ctx context.Context, workflow, run string) (tasks []int64, err error) {
	events := p.tc.GetWorkflowHistory(ctx, workflow, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return nil, err
		}
		if event.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			tasks = append(tasks, event.GetWorkflowTaskCompletedEventAttributes().GetStartedEventId())
		}
	}
	return tasks, nil
}
