package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/temporal-lockstep/lockstep/internal/cli/demo"
)

func demoCommand(s streams) *cobra.Command {
	cfg := demo.Config{Out: s.out, Err: s.err}
	guards := "on"
	c := &cobra.Command{
		Use:   "demo",
		Short: "Move money in concurrent sagas, kill a worker, and let an auditor look for what is missing",
		Long: `Moves money between accounts in concurrent sagas on several worker processes, kills one of them
in the middle, and lets an auditor add up all accounts the whole time.

Servers are found by TEMPORAL_ADDRESS and LOCKSTEP_MONGODB_URI; "lockstep worker --help" names the other
variables, and the file, with the settings of the connection to Temporal. LOCKSTEP_TEMPORAL_UI makes links into
Temporal's web UI. "make demo" starts them first. Spans are written to a folder; with OTEL_EXPORTER_OTLP_ENDPOINT set they
are also sent there, over OTLP as http/protobuf.

Exit status: 0 if every transfer committed or was compensated, money was conserved and no audit was wrong;
1 if not, or if it could not be run; 2 for wrong usage; 130 if it was interrupted.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			switch guards {
			case "on", "off":
				cfg.Guards = guards == "on"
			default:
				return fmt.Errorf("%w: --guards is %q: want on or off", errUsage, guards)
			}
			if err := cfg.FromEnvironment(); err != nil {
				return err
			}
			return demo.Run(c.Context(), cfg)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.IntVar(&cfg.Transfers, "transfers", 300, "how many transfers")
	f.IntVar(&cfg.Accounts, "accounts", 10, "between how many accounts")
	f.BoolVar(&cfg.Kill, "kill", true, "kill one worker process with SIGKILL after half of the transfers")
	f.StringVar(&guards, "guards", "on", "on, or off for the control: the same load without locks")
	f.IntVar(&cfg.Concurrency, "concurrency", 8, "how many transfers at a time")
	f.StringVar(&cfg.TracesDir, "traces", "traces", "the folder in which this run makes one for its traces and logs")
	f.BoolVar(&cfg.Keep, "keep", false, "keep the database of this run, to look at it")
	return c
}

// demoWorkerCommand is the hidden command that the demo starts as its worker processes.
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
	f.StringVar(&cfg.Traces, "traces", "", "the folder for the spans")
	f.StringVar(&cfg.Name, "name", "", "begins the names of the files with spans")
	return c
}
