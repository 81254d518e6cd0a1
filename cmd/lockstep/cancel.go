package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/cli/table"
)

// cancelFlags are the flags of release for a workflow that is cancelled first.
type cancelFlags struct {
	temporalFlags
	cancel bool
	wait   time.Duration
}

const (
	// defaultCancelWait is the time that a workflow has to leave after it was cancelled.
	defaultCancelWait = time.Minute
	// lookAtEntries is the interval at which a cancelled workflow's entries are read.
	lookAtEntries = 200 * time.Millisecond
)

// agreed returns the entries that are ended by force, after the user has agreed. If their workflow is cancelled first, these are the entries
// that it still has after that.
func (cfg *releaseConfig) agreed(ctx context.Context, s streams, at *site, found []inspect.Entry) (left []inspect.Entry, err error) {
	run, err := cfg.cancels(ctx, s, at, found)
	if err != nil || run == nil {
		return found, err
	}
	left, err = cfg.cancelRun(ctx, s, at, run, found)
	if err != nil {
		return nil, err
	}
	if len(left) == 0 {
		return nil, table.Fprintf(s.out, "it has left\n")
	}
	return left, cfg.confirmLeft(ctx, s, left)
}

// openRun returns the open run of the workflow that entries belong to, and connects the site to Temporal. The error reports that the
// entries are not a workflow's, that it has no open run, or that Temporal gave no answer.
func (c *cancelFlags) openRun(ctx context.Context, s streams, at *site, found []inspect.Entry) (*inspect.Doing, error) {
	p := found[0].Party
	if p.Workflow == "" {
		return nil, fmt.Errorf("%w: %q is not a workflow, so it cannot be cancelled", errUsage, p.Name)
	}
	opened := &siteFlags{temporalFlags: c.temporalFlags}
	if err := opened.openTemporal(ctx, s, at); err != nil {
		return nil, err
	}
	if p.Namespace != at.Temporal.NamespaceID {
		return nil, fmt.Errorf("workflow %q is in a namespace with the ID %s, and namespace %q has the ID %s; --namespace names another",
			p.Workflow, p.Namespace, at.Temporal.Namespace, at.Temporal.NamespaceID)
	}
	doing, err := at.Describe(ctx, p.Workflow, "")
	switch {
	case err != nil:
		return nil, err
	case doing.Reason != "":
		return nil, fmt.Errorf("no answer from Temporal about workflow %q: %s", p.Workflow, doing.Reason)
	case !doing.Open():
		return nil, fmt.Errorf("workflow %q has no open run (%s): a janitor releases what it has left", p.Workflow, doing.Status)
	}
	return doing, nil
}

// cancelRun requests the cancellation of the entries' workflow, and waits until it has left the resource. The result has the entries that
// it still has after cfg.wait.
func (cfg *releaseConfig) cancelRun(ctx context.Context, s streams, at *site, run *inspect.Doing, found []inspect.Entry) (left []inspect.Entry, err error) {
	workflow, resource, lockID := found[0].Party.Workflow, found[0].Resource, found[0].LockID
	_, err = at.client.WorkflowService().RequestCancelWorkflowExecution(ctx, &workflowservice.RequestCancelWorkflowExecutionRequest{
		Namespace: at.Temporal.Namespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: workflow, RunId: run.RunID},
		RequestId: rand.Text(), Reason: signed(cfg.reason),
	})
	var gone *serviceerror.NotFound // it has just ended
	if err != nil && !errors.As(err, &gone) {
		return nil, fmt.Errorf("cancel workflow %q: %w", workflow, err)
	}
	logger(s).Info("lockstep: cancelled", "workflow", workflow, "run", run.RunID, "reason", signed(cfg.reason))
	if err := table.Fprintf(s.out, "cancelled workflow %s; waiting for %s at most until it has left %s\n", workflow, inspect.Short(cfg.wait), resource); err != nil {
		return nil, err
	}
	for limit := time.Now().Add(cfg.wait); ; {
		entries, err := entriesOf(ctx, at, resource)
		if err != nil {
			return nil, err
		}
		left = choose(entries, func(e *inspect.Entry) bool {
			return e.LockID == lockID && (cfg.fence == 0 || e.FirstFence == cfg.fence)
		})
		if len(left) == 0 || time.Now().After(limit) {
			return left, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lookAtEntries):
		}
	}
}

// cancels decides whether the workflow of the entries is cancelled first. If it is not, the user has agreed that they are ended by force.
func (cfg *releaseConfig) cancels(ctx context.Context, s streams, at *site, found []inspect.Entry) (run *inspect.Doing, err error) {
	if cfg.cancel {
		return cfg.openRun(ctx, s, at, found)
	}
	if cfg.yes || found[0].Party.Workflow == "" || table.Terminal(s.in) == nil {
		return nil, cfg.confirmed(ctx, s)
	}
	run, err = cfg.openRun(ctx, s, at, found)
	if err != nil { // a hold must end even if Temporal cannot be asked
		if err := table.Fprintf(s.err, "lockstep: its workflow cannot be cancelled: %s\n", err); err != nil {
			return nil, err
		}
		return nil, cfg.confirmed(ctx, s)
	}
	answer, err := ask(ctx, s, fmt.Sprintf("Workflow %s is open (%s, run %s). If it is cancelled, its saga is undone under its locks. If the hold\n"+
		"is ended by force, others get the resource before that. Cancel it (c), end the hold by force (f), or neither? [c/f/N] ",
		found[0].Party.Workflow, run.Type, run.RunID))
	switch {
	case err != nil:
		return nil, err
	case answer == "c":
		return run, nil
	case answer == "f":
		return nil, nil
	}
	return nil, errUnconfirmed
}

// confirmLeft asks whether what a cancelled workflow still has is ended by force.
func (cfg *releaseConfig) confirmLeft(ctx context.Context, s streams, left []inspect.Entry) error {
	still := fmt.Sprintf("%s after workflow %s was cancelled, still %s", inspect.Short(cfg.wait), left[0].Party.Workflow, describe(left))
	if !cfg.yes && table.Terminal(s.in) == nil {
		return fmt.Errorf("%s; nothing was ended by force: without --cancel the command does that", still)
	}
	if err := table.Fprintf(s.out, "%s\n", still); err != nil {
		return err
	}
	return cfg.confirmed(ctx, s)
}

// ask prints a question, and returns the answer in lower case.
func ask(ctx context.Context, s streams, question string) (string, error) {
	if err := table.Fprintf(s.out, "%s", question); err != nil {
		return "", err
	}
	answer, err := readLine(ctx, s.in)
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", errUnconfirmed
	}
	return strings.ToLower(strings.TrimSpace(answer)), nil
}
