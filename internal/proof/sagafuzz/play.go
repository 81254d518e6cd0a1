package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
	"github.com/temporal-lockstep/lockstep/internal/tools/failedtasks"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

const (
	// atOnce is the number of workflows that run at the same time.
	atOnce = 12
	// quiet is the time without a step that begins or a scope that ends after which the run is stuck: twice the
	// time after which a lost wake-up is repaired. No run takes longer than longest per workflow.
	quiet   = 40 * time.Second
	longest = 20 * time.Second
	// lookAtQueues is the interval at which waiters are logged.
	lookAtQueues = 200 * time.Millisecond
	// freeWithin bounds the time after the last workflow's end in which locks may exist: the HoldTTL of a terminated workflow.
	freeWithin = holdTTL + 10*time.Second
	namespace  = "default"
)

// Outcome is the result of a seed.
type Outcome struct {
	Plan    Plan
	Records []Record
	// Seen contains the violations that were found during the run. Check finds the others.
	Seen []Violation
}

// play is a run of a plan.
type play struct {
	Plan
	run  string // names the task queue, the database and, as a prefix, the workflows
	dir  string
	tc   client.Client
	log  *Log
	pool *pool

	locker *lockcore.Locker
	// giveUp ends the run if a workflow does not end.
	giveUp context.CancelCauseFunc

	mu   sync.Mutex
	seen []Violation
	open map[string]bool // IDs of workflows
}

var errGaveUp = errors.New("a workflow has not ended")

// Play plays a plan. The processes of the previous build run the program previous. Its errors concern servers, files and processes, not
// violations.
func Play(ctx context.Context, plan Plan, dir, previous string) (_ Outcome, err error) {
	p := &play{Plan: plan, dir: dir, open: map[string]bool{}, run: fmt.Sprintf("sagafuzz_%d_%d", plan.Seed, time.Now().UnixMilli())}
	outcome := Outcome{Plan: plan}
	if p.log, err = OpenLog(dir, "fuzzer"); err != nil {
		return outcome, err
	}
	defer func() { _ = p.log.Close() }()             // each write was checked
	output, err := os.Create(dir + "/fuzzer.output") //nolint:gosec // our own
	if err != nil {
		return outcome, err
	}
	defer func() { _ = output.Close() }() // nothing of worth
	if p.tc, err = dial(ctx, output); err != nil {
		return outcome, err
	}
	defer p.tc.Close()
	var disconnect func()
	if p.locker, disconnect, err = newLocker(ctx, p.run); err != nil {
		return outcome, err
	}
	defer disconnect()
	defer func() { err = errors.Join(err, dropDatabase(ctx, p.run)) }()
	p.pool = &pool{dir: dir, run: p.run, log: p.log, previous: previous, ofPrevious: plan.Previous}
	if err := p.pool.prepare(ctx); err != nil {
		return outcome, err
	}
	defer p.pool.stop()
	if err := writePlan(dir, plan); err != nil {
		return outcome, err
	}
	if err := p.processes(); err != nil {
		return outcome, err
	}
	defer p.terminate(ctx)
	if err := p.everything(ctx); err != nil {
		return outcome, err
	}
	if err := p.histories(ctx); err != nil {
		return outcome, err
	}
	failed, err := failedtasks.List(ctx, p.tc.WorkflowService(), namespace, p.run)
	if err != nil {
		return outcome, err
	}
	for _, text := range failed {
		p.violation("tasks", "a workflow task has failed: "+text)
	}
	p.pool.stop()
	outcome.Seen = p.seen
	outcome.Records, err = ReadLogs(dir)
	return outcome, err
}

func dropDatabase(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	mc, err := connect.Mongo(ctx, os.Getenv("LOCKSTEP_MONGODB_URI"), "lockstep sagafuzz")
	if err != nil {
		return err
	}
	return errors.Join(mc.Database(name).Drop(ctx), mc.Disconnect(ctx))
}

func (p *play) processes() error {
	var wg sync.WaitGroup
	var failed [slots]error
	for slot := range slots {
		wg.Go(func() { failed[slot] = p.pool.start(slot) })
	}
	wg.Wait()
	return errors.Join(failed[:]...)
}

// everything plays the workflows and the faults of processes, until all have ended and no lock is left.
func (p *play) everything(ctx context.Context) error {
	running, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	p.giveUp = giveUp
	errs := make([]error, len(p.Workflows)+1)
	var wg sync.WaitGroup
	wg.Go(func() { errs[len(p.Workflows)] = p.pool.play(running, p.Faults, time.Now()) })
	watched := make(chan error, 1)
	go func() { watched <- p.watch(running) }()
	go p.look(running)
	room := make(chan struct{}, atOnce)
	for i := range p.Workflows {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			if running.Err() == nil {
				errs[i] = p.workflow(running, &p.Workflows[i])
			}
		})
	}
	wg.Wait()
	if errors.Is(context.Cause(running), errGaveUp) {
		return <-watched
	}
	giveUp(nil)
	if err := errors.Join(errors.Join(errs...), <-watched, context.Cause(ctx)); err != nil {
		return err
	}
	if err := p.pool.quit(processes); err != nil {
		return err
	}
	return p.free(ctx)
}

// watch ends the run if there is no progress.
func (p *play) watch(ctx context.Context) error {
	began := time.Now()
	for pause(ctx, 2*time.Second) {
		records, err := ReadLogs(p.dir)
		if err != nil {
			return err
		}
		last := began
		for i := range records {
			if r := &records[i]; r.What != Enter && r.What != Exit && r.What != Holds {
				last = time.Unix(0, r.At)
			}
		}
		if time.Since(last) < quiet && time.Since(began) < longest*time.Duration(len(p.Workflows)) {
			continue
		}
		left, err := p.left(ctx)
		p.mu.Lock()
		open := slices.Sorted(maps.Keys(p.open))
		p.mu.Unlock()
		p.violation("liveness", fmt.Sprintf("%v have not ended in %v, and for %v nothing goes on%s", open,
			time.Since(began).Round(time.Second), time.Since(last).Round(time.Second), left), open...)
		p.giveUp(errGaveUp)
		return err
	}
	return nil
}

// look logs the steps that have waiters and claims, and the holds on resources that Locks may leave out.
func (p *play) look(ctx context.Context) {
	for pause(ctx, lookAtQueues) {
		began := time.Now().UnixNano()
		for s, err := range p.locker.Status(ctx, lockcore.Filter{Contended: true, States: []lockcore.State{lockcore.StateWaiting, lockcore.StateClaimed}}) {
			if _, id, isStep := strings.Cut(s.LockID, "/"); err == nil && isStep && strings.HasSuffix(s.Part, "/"+stepName) {
				p.log.Write(&Record{What: Seen, Workflow: id, Run: s.Run, Scope: s.Part, Trusted: began})
			}
		}
		for s, err := range p.locker.Status(ctx, lockcore.Filter{Prefix: skipped, States: []lockcore.State{lockcore.StateHolding}}) {
			if _, id, ofWorkflow := strings.Cut(s.LockID, "/"); err == nil && ofWorkflow {
				p.log.Write(&Record{What: Holds, Workflow: id, Run: s.Run, Other: s.Resource, Trusted: began})
			}
		}
	}
}

// terminate ends the workflows that are still open.
func (p *play) terminate(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for i := range p.Workflows {
		if p.open[p.id(&p.Workflows[i])] {
			_ = p.tc.TerminateWorkflow(ctx, p.id(&p.Workflows[i]), "", "the run is over") // it may have ended by itself
		}
	}
}

func (p *play) id(w *Workflow) string { return p.run + "_" + w.ID }

// workflow starts a workflow, applies its faults, and waits until it has ended.
func (p *play) workflow(ctx context.Context, w *Workflow) error {
	p.setOpen(w, true)
	err := p.start(ctx, w)
	for try := 1; try < 4 && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded); try++ {
		err = p.start(ctx, w) // the server is slow
	}
	if err != nil {
		return err
	}
	for i, f := range w.Faults {
		if !pause(ctx, f.After) {
			return context.Cause(ctx)
		}
		if f.Kind == "signal" {
			sendSignal(ctx, p.tc, p.log, p.id(w), fmt.Sprintf("fault %d", i))
			continue
		}
		if err := p.meddle(ctx, w, f); err != nil {
			return fmt.Errorf("%s %s: %w", f.Kind, w.ID, err)
		}
	}
	return p.end(ctx, w)
}

func (p *play) setOpen(w *Workflow, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[p.id(w)] = true; !open {
		delete(p.open, p.id(w))
	}
}

func (p *play) start(ctx context.Context, w *Workflow) error {
	_, err := p.tc.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: p.id(w), TaskQueue: p.run, WorkflowTaskTimeout: 2 * time.Second,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_TERMINATE_EXISTING,
	}, playName, w.Input)
	return err
}

// end waits until all runs of the workflow have ended, and checks the length of its history.
func (p *play) end(ctx context.Context, w *Workflow) error {
	ended := p.tc.GetWorkflow(ctx, p.id(w), "").Get(ctx, nil)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d, err := p.tc.DescribeWorkflowExecution(ctx, p.id(w), "")
	if err != nil {
		return err
	}
	info := d.GetWorkflowExecutionInfo()
	if info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return p.end(ctx, w)
	}
	p.log.Write(&Record{
		What: Closed, Workflow: p.id(w), Run: info.GetExecution().GetRunId(), Type: kindOf(ended), Error: info.GetStatus().String(),
	})
	p.setOpen(w, false)
	most := eventBound(&w.Input.Body) + int64(10*(len(w.Interrupts)+len(w.Faults)))
	if info.GetHistoryLength() > most {
		p.violation("history", fmt.Sprintf("%s: %d events, more than %d", p.id(w), info.GetHistoryLength(), most), p.id(w))
	}
	return nil
}

// eventBound bounds the history of one run of a workflow. A step takes three events and three of its workflow task, and the same
// again for each resource that it waits for, for its compensation, and for each retry of its saga.
func eventBound(n *Node) int64 {
	most := int64(40)
	if n.More != nil {
		most += eventBound(n.More)
	}
	for i := range n.Children {
		most += eventBound(&n.Children[i])
	}
	return most * int64(1+max(0, n.Retries))
}

func (p *play) violation(check, text string, involved ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, Violation{Check: check, Text: text, Involved: involved, At: time.Now().UnixNano()})
}

// left lists the locks and waiters, one line each. It is empty if there are none.
func (p *play) left(ctx context.Context) (text string, err error) {
	for status, err := range p.locker.Status(ctx, lockcore.Filter{}) {
		if err != nil {
			return "", err
		}
		if status.ExpiresIn <= 0 || strings.HasPrefix(status.LockID, "%janitor/") {
			continue // expired, or the lock of a running janitor
		}
		text += "\n  " + status.String()
	}
	return text, nil
}

// free waits until there are no locks and no waiters.
func (p *play) free(ctx context.Context) error {
	until := time.Now().Add(freeWithin)
	for {
		left, err := p.left(ctx)
		if err != nil || left == "" {
			return err
		}
		if time.Now().After(until) {
			p.violation("left", fmt.Sprintf("after %v there are still%s", freeWithin, left))
			return nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

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

// recorded returns the workflow tasks of a run that have completed, by the IDs of the events that started them. It also replays the run.
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
	if err := replay(history, workflowID, run); err != nil {
		p.violation("replay", fmt.Sprintf("the history of run %s of %s does not replay: %v", run, workflowID, err))
	}
	return tasks, nil
}

// replay replays a history as a worker would whose cache lacks the run.
func replay(history *historypb.History, workflowID, run string) error {
	silent := &player{}
	replayer, err := sdkworker.NewWorkflowReplayerWithOptions(sdkworker.WorkflowReplayerOptions{
		Plugins: []sdkworker.Plugin{worker.NewReplayPlugin()}, Interceptors: []interceptor.WorkerInterceptor{silent}, DisableDeadlockDetection: true,
	})
	if err != nil {
		return err
	}
	replayer.RegisterWorkflowWithOptions(silent.Play, workflow.RegisterOptions{Name: playName})
	return replayer.ReplayWorkflowHistoryWithOptions(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)), history,
		sdkworker.ReplayWorkflowHistoryOptions{OriginalExecution: workflow.Execution{ID: workflowID, RunID: run}})
}
