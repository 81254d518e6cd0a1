// Package currentrun asks Temporal which run of a workflow is the current one, if another run of it holds, and takes over.
//
// A workflow is one party, whichever of its runs asks: retries, resets, continue-as-new and restarts of a workflow ID share
// its lock ID. The run label says which run speaks for it. A request of one run that meets what another has left is answered
// by a *party.OtherRunError, and nothing changes. Then the activity worker asks Temporal, once:
//
//  1. the run that asks is the workflow's current one, and open: it asks again, with permission to take over from exactly
//     that label. What the other run keeps goes on under the new label and a new fence, and no other gets in between;
//  2. it is not: the attempt fails, and comes again. A zombie's failure is ignored by Temporal; a standby's answer may have been
//     an old one;
//  3. Temporal does not answer in time: the step waits, and uses no attempt, as if the database could not be reached.
package currentrun

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// mostOthers bounds from how many other runs one request takes over. Each of its resources may be another run's.
	mostOthers = 8
	// askTimeout bounds the question.
	askTimeout = 5 * time.Second
	// enterTimeout bounds a request: an attempt that cannot get at the database is to say so, and not to wait in its slot.
	enterTimeout = 10 * time.Second
)

// Locker is what the package needs of a *party.Locker.
type Locker interface {
	Enter(ctx context.Context, req party.Request) ([]lockcore.Lease, error)
	TryEnter(ctx context.Context, req party.Request) ([]lockcore.Lease, error)
	Replaced(ctx context.Context, lockID, run string, resources ...string) ([]string, error)
	Leave(ctx context.Context, leases ...lockcore.Lease) error
}

// Enter is Locker.Enter, or without queue Locker.TryEnter, for a request of own, in an activity of it, and takes over what other runs of the workflow hold. The
// error is that of Locker.Enter, or says that Temporal could not be asked; a *party.OtherRunError says that own is not the
// current run. It takes 10 s at most, and half of the time that ctx has left.
func Enter(ctx context.Context, locker Locker, own wire.Run, req party.Request, queue bool) ([]lockcore.Lease, error) {
	bound := enterTimeout
	if deadline, ok := ctx.Deadline(); ok {
		bound = min(bound, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	req.MaxWait = min(req.MaxWait, bound/2)
	if err := undoAlso(ctx, locker, own, &req, own.RunID); err != nil {
		return nil, err
	}
	enter := locker.TryEnter
	if queue {
		enter = locker.Enter
	}
	req.Call = rand.Text() // asked again after a take-over, it is the same request
	leases, err := enter(ctx, req)
	var other *party.OtherRunError
	for n := 0; errors.As(err, &other); n++ {
		current, failed := IsCurrent(ctx, own)
		if !current || n == mostOthers {
			left := locker.Leave(context.WithoutCancel(ctx), leases...)
			if failed != nil {
				err = failed // nothing is known of the runs: the step waits, as if the database could not be reached
			}
			return nil, errors.Join(err, left)
		}
		req.TakeOver = other.Other
		if err := undoAlso(ctx, locker, own, &req, other.Other); err != nil {
			return nil, errors.Join(err, locker.Leave(context.WithoutCancel(ctx), leases...))
		}
		leases, err = enter(ctx, req)
	}
	return leases, err
}

// undoAlso has a compensation of a run that was reset, which names the step that it undoes by own and by the run that was reset,
// name it by another run too, and by all that this one is known to have replaced.
func undoAlso(ctx context.Context, locker Locker, own wire.Run, req *party.Request, run string) error {
	if len(req.Undo) < 2 {
		return nil
	}
	names := make([]string, len(req.Resources))
	for i, r := range req.Resources {
		names[i] = r.Name
	}
	labels, err := locker.Replaced(ctx, req.LockID, run, names...)
	if err != nil {
		return err
	}
	step := strings.TrimPrefix(req.Undo[0], own.Part(""))
	req.Undo = slices.Clone(req.Undo)
	for _, label := range append(labels, run) {
		if part := (wire.Run{RunID: label}).Part(step); !slices.Contains(req.Undo, part) {
			req.Undo = append(req.Undo, part)
		}
	}
	return nil
}

// Verifier is the part of a *party.Locker that Verify needs.
type Verifier interface {
	Verify(ctx context.Context, v party.Verify) error
}

// Verify calls Verifier.Verify for own, in an activity of it, and takes over what other runs of the workflow hold if own inherits
// from them. If it does not, a hold of another run is a loss: a guarded step of own would have taken it over.
func Verify(ctx context.Context, locker Verifier, own wire.Run, v party.Verify) error {
	return takingOver(ctx, own, func(other *party.OtherRunError) error {
		if other != nil && !v.Inherits {
			return &lockcore.LostError{Resource: other.Resource, LockID: other.LockID, Reason: "a run before this one holds it, and no step of this one does"}
		}
		if other != nil {
			v.TakeOver = other.Other
		}
		return locker.Verify(ctx, v)
	})
}

// Raiser is the part of a *party.Locker that Raise needs.
type Raiser interface {
	Raise(ctx context.Context, r party.Raise) error
}

// Raise calls Raiser.Raise for own, in an activity of it, and takes over what other runs of the workflow hold if own is the
// current run. Otherwise the error is the *party.OtherRunError, or says that Temporal could not be asked.
func Raise(ctx context.Context, locker Raiser, own wire.Run, r party.Raise) error {
	return takingOver(ctx, own, func(other *party.OtherRunError) error {
		if other != nil {
			r.TakeOver = other.Other
		}
		return locker.Raise(ctx, r)
	})
}

// takingOver calls do, at first with nil. If do answers that another run holds, and own is the current run, it calls do again with
// that answer. If Temporal cannot be asked, the error says so alone: nothing is known of the runs then.
func takingOver(ctx context.Context, own wire.Run, do func(other *party.OtherRunError) error) error {
	err := do(nil)
	for range mostOthers {
		var other *party.OtherRunError
		if !errors.As(err, &other) {
			return err
		}
		switch current, failed := IsCurrent(ctx, own); {
		case failed != nil:
			return failed
		case !current:
			return err
		}
		err = do(other)
	}
	return err
}

// IsCurrent reports whether Temporal says that a run is its workflow's current one, and open. It is asked in an activity.
func IsCurrent(ctx context.Context, own wire.Run) (bool, error) {
	c := activity.GetClient(ctx)
	if !Connects(c) { // a test environment, in which no run follows on another
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	now, err := Describe(ctx, c.WorkflowService(), activity.GetInfo(ctx).Namespace, own.WorkflowID, "")
	if err != nil {
		return false, fmt.Errorf("lockstep: ask which run of workflow %q is the current one: %w", own.WorkflowID, err)
	}
	status := now.GetStatus()
	open := !HasEnded(status) && status != enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW
	return open && now.GetExecution().GetRunId() == own.RunID, nil
}
