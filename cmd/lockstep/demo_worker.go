package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/temporal-lockstep/lockstep/internal/cli/demo"
)

// demoWorkerCommand is what the demo starts as its worker processes.
func demoWorkerCommand(s streams) *cobra.Command {
	cfg := demo.WorkerConfig{Config: demo.Config{Out: s.out, Err: s.err}}
	c := &cobra.Command{
		Use:    "demo-worker",
		Short:  "A worker process of the demo, which starts it",
		Hidden: true,
		Args:   noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if cfg.Database == "" || cfg.TaskQueue == "" || cfg.Traces == "" {
				return fmt.Errorf("%w: demo-worker is started by lockstep demo", errUsage)
			}
			if err := cfg.FromEnvironment(); err != nil {
				return err
			}
			return demo.RunWorker(c.Context(), cfg, s.in)
		},
	}
	f := c.Flags()
	f.StringVar(&cfg.Database, "database", "", "the database of the run")
	f.StringVar(&cfg.TaskQueue, "task-queue", "", "the task queue of the run")
	f.StringVar(&cfg.Traces, "traces", "", "the file for the spans")
	f.Int64Var(&cfg.Seed, "seed", 1, "the seed of the run")
	return c
}
