package main

import (
	"context"
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
	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
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

// newLocker returns a Locker, and the accounts of members of pools. The monitor sees its commands, if it is not nil.
func newLocker(ctx context.Context, database string, monitor *event.CommandMonitor) (*lockcore.Locker, accounts, func(), error) {
	mc, err := connect.Mongo(ctx, os.Getenv("LOCKSTEP_MONGODB_URI"), "lockstep sagafuzz", func(o *mongooptions.ClientOptions) { o.SetMonitor(monitor) })
	if err != nil {
		return nil, accounts{}, nil, fmt.Errorf("LOCKSTEP_MONGODB_URI: %w", err)
	}
	db := mc.Database(database)
	locker, err := lockcore.New(db.Collection("locks"), lockcore.Config{TTL: partTTL, HoldTTL: holdTTL, ClaimTTL: claimTTL})
	return locker, accounts{db.Collection("accounts")}, func() { _ = mc.Disconnect(context.WithoutCancel(ctx)) }, err
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
	locker, accounts, disconnect, err := newLocker(ctx, run, newSlowness(plan, dir, name).monitor())
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
	p := &player{log: log, process: name, accounts: accounts}
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
	fmt.Println(harness.Ready)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent closes it, or has ended
	w.Stop()
	ctx, cancel := context.WithTimeout(ctx, closeWithin) // steps may still run
	defer cancel()
	_ = locker.Close(ctx)
	return nil
}

// prepare creates the indexes, and with them the collection and its identity.
func prepare(ctx context.Context, run string) error {
	locker, _, disconnect, err := newLocker(ctx, run, nil)
	if err != nil {
		return err
	}
	defer disconnect()
	return locker.CreateIndexes(ctx)
}

// pool contains the worker processes of a run, and the neighbours' process.
type pool struct {
	*harness.Pool
	dir, run string
	log      *Log
	// previous is another build of this program; empty if there is none. ofPrevious selects the slots that run it.
	previous   string
	ofPrevious []bool
}

func newPool(dir, run string, log *Log, previous string, ofPrevious []bool) *pool {
	p := &pool{dir: dir, run: run, log: log, previous: previous, ofPrevious: ofPrevious}
	p.Pool = harness.NewPool(slots, p.command)
	return p
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

// command describes the next process of a slot.
func (p *pool) command(slot, number int) harness.Command {
	c := harness.Command{Name: fmt.Sprintf("p%d-%d", slot, number)}
	if p.previous != "" && p.ofPrevious[slot] {
		c.Name, c.Program = c.Name+previousMark, p.previous
	}
	role := workerCommand
	if slot == processes {
		role = neighbourCommand
	}
	c.Args, c.Output = []string{role, p.dir, p.run, c.Name}, filepath.Join(p.dir, c.Name+".output")
	return c
}

// play applies the faults of processes, and leaves all of them running.
func (p *pool) play(ctx context.Context, faults []ProcessFault, began time.Time) error {
	var wg sync.WaitGroup
	var failed error
	var busy [slots]time.Time // until when a slot's process is stopped
	for _, f := range faults {
		if !harness.Pause(ctx, time.Until(began.Add(f.At))) {
			break
		}
		if time.Now().Before(busy[f.Process]) {
			continue
		}
		proc := p.At(f.Process)
		if f.For == 0 {
			if f.Quits {
				_ = proc.Quit(quitWithin) // it may have been killed by the end of the run
			}
			p.log.Write(&Record{What: Killed, Other: proc.Name})
			if !proc.Kill() && !f.Quits {
				return fmt.Errorf("%s: %w", proc.Name, harness.ErrEnded)
			}
			if err := p.Start(ctx, f.Process); err != nil {
				return err
			}
			continue
		}
		busy[f.Process] = time.Now().Add(f.For + 100*time.Millisecond)
		p.log.Write(&Record{What: Stopped, Other: proc.Name})
		if _, err := proc.Suspend(); err != nil {
			return err
		}
		wg.Go(func() {
			harness.Pause(ctx, f.For)
			if err := proc.Resume(); err != nil {
				failed = err
			}
			p.log.Write(&Record{What: Resumed, Other: proc.Name})
		})
	}
	wg.Wait()
	return failed
}

// quitWithin bounds the time in which a process ends by itself.
const quitWithin = time.Minute

// stop ends all processes.
func (p *pool) stop() { p.Stop(0, slots, func(_ int, proc *harness.Process) { proc.Kill() }) }

// runNeighbours is the main function of the neighbours' process: programs without Temporal that take plain locks on the
// resources of the workflows. It ends when stdin ends.
func runNeighbours(ctx context.Context, dir, run, name string) error {
	log, err := OpenLog(dir, name)
	if err != nil {
		return err
	}
	plan, err := readPlan(dir)
	if err != nil {
		return err
	}
	locker, accounts, disconnect, err := newLocker(ctx, run, nil)
	if err != nil {
		return err
	}
	defer disconnect()
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for i, takes := range plan.Neighbours {
		n := &neighbour{log: log, locker: locker, accounts: accounts, lockID: fmt.Sprintf("%s_%s-n%d", run, name, i)} // each process is other ones
		wg.Go(func() {
			for number := range takes {
				n.take(ctx, number, &takes[number])
			}
		})
	}
	fmt.Println(harness.Ready)
	_, _ = io.Copy(io.Discard, os.Stdin) // whichever way it ends, the parent has gone
	stop()
	wg.Wait()
	return nil
}

// neighbour is one program with its own lock ID.
type neighbour struct {
	log      *Log
	locker   *lockcore.Locker
	accounts accounts
	lockID   string
}

// take acquires locks, works, and leaves. The log contains it as an attempt of a step outside of sagas.
func (n *neighbour) take(ctx context.Context, number int, t *Take) {
	if !harness.Pause(ctx, t.After) {
		return
	}
	call := &Call{Node: Node{Kind: Step, ID: number, Needs: t.Needs, Time: t.Time, Try: t.Try}}
	exec := fmt.Sprintf("%s.%d", n.lockID, number)
	n.log.Write(&Record{What: Enter, Exec: exec, Workflow: n.lockID, Call: call, Attempt: 1})
	acquire := n.locker.Acquire
	if t.Try {
		acquire = n.locker.TryAcquire
	}
	session, err := acquire(ctx, lockcore.Request{LockID: n.lockID, Resources: resources(t.Needs), MaxWait: t.MaxWait, Priority: t.Priority})
	if err == nil {
		_ = observe(session.Context(), n.log, n.accounts, exec, t.Time, false, session.Leases) // a loss is in its end
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), partTTL)
		err = session.Leave(leaving)
		cancel()
	}
	n.log.Write(&Record{What: Exit, Exec: exec, Error: text(err), Type: kindOf(err)})
}

// Take is one use of locks by a neighbour.
type Take struct {
	// After is the pause before the request. MaxWait bounds its wait; 0 means unlimited.
	After, MaxWait time.Duration
	Needs          []Need
	Try            bool
	Time           time.Duration // for which it has them
	Priority       int           `json:",omitempty"`
}

// neighbours draws the programs and their uses of locks.
func (p *planner) neighbours() (all [][]Take) {
	for range 2 {
		var takes []Take
		for range 15 + p.IntN(15) {
			t := Take{After: p.span(0, 900), Time: p.span(1, 150), Needs: p.needs(1 + p.IntN(2)), Try: p.one(4)}
			if p.one(6) {
				t.Needs = append(t.Needs, p.semaphore())
			}
			if p.one(5) {
				t.Needs = []Need{{Name: "q/again"}}
			}
			if p.one(8) { // longer than the TTL of a session that its stopped process does not renew
				t.Time = p.span(1000, 3000)
			}
			if !t.Try && p.one(3) {
				t.MaxWait = p.span(50, 2000)
			}
			takes = append(takes, t)
		}
		all = append(all, takes)
	}
	return all
}
