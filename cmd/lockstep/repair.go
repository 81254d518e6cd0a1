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

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// releaseConfig has the flags of release.
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
		Short: "End a hold, or a queued request, by force",
		Long: `Ends what a lock ID holds on a resource, or withdraws its requests from the queue. The owner of a hold gets the
reason when it next renews or asks. A part that may still be at work keeps others out until it leaves or its
lease ends; --now does not wait for that, and is for a holder that is known to be dead.

The owner of a queued request gets no reason. If it is a workflow, it may queue again at the end.

It names the hold by its first fence, so it ends nothing that was granted since. It asks for confirmation, unless
--yes is given. Without a terminal, --yes is required.

Exit status: 0, 1 if there was nothing to end or it was not confirmed, 2 for wrong usage.`,
		Args: arguments("the resource's name", "the lock ID, as lockstep show prints it"),
		RunE: func(c *cobra.Command, args []string) error { return cfg.run(c.Context(), s, args[0], args[1]) },
	}
	f := c.Flags()
	f.SortFlags = false
	cfg.add(c)
	f.StringVar(&cfg.reason, "reason", "", "why, for the owner of a hold and for traces; required")
	f.Int64Var(&cfg.fence, "fence", 0, "end only the hold that began with this fence; by default all current ones")
	f.BoolVar(&cfg.now, "now", false, "do not wait for parts that may still be at work: the holder is known to be dead")
	f.BoolVar(&cfg.yes, "yes", false, "do not ask")
	return c
}

func (cfg *releaseConfig) run(ctx context.Context, s streams, resource, lockID string) error {
	if strings.TrimSpace(cfg.reason) == "" {
		return fmt.Errorf("%w: --reason is required: the owner sees it", errUsage)
	}
	at, err := cfg.open(ctx, "lockstep release")
	if err != nil {
		return err
	}
	defer at.close()
	if err := at.CheckCollection(ctx); err != nil {
		return err
	}
	var found []lockcore.Status
	for st, err := range at.Locker.Status(ctx, lockcore.Filter{Resource: resource, LockID: lockID}) {
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
		if err := cfg.end(ctx, at.Locker, &st); err != nil {
			return err
		}
	}
	result := "ended"
	if lockID != inspect.Maintenance && slices.ContainsFunc(found, waits) {
		result += "; it is no longer in the queue. It gets no reason, and if it is a workflow, it may queue again at the end"
	}
	_, err = fmt.Fprintln(s.out, result)
	return err
}

// waits reports whether an entry is a queued request, or a claim, which is not a hold yet.
func waits(st lockcore.Status) bool { return st.FirstFence == 0 }

// end ends an entry.
func (cfg *releaseConfig) end(ctx context.Context, locker *party.Locker, st *lockcore.Status) error {
	if waits(*st) {
		return locker.LeaveQueue(ctx, lockcore.Lease{Resource: st.Resource, LockID: st.LockID, Run: st.Run, Part: st.Part, Order: st.Order})
	}
	return locker.Release(ctx, party.Release{
		LockID: st.LockID, Resources: []string{st.Resource}, FirstFence: st.FirstFence, Reason: cfg.reason, Force: true, Now: cfg.now,
	})
}

// errUnconfirmed is returned if the user does not confirm.
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

// readLine reads up to the end of a line, or until ctx ends; the error is its cause then. The goroutine that reads ends
// with the process, since a read from a terminal cannot be stopped.
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
