package contention

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// table writes a report for a terminal. The first error of its writer is kept.
type table struct {
	w   io.Writer
	r   *Report
	top int
	err error
}

// WriteTable writes a report for people, of each list the first top. The error is that of w.
func WriteTable(w io.Writer, r *Report, top int) error {
	t := &table{w: w, r: r, top: top}
	t.reading()
	t.conclusion()
	t.totals()
	t.load()
	t.resources()
	t.roots()
	t.types()
	t.owners()
	t.overlong()
	t.deaths()
	t.losses()
	t.deadlocks()
	return t.err
}

func (t *table) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(t.w, format, args...); t.err == nil {
		t.err = err
	}
}

// heading begins a section, of n things.
func (t *table) heading(what string, n int) {
	if n > t.top {
		what += fmt.Sprintf(" (the first %d of %s)", t.top, thousands(n))
	}
	t.printf("\n%s\n", what)
}

// aligned writes what rows writes into columns.
func (t *table) aligned(rows func(w io.Writer)) {
	for _, line := range columns(rows) {
		t.printf("%s\n", line)
	}
}

// columns are the lines of what rows writes.
func columns(rows func(w io.Writer)) []string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	rows(w)
	_ = w.Flush() // to memory
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = trimRight(lines[i])
	}
	return lines
}

func (t *table) reading() {
	read := &t.r.Read
	t.printf("READ  %s: %s, of which %s of locks", many(read.Files, "file"), many(read.Spans, "span"), thousands(read.LockSpans))
	if !t.r.From.IsZero() {
		const format = "2006-01-02 15:04:05"
		t.printf("\n      from %s to %s UTC, %s", t.r.From.Format(format), t.r.To.Format(format), Seconds(t.r.To.Sub(t.r.From).Seconds()))
	}
	var troubles []string
	for _, c := range []struct {
		n    int
		what string
	}{
		{read.Broken, "broken lines or documents"},
		{read.Malformed, "lock spans that lack what they need"},
		{read.Duplicates, "spans that were read before"},
		{read.Repeated, "spans that tell what another had told"},
		{read.Unreadable, "files or folders that cannot be opened"},
	} {
		if c.n > 0 {
			troubles = append(troubles, c.what+": "+thousands(c.n))
		}
	}
	t.printf("\n")
	if len(troubles) > 0 {
		t.printf("%s", wrap("not counted: "+strings.Join(troubles, "; "), "      "))
	}
	for _, p := range read.Problems {
		t.printf("%s", wrap("first: "+printable(p, 200), "      "))
	}
}

func (t *table) totals() {
	n := &t.r.Totals
	t.printf("\nTOTALS\n")
	t.aligned(func(w io.Writer) {
		fmt.Fprintln(w, "  \tcount\ttotal\tp50\tp95\tp99\tmax")
		fmt.Fprintf(w, "  waits\t%s\n", numbersOf(n.Wait))
		fmt.Fprintf(w, "  holds\t%s\n", numbersOf(n.Hold))
	})
	t.printf("  %s of %s had to wait; %s, %s expired, %s found a lock lost\n", thousands(n.Waited), many(n.Acquisitions, "acquisition"),
		many(n.Deadlocks, "deadlock"), many(n.Expired, "hold"), many(n.Lost, "step"))
	if n.Unexplained > 0 && n.Wait.Total > 0 {
		t.printf("  no hold that was read explains %s of the waiting: %s of hand-overs (granted, and not yet taken),\n  and %s else\n",
			percent(n.Unexplained/n.Wait.Total), Seconds(n.HandOver), Seconds(n.Unexplained-n.HandOver))
	}
}

func numbersOf(d Distribution) string {
	if d.Count == 0 {
		return "0\t-\t-\t-\t-\t-"
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", thousands(d.Count), Seconds(d.Total), Seconds(d.P50), Seconds(d.P95), Seconds(d.P99), Seconds(d.Max))
}

// resources has three lines for each that was waited for: waits, holds, and why.
func (t *table) resources() {
	all := t.r.Resources
	for len(all) > 0 && all[len(all)-1].Wait.Count == 0 {
		all = all[:len(all)-1]
	}
	t.heading("RESOURCES, by how long they were waited for", len(all))
	if quiet := len(t.r.Resources) - len(all); quiet > 0 {
		defer t.printf("  %s had no waits\n", many(quiet, "more resource"))
	} else if len(all) == 0 {
		t.printf("  none: nothing that was read is of a resource that begins so, and of this time\n")
	}
	all = all[:min(len(all), t.top)]
	if len(all) == 0 {
		return
	}
	lines := columns(func(w io.Writer) {
		fmt.Fprintln(w, "  \t\tcount\ttotal\tp50\tp95\tp99\tmax\tqueue")
		for i := range all {
			fmt.Fprintf(w, "  %s\twaits\t%s\t%d\n", printable(all[i].Name, 32), numbersOf(all[i].Wait), all[i].LongestQueue)
			fmt.Fprintf(w, "  \tholds\t%s\t\n", numbersOf(all[i].Hold))
		}
	})
	t.printf("%s\n", lines[0])
	for i := range all {
		t.printf("%s\n%s\n%s", lines[1+2*i], lines[2+2*i], wrap("why: "+printable(all[i].Why, 400), "    "))
	}
}

func (t *table) owners() {
	all := t.r.Owners
	for len(all) > 0 && all[len(all)-1].Blocked == 0 {
		all = all[:len(all)-1]
	}
	if len(all) == 0 {
		return
	}
	t.heading("OWNERS THAT KEPT OTHERS WAITING", len(all))
	t.aligned(func(w io.Writer) {
		fmt.Fprintln(w, "  \tblocked\twaits\twaited\theld\tworst on")
		for _, o := range all[:min(len(all), t.top)] {
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\n", printable(short(o.Name), 40), Seconds(o.Blocked), thousands(o.BlockedWaits),
				Seconds(o.Waited), Seconds(o.Held), printable(o.Worst, 24))
		}
	})
}

func (t *table) overlong() {
	all := t.r.Overlong
	if len(all) == 0 {
		return
	}
	t.heading("HELD MUCH LONGER THAN STEPS RAN", len(all))
	t.aligned(func(w io.Writer) {
		fmt.Fprintln(w, "  \ton\theld\tran\tblocked\tfrom")
		for _, o := range all[:min(len(all), t.top)] {
			h := &t.r.Holds[o.Hold]
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\n", printable(short(h.Owner), 40), printable(h.Resource, 24), Seconds(o.Held), Seconds(o.Ran),
				Seconds(o.Blocked), h.Start.Format("15:04:05.000"))
		}
	})
}

func (t *table) losses() {
	all := t.r.Losses
	if len(all) == 0 {
		return
	}
	t.heading("LOST, EXPIRED AND REVOKED", len(all))
	t.aligned(func(w io.Writer) {
		for _, l := range all[:min(len(all), t.top)] {
			more := printable(l.Reason, 40)
			if l.Outcome == telemetry.OutcomeExpired && l.Hold >= 0 && t.r.Holds[l.Hold].EndedBy != "" {
				more = "its room went to " + printable(workflowOr(t.r.Holds[l.Hold].EndedBy), 40)
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\n", l.At.Format("15:04:05.000"), l.Outcome, printable(cmp.Or(l.Resource, "(one of several)"), 24),
				printable(cmp.Or(short(l.Owner), "(not known)"), 40), more)
		}
	})
}

func (t *table) deadlocks() {
	all := t.r.Deadlocks
	if len(all) == 0 {
		return
	}
	t.heading("DEADLOCKS", len(all))
	for _, d := range all[:min(len(all), t.top)] {
		t.printf("  %s  %s gave way on %s\n", d.At.Format("15:04:05.000"), printable(short(d.Victim), 40), printable(d.Resource, 24))
		if d.Cycle != "" {
			t.printf("%s", wrap(printable(d.Cycle, 1000), "                "))
		}
	}
}

// wrap breaks text between words into lines of at most 98 columns, where words are not longer.
func wrap(text, indent string) string {
	var b strings.Builder
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len(line) > len(indent) && len([]rune(line))+len([]rune(word)) > 98 {
			b.WriteString(trimRight(line) + "\n")
			line = indent + "     "
		}
		line += word + " "
	}
	b.WriteString(trimRight(line) + "\n")
	return b.String()
}

func trimRight(line string) string { return strings.TrimRight(line, " ") }

// printable is text that does nothing to a terminal or to columns, cut in its middle if it is longer than limit.
func printable(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(text, "?"))
	runes := []rune(text)
	if len(runes) <= limit {
		return text
	}
	half := (limit - 1) / 2
	return string(runes[:limit-1-half]) + "…" + string(runes[len(runes)-half:])
}
