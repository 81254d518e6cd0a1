package inspect

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// widestMode bounds the modes in a table: they may contain the name of a policy.
const widestMode = 60

// narrowName is the number of characters to which names are shortened before a narrow terminal gets fewer columns.
const narrowName = 10

// PrintResources prints a line for each resource. To fit a width it shortens long names in the middle and, if that is not enough, leaves out the
// columns MODE, LONGEST, FOR and ENDS, in this order. 0 means no limit.
func PrintResources(out io.Writer, resources []Resource, width int) error {
	rows := [][]string{{"RESOURCE", "HELD BY", "MODE", "FOR", "ENDS", "WAITING", "LONGEST"}}
	others, widest := make([]string, len(resources)), 0 // these are not shortened
	for i := range resources {
		r := &resources[i]
		row := []string{table.Plain(r.Name), "-", "-", "-", "-", strconv.Itoa(len(r.Waiters)), "-"}
		if r.Damaged != "" {
			row[1] = "? " + table.Plain(r.Damaged)
		}
		if len(r.Holders) > 0 {
			h := &r.Holders[0]
			row[1], row[2], row[3], row[4] = table.Plain(h.Party.Name), table.Shorten(h.Kind(), widestMode), Short(h.For), h.Ending()
			if more := r.Others(); more > 0 {
				others[i] = fmt.Sprintf(" and %d more", more)
				widest = max(widest, len(others[i]))
			}
		}
		if len(r.Waiters) > 0 {
			row[6] = Short(r.LongestWait)
		}
		rows = append(rows, row)
	}
	if width > 0 {
		rows = table.Narrow(width-widest, narrowName, rows, []int{2, 6, 3, 4}, 0, 1)
		table.Fit(width-widest, rows, 0, 1)
	}
	for i, text := range others {
		rows[i+1][1] += text
	}
	return table.Write(out, rows...)
}

// Others returns the number of parties that hold the resource, in addition to that of its first holder.
func (r *Resource) Others() int {
	parties := map[Party]bool{}
	for i := range r.Holders {
		parties[r.Holders[i].Party] = true
	}
	return max(0, len(parties)-1)
}

// Kind describes the mode and the state of an entry. It is for a table.
func (e *Entry) Kind() string {
	if e.State == lockcore.StateHolding {
		return e.mode()
	}
	return e.mode() + ", " + string(e.State)
}

// Ending describes when a hold ends. It is for a table.
func (e *Entry) Ending() string {
	switch {
	case e.Kept:
		return "kept"
	case e.ExpiresIn <= 0:
		return "expired"
	case e.ExpiresIn == lockcore.Forever:
		return "never"
	}
	return "in " + Short(e.ExpiresIn)
}

func (e *Entry) mode() string {
	switch p := e.Policy; {
	case e.Mode == lockcore.ModePool:
		return e.member()
	case e.Limit == 0:
		return e.Mode.String()
	case p == nil, isPool(p):
		return fmt.Sprintf("%s with limit %d", e.Mode, e.Limit)
	case p.Unreadable:
		return fmt.Sprintf("%s with a limit by policy %s, which cannot be decoded", e.Mode, PolicyName(p))
	default:
		return fmt.Sprintf("%s with limit %d by policy %s", e.Mode, p.Limit, PolicyName(p))
	}
}

// PrintOrphans prints a line for each orphan.
func PrintOrphans(out io.Writer, found []Orphan) error {
	if len(found) == 0 {
		_, err := fmt.Fprintln(out, "no orphans")
		return err
	}
	rows := [][]string{{"RESOURCE", "WORKFLOW", "HAS", "WHY IT ENDS"}}
	for _, o := range found {
		has := "a queued request"
		if o.Held {
			has = "a lock"
		}
		rows = append(rows, []string{table.Plain(o.Resource), table.Plain(o.Party.Name), has, table.Plain(o.Reason)})
	}
	return table.Write(out, rows...)
}

// PrintFindings prints the doctor's findings, with advice.
func PrintFindings(out io.Writer, findings []Finding) error {
	var b strings.Builder
	for _, f := range findings {
		_ = table.Fprintf(&b, "%-8s %-12s %s\n", f.State, f.About, f.What) // to memory
		if f.Advice != "" {
			_ = table.Fprintf(&b, "%21s → %s\n", "", f.Advice)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// String describes an entry without its party.
func (e *Entry) String() string {
	before, after := e.Around()
	return before + table.Plain(e.Resource) + after
}

// Around returns the text of String before and after the name of the resource.
func (e *Entry) Around() (before, after string) {
	mode := e.mode() + e.service() + e.policy() + e.rank()
	switch {
	case e.State == lockcore.StateWaiting:
		return "waits for ", fmt.Sprintf(" (%s) for %s, position %d", mode, Short(e.For), e.Position)
	case e.State == lockcore.StateClaimed:
		return "was granted ", fmt.Sprintf(" (%s) %s ago, and has not confirmed it yet", mode, Short(e.For))
	case e.State == lockcore.StateDraining:
		return "leaves ", fmt.Sprintf(" (%s), draining %s", mode, untilLeft(e.ExpiresIn, "for %s more"))
	case e.ExpiresIn <= 0:
		return "held ", fmt.Sprintf(" (%s), which expired %s ago", mode, Short(-e.ExpiresIn))
	default:
		return "holds ", fmt.Sprintf(" (%s) for %s", mode, Short(e.For))
	}
}

// Print prints the holders and waiters of a resource, with the commands that would end them.
func (r *Resource) Print(out io.Writer) error {
	var b strings.Builder
	b.WriteString(table.Plain(r.Name) + "\n")
	if text := r.poolText(); text != "" {
		b.WriteString("\n  " + text + "\n")
	}
	for _, entries := range [][]Entry{r.Holders, r.Waiters} {
		for i := range entries {
			e := &entries[i]
			fmt.Fprintf(&b, "\n  %s %s\n", table.Plain(e.Party.Name), e)
			for _, fact := range e.facts() {
				fmt.Fprintf(&b, "      %-10s %s\n", fact[0], table.Plain(fact[1]))
			}
		}
	}
	switch {
	case r.Damaged != "":
		b.WriteString("\n  " + table.Plain(r.Damaged) + "\n")
	case len(r.Holders)+len(r.Waiters) == 0:
		b.WriteString("\n  not held, and not waited for\n")
	}
	for i := range r.Forced {
		fmt.Fprintf(&b, "\n  %s\n", &r.Forced[i])
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// String describes a loss: who lost what, when, and to whom or why.
func (l *Loss) String() string {
	text := fmt.Sprintf("%s lost its lock on %s at %s", l.Party.Name, l.Resource, l.At.UTC().Format("2006-01-02 15:04:05 UTC"))
	if l.By != "" {
		text += ", to " + l.By
	}
	if l.Reason != "" {
		text += ", released by force: " + l.Reason
	}
	return table.Plain(text)
}

// String describes who committed although it had lost what, when, and to whom or why.
func (m *Missed) String() string {
	of := m.Party.Name
	if m.Party.Workflow != "" {
		of = "workflow " + of
	}
	text := fmt.Sprintf("saga of %s committed although it had lost %s at %s", of, m.Resource, m.At.UTC().Format("2006-01-02 15:04:05 UTC"))
	if m.By != "" {
		text += ": evicted by " + m.By
	}
	if m.Reason != "" {
		text += ": released by force: " + m.Reason
	}
	return table.Plain(text)
}

// Ends describes the end of a hold.
func (e *Entry) Ends() string {
	switch {
	case e.Kept:
		ends := "kept while the workflow is open"
		if e.Within != "" {
			ends = "kept while its step waits for other resources"
		}
		if e.ExpiresIn != lockcore.Forever {
			ends += "; if no worker runs, it ends in " + Short(e.ExpiresIn)
		}
		return ends
	case e.ExpiresIn == lockcore.Forever:
		return "never by itself"
	case e.ExpiresIn <= 0:
		return "expired: any party may acquire it"
	case e.State == lockcore.StateDraining:
		return "in " + Short(e.ExpiresIn) + " at most; it was cut off and is not renewed"
	case e.State == lockcore.StateClaimed:
		return "in " + Short(e.ExpiresIn) + ", unless it is confirmed"
	}
	return "in " + Short(e.ExpiresIn) + ", unless it is renewed; last heard from " + Short(e.Silent) + " ago"
}

// facts returns the details of an entry, as pairs of a name and a text.
func (e *Entry) facts() (facts [][2]string) {
	add := func(name, text string) {
		if text != "" {
			facts = append(facts, [2]string{name, text})
		}
	}
	add("step", e.Party.Step)
	add("run", e.Run)
	add("comment", e.Comment)
	if e.State == lockcore.StateWaiting {
		if e.Overdue {
			add("overdue", "passed over until it asks again")
		}
		add("lock ID", e.LockID)
		return facts
	}
	add("host", e.Host)
	add("ends", e.Ends())
	for _, r := range e.Running {
		if e.Party.Workflow == "" {
			break // plain Go has no steps
		}
		add("step runs", fmt.Sprintf("%s; last heard from %s ago, its lease ends %s", r.Part, Short(r.Silent), ending(r.ExpiresIn, "")))
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
	case len(w.Waits)+len(w.Holds) == 0:
		fmt.Fprintf(&b, "%s holds no lock and waits for none\n", table.Plain(w.Party.Name))
	case len(w.Waits) == 0:
		fmt.Fprintf(&b, "%s waits for no lock\n", table.Plain(w.Party.Name))
	}
	for i := range w.Waits {
		fmt.Fprintf(&b, "%s %s%s\n", table.Plain(w.Party.Name), &w.Waits[i], table.Plain(w.Waits[i].ahead))
		if text := w.Waits[i].pool; text != "" {
			fmt.Fprintf(&b, "   %s\n", text)
		}
	}
	if len(w.Waits) == 0 {
		for i := range w.Holds {
			h := &w.Holds[i]
			fmt.Fprintf(&b, "%s %s\n", table.Plain(w.Party.Name), h)
			if h.Party.Workflow == "" && w.Advice == "" {
				fmt.Fprintf(&b, "   %s\n", table.Plain(h.process()))
			}
		}
	}
	if len(w.Waits) == 0 || len(w.Roots) == 0 {
		w.Doing.print(&b)
	}
	if w.Advice != "" {
		fmt.Fprintf(&b, "→ %s\n", table.Plain(w.Advice))
	}
	for i := range w.Lost {
		fmt.Fprintf(&b, "%s\n", &w.Lost[i])
	}
	for i := range w.Missed {
		fmt.Fprintf(&b, "%s\n", &w.Missed[i])
	}
	for i, root := range w.Roots {
		b.WriteString("\n" + root.line() + "\n")
		root.Doing.print(&b)
		if i+1 == len(w.Roots) || root.below() != w.Roots[i+1].below() { // several holders may have the same waiters
			b.WriteString(root.below())
		}
		if root.Advice != "" {
			fmt.Fprintf(&b, "→ %s\n", table.Plain(root.Advice))
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (n *Node) line() string {
	var does []string
	if n.Wait != nil {
		does = append(does, n.Wait.String())
	}
	forChild := table.Plain(n.ForChild())
	if forChild != "" && !n.Deadlock {
		does = append(does, forChild)
	}
	if n.Hold != nil {
		does = append(does, n.Hold.String())
	}
	text := table.Plain(n.Party.Name) + " " + strings.Join(does, "; ")
	switch {
	case n.Deadlock && forChild != "":
		text += ", and " + forChild + ", below: a deadlock"
	case n.Deadlock:
		text += ", and waits for a party below: a deadlock"
	}
	return text
}

// below returns the branches below a node as text.
func (n *Node) below() string {
	var b strings.Builder
	n.branches(&b, "")
	return b.String()
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

// print describes a workflow. It prints nothing for nil.
func (d *Doing) print(b *strings.Builder) {
	if d == nil {
		return
	}
	run := ""
	if d.RunID != "" {
		run = ", run " + d.RunID
	}
	fmt.Fprintf(b, "   workflow  %s%s\n", d.Status, run)
	for _, a := range d.Activities {
		text := fmt.Sprintf("%s (%s), %s, attempt %d", a.Type, a.ID, a.State, a.Attempt)
		if a.Worker != "" {
			text += ", on " + a.Worker
		}
		if a.Failure != "" {
			text += ", last failure: " + a.Failure
		}
		fmt.Fprintf(b, "   activity  %s\n", table.Plain(text))
	}
}
