package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// HotReport is the result of bench hot: how many workflows of each kind end in a second.
type HotReport struct {
	// AtATime is the number of workflows that ran at the same time, on worker processes with Slots activities each. Each cell
	// was measured Turns times, for Seconds each time.
	AtATime int      `json:"atATime"`
	Slots   int      `json:"slots"`
	Turns   int      `json:"turns"`
	Seconds float64  `json:"seconds"`
	Rows    []HotRow `json:"rows"`
}

// HotRow has the results for a number of worker processes and of resources.
type HotRow struct {
	Processes int `json:"processes"`
	Resources int `json:"resources"`
	// AloneMS is the time of an unrelated workflow without a load, in milliseconds.
	AloneMS float64   `json:"aloneMs"`
	Cells   []HotCell `json:"cells"`
}

// HotCell has the results for one kind of workflows: medians over the turns.
type HotCell struct {
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

	// Events is the mean length of a history; one history in ten is read.
	Events float64 `json:"events"`
	// EachTurn has the workflows a second of each turn.
	EachTurn []float64 `json:"eachTurn"`

	beside, events []float64
}

func newHotRow(processes, resources int, alone float64) HotRow {
	row := HotRow{Processes: processes, Resources: resources, AloneMS: alone}
	for _, kind := range hotKinds {
		row.Cells = append(row.Cells, HotCell{Kind: kind})
	}
	return row
}

func (c *HotCell) add(m measured) {
	c.EachTurn, c.beside, c.events = append(c.EachTurn, m.perSecond), append(c.beside, m.beside), append(c.events, m.events)
}

func (r *HotRow) summarize() {
	mutex, none := r.eachTurn(kindMutex), r.eachTurn(kindNone)
	for i := range r.Cells {
		c := &r.Cells[i]
		c.PerSecond, c.Least, c.Most = median(c.EachTurn), slices.Min(c.EachTurn), slices.Max(c.EachTurn)
		c.BesideMS, c.Events = median(c.beside), median(c.events)
		c.OfMutex, c.OfNone = medianRatio(c.EachTurn, mutex), medianRatio(c.EachTurn, none)
	}
}

func (r *HotRow) eachTurn(kind string) []float64 {
	return r.Cells[slices.Index(hotKinds, kind)].EachTurn
}

// medianRatio returns the median of the ratios of two kinds in each turn.
func medianRatio(a, b []float64) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = ratio(a[i], b[i])
	}
	return median(ratios)
}

// ratio returns a divided by b, or 0 if b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v / float64(len(values))
	}
	return m
}

func (r HotReport) print(out io.Writer) error {
	fmt.Fprintf(out, "%d workflows at a time, %d slots in a process; medians of %d turns of %g s, and their range\n\n", r.AtATime, r.Slots, r.Turns, r.Seconds)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "processes\tresources\tkind\ta second\tfrom\tto\tof mutex\tof none\tevents\tan unrelated workflow\t")
	for _, row := range r.Rows {
		for _, c := range row.Cells {
			fmt.Fprintf(w, "%d\t%d\t%s\t%.1f\t%.1f\t%.1f\t%.2f\t%.2f\t%.1f\t%.0f ms, %.2f of alone\t\n",
				row.Processes, row.Resources, c.Kind, c.PerSecond, c.Least, c.Most, c.OfMutex, c.OfNone, c.Events, c.BesideMS, ratio(c.BesideMS, row.AloneMS))
		}
	}
	return w.Flush()
}
