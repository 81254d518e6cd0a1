package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"github.com/spf13/cobra"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
)

func orphansCommand(s streams) *cobra.Command {
	var cfg whyConfig
	c := &cobra.Command{
		Use:   "orphans",
		Short: "List what closed workflows have left: what a janitor would release now",
		Long: `Does a janitor's round that changes nothing, and lists what a real one would end. A janitor works once a
minute, so what stays longer says that none does: see lockstep doctor.

` + connectionHelp + `

Exit status: 0, 1 if the database or Temporal did not answer, 2 for wrong usage.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			site, end, err := cfg.open(c.Context(), s, "lockstep orphans")
			if err != nil {
				return err
			}
			defer end()
			found, incomplete := site.Orphans(c.Context(), logger(s))
			if incomplete != nil && len(found) == 0 {
				return incomplete
			}
			if found == nil {
				found = []inspect.Orphan{}
			}
			err = write(s.out, cfg.json, found, func(out io.Writer) error { return inspect.PrintOrphans(out, found) })
			return errors.Join(err, incomplete)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	cfg.add(f)
	f.BoolVar(&cfg.json, "json", false, "print JSON")
	return c
}

func deadlocksCommand(s streams) *cobra.Command {
	var db databaseFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "deadlocks",
		Short: "List the circles of parties that wait for each other",
		Long: `Lists the deadlocks that stand now. Workers find and end them by themselves within seconds: one that stays
says that no worker, and no janitor, looks after the queues.

Exit status: 0, 1 if the database could not be read, 2 for wrong usage.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			site, end, err := db.open(c.Context(), "lockstep deadlocks")
			if err != nil {
				return err
			}
			defer end()
			found, err := site.Deadlocks(c.Context())
			if err != nil {
				return err
			}
			if found == nil {
				found = []party.Deadlock{}
			}
			return write(s.out, asJSON, found, func(out io.Writer) error {
				if len(found) == 0 {
					_, err := fmt.Fprintln(out, "no deadlock")
					return err
				}
				var errs []error
				for _, d := range found {
					_, err := fmt.Fprintln(out, site.DeadlockText(d))
					errs = append(errs, err)
				}
				return errors.Join(errs...)
			})
		},
	}
	db.add(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
