package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	commandpb "go.temporal.io/api/command/v1"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const planFile = "plan.json"

// writePlan writes the plan for the worker processes, and next to the logs.
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

// interrupter is the gRPC interceptor of a worker process. It applies the plan's interrupts before the completion of a workflow
// task is sent. After a signal or a cancellation the server refuses a completion that closes the run, and the code decides again.
// After a lost completion the effects of the task are not recorded, and the task times out.
type interrupter struct {
	log   *Log
	dir   string
	plans map[string][]Interrupt // by workflow ID
	tc    client.Client

	mu   sync.Mutex
	sent map[string]completions
}

// completions counts the completions of a workflow's tasks that this process was about to send. closing counts those of them
// that close a run.
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

// arrive sends the signal and the cancellation of an interrupt, and waits.
func (i *interrupter) arrive(ctx context.Context, id string, n int, in *Interrupt) {
	if in.Signal {
		sendSignal(ctx, i.tc, i.log, id, fmt.Sprintf("interrupt %d", n))
	}
	if in.Cancel {
		err := i.tc.CancelWorkflow(ctx, id, "")
		i.log.Write(&Record{What: Interrupted, Workflow: id, Type: "cancel", Error: text(err)})
	}
	harness.Pause(ctx, in.Wait)
}

// due counts a completion, and returns its interrupts by their index in the plan.
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

// first reports whether no process has applied an interrupt before. It creates a file that must not exist yet.
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

// meddle applies an operator's action to a workflow. Closed workflows can be reset and restarted.
func (p *play) meddle(ctx context.Context, w *Workflow, f WorkflowFault) (err error) {
	record := &Record{What: Meddled, Workflow: p.id(w), Type: f.Kind, At: time.Now().UnixNano()}
	switch f.Kind {
	case "cancel":
		err = p.tc.CancelWorkflow(ctx, p.id(w), "")
	case "terminate":
		err = p.tc.TerminateWorkflow(ctx, p.id(w), "", "as planned")
	case "restart":
		err = p.start(ctx, w)
	case "reset":
		record.Run, record.Other, err = p.reset(ctx, p.id(w), f.Pick)
	case "activity":
		err = p.resetActivity(ctx, p.id(w), f.Pick)
	case "break":
		err = p.breakLocks(ctx, p.id(w))
	}
	var gone *serviceerror.NotFound
	var early *serviceerror.FailedPrecondition
	var invalid *serviceerror.InvalidArgument
	if errors.As(err, &gone) || errors.As(err, &early) || errors.As(err, &invalid) {
		record.Error, err = err.Error(), nil // it has ended, or has no such activity or workflow task
	}
	p.log.Write(record)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil // the server is slow; no check needs to know whether it was done
	}
	return err
}

// reset resets the workflow to one of its workflow tasks.
func (p *play) reset(ctx context.Context, id string, pick uint64) (old, run string, err error) {
	var tasks []int64
	events := p.tc.GetWorkflowHistory(ctx, id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return "", "", err
		}
		if event.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			tasks = append(tasks, event.GetEventId())
		}
	}
	d, err := p.tc.DescribeWorkflowExecution(ctx, id, "")
	if err != nil || len(tasks) == 0 {
		return "", "", err
	}
	old = d.GetWorkflowExecutionInfo().GetExecution().GetRunId()
	answer, err := p.tc.ResetWorkflowExecution(ctx, &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: namespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: old},
		Reason: "as planned", RequestId: fmt.Sprintf("%s %d", old, pick), WorkflowTaskFinishEventId: tasks[pick%uint64(len(tasks))],
	})
	return old, answer.GetRunId(), err
}

// breakLocks releases the holds of a workflow by force. Running parts drain.
func (p *play) breakLocks(ctx context.Context, id string) error {
	for s, err := range p.locker.Status(ctx, lockcore.Filter{States: []lockcore.State{lockcore.StateHolding}}) {
		if err != nil {
			return err
		}
		if !strings.HasSuffix(s.LockID, "/"+id) {
			continue
		}
		err = p.locker.Steps().Release(ctx, lockcore.Release{
			LockID: s.LockID, Resources: []string{s.Resource}, FirstFence: s.FirstFence, Force: true, Reason: "as planned",
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// resetActivity resets a pending step, so that its attempts count from 1 again.
func (p *play) resetActivity(ctx context.Context, id string, pick uint64) error {
	d, err := p.tc.DescribeWorkflowExecution(ctx, id, "")
	if err != nil || len(d.GetPendingActivities()) == 0 {
		return err
	}
	pending := d.GetPendingActivities()[pick%uint64(len(d.GetPendingActivities()))]
	_, err = p.tc.WorkflowService().ResetActivity(ctx, &workflowservice.ResetActivityRequest{
		Namespace: namespace, Execution: d.GetWorkflowExecutionInfo().GetExecution(),
		Activity: &workflowservice.ResetActivityRequest_Id{Id: pending.GetActivityId()},
	})
	return err
}

// SlowTime is a time during which the database is slow for worker processes, and in which all open workflows receive a signal.
type SlowTime struct {
	At, For time.Duration
	// Delay is added to each command. Process is the slot of the worker; -1 for all of them.
	Delay   time.Duration
	Process int
	// Requests delays the requests. Otherwise the answers are delayed.
	Requests bool
}

// slowTimes draws the times at which the database is slow.
func (p *planner) slowTimes() (all []SlowTime) {
	for at := p.span(500, 2000); len(all) < 3; at += p.span(4000, 8000) {
		t := SlowTime{At: at, For: p.span(500, 3000), Delay: p.span(2000, 10000), Process: -1, Requests: p.one(2)}
		if p.one(2) {
			t.Process = p.IntN(processes)
		}
		all = append(all, t)
	}
	return all
}

// beganFile contains the time at which the run began, from which its slow times count. It appears when all processes have started.
const beganFile = "began"

// beginSlowness makes the processes begin to apply the slow times.
func (p *play) beginSlowness(began time.Time) error {
	name := filepath.Join(p.dir, beganFile)
	if err := os.WriteFile(name+".new", []byte(strconv.FormatInt(began.UnixNano(), 10)), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// slow logs the slow times, and sends signals to all open workflows during each of them.
func (p *play) slow(ctx context.Context, began time.Time) {
	for i, t := range p.Slow {
		if !harness.Pause(ctx, time.Until(began.Add(t.At))) {
			return
		}
		process := ""
		if t.Process >= 0 {
			process = fmt.Sprintf("p%d", t.Process)
		}
		p.log.Write(&Record{What: Slowed, Type: process, Other: t.For.String(), Error: t.Delay.String()})
		p.mu.Lock()
		open := slices.Sorted(maps.Keys(p.open))
		p.mu.Unlock()
		for _, id := range open {
			sendSignal(ctx, p.tc, p.log, id, fmt.Sprintf("slow time %d", i))
			if !harness.Pause(ctx, t.For/time.Duration(len(open))) {
				return
			}
		}
	}
}

// slowness delays the commands of one worker process.
type slowness struct {
	times []SlowTime
	file  string
	began atomic.Int64 // Unix time in ns; 0 if the process does not know it
}

func newSlowness(plan Plan, dir, process string) *slowness {
	s := &slowness{file: filepath.Join(dir, beganFile)}
	for _, t := range plan.Slow {
		if t.Process < 0 || strings.HasPrefix(process, fmt.Sprintf("p%d-", t.Process)) {
			s.times = append(s.times, t)
		}
	}
	return s
}

// monitor returns a command monitor that delays requests before they are sent, and answers before they are returned. It is nil if the
// database is never slow for the process.
func (s *slowness) monitor() *event.CommandMonitor {
	if len(s.times) == 0 {
		return nil
	}
	hold := func(ctx context.Context, command string, request bool) {
		measure.Delays{All: s.delay(time.Now(), request)}.Hold(ctx, command)
	}
	return &event.CommandMonitor{
		Started:   func(ctx context.Context, e *event.CommandStartedEvent) { hold(ctx, e.CommandName, true) },
		Succeeded: func(ctx context.Context, e *event.CommandSucceededEvent) { hold(ctx, e.CommandName, false) },
		Failed:    func(ctx context.Context, e *event.CommandFailedEvent) { hold(ctx, e.CommandName, false) },
	}
}

// delay returns the delay of a request, or of an answer, at a time.
func (s *slowness) delay(now time.Time, request bool) time.Duration {
	if s.began.Load() == 0 {
		text, err := os.ReadFile(s.file)
		if err != nil {
			return 0 // the run has not begun
		}
		began, _ := strconv.ParseInt(string(text), 10, 64) // beginSlowness has written it
		s.began.Store(began)
	}
	since := time.Duration(now.UnixNano() - s.began.Load())
	for _, t := range s.times {
		if t.Requests == request && t.At <= since && since < t.At+t.For {
			return t.Delay
		}
	}
	return 0
}
