package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/workflows"
)

const (
	updateName = "do"
	// updateWithin bounds the time for which the client of an update waits.
	updateWithin = 20 * time.Second
)

// Update is an update that a workflow receives while it runs. Its handler runs the node. With Refuse it is refused.
type Update struct {
	After  time.Duration
	Body   Node
	Refuse bool `json:",omitempty"`
}

// handleUpdates sets the handler of updates.
func (w *walk) handleUpdates(ctx workflow.Context) error {
	do := func(ctx workflow.Context, u Update) error {
		handler := &walk{player: w.player, in: Input{Owner: w.in.Owner}}
		return handler.do(workflows.WithOwner(ctx, w.in.Owner), nil, "", &u.Body)
	}
	return workflow.SetUpdateHandlerWithOptions(ctx, updateName, do, workflow.UpdateHandlerOptions{
		Validator: func(_ workflow.Context, u Update) error {
			if u.Refuse {
				return temporal.NewNonRetryableApplicationError("refused as planned", "planned", nil)
			}
			return nil
		},
		UnfinishedPolicy: workflow.HandlerUnfinishedPolicyAbandon, // without Awaits the end of the run ends the handlers
	})
}

// awaitUpdates waits until no handler runs, if the plan wants that. A cancellation does not end the wait.
func (w *walk) awaitUpdates(ctx workflow.Context) {
	if w.in.Awaits {
		ctx, _ = workflow.NewDisconnectedContext(ctx)
		_ = workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }) // it is never cancelled
	}
}

// update sends the updates of a workflow, and logs their outcomes. wait returns when all have ended.
func (p *play) update(ctx context.Context, w *Workflow) (wait func()) {
	var wg sync.WaitGroup
	for i := range w.Updates {
		wg.Go(func() {
			u := &w.Updates[i]
			if !harness.Pause(ctx, u.After) {
				return
			}
			ctx, cancel := context.WithTimeout(ctx, updateWithin)
			defer cancel()
			handle, err := p.tc.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
				WorkflowID: p.id(w), UpdateID: fmt.Sprintf("u%d", i), UpdateName: updateName, Args: []any{*u},
				WaitForStage: client.WorkflowUpdateStageCompleted,
			})
			if err == nil {
				err = handle.Get(ctx, nil)
			}
			p.log.Write(&Record{What: Updated, Workflow: p.id(w), Other: itoa(i), Error: text(err), Type: kindOf(err)})
		})
	}
	return wg.Wait
}
