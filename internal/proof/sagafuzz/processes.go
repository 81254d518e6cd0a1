package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	mongooptions "go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

// TTLs are short, so that many of them end during a run.
const (
	partTTL  = 2 * time.Second
	holdTTL  = 30 * time.Second
	claimTTL = 3 * time.Second
	// leastHoldTTL is the shortest HoldTTL of a plan, and verifyAfter the age from which on a commit asks whether a lock is still held.
	leastHoldTTL = 6 * time.Second
	verifyAfter  = 2 * time.Second

	janitorInterval = time.Second

	// closeWithin bounds the end of a process whose steps still run.
	closeWithin = 5 * time.Second

	// cacheOfMixed is the number of workflows that a worker keeps in memory if two builds play. It is small, so that each build often
	// replays what the other has begun.
	cacheOfMixed = 1
)

// withoutJanitor reports whether a process has no janitor, which is true for the last slot.
func withoutJanitor(process string) bool {
	return strings.HasPrefix(process, fmt.Sprintf("p%d-", processes-1))
}

// newLocker returns a Locker. The monitor sees its commands, if it is not nil.
func newLocker(ctx context.Context, database string, monitor *event.CommandMonitor) (*lockcore.Locker, func(), error) {
	mc, err := connect.Mongo(ctx, os.Getenv("LOCKSTEP_MONGODB_URI"), "lockstep sagafuzz", func(o *mongooptions.ClientOptions) { o.SetMonitor(monitor) })
	if err != nil {
		return nil, nil, fmt.Errorf("LOCKSTEP_MONGODB_URI: %w", err)
	}
	locker, err := lockcore.New(mc.Database(database).Collection("locks"),
		lockcore.Config{TTL: partTTL, HoldTTL: holdTTL, ClaimTTL: claimTTL})
	return locker, func() { _ = mc.Disconnect(context.WithoutCancel(ctx)) }, err
}

func dial(ctx context.Context, out io.Writer, dc converter.DataConverter, opts ...grpc.DialOption) (client.Client, error) {
	f, err := connect.FindFrontend(connect.TemporalFlags{})
	if err != nil {
		return nil, err
	}
	if dc != nil {
		f.Options.DataConverter, f.Options.FailureConverter = dc, failuresWith(dc)
	}
	f.Options.Logger = sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn})))
	f.Options.ConnectionOptions.DialOptions = append(f.Options.ConnectionOptions.DialOptions, opts...)
	return f.Dial(ctx)
}

// runWorker is the main function of a worker process. It polls until stdin ends, which it does when the parent has ended.
func runWorker(ctx context.Context, dir, run, name string) error {
	log, err := OpenLog(dir, name)
	if err != nil {
		return err
	}
	plan, err := readPlan(dir)
	if err != nil {
		return err
	}
	locker, disconnect, err := newLocker(ctx, run, newSlowness(plan, dir, name).monitor())
	if err != nil {
		return err
	}
	defer disconnect()
	if plan.Previous != nil {
		sdkworker.SetStickyWorkflowCacheSize(cacheOfMixed)
	}
	interrupts := newInterrupter(plan, dir, run, log)
	begun := make(chan struct{})
	var dc converter.DataConverter
	if plan.Codec {
		dc = newConverter(failing(plan.FailsOneIn, begun))
	}
	tc, err := dial(ctx, os.Stderr, dc, grpc.WithChainUnaryInterceptor(interrupts.intercept))
	if err != nil {
		return err
	}
	defer tc.Close()
	interrupts.tc = tc
	janitor := worker.JanitorOptions{Interval: janitorInterval}
	if withoutJanitor(name) {
		janitor = worker.JanitorOptions{Off: true}
	}
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker, Janitor: janitor, Rules: []worker.Rule{
		worker.RuleFor(ruledName, func(c Call) []lockcore.Resource { return resources(c.Node.Rule) }),
	}})
	if err != nil {
		return err
	}
	p := &player{log: log}
	w := sdkworker.New(tc, run, sdkworker.Options{
		Plugins: []sdkworker.Plugin{plugin}, Interceptors: []interceptor.WorkerInterceptor{p},
		StickyScheduleToStartTimeout: time.Second, WorkerStopTimeout: time.Second,
	})
	w.RegisterWorkflowWithOptions(p.Play, workflow.RegisterOptions{Name: playName})
	w.RegisterActivityWithOptions(p.Step, activity.RegisterOptions{Name: stepName})
	w.RegisterActivityWithOptions(p.Step, activity.RegisterOptions{Name: ruledName})
	w.RegisterActivityWithOptions(p.Step, activity.RegisterOptions{Name: innerName})
	w.RegisterActivityWithOptions(p.Undo, activity.RegisterOptions{Name: undoName})
	if err := w.Start(); err != nil {
		return err
	}
	close(begun)
	fmt.Println(ready)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent closes it, or has ended
	w.Stop()
	ctx, cancel := context.WithTimeout(ctx, closeWithin) // steps may still run
	defer cancel()
	_ = locker.Close(ctx)
	return nil
}

// prepare creates the indexes, and with them the collection and its identity.
func prepare(ctx context.Context, run string) error {
	locker, disconnect, err := newLocker(ctx, run, nil)
	if err != nil {
		return err
	}
	defer disconnect()
	return locker.CreateIndexes(ctx)
}

// ready is the line that a worker process prints when it polls.
const ready = "ready"

// pool contains the worker processes of a run, and the neighbours' process.
type pool struct {
	dir, run string
	log      *Log
	// previous is another build of this program; empty if there is none. ofPrevious selects the slots that run it.
	previous   string
	ofPrevious []bool

	mu   sync.Mutex
	slot [slots]*process
	born int
}

// previousMark ends the names of processes of the previous build.
const previousMark = "-previous"

// prepare lets the previous build create the collection, as it has done before an upgrade. Without one this build creates it.
func (p *pool) prepare(ctx context.Context) error {
	if p.previous == "" {
		return prepare(ctx, p.run)
	}
	output, err := exec.CommandContext(ctx, p.previous, prepareCommand, p.run).CombinedOutput() //nolint:gosec // a flag names it
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", p.previous, prepareCommand, err, output)
	}
	return nil
}

// next returns a name and a program for the next process of a slot.
func (p *pool) next(slot int) (name, program string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.born++
	name = fmt.Sprintf("p%d-%d", slot, p.born)
	if p.previous != "" && p.ofPrevious[slot] {
		return name + previousMark, p.previous, nil
	}
	program, err = os.Executable()
	return name, program, err
}

type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
}

// start starts a process in a slot, and returns when it polls.
func (p *pool) start(slot int) error {
	name, exe, err := p.next(slot)
	if err != nil {
		return err
	}
	proc, command := &process{name: name}, workerCommand
	if slot == processes {
		command = neighbourCommand
	}
	output, err := os.Create(filepath.Join(p.dir, proc.name+".output"))
	if err != nil {
		return err
	}
	defer func() { _ = output.Close() }()                          // the child has its own copy
	proc.cmd = exec.Command(exe, command, p.dir, p.run, proc.name) //nolint:gosec,noctx // a build of ours; it is ended by stop
	proc.cmd.Stderr = output
	if proc.stdin, err = proc.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := proc.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := proc.cmd.Start(); err != nil {
		return err
	}
	p.mu.Lock()
	p.slot[slot] = proc
	p.mu.Unlock()
	if line, _ := bufio.NewReader(stdout).ReadString('\n'); line != ready+"\n" {
		return fmt.Errorf("process %s did not start: see %s", proc.name, output.Name())
	}
	return nil
}

// play applies the faults of processes, and leaves all of them running.
func (p *pool) play(ctx context.Context, faults []ProcessFault, began time.Time) error {
	var wg sync.WaitGroup
	var failed error
	var busy [slots]time.Time // until when a slot's process is stopped
	for _, f := range faults {
		if !pause(ctx, time.Until(began.Add(f.At))) {
			break
		}
		if time.Now().Before(busy[f.Process]) {
			continue
		}
		proc := p.slot[f.Process]
		if f.For == 0 {
			if f.Quits {
				_ = p.quit(f.Process) // it may have been killed by the end of the run
			}
			p.log.Write(&Record{What: Killed, Other: proc.name})
			if err := proc.kill(); err != nil && !f.Quits {
				return err
			}
			if err := p.start(f.Process); err != nil {
				return err
			}
			continue
		}
		busy[f.Process] = time.Now().Add(f.For + 100*time.Millisecond)
		p.log.Write(&Record{What: Stopped, Other: proc.name})
		if err := signalStop(proc.cmd.Process); err != nil {
			return err
		}
		wg.Go(func() {
			pause(ctx, f.For)
			if err := signalContinue(proc.cmd.Process); err != nil {
				failed = err
			}
			p.log.Write(&Record{What: Resumed, Other: proc.name})
		})
	}
	wg.Wait()
	return failed
}

func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = p.cmd.Wait() // it was killed
	return nil
}

// quit lets the process of a slot end by itself.
func (p *pool) quit(slot int) error {
	proc := p.slot[slot]
	return errors.Join(proc.stdin.Close(), proc.cmd.Wait())
}

// stop ends all processes.
func (p *pool) stop() {
	for _, proc := range p.slot {
		if proc != nil {
			_ = proc.stdin.Close()
			_ = proc.kill() // it may have ended
		}
	}
}

// pause waits, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
