package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// HotReport is what bench hot found: how many workflows of each kind end in a second.
type HotReport struct {
	// AtATime workflows were under way, on worker processes with so many Slots each. Each cell was measured for so many Seconds, in
	// so many Turns.
	AtATime int      `json:"atATime"`
	Slots   int      `json:"slots"`
	Turns   int      `json:"turns"`
	Seconds float64  `json:"seconds"`
	Rows    []HotRow `json:"rows"`
}

// HotRow is a number of worker processes and of resources.
type HotRow struct {
	Processes int `json:"processes"`
	Resources int `json:"resources"`
	// AloneMS is how long an unrelated workflow takes without a load, in milliseconds.
	AloneMS float64   `json:"aloneMs"`
	Cells   []HotCell `json:"cells"`
}

// HotCell is a kind of workflows: the medians of the turns, and how far the turns are apart.
type HotCell struct {
	Kind      string  `json:"kind"`
	PerSecond float64 `json:"perSecond"`
	Least     float64 `json:"least"`
	Most      float64 `json:"most"`
	// OfMutex and OfNone are the medians of the turns' quotients with mutex workflows and with no locks: what a turn has in common,
	// such as what else the machine does, goes out.
	OfMutex float64 `json:"ofMutex"`
	OfNone  float64 `json:"ofNone"`
	// BesideMS is how long an unrelated workflow takes on the same workers, in milliseconds.
	BesideMS float64 `json:"besideMs"`

	// Events is the length of a history, the mean of one in ten.
	Events float64 `json:"events"`
	// EachTurn is PerSecond turn by turn.
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

func (r *HotRow) cell(kind string) *HotCell {
	return &r.Cells[slices.IndexFunc(r.Cells, func(c HotCell) bool { return c.Kind == kind })]
}

func (r *HotRow) sum() {
	for i := range r.Cells {
		c := &r.Cells[i]
		c.PerSecond, c.Least, c.Most, c.BesideMS = median(c.EachTurn), slices.Min(c.EachTurn), slices.Max(c.EachTurn), median(c.beside)
		c.Events = median(c.events)
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		c.OfMutex, c.OfNone = medianOver(c.EachTurn, r.cell(kindMutex).EachTurn), medianOver(c.EachTurn, r.cell(kindNone).EachTurn)
	}
}

// medianOver is the median of the quotients of two kinds, turn by turn.
func medianOver(a, b []float64) float64 {
	quotients := make([]float64, len(a))
	for i := range a {
		quotients[i] = over(a[i], b[i])
	}
	return median(quotients)
}

// over is a quotient, or 0 if there is none.
func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func (r HotReport) print(out io.Writer) error {
	fmt.Fprintf(out, "%d workflows under way, %d slots a process; medians of %d turns of %g s, and their range\n\n", r.AtATime, r.Slots, r.Turns, r.Seconds)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "processes\tresources\tkind\ta second\tfrom\tto\tof mutex\tof none\tevents\tan unrelated workflow\t")
	for _, row := range r.Rows {
		for _, c := range row.Cells {
			fmt.Fprintf(w, "%d\t%d\t%s\t%.1f\t%.1f\t%.1f\t%.2f\t%.2f\t%.1f\t%.0f ms, %.2f of alone\t\n",
				row.Processes, row.Resources, c.Kind, c.PerSecond, c.Least, c.Most, c.OfMutex, c.OfNone, c.Events, c.BesideMS, over(c.BesideMS, row.AloneMS))
		}
	}
	return w.Flush()
}

// chart draws a bar for each cell, and its range as a line.
func (r HotReport) chart() []byte {
	const left, bar, gap, width, right = 250, 18, 26, 520, 190
	most := 0.0
	for _, row := range r.Rows {
		for _, c := range row.Cells {
			most = max(most, c.Most)
		}
	}
	colors := []string{"#9aa0a6", "#5f6368", "#c5221f", "#f29900", "#1a73e8", "#188038"}
	height := gap
	var bars bytes.Buffer
	label := func(x, y int, anchor, text string) {
		fmt.Fprintf(&bars, `<text x="%d" y="%d" text-anchor="%s">`, x, y, anchor)
		_ = xml.EscapeText(&bars, []byte(text))
		bars.WriteString("</text>\n")
	}
	for _, row := range r.Rows {
		label(left-150, height+3*bar, "end", fmt.Sprintf("%d × process", row.Processes))
		label(left-150, height+4*bar, "end", fmt.Sprintf("%d × resource", row.Resources))
		for k, c := range row.Cells {
			at := func(v float64) int { return left + int(width*over(v, most)) }
			fmt.Fprintf(&bars, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n", left, height+2, max(1, at(c.PerSecond)-left), bar-4, colors[k])
			fmt.Fprintf(&bars, `<path d="M%d %dH%d" stroke="#202124"/>`+"\n", at(c.Least), height+bar/2, at(c.Most))
			label(left-8, height+bar-4, "end", c.Kind)
			label(at(c.Most)+8, height+bar-4, "start", fmt.Sprintf("%.1f/s, %.1f × mutex", c.PerSecond, c.OfMutex))
			height += bar
		}
		height += gap
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", left+width+right, height)
	out.WriteString(`<rect width="100%" height="100%" fill="#fff"/>` + "\n")
	out.Write(bars.Bytes())
	out.WriteString("</svg>\n")
	return out.Bytes()
}
