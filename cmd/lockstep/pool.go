package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// poolConfig has the flags of pool.
type poolConfig struct {
	databaseFlags
	add, remove, out, in  []string
	replace, delete, json bool
	reason                string
}

func poolCommand(s streams) *cobra.Command {
	var cfg poolConfig
	c := &cobra.Command{
		Use:   "pool NAME [MEMBER...]",
		Short: "Show a pool, make it, or change its members while programs run",
		Long: `Without a member and a flag it shows a pool: each member, whether it is free, who holds it or why it is out of service,
and the queue.

With members it makes a pool: requests for a member of NAME, such as lockcore.Pool("phones"), get any that is free. A pool
that exists is changed by --add and --remove, which may be repeated, or gets another list of members with --replace:
members that it keeps remain out of service. A thing is a member of one pool only, and a pool has at least one member.

--out takes a member out of service: it is not granted until --in. No lock is lost by a change: a member that is
removed or taken out remains locked until its holder ends, and the command prints who that is. A compensation still
gets the member that its step had. --delete removes the pool; then requests are refused until it is made again.

A change is in force everywhere within ten seconds. Several operators may change a pool at the same time. From the first
policy on, builds of Lockstep without policies are refused: update all workers and janitors first.

Exit status: 0, 1 if nothing was changed or there is no such pool, 2 for wrong usage.`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := cfg.check(c, args); err != nil {
				return err
			}
			return cfg.run(c.Context(), s, args[0], args[1:])
		},
	}
	f := c.Flags()
	f.SortFlags = false
	cfg.databaseFlags.add(c)
	f.StringArrayVar(&cfg.add, "add", nil, "add a member")
	f.StringArrayVar(&cfg.remove, "remove", nil, "remove a member")
	f.StringArrayVar(&cfg.out, "out", nil, "take a member out of service; --reason is required")
	f.StringArrayVar(&cfg.in, "in", nil, "put a member back into service")
	f.BoolVar(&cfg.replace, "replace", false, "replace the members of a pool that exists")
	f.BoolVar(&cfg.delete, "delete", false, "remove the pool")
	f.StringVar(&cfg.reason, "reason", "", "why, for people. Your name and host are recorded, too")
	f.BoolVar(&cfg.json, "json", false, "print JSON")
	return c
}

// check checks the arguments and flags.
func (cfg *poolConfig) check(c *cobra.Command, args []string) error {
	if err := arguments("the name of a pool")(c, args[:min(1, len(args))]); err != nil {
		return err
	}
	some := cfg.changesMembers()
	switch listed := len(args) > 1; {
	case listed && (some || cfg.delete):
		return fmt.Errorf("%w: --add, --remove, --out, --in and --delete are not for a list of members: have %q", errUsage, args[1])
	case cfg.replace && !listed:
		return fmt.Errorf("%w: --replace wants the members", errUsage)
	case cfg.delete && some:
		return fmt.Errorf("%w: --add, --remove, --out and --in are not for --delete", errUsage)
	case len(cfg.out) > 0 && strings.TrimSpace(cfg.reason) == "":
		return fmt.Errorf("%w: --out wants a --reason: waiters see it", errUsage)
	case cfg.reason != "" && !listed && !some && !cfg.delete:
		return fmt.Errorf("%w: --reason is for a change", errUsage)
	}
	for i, m := range args[1:] {
		if slices.Contains(args[1:1+i], m) {
			return fmt.Errorf("%w: %q is listed twice", errUsage, m)
		}
	}
	return nil
}

func (cfg *poolConfig) changesMembers() bool {
	return len(cfg.add)+len(cfg.remove)+len(cfg.out)+len(cfg.in) > 0
}

func (cfg *poolConfig) run(ctx context.Context, s streams, name string, members []string) error {
	at, before, err := cfg.openPolicies(ctx, "lockstep pool")
	if err != nil {
		return err
	}
	defer at.close()
	if len(members) > 0 || cfg.delete || cfg.changesMembers() {
		if err := cfg.change(ctx, at, &before, name, members); err != nil {
			return err
		}
	}
	if cfg.delete {
		return cfg.printDeleted(ctx, s, at, name)
	}
	found, err := at.Pool(ctx, name)
	if err != nil {
		return err
	}
	if found == nil {
		return noPool(at, &before, name)
	}
	if cfg.json {
		return write(s.out, true, found, nil)
	}
	if err := found.Print(s.out); err != nil {
		return err
	}
	if len(members) == 0 && !cfg.changesMembers() {
		return nil
	}
	return printChange(s, at, &before, found)
}

// printChange prints what follows from a change.
func printChange(s streams, at *site, before *inspect.Policies, found *inspect.Pool) error {
	lines := found.StillHeld()
	if !slices.ContainsFunc(found.Members, func(m inspect.PoolMember) bool { return !m.Out && !m.Removed }) {
		lines = append(lines, "no member is in service: requests wait until one is: "+at.Command([]string{"pool"}, found.Name)+" --in MEMBER")
	}
	for _, line := range lines {
		if err := table.Fprintf(s.out, "%s\n", line); err != nil {
			return err
		}
	}
	return printInForce(s, before)
}

// printInForce prints when a change of policies is in force.
func printInForce(s streams, before *inspect.Policies) error {
	if !before.Priorities {
		if err := table.Fprintf(s.out, "these are the first policies here: builds of Lockstep without policies are refused from now on\n"); err != nil {
			return err
		}
	}
	return table.Fprintf(s.out, "in force everywhere within ten seconds\n")
}

// noPool returns the error about a pool that does not exist.
func noPool(at *site, policies *inspect.Policies, name string) error {
	var pools []string
	for i := range policies.List {
		if p := &policies.List[i]; len(p.Members) > 0 {
			pools = append(pools, p.Name)
		}
	}
	text := "no other pool exists"
	if len(pools) > 0 {
		text = "the pools are " + strings.Join(pools, ", ")
	}
	return fmt.Errorf("there is no pool %q: %s MEMBER... makes it; %s", name, at.Command([]string{"pool"}, name), text)
}

// change changes the pool, or removes it.
func (cfg *poolConfig) change(ctx context.Context, at *site, before *inspect.Policies, name string, members []string) error {
	of := lockcore.Policy{Name: name, By: wire.Cut(signature(), maxSignature), Reason: cfg.reason}
	err := at.Locker.EditPolicy(ctx, of, func(p *lockcore.Policy) error {
		switch limit := at.Command([]string{"limit"}, name); {
		case p.Unreadable:
			return fmt.Errorf("nothing was changed: the policy for %q cannot be decoded; a later version of Lockstep may have set it; %s --remove removes it", name, limit)
		case p.Limit > 0:
			return fmt.Errorf("nothing was changed: a policy limits %q to %s, and a pool has no limit; %s --remove removes it", name, table.Count(p.Limit, "holder"), limit)
		case len(members) > 0:
			return cfg.list(at, p, members)
		case len(p.Members) == 0:
			return noPool(at, before, name)
		case cfg.delete:
			p.Members, p.Out = nil, nil
			return nil
		}
		return cfg.edit(at, p)
	})
	if errors.Is(err, lockcore.ErrInvalid) {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	return err
}

// list makes the pool, or replaces its members.
func (cfg *poolConfig) list(at *site, p *lockcore.Policy, members []string) error {
	missing := func(of, in []string) (names []string) {
		for _, m := range of {
			if !slices.Contains(in, m) {
				names = append(names, m)
			}
		}
		return names
	}
	if len(p.Members) > 0 && !cfg.replace {
		var would []string
		if add := missing(members, p.Members); len(add) > 0 {
			would = append(would, "add "+strings.Join(add, ", "))
		}
		if remove := missing(p.Members, members); len(remove) > 0 {
			would = append(would, "remove "+strings.Join(remove, ", "))
		}
		if len(would) == 0 {
			would = append(would, "change only their order")
		}
		return fmt.Errorf("nothing was changed: %q is a pool already, with the members %s; the same command with --replace would %s; %s changes single members",
			p.Name, strings.Join(p.Members, ", "), strings.Join(would, " and "), at.Command([]string{"pool"}, p.Name)+" --add MEMBER")
	}
	for _, m := range missing(p.Members, members) {
		delete(p.Out, m)
	}
	p.Members = members
	return nil
}

// edit changes single members.
func (cfg *poolConfig) edit(at *site, p *lockcore.Policy) error {
	unknown := func(m string) error {
		return fmt.Errorf("nothing was changed: %q is not a member of %q, whose members are %s", m, p.Name, strings.Join(p.Members, ", "))
	}
	for _, m := range cfg.add {
		if slices.Contains(p.Members, m) {
			return fmt.Errorf("nothing was changed: %q is a member of %q already", m, p.Name)
		}
		p.Members = append(p.Members, m)
	}
	for _, m := range cfg.remove {
		if !slices.Contains(p.Members, m) {
			return unknown(m)
		}
		p.Members = slices.DeleteFunc(p.Members, func(other string) bool { return other == m })
		delete(p.Out, m)
	}
	if len(p.Members) == 0 {
		command := at.Command([]string{"pool"}, p.Name)
		return fmt.Errorf("nothing was changed: %q would have no member; %s --delete removes the pool, and --out takes a member out of service", p.Name, command)
	}
	for _, m := range cfg.out {
		if !slices.Contains(p.Members, m) {
			return unknown(m)
		}
		if p.Out == nil {
			p.Out = map[string]string{}
		}
		p.Out[m] = cfg.reason
	}
	for _, m := range cfg.in {
		if !slices.Contains(p.Members, m) {
			return unknown(m)
		}
		if _, out := p.Out[m]; !out {
			return fmt.Errorf("nothing was changed: %q is in service already", m)
		}
		delete(p.Out, m)
	}
	return nil
}

// printDeleted prints who still holds and waits for members of a pool that was removed.
func (cfg *poolConfig) printDeleted(ctx context.Context, s streams, at *site, name string) error {
	if err := table.Fprintf(s.out, "%s: removed\n", name); err != nil {
		return err
	}
	entries, err := entriesOf(ctx, at, name)
	if err != nil {
		return fmt.Errorf("it was removed, but its holders could not be read: %w", err)
	}
	for i := range entries {
		if err := table.Fprintf(s.out, "%s %s\n", entries[i].Party.Name, &entries[i]); err != nil {
			return err
		}
	}
	return table.Fprintf(s.out, "in force everywhere within ten seconds\n")
}
