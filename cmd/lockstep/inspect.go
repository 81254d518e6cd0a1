package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// open connects to the database, for a command that looks or repairs.
func (d *databaseFlags) open(ctx context.Context, command string) (site *inspect.Site, end func(), err error) {
	coll, disconnect, err := d.connect(ctx, command)
	if err != nil {
		return nil, nil, err
	}
	locker, err := lockcore.New(coll, lockcore.Config{})
	if err != nil {
		disconnect()
		return nil, nil, err
	}
	site = &inspect.Site{Locker: locker.Core(), Collection: coll}
	if d.database != "" {
		site.Flags = append(site.Flags, "--database", d.database)
	}
	if d.collection != defaultCollection {
		site.Flags = append(site.Flags, "--collection", d.collection)
	}
	return site, func() {
		_ = locker.Close(context.WithoutCancel(ctx)) // it has nothing under way
		disconnect()
	}, nil
}

// bothFlags are those of a command that asks the database and Temporal.
type bothFlags struct {
	temporalFlags
	databaseFlags
	// alone leaves Temporal out.
	alone bool
}

func (b *bothFlags) add(f flagSet) {
	b.temporalFlags.add(f)
	b.databaseFlags.add(f)
}

// open connects to the database and to Temporal.
func (b *bothFlags) open(ctx context.Context, s streams, command string) (site *inspect.Site, end func(), err error) {
	site, disconnect, err := b.databaseFlags.open(ctx, command)
	if err != nil || b.alone {
		return site, disconnect, err
	}
	defer func() {
		if err != nil {
			disconnect()
		}
	}()
	tc, err := b.dial(ctx, s, func(*client.Options) {})
	if err != nil {
		return nil, nil, err
	}
	id, err := currentrun.NamespaceID(ctx, tc.WorkflowService(), b.namespace)
	if err != nil {
		tc.Close()
		return nil, nil, err
	}
	site.Temporal = inspect.Temporal{Service: tc.WorkflowService(), Namespace: b.namespace, NamespaceID: id}
	return site, func() {
		tc.Close()
		disconnect()
	}, nil
}

// write prints a value as JSON, or in words.
func write(out io.Writer, asJSON bool, value any, words func(io.Writer) error) error {
	if !asJSON {
		return words(out)
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

func showCommand(s streams) *cobra.Command {
	var db databaseFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "show RESOURCE",
		Short: "Show who holds a resource, its queue, and how to end each hold",
		Long: `Shows everything that stands on one resource.

Exit status: 0, 1 if it is not held and not waited for, or the database could not be read, 2 for wrong usage.`,
		Args: arguments("the resource's name"),
		RunE: func(c *cobra.Command, args []string) error {
			site, end, err := db.open(c.Context(), "lockstep show")
			if err != nil {
				return err
			}
			defer end()
			resources, err := site.Resources(c.Context(), lockcore.Filter{Resource: args[0]})
			if err != nil {
				return err
			}
			if len(resources) == 0 {
				return fmt.Errorf("%q is not held, and not waited for; lockstep ps lists what is held", args[0])
			}
			return write(s.out, asJSON, resources[0], resources[0].Print)
		},
	}
	db.add(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// whyConfig is what why is started with.
type whyConfig struct {
	bothFlags
	json bool
}

func whyCommand(s streams) *cobra.Command {
	var cfg whyConfig
	c := &cobra.Command{
		Use:   "why WORKFLOW",
		Short: "Show why a workflow waits: the root blocker first, what it does, and what to do about it",
		Long: `Shows the blocking tree of a workflow: who is in its way, whom that one waits for, and so on up to the root
blocker, with what Temporal says of it and one line of advice. WORKFLOW is a workflow ID, or an owner as
plain Go names it. --no-temporal asks the database alone.

` + connectionHelp + `

Exit status: 0, also if it waits for nothing; 1 if neither the database nor Temporal knows the name, or one
of them did not answer; 2 for wrong usage.`,
		Args: arguments("a workflow ID"),
		RunE: func(c *cobra.Command, args []string) error { return cfg.run(c.Context(), s, args[0]) },
	}
	f := c.Flags()
	f.SortFlags = false
	cfg.add(f)
	f.BoolVar(&cfg.alone, "no-temporal", false, "do not ask Temporal")
	f.BoolVar(&cfg.json, "json", false, "print JSON")
	return c
}

func (cfg *whyConfig) run(ctx context.Context, s streams, name string) error {
	site, end, err := cfg.open(ctx, s, "lockstep why")
	if err != nil {
		return err
	}
	defer end()
	why, err := site.Why(ctx, name)
	if err != nil {
		return err
	}
	if !why.Known() {
		also := ", and Temporal knows no such workflow"
		if cfg.alone {
			also = "; Temporal was not asked"
		}
		return fmt.Errorf("no party of the name %q holds a lock or waits for one%s", name, also)
	}
	return write(s.out, cfg.json, why, why.Print)
}
