package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// maxSignature is the length in bytes that lockcore accepts for Policy.By.
const maxSignature = 255

// limitConfig has the flags of limit.
type limitConfig struct {
	databaseFlags
	lasts, reason, from string
	exact, remove       bool
	// duration is that of lasts; 0 has no end.
	duration time.Duration
}

func limitCommand(s streams) *cobra.Command {
	var cfg limitConfig
	c := &cobra.Command{
		Use:   "limit NAME N | NAME --remove | --from FILE",
		Short: "Change the limit of a semaphore while programs run",
		Long: `Sets a policy: the limit of all shared requests with a limit on a resource, whatever limit they ask for. A NAME that
ends with a star is the beginning of names: 'partner/*' is for all partners, and '*' for all resources. With --exact
the star belongs to the name. The exact name wins over prefixes, and a longer prefix over a shorter one.

It is in force everywhere within ten seconds, for waiters and for new requests. No lock is lost: under a lower
limit, waiters wait until enough holders have ended. Exclusive requests, and shared ones without a limit, are not
affected. --remove removes the policy, so that the limits of requests are in force again.

--from sets the limits and the pools of a file that lockstep policies --json has written, except limits that have ended.

From the first policy on, builds of Lockstep without policies are refused: update all workers and janitors first.

Exit status: 0, 1 if it was not set or there is none to remove, 2 for wrong usage or if there is no room for it.`,
		RunE: func(c *cobra.Command, args []string) error {
			if cfg.from != "" {
				return cfg.restore(c, s, args)
			}
			change, err := cfg.change(c, args)
			if err != nil {
				return err
			}
			return cfg.apply(c.Context(), s, []lockcore.Policy{change})
		},
	}
	f := c.Flags()
	f.SortFlags = false
	cfg.add(c)
	f.StringVar(&cfg.lasts, "for", "", "how long, such as 7d or 12h; it has no end by default")
	f.StringVar(&cfg.reason, "reason", "", "why, for people. Your name and host are recorded, too")
	f.BoolVar(&cfg.exact, "exact", false, "a star at the end of NAME belongs to the name")
	f.BoolVar(&cfg.remove, "remove", false, "remove the policy")
	f.StringVar(&cfg.from, "from", "", "a file of lockstep policies --json")
	return c
}

// change checks the arguments and flags, and returns the policy to set. With --remove its limit is 0.
func (cfg *limitConfig) change(c *cobra.Command, args []string) (p lockcore.Policy, err error) {
	names := []string{"the name of a resource, or the beginning of names and a star", "the limit, or --remove"}
	if cfg.remove {
		names = names[:1]
	}
	if err := arguments(names...)(c, args); err != nil {
		return p, err
	}
	p = lockcore.Policy{Name: args[0], By: wire.Cut(signature(), maxSignature), Reason: cfg.reason}
	if !cfg.exact {
		p.Name, p.Prefix = strings.CutSuffix(p.Name, "*")
	}
	if cfg.remove && cfg.lasts != "" {
		return p, fmt.Errorf("%w: --for is not for --remove", errUsage)
	}
	if cfg.remove {
		return p, nil
	}
	const most = 1_000_000
	if p.Limit, err = strconv.Atoi(args[1]); err != nil || p.Limit < 1 || p.Limit > most {
		return p, fmt.Errorf("%w: the limit is %q: want 1 to %d", errUsage, args[1], most)
	}
	if cfg.lasts != "" {
		if cfg.duration, err = daysOrLess(cfg.lasts); err != nil {
			return p, fmt.Errorf("%w: --for is %q: want 1s to 3650d, such as 7d or 12h", errUsage, cfg.lasts)
		}
	}
	return p, nil
}

// daysOrLess returns the duration of a text: a number of days, such as "7d", or one in Go's form.
func daysOrLess(text string) (d time.Duration, err error) {
	const day, mostDays = 24 * time.Hour, 3650
	if number, isDays := strings.CutSuffix(text, "d"); isDays {
		days, err := strconv.ParseUint(number, 10, 12) // up to 4095
		if err != nil {
			return 0, err
		}
		d = time.Duration(days) * day
	} else if d, err = time.ParseDuration(text); err != nil {
		return 0, err
	}
	if d < time.Second || d > mostDays*day {
		return 0, errors.New("out of range")
	}
	return d, nil
}

// restore sets the policies of a file.
func (cfg *limitConfig) restore(c *cobra.Command, s streams, args []string) error {
	if err := noArguments(c, args); err != nil {
		return err
	}
	if cfg.lasts != "" || cfg.exact || cfg.remove {
		return fmt.Errorf("%w: --for, --exact and --remove are not for --from", errUsage)
	}
	file, err := os.Open(cfg.from)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	stored := inspect.Policies{}
	if err := json.NewDecoder(file).Decode(&stored); err != nil {
		return fmt.Errorf("--from: %s is not the output of lockstep policies --json: %w", cfg.from, err)
	}
	for i := range stored.List {
		p := &stored.List[i]
		if p.Unreadable {
			return fmt.Errorf("--from: the policy for %s could not be decoded when the file was written: remove it from the file", inspect.PolicyName(p))
		}
		if p.Limit == 0 && len(p.Members) == 0 {
			return fmt.Errorf("--from: the policy for %s has neither a limit nor members", inspect.PolicyName(p))
		}
		p.By = wire.Cut(signature(), maxSignature)
		if cfg.reason != "" {
			p.Reason = cfg.reason
		}
	}
	if len(stored.List) == 0 && stored.Priorities {
		enable := policiesConfig{reason: cfg.reason}
		return enable.enablePriorities(c.Context(), s, &cfg.databaseFlags)
	}
	if len(stored.List) == 0 {
		return table.Fprintf(s.out, "the file has no policy\n")
	}
	return cfg.apply(c.Context(), s, stored.List)
}

// apply sets policies, or removes those with neither a limit nor members.
func (cfg *limitConfig) apply(ctx context.Context, s streams, changes []lockcore.Policy) error {
	at, before, err := cfg.openPolicies(ctx, "lockstep limit")
	if err != nil {
		return err
	}
	defer at.close()
	for i := range changes {
		p := &changes[i]
		if cfg.duration > 0 {
			p.Until = before.At.Add(cfg.duration)
		}
		text := inspect.PolicyText(p)
		switch {
		case before.Ended(*p):
			text = "has ended: it was not set"
		case cfg.from != "":
			err = at.Locker.SetPolicy(ctx, *p)
		default:
			err = at.Locker.EditPolicy(ctx, *p, func(present *lockcore.Policy) error {
				if len(present.Members) > 0 {
					return fmt.Errorf("nothing was changed: %q is a pool, which has no limit; %s --delete removes it", p.Name, at.Command([]string{"pool"}, p.Name))
				}
				present.Limit, present.Until = p.Limit, p.Until
				return nil
			})
		}
		if errors.Is(err, lockcore.ErrInvalid) {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		if err != nil {
			return err
		}
		if err := table.Fprintf(s.out, "%s: %s\n", inspect.PolicyName(p), text); err != nil {
			return err
		}
	}
	return printInForce(s, &before)
}

// policiesConfig has the flags of policies.
type policiesConfig struct {
	enable bool
	reason string
}

func policiesCommand(s streams) *cobra.Command {
	var cfg policiesConfig
	i := &inspection{siteFlags: siteFlags{noTemporal: true}}
	i.find = func(ctx context.Context, at *site, _ []string) (any, func(io.Writer) error, error) {
		found, err := at.Policies(ctx)
		if err != nil {
			return nil, nil, err
		}
		found.List = notNil(found.List)
		return found, found.Print, found.Unreadable()
	}
	c := i.complete(s, &cobra.Command{
		Use:   "policies",
		Short: "List the limits and the pools that operators have set, and the last changes",
		Long: `Lists the policies: the limits that lockstep limit has set, and the pools that lockstep pool has made; and the last 20
changes: when, by whom and why. lockstep limit --from puts back what --json prints.

--enable brings priorities into force, those of requests and lockstep promote, as the first policy does, too. From then on,
builds of Lockstep without policies are refused: update all workers and janitors first.

Exit status: 0, 1 if the database or a policy could not be read, 2 for wrong usage.`,
		Args: noArguments,
	})
	list := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case cfg.reason != "" && !cfg.enable:
			return fmt.Errorf("%w: --reason is for --enable", errUsage)
		case cfg.enable && i.json:
			return fmt.Errorf("%w: --json is not for --enable", errUsage)
		case cfg.enable:
			return cfg.enablePriorities(c.Context(), s, &i.databaseFlags)
		}
		return list(c, args)
	}
	f := c.Flags()
	f.BoolVar(&cfg.enable, "enable", false, "bring priorities into force")
	f.StringVar(&cfg.reason, "reason", "", "why, for people, with --enable. Your name and host are recorded, too")
	return c
}

// enablePriorities brings priorities into force, unless they are.
func (cfg *policiesConfig) enablePriorities(ctx context.Context, s streams, db *databaseFlags) error {
	at, before, err := db.openPolicies(ctx, "lockstep policies")
	if err != nil {
		return err
	}
	defer at.close()
	if before.Priorities {
		return table.Fprintf(s.out, "priorities are in force already\n")
	}
	err = at.Locker.EnablePriorities(ctx, wire.Cut(signature(), maxSignature), cfg.reason)
	if errors.Is(err, lockcore.ErrInvalid) {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if err != nil {
		return err
	}
	return table.Fprintf(s.out, "priorities are in force everywhere within ten seconds; builds of Lockstep without policies are refused from now on\n")
}
