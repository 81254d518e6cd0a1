package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
)

// result is the result of one case.
type result struct {
	benchCase
	figures
}

// figures are numbers of commands per acquisition, including renewals and background work, and others.
type figures struct {
	// PerSecond is the number of acquisitions a second, and WaitP50MS and WaitP99MS are percentiles of the time in Acquire.
	PerSecond, WaitP50MS, WaitP99MS float64
	// WritesSent counts the write commands, WritesDone those that matched or inserted at least one document, Reads the commands
	// that read documents, and Failed the commands of any kind that ended in an error.
	WritesSent, WritesDone, Reads, Failed float64
	// SlowShare is the number of the slow Locker's acquisitions, divided by the mean of all Lockers.
	SlowShare float64
}

// columns are the titles of figures.list.
const columns = "a second\twait p50 ms\tp99 ms\twrites sent\tdone\treads\tfailed\tslow's share\t"

func (f *figures) list() []*float64 {
	return []*float64{&f.PerSecond, &f.WaitP50MS, &f.WaitP99MS, &f.WritesSent, &f.WritesDone, &f.Reads, &f.Failed, &f.SlowShare}
}

// medians returns the median of each figure.
func medians(turns []result) result {
	m := result{benchCase: turns[0].benchCase}
	for i, figure := range m.list() {
		var values []float64
		for t := range turns {
			values = append(values, *turns[t].list()[i])
		}
		*figure = measure.Median(values)
	}
	return m
}

// report has the results of a run. With Against they are medians of the turns.
type report struct {
	Results []result
	// Other has the results of the other build, and Ratios this build's acquisitions divided by the other's, in each turn.
	Other  []result
	Ratios [][]float64
}

// compare runs this build and another one alternately, as child processes. In each turn both builds measure each case, one
// right after the other, because the speed of a shared machine changes from minute to minute. In every second turn the
// other build is first.
func compare(ctx context.Context, cfg config, progress io.Writer) (r report, err error) {
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	paths := [2]string{self, cfg.against}
	turns := make([][2][]result, len(cfg.cases)) // of each case, by build
	ratios := make([][]float64, len(cfg.cases))
	for turn := range cfg.turns {
		for i, c := range cfg.cases {
			var rates [2]float64
			for n := range paths {
				build := (turn + n) % 2
				m, err := runChild(ctx, cfg, paths[build], c)
				if err != nil {
					return r, fmt.Errorf("%s: %s: %w", paths[build], c.Name, err)
				}
				turns[i][build] = append(turns[i][build], m)
				rates[build] = m.PerSecond
			}
			ratios[i] = append(ratios[i], rates[0]/rates[1])
			fmt.Fprintf(progress, "turn %d of %d, %s: this build %.1f a second, the other %.1f\n", turn+1, cfg.turns, c.Name, rates[0], rates[1])
		}
	}
	for _, builds := range turns {
		r.Results, r.Other = append(r.Results, medians(builds[0])), append(r.Other, medians(builds[1]))
	}
	r.Ratios = ratios
	return r, nil
}

// runChild lets one build measure one case. If ctx ends, the child is interrupted, and drops its database.
func runChild(ctx context.Context, cfg config, path string, c benchCase) (m result, err error) {
	args := []string{"--json", "--each", cfg.each.String(), "--write-delay", cfg.writeDelay.String(), "--read-delay", cfg.readDelay.String()}
	if c.Slow {
		args = append(args, "--slow", cfg.slow.String())
	} else {
		args = append(args, "--lockers", strconv.Itoa(c.Lockers))
	}
	child := exec.CommandContext(ctx, path, args...) //nolint:gosec // builds of this command, named by the user
	child.Cancel = func() error { return child.Process.Signal(os.Interrupt) }
	child.WaitDelay = cleanup + 5*time.Second
	var stderr bytes.Buffer
	child.Stderr = &stderr
	out, err := child.Output()
	if err != nil {
		return m, fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		return m, fmt.Errorf("read its report: %w", err)
	}
	if len(r.Results) != 1 || r.Results[0].benchCase != c {
		return m, fmt.Errorf("its report has other cases than the one asked for: %+v", r.Results)
	}
	return r.Results[0], nil
}

// majority is the delay of writes for which targets exist. A majority write took this long on a replica set of three.
const majority = 12 * time.Millisecond

// target is a figure with its lower or its upper limit; 0 if there is none.
type target struct {
	name               string
	value, least, most float64
}

// targets returns the targets that exist for the flags. Those of a ratio are for the last build before compare-and-set.
func (r report) targets(cfg config) (all []target) {
	for i, m := range r.Results {
		switch {
		case m.Slow:
			all = append(all, target{"the slow Locker's part of its fair share", m.SlowShare, 0.5, 0})
		case cfg.readDelay == 0 && cfg.writeDelay == majority:
			all = append(all, target{m.Name + ": acquisitions a second", m.PerSecond, map[int]float64{1: 55, 3: 35, 10: 22}[m.Lockers], 0},
				target{m.Name + ": writes done per acquisition", m.WritesDone, 0, map[int]float64{1: 1.4, 10: 2.4}[m.Lockers]})
		case cfg.readDelay == 0 && cfg.writeDelay == 0 && i < len(r.Ratios):
			least := map[int]float64{1: 1.4, 3: 1.8, 10: 1.6}[m.Lockers]
			all = append(all, target{m.Name + ": ratio, if the other build is 75178ef", measure.Median(r.Ratios[i]), least, 0})
		}
	}
	return all
}

func (r report) print(out io.Writer, cfg config) error {
	fmt.Fprintf(out, "Lockers × goroutines each, on one exclusive resource; %s a case, medians of %d turns with --against\n", cfg.each, cfg.turns)
	fmt.Fprintf(out, "delays: writes %s, reads %s, all answers to the slow Locker %s\n\n", cfg.writeDelay, cfg.readDelay, cfg.slow)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "build\tcase\t"+columns)
	for _, build := range []struct {
		name    string
		results []result
	}{{"this", r.Results}, {"other", r.Other}} {
		for _, m := range build.results {
			fmt.Fprintf(w, "%s\t%s\t", build.name, m.Name)
			for _, figure := range m.list() {
				fmt.Fprintf(w, "%.2f\t", *figure)
			}
			fmt.Fprintln(w)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprint(out, "\nCommands are counted per acquisition. They include renewals and background work.\n")
	for i, turns := range r.Ratios {
		fmt.Fprintf(out, "%s: ratio of acquisitions a second %.2f, in each turn %.2f\n", r.Results[i].Name, measure.Median(turns), turns)
	}
	for _, t := range r.targets(cfg) {
		switch {
		case t.value < t.least:
			fmt.Fprintf(out, "MISSED %s: %.2f, want at least %g\n", t.name, t.value, t.least)
		case t.most > 0 && t.value > t.most:
			fmt.Fprintf(out, "MISSED %s: %.2f, want at most %g\n", t.name, t.value, t.most)
		case t.least > 0 || t.most > 0:
			fmt.Fprintf(out, "met    %s: %.2f\n", t.name, t.value)
		}
	}
	return nil
}
