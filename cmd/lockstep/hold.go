package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// holdConfig has the flags of hold.
type holdConfig struct {
	databaseFlags
	reason string
	wait   time.Duration
}

func holdCommand(s streams) *cobra.Command {
	var cfg holdConfig
	c := &cobra.Command{
		Use:   "hold RESOURCE",
		Short: "Keep all parties out of a resource, for maintenance, until unhold",
		Long: `Queues for the resource like any other party, so that its holders finish, and then holds it without end, under
the lock ID "` + inspect.Maintenance + `". Waiters, and lockstep ps, show and why, see the reason. Ctrl-C, and the end of --wait,
leave the queue. A second hold of a resource is refused.

Exit status: 0 when it holds, 1 if it does not, 2 for wrong usage, 130 after Ctrl-C.`,
		Args: arguments("the resource's name"),
		RunE: func(c *cobra.Command, args []string) error { return cfg.hold(c.Context(), s, args[0]) },
	}
	f := c.Flags()
	f.SortFlags = false
	cfg.add(c)
	f.StringVar(&cfg.reason, "reason", "", "why, for the waiters; required")
	f.DurationVar(&cfg.wait, "wait", 0, "how long to wait at most; as long as it takes by default")
	return c
}

func (cfg *holdConfig) hold(ctx context.Context, s streams, resource string) error {
	switch {
	case strings.TrimSpace(cfg.reason) == "":
		return fmt.Errorf("%w: --reason is required: the waiters see it", errUsage)
	case cfg.wait < 0:
		return fmt.Errorf("%w: --wait is %s: want 0 or more", errUsage, cfg.wait)
	}
	at, err := cfg.open(ctx, "lockstep hold")
	if err != nil {
		return err
	}
	defer at.close()
	if err := cfg.printHolders(ctx, s, at, resource); err != nil {
		return err
	}
	if err := cfg.queue(ctx, at, cfg.request(resource)); err != nil {
		return err
	}
	return table.Fprintf(s.out, "%q is held for maintenance; %s ends that\n", resource, unholdLine(at, resource))
}

// signed returns a reason with the user and the host of this command.
func signed(reason string) string { return reason + " (" + signature() + ")" }

// signature returns the user and the host of this command.
func signature() string {
	name := "an unknown user"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	return name + "@" + host
}

func (cfg *holdConfig) request(resource string) lockcore.StepRequest {
	reason := signed(cfg.reason)
	return lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: inspect.Maintenance, Part: rand.Text(), Order: lockcore.Order{Attempt: 1}}, Call: rand.Text(), Comment: reason,
		Owner:     wire.Cut(inspect.MaintenanceOf(resource)+reason, wire.MaxName),
		Resources: []lockcore.Resource{lockcore.Exclusive(resource)}, TTL: lockcore.Forever, NeverVictim: true,
	}
}

// queue tries once a second until the request is granted. The hold has no end, so it needs no renewal and outlives this
// process. If unhold ends the request, it does not queue again.
func (cfg *holdConfig) queue(ctx context.Context, at *site, req lockcore.StepRequest) error {
	if cfg.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, cfg.wait, fmt.Errorf("it was not free within %s", cfg.wait))
		defer cancel()
	}
	resource := req.Resources[0].Name
	for {
		leases, err := at.Locker.Enter(ctx, req)
		if !req.Queued && ctx.Err() == nil && tookNothing(err) {
			return err
		}
		switch {
		case err == nil && !leases[0].Joined:
			return nil
		case err == nil: // another command got its hold since this one began
			err = heldAlready(at, resource, "")
		case errors.Is(err, lockcore.ErrBusy):
			select {
			case <-time.After(time.Second):
				req.Queued = true
				continue
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		case errors.Is(err, lockcore.ErrSuperseded):
			err = fmt.Errorf("the hold was ended while it still waited, by lockstep unhold or release: %w", err)
		case ctx.Err() != nil:
			err = context.Cause(ctx) // it explains more than the error of the interrupted command
		}
		// Leave the queue. If the answer of a granted request was lost, this also ends the hold, which has no end.
		part := lockcore.Lease{Resource: resource, LockID: req.LockID, Part: req.Part, Order: req.Order}
		if failed := at.Locker.Leave(context.WithoutCancel(ctx), part); failed != nil {
			err = fmt.Errorf("%w; %w", err, &leftError{resource, unholdLine(at, resource), failed})
		}
		return err
	}
}

// tookNothing reports whether an error of Enter proves that a request that did not wait before neither holds nor waits now.
func tookNothing(err error) bool {
	return err != nil && !errors.Is(err, lockcore.ErrBusy) && !errors.Is(err, lockcore.ErrUnknownOutcome)
}

// leftError is returned if hold could not leave the queue.
type leftError struct {
	resource, command string
	err               error
}

func (e *leftError) Error() string {
	return fmt.Sprintf("it may still be in the queue of %q, or hold it without end, until %s: %v", e.resource, e.command, e.err)
}

func (e *leftError) Unwrap() error { return e.err }

// unholdLine returns the command that ends a hold for maintenance.
func unholdLine(at *site, resource string) string { return at.Command([]string{"unhold"}, resource) }

func heldAlready(at *site, resource, reason string) error {
	if reason == "" {
		reason = at.Command([]string{"show"}, resource) + " has the reason"
	}
	return fmt.Errorf("%q is held for maintenance already: %s", resource, reason)
}

// printHolders prints the parties that hold must wait for. It fails if the resource is held for maintenance already, or
// another command waits to hold it: the two would share one hold, which the first unhold would end for both.
func (cfg *holdConfig) printHolders(ctx context.Context, s streams, at *site, resource string) error {
	found, err := readable(ctx, at, resource)
	if err != nil {
		return err
	}
	for _, h := range found.Holders {
		if h.LockID == inspect.Maintenance {
			return heldAlready(at, resource, h.Comment)
		}
		if err := table.Fprintf(s.err, "waits for %s, which %s\n", h.Party.Name, &h); err != nil {
			return err
		}
	}
	for _, w := range found.Waiters {
		if w.LockID == inspect.Maintenance {
			return fmt.Errorf("another lockstep hold waits for %q already: %s; %s ends that", resource, w.Comment, unholdLine(at, resource))
		}
	}
	if n := len(found.Waiters); n > 0 {
		err = table.Fprintf(s.err, "and for %d in the queue\n", n)
	}
	return err
}

func unholdCommand(s streams) *cobra.Command {
	var db databaseFlags
	c := &cobra.Command{
		Use:   "unhold RESOURCE",
		Short: "End what hold began",
		Long: `Ends a hold for maintenance. A lockstep hold that still waits ends too, with an error.

Exit status: 0, 1 if there is none, 2 for wrong usage.`,
		Args: arguments("the resource's name"),
		RunE: func(c *cobra.Command, args []string) error {
			cfg := releaseConfig{databaseFlags: db, reason: "the maintenance is over", now: true, yes: true, unhold: true}
			return cfg.run(c.Context(), s, args[0], inspect.Maintenance)
		},
	}
	db.add(c)
	return c
}
