package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// psConfig is what ps is started with.
type psConfig struct {
	databaseFlags
	filter lockcore.Filter
	most   int
	watch  time.Duration
	json   bool
}

func psCommand(s streams) *cobra.Command {
	var cfg psConfig
	c := &cobra.Command{
		Use:   "ps",
		Short: "List who holds locks and who waits, the hottest resources first",
		Long: `Lists the resources that are held or waited for: the one with the most waiters first, then the one with
the longest wait. With --waiting it reads only what is contended or kept, by an index.

Exit status: 0, 1 if the database could not be read, 2 for wrong usage.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if cfg.json && !c.Flags().Changed("most") {
				cfg.most = 0 // a program does not see that a list was cut
			}
			return cfg.run(c.Context(), s)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	cfg.databaseFlags.add(f)
	f.StringVar(&cfg.filter.Prefix, "prefix", "", "only resources whose names begin so")
	f.BoolVar(&cfg.filter.Contended, "waiting", false, "only resources that are waited for, or kept by a workflow")
	f.IntVar(&cfg.most, "most", 50, "how many resources to list at most; 0 is all, as with --json by default")
	f.DurationVar(&cfg.watch, "watch", 0, "list again and again, after a pause of 1s or more, until Ctrl-C")
	f.BoolVar(&cfg.json, "json", false, "print JSON")
	return c
}

func (cfg *psConfig) run(ctx context.Context, s streams) error {
	switch {
	case cfg.most < 0:
		return fmt.Errorf("%w: --most is %d: want 0 or more", errUsage, cfg.most)
	case cfg.watch != 0 && cfg.watch < time.Second:
		return fmt.Errorf("%w: --watch is %s: want 1s or more", errUsage, cfg.watch)
	}
	site, end, err := cfg.open(ctx, "lockstep ps")
	if err != nil {
		return err
	}
	defer end()
	for {
		if cfg.watch > 0 && !cfg.json {
			if err := cfg.begin(s.out); err != nil {
				return err
			}
		}
		if err := cfg.list(ctx, site, s.out); err != nil || cfg.watch == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(cfg.watch):
		}
	}
}

// begin begins one of several lists: on a terminal in the place of the last one.
func (cfg *psConfig) begin(out io.Writer) error {
	clear := ""
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		clear = "\x1b[H\x1b[2J"
	}
	_, err := fmt.Fprintf(out, "%s%s, every %s\n", clear, time.Now().Format(time.TimeOnly), cfg.watch)
	return err
}

func (cfg *psConfig) list(ctx context.Context, site *inspect.Site, out io.Writer) error {
	resources, err := site.Resources(ctx, cfg.filter)
	if err != nil {
		return err
	}
	all := len(resources)
	if cfg.most > 0 && all > cfg.most {
		resources = resources[:cfg.most]
	}
	if resources == nil {
		resources = []inspect.Resource{} // an empty list in JSON
	}
	if cfg.json && cfg.watch > 0 { // a list on each line
		return json.NewEncoder(out).Encode(resources)
	}
	return write(out, cfg.json, resources, func(out io.Writer) error {
		if all == 0 {
			_, err := fmt.Fprintln(out, "no lock is held, and none is waited for")
			return err
		}
		if err := inspect.PrintResources(out, resources); err != nil || all == len(resources) {
			return err
		}
		_, err := fmt.Fprintf(out, "and %d more; see --most, --prefix and --waiting\n", all-len(resources))
		return err
	})
}
