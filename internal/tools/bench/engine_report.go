package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// section is a set of cases that run alternately and are compared with the first of them.
type section struct {
	name string
	// divisor reduces the number of rounds, for cases that take long.
	divisor int
	cases   []benchCase
}

// benchCase is one operation.
type benchCase struct {
	name string
	// limit is the highest acceptable ratio to the first case; 0 if there is none.
	limit float64
	// once returns how long the operation took, without its preparation.
	once measurement
}

type measurement func(ctx context.Context, round int) (time.Duration, error)

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
	// Limit is the highest acceptable ratio; 0 if there is none.
	Limit float64 `json:"limit,omitempty"`
}

// FactReport is one number that is compared with a limit and not with another case.
type FactReport struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Limit is the highest acceptable value; 0 if there is none.
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

func (r Report) printEngine(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, s := range r.Sections {
		fmt.Fprintf(w, "%s\tmedian ms\tp90 ms\tratio\tlimit\t\t\n", s.Name)
		for _, c := range s.Cases {
			limit, verdict := judge(c.Ratio, c.Limit)
			fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.2f\t%s\t%s\t\n", c.Name, c.MedianMS, c.P90MS, c.Ratio, limit, verdict)
		}
		fmt.Fprintln(w, "\t\t\t\t\t\t")
	}
	fmt.Fprintln(w, "in addition\tvalue\tunit\tlimit\t\t")
	for _, f := range r.Facts {
		limit, verdict := judge(f.Value, f.Limit)
		fmt.Fprintf(w, "%s\t%.3f\t%s\t%s\t%s\t\n", f.Name, f.Value, f.Unit, limit, verdict)
	}
	return w.Flush()
}

// judge returns a limit as text, and whether the value misses it.
func judge(value, limit float64) (text, verdict string) {
	if limit == 0 {
		return "", ""
	}
	if value > limit {
		verdict = "MISSED"
	}
	return fmt.Sprintf("%.2f", limit), verdict
}
