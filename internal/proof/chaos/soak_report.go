package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// windows is the number of equal parts into which a soak is divided. In a soak of 30 minutes each is a minute.
const windows = 30

// growth is the share of its level by which a gauge may grow during the second half of a soak, if that is more than its least.
const growth = 0.1

// soak has the samples and the load of a soak.
type soak struct {
	long    time.Duration
	began   int64
	samples []Sample // of the load, in the order of time
	// whole are the processes that lived from the first window to the last, in the order of their names.
	whole  []string
	load   [windows]windowLoad
	faults []int64
}

// windowLoad is the load of one window.
type windowLoad struct {
	// operations and sagas a second.
	operations, sagas float64
	// median and p99 are the time of an acquire and a release of a free resource, in ms.
	median, p99 float64
}

func newSoak(story *story, samples []Sample, long time.Duration) *soak {
	s := &soak{long: long, began: story.began}
	var took [windows][]float64
	each := long.Seconds() / windows
	for i := range story.records {
		r := &story.records[i]
		w, ok := s.window(r.At)
		if !ok {
			continue
		}
		switch {
		case r.What == Closed:
			s.load[w].sagas += 1 / each
		case r.isOperation():
			s.load[w].operations += 1 / each
			if r.What == Probe && r.Result == done {
				took[w] = append(took[w], float64(r.At-r.Began)/1e6)
			}
		case r.What == Acted:
			s.faults = append(s.faults, r.At)
		}
	}
	for w := range took {
		slices.Sort(took[w])
		if n := len(took[w]); n > 0 {
			s.load[w].median, s.load[w].p99 = took[w][n/2], took[w][n*99/100]
		}
	}
	first, last := map[string]int{}, map[string]int{}
	for _, x := range samples {
		w, ok := s.window(x.At)
		if !ok {
			continue
		}
		s.samples = append(s.samples, x)
		if _, known := first[x.Process]; !known {
			first[x.Process] = w
		}
		last[x.Process] = max(last[x.Process], w)
	}
	for name := range first {
		if first[name] == 0 && last[name] == windows-1 {
			s.whole = append(s.whole, name)
		}
	}
	slices.Sort(s.whole)
	slices.SortStableFunc(s.samples, func(a, b Sample) int { return int(a.At - b.At) })
	return s
}

// window returns the window of a time, if it is in the load.
func (s *soak) window(at int64) (w int, ok bool) {
	w = int(math.Floor(float64(at-s.began) / float64(s.long) * windows))
	return w, w >= 0 && w < windows
}

// medians returns a gauge of a process in each window: the median of its samples, or NaN without any.
func (s *soak) medians(process string, gauge int) (values [windows]float64) {
	var all [windows][]float64
	for _, x := range s.samples {
		if w, ok := s.window(x.At); ok && x.Process == process {
			all[w] = append(all[w], x.Values[gauge])
		}
	}
	for w := range all {
		values[w] = median(all[w])
	}
	return values
}

// rise fits a line through the values of the second half: its slope is the median of the slopes between any two values, so that
// an outage does not bend it. It returns by how much the line rises during that half, and the median of the values.
func rise(values [windows]float64) (rises, level float64) {
	var slopes, levels []float64
	for w := windows / 2; w < windows; w++ {
		if math.IsNaN(values[w]) {
			continue
		}
		levels = append(levels, values[w])
		for earlier := windows / 2; earlier < w; earlier++ {
			if !math.IsNaN(values[earlier]) {
				slopes = append(slopes, (values[w]-values[earlier])/float64(w-earlier))
			}
		}
	}
	return median(slopes) * windows / 2, median(levels)
}

// median returns the middle value, or NaN of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// verdict judges each gauge by the process in which it comes closest to its bound or exceeds it most.
func (s *soak) verdict() (text string, flat bool) {
	var b strings.Builder
	flat = len(s.whole) >= slots-2 // the nemesis kills in two slots only, and not in both in a short soak
	fmt.Fprintf(&b, "%d processes lived through the whole soak. Rise of a line through the second half of their medians:\n", len(s.whole))
	for g, gauge := range gauges {
		worst, line := math.Inf(-1), ""
		for _, process := range s.whole {
			rises, level := rise(s.medians(process, g))
			bound := max(gauge.least, level*growth)
			if over := rises - bound; !(over <= worst) { // also if it is not a number
				worst = over
				line = fmt.Sprintf("%s: %+.2f at a level of %.1f in %s; the bound is %.1f", gauge.name, rises, level, process, bound)
			}
		}
		word := "flat "
		if !(worst <= 0) {
			word, flat = "GROWS", false
		}
		fmt.Fprintf(&b, "  %s %s\n", word, line)
	}
	return b.String(), flat
}

// table returns the load of each window.
func (s *soak) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "from, s  operations/s  sagas/s  acquire + release of a free resource: median, ms  p99, ms\n")
	for w, l := range s.load {
		fmt.Fprintf(&b, "%7.0f  %12.1f  %7.2f  %48.1f  %7.1f\n", s.long.Seconds()/windows*float64(w), l.operations, l.sagas, l.median, l.p99)
	}
	return b.String()
}

// Sizes of the chart. A panel has its title above the curves.
const (
	chartWide, panelHigh, curvesHigh, chartLeft = 900, 150, 100, 60
)

var colours = []string{"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f"}

// svg draws a panel for each gauge, with a curve for each process that lived all the time, and panels of the load. The marks at
// the top are the faults.
func (s *soak) svg() string {
	var b strings.Builder
	panels := len(gauges) + 2
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", chartWide, panels*panelHigh+30)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	for _, at := range s.faults {
		x := chartLeft + float64(at-s.began)/float64(s.long)*(chartWide-2*chartLeft)
		fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="4" y2="14" stroke="#d62728"/>`+"\n", x, x)
	}
	for g, gauge := range gauges {
		var curves [][windows]float64
		for _, process := range s.whole {
			curves = append(curves, s.medians(process, g))
		}
		s.panel(&b, g, gauge.name+": median of each window, one line for each process ("+strings.Join(s.whole, ", ")+")", curves)
	}
	var operations, median, p99 [windows]float64
	for w, l := range s.load {
		operations[w], median[w], p99[w] = l.operations, l.median, l.p99
	}
	s.panel(&b, len(gauges), "operations a second", [][windows]float64{operations})
	s.panel(&b, len(gauges)+1, "acquire + release of a free resource, ms: median, 99th percentile", [][windows]float64{median, p99})
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s; red marks: faults</text>`+"\n</svg>\n", chartWide-chartLeft, panels*panelHigh+20, s.long)
	return b.String()
}

// panel draws curves over the windows, from 0 to their greatest value.
func (s *soak) panel(b *strings.Builder, number int, title string, curves [][windows]float64) {
	top := float64(number*panelHigh + 40)
	most := 0.0
	for _, c := range curves {
		for _, v := range c {
			if v > most { // a window without a value has none
				most = v
			}
		}
	}
	fmt.Fprintf(b, `<text x="%d" y="%.0f">%s</text><text x="%d" y="%.0f" text-anchor="end">%.4g</text><text x="%d" y="%.0f" text-anchor="end">0</text>`+"\n",
		chartLeft, top-8, title, chartLeft-6, top+8, most, chartLeft-6, top+curvesHigh)
	fmt.Fprintf(b, `<rect x="%d" y="%.0f" width="%d" height="%d" fill="none" stroke="#ccc"/>`+"\n", chartLeft, top, chartWide-2*chartLeft, curvesHigh)
	for i, c := range curves {
		var points []string
		for w, v := range c {
			if !math.IsNaN(v) {
				points = append(points, fmt.Sprintf("%.1f,%.1f",
					chartLeft+(float64(w)+0.5)/windows*(chartWide-2*chartLeft), top+curvesHigh*(1-v/max(most, 1e-9))))
			}
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s"/>`+"\n", strings.Join(points, " "), colours[i%len(colours)])
	}
}
