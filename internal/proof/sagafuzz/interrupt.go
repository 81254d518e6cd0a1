package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	commandpb "go.temporal.io/api/command/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const planFile = "plan.json"

// writePlan writes the plan for the worker processes, and for whoever reads the logs of a seed.
func writePlan(dir string, plan Plan) error {
	text, err := json.MarshalIndent(plan, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, planFile), text, 0o600)
}

func readPlan(dir string) (plan Plan, err error) {
	text, err := os.ReadFile(filepath.Join(dir, planFile)) //nolint:gosec // our own
	if err != nil {
		return plan, err
	}
	return plan, json.Unmarshal(text, &plan)
}

// interrupter is the gRPC interceptor of a worker process. It does what the plan's interrupts say before the completion of a
// workflow task is sent: a signal or a cancellation makes the server refuse a completion that closes the run, and the code decides
// again. A completion that is lost leaves the effects of its task without a record, and the task times out.
type interrupter struct {
	log   *Log
	dir   string
	plans map[string][]Interrupt // by workflow ID
	tc    client.Client

	mu   sync.Mutex
	sent map[string]completions
}

// completions counts those of a workflow that this process was about to send, and those of them that close a run.
type completions struct{ all, closing int }

func newInterrupter(plan Plan, dir, run string, log *Log) *interrupter {
	i := &interrupter{log: log, dir: dir, plans: map[string][]Interrupt{}, sent: map[string]completions{}}
	for n := range plan.Workflows {
		w := &plan.Workflows[n]
		i.plans[run+"_"+w.ID] = w.Interrupts
	}
	return i
}

var errLost = status.Error(codes.InvalidArgument, "the plan loses this completion")

func (i *interrupter) intercept(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	task, ok := req.(*workflowservice.RespondWorkflowTaskCompletedRequest)
	if !ok {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	_, id, _ := strings.Cut(task.GetResourceId(), ":")
	for n, in := range i.due(id, closes(task)) {
		if !i.first(id, n) {
			continue
		}
		i.arrive(ctx, id, n, in)
		if in.Lose {
			i.log.Write(&Record{What: Interrupted, Workflow: id, Type: "lose"})
			return errLost
		}
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// arrive sends what the interrupt says, and waits.
func (i *interrupter) arrive(ctx context.Context, id string, n int, in *Interrupt) {
	if in.Signal {
		sendSignal(ctx, i.tc, i.log, id, fmt.Sprintf("interrupt %d", n))
	}
	if in.Cancel {
		err := i.tc.CancelWorkflow(ctx, id, "")
		i.log.Write(&Record{What: Interrupted, Workflow: id, Type: "cancel", Error: text(err)})
	}
	pause(ctx, in.Wait)
}

// due counts a completion, and returns the interrupts that it meets, by their index in the plan.
func (i *interrupter) due(id string, closing bool) map[int]*Interrupt {
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.sent[id]
	if c.all++; closing {
		c.closing++
	}
	i.sent[id] = c
	due := map[int]*Interrupt{}
	for n := range i.plans[id] {
		in := &i.plans[id][n]
		if !in.Closes && in.Nth == c.all || in.Closes && closing && in.Nth == c.closing {
			due[n] = in
		}
	}
	return due
}

// first reports whether no process has done an interrupt before. A file that must not exist yet decides.
func (i *interrupter) first(id string, n int) bool {
	name := filepath.Join(i.dir, fmt.Sprintf("%s-interrupt-%d", id, n))
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // our own
	if errors.Is(err, fs.ErrExist) {
		return false
	}
	if err != nil {
		panic(fmt.Sprintf("interrupt %d of %s: %v", n, id, err))
	}
	_ = f.Close() // it is empty
	return true
}

// sendSignal sends a signal, and logs whether the server accepted it.
func sendSignal(ctx context.Context, tc client.Client, log *Log, workflow, id string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := tc.SignalWorkflow(ctx, workflow, "", stopSignal, id)
	log.Write(&Record{What: Signalled, Workflow: workflow, Other: id, Error: text(err)})
}

// closes reports whether the completion of a workflow task closes its run.
func closes(task *workflowservice.RespondWorkflowTaskCompletedRequest) bool {
	return slices.ContainsFunc(task.GetCommands(), func(c *commandpb.Command) bool {
		switch c.GetCommandType() {
		case enumspb.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION, enumspb.COMMAND_TYPE_FAIL_WORKFLOW_EXECUTION,
			enumspb.COMMAND_TYPE_CANCEL_WORKFLOW_EXECUTION, enumspb.COMMAND_TYPE_CONTINUE_AS_NEW_WORKFLOW_EXECUTION:
			return true
		default:
			return false
		}
	})
}
