package inspect

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// plain is text without what would move a terminal's cursor or break a line: names are what a
// caller locks.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// PrintResources prints a line for each resource.
func PrintResources(out io.Writer, resources []Resource) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "RESOURCE\tHELD BY\tMODE\tFOR\tENDS IN\tWAITING\tLONGEST") // the flush says
	for i := range resources {
		r := &resources[i]
		holder, mode, since, ends := "-", "-", "-", "-"
		if len(r.Holders) > 0 {
			h := &r.Holders[0]
			holder, mode, since, ends = plain(h.Party.Name), h.Mode.String(), Short(h.For), Short(h.ExpiresIn)
			if h.State != "holding" {
				mode += ", " + string(h.State)
			} else if h.keeps() && len(h.Running) == 0 {
				mode += ", kept" // between two steps
			}
			if more := len(r.Holders) - 1; more > 0 {
				holder += fmt.Sprintf(" and %d more", more)
			}
		}
		longest := "-"
		if len(r.Waiters) > 0 {
			longest = Short(r.LongestWait)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", plain(r.Name), holder, mode, since, ends, len(r.Waiters), longest)
	}
	return w.Flush()
}

// PrintOrphans prints a line for each.
func PrintOrphans(out io.Writer, found []Orphan) error {
	if len(found) == 0 {
		_, err := fmt.Fprintln(out, "no orphans")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "RESOURCE\tWORKFLOW\tHAS\tWHY IT ENDS") // the flush says
	for _, o := range found {
		has := "a place in the queue"
		if o.Held {
			has = "a lock"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", plain(o.Resource), plain(o.Party.Name), has, plain(o.Reason))
	}
	return w.Flush()
}

// Print prints all that stands on a resource, and the commands that would end it.
func (r *Resource) Print(out io.Writer) error {
	var b strings.Builder
	b.WriteString(plain(r.Name) + "\n")
	for _, entries := range [][]Entry{r.Holders, r.Waiters} {
		for i := range entries {
			e := &entries[i]
			fmt.Fprintf(&b, "\n  %s %s\n", plain(e.Party.Name), e)
			for _, fact := range e.facts() {
				fmt.Fprintf(&b, "      %-10s %s\n", fact[0], plain(fact[1]))
			}
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// facts are what more there is to say of an entry.
func (e *Entry) facts() (facts [][2]string) {
	add := func(name, text string) {
		if text != "" {
			facts = append(facts, [2]string{name, text})
		}
	}
	add("step", e.Party.Step)
	add("run", e.Run)
	add("comment", e.Comment)
	if e.State == "waiting" {
		if e.Overdue {
			add("overdue", "passed over until it asks again")
		}
		add("lock ID", e.LockID)
		return facts
	}
	add("host", e.Host)
	ends := "in " + Short(e.ExpiresIn) + ", unless it is renewed; heard of " + Short(e.Silent) + " ago"
	if e.ExpiresIn == lockcore.Forever {
		ends = "never by itself"
	}
	add("ends", ends)
	for _, r := range e.Running {
		if e.Party.Workflow == "" {
			break // plain Go has no steps
		}
		add("step runs", fmt.Sprintf("%s; heard of %s ago, its promise ends in %s", r.Part, Short(r.Silent), Short(r.ExpiresIn)))
	}
	if e.FirstFence > 0 {
		add("fence", fmt.Sprint(e.FirstFence))
	}
	add("lock ID", e.LockID)
	add("to end it", e.End)
	return facts
}

// Print prints why a party waits.
func (w *Why) Print(out io.Writer) error {
	var b strings.Builder
	switch {
	case len(w.Waits) == 0 && len(w.Holds) == 0:
		fmt.Fprintf(&b, "%s holds no lock and waits for none\n", plain(w.Party.Name))
	case len(w.Waits) == 0:
		fmt.Fprintf(&b, "%s waits for no lock\n", plain(w.Party.Name))
	}
	for i := range w.Waits {
		fmt.Fprintf(&b, "%s %s\n", plain(w.Party.Name), &w.Waits[i])
	}
	if len(w.Waits) == 0 {
		for i := range w.Holds {
			fmt.Fprintf(&b, "%s %s\n", plain(w.Party.Name), &w.Holds[i])
		}
		w.Doing.print(&b)
	}
	for _, root := range w.Roots {
		b.WriteString("\n" + root.line() + "\n")
		root.Doing.print(&b)
		root.branches(&b, "")
		if root.Advice != "" {
			fmt.Fprintf(&b, "→ %s\n", plain(root.Advice))
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (n *Node) line() string {
	text := plain(n.Party.Name)
	if n.Wait != nil {
		text += " " + n.Wait.String()
	}
	if n.Hold != nil {
		if n.Wait != nil {
			text += ";"
		}
		text += " " + n.Hold.String()
	}
	if n.Deadlock {
		text += ", and waits for one of those below: a deadlock"
	}
	return text
}

func (n *Node) branches(b *strings.Builder, indent string) {
	for i, child := range n.Waiting {
		fork, deeper := "├─ ", "│  "
		if i == len(n.Waiting)-1 {
			fork, deeper = "└─ ", "   "
		}
		b.WriteString(indent + fork + child.line() + "\n")
		child.branches(b, indent+deeper)
	}
}

// print says what a workflow does; nothing of one that was not asked about.
func (d *Doing) print(b *strings.Builder) {
	if d == nil {
		return
	}
	fmt.Fprintf(b, "   workflow  %s, run %s\n", d.Status, d.RunID)
	for _, a := range d.Activities {
		text := fmt.Sprintf("%s (%s), %s, attempt %d", a.Type, a.ID, a.State, a.Attempt)
		if a.Worker != "" {
			text += ", on " + a.Worker
		}
		if a.Failure != "" {
			text += ", last failure: " + a.Failure
		}
		fmt.Fprintf(b, "   activity  %s\n", plain(text))
	}
}
