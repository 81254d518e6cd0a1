package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// inspection is a command that inspects locks, and prints its result as text or as JSON.
type inspection struct {
	siteFlags
	// mayLeaveOutTemporal adds the flag --no-temporal.
	mayLeaveOutTemporal bool
	json                bool
	// lenient is set if find copes with a server that does not answer and with a missing collection.
	lenient bool
	// find returns the result and prints it as text. A result may come with an error, which makes the exit status 1.
	find func(ctx context.Context, at *site, args []string) (result any, text func(io.Writer) error, err error)
}

// complete adds the flags and the action to a command.
func (i *inspection) complete(s streams, c *cobra.Command) *cobra.Command {
	f := c.Flags()
	if i.noTemporal {
		i.databaseFlags.add(c)
	} else {
		f.SortFlags = false
		i.siteFlags.add(c)
	}
	if i.mayLeaveOutTemporal {
		f.BoolVar(&i.noTemporal, "no-temporal", false, "do not ask Temporal")
	}
	f.BoolVar(&i.json, "json", false, "print JSON")
	open := i.open
	if i.lenient {
		open = i.openReachable
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		at, err := open(c.Context(), s, c.CommandPath())
		if err != nil {
			return err
		}
		defer at.close()
		if !i.lenient {
			if err := at.CheckCollection(c.Context()); err != nil {
				return err
			}
		}
		result, text, err := i.find(c.Context(), at, args)
		if result == nil {
			return err
		}
		return errors.Join(write(s.out, i.json, result, text), err)
	}
	return c
}

// write prints a value as JSON or as text.
func write(out io.Writer, asJSON bool, value any, text func(io.Writer) error) error {
	if !asJSON {
		return text(out)
	}
	e := json.NewEncoder(table.JSON(out))
	e.SetIndent("", "  ")
	return e.Encode(value)
}

// notNil returns an empty list instead of nil, which JSON would show as null.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func showCommand(s streams) *cobra.Command {
	i := &inspection{siteFlags: siteFlags{noTemporal: true}}
	i.find = func(ctx context.Context, at *site, args []string) (any, func(io.Writer) error, error) {
		found, ok, err := at.Show(ctx, args[0])
		if err != nil {
			return nil, nil, err
		}
		if !ok {
			err = fmt.Errorf("%q is not held, and not waited for; lockstep ps lists what is held", args[0])
			if len(found.Forced) == 0 {
				return nil, nil, err
			}
		}
		return found, found.Print, cmp.Or(err, damage(&found))
	}
	return i.complete(s, &cobra.Command{
		Use:   "show RESOURCE",
		Short: "Show who holds a resource, its queue, and how to end each hold",
		Long: `Shows the holders of a resource, its queue, and the last five holds that were released by force: whose, when, by whom
and why. An idle resource is forgotten after a day.

Exit status: 0, 1 if it is not held and not waited for, or the database or the resource's document could not be
read, 2 for wrong usage.`,
		Args: arguments("the resource's name"),
	})
}

func whyCommand(s streams) *cobra.Command {
	i := &inspection{mayLeaveOutTemporal: true}
	i.find = func(ctx context.Context, at *site, args []string) (any, func(io.Writer) error, error) {
		why, err := at.Why(ctx, args[0])
		if err != nil {
			return nil, nil, err
		}
		if !why.Known() {
			return nil, nil, fmt.Errorf("no party of the name %q holds a lock or waits for one%s", args[0], why.Temporal())
		}
		return why, why.Print, nil
	}
	return i.complete(s, &cobra.Command{
		Use:   "why WORKFLOW",
		Short: "Show why a workflow waits: the root blocker first, what it does, and what to do about it",
		Long: `Shows the blocking tree of a workflow: the party that blocks it, the party that blocks that one, and so on up
to the root blocker, with what Temporal reports about it and one line of advice. WORKFLOW is a workflow ID, or
an owner as plain Go names it. --no-temporal asks the database alone.

` + connectionHelp + `

Exit status: 0, also if it waits for nothing; 1 if neither the database nor Temporal knows the name, or one
of them did not answer; 2 for wrong usage.`,
		Args: arguments("a workflow ID"),
	})
}

func orphansCommand(s streams) *cobra.Command {
	i := &inspection{}
	i.find = func(ctx context.Context, at *site, _ []string) (any, func(io.Writer) error, error) {
		found, incomplete := at.Orphans(ctx, logger(s))
		if incomplete != nil && len(found) == 0 {
			return nil, nil, incomplete
		}
		return notNil(found), func(out io.Writer) error { return inspect.PrintOrphans(out, found) }, incomplete
	}
	return i.complete(s, &cobra.Command{
		Use:   "orphans",
		Short: "List what closed workflows have left: what a janitor would release now",
		Long: `Does a janitor's round that changes nothing, and lists what a real one would end. A janitor works once a
minute. If orphans stay longer, no janitor works: see lockstep doctor.

` + connectionHelp + `

Exit status: 0, 1 if the database or Temporal did not answer or a document could not be read, 2 for wrong usage.`,
		Args: noArguments,
	})
}

func deadlocksCommand(s streams) *cobra.Command {
	i := &inspection{siteFlags: siteFlags{noTemporal: true}}
	i.find = func(ctx context.Context, at *site, _ []string) (any, func(io.Writer) error, error) {
		found, incomplete := at.Deadlocks(ctx)
		if incomplete != nil && len(found) == 0 {
			return nil, nil, incomplete
		}
		return notNil(found), func(out io.Writer) error {
			if len(found) == 0 {
				return table.Fprintf(out, "no deadlock\n")
			}
			for _, d := range found {
				if err := table.Fprintf(out, "%s\n", at.DeadlockText(d)); err != nil {
					return err
				}
			}
			return nil
		}, incomplete
	}
	return i.complete(s, &cobra.Command{
		Use:   "deadlocks",
		Short: "List the circles of parties that wait for each other",
		Long: `Lists the current deadlocks. Workers find and end them by themselves within seconds. If one stays, no worker
and no janitor watches the queues.

Exit status: 0, 1 if the database or a document could not be read, 2 for wrong usage.`,
		Args: noArguments,
	})
}

func doctorCommand(s streams) *cobra.Command {
	i := &inspection{lenient: true}
	i.find = func(ctx context.Context, at *site, _ []string) (any, func(io.Writer) error, error) {
		doctor := inspect.Doctor{Site: at.Site, NoDatabase: at.noDatabase, NoTemporal: at.noTemporal, Logger: logger(s)}
		findings := doctor.Examine(ctx)
		var bad []string
		for _, state := range []string{inspect.Broken, inspect.Unknown} {
			var about []string
			for _, f := range findings {
				if f.State == state {
					about = append(about, f.About)
				}
			}
			if len(about) > 0 {
				bad = append(bad, state+": "+strings.Join(about, ", "))
			}
		}
		var err error
		if len(bad) > 0 {
			err = errors.New(strings.Join(bad, "; "))
		}
		return findings, func(out io.Writer) error { return inspect.PrintFindings(out, findings) }, err
	}
	return i.complete(s, &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong with the database, Temporal and what workflows have left",
		Long: `Checks the database (version, replica set, clock, layout, indexes, rights) and Temporal (version, rights), and
looks for what should not stay: orphans, deadlocks, no janitor. Each finding comes with advice. A check that got
no answer is "unknown", never a guess, and if a server does not answer, the others are checked. To see whether it
may write, it locks the resource "lockstep/doctor" for a moment, shared. It writes to no other collection than one
of locks.

` + connectionHelp + `

Exit status: 0 if nothing is broken or unknown, warnings apart; 1 if something is; 2 for wrong usage.`,
		Args: noArguments,
	})
}

// psConfig has the flags of ps.
type psConfig struct {
	databaseFlags
	filter lockcore.Filter
	most   int
	all    bool
	watch  time.Duration
	json   bool
}

func psCommand(s streams) *cobra.Command {
	var cfg psConfig
	c := &cobra.Command{
		Use:   "ps",
		Short: "List who holds locks and who waits, the hottest resources first",
		Long: `Lists the resources that are held or waited for: the one with the most waiters first, then the one with
the longest wait. With --waiting it reads only what is contended or kept, by an index. On a terminal, long
names are shortened in the middle, and a narrow one gets fewer columns. Locks of Lockstep itself are listed
with --all, and with --json, as "internal".

Exit status: 0, 1 if the database could not be read or has no such collection, 2 for wrong usage.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if cfg.json && !c.Flags().Changed("most") {
				cfg.most = 0 // a program would not notice that the list is cut
			}
			cfg.all = cfg.all || cfg.json
			return cfg.run(c.Context(), s)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	cfg.databaseFlags.add(c)
	f.StringVar(&cfg.filter.Prefix, "prefix", "", "only resources whose names begin so")
	f.BoolVar(&cfg.filter.Contended, "waiting", false, "only resources that are waited for, or kept by a workflow")
	f.IntVar(&cfg.most, "most", 50, "how many resources to list at most; 0 is all, as with --json by default")
	f.BoolVar(&cfg.all, "all", false, "also the locks of janitors and of lockstep doctor")
	f.DurationVar(&cfg.watch, "watch", 0, "list again and again, after a pause of 1s or more, until Ctrl-C")
	f.BoolVar(&cfg.json, "json", false, "print JSON")
	return c
}

func (cfg *psConfig) run(ctx context.Context, s streams) error {
	switch {
	case cfg.most < 0:
		return fmt.Errorf("%w: --most is %d: want 0 or more", errUsage, cfg.most)
	case cfg.watch != 0 && cfg.watch < time.Second:
		return fmt.Errorf("%w: --watch is %s: want 1s or more", errUsage, cfg.watch)
	}
	at, err := cfg.open(ctx, "lockstep ps")
	if err != nil {
		return err
	}
	defer at.close()
	if err := at.CheckCollection(ctx); err != nil {
		return err
	}
	for {
		if cfg.watch > 0 && !cfg.json {
			if err := cfg.writeTime(s.out); err != nil {
				return err
			}
		}
		if err := cfg.list(ctx, at, s.out); err != nil || cfg.watch == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(cfg.watch):
		}
	}
}

// writeTime writes the line above each list of --watch. On a terminal the list replaces the last one.
func (cfg *psConfig) writeTime(out io.Writer) error {
	if terminal := table.Terminal(out); terminal != nil {
		if _, err := terminal.WriteString("\x1b[H\x1b[2J"); err != nil {
			return err
		}
	}
	return table.Fprintf(out, "%s, every %s\n", time.Now().Format(time.TimeOnly), cfg.watch)
}

// listWidth is the width of a list of resources: that of the terminal. Elsewhere it has no limit.
func listWidth(out io.Writer) int {
	f := table.Terminal(out)
	if f == nil {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		return usualWidth
	}
	return width
}

// usualWidth is the width of a terminal that does not report one.
const usualWidth = 80

func (cfg *psConfig) list(ctx context.Context, at *site, out io.Writer) error {
	resources, err := at.Resources(ctx, cfg.filter)
	if err != nil {
		return err
	}
	if !cfg.all {
		resources = slices.DeleteFunc(resources, func(r inspect.Resource) bool { return r.Internal })
	}
	all := len(resources)
	if cfg.most > 0 && all > cfg.most {
		resources = resources[:cfg.most]
	}
	resources = notNil(resources)
	if cfg.json && cfg.watch > 0 { // a list on each line
		return json.NewEncoder(table.JSON(out)).Encode(resources)
	}
	return write(out, cfg.json, resources, func(out io.Writer) error {
		if all == 0 {
			return table.Fprintf(out, "no lock is held, and none is waited for, in collection %s of database %s\n",
				at.Collection.Name(), at.Collection.Database().Name())
		}
		if err := inspect.PrintResources(out, resources, listWidth(out)); err != nil || all == len(resources) {
			return err
		}
		return table.Fprintf(out, "and %d more; see --most, --prefix and --waiting\n", all-len(resources))
	})
}
