package contention

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"
)

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

// loadLines is into how many lines the load is drawn together, and loadWidth how long its longest
// bar is.
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
	per := (len(all) + loadLines - 1) / loadLines
	var lines []Load
	most := 0.0
	for from := 0; from < len(all); from += per {
		some := all[from:min(from+per, len(all))]
		mean := Load{At: some[0].At}
		for _, l := range some {
			mean.Held += l.Held / float64(len(some))
			mean.Waiting += l.Waiting / float64(len(some))
		}
		lines, most = append(lines, mean), max(most, mean.Waiting)
	}
	t.aligned(func(w io.Writer) {
		fmt.Fprintln(w, "  from\theld\twaiting")
		for _, l := range lines {
			bar := strings.Repeat("#", int(math.Ceil(loadWidth*l.Waiting/max(most, 1e-9))))
			fmt.Fprintf(w, "  %s\t%.1f\t%.1f\t%s\n", l.At.Format("15:04:05.000"), l.Held, l.Waiting, bar)
		}
	})
}

// roots shows each root with the tree of those that waited for it. A tree is no longer than a list.
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

// typeOr is a workflow type for people.
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
		t.aligned(func(w io.Writer) {
			for _, s := range p.Steps[:min(len(p.Steps), t.top)] {
				fmt.Fprintf(w, "    %s\tfor %s\t%s\t%s\n", printable(cmp.Or(s.Waiter, "-"), 28), printable(cmp.Or(s.Blocker, "-"), 28), Seconds(s.Waited), many(s.Waits, "wait"))
			}
		})
	}
}

// deaths lists the holds that a dead worker explains.
func (t *table) deaths() {
	var all []*Hold
	for i := range t.r.Holds {
		if t.r.Holds[i].WorkerDied != nil {
			all = append(all, &t.r.Holds[i])
		}
	}
	if len(all) == 0 {
		return
	}
	t.heading("HOLDS OF WORKERS THAT DIED, OR HUNG", len(all))
	t.aligned(func(w io.Writer) {
		fmt.Fprintln(w, "  \ton\tin step\tfrom\tfor\tended\tblocked")
		for _, h := range all[:min(len(all), t.top)] {
			d := h.WorkerDied
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable(short(h.Owner), 24), printable(h.Resource, 20), printable(d.Step, 16), d.From.Format("15:04:05.000"),
				Seconds(d.To.Sub(d.From).Seconds()), d.Ended, Seconds(h.Blocked))
		}
	})
}
