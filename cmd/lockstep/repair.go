package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// releaseConfig has the flags of release.
type releaseConfig struct {
	databaseFlags
	cancelFlags
	reason   string
	fence    int64
	now, yes bool
	// unhold makes the name that of holds for maintenance, whatever a party calls itself.
	unhold bool
}

func releaseCommand(s streams) *cobra.Command {
	var cfg releaseConfig
	c := &cobra.Command{
		Use:   "release RESOURCE NAME",
		Short: "End a hold, or a queued request, by force",
		Long: `Ends what a party holds on a resource, or withdraws its requests from the queue, and shows who gets the lock.
NAME is a lock ID, or the name that lockstep ps, show and why print, if only one party on the resource has it. The
owner of a hold gets the reason when it next renews, which it does after a third of its TTL, or asks; the command
prints who may still work until then. A part that may still be at work keeps others out until
it leaves or its lease ends; --now does not wait for that, and is for a holder that is known to be dead.

If an open workflow has the hold, cancelling the workflow is better: its saga is undone under its locks, while after
a forced release others get the resource before that. --cancel does it, and waits until the workflow has left the
resource. What it still has then is ended by force if you agree, or with --yes. At a terminal the command offers to
cancel. It connects to Temporal only for that.

The owner of a queued request gets no reason. If it is a workflow, it may queue again at the end.

It names the hold by its first fence, so it ends nothing that was granted since. It asks for confirmation, unless
--yes or --cancel is given. Without a terminal, one of them is required. With OTEL_EXPORTER_OTLP_ENDPOINT set, the
span of the hold, with your name and the reason, is sent there.

Exit status: 0, 1 if there was nothing to end, it was not confirmed, or a cancelled workflow has not left, 2 for wrong usage.`,
		Args: arguments("the resource's name", "the lock ID or the name, as lockstep show prints it"),
		RunE: func(c *cobra.Command, args []string) error { return cfg.run(c.Context(), s, args[0], args[1]) },
	}
	f := c.Flags()
	f.SortFlags = false
	cfg.databaseFlags.add(c)
	cfg.temporalFlags.add(c)
	f.StringVar(&cfg.reason, "reason", "", "why, for the owner of a hold, lockstep show and traces; required. Your name and host are added")
	f.Int64Var(&cfg.fence, "fence", 0, "end only the hold that began with this fence; by default all current ones")
	f.BoolVar(&cfg.now, "now", false, "do not wait for parts that may still be at work: the holder is known to be dead")
	f.BoolVar(&cfg.cancel, "cancel", false, "cancel the workflow, and end by force only what it still has after --wait")
	f.DurationVar(&cfg.wait, "wait", defaultCancelWait, "how long --cancel waits")
	f.BoolVar(&cfg.yes, "yes", false, "end it by force without asking")
	return c
}

func (cfg *releaseConfig) checkReason() error {
	if strings.TrimSpace(cfg.reason) == "" {
		return fmt.Errorf("%w: --reason is required: the owner sees it", errUsage)
	}
	if n := len(signed(cfg.reason)); n > wire.MaxName {
		return fmt.Errorf("%w: --reason has %d bytes with your name and host: want at most %d", errUsage, n, wire.MaxName)
	}
	return nil
}

func (cfg *releaseConfig) run(ctx context.Context, s streams, resource, name string) error {
	if err := cfg.checkReason(); err != nil {
		return err
	}
	observed, err := connect.NewTelemetry(ctx, connect.TelemetryOptions{Service: "lockstep-release", Errs: s.err, NoMetrics: true})
	if err != nil { // a hold must end even if the environment's settings are those of another exporter
		_ = table.Fprintf(s.err, "lockstep: no span is sent: %s\n", err)
	} else {
		defer observed.Shutdown(ctx)
		cfg.traces = observed.Traces
	}
	at, err := cfg.open(ctx, "lockstep release")
	if err != nil {
		return err
	}
	defer func() { at.close() }() // openRun adds to it
	if err := at.CheckCollection(ctx); err != nil {
		return err
	}
	entries, err := entriesOf(ctx, at, resource)
	if err != nil {
		return err
	}
	found, err := cfg.named(at, name, resource, entries)
	if err != nil {
		return err
	}
	for i := range found {
		if err := table.Fprintf(s.out, "%s\n", found[i].Status); err != nil {
			return err
		}
	}
	fence := int64(0)
	for i := range entries {
		fence = max(fence, entries[i].Fence)
	}
	if found, err = cfg.agreed(ctx, s, at, found); err != nil {
		return err
	}
	if len(found) == 0 { // its workflow was cancelled, and has left
		return reportNext(ctx, s, at, resource, fence)
	}
	ended, err := cfg.endAll(ctx, s, at, found)
	if len(ended) == 0 {
		return err
	}
	result := "ended"
	if ended[0].LockID != inspect.Maintenance && len(choose(ended, func(e *inspect.Entry) bool { return e.FirstFence == 0 })) > 0 {
		result += "; it is no longer in the queue. It gets no reason, and if it is a workflow, it may queue again at the end"
	}
	if printed := table.Fprintf(s.out, "%s\n", result); printed != nil || err != nil {
		return errors.Join(printed, err)
	}
	for i := range ended {
		if text := ended[i].AfterRelease(cfg.now); text != "" {
			if err := table.Fprintf(s.out, "%s\n", text); err != nil {
				return err
			}
		}
	}
	if len(choose(ended, func(e *inspect.Entry) bool { return e.State != lockcore.StateWaiting })) == 0 {
		return nil // a waiter's end grants nothing
	}
	return reportNext(ctx, s, at, resource, fence)
}

// endAll ends the listed entries, and returns the ones that it has ended. If some had changed in the meantime, the
// error reports what is there now: a waiter, for instance, may have become the holder.
func (cfg *releaseConfig) endAll(ctx context.Context, s streams, at *site, found []inspect.Entry) (ended []inspect.Entry, err error) {
	changed := false
	for i := range found {
		e := &found[i]
		if e.FirstFence != 0 && slices.ContainsFunc(found[:i], func(other inspect.Entry) bool { return other.FirstFence == e.FirstFence }) {
			continue // the parts of a hold end together
		}
		did, err := cfg.end(ctx, at.Locker, &e.Status)
		if err != nil {
			return ended, err
		}
		if changed = changed || !did; !did {
			continue
		}
		ended = append(ended, *e)
		logger(s).Info("lockstep: ended by force", "resource", e.Resource, "lockId", e.LockID, "owner", e.Owner, "fence", e.FirstFence, "reason", signed(cfg.reason))
	}
	if !changed {
		return ended, nil
	}
	what := "nothing was ended"
	if len(ended) > 0 {
		what = fmt.Sprintf("only %d of %d was ended", len(ended), len(found))
	}
	now, err := entriesOf(ctx, at, found[0].Resource)
	if err != nil {
		return ended, fmt.Errorf("%s: %q has changed since it was listed, and could not be read again: %w", what, found[0].Resource, err)
	}
	now = choose(now, func(e *inspect.Entry) bool { return e.LockID == found[0].LockID })
	if len(now) == 0 {
		return ended, fmt.Errorf("%s: %q has left %q since it was listed", what, found[0].LockID, found[0].Resource)
	}
	return ended, fmt.Errorf("%s: it has changed since it was listed. Now %s; the same command again ends that", what, describe(now))
}

// describe lists entries in one line.
func describe(entries []inspect.Entry) string {
	texts := make([]string, len(entries))
	for i := range entries {
		texts[i] = entries[i].LockID + " " + entries[i].String()
	}
	return strings.Join(texts, "; ")
}

// entriesOf lists the entries of a resource, holders first.
func entriesOf(ctx context.Context, at *site, resource string) ([]inspect.Entry, error) {
	r, err := readable(ctx, at, resource)
	return slices.Concat(r.Holders, r.Waiters), err
}

// readable returns a resource, or an error if its document cannot be decoded.
func readable(ctx context.Context, at *site, resource string) (r inspect.Resource, err error) {
	listed, err := at.Resources(ctx, lockcore.Filter{Resource: resource})
	if err != nil || len(listed) == 0 { // one at most
		return r, err
	}
	return listed[0], damage(&listed[0])
}

// damage returns an error if the document of a resource cannot be decoded.
func damage(r *inspect.Resource) error {
	if r.Damaged == "" {
		return nil
	}
	return fmt.Errorf("%q %s; lockstep doctor has advice", r.Name, r.Damaged)
}

// choose returns the entries that meet a condition.
func choose(entries []inspect.Entry, chosen func(*inspect.Entry) bool) (found []inspect.Entry) {
	for i := range entries {
		if chosen(&entries[i]) {
			found = append(found, entries[i])
		}
	}
	return found
}

// named returns the entries with a lock ID or of a party of that name, which must have a single lock ID. Parts that were cut off are
// among them if they may be ended now.
func (cfg *releaseConfig) named(at *site, name, resource string, entries []inspect.Entry) ([]inspect.Entry, error) {
	found := choose(entries, func(e *inspect.Entry) bool {
		return e.LockID == name || !cfg.unhold && (e.Party.Name == name || e.Party.Workflow == name || e.Party.Activity == name || e.Party.Owner == name)
	})
	if cfg.fence != 0 {
		found = choose(found, func(e *inspect.Entry) bool { return e.FirstFence == cfg.fence })
		if len(found) == 0 {
			return nil, fmt.Errorf("--fence is %d: nothing was ended: no hold of %q on %q began with it; %s lists the fences",
				cfg.fence, name, resource, at.Command([]string{"show"}, resource))
		}
	}
	known := len(found) > 0
	if !cfg.now {
		found = choose(found, func(e *inspect.Entry) bool { return e.State != lockcore.StateDraining })
	}
	if known && len(found) == 0 {
		return nil, fmt.Errorf("nothing was ended: what %q held on %q has been cut off already; if it is known to be dead, --now does not wait for it", name, resource)
	}
	if len(found) == 0 && cfg.unhold {
		return nil, fmt.Errorf("%q is not held for maintenance, and no lockstep hold waits for it", resource)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%q neither holds %q nor waits for it; %s lists who does", name, resource, at.Command([]string{"show"}, resource))
	}
	if len(choose(found, func(e *inspect.Entry) bool { return e.LockID != found[0].LockID })) == 0 {
		return found, nil
	}
	return nil, fmt.Errorf("nothing was ended: %q has several lock IDs on %q; name one of them, or a hold's --fence: %s", name, resource, describe(found))
}

const (
	// confirmWait bounds the time for which release waits until a party has confirmed its grant.
	confirmWait = 3 * time.Second
	// maxNext is the number of parties that release shows if none has got the lock.
	maxNext = 3
)

// reportNext prints who was granted a resource after a fence, or else who is next.
func reportNext(ctx context.Context, s streams, at *site, resource string, fence int64) error {
	for limit := time.Now().Add(confirmWait); ; {
		entries, err := entriesOf(ctx, at, resource)
		if err != nil {
			return fmt.Errorf("it was ended, but its new holder could not be read: %w", err)
		}
		shown := choose(entries, func(e *inspect.Entry) bool { return e.State == lockcore.StateHolding && e.FirstFence > fence })
		if len(shown) == 0 {
			shown = choose(entries, func(e *inspect.Entry) bool { return e.State != lockcore.StateHolding })
			if len(shown) > 0 && time.Now().Before(limit) {
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(100 * time.Millisecond):
					continue
				}
			}
		}
		if len(shown) == 0 {
			return table.Fprintf(s.out, "no party waits for it\n")
		}
		seen := map[string]bool{}
		shown = choose(shown, func(e *inspect.Entry) bool { // a party may have several parts that drain
			party := string(e.State) + e.LockID
			first := !seen[party]
			seen[party] = true
			return first
		})
		for i := range shown[:min(len(shown), maxNext)] {
			if err := table.Fprintf(s.out, "%s %s\n", shown[i].Party.Name, &shown[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

// end ends an entry, and reports whether it was still there.
func (cfg *releaseConfig) end(ctx context.Context, locker *lockcore.Steps, st *lockcore.Status) (bool, error) {
	if st.FirstFence == 0 { // a queued request, or a claim, which is not a hold yet
		return locker.LeaveQueue(ctx, lockcore.Lease{Resource: st.Resource, LockID: st.LockID, Run: st.Run, Part: st.Part, Order: st.Order})
	}
	return locker.End(ctx, lockcore.Release{
		LockID: st.LockID, Resources: []string{st.Resource}, FirstFence: st.FirstFence, Reason: signed(cfg.reason), Force: true, Now: cfg.now,
	})
}

// errUnconfirmed is returned if the user does not confirm.
var errUnconfirmed = errors.New("not confirmed: nothing was ended")

func (cfg *releaseConfig) confirmed(ctx context.Context, s streams) error {
	if cfg.yes {
		return nil
	}
	if table.Terminal(s.in) == nil {
		return fmt.Errorf("%w: there is no terminal to ask at: --yes ends it without asking, --cancel cancels its workflow instead", errUsage)
	}
	if answer, err := ask(ctx, s, "End it? [y/N] "); err != nil || answer != "y" && answer != "yes" {
		return cmp.Or(err, errUnconfirmed)
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
