package inspect

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Site is where to look.
type Site struct {
	Locker *party.Locker
	// Collection is where its locks are, for the doctor.
	Collection *mongo.Collection
	// Temporal is whom to ask about workflows; the zero value asks no server.
	Temporal Temporal
	// Flags are those by which lockstep finds the locks, for commands to copy.
	Flags []string
	// Discreet leaves names of resources out of commands.
	Discreet bool
}

// Resource is what stands on one resource.
type Resource struct {
	Name string `json:"resource"`
	// Holders are those who hold it, whom it was granted, and who drain; Waiters its queue.
	Holders []Entry `json:"holders,omitempty"`
	Waiters []Entry `json:"waiters,omitempty"`
	// LongestWait is that of the waiter that has waited longest.
	LongestWait time.Duration `json:"longestWait,omitempty"`
}

// Entry is a party on a resource.
type Entry struct {
	Party Party `json:"party"`
	// For is how long it has held, or waited.
	For time.Duration `json:"for"`
	lockcore.Status
	// End is the command that ends it by force.
	End string `json:"end"`
}

// Resources lists what stands on the resources that a filter selects, the hottest first: the most
// waiters, then the longest wait, then by name.
func (s *Site) Resources(ctx context.Context, f lockcore.Filter) ([]Resource, error) {
	var all []Resource
	for st, err := range s.Locker.Status(ctx, f) {
		if err != nil {
			return nil, err
		}
		if len(all) == 0 || all[len(all)-1].Name != st.Resource {
			all = append(all, Resource{Name: st.Resource})
		}
		r := &all[len(all)-1]
		if s.Discreet {
			st.Comment = "" // it may name what is hidden
		}
		e := Entry{Party: s.PartyOf(&st), Status: st, End: s.commandToEnd(&st)}
		if st.State != lockcore.StateWaiting {
			e.For = sinceOf(&st)
			r.Holders = append(r.Holders, e)
			continue
		}
		e.For = st.Silent
		r.Waiters = append(r.Waiters, e)
		r.LongestWait = max(r.LongestWait, e.For)
	}
	slices.SortStableFunc(all, func(a, b Resource) int {
		return cmp.Or(cmp.Compare(len(b.Waiters), len(a.Waiters)), cmp.Compare(b.LongestWait, a.LongestWait), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// sinceOf is how long an entry stands, by this machine's clock: a moment for people, never less
// than nothing.
func sinceOf(s *lockcore.Status) time.Duration {
	if s.Since.IsZero() {
		return 0
	}
	return max(0, time.Since(s.Since))
}

// commandToEnd is a line for a shell.
func (s *Site) commandToEnd(st *lockcore.Status) string {
	verb, names, flags := "release", []string{st.Resource, st.LockID}, []string{"--reason", "say why"}
	if st.LockID == Maintenance {
		verb, names, flags = "unhold", names[:1], nil
	}
	if s.Discreet {
		return "lockstep " + verb + ", with the names that are hidden here"
	}
	words := append([]string{verb}, names...)
	words = append(words, flags...)
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "-") }) {
		return s.command(append([]string{verb}, flags...)...) + " -- " + shellLine(names...) // or they would be flags
	}
	return s.command(words...)
}

// command is a command of lockstep, with the flags by which it finds the locks.
func (s *Site) command(words ...string) string {
	words = append([]string{"lockstep"}, words...)
	if words[1] == "janitor" {
		words = append(words, s.inNamespace()...)
	}
	return shellLine(append(words, s.Flags...)...)
}

// temporal is a command of Temporal's own.
func (s *Site) temporal(words ...string) string {
	return shellLine(append(append([]string{"temporal"}, words...), s.inNamespace()...)...)
}

// inNamespace is the flag that names the namespace, unless that is Temporal's default.
func (s *Site) inNamespace() []string {
	if n := s.Temporal.Namespace; n != "" && n != "default" {
		return []string{"--namespace", n}
	}
	return nil
}

// shellLine has words as a shell reads them.
func shellLine(words ...string) string {
	for i, word := range words {
		if word == "" || strings.ContainsFunc(word, needsQuotes) {
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// needsQuotes is true for what a shell may take for more than itself.
func needsQuotes(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("/-_.:@%+=,", r)
}
