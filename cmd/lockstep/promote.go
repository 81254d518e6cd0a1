package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// promoteConfig has the flags of promote.
type promoteConfig struct {
	databaseFlags
	reason string
}

func promoteCommand(s streams) *cobra.Command {
	var cfg promoteConfig
	c := &cobra.Command{
		Use:   "promote RESOURCE NAME",
		Short: "Put a waiter first in the queue",
		Long: `Puts the requests of a workflow that wait for a resource first in its queue, behind those that were promoted before, and
those that skip the queue: upgrades and steps within a workflow that keeps the resource. No holder loses
the resource. NAME is a workflow ID, a lock ID, or the name that lockstep ps, show and why print.

It needs priorities, which lockstep policies --enable brings into force.

Exit status: 0, 1 if it does not wait there or priorities are not in force, 2 for wrong usage.`,
		Args: arguments("the resource's name", "a workflow ID or a lock ID"),
		RunE: func(c *cobra.Command, args []string) error { return cfg.run(c.Context(), s, args[0], args[1]) },
	}
	f := c.Flags()
	f.SortFlags = false
	cfg.databaseFlags.add(c)
	f.StringVar(&cfg.reason, "reason", "", "why, for the log line of this command. Your name and host are added")
	return c
}

func (cfg *promoteConfig) run(ctx context.Context, s streams, resource, name string) error {
	at, policies, err := cfg.openPolicies(ctx, "lockstep promote")
	if err != nil {
		return err
	}
	defer at.close()
	if !policies.Priorities {
		return fmt.Errorf("priorities are not in force in this collection: %s brings them into force; from then on builds of Lockstep without policies are refused, so update all workers and janitors first",
			at.CommandWithReason([]string{"policies", "--enable"}))
	}
	entries, err := entriesOf(ctx, at, resource)
	if err != nil {
		return err
	}
	lockIDs, err := waitersNamed(at, resource, name, entries)
	if err != nil {
		return err
	}
	for _, lockID := range lockIDs {
		did, err := at.Locker.Promote(ctx, resource, lockID)
		if err != nil {
			return err
		}
		if !did {
			return fmt.Errorf("nothing was changed: %q has left the queue of %q since it was listed", lockID, resource)
		}
		logger(s).Info("lockstep: promoted", "resource", resource, "lockId", lockID, "reason", signed(cfg.reason))
	}
	entries, err = entriesOf(ctx, at, resource)
	if err != nil {
		return fmt.Errorf("it was promoted, but the queue could not be read: %w", err)
	}
	for i := range entries {
		if entries[i].Party.Name == name || entries[i].LockID == lockIDs[0] {
			if err := table.Fprintf(s.out, "%s %s\n", entries[i].Party.Name, &entries[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitersNamed returns the lock IDs of the waiters with a lock ID, or of the one party of that name.
func waitersNamed(at *site, resource, name string, entries []inspect.Entry) (lockIDs []string, err error) {
	named := choose(entries, func(e *inspect.Entry) bool {
		return e.LockID == name || e.Party.Name == name || e.Party.Workflow == name || e.Party.Owner == name
	})
	waiting := choose(named, func(e *inspect.Entry) bool { return e.State == lockcore.StateWaiting })
	show := at.Command([]string{"show"}, resource)
	switch {
	case len(named) == 0:
		return nil, fmt.Errorf("%q does not wait for %q; %s lists who does", name, resource, show)
	case len(waiting) == 0:
		return nil, fmt.Errorf("%q does not wait for %q: it %s", name, resource, &named[0])
	}
	seen := map[string]bool{}
	for i := range waiting {
		w := &waiting[i]
		if w.Party.Owner != waiting[0].Party.Owner {
			return nil, fmt.Errorf("nothing was changed: several parties of the name %q wait for %q; give the lock ID of one of them: %s", name, resource, describe(waiting))
		}
		if !seen[w.LockID] {
			seen[w.LockID] = true
			lockIDs = append(lockIDs, w.LockID)
		}
	}
	return lockIDs, nil
}
