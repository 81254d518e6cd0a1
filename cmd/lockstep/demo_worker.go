package main

import (
	"github.com/spf13/cobra"

	"github.com/temporal-lockstep/lockstep/internal/demo"
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
			cfg.FromEnvironment()
			return demo.RunWorker(c.Context(), cfg, s.in)
		},
	}
	f := c.Flags()
	f.StringVar(&cfg.Database, "database", "", "the database of the run")
	f.StringVar(&cfg.TaskQueue, "task-queue", "", "the task queue of the run")
	f.StringVar(&cfg.Traces, "traces", "", "the file for the spans")
	f.Int64Var(&cfg.Seed, "seed", 1, "the seed of the run")
	for _, required := range []string{"database", "task-queue", "traces"} {
		if err := c.MarkFlagRequired(required); err != nil {
			panic(err) // the flag is defined above
		}
	}
	return c
}
