package verify

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/table"
)

// Results of a check, and of a run.
const (
	Held     = "held"
	Violated = "violated"
	// NotPossible is the result of a check that could not be made here.
	NotPossible = "not possible"
	// Incomplete is the result of a run that ended with an error before all checks were made.
	Incomplete = "incomplete"
)

// Report is the result of a run.
type Report struct {
	// Version is that of the command.
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Seed    uint64    `json:"seed"`
	// Control names the defect of the clients' store, if the run is a control.
	Control string        `json:"control,omitempty"`
	Took    time.Duration `json:"took"`
	// Rounds is the number of times that the checks with clients were made.
	Rounds     int     `json:"rounds"`
	Operations int64   `json:"operations"`
	Server     Server  `json:"server"`
	Checks     []Check `json:"checks"`
	// Result is Held, Violated or Incomplete.
	Result string `json:"result"`
	// Error is the reason of an incomplete run.
	Error string `json:"error,omitempty"`
	// Left names the collection if it could not be removed.
	Left string `json:"left,omitempty"`
}

// Server describes what the run was connected to.
type Server struct {
	// Product is "MongoDB" or "FerretDB", and Version its version, for FerretDB with that of the MongoDB that it emulates.
	Product string `json:"product"`
	Version string `json:"version"`
	// Topology is "replica set", "sharded cluster" or "standalone server".
	Topology string `json:"topology"`
	// ReplicaSet is the name of the set, and Members the number of its members that hold data.
	ReplicaSet string `json:"replicaSet,omitempty"`
	Members    int    `json:"members,omitempty"`
	// Storage is the storage engine; empty if the server does not report it.
	Storage    string `json:"storage,omitempty"`
	Collection string `json:"collection"`
}

// String describes the server in a few words.
func (s Server) String() string {
	text := s.Product + " " + s.Version + " " + s.Topology
	if s.Members > 0 {
		text += fmt.Sprintf(" of %d", s.Members)
	}
	if s.Storage != "" {
		text += " (" + s.Storage + ")"
	}
	return text
}

// Check is the result of one check.
type Check struct {
	Name string `json:"name"`
	// Shows describes what the check shows.
	Shows string `json:"shows"`
	// Result is Held, Violated or NotPossible.
	Result string `json:"result"`
	// Count is the number of things checked, in the Unit.
	Count int           `json:"count"`
	Unit  string        `json:"unit"`
	Took  time.Duration `json:"took"`
	// Seen is the first observation that contradicts the Guarantee. Seed repeats it.
	Seen      string `json:"seen,omitempty"`
	Guarantee string `json:"guarantee,omitempty"`
	Seed      uint64 `json:"seed,omitempty"`
	// Reason explains why the check was not possible.
	Reason string `json:"reason,omitempty"`
	// Note has facts that are not judged.
	Note string `json:"note,omitempty"`
}

// Print prints the report for people.
func (r *Report) Print(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "server      %s\n", table.Plain(r.Server.String()))
	if r.Server.ReplicaSet != "" {
		fmt.Fprintf(&b, "set         %s\n", table.Plain(r.Server.ReplicaSet))
	}
	fmt.Fprintf(&b, "collection  %s, made for this run\n", table.Plain(r.Server.Collection))
	fmt.Fprintf(&b, "seed        %d, rounds %d, %.1f s\n", r.Seed, r.Rounds, r.Took.Seconds())
	if r.Control != "" {
		fmt.Fprintf(&b, "control     %s: the clients' store is broken on purpose, and a check must find that\n", r.Control)
	}
	b.WriteString("\n")
	for _, c := range r.Checks {
		c.print(&b)
	}
	if r.Left != "" {
		fmt.Fprintf(&b, "\nleft        the collection %s could not be removed: drop it\n", table.Plain(r.Left))
	}
	fmt.Fprintf(&b, "\n%s\n", table.Plain(r.Line()))
	_, err := io.WriteString(out, b.String())
	return err
}

func (c *Check) print(b *strings.Builder) {
	fmt.Fprintf(b, "%-12s  %-15s  %8s %-10s  %5.1f s  %s\n", c.Result, c.Name, number(int64(c.Count)), c.Unit, c.Took.Seconds(), c.Shows)
	line := func(name, text string) {
		for i, part := range strings.Split(text, "\n") {
			if part == "" {
				continue
			}
			if i > 0 {
				name = ""
			}
			fmt.Fprintf(b, "%12s  %-9s %s\n", "", name, table.Plain(part))
		}
	}
	line("seen", c.Seen)
	line("guarantee", c.Guarantee)
	if c.Seed != 0 {
		line("repeat", fmt.Sprintf("--seed %d", c.Seed))
	}
	line("reason", c.Reason)
	line("note", c.Note)
}

// Line is the result of the run in one line, for a ticket.
func (r *Report) Line() string {
	made, violated := 0, []string{}
	impossible := []string{}
	for _, c := range r.Checks {
		switch c.Result {
		case Violated:
			violated = append(violated, c.Name)
		case NotPossible:
			impossible = append(impossible, c.Name)
			continue
		}
		made++
	}
	text := strings.ToUpper(r.Result)
	if len(violated) > 0 {
		text += ": " + strings.Join(violated, ", ")
	}
	if r.Error != "" {
		text += ": " + r.Error
	}
	text += fmt.Sprintf(", %s", table.Count(made, "check"))
	if len(impossible) > 0 {
		text += ", not possible: " + strings.Join(impossible, ", ")
	}
	if r.Control != "" {
		text += ", control " + r.Control
	}
	return fmt.Sprintf("lockstep verify %s: %s, %s operations, %s, %s, seed %d", r.Version, text, number(r.Operations), r.Server,
		r.Started.UTC().Format(time.RFC3339), r.Seed)
}

// number prints a number with commas.
func number(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
