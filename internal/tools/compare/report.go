package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
)

// result is all that was measured of a system.
type result struct {
	name     string
	pairs    []pairResult
	handOffs []handOffResult
	fairs    []fairResult
	crowd    *crowdResult // nil if it was not measured
	faults   *faultResult // nil if they were not tried
}

// middle returns the median of a number of each turn.
func middle[T any](turns []T, of func(T) float64) float64 {
	values := make([]float64, len(turns))
	for i, t := range turns {
		values[i] = of(t)
	}
	return measure.Median(values)
}

func (r *result) handOff() float64 {
	return middle(r.handOffs, func(h handOffResult) float64 { return h.time })
}

func (r *result) requests() float64 {
	return middle(r.handOffs, func(h handOffResult) float64 { return h.requests })
}

func (r *result) longest() float64 {
	return middle(r.fairs, func(f fairResult) float64 { return f.longest })
}

// part is a table with a caption. The first row is the header.
type part struct {
	caption string
	rows    [][]string
}

// tables returns the results as text.
func tables(results []*result, sz sizes) []part {
	speed := part{fmt.Sprintf("One client, and hand-offs to %d waiters: medians of %d turns", sz.waiters, sz.turns), [][]string{
		{"system", "raw write, ms", "acquire and release, ms", "in raw writes", "hand-off, ms", "requests per cycle"}}}
	fair := part{fmt.Sprintf("%d clients that acquire again at once, for %s", sz.fair, sz.fairness), [][]string{
		{"system", "acquisitions a second", "median wait, ms", "longest wait, ms", "longest / median", "most and fewest of one client"}}}
	crowd := part{fmt.Sprintf("%d waiters", sz.crowded), [][]string{
		{"system", "while they wait: requests a second", "processor", "all had it after, s", "requests", "processor, s"}}}
	faults := part{fmt.Sprintf("The holder is killed or stopped, with a TTL of %s", faultTTL), [][]string{
		{"system", "killed: next holder after", "stopped: next holder after", "when it continues, it is told", "it asks", "its late write"}}}
	for _, r := range results {
		pair, raw := middle(r.pairs, func(p pairResult) float64 { return p.pair }), middle(r.pairs, func(p pairResult) float64 { return p.raw })
		ratio := middle(r.pairs, func(p pairResult) float64 { return p.pair / p.raw })
		speed.rows = append(speed.rows, []string{r.name, digits(raw), digits(pair), digits(ratio), digits(r.handOff()), digits(r.requests())})
		fair.rows = append(fair.rows, r.fairRow())
		if r.crowd != nil {
			crowd.rows = append(crowd.rows, r.crowd.row(r.name, sz))
		}
		if r.faults != nil {
			faults.rows = append(faults.rows, r.faults.row(r.name))
		}
	}
	return slices.DeleteFunc([]part{speed, fair, crowd, faults}, func(p part) bool { return len(p.rows) == 1 })
}

func (r *result) fairRow() []string {
	of := func(get func(fairResult) float64) float64 { return middle(r.fairs, get) }
	return []string{
		r.name, digits(of(func(f fairResult) float64 { return f.perSecond })), digits(of(func(f fairResult) float64 { return f.median })), digits(r.longest()),
		digits(of(func(f fairResult) float64 { return f.longest / f.median })),
		fmt.Sprintf("%.0f, %.0f", of(func(f fairResult) float64 { return float64(f.most) }), of(func(f fairResult) float64 { return float64(f.fewest) })),
	}
}

func (c *crowdResult) row(name string, sz sizes) []string {
	all := digits(c.seconds)
	if c.served < sz.crowded {
		all = fmt.Sprintf("%d of %d in %s", c.served, sz.crowded, sz.crowd)
	}
	idle, cpu := "unknown", "unknown"
	if c.cpu >= 0 {
		idle, cpu = fmt.Sprintf("%.0f %%", 100*c.idleCPU), digits(c.cpu)
	}
	return []string{name, digits(c.idleRequests), idle, all, fmt.Sprintf("%.0f", c.requests), cpu}
}

func (f *faultResult) row(name string) []string {
	after := func(d time.Duration) string {
		if d < 0 {
			return fmt.Sprintf("not within %s", patience)
		}
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	told, asks, write := "never", "it cannot", "accepted"
	if f.late.Told >= 0 {
		told = fmt.Sprintf("after %.0f ms", f.late.Told)
	}
	if f.late.CanCheck {
		asks = "held"
		if f.late.Check != "" {
			asks = "lost"
		}
	}
	if f.late.Write != "" {
		write = "refused"
	}
	if f.stopped < 0 && write == "accepted" {
		told, write = "it still holds the lock", "accepted, as it should be"
	}
	return []string{name, after(f.killed), after(f.stopped), told, asks, write}
}

// digits formats a number with three digits that mean something.
func digits(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// print writes tables for a terminal or in Markdown.
func print(w io.Writer, parts []part, markdown bool) error {
	for _, p := range parts {
		fmt.Fprintf(w, "\n%s\n\n", p.caption)
		if !markdown {
			if err := table.Write(w, p.rows...); err != nil {
				return err
			}
			continue
		}
		for i, row := range p.rows {
			fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				fmt.Fprintln(w, "|"+strings.Repeat(" --- |", len(row)))
			}
		}
	}
	return nil
}

// machine describes where and when the run took place.
func machine(versions []string) string {
	load, _ := os.ReadFile("/proc/loadavg") // the line is complete without it
	average, _, _ := strings.Cut(string(load), " ")
	return fmt.Sprintf("%s, %d processors, load average %s at the start, %s; %s",
		time.Now().UTC().Format("2006-01-02 15:04 UTC"), runtime.NumCPU(), average, runtime.Version(), strings.Join(versions, ", "))
}
