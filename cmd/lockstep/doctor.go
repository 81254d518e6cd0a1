package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/temporal-lockstep/lockstep/internal/inspect"
	"github.com/temporal-lockstep/lockstep/internal/namespace"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// doctorConfig is what doctor is started with.
type doctorConfig struct {
	temporalFlags
	databaseFlags
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
	cfg.temporalFlags.add(f)
	cfg.databaseFlags.add(f)
	f.BoolVar(&cfg.json, "json", false, "print JSON")
	return c
}

func (cfg *doctorConfig) run(ctx context.Context, s streams) error {
	coll, disconnect, err := cfg.connect(ctx, "lockstep doctor")
	if err != nil {
		return err
	}
	defer disconnect()
	locker, err := lockcore.New(coll, lockcore.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = locker.Close(context.WithoutCancel(ctx)) }() // it has nothing under way
	tc, err := cfg.dial(ctx, s, func(*client.Options) {})
	if err != nil {
		return err
	}
	defer tc.Close()
	id, err := namespace.Ask(ctx, tc.WorkflowService(), cfg.namespace)
	if err != nil {
		return err
	}
	p := inspect.Patient{
		Collection: coll, Site: *cfg.site(locker), Logger: logger(s),
		Info: func(ctx context.Context) (*workflowservice.GetSystemInfoResponse, error) {
			return tc.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
		},
	}
	p.Temporal = inspect.Temporal{Service: tc.WorkflowService(), Namespace: cfg.namespace, NamespaceID: id}
	findings := p.Examine(ctx)
	if err := write(s.out, cfg.json, findings, func(out io.Writer) error { return inspect.PrintFindings(out, findings) }); err != nil {
		return err
	}
	if bad := slices.IndexFunc(findings, func(f inspect.Finding) bool { return f.State == inspect.Broken || f.State == inspect.Unknown }); bad >= 0 {
		return fmt.Errorf("%s: %s", findings[bad].About, findings[bad].What)
	}
	return nil
}
