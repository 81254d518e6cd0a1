package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/internal/cli/verify"
	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
)

// verifyConfig has the flags of verify.
type verifyConfig struct {
	verify.Options
	json bool
}

func verifyCommand(s streams) *cobra.Command {
	var cfg verifyConfig
	c := &cobra.Command{
		Use:   "verify",
		Short: "Check on your own database what the locks guarantee, with several processes",
		Long: `Checks what the locks guarantee on your own database: the scenarios of the rules, histories of several client
processes for linearizability, expiry, trust and fences against the server's clock, the use of the indexes, and
the same histories while connections are cut. It takes half a minute to three minutes.

It makes a collection of its own, lockstep_verify_…, and removes it at the end, even after Ctrl-C. It writes to no
other. It needs the role readWrite on the database, and --step-down in addition clusterManager on the cluster.

--control runs a control: the clients' store is broken on purpose, and a check must find that.
docs/verify.md explains the report.

Exit status: 0 if every check held or was not possible; 1 if one was violated, or the run could not be completed;
2 for wrong usage, including --step-down where it is not possible; 130 if it was interrupted before a violation.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("seed") {
				cfg.Seed = 1 + rand.Uint64N(1_000_000) //nolint:gosec // a short number to repeat the run with
			}
			return cfg.run(c.Context(), s)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&cfg.URI, "mongodb-uri", "", "where the database is (LOCKSTEP_MONGODB_URI)")
	f.StringVar(&cfg.Database, "database", "", `the database; that of the URI by default, or "`+defaultDatabase+`"`)
	f.IntVar(&cfg.Clients, "clients", 4, "how many client processes take part in a history")
	f.DurationVar(&cfg.Duration, "duration", 0, "repeat the checks with clients, with new seeds, until this time is over")
	f.Uint64Var(&cfg.Seed, "seed", 0, "draws the operations and the cuts; at random by default, and printed")
	f.BoolVar(&cfg.StepDown, "step-down", false, "make the primary of the replica set step down during a history")
	f.StringVar(&cfg.Control, "control", "", "break the clients' store: "+strings.Join(verify.Controls(), ", "))
	f.BoolVar(&cfg.json, "json", false, "print JSON")
	return c
}

func (cfg *verifyConfig) run(ctx context.Context, s streams) error {
	from := "--mongodb-uri"
	if cfg.URI == "" {
		from = uriVariable
		cfg.URI = os.Getenv(uriVariable)
	}
	if cfg.URI == "" {
		return fmt.Errorf("%w: neither --mongodb-uri nor LOCKSTEP_MONGODB_URI says where the database is", errUsage)
	}
	cfg.Database = cmp.Or(cfg.Database, connect.Database(cfg.URI), defaultDatabase)
	cfg.Version, cfg.Err = version(), s.err
	cfg.Client = harness.Command{Args: []string{"verify-client"}}
	if table.Terminal(s.err) != nil {
		cfg.Progress = func(c verify.Check) { _ = table.Fprintf(s.err, "%s: %s, %d %s\n", c.Name, c.Result, c.Count, c.Unit) }
	}
	told := context.AfterFunc(ctx, func() { _ = table.Fprintf(s.err, "lockstep: it stops, and removes its collection\n") })
	report, err := verify.Run(ctx, cfg.Options)
	told()
	if report == nil {
		if err == nil || errors.Is(err, verify.ErrUsage) {
			return err
		}
		return fmt.Errorf("%s: %w", from, err)
	}
	if ctx.Err() != nil && report.Result != verify.Violated {
		if report.Left != "" {
			_ = table.Fprintf(s.err, "lockstep: the collection %s could not be removed: drop it\n", report.Left)
		}
		return context.Cause(ctx)
	}
	return errors.Join(write(s.out, cfg.json, report, report.Print), err)
}

// verifyClientCommand is the hidden command that verify starts as its client processes.
func verifyClientCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use:    "verify-client",
		Short:  "A client process of verify, which starts it",
		Hidden: true,
		Args:   noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			err := verify.RunClient(c.Context(), s.in, table.JSON(s.out))
			if errors.Is(err, verify.ErrUsage) {
				return fmt.Errorf("%w: verify-client is started by lockstep verify", errUsage)
			}
			return err
		},
	}
}
