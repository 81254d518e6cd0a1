package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/runstate"
)

// HandOver returns err, and lets a run that ends with it as a [workflow.ContinueAsNewError] leave its locks to the run that
// continues it, instead of releasing them:
//
//	return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, Transfer, rest))
//
// Inside [RunSaga] return it from the saga's function, and RunSaga's error from the workflow. No other workflow gets in between: what
// the run holds is extended once, for its HoldTTL, and the next run takes it over when it asks for the same resources, by a
// guarded step or a [Lock]. What it never asks for is released when it ends, unless it hands over in its turn.
//
// If a lock turns out to be lost, or cannot be extended for ten minutes, the run does not continue as new: it fails with
// that error, and releases what it holds.
//
// Compensations are not handed over: they are functions, and the next run registers again what is to be undone. Nor are
// steps that still run, which the server cancels. A run that is retried, or started by
// a cron schedule, inherits nothing.
//
// If err is another error, or nil, HandOver does nothing. It adds one event, of a local activity, if anything is held. It
// panics, and so fails the workflow task, if the worker runs without Lockstep's interceptor.
func HandOver(ctx workflow.Context, err error) error {
	state := runstate.StateFrom(ctx)
	if state == nil {
		panic(notInstalled)
	}
	state.MarkHandover(err)
	return err
}

// WithOwner returns a context whose steps wait and hold as owner, the party that deadlocks are searched between, and under which
// child workflows inherit it: their steps wait and hold as owner too, unless Locks.Owner says otherwise, and so do
// those of runs that continue or retry them. An empty owner is the party of this run itself: the one that it inherited,
// or its workflow. Owners are cut to 512 bytes.
//
// For the search for deadlocks, a workflow that waits for its children and shares their party waits for whatever they wait
// for. A child that waits for a lock of its parent is not found: both are one party. WithOwner adds no event, and needs no
// interceptor if nothing is guarded.
func WithOwner(ctx workflow.Context, owner string) workflow.Context {
	return runstate.WithOwner(ctx, owner)
}
