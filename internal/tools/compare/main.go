package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// settings are the flags.
type settings struct {
	sizes
	systems  []system
	markdown bool
	svg      string
	faults   bool
}

func run(ctx context.Context) error {
	if len(os.Args) == 5 && os.Args[1] == childCommand {
		return runChild(ctx, os.Args[2], os.Args[3], os.Args[4])
	}
	var o settings
	turns := flag.Int("turns", 0, "how often each system takes its turn (default 3)")
	small := flag.Bool("short", false, "try everything for a moment, except the faults: the figures mean little")
	only := flag.String("only", "", "only these systems, such as \"redislock,etcd\"")
	flag.BoolVar(&o.markdown, "markdown", false, "print tables in Markdown")
	flag.StringVar(&o.svg, "svg", "", "write a chart to this file")
	flag.Parse()
	o.sizes, o.faults = full, !*small
	if *small {
		o.sizes = short
	}
	if *turns > 0 {
		o.turns = *turns
	}
	var err error
	if o.systems, err = choose(*only); err != nil {
		return err
	}
	return o.compare(ctx)
}

// choose returns the named systems, or all.
func choose(names string) ([]system, error) {
	if names == "" {
		return systems, nil
	}
	var chosen []system
	for name := range strings.SplitSeq(names, ",") {
		sys, ok := systemNamed(name)
		if !ok {
			var all []string
			for _, s := range systems {
				all = append(all, s.name)
			}
			return nil, fmt.Errorf("there is no system %q; there are %s", name, strings.Join(all, ", "))
		}
		chosen = append(chosen, sys)
	}
	return chosen, nil
}

func (o settings) compare(ctx context.Context) (err error) {
	wanted := map[string]bool{}
	for _, sys := range o.systems {
		for _, name := range sys.servers {
			wanted[name] = true
		}
	}
	srv, err := startServers(ctx, wanted)
	defer func() { err = errors.Join(err, srv.close(context.WithoutCancel(ctx))) }()
	if err != nil {
		return err
	}
	where := machine(srv.versions)
	results := make([]*result, len(o.systems))
	for i, sys := range o.systems {
		results[i] = &result{name: sys.name}
	}
	if o.faults {
		if err := o.tryAllFaults(ctx, srv, results); err != nil {
			return err
		}
	}
	failed := o.measureAll(ctx, srv, results)
	if failed != nil && slices.ContainsFunc(results, func(r *result) bool { return len(r.fairs) == 0 }) {
		return failed
	}
	fmt.Println(where)
	if err := print(os.Stdout, tables(results, o.sizes), o.markdown); err != nil {
		return err
	}
	if o.svg == "" || failed != nil {
		return failed // the tables show what was measured before
	}
	file, err := os.Create(o.svg)
	if err != nil {
		return err
	}
	return errors.Join(drawChart(file, results), file.Close())
}

// measureAll measures all systems in turn.
func (o settings) measureAll(ctx context.Context, srv *servers, results []*result) (err error) {
	var groups []*group
	defer func() {
		for _, g := range groups {
			err = errors.Join(err, g.close(context.WithoutCancel(ctx)))
		}
	}()
	for _, sys := range o.systems {
		g, err := openGroup(ctx, sys, srv, o.sizes)
		groups = append(groups, g)
		if err != nil {
			return err
		}
	}
	for turn := range o.turns {
		for i, g := range groups {
			g.turn = turn
			if err := g.takeTurn(ctx, results[i]); err != nil {
				return fmt.Errorf("%s: %w", g.name, err)
			}
			progress("turn %d: %s", turn+1, g.name)
		}
	}
	for i, g := range groups {
		crowd, err := g.manyWaiters(ctx)
		if err != nil {
			return fmt.Errorf("%s, %d waiters: %w", g.name, g.crowded, err)
		}
		results[i].crowd = &crowd
		progress("%d waiters: %s", g.crowded, g.name)
	}
	return nil
}

// takeTurn measures a system once.
func (g *group) takeTurn(ctx context.Context, to *result) error {
	// No wait lasts as long. redislock needs a deadline.
	ctx, cancel := context.WithTimeout(ctx, g.pairs+g.handOffs+g.fairness+2*time.Minute)
	defer cancel()
	pair, err := g.pair(ctx)
	if err != nil {
		return fmt.Errorf("a pair: %w", err)
	}
	handOff, err := g.handOff(ctx)
	if err != nil {
		return fmt.Errorf("hand-offs: %w", err)
	}
	fair, err := g.fairly(ctx)
	if err != nil {
		return fmt.Errorf("fairness: %w", err)
	}
	to.pairs, to.handOffs, to.fairs = append(to.pairs, pair), append(to.handOffs, handOff), append(to.fairs, fair)
	return nil
}

// tryAllFaults tries the faults of all systems at the same time, because they mostly wait.
func (o settings) tryAllFaults(ctx context.Context, srv *servers, results []*result) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, sys := range o.systems {
		group.Go(func() error {
			faults, err := tryFaults(ctx, sys, srv)
			results[i].faults = &faults
			if err != nil {
				return fmt.Errorf("%s, faults: %w", sys.name, err)
			}
			progress("faults: %s", sys.name)
			return nil
		})
	}
	return group.Wait()
}

// progress reports what is done, for people who wait.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
