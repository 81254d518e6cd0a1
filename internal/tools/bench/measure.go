package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// section is a set of cases that are measured in turn, and compared with the first of them.
type section struct {
	name string
	// divisor makes rounds fewer if one is long.
	divisor int
	cases   []benchCase
}

// benchCase is one thing to measure. once does it, and returns how long it took: what it needs to do before
// and after does not count.
type benchCase struct {
	name string
	// limit is the ratio to the first case that the project holds itself to; 0 is none.
	limit float64
	once  func(ctx context.Context, round int) (time.Duration, error)
}

// Report is what a benchmark found. Its JSON is a contract: fields are only ever added.
type Report struct {
	Sections []SectionReport `json:"sections"`
	Facts    []FactReport    `json:"facts"`
	// Hot is what bench hot found.
	Hot *HotReport `json:"hot,omitempty"`
	// Wait is what bench wait found.
	Wait *WaitReport `json:"wait,omitempty"`
}

// SectionReport is one table.
type SectionReport struct {
	Name  string       `json:"name"`
	Cases []CaseReport `json:"cases"`
}

// CaseReport is one line of a table. Times are in milliseconds.
type CaseReport struct {
	Name     string  `json:"name"`
	Rounds   int     `json:"rounds"`
	MedianMS float64 `json:"medianMs"`
	P90MS    float64 `json:"p90Ms"`
	// Ratio is the median divided by that of the section's first case.
	Ratio float64 `json:"ratio"`
	// Limit is what the ratio should not exceed; 0 if nothing is said.
	Limit float64 `json:"limit,omitempty"`
}

func (s section) measure(ctx context.Context, rounds int) (SectionReport, error) {
	report := SectionReport{Name: s.name}
	rounds = max(rounds/max(s.divisor, 1), 5)
	took := make([][]time.Duration, len(s.cases))
	const warmUp = 3
	for round := range rounds + warmUp {
		for i, c := range s.cases {
			d, err := c.once(ctx, round)
			if err != nil {
				return report, fmt.Errorf("%s, %s: %w", s.name, c.name, err)
			}
			if round >= warmUp {
				took[i] = append(took[i], d)
			}
		}
	}
	for i, c := range s.cases {
		slices.Sort(took[i])
		report.Cases = append(report.Cases, CaseReport{
			Name: c.name, Rounds: rounds, MedianMS: millis(took[i][rounds/2]), P90MS: millis(took[i][rounds*9/10]), Limit: c.limit,
		})
		report.Cases[i].Ratio = report.Cases[i].MedianMS / report.Cases[0].MedianMS
	}
	return report, nil
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (r Report) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, s := range r.Sections {
		fmt.Fprintf(w, "%s\tmedian ms\tp90 ms\tratio\tlimit\t\t\n", s.Name)
		for _, c := range s.Cases {
			limit, verdict := "", ""
			if c.Limit > 0 {
				limit = fmt.Sprintf("%.2f", c.Limit)
				if c.Ratio > c.Limit {
					verdict = "MISSED"
				}
			}
			fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.2f\t%s\t%s\t\n", c.Name, c.MedianMS, c.P90MS, c.Ratio, limit, verdict)
		}
		fmt.Fprintln(w, "\t\t\t\t\t\t")
	}
	if len(r.Facts) == 0 {
		return w.Flush()
	}
	fmt.Fprintln(w, "beside these\tvalue\tunit\tlimit\t\t")
	for _, f := range r.Facts {
		limit, verdict := "", ""
		switch {
		case f.Least > 0:
			limit = fmt.Sprintf("at least %.2f", f.Least)
			if f.Value < f.Least {
				verdict = "MISSED"
			}
		case f.Limit > 0:
			limit = fmt.Sprintf("%.2f", f.Limit)
			if f.Value > f.Limit {
				verdict = "MISSED"
			}
		}
		fmt.Fprintf(w, "%s\t%.3f\t%s\t%s\t%s\t\n", f.Name, f.Value, f.Unit, limit, verdict)
	}
	return w.Flush()
}
