package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/internal/tools/failedtasks"
	"github.com/temporal-lockstep/lockstep/lockcore"
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
	// Conversions describes what conversions have failed; empty in plans without a codec.
	Conversions string
}

// play is a run of a plan.
type play struct {
	Plan
	run  string // names the task queue, the database and, as a prefix, the workflows
	dir  string
	tc   client.Client
	log  *Log
	pool *pool

	locker   *lockcore.Locker
	accounts accounts
	// giveUp ends the run if a workflow does not end.
	giveUp context.CancelCauseFunc

	mu   sync.Mutex
	seen []Violation
	open map[string]bool // IDs of workflows
	// replayed counts the histories that were replayed, and unread the histories that fail without the codec.
	replayed, unread int
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
	var dc converter.DataConverter
	if plan.Codec {
		dc = newConverter(nil)
	}
	if p.tc, err = dial(ctx, output, dc); err != nil {
		return outcome, err
	}
	defer p.tc.Close()
	var disconnect func()
	if p.locker, p.accounts, disconnect, err = newLocker(ctx, p.run, nil); err != nil {
		return outcome, err
	}
	defer disconnect()
	defer func() { err = errors.Join(err, dropDatabase(ctx, p.run)) }()
	p.pool = newPool(dir, p.run, p.log, previous, plan.Previous)
	if err := p.pool.prepare(ctx); err != nil {
		return outcome, err
	}
	if err := p.makePools(ctx); err != nil {
		return outcome, err
	}
	defer p.pool.stop()
	if err := writePlan(dir, plan); err != nil {
		return outcome, err
	}
	if err := p.pool.StartAll(ctx); err != nil {
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
	others := unasked(plan, failed)
	for _, text := range others {
		p.violation("tasks", "a workflow task has failed: "+text)
	}
	if plan.Codec {
		outcome.Conversions = fmt.Sprintf(" (%d workflow tasks failed as asked, %d of %d histories fail without the codec)",
			len(failed)-len(others), p.unread, p.replayed)
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
	if err := p.beginSlowness(time.Now()); err != nil {
		return err
	}
	wg.Go(func() { p.slow(running, time.Now()) })
	go p.changeLimits(running, time.Now())
	go p.changePools(running, time.Now())
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
	if err := p.pool.At(processes).Quit(quitWithin); err != nil {
		return err
	}
	return p.free(ctx)
}

// watch ends the run if it makes no progress.
func (p *play) watch(ctx context.Context) error {
	began := time.Now()
	for harness.Pause(ctx, 2*time.Second) {
		records, err := ReadLogs(p.dir)
		if err != nil {
			return err
		}
		last := began
		for i := range records {
			if r := &records[i]; !slices.Contains([]string{Enter, Exit, Holds, Seen, Updated}, r.What) {
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
	for harness.Pause(ctx, lookAtQueues) {
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
	defer p.update(ctx, w)()
	for i, f := range w.Faults {
		if !harness.Pause(ctx, f.After) {
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
	if most := p.mostEvents(w); info.GetHistoryLength() > most {
		p.violation("history", fmt.Sprintf("%s: %d events, more than %d", p.id(w), info.GetHistoryLength(), most), p.id(w))
	}
	return nil
}

// mostEvents bounds the history of one run of a workflow.
func (p *play) mostEvents(w *Workflow) int64 {
	most := eventBound(&w.Input.Body) + int64(10*(len(w.Interrupts)+len(w.Faults)))
	for i := range w.Updates {
		most += eventBound(&w.Updates[i].Body)
	}
	if len(p.Slow) > 0 { // signals, and steps that are scheduled again because the database did not answer
		most = 2*most + int64(20*len(p.Slow))
	}
	return most
}

// eventBound bounds the history of one run of a workflow. A step takes three events and three of its workflow task, and the same
// again for each resource that it waits for, for its compensation, and for each retry of its saga.
func eventBound(n *Node) int64 {
	most := int64(40)
	if len(n.Rule) > 0 && len(n.Needs) > 0 { // each time the rule's lock is busy, the step leaves the guard's, and waits for them again
		most *= 4
	}
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

// free waits until all locks and waiters are gone.
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
		if !harness.Pause(ctx, 100*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}
