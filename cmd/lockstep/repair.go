package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
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
		Long: `Ends what a lock ID holds on a resource, or its places in the queue. The owner of a hold is told, with the
reason, when it next renews or asks. What of it may still be at work keeps others out until it leaves or its
promise ends; --now does not wait for that, and is for a holder that is known to be dead.

The owner of a place in the queue loses it, and is told no reason. If it is a workflow, it may queue again at
the end.

It names the hold by the fence with which that began, so what was granted since stays. It asks first, unless
--yes is given or nobody is at the terminal, when --yes is required.

Exit status: 0, 1 if there was nothing to end or it was not confirmed, 2 for wrong usage.`,
		Args: arguments("the resource's name", "the lock ID, as lockstep show prints it"),
		RunE: func(c *cobra.Command, args []string) error { return cfg.run(c.Context(), s, args[0], args[1]) },
	}
	f := c.Flags()
	f.SortFlags = false
	cfg.add(f)
	f.StringVar(&cfg.reason, "reason", "", "why, for the owner of a hold and for traces; required")
	f.Int64Var(&cfg.fence, "fence", 0, "end only the hold that began with this fence; by default all that stands")
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
	if cfg.fence != 0 {
		found = slices.DeleteFunc(found, func(st lockcore.Status) bool { return st.FirstFence != cfg.fence })
		if len(found) == 0 {
			return fmt.Errorf("--fence is %d: nothing was ended: no hold of %q on %q began with it; lockstep show %q lists the fences", cfg.fence, lockID, resource, resource)
		}
	}
	for _, st := range found {
		if _, err := fmt.Fprintln(s.out, st); err != nil {
			return err
		}
	}
	if err := cfg.confirmed(ctx, s); err != nil {
		return err
	}
	for _, st := range found {
		if err := cfg.end(ctx, site.Locker, &st); err != nil {
			return err
		}
	}
	said := "ended"
	if lockID != inspect.Maintenance && slices.ContainsFunc(found, waits) {
		said += "; its place in the queue is gone: it is told no reason, and if it is a workflow, it may queue again at the end"
	}
	_, err = fmt.Fprintln(s.out, said)
	return err
}

// waits reports whether an entry is a place in the queue, or a claim, which has not begun to hold.
func waits(st lockcore.Status) bool { return st.FirstFence == 0 }

// end ends one entry of those that were shown.
func (cfg *releaseConfig) end(ctx context.Context, locker *party.Locker, st *lockcore.Status) error {
	if waits(*st) {
		return locker.LeaveQueue(ctx, lockcore.Lease{Resource: st.Resource, LockID: st.LockID, Run: st.Run, Part: st.Part, Order: st.Order})
	}
	return locker.Release(ctx, party.Release{
		LockID: st.LockID, Resources: []string{st.Resource}, FirstFence: st.FirstFence, Reason: cfg.reason, Force: true, Now: cfg.now,
	})
}

// errUnconfirmed says that nothing was done.
var errUnconfirmed = errors.New("not confirmed: nothing was ended")

func (cfg *releaseConfig) confirmed(ctx context.Context, s streams) error {
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
	answer, err := readLine(ctx, s.in)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); err != nil || (answer != "y" && answer != "yes") {
		return errUnconfirmed
	}
	return nil
}

// readLine reads up to the end of a line, or until ctx ends: then the error is its cause. What reads
// goes on, since a terminal cannot be told to stop, and ends with the process.
func readLine(ctx context.Context, in io.Reader) (string, error) {
	var line string
	var err error
	read := make(chan struct{})
	go func() {
		defer close(read)
		line, err = bufio.NewReader(in).ReadString('\n')
	}()
	select {
	case <-read:
		return line, err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
