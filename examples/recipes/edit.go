package recipes

import (
	"crypto/rand"
	"errors"
	"net/http"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// Edit locks a document until it gets the signal "save", or for a quarter of an hour. If another workflow has the lock, Edit fails at once, and so
// does its update "locked".
func Edit(ctx workflow.Context, document string) error {
	var busy error
	decided := false
	err := workflow.SetUpdateHandler(ctx, "locked", func(ctx workflow.Context) error {
		if err := workflow.Await(ctx, func() bool { return decided }); err != nil {
			return err
		}
		return busy
	})
	if err != nil {
		return err
	}
	hold, busy := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{lockcore.Exclusive("document/" + document)}, Try: true})
	decided = true
	if busy != nil {
		_ = workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }) // fails if the workflow is cancelled, which ends it, too
		return busy
	}
	workflow.GetSignalChannel(ctx, "save").ReceiveWithTimeout(ctx, 15*time.Minute, nil)
	return hold.Release(ctx)
}

// Server serves HTTP.
type Server struct {
	Client    client.Client
	TaskQueue string
}

// Open answers 200 with the ID of the workflow that has locked the document for the caller, or 409 if another workflow has it.
func (s *Server) Open(w http.ResponseWriter, r *http.Request) {
	start := s.Client.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
		ID: "edit-" + rand.Text(), TaskQueue: s.TaskQueue, WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
	}, Edit, r.PathValue("document"))
	locked, err := s.Client.UpdateWithStartWorkflow(r.Context(), client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: start,
		UpdateOptions:          client.UpdateWorkflowOptions{UpdateName: "locked", WaitForStage: client.WorkflowUpdateStageCompleted},
	})
	if err == nil {
		err = locked.Get(r.Context(), nil)
	}
	switch {
	case errors.Is(workflows.LockError(err), lockcore.ErrBusy):
		http.Error(w, "the document is being edited", http.StatusConflict)
	case err != nil:
		http.Error(w, "try again later", http.StatusServiceUnavailable)
	default:
		_, _ = w.Write([]byte(locked.WorkflowID())) // the caller may have gone
	}
}
