package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// waitCase is a number of workflows that wait for as many resources.
type waitCase struct{ waiters, resources int }

// WaitReport is what bench wait found: what it costs that workflows wait for long.
type WaitReport struct {
	Seconds float64   `json:"seconds"`
	Rows    []WaitRow `json:"rows"`
}

// WaitRow is one case. What is not said to be of an hour was measured.
type WaitRow struct {
	Waiters   int `json:"waiters"`
	Resources int `json:"resources"`
	// Attempts are those of the waiting activity since the request queued, the mean, and AnHour what
	// they come to in the first hour: from 10 min on there is one every 10 min.
	Attempts float64 `json:"attempts"`
	AnHour   float64 `json:"anHour"`
	// Commands are those of the worker's database client a second, and Busy the part of the time that
	// the database worked on them, if it works on one at a time. BusyLater is that of the second half.
	Commands  float64 `json:"commandsPerSecond"`
	Busy      float64 `json:"busy"`
	BusyLater float64 `json:"busyLater"`
	// Events and Bytes are a history's at the end, the mean.
	Events float64 `json:"events"`
	Bytes  float64 `json:"bytes"`
}

// mostAttempts and mostBusy are what the project holds itself to: in an hour, and of the time for
// 1,000 waiters on as many resources.
const (
	mostAttempts = 12
	mostBusy     = 0.02
)

// runWait measures what workflows cost that wait, and are not let in.
func runWait(ctx context.Context, args []string, out io.Writer, env func(string) string) error {
	flags := flag.NewFlagSet("bench wait", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	asJSON := flags.Bool("json", false, "print JSON")
	last := flags.Duration("for", 10*time.Minute, "how long all of them wait, 1m to 1h")
	list := flags.String("cases", "1x1,100x1,2000x1,1000x1000", "waiters and resources, 1 to 2000 of each")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if *last < time.Minute || *last > time.Hour {
		return fmt.Errorf("%w: --for %s is not from 1m to 1h", errUsage, *last)
	}
	var cases []waitCase
	for text := range strings.SplitSeq(*list, ",") {
		waiters, resources, _ := strings.Cut(text, "x")
		c := waitCase{}
		c.waiters, _ = strconv.Atoi(waiters)
		c.resources, _ = strconv.Atoi(resources)
		if c.waiters < 1 || c.waiters > 2000 || c.resources < 1 || c.resources > c.waiters {
			return fmt.Errorf("%w: --cases %q is not a list like 100x1: 1 to 2000 waiters, on so many resources or fewer", errUsage, *list)
		}
		cases = append(cases, c)
	}
	if err := present(env, "LOCKSTEP_MONGODB_URI", "TEMPORAL_ADDRESS"); err != nil {
		return err
	}
	report := WaitReport{Seconds: last.Seconds()}
	for _, c := range cases {
		row, err := c.measure(ctx, temporalConfig{uri: env("LOCKSTEP_MONGODB_URI"), address: env("TEMPORAL_ADDRESS")}, *last)
		if err != nil {
			return fmt.Errorf("%d waiters on %d resources: %w", c.waiters, c.resources, err)
		}
		report.Rows = append(report.Rows, row)
	}
	if *asJSON {
		return tell(out, Report{Wait: &report}, true)
	}
	return report.print(out)
}

func (c waitCase) measure(ctx context.Context, cfg temporalConfig, last time.Duration) (row WaitRow, err error) {
	b, stop, err := startTemporal(ctx, cfg)
	if err != nil {
		return row, err
	}
	defer stop()
	name := func(i int) string { return fmt.Sprint("wait/", i%c.resources) }
	for i := range c.resources { // held by a value: nothing renews it
		req := party.Request{LockID: "bench", Resources: []lockcore.Resource{lockcore.Exclusive(name(i))}, TTL: 2 * time.Hour}
		if _, err := b.locker.Core().Enter(ctx, req, false); err != nil {
			return row, err
		}
	}
	began := time.Now()
	runs, err := b.park(ctx, c.waiters, name)
	defer b.terminate(ctx, runs)
	if err != nil {
		return row, err
	}
	serial, commands := [3]int64{b.serial.Load()}, b.commands.Load()
	for half := range 2 {
		if err := pause(ctx, last/2); err != nil {
			return row, err
		}
		serial[half+1] = b.serial.Load()
	}
	row = WaitRow{
		Waiters: c.waiters, Resources: c.resources, Commands: float64(b.commands.Load()-commands) / last.Seconds(),
		Busy: float64(serial[2]-serial[0]) / float64(last), BusyLater: float64(serial[2]-serial[1]) / float64(last/2),
	}
	for _, run := range runs {
		d, err := b.client.DescribeWorkflowExecution(ctx, run.GetID(), run.GetRunID())
		if err != nil {
			return row, err
		}
		for _, p := range d.GetPendingActivities() {
			row.Attempts += float64(p.GetAttempt()-1) / float64(c.waiters) // the last is to come
		}
		row.Events += float64(d.GetWorkflowExecutionInfo().GetHistoryLength()) / float64(c.waiters)
		row.Bytes += float64(d.GetWorkflowExecutionInfo().GetHistorySizeBytes()) / float64(c.waiters)
	}
	row.AnHour = row.Attempts + later(time.Since(began))
	return row, nil
}

// later is how many attempts there are from then on in the first hour: see lockcore's Recheck.
func later(waited time.Duration) (n float64) {
	for ; waited < time.Hour; n++ {
		waited += min(max(waited, 20*time.Second), 10*time.Minute)
	}
	return n
}

// terminate ends workflows, also after the context has ended.
func (b *temporalBench) terminate(ctx context.Context, runs []client.WorkflowRun) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(20)
	for _, run := range runs {
		if run != nil {
			g.Go(func() error {
				return b.client.TerminateWorkflow(ctx, run.GetID(), run.GetRunID(), "the measurement is over")
			})
		}
	}
	_ = g.Wait()
}

func (r WaitReport) print(out io.Writer) error {
	fmt.Fprintf(out, "all wait for %s\n\n", time.Duration(r.Seconds*float64(time.Second)))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "waiters\tresources\tattempts\tan hour\tlimit\tcommands/s\tdatabase busy\tsecond half\tlimit\tevents\tbytes of history\t")
	for _, row := range r.Rows {
		limit := ""
		if row.Waiters == 1000 && row.Resources == 1000 {
			limit = fmt.Sprint(mostBusy)
		}
		fmt.Fprintf(w, "%d\t%d\t%.1f\t%.1f\t%d\t%.2f\t%.4f\t%.4f\t%s\t%.0f\t%.0f\t\n", row.Waiters, row.Resources, row.Attempts, row.AnHour, mostAttempts,
			row.Commands, row.Busy, row.BusyLater, limit, row.Events, row.Bytes)
	}
	return w.Flush()
}
