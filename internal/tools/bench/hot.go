package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// hotConfig holds the flags of bench hot.
type hotConfig struct {
	uri, address string
	// turns is the number of times that each cell is measured, and each how long.
	turns int
	each  time.Duration
	// atATime is the number of workflows that run at the same time, and slots the number of activities that a process runs at
	// the same time.
	atATime, slots       int
	resources, processes []int
	asJSON               bool
	writeDelay           time.Duration
}

// runHot compares ways to run one step at a time on a resource, for many workflows on few resources and on many.
func runHot(ctx context.Context, args []string, out io.Writer, env func(string) string) error {
	cfg, err := parseHot(args)
	if err != nil {
		return err
	}
	if err := requireVariables(env, "LOCKSTEP_MONGODB_URI", "TEMPORAL_ADDRESS"); err != nil {
		return err
	}
	cfg.uri, cfg.address = env("LOCKSTEP_MONGODB_URI"), env("TEMPORAL_ADDRESS")
	report, err := benchHot(ctx, cfg)
	if err != nil {
		return err
	}
	return Report{Hot: &report}.write(out, cfg.asJSON, report.print)
}

func parseHot(args []string) (cfg hotConfig, err error) {
	flags := flag.NewFlagSet("bench hot", flag.ContinueOnError)
	flags.BoolVar(&cfg.asJSON, "json", false, "print JSON")
	flags.IntVar(&cfg.turns, "turns", 3, "how often each cell is measured, 1 to 100")
	flags.DurationVar(&cfg.each, "each", 10*time.Second, "how long each cell is measured, 1s to 10m")
	flags.IntVar(&cfg.atATime, "at-a-time", 20, "how many workflows run at the same time, 1 to 1000")
	flags.IntVar(&cfg.slots, "slots", 100, "how many activities a worker process runs at the same time, 1 to 1000")
	flags.DurationVar(&cfg.writeDelay, "write-delay", 0, "how long answers of the database to writes are held back, up to 1s")
	resources := flags.String("resources", "1,10,200", "how many resources the workflows share, 1 to 10000")
	processes := flags.String("processes", "1,3", "how many worker processes there are, 1 to 10")
	if err := parseFlags(flags, args); err != nil {
		return cfg, err
	}
	if err := errors.Join(
		checkRange("--turns", cfg.turns, 1, 100),
		checkRange("--each", cfg.each, time.Second, 10*time.Minute),
		checkRange("--at-a-time", cfg.atATime, 1, 1000),
		checkRange("--slots", cfg.slots, 1, 1000),
		checkRange("--write-delay", cfg.writeDelay, 0, time.Second),
	); err != nil {
		return cfg, err
	}
	if cfg.resources, err = parseNumbers("--resources", *resources, 1, 10_000); err != nil {
		return cfg, err
	}
	cfg.processes, err = parseNumbers("--processes", *processes, 1, 10)
	return cfg, err
}

func parseNumbers(flag, list string, least, most int) (all []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return nil, fmt.Errorf("%w: %s %q is not a list of numbers from %d to %d", errUsage, flag, list, least, most)
		}
		all = append(all, n)
	}
	return all, nil
}

func benchHot(ctx context.Context, cfg hotConfig) (report HotReport, err error) {
	db, drop, err := database(ctx, cfg.uri)
	if err != nil {
		return report, err
	}
	defer drop()
	locker, err := lockcore.New(db.Collection("locks"), lockcore.Config{})
	if err != nil {
		return report, err
	}
	if err := locker.CreateIndexes(ctx); err != nil {
		return report, err
	}
	c, err := client.Dial(client.Options{HostPort: cfg.address, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		return report, fmt.Errorf("connect to TEMPORAL_ADDRESS: %w", err)
	}
	defer c.Close()
	report = HotReport{AtATime: cfg.atATime, Slots: cfg.slots, Turns: cfg.turns, Seconds: cfg.each.Seconds()}
	for _, n := range cfg.processes {
		rows, err := (&hotBench{cfg: cfg, client: c}).measureWith(ctx, db, n)
		if err != nil {
			return report, err
		}
		report.Rows = append(report.Rows, rows...)
	}
	return report, nil
}

// hotBench measures on one set of worker processes.
type hotBench struct {
	cfg    hotConfig
	client client.Client
	queue  string
	// cells is the number of measurements so far. It makes the names of resources unique.
	cells int
}

// measureWith starts n worker processes and measures all cells alternately.
func (h *hotBench) measureWith(ctx context.Context, db *mongo.Database, n int) ([]HotRow, error) {
	h.queue = fmt.Sprintf("lockstep-bench-hot-%d", time.Now().UnixNano())
	stop, err := startWorkers(ctx, n, hotWorkerConfig{
		Address: h.cfg.address, URI: h.cfg.uri, Database: db.Name(), Queue: h.queue, Slots: h.cfg.slots, WriteDelay: h.cfg.writeDelay,
	})
	if err != nil {
		return nil, err
	}
	defer stop()
	if _, err := h.measure(ctx, kindNone, 1, min(h.cfg.each, 3*time.Second)); err != nil { // warms up
		return nil, err
	}
	alone, err := h.latency(ctx, 40)
	if err != nil {
		return nil, err
	}
	rows := make([]HotRow, len(h.cfg.resources))
	for i, resources := range h.cfg.resources {
		rows[i] = newHotRow(n, resources, alone)
	}
	for range h.cfg.turns {
		for i, resources := range h.cfg.resources {
			for k, kind := range hotKinds {
				m, err := h.measure(ctx, kind, resources, h.cfg.each)
				if err != nil {
					return nil, fmt.Errorf("%s, %d resources: %w", kind, resources, err)
				}
				rows[i].Cells[k].add(m)
			}
		}
	}
	for i := range rows {
		rows[i].summarize()
	}
	return rows, nil
}

// cell is one measurement: workflows of one kind on a number of resources.
type cell struct {
	*hotBench
	number, resources int
	kind              string
	// Workflows are counted if they end from begins to ends.
	begins, ends time.Time

	mu           sync.Mutex
	begun, ended int
	// latencies are of unrelated workflows, in milliseconds, and lengths are of one history in sampleEvery.
	latencies, lengths []float64
}

const (
	sampleEvery = 10
	// drain bounds the time after the measurement in which workflows may end.
	drain = 20 * time.Second
)

// measured is the result of one measurement. beside is the median latency of unrelated workflows in milliseconds, and events
// the mean length of a history.
type measured struct{ perSecond, beside, events float64 }

// measure keeps atATime workflows running and counts the workflows that end within the time each. A warm-up of a fifth of that
// time is not counted. Unrelated workflows show the effect of the load on others.
func (h *hotBench) measure(ctx context.Context, kind string, resources int, each time.Duration) (m measured, err error) {
	h.cells++
	begins := time.Now().Add(each / 5)
	c := &cell{hotBench: h, number: h.cells, resources: resources, kind: kind, begins: begins, ends: begins.Add(each)}
	g, groupCtx := errgroup.WithContext(ctx)
	for range h.cfg.atATime {
		g.Go(func() error { return c.load(groupCtx) })
	}
	g.Go(func() error { return c.unrelated(groupCtx, each/20) })
	if err := g.Wait(); err != nil {
		return m, err
	}
	if kind == kindMutex {
		err = c.endMutexes(ctx)
	}
	return measured{perSecond: float64(c.ended) / each.Seconds(), beside: median(c.latencies), events: mean(c.lengths)}, err
}

// load runs one workflow after the other.
func (c *cell) load(ctx context.Context) error {
	for time.Now().Before(c.ends) {
		c.mu.Lock()
		resource := c.resource(c.begun % c.resources)
		c.begun++
		c.mu.Unlock()
		run, err := c.run(ctx, c.ends.Add(drain), hotStep{Kind: c.kind, Resource: resource})
		if err != nil {
			return err
		}
		if now := time.Now(); now.Before(c.begins) || now.After(c.ends) {
			continue
		}
		c.mu.Lock()
		c.ended++
		sampled := c.ended%sampleEvery == 1
		c.mu.Unlock()
		if !sampled {
			continue
		}
		d, err := c.client.DescribeWorkflowExecution(ctx, run.GetID(), run.GetRunID())
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.lengths = append(c.lengths, float64(d.GetWorkflowExecutionInfo().GetHistoryLength()))
		c.mu.Unlock()
	}
	return nil
}

// unrelated runs workflows without a lock, with a pause after each.
func (c *cell) unrelated(ctx context.Context, every time.Duration) error {
	for time.Now().Before(c.ends) {
		took, err := timed(func() error { _, err := c.run(ctx, c.ends.Add(drain), hotStep{Kind: kindNone}); return err })
		if err != nil {
			return err
		}
		c.latencies = append(c.latencies, millis(took))
		if err := pause(ctx, every); err != nil {
			return err
		}
	}
	return nil
}

// resource returns the name of the n-th resource of the cell.
func (c *cell) resource(n int) string { return fmt.Sprintf("%s/%d/%d", c.queue, c.number, n) }

// endMutexes ends the mutex workflows, which would wait a minute for further requests.
func (c *cell) endMutexes(ctx context.Context) error {
	for n := range c.resources {
		if err := c.terminate(ctx, mutexOf(c.resource(n)), ""); err != nil {
			return err
		}
	}
	return nil
}

// terminate ends a workflow, if it has not ended.
func (h *hotBench) terminate(ctx context.Context, id, runID string) error {
	err := h.client.TerminateWorkflow(ctx, id, runID, "the measurement is over")
	if gone := new(*serviceerror.NotFound); errors.As(err, gone) {
		return nil
	}
	return err
}

// run starts a workflow and waits for its end. It terminates the workflow if it does not end before the deadline.
func (h *hotBench) run(ctx context.Context, deadline time.Time, s hotStep) (client.WorkflowRun, error) {
	run, err := h.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: h.queue}, hotWorkflow, s)
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	err = run.Get(waiting, nil)
	if ended := new(*temporal.WorkflowExecutionError); err == nil || errors.As(err, ended) {
		return run, err
	}
	// The server may end a call for a result shortly before the call's deadline.
	if time.Now().Before(deadline.Add(-time.Second)) {
		return run, err
	}
	for err != nil && ctx.Err() == nil && time.Now().Before(deadline.Add(time.Minute)) {
		if err = h.terminate(ctx, run.GetID(), run.GetRunID()); err != nil {
			_ = pause(ctx, time.Second)
		}
	}
	return run, err
}

// latency returns the median time of a workflow without any load, in milliseconds.
func (h *hotBench) latency(ctx context.Context, rounds int) (float64, error) {
	var all []float64
	for range rounds {
		took, err := timed(func() error { _, err := h.run(ctx, time.Now().Add(drain), hotStep{Kind: kindNone}); return err })
		if err != nil {
			return 0, err
		}
		all = append(all, millis(took))
	}
	return median(all), nil
}
