package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
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
	// WritesSent counts the write commands, WritesDone the ones that matched or inserted at least one document, Reads the commands
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

// report has the results of a run.
type report struct {
	Results []result
}

// majority is the delay of writes for which targets exist. A majority write took this long on a replica set of three.
const majority = 12 * time.Millisecond

// target is a figure with its lower or its upper limit; 0 if there is none.
type target struct {
	name               string
	value, least, most float64
}

// targets returns the targets that exist for the flags.
func (r report) targets(cfg config) (all []target) {
	for _, m := range r.Results {
		switch {
		case m.Slow:
			all = append(all, target{"the slow Locker's part of its fair share", m.SlowShare, 0.4, 0})
		case m.Lockers >= 10 && cfg.readDelay == 0 && cfg.writeDelay == 0:
			all = append(all, target{m.Name + ": wait p99, in medians", m.WaitP99MS / m.WaitP50MS, 0, 2})
		case cfg.readDelay == 0 && cfg.writeDelay == majority:
			all = append(all, target{m.Name + ": acquisitions a second", m.PerSecond, map[int]float64{1: 55, 3: 35, 10: 22}[m.Lockers], 0},
				target{m.Name + ": writes done per acquisition", m.WritesDone, 0, map[int]float64{1: 1.4, 10: 2.4}[m.Lockers]})
		}
	}
	return all
}

func (r report) print(out io.Writer, cfg config) error {
	fmt.Fprintf(out, "Lockers × goroutines each, on one exclusive resource; %s a case\n", cfg.each)
	fmt.Fprintf(out, "delays: writes %s, reads %s, all answers to the slow Locker %s\n\n", cfg.writeDelay, cfg.readDelay, cfg.slow)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "case\t"+columns)
	for _, m := range r.Results {
		fmt.Fprintf(w, "%s\t", m.Name)
		for _, figure := range m.list() {
			fmt.Fprintf(w, "%.2f\t", *figure)
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprint(out, "\nCommands are counted per acquisition. They include renewals and background work.\n")
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
