package main

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// panel is a bar for each system, on a logarithmic scale.
type panel struct {
	title string
	of    func(*result) float64
}

var panels = []panel{
	{"hand-off, ms", (*result).handOff},
	{"requests per cycle", (*result).requests},
	{"longest wait, ms", (*result).longest},
}

// Measures of the chart, in its own units.
const (
	labels, panelWidth, barWidth = 170, 236, 150
	top, rowHeight, barHeight    = 62, 28, 16
)

// drawChart writes the chart as SVG. Its colours follow the reader's theme.
func drawChart(w io.Writer, results []*result) error {
	width, height := labels+panelWidth*len(panels), top+rowHeight*len(results)+16
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif" font-size="13">
  <title>Hand-off times, requests per cycle and longest waits of each system, on logarithmic scales. Shorter is better. The tables of the page have the numbers.</title>
  <style>
    text { fill: #1f2328 } .dim { fill: #59636e } .bar { fill: #818b98 } .own { fill: #0969da }
    @media (prefers-color-scheme: dark) { text { fill: #f0f6fc } .dim { fill: #9198a1 } .bar { fill: #656c76 } .own { fill: #4493f8 } }
  </style>
  <text class="dim" x="16" y="24">shorter is better; logarithmic scales</text>
`, width, height)
	for row, r := range results {
		fmt.Fprintf(&b, "  <text x=\"16\" y=\"%d\">%s</text>\n", top+rowHeight*row+barHeight-3, html.EscapeString(r.name))
	}
	for n, p := range panels {
		left := labels + panelWidth*n
		fmt.Fprintf(&b, "  <text x=\"%d\" y=\"%d\" font-weight=\"600\">%s</text>\n", left, top-12, p.title)
		shares := logarithmic(results, p.of)
		for row, r := range results {
			class, y, long := "bar", top+rowHeight*row, shares[row]*barWidth
			if strings.HasPrefix(r.name, "Lockstep") {
				class = "own"
			}
			fmt.Fprintf(&b, "  <rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>\n", class, left, y, long, barHeight)
			fmt.Fprintf(&b, "  <text class=\"dim\" x=\"%.1f\" y=\"%d\">%s</text>\n", float64(left)+long+6, y+barHeight-3, digits(p.of(r)))
		}
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// logarithmic returns the length of each bar as a share of the longest. A bar of the smallest value is not empty.
func logarithmic(results []*result, of func(*result) float64) []float64 {
	logs := make([]float64, len(results))
	least, most := math.Inf(1), math.Inf(-1)
	for i, r := range results {
		logs[i] = math.Log10(max(of(r), 1e-3))
		least, most = min(least, logs[i]), max(most, logs[i])
	}
	least = math.Floor(least*2)/2 - 0.25
	for i := range logs {
		logs[i] = (logs[i] - least) / (most - least)
	}
	return logs
}
