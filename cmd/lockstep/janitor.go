package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/temporal-lockstep/lockstep/interceptors"
	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/internal/janitor"
)

// janitorConfig has the flags of janitor.
type janitorConfig struct {
	siteFlags
	interval   time.Duration
	once, json bool
}

func janitorCommand(s streams) *cobra.Command {
	var cfg janitorConfig
	c := &cobra.Command{
		Use:   "janitor",
		Short: "Release what closed workflows have left, and extend what open ones hold",
		Long: `Asks Temporal, once a minute, about the workflow runs that hold locks or wait for them. It releases what closed
runs have left, extends what open runs hold, and wakes workflows that were granted a lock.

Every worker that has Lockstep's plugin does the same, unless it is switched off there. One janitor at a
time works for a namespace and a collection; the others stand by.

  lockstep janitor          works, or stands by, until it is stopped
  lockstep janitor --once   does one round, even if another janitor works, and prints what it did; it wakes no workflow

Without --once it waits, for 30 seconds, for a database that does not answer, as during an election, and logs that.

` + connectionHelp + `

Exit status: 0 after it was stopped or a round was done, 1 if it could not start or the round was refused,
2 for wrong usage.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return cfg.run(c.Context(), s) },
	}
	f := c.Flags()
	f.SortFlags = false
	cfg.add(c)
	f.DurationVar(&cfg.interval, "interval", janitor.DefaultInterval, "how often it asks")
	f.BoolVar(&cfg.once, "once", false, "do one round, and print what it did")
	f.BoolVar(&cfg.json, "json", false, "with --once: print JSON")
	return c
}

func (cfg *janitorConfig) run(ctx context.Context, s streams) error {
	if err := cfg.check(); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if !cfg.once {
		cfg.awaits = logger(s)
	}
	at, err := cfg.open(ctx, s, "lockstep janitor")
	if err != nil {
		return err
	}
	defer at.close()
	j := janitor.New(janitor.Options{
		Locker: at.Locker, Temporal: at.Temporal.Service, Namespace: cfg.namespace, NamespaceID: at.Temporal.NamespaceID,
		Interval: cfg.interval, Logger: logger(s),
	})
	if cfg.once {
		done, err := j.Round(ctx)
		if err != nil {
			return err
		}
		return cfg.print(s.out, done)
	}
	waker := interceptors.New(interceptors.Options{Locker: at.Locker.Locker})
	connection := interceptors.Connection{Client: at.client, Namespace: cfg.namespace, NamespaceID: at.Temporal.NamespaceID, Logger: logger(s)}
	waker.Connect(connection)
	defer waker.Disconnect(connection)
	if err := table.Fprintf(s.out, "looking after the locks of namespace %q; Ctrl-C stops\n", cfg.namespace); err != nil {
		return err
	}
	j.Run(ctx)
	return nil
}

// check refuses flags that contradict each other.
func (cfg *janitorConfig) check() error {
	switch {
	case cfg.json && !cfg.once:
		return errors.New("--json prints what a round did, and needs --once")
	case cfg.once && cfg.command.Flags().Changed("interval"):
		return errors.New("--interval is for the loop, and --once does one round")
	case cfg.interval == 0:
		return errors.New("--interval is 0s: want 100ms to 1h")
	}
	return janitor.CheckPace("--", cfg.interval, 0)
}

func (cfg *janitorConfig) print(out io.Writer, n janitor.Result) error {
	if cfg.json {
		return json.NewEncoder(table.JSON(out)).Encode(n)
	}
	for _, line := range []struct {
		n         int
		one, many string
		more      string
	}{
		{n.Listed, "kept lock or request listed", "kept locks and requests listed", ""},
		{n.Asked, "workflow run asked about", "workflow runs asked about", ""},
		{n.Open, "is open", "are open", fmt.Sprintf(": %s extended", table.Count(n.Extended, "lock")+table.Word(n.Extended, " was", " were"))},
		{n.Closed, "is closed", "are closed", ""},
		{n.Released, "lock or request was released", "locks and requests were released", ""},
		{n.Unknown, "is unknown to Temporal, or no workflow's: left alone", "are unknown to Temporal, or no workflow's: left alone", ""},
		{n.Failed, "question failed", "questions failed", fmt.Sprintf(", and %s to the database", table.Count(n.Errors, "command"))},
		{n.Damaged, "document cannot be decoded, and was left out", "documents cannot be decoded, and were left out", ""},
	} {
		if err := table.Fprintf(out, "%7d %s%s\n", line.n, table.Word(line.n, line.one, line.many), line.more); err != nil {
			return err
		}
	}
	return nil
}
