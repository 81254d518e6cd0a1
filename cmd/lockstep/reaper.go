package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/worker"
)

// reaperConfig is what the commands about the orphan reaper are called with.
type reaperConfig struct {
	temporalFlags
	options worker.ReaperOptions
	timeout time.Duration
	json    bool
}

func reaperCommand(s streams) *cobra.Command {
	var cfg reaperConfig
	c := &cobra.Command{
		Use:   "reaper",
		Short: "Schedule the orphan reaper, which releases what closed workflows have left, or run it once",
		Long: `The orphan reaper releases the locks of workflows that were terminated, timed out or were deleted. A
Temporal Schedule starts it, on a task queue of workers that have Lockstep installed.

  lockstep reaper create   makes the schedule, or gives the one that is there these options
  lockstep reaper delete   removes the schedule
  lockstep reaper run      reaps once, now, and prints what was counted

` + connectionHelp,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	f := c.PersistentFlags()
	f.SortFlags = false
	cfg.add(f)
	f.StringVar(&cfg.options.ID, "id", "", `the schedule's ID (default "lockstep-reaper-" and the task queue)`)
	f.DurationVar(&cfg.options.Interval, "interval", worker.DefaultReaperInterval, "create: how often it runs")
	f.DurationVar(&cfg.options.MissingAfter, "missing-after", time.Hour,
		"create, run: for how long the locks of a run that Temporal does not know must have been silent")
	f.DurationVar(&cfg.timeout, "timeout", time.Minute, "run: how long to wait for a worker")
	f.BoolVar(&cfg.json, "json", false, "run: print JSON")
	c.AddCommand(
		cfg.command(s, "create", "Make the reaper's schedule, or change it", func(ctx context.Context, tc client.Client) error {
			return worker.CreateReaper(ctx, tc, cfg.options)
		}),
		cfg.command(s, "delete", "Remove the reaper's schedule", func(ctx context.Context, tc client.Client) error {
			return worker.DeleteReaper(ctx, tc, cfg.options)
		}),
		cfg.command(s, "run", "Reap once, and print what was counted", func(ctx context.Context, tc client.Client) error {
			return cfg.run(ctx, tc, s.out)
		}),
	)
	return c
}

func (cfg *reaperConfig) command(s streams, name, short string, do func(context.Context, client.Client) error) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg.options.TaskQueue = cfg.taskQueue
			tc, err := cfg.dial(c.Context(), s)
			if err != nil {
				return err
			}
			defer tc.Close()
			return usage(do(c.Context(), tc))
		},
	}
}

func (cfg *reaperConfig) run(ctx context.Context, tc client.Client, out io.Writer) error {
	limited, cancel := context.WithTimeout(ctx, cfg.timeout)
	defer cancel()
	n, err := worker.RunReaper(limited, tc, cfg.options)
	switch {
	case ctx.Err() == nil && timedOut(limited, err):
		return fmt.Errorf("no worker on task queue %q has reaped within %v (--timeout): is one running that has Lockstep installed?",
			cfg.taskQueue, cfg.timeout)
	case err != nil:
		return err
	case cfg.json:
		return json.NewEncoder(out).Encode(n)
	}
	return printReap(out, n)
}

func printReap(out io.Writer, n activities.ReapResult) error {
	_, err := fmt.Fprintf(out, `%7d locks and queued places listed, of %d workflow runs
%7d runs are open
%7d runs are closed: %d locks and places were released
%7d runs are unknown to the namespace, and gave signs of life too recently
%7d runs could not be asked about
%7d questions or releases failed
`, n.Listed, n.Runs, n.Open, n.Closed, n.Released, n.Missing, n.Unknown, n.Failed)
	return err
}

// timedOut tells whether an error is that of a deadline: a call's own may end a moment before the context's.
func timedOut(ctx context.Context, err error) bool {
	var deadline *serviceerror.DeadlineExceeded
	return err != nil &&
		(errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &deadline))
}
