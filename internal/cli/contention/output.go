package contention

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	cells "github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// table is a report for a terminal.
type table struct {
	bytes.Buffer
	r   *Report
	top int
}

// WriteTable writes a report for people, with the first top elements of each list. The error is that of w.
func WriteTable(w io.Writer, r *Report, top int) error {
	t := &table{r: r, top: top}
	t.reading()
	t.conclusion()
	t.totals()
	t.load()
	t.resources()
	t.members()
	t.priorities()
	t.roots()
	t.types()
	t.owners()
	t.overlong()
	t.deaths()
	t.losses()
	t.deadlocks()
	_, err := t.WriteTo(w)
	return err
}

func (t *table) printf(format string, args ...any) { fmt.Fprintf(t, format, args...) }

// heading begins a section about a list of n elements.
func (t *table) heading(what string, n int) {
	if n > t.top {
		what += fmt.Sprintf(" (the first %d of %s)", t.top, thousands(n))
	}
	t.printf("\n%s\n", what)
}

// list writes the first elements of a list, in columns below their heads; nothing if the list is empty.
func list[T any](t *table, what string, heads row, all []T, cells func(T) row) {
	if len(all) == 0 {
		return
	}
	t.heading(what, len(all))
	var rows []row
	if heads != nil {
		rows = append(rows, heads)
	}
	for _, one := range all[:min(len(all), t.top)] {
		rows = append(rows, cells(one))
	}
	t.aligned(rows...)
}

// row has the cells of a line.
type row = []string

// aligned writes rows in columns.
func (t *table) aligned(rows ...row) {
	t.printf("%s\n", strings.Join(columns(rows), "\n"))
}

// columns returns the lines of rows, aligned in columns.
func columns(rows []row) []string {
	var b bytes.Buffer
	for _, r := range rows {
		r[0] = "  " + r[0]
	}
	_ = cells.Write(&b, rows...) // to memory
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

func (t *table) conclusion() {
	t.printf("\nCONCLUSION\n")
	for _, f := range t.r.Conclusion {
		text := f.Text + "."
		if f.Advice != "" {
			text += " " + f.Advice + "."
		}
		t.printf("%s", wrap("- "+printable(text, 600), "  "))
	}
}

func (t *table) totals() {
	n := &t.r.Totals
	t.printf("\nTOTALS\n")
	t.aligned(row{"", "count", "total", "p50", "p95", "p99", "max"},
		append(row{"waits"}, numbersOf(n.Wait)...), append(row{"holds"}, numbersOf(n.Hold)...))
	t.printf("  %s of %s had to wait; %s, %s expired, %s found a lock lost\n", thousands(n.Waited), many(n.Acquisitions, "acquisition"),
		many(n.Deadlocks, "deadlock"), many(n.Expired, "hold"), many(n.Lost, "step"))
	if n.Unexplained > 0 && n.Wait.Total > 0 {
		t.printf("  no hold that was read explains %s of the waiting: %s of hand-overs (granted, and not yet taken),\n  and %s else\n",
			percent(n.Unexplained/n.Wait.Total), Seconds(n.HandOver), Seconds(n.Unexplained-n.HandOver))
	}
}

func numbersOf(d Distribution) row {
	if d.Count == 0 {
		return row{"0", "-", "-", "-", "-", "-"}
	}
	return row{thousands(d.Count), Seconds(d.Total), Seconds(d.P50), Seconds(d.P95), Seconds(d.P99), Seconds(d.Max)}
}

// loadLines bounds the lines of the load, and loadWidth the length of their bars.
const (
	loadLines = 12
	loadWidth = 30
)

func (t *table) load() {
	all := t.r.Load
	if len(all) == 0 {
		return
	}
	t.printf("\nLOAD, over all resources: how many at once, in the mean\n")
	var lines []Load
	most := 1e-9
	for some := range slices.Chunk(all, (len(all)+loadLines-1)/loadLines) {
		mean := Load{At: some[0].At}
		for _, l := range some {
			mean.Held += l.Held / float64(len(some))
			mean.Waiting += l.Waiting / float64(len(some))
		}
		lines, most = append(lines, mean), max(most, mean.Waiting)
	}
	rows := []row{{"from", "held", "waiting"}}
	for _, l := range lines {
		bar := strings.Repeat("#", int(math.Ceil(loadWidth*l.Waiting/most)))
		rows = append(rows, row{clock(l.At), fmt.Sprintf("%.1f", l.Held), fmt.Sprintf("%.1f", l.Waiting), bar})
	}
	t.aligned(rows...)
}

func clock(at time.Time) string { return at.Format("15:04:05.000") }

// resources writes three lines for each resource that was waited for: waits, holds, and why.
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
	rows := []row{{"", "", "count", "total", "p50", "p95", "p99", "max", "queue"}}
	for i := range all {
		rows = append(rows, append(append(row{printable(all[i].Name, 32), "waits"}, numbersOf(all[i].Wait)...), fmt.Sprint(all[i].LongestQueue)),
			append(append(row{"", "holds"}, numbersOf(all[i].Hold)...), ""))
	}
	lines := columns(rows)
	t.printf("%s\n", lines[0])
	for i := range all {
		t.printf("%s\n%s\n%s", lines[1+2*i], lines[2+2*i], wrap("why: "+printable(all[i].Why, 400), "    "))
	}
}

func (t *table) members() {
	list(t, "MEMBERS OF POOLS, by how long the requests that got them had waited", row{"", "of", "waits", "waited", "p95", "holds", "held", "p95"}, t.r.Members, func(m Member) row {
		waits, holds := numbersOf(m.Wait), numbersOf(m.Hold)
		return row{printable(m.Name, 32), printable(m.Resource, 24), waits[0], waits[1], waits[3], holds[0], holds[1], holds[3]}
	})
}

func (t *table) priorities() {
	list(t, "WAITS BY PRIORITY, 1 is first", row{"", "count", "total", "p50", "p95", "p99", "max"}, t.r.Priorities, func(p Priority) row {
		return append(row{fmt.Sprint(p.Priority)}, numbersOf(p.Wait)...)
	})
}

// roots writes each root with its tree, which has no more lines than a list.
func (t *table) roots() {
	all := t.r.Roots
	if len(all) == 0 {
		return
	}
	t.heading("ROOT BLOCKERS, by how long others waited because of them, also through others", len(all))
	for i := range all[:min(len(all), t.top)] {
		r := &all[i]
		t.printf("%s", wrap(fmt.Sprintf("%s: %s%s %s", Seconds(r.Caused), printable(short(r.Owner), 40), ofType(r.WorkflowType), printable(r.Did, 250)), "  "))
		left := t.top
		t.waiters(r.Waiters, r.Omitted, "    ", &left)
	}
}

func (t *table) waiters(list []Waiter, omitted int, indent string, left *int) {
	for i := range list {
		if *left == 0 {
			omitted += len(list) - i
			break
		}
		*left--
		w := &list[i]
		fork, deeper := "├─ ", "│  "
		if i == len(list)-1 && omitted == 0 {
			fork, deeper = "└─ ", "   "
		}
		with := ""
		if len(w.Waiters) > 0 {
			with = fmt.Sprintf(" (%s with those behind it)", Seconds(w.Total))
		}
		t.printf("%s%s%s waited %s for %s%s\n", indent, fork, printable(short(w.Owner), 32), Seconds(w.Waited), printable(w.Resource, 16), with)
		t.waiters(w.Waiters, w.Omitted, indent+deeper, left)
	}
	if omitted > 0 {
		t.printf("%s└─ and %s more\n", indent, thousands(omitted))
	}
}

func ofType(workflowType string) string {
	if workflowType == "" {
		return ""
	}
	return " (" + printable(workflowType, 32) + ")"
}

func typeOr(workflowType string) string {
	return printable(cmp.Or(workflowType, "(type not known)"), 40)
}

func (t *table) types() {
	all := t.r.Types
	if len(all) == 0 {
		return
	}
	t.heading("BY WORKFLOW TYPE AND STEP", len(all))
	for i := range all[:min(len(all), t.top)] {
		p := &all[i]
		t.printf("%s", wrap(fmt.Sprintf("%s waits for %s: %s in %s", typeOr(p.Waiter), typeOr(p.Blocker), Seconds(p.Waited), many(p.Waits, "wait")), "  "))
		var rows []row
		for _, s := range p.Steps[:min(len(p.Steps), t.top)] {
			waiter, blocker := printable(cmp.Or(s.Waiter, "-"), 28), printable(cmp.Or(s.Blocker, "-"), 28)
			rows = append(rows, row{"  " + waiter, "for " + blocker, Seconds(s.Waited), many(s.Waits, "wait")})
		}
		t.aligned(rows...)
	}
}

func (t *table) owners() {
	all := t.r.Owners
	for len(all) > 0 && all[len(all)-1].Blocked == 0 {
		all = all[:len(all)-1]
	}
	list(t, "OWNERS THAT KEPT OTHERS WAITING", row{"", "blocked", "waits", "waited", "held", "worst on"}, all, func(o Owner) row {
		return row{
			printable(short(o.Name), 40), Seconds(o.Blocked), thousands(o.BlockedWaits), Seconds(o.Waited), Seconds(o.Held), printable(o.Worst, 24),
		}
	})
}

func (t *table) overlong() {
	list(t, "HELD MUCH LONGER THAN STEPS RAN", row{"", "on", "held", "ran", "blocked", "from"}, t.r.Overlong, func(o Overlong) row {
		h := &t.r.Holds[o.Hold]
		return row{printable(short(h.Owner), 40), printable(h.Resource, 24), Seconds(o.Held), Seconds(o.Ran), Seconds(o.Blocked), clock(h.Start)}
	})
}

func (t *table) deaths() {
	var all []*Hold
	for i := range t.r.Holds {
		if t.r.Holds[i].WorkerDied != nil {
			all = append(all, &t.r.Holds[i])
		}
	}
	list(t, "HOLDS OF WORKERS THAT DIED, OR HUNG", row{"", "on", "in step", "from", "for", "ended", "blocked"}, all, func(h *Hold) row {
		d := h.WorkerDied
		return row{
			printable(short(h.Owner), 24), printable(h.Resource, 20), printable(d.Step, 16), clock(d.From),
			Seconds(d.To.Sub(d.From).Seconds()), d.Ended, Seconds(h.Blocked),
		}
	})
}

func (t *table) losses() {
	list(t, "LOST, EXPIRED AND REVOKED", nil, t.r.Losses, func(l Loss) row {
		more := printable(l.Reason, 40)
		if l.Outcome == telemetry.OutcomeExpired && l.Hold >= 0 && t.r.Holds[l.Hold].EndedBy != "" {
			more = "its room went to " + printable(short(workflowOr(t.r.Holds[l.Hold].EndedBy)), 40)
		}
		resource, owner := cmp.Or(l.Resource, "(one of several)"), cmp.Or(short(l.Owner), "(not known)")
		return row{clock(l.At), l.Outcome, printable(resource, 24), printable(owner, 40), more}
	})
}

func (t *table) deadlocks() {
	all := t.r.Deadlocks
	if len(all) == 0 {
		return
	}
	t.heading("DEADLOCKS", len(all))
	for _, d := range all[:min(len(all), t.top)] {
		t.printf("  %s  %s gave way on %s\n", clock(d.At), printable(short(d.Victim), 40), printable(d.Resource, 24))
		if d.Cycle != "" {
			t.printf("%s", wrap(printable(shortCycle(d.Cycle), 1000), "                "))
		}
	}
}

// wrap breaks text between words into lines of at most 98 columns.
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

// printable replaces what might change a terminal or its columns, and cuts the middle of text longer than limit.
func printable(text string, limit int) string {
	return cells.Shorten(cells.Plain(text), limit)
}

// WriteJSON writes a report as one JSON object, with a line for each element of its lists. It encodes one element at a time, since a
// report may be too large to be in memory twice. The error is that of w.
func WriteJSON(w io.Writer, r *Report) error {
	out := bufio.NewWriterSize(w, 1<<16) // it keeps its error until it is flushed
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	write := func(before string, v reflect.Value) error {
		text.Reset()
		if err := encoder.Encode(v.Interface()); err != nil {
			return err
		}
		_, _ = out.WriteString(before)
		_, err := out.Write(bytes.TrimRight(text.Bytes(), "\n"))
		return err
	}
	before := "{"
	for field, value := range reflect.ValueOf(r).Elem().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		before += `"` + name + `":`
		if value.Kind() != reflect.Slice {
			if err := write(before, value); err != nil {
				return err
			}
			before = ",\n"
			continue
		}
		_, _ = out.WriteString(before + "[")
		before = "\n"
		for i := range value.Len() {
			if err := write(before, value.Index(i).Addr()); err != nil {
				return err
			}
			before = ",\n"
		}
		_, _ = out.WriteString("]")
		before = ",\n"
	}
	_, _ = out.WriteString("}\n")
	return out.Flush()
}
