package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
	"github.com/temporal-lockstep/lockstep/internal/tools/bench/mutexworkflow"
)

// hotBench compares ways to run one step at a time on a resource, for many workflows on few resources and on many. Its JSON is
// the report.
type hotBench struct {
	site   `json:"-"`
	client client.Client
	// each is the time for which a cell is measured, turns times.
	each  time.Duration
	turns int

	resources, processes []int
	// cells is the number of measurements so far. It makes the names of resources unique.
	cells int

	Rows []*hotRow `json:"rows"`
}

func runHot(ctx context.Context, args []string) (err error) {
	h := &hotBench{resources: []int{1, 10, 200}, processes: []int{1, 3}}
	flags := flag.NewFlagSet("bench hot", flag.ExitOnError)
	flags.IntVar(&h.turns, "turns", 3, "how often each cell is measured")
	flags.DurationVar(&h.each, "each", 10*time.Second, "how long each cell is measured")
	delay := flags.Duration("write-delay", 0, "how long answers of the database to writes are held back")
	flags.Func("resources", "how many resources the workflows share, such as 1,10,200", numbers(&h.resources))
	flags.Func("processes", "how many worker processes there are, such as 1,3", numbers(&h.processes))
	asJSON := parseFlags(flags, args)
	var drop func()
	if h.site, drop, err = newSite(ctx); err != nil {
		return err
	}
	defer drop()
	h.WriteDelay = *delay
	if h.client, err = h.dialTemporal(); err != nil {
		return err
	}
	defer h.client.Close()
	for _, n := range h.processes {
		if err := h.measureWith(ctx, n); err != nil {
			return err
		}
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

// measureWith starts n worker processes and measures all cells alternately.
func (h *hotBench) measureWith(ctx context.Context, n int) error {
	h.Queue = fmt.Sprintf("lockstep-bench-hot-%d", time.Now().UnixNano())
	stop, err := startWorkers(ctx, n, h.site)
	defer stop()
	if err != nil {
		return err
	}
	if _, err := h.measure(ctx, kindNone, 1, min(h.each, 3*time.Second)); err != nil { // warms up
		return err
	}
	var rows []*hotRow
	for _, resources := range h.resources {
		row := &hotRow{Processes: n, Resources: resources}
		for _, kind := range hotKinds {
			row.Cells = append(row.Cells, &hotCell{Kind: kind})
		}
		rows = append(rows, row)
	}
	for range h.turns {
		for _, row := range rows {
			for _, c := range row.Cells {
				ended, err := h.measure(ctx, c.Kind, row.Resources, h.each)
				if err != nil {
					return fmt.Errorf("%s, %d resources: %w", c.Kind, row.Resources, err)
				}
				c.EachTurn = append(c.EachTurn, float64(ended)/h.each.Seconds())
			}
		}
	}
	for _, row := range rows {
		for _, c := range row.Cells {
			c.PerSecond = measure.Median(c.EachTurn)
		}
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

	begun, ended atomic.Int64
}

const (
	// atATime is the number of workflows that run at the same time, and hotSlots the number of activities that a worker process runs at the
	// same time.
	atATime, hotSlots = 20, 100
	// drain bounds the time after the measurement in which workflows may end.
	drain = 20 * time.Second
)

// measure keeps atATime workflows running and counts the workflows that end within the time each. A warm-up of a fifth of that
// time is not counted.
func (h *hotBench) measure(ctx context.Context, kind string, resources int, each time.Duration) (ended int64, err error) {
	h.cells++
	begins := time.Now().Add(each / 5)
	c := &cell{hotBench: h, number: h.cells, resources: resources, kind: kind, begins: begins, ends: begins.Add(each)}
	g, groupCtx := errgroup.WithContext(ctx)
	for range atATime {
		g.Go(func() error { return c.load(groupCtx) })
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	if kind == kindMutex { // mutex workflows would wait a minute for further requests
		for n := range resources {
			if err := h.terminate(ctx, mutexworkflow.ID(c.resource(n)), ""); err != nil {
				return 0, err
			}
		}
	}
	return c.ended.Load(), nil
}

// load runs one workflow after the other.
func (c *cell) load(ctx context.Context) error {
	for time.Now().Before(c.ends) {
		n := int(c.begun.Add(1)) % c.resources
		if err := c.runOne(ctx, c.ends.Add(drain), hotStep{Kind: c.kind, Resource: c.resource(n)}); err != nil {
			return err
		}
		if now := time.Now(); now.After(c.begins) && now.Before(c.ends) {
			c.ended.Add(1)
		}
	}
	return nil
}

// resource returns the name of the n-th resource of the cell.
func (c *cell) resource(n int) string { return fmt.Sprintf("%s/%d/%d", c.Queue, c.number, n) }

// terminate ends a workflow, if it has not ended.
func (h *hotBench) terminate(ctx context.Context, id, runID string) error {
	err := h.client.TerminateWorkflow(ctx, id, runID, "the measurement is over")
	if gone := new(*serviceerror.NotFound); errors.As(err, gone) {
		return nil
	}
	return err
}

// runOne starts a workflow and waits for its end. It terminates the workflow if it does not end before the deadline.
func (h *hotBench) runOne(ctx context.Context, deadline time.Time, s hotStep) error {
	run, err := h.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: h.Queue}, hotWorkflow, s)
	if err != nil {
		return err
	}
	waiting, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	err = run.Get(waiting, nil)
	if ended := new(*temporal.WorkflowExecutionError); err == nil || errors.As(err, ended) {
		return err
	}
	// The server may end a call for a result shortly before the call's deadline.
	if time.Now().Before(deadline.Add(-time.Second)) {
		return err
	}
	for err != nil && ctx.Err() == nil && time.Now().Before(deadline.Add(time.Minute)) {
		if err = h.terminate(ctx, run.GetID(), run.GetRunID()); err != nil {
			_ = measure.Pause(ctx, time.Second)
		}
	}
	return err
}

// hotRow has the results for a number of worker processes and of resources.
type hotRow struct {
	Processes int        `json:"processes"`
	Resources int        `json:"resources"`
	Cells     []*hotCell `json:"cells"`
}

// hotCell has the results for one kind of workflows.
type hotCell struct {
	Kind string `json:"kind"`
	// PerSecond is the median of EachTurn, which has the workflows a second of each turn.
	PerSecond float64   `json:"perSecond"`
	EachTurn  []float64 `json:"eachTurn"`
}

// ratio returns the median of a cell's ratios to another kind in each turn. A ratio of one turn is not affected by what else the machine
// does during that turn.
func (r *hotRow) ratio(c *hotCell, kind string) float64 {
	var ratios []float64
	for i, base := range r.Cells[slices.Index(hotKinds, kind)].EachTurn {
		if base > 0 {
			ratios = append(ratios, c.EachTurn[i]/base)
		}
	}
	return measure.Median(ratios)
}

func (h *hotBench) print(w io.Writer) {
	fmt.Fprintf(w, "%d workflows at a time, %d slots in a process; medians of %d turns of %s, and their range\n\n", atATime, hotSlots, h.turns, h.each)
	fmt.Fprintln(w, "processes\tresources\tkind\ta second\tfrom\tto\tof mutex\tof none\t")
	for _, row := range h.Rows {
		for _, c := range row.Cells {
			fmt.Fprintf(w, "%d\t%d\t%s\t%.1f\t%.1f\t%.1f\t%.2f\t%.2f\t\n", row.Processes, row.Resources, c.Kind,
				c.PerSecond, slices.Min(c.EachTurn), slices.Max(c.EachTurn), row.ratio(c, kindMutex), row.ratio(c, kindNone))
		}
	}
}
