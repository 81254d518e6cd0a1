package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
)

// printed has what the benchmarks print as JSON: engine its sections and facts, hot its rows, contended its results.
type printed struct {
	Sections []struct {
		Name  string
		Cases []struct {
			Name     string
			MedianMS float64
		}
	}
	Facts []struct {
		Name, Unit string
		Value      float64
	}
	Rows []struct {
		Processes, Resources int
		Cells                []struct {
			Kind      string
			PerSecond float64
		}
	}
	Results []struct {
		Name                            string
		PerSecond, WaitP50MS, WaitP99MS float64
	}
}

// figure is one number of a run.
type figure struct {
	name  string
	value float64
	// isTime is set if the value is in milliseconds. Otherwise it is a number a second.
	isTime bool
}

func (p printed) figures() (all []figure) {
	for _, s := range p.Sections {
		for _, c := range s.Cases {
			all = append(all, figure{s.Name + ": " + c.Name, c.MedianMS, true})
		}
	}
	for _, f := range p.Facts {
		if f.Unit == "s" {
			all = append(all, figure{"in addition: " + f.Name, 1000 * f.Value, true})
		}
	}
	for _, r := range p.Rows {
		for _, c := range r.Cells {
			all = append(all, figure{fmt.Sprintf("%d processes, %d resources: %s", r.Processes, r.Resources, c.Kind), c.PerSecond, false})
		}
	}
	for _, r := range p.Results {
		all = append(all, figure{r.Name, r.PerSecond, false},
			figure{r.Name + ": wait p50", r.WaitP50MS, true}, figure{r.Name + ": wait p99", r.WaitP99MS, true})
	}
	return all
}

// The builds. The control is a second run of the other build.
const (
	this = iota
	other
	control
)

// row is the comparison of one figure, by turns. A ratio above 1 means that the first of the two runs was faster.
type row struct {
	figure
	values [3][]float64
	// ratios compare this build with the other, and controls compare the other build with itself.
	ratios, controls []float64
}

// isSlower reports whether the median ratio is below both 0.97 and the lower quartile of the controls.
func (r *row) isSlower() bool {
	low, _ := quartiles(r.controls)
	return measure.Median(r.ratios) < min(0.97, low)
}

// report is the result of the comparison.
type report struct {
	// done is the number of complete turns, and planned the number of turns that were to be made.
	done, planned int
	rows          []*row
}

// measure calls measureBuild for each run of the benchmark and for each build, in each turn.
func (r *report) measure(ctx context.Context, cfg config, progress io.Writer, measureBuild func(build int, args []string) ([]figure, error)) error {
	r.planned = cfg.turns
	for turn := range cfg.turns {
		for _, args := range cfg.runs() {
			var figures [3][]figure
			for i := range figures {
				n := (turn + i) % len(figures)
				found, err := measureBuild(min(n, other), args)
				if err != nil {
					return fmt.Errorf("turn %d: %w", turn+1, err)
				}
				if figures[n] = found; ctx.Err() != nil {
					return context.Cause(ctx)
				}
			}
			for _, f := range figures[this] {
				r.add(f, figures)
			}
		}
		r.done++
		fmt.Fprintf(progress, "turn %d of %d is done\n", turn+1, cfg.turns)
	}
	return nil
}

// add adds one figure of a turn, if all builds print it.
func (r *report) add(f figure, figures [3][]figure) {
	var values [3]float64
	for n := range figures {
		i := slices.IndexFunc(figures[n], func(g figure) bool { return g.name == f.name })
		if i < 0 || figures[n][i].value <= 0 {
			return
		}
		values[n] = figures[n][i].value
	}
	i := slices.IndexFunc(r.rows, func(known *row) bool { return known.name == f.name })
	if i < 0 {
		i = len(r.rows)
		r.rows = append(r.rows, &row{figure: f})
	}
	known := r.rows[i]
	ratio, same := values[this]/values[other], values[control]/values[other]
	if f.isTime {
		ratio, same = 1/ratio, 1/same
	}
	known.ratios, known.controls = append(known.ratios, ratio), append(known.controls, same)
	for n, value := range values {
		known.values[n] = append(known.values[n], value)
	}
}

// quartiles returns the values at a quarter and at three quarters of the sorted values.
func quartiles(values []float64) (low, high float64) {
	sorted := slices.Sorted(slices.Values(values))
	last := len(sorted) - 1
	return sorted[last/4], sorted[last-last/4]
}

// turns describes the turns that the medians are of. A turn that was interrupted counts only for the figures that it has measured.
func (r *report) turns() string {
	switch {
	case r.done == r.planned:
		return fmt.Sprintf("%d turns", r.done)
	case slices.ContainsFunc(r.rows, func(known *row) bool { return len(known.ratios) > r.done }):
		return fmt.Sprintf("%d of %d turns, of which the last is not complete", r.done+1, r.planned)
	}
	return fmt.Sprintf("%d of %d turns", r.done, r.planned)
}

func (r *report) write(out io.Writer) error {
	fmt.Fprintf(out, "Medians of %s, and the quartiles of ratios. A ratio above 1 means that this build is faster than the other.\n", r.turns())
	fmt.Fprint(out, "The control is the ratio of two runs of the other build. SLOWER: below both 0.97 and the control's lower quartile.\n\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tthis\tother\tunit\tratio\tquartiles\tcontrol\tquartiles\t\t")
	for _, known := range r.rows {
		low, high := quartiles(known.ratios)
		least, most := quartiles(known.controls)
		unit, verdict := "a second", ""
		if known.isTime {
			unit = "ms"
		}
		if known.isSlower() {
			verdict = "SLOWER"
		}
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%s\t%.2f\t%.2f to %.2f\t%.2f\t%.2f to %.2f\t%s\t\n",
			known.name, measure.Median(known.values[this]), measure.Median(known.values[other]), unit,
			measure.Median(known.ratios), low, high, measure.Median(known.controls), least, most, verdict)
	}
	return w.Flush()
}
