package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/temporal-lockstep/lockstep/internal/inspect"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// releaseConfig is what release is started with.
type releaseConfig struct {
	databaseFlags
	reason   string
	fence    int64
	now, yes bool
}

func releaseCommand(s streams) *cobra.Command {
	var cfg releaseConfig
	c := &cobra.Command{
		Use:   "release RESOURCE LOCK-ID",
		Short: "End a hold, or a place in the queue, by force",
		Long: `Ends what a lock ID holds on a resource, or its places in the queue. Its owner is told, with the reason, when
it next renews or asks. What of it may still be at work keeps others out until it leaves or its promise
ends; --now does not wait for that, and is for a holder that is known to be dead.

It names the hold by the fence with which that began, so what was granted since stays. It asks first, unless
--yes is given or nobody is at the terminal, when --yes is required.

Exit status: 0, 1 if there was nothing to end or it was not confirmed, 2 for wrong usage.`,
		Args: arguments("the resource's name", "the lock ID, as lockstep show prints it"),
		RunE: func(c *cobra.Command, args []string) error { return cfg.run(c.Context(), s, args[0], args[1]) },
	}
	f := c.Flags()
	f.SortFlags = false
	cfg.add(f)
	f.StringVar(&cfg.reason, "reason", "", "why, for its owner and for traces; required")
	f.Int64Var(&cfg.fence, "fence", 0, "the first fence of the hold; that of the hold that stands by default")
	f.BoolVar(&cfg.now, "now", false, "do not wait for what may still be at work: it is known to be dead")
	f.BoolVar(&cfg.yes, "yes", false, "do not ask")
	return c
}

func (cfg *releaseConfig) run(ctx context.Context, s streams, resource, lockID string) error {
	if strings.TrimSpace(cfg.reason) == "" {
		return fmt.Errorf("%w: --reason is required: the owner is told it", errUsage)
	}
	site, end, err := cfg.open(ctx, "lockstep release")
	if err != nil {
		return err
	}
	defer end()
	var found []lockcore.Status
	for st, err := range site.Locker.Status(ctx, lockcore.Filter{Resource: resource, LockID: lockID}) {
		if err != nil {
			return err
		}
		found = append(found, st)
	}
	if len(found) == 0 {
		return fmt.Errorf("%q neither holds %q nor waits for it; lockstep show %q lists who does", lockID, resource, resource)
	}
	for _, st := range found {
		if _, err := fmt.Fprintln(s.out, st); err != nil {
			return err
		}
	}
	if err := cfg.confirmed(s); err != nil {
		return err
	}
	for _, st := range found {
		if err := cfg.end(ctx, site.Locker, &st); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(s.out, "ended")
	return err
}

// end ends one entry of those that were shown.
func (cfg *releaseConfig) end(ctx context.Context, locker *lockcore.Locker, st *lockcore.Status) error {
	switch {
	case st.FirstFence == 0: // a place, or a claim
		return locker.LeaveQueue(ctx, lockcore.Lease{Resource: st.Resource, LockID: st.LockID, Run: st.Run, Part: st.Part, Order: st.Order})
	case cfg.fence != 0 && cfg.fence != st.FirstFence:
		return fmt.Errorf("the hold that stands began with fence %d, and --fence is %d: nothing was ended", st.FirstFence, cfg.fence)
	}
	return locker.Release(ctx, lockcore.Release{
		LockID: st.LockID, Resources: []string{st.Resource}, FirstFence: st.FirstFence, Reason: cfg.reason, Force: true, Now: cfg.now,
	})
}

// errUnconfirmed says that nothing was done.
var errUnconfirmed = errors.New("not confirmed: nothing was ended")

func (cfg *releaseConfig) confirmed(s streams) error {
	if cfg.yes {
		return nil
	}
	in, ok := s.in.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return fmt.Errorf("%w: there is no terminal to ask at: --yes ends it without asking", errUsage)
	}
	if _, err := fmt.Fprint(s.out, "End it? [y/N] "); err != nil {
		return err
	}
	answer, err := bufio.NewReader(s.in).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); err != nil || (answer != "y" && answer != "yes") {
		return errUnconfirmed
	}
	return nil
}

// holdConfig is what hold and unhold are started with.
type holdConfig struct {
	databaseFlags
	reason string
	wait   time.Duration
}

func holdCommand(s streams) *cobra.Command {
	var cfg holdConfig
	c := &cobra.Command{
		Use:   "hold RESOURCE",
		Short: "Keep everybody out of a resource, for maintenance, until unhold",
		Long: `Queues for the resource like everybody else, so that those who hold it finish, and then holds it without
end, under the lock ID "` + inspect.Maintenance + `". Whoever waits, and lockstep ps, show and why, see the reason. Ctrl-C, and
the end of --wait, leave the queue.

Exit status: 0 when it holds, 1 if it does not, 2 for wrong usage, 130 after Ctrl-C.`,
		Args: arguments("the resource's name"),
		RunE: func(c *cobra.Command, args []string) error { return cfg.hold(c.Context(), s, args[0]) },
	}
	f := c.Flags()
	f.SortFlags = false
	cfg.add(f)
	f.StringVar(&cfg.reason, "reason", "", "why, for those who wait; required")
	f.DurationVar(&cfg.wait, "wait", 0, "how long to wait at most; as long as it takes by default")
	return c
}

func (cfg *holdConfig) hold(ctx context.Context, s streams, resource string) error {
	switch {
	case strings.TrimSpace(cfg.reason) == "":
		return fmt.Errorf("%w: --reason is required: those who wait see it", errUsage)
	case cfg.wait < 0:
		return fmt.Errorf("%w: --wait is %s: want 0 or more", errUsage, cfg.wait)
	}
	site, end, err := cfg.open(ctx, "lockstep hold")
	if err != nil {
		return err
	}
	defer end()
	who := "somebody"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	if err := cfg.tellWhoHolds(ctx, s, site, resource); err != nil {
		return err
	}
	err = cfg.queue(ctx, site.Locker, lockcore.Request{
		LockID: inspect.Maintenance, Part: rand.Text(), Order: lockcore.Order{Attempt: 1}, Comment: cfg.reason + " (" + who + ")",
		Resources: []lockcore.Resource{lockcore.Exclusive(resource)}, TTL: lockcore.Forever, NeverVictim: true,
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.out, "%q is held for maintenance; lockstep unhold %q ends that\n", resource, resource)
	return err
}

// queue asks once a second until the request is granted. Nothing renews a hold without end, so it stands
// when this process has ended.
func (cfg *holdConfig) queue(ctx context.Context, locker *lockcore.Locker, req lockcore.Request) error {
	if cfg.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, cfg.wait, fmt.Errorf("it was not free within %s", cfg.wait))
		defer cancel()
	}
	for ; ; req.Order.Attempt++ {
		_, err := locker.Enter(ctx, req, true)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, lockcore.ErrBusy):
			select {
			case <-time.After(time.Second):
				continue
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		// Its place must not stay, nor what a command got whose answer was lost: that has no end.
		place := lockcore.Lease{Resource: req.Resources[0].Name, LockID: req.LockID, Part: req.Part, Order: req.Order}
		return errors.Join(err, locker.Leave(context.WithoutCancel(ctx), place))
	}
}

// tellWhoHolds says for whom hold waits. That it is held for maintenance already is an error.
func (cfg *holdConfig) tellWhoHolds(ctx context.Context, s streams, site *inspect.Site, resource string) error {
	found, err := site.Resources(ctx, lockcore.Filter{Resource: resource})
	if err != nil || len(found) == 0 {
		return err
	}
	for _, h := range found[0].Holders {
		if h.LockID == inspect.Maintenance {
			return fmt.Errorf("%q is held for maintenance already: %s", resource, h.Comment)
		}
		if _, err := fmt.Fprintf(s.err, "waits for %s, which %s\n", h.Party.Name, &h); err != nil {
			return err
		}
	}
	if n := len(found[0].Waiters); n > 0 {
		_, err = fmt.Fprintf(s.err, "and for %d in the queue\n", n)
	}
	return err
}

func unholdCommand(s streams) *cobra.Command {
	var db databaseFlags
	c := &cobra.Command{
		Use:   "unhold RESOURCE",
		Short: "End what hold began",
		Long: `Ends a hold for maintenance.

Exit status: 0, 1 if there is none, 2 for wrong usage.`,
		Args: arguments("the resource's name"),
		RunE: func(c *cobra.Command, args []string) error {
			cfg := releaseConfig{databaseFlags: db, reason: "the maintenance is over", now: true, yes: true}
			return cfg.run(c.Context(), s, args[0], inspect.Maintenance)
		},
	}
	db.add(c.Flags())
	return c
}
