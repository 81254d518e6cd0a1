package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"slices"
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

	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
	"github.com/temporal-lockstep/lockstep/internal/tools/bench/mutexworkflow"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// hotBench compares ways to run one step at a time on a resource, for many workflows on few resources and on many. Its JSON is
// the report.
type hotBench struct {
	uri, address string
	client       client.Client
	queue        string
	// each is the time for which a cell is measured, Turns times.
	each  time.Duration
	Turns int `json:"turns"`
	// AtATime is the number of workflows that run at the same time, and Slots the number of activities that a process runs at
	// the same time.
	AtATime int     `json:"atATime"`
	Slots   int     `json:"slots"`
	Seconds float64 `json:"seconds"`

	resources, processes []int
	writeDelay           time.Duration
	// cells is the number of measurements so far. It makes the names of resources unique.
	cells int

	Rows []*hotRow `json:"rows"`
}

func runHot(ctx context.Context, args []string) (err error) {
	h := &hotBench{resources: []int{1, 10, 200}, processes: []int{1, 3}}
	flags := flag.NewFlagSet("bench hot", flag.ExitOnError)
	flags.IntVar(&h.Turns, "turns", 3, "how often each cell is measured")
	flags.DurationVar(&h.each, "each", 10*time.Second, "how long each cell is measured")
	flags.IntVar(&h.AtATime, "at-a-time", 20, "how many workflows run at the same time")
	flags.IntVar(&h.Slots, "slots", 100, "how many activities a worker process runs at the same time")
	flags.DurationVar(&h.writeDelay, "write-delay", 0, "how long answers of the database to writes are held back")
	flags.Func("resources", "how many resources the workflows share, such as 1,10,200", numbers(&h.resources))
	flags.Func("processes", "how many worker processes there are, such as 1,3", numbers(&h.processes))
	asJSON := parseFlags(flags, args)
	h.Seconds = h.each.Seconds()
	if h.uri, err = variable("LOCKSTEP_MONGODB_URI"); err != nil {
		return err
	}
	if h.address, err = variable("TEMPORAL_ADDRESS"); err != nil {
		return err
	}
	if err := h.run(ctx); err != nil {
		return err
	}
	return write(h, asJSON)
}

// numbers parses a flag with positive numbers.
func numbers(to *[]int) func(string) error {
	return func(list string) error {
		*to = nil
		for text := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				return errors.New("want a list of numbers")
			}
			*to = append(*to, n)
		}
		return nil
	}
}

func (h *hotBench) run(ctx context.Context) error {
	db, drop, err := measure.Database(ctx, h.uri)
	if err != nil {
		return err
	}
	defer drop()
	locker, err := lockcore.New(db.Collection("locks"), lockcore.Config{})
	if err != nil {
		return err
	}
	if err := locker.CreateIndexes(ctx); err != nil {
		return err
	}
	h.client, err = client.Dial(client.Options{HostPort: h.address, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		return fmt.Errorf("connect to TEMPORAL_ADDRESS: %w", err)
	}
	defer h.client.Close()
	for _, n := range h.processes {
		if err := h.measureWith(ctx, db, n); err != nil {
			return err
		}
	}
	return nil
}

// measureWith starts n worker processes and measures all cells alternately.
func (h *hotBench) measureWith(ctx context.Context, db *mongo.Database, n int) error {
	h.queue = fmt.Sprintf("lockstep-bench-hot-%d", time.Now().UnixNano())
	stop, err := startWorkers(ctx, n, hotWorkerConfig{
		Address: h.address, URI: h.uri, Database: db.Name(), Queue: h.queue, Slots: h.Slots, WriteDelay: h.writeDelay,
	})
	defer stop()
	if err != nil {
		return err
	}
	if _, err := h.measure(ctx, kindNone, 1, min(h.each, 3*time.Second)); err != nil { // warms up
		return err
	}
	var alone []float64
	for range 40 {
		took, err := timed(func() error { _, err := h.runOne(ctx, time.Now().Add(drain), hotStep{Kind: kindNone}); return err })
		if err != nil {
			return err
		}
		alone = append(alone, measure.Millis(took))
	}
	var rows []*hotRow
	for _, resources := range h.resources {
		row := &hotRow{Processes: n, Resources: resources, AloneMS: measure.Median(alone)}
		for _, kind := range hotKinds {
			row.Cells = append(row.Cells, &hotCell{Kind: kind})
		}
		rows = append(rows, row)
	}
	for range h.Turns {
		for _, row := range rows {
			for _, c := range row.Cells {
				m, err := h.measure(ctx, c.Kind, row.Resources, h.each)
				if err != nil {
					return fmt.Errorf("%s, %d resources: %w", c.Kind, row.Resources, err)
				}
				c.EachTurn = append(c.EachTurn, float64(m.ended)/h.each.Seconds())
				c.beside, c.events = append(c.beside, measure.Median(m.latencies)), append(c.events, measure.Median(m.lengths))
			}
		}
	}
	for _, row := range rows {
		row.summarize()
	}
	h.Rows = append(h.Rows, rows...)
	return nil
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

// measure keeps AtATime workflows running and counts the workflows that end within the time each. A warm-up of a fifth of that
// time is not counted. Unrelated workflows show the effect of the load on others.
func (h *hotBench) measure(ctx context.Context, kind string, resources int, each time.Duration) (*cell, error) {
	h.cells++
	begins := time.Now().Add(each / 5)
	c := &cell{hotBench: h, number: h.cells, resources: resources, kind: kind, begins: begins, ends: begins.Add(each)}
	g, groupCtx := errgroup.WithContext(ctx)
	for range h.AtATime {
		g.Go(func() error { return c.load(groupCtx) })
	}
	g.Go(func() error { return c.unrelated(groupCtx, each/20) })
	if err := g.Wait(); err != nil {
		return c, err
	}
	if kind == kindMutex { // mutex workflows would wait a minute for further requests
		for n := range resources {
			if err := h.terminate(ctx, mutexworkflow.ID(c.resource(n)), ""); err != nil {
				return c, err
			}
		}
	}
	return c, nil
}

// load runs one workflow after the other.
func (c *cell) load(ctx context.Context) error {
	for time.Now().Before(c.ends) {
		c.mu.Lock()
		resource := c.resource(c.begun % c.resources)
		c.begun++
		c.mu.Unlock()
		run, err := c.runOne(ctx, c.ends.Add(drain), hotStep{Kind: c.kind, Resource: resource})
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
		took, err := timed(func() error { _, err := c.runOne(ctx, c.ends.Add(drain), hotStep{Kind: kindNone}); return err })
		if err != nil {
			return err
		}
		c.latencies = append(c.latencies, measure.Millis(took))
		if err := measure.Pause(ctx, every); err != nil {
			return err
		}
	}
	return nil
}

// resource returns the name of the n-th resource of the cell.
func (c *cell) resource(n int) string { return fmt.Sprintf("%s/%d/%d", c.queue, c.number, n) }

// terminate ends a workflow, if it has not ended.
func (h *hotBench) terminate(ctx context.Context, id, runID string) error {
	err := h.client.TerminateWorkflow(ctx, id, runID, "the measurement is over")
	if gone := new(*serviceerror.NotFound); errors.As(err, gone) {
		return nil
	}
	return err
}

// runOne starts a workflow and waits for its end. It terminates the workflow if it does not end before the deadline.
func (h *hotBench) runOne(ctx context.Context, deadline time.Time, s hotStep) (client.WorkflowRun, error) {
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
			_ = measure.Pause(ctx, time.Second)
		}
	}
	return run, err
}

// hotRow has the results for a number of worker processes and of resources.
type hotRow struct {
	Processes int `json:"processes"`
	Resources int `json:"resources"`
	// AloneMS is the time of an unrelated workflow without a load, in milliseconds.
	AloneMS float64    `json:"aloneMs"`
	Cells   []*hotCell `json:"cells"`
}

// hotCell has the results for one kind of workflows: medians over the turns.
type hotCell struct {
	Kind      string  `json:"kind"`
	PerSecond float64 `json:"perSecond"`
	Least     float64 `json:"least"`
	Most      float64 `json:"most"`
	// OfMutex and OfNone are medians of each turn's ratio to mutex workflows and to workflows without locks. A ratio of one
	// turn is not affected by what else the machine does during that turn.
	OfMutex float64 `json:"ofMutex"`
	OfNone  float64 `json:"ofNone"`
	// BesideMS is the time of an unrelated workflow on the same workers, in milliseconds.
	BesideMS float64 `json:"besideMs"`
	// Events is the length of a history; one history in ten is read.
	Events float64 `json:"events"`
	// EachTurn has the workflows a second of each turn.
	EachTurn []float64 `json:"eachTurn"`

	beside, events []float64
}

func (r *hotRow) summarize() {
	// ratio returns the median of the ratios to another kind in each turn.
	ratio := func(turns []float64, kind string) float64 {
		var ratios []float64
		for i, base := range r.Cells[slices.Index(hotKinds, kind)].EachTurn {
			if base > 0 {
				ratios = append(ratios, turns[i]/base)
			}
		}
		return measure.Median(ratios)
	}
	for _, c := range r.Cells {
		c.PerSecond, c.Least, c.Most = measure.Median(c.EachTurn), slices.Min(c.EachTurn), slices.Max(c.EachTurn)
		c.BesideMS, c.Events = measure.Median(c.beside), measure.Median(c.events)
		c.OfMutex, c.OfNone = ratio(c.EachTurn, kindMutex), ratio(c.EachTurn, kindNone)
	}
}

func (h *hotBench) print(w io.Writer) {
	fmt.Fprintf(w, "%d workflows at a time, %d slots in a process; medians of %d turns of %g s, and their range\n\n", h.AtATime, h.Slots, h.Turns, h.Seconds)
	fmt.Fprintln(w, "processes\tresources\tkind\ta second\tfrom\tto\tof mutex\tof none\tevents\tan unrelated workflow\t")
	for _, row := range h.Rows {
		for _, c := range row.Cells {
			fmt.Fprintf(w, "%d\t%d\t%s\t%.1f\t%.1f\t%.1f\t%.2f\t%.2f\t%.1f\t%.0f ms, %.2f of alone\t\n",
				row.Processes, row.Resources, c.Kind, c.PerSecond, c.Least, c.Most, c.OfMutex, c.OfNone, c.Events, c.BesideMS, c.BesideMS/row.AloneMS)
		}
	}
}
