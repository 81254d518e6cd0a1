package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report holds the results of a run. Its JSON is read by other builds of this command: fields are only added.
type report struct {
	// Seconds is the time for which each case was measured.
	Seconds      float64 `json:"seconds"`
	WriteDelayMS float64 `json:"writeDelayMs"`
	ReadDelayMS  float64 `json:"readDelayMs"`
	SlowMS       float64 `json:"slowMs"`
	// Cases are the results of this build. With Against they are medians of the turns.
	Cases   []caseReport `json:"cases"`
	Targets []target     `json:"targets,omitempty"`
	// Against is the path of the other build, Other are its medians, and Ratios compare the acquisitions a second.
	Against string       `json:"against,omitempty"`
	Turns   int          `json:"turns,omitempty"`
	Other   []caseReport `json:"other,omitempty"`
	Ratios  []ratio      `json:"ratios,omitempty"`
}

// ratio compares the acquisitions a second of two builds: this build's divided by the other's.
type ratio struct {
	Name  string  `json:"name"`
	This  float64 `json:"this"`
	Other float64 `json:"other"`
	// EachTurn has the ratio of each turn, and Median the median of these.
	EachTurn []float64 `json:"eachTurn"`
	Median   float64   `json:"median"`
}

// target is a figure and its limit.
type target struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// Least is the lower limit, and Most the upper one; 0 if there is none.
	Least float64 `json:"least,omitempty"`
	Most  float64 `json:"most,omitempty"`
}

func (t target) missed() bool { return t.Value < t.Least || t.Most > 0 && t.Value > t.Most }

func (t target) limit() string {
	if t.Most > 0 {
		return fmt.Sprintf("at most %.2f", t.Most)
	}
	return fmt.Sprintf("at least %.2f", t.Least)
}

// majority is the delay of writes for which targets exist. A majority write took this long on a replica set of three.
const majority = 12 * time.Millisecond

// targets returns the targets of one build, of which some exist only for certain flags.
func targets(cfg config, c caseReport) (all []target) {
	if c.Slow {
		return []target{{Name: c.Name + ": the slow Locker's part of its fair share", Value: c.SlowShare, Least: 0.5}}
	}
	if cfg.writeDelay != majority || cfg.readDelay != 0 {
		return nil
	}
	if least := map[int]float64{1: 55, 3: 35, 10: 22}[c.Lockers]; least > 0 {
		all = append(all, target{Name: c.Name + ": acquisitions a second", Value: c.PerSecond, Least: least})
	}
	if most := map[int]float64{1: 1.4, 10: 2.4}[c.Lockers]; most > 0 {
		all = append(all, target{Name: c.Name + ": writes done per acquisition", Value: c.WritesDone, Most: most})
	}
	return all
}

// ratioTargets returns the targets of a comparison with the build before compare-and-set (commit 75178ef).
func ratioTargets(cfg config, c benchCase, median float64) []target {
	least := map[int]float64{1: 1.4, 3: 1.8, 10: 1.6}[c.Lockers]
	if c.Slow || least == 0 || cfg.writeDelay != 0 || cfg.readDelay != 0 {
		return nil
	}
	return []target{{Name: c.Name + ": ratio, if the other build is 75178ef", Value: median, Least: least}}
}

func newReport(cfg config) report {
	return report{
		Seconds: cfg.each.Seconds(), WriteDelayMS: millis(cfg.writeDelay), ReadDelayMS: millis(cfg.readDelay), SlowMS: millis(cfg.slow),
	}
}

func (r report) print(out io.Writer) error {
	fmt.Fprintf(out, "Lockers × goroutines each, on one exclusive resource; %g s a case", r.Seconds)
	if r.Against != "" {
		fmt.Fprintf(out, ", medians of %d turns", r.Turns)
	}
	for _, d := range []struct {
		of string
		ms float64
	}{{"writes", r.WriteDelayMS}, {"reads", r.ReadDelayMS}, {"all answers to the slow Locker", r.SlowMS}} {
		if d.ms > 0 {
			fmt.Fprintf(out, ", %s delayed by %g ms", d.of, d.ms)
		}
	}
	fmt.Fprint(out, "\n\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "build\tcase\ta second\twait p50 ms\tp99 ms\twrites sent\tdone\treads\tfailed\tslow's share\t")
	r.printCases(w, "this", r.Cases)
	r.printCases(w, "other", r.Other)
	if len(r.Ratios) > 0 {
		fmt.Fprintln(w, "\t\t\t\t\t\t\t\t\t\t")
		fmt.Fprintln(w, "acquisitions\tcase\tthis\tother\tratio\teach turn\t\t\t\t\t")
		for _, x := range r.Ratios {
			var turns []string
			for _, v := range x.EachTurn {
				turns = append(turns, fmt.Sprintf("%.2f", v))
			}
			fmt.Fprintf(w, "a second\t%s\t%.1f\t%.1f\t%.2f\t%s\t\t\t\t\t\n", x.Name, x.This, x.Other, x.Median, strings.Join(turns, " "))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprint(out, "\nCommands are counted per acquisition. They include renewals and background work.\n")
	if len(r.Targets) == 0 {
		return nil
	}
	fmt.Fprint(out, "\n")
	fmt.Fprintln(w, "target\tvalue\tlimit\t\t")
	for _, t := range r.Targets {
		verdict := ""
		if t.missed() {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%s\t%.2f\t%s\t%s\t\n", t.Name, t.Value, t.limit(), verdict)
	}
	return w.Flush()
}

func (r report) printCases(w io.Writer, build string, cases []caseReport) {
	for _, c := range cases {
		share := ""
		if c.Slow {
			share = fmt.Sprintf("%.2f", c.SlowShare)
		}
		fmt.Fprintf(w, "%s\t%s\t%.1f\t%.1f\t%.1f\t%.2f\t%.2f\t%.2f\t%.2f\t%s\t\n",
			build, c.Name, c.PerSecond, c.WaitP50MS, c.WaitP99MS, c.WritesSent, c.WritesDone, c.Reads, c.Failed, share)
	}
}

// medians returns a report with the median of each figure.
func medians(turns []caseReport) caseReport {
	m := caseReport{benchCase: turns[0].benchCase}
	for _, figure := range []func(*caseReport) *float64{
		func(c *caseReport) *float64 { return &c.PerSecond },
		func(c *caseReport) *float64 { return &c.WaitP50MS },
		func(c *caseReport) *float64 { return &c.WaitP99MS },
		func(c *caseReport) *float64 { return &c.WritesSent },
		func(c *caseReport) *float64 { return &c.WritesDone },
		func(c *caseReport) *float64 { return &c.Reads },
		func(c *caseReport) *float64 { return &c.Failed },
		func(c *caseReport) *float64 { return &c.SlowShare },
	} {
		var values []float64
		for i := range turns {
			values = append(values, *figure(&turns[i]))
		}
		*figure(&m) = median(values)
	}
	return m
}

// median returns the middle value, or the mean of the two in the middle.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
