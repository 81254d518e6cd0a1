package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
)

// doctorConfig is what doctor is started with.
type doctorConfig struct {
	bothFlags
	json bool
}

func doctorCommand(s streams) *cobra.Command {
	var cfg doctorConfig
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong with the database, Temporal and what workflows have left",
		Long: `Looks at the database (version, replica set, clock, layout, indexes, rights), at Temporal (version, rights),
and at what should not stay: orphans, deadlocks, no janitor. Each finding comes with advice. What could not be
asked is "unknown", never a guess. To see whether it may write it locks the resource "lockstep/doctor" for a
moment, shared.

` + connectionHelp + `

Exit status: 0 if nothing is broken or unknown, warnings apart; 1 if something is, or the database or Temporal
does not answer at all; 2 for wrong usage.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return cfg.run(c.Context(), s) },
	}
	f := c.Flags()
	f.SortFlags = false
	cfg.add(f)
	f.BoolVar(&cfg.json, "json", false, "print JSON")
	return c
}

func (cfg *doctorConfig) run(ctx context.Context, s streams) error {
	site, end, err := cfg.open(ctx, s, "lockstep doctor")
	if err != nil {
		return err
	}
	defer end()
	doctor := inspect.Doctor{Site: *site, Logger: logger(s)}
	findings := doctor.Examine(ctx)
	if err := write(s.out, cfg.json, findings, func(out io.Writer) error { return inspect.PrintFindings(out, findings) }); err != nil {
		return err
	}
	if bad := slices.IndexFunc(findings, func(f inspect.Finding) bool { return f.State == inspect.Broken || f.State == inspect.Unknown }); bad >= 0 {
		return fmt.Errorf("%s: %s", findings[bad].About, findings[bad].What)
	}
	return nil
}
