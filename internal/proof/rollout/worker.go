package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	mongooptions "go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// This file is the program of both builds: it must not use what the previous one lacks.

const (
	sagaName = "saga"
	stepName = "step"
	undoName = "undo"

	ttl = 3 * time.Second
	// asks is the interval at which each process takes a lock of its own.
	asks = 100 * time.Millisecond
	// closeWithin bounds the end of a process whose Locker cannot release its locks.
	closeWithin = 5 * time.Second

	exclusives, permits = 4, 3
	prefix              = "permits/"
)

// Record is a line of the log of a process.
type Record struct {
	At            time.Time
	Process, What string
	// Saga and Step name the step of a saga that ran.
	Saga string `json:",omitempty"`
	Step int    `json:",omitempty"`
	// Command is the name of a command that has changed documents, and Changed their number.
	Command string `json:",omitempty"`
	Changed int    `json:",omitempty"`
	// Error is that of a request for the process's own lock, or the reason of a loss.
	Error string `json:",omitempty"`
}

// Values of Record.What.
const (
	Ran    = "ran"    // the function of a step was called
	Undone = "undone" // that of its compensation was called
	Wrote  = "wrote"  // the database has changed documents
	Asked  = "asked"  // the process has taken its own lock, or Error is set
	Lost   = "lost"   // it has lost the lock that it keeps
)

// Log is the log of one process.
type Log = harness.Log[Record]

func openLog(dir, process string) (*Log, error) {
	return harness.OpenLog(dir, process, func(r *Record) { r.Process, r.At = process, time.Now() })
}

// Saga is the argument of a saga: the number of a saga selects what it locks, and Fails makes its last step fail.
type Saga struct {
	Number int
	Fails  bool
}

// Step is the argument of a step.
type Step struct {
	Saga   string
	Number int
	Fails  bool
}

// saga runs a step under a permit and two steps under exclusive locks.
func saga(ctx workflow.Context, arg Saga) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 5 * time.Second, RetryPolicy: &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 1},
	})
	first := arg.Number % exclusives
	second := (first + 1) % exclusives
	needs := []lockcore.Resource{
		lockcore.SharedLimit(fmt.Sprintf("%s%d", prefix, arg.Number%2), permits),
		lockcore.Exclusive(fmt.Sprintf("x/%d", min(first, second))), lockcore.Exclusive(fmt.Sprintf("x/%d", max(first, second))),
	}
	return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		for i, need := range needs {
			step := Step{Saga: workflow.GetInfo(ctx).WorkflowExecution.ID, Number: i, Fails: arg.Fails && i == len(needs)-1}
			ctx := workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{need}})
			if err := s.Step(ctx, stepName, undoName, step).Get(ctx, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// process is a worker process.
type process struct {
	name   string
	log    *Log
	locker *lockcore.Locker
}

// runWorker is the main function of a worker process. It works until its standard input ends.
func runWorker(ctx context.Context, dir, run, name string) error {
	log, err := openLog(dir, name)
	if err != nil {
		return err
	}
	mc, err := connect.Mongo(ctx, os.Getenv("LOCKSTEP_MONGODB_URI"), "lockstep rollout", func(o *mongooptions.ClientOptions) { o.SetMonitor(monitor(log)) })
	if err != nil {
		return err
	}
	defer func() { _ = mc.Disconnect(context.WithoutCancel(ctx)) }() // the process ends
	locker, err := lockcore.New(mc.Database(run).Collection("locks"), lockcore.Config{TTL: ttl, ClaimTTL: ttl, Host: name})
	if err != nil {
		return err
	}
	tc, err := dial(ctx, os.Stderr)
	if err != nil {
		return err
	}
	defer tc.Close()
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker, Janitor: worker.JanitorOptions{Interval: time.Second}})
	if err != nil {
		return err
	}
	sdkworker.SetStickyWorkflowCacheSize(1) // so that each build often replays what the other has begun
	p := &process{name: name, log: log, locker: locker}
	w := sdkworker.New(tc, run, sdkworker.Options{
		Plugins: []sdkworker.Plugin{plugin}, StickyScheduleToStartTimeout: time.Second, WorkerStopTimeout: time.Second,
	})
	w.RegisterWorkflowWithOptions(saga, workflow.RegisterOptions{Name: sagaName})
	w.RegisterActivityWithOptions(p.step, activity.RegisterOptions{Name: stepName})
	w.RegisterActivityWithOptions(p.undo, activity.RegisterOptions{Name: undoName})
	if err := w.Start(); err != nil {
		return err
	}
	asking, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { p.ask(asking) })
	wg.Go(func() { p.keep(asking) })
	fmt.Println(harness.Ready)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent closes it, or has ended
	stop()
	wg.Wait()
	w.Stop()
	ctx, cancel := context.WithTimeout(ctx, closeWithin)
	defer cancel()
	_ = locker.Close(ctx) // the previous build cannot release its locks
	return nil
}

func dial(ctx context.Context, out io.Writer) (client.Client, error) {
	f, err := connect.FindFrontend(connect.TemporalFlags{})
	if err != nil {
		return nil, err
	}
	f.Options.Logger = sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn})))
	return f.Dial(ctx)
}

// monitor logs the commands that have changed documents.
func monitor(log *Log) *event.CommandMonitor {
	return &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
		if n := changed(e.CommandName, e.Reply); n > 0 {
			log.Write(&Record{What: Wrote, Command: e.CommandName, Changed: n})
		}
	}}
}

// changed returns the number of documents that a command has changed, by the database's answer. A statement that finds a document and
// leaves it as it is changes none.
func changed(command string, answer bson.Raw) int {
	upserted, _ := answer.Lookup("upserted").ArrayOK()
	inserted, _ := upserted.Values()
	field := "nModified"
	if command == "insert" || command == "delete" {
		field = "n"
	}
	n, _ := answer.Lookup(field).AsInt64OK()
	return int(n) + len(inserted)
}

// own returns the name of the resource that only one process asks for.
func own(process string) string { return "own/" + process }

// ask takes a lock that only this process asks for, again and again.
func (p *process) ask(ctx context.Context) {
	for number := 0; harness.Pause(ctx, asks); number++ {
		session, err := p.locker.TryAcquire(ctx, lockcore.Request{
			LockID: fmt.Sprintf("%s/%d", p.name, number), Resources: []lockcore.Resource{lockcore.Exclusive(own(p.name))},
		})
		if err == nil {
			err = session.Leave(context.WithoutCancel(ctx))
		}
		if ctx.Err() != nil {
			return
		}
		r := &Record{What: Asked}
		if err != nil {
			r.Error = err.Error()
		}
		p.log.Write(r)
	}
}

// keep keeps a lock until ctx ends.
func (p *process) keep(ctx context.Context) {
	session, err := p.locker.TryAcquire(ctx, lockcore.Request{
		LockID: p.name + "/kept", Resources: []lockcore.Resource{lockcore.Exclusive("kept/" + p.name)},
	})
	if err == nil {
		select {
		case <-ctx.Done():
			_ = session.Leave(context.WithoutCancel(ctx)) // it ends with its TTL otherwise
			return
		case <-session.Context().Done():
			err = context.Cause(session.Context())
		}
	}
	p.log.Write(&Record{What: Lost, Error: err.Error()})
}

var errPlanned = errors.New("as planned")

func (p *process) step(_ context.Context, s Step) error {
	p.log.Write(&Record{What: Ran, Saga: s.Saga, Step: s.Number})
	if s.Fails {
		return temporal.NewNonRetryableApplicationError(errPlanned.Error(), "planned", errPlanned)
	}
	return nil
}

func (p *process) undo(_ context.Context, s Step) error {
	p.log.Write(&Record{What: Undone, Saga: s.Saga, Step: s.Number})
	return nil
}
