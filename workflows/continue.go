package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol/run"
)

// HandOver returns err, and lets a run that ends with it as a [workflow.ContinueAsNewError] hand its locks over to the
// run that continues it, instead of releasing them:
//
//	return workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, Transfer, rest))
//
// Inside [RunSaga] return it from the saga's function, and RunSaga's error from the workflow. Nobody gets in between.
// The next run locks under the same lock ID, and in its first RunSaga holds what the saga held; a step there whose lock
// was lost meanwhile is told so. It releases the locks at the end of that saga, or at its own end, or hands them over again.
//
// What was held by [Lock] is taken over by the next run's own Lock on the same resource, whose release lets it go. Until
// then its HoldTTL, owner and keep-alive go on; where the next run never locks the resource, it is released at that run's end.
// What a run that was reset has not taken anew when it hands over is taken anew by the next run: before its next activity
// under a lock, or by the next guarded step of the saga.
//
// Compensations are not handed over: they are functions, and the next run registers anew what is to be undone. Nor are
// steps that still run, which the server cancels. A run that is retried, or started by a cron schedule, inherits nothing.
// Until the next run's first step the locks stand for their HoldTTL.
//
// Where err is another error, or nil, HandOver does nothing. It adds no event. It panics, and so fails the workflow task, where
// the worker runs without Lockstep's interceptor.
func HandOver(ctx workflow.Context, err error) error {
	if run.StateFrom(ctx) == nil {
		panic(notInstalled)
	}
	if failed := run.MarkHandover(err); failed != nil {
		return failed
	}
	return err
}

// WithOwner returns a context whose steps wait and hold as owner, the party that deadlocks are searched between, and under which
// child workflows inherit it: their steps wait and hold as owner too, unless Locks.Owner says otherwise, and so do
// those of runs that continue or retry them. An empty owner is the party of this run itself: the one that it inherited,
// or its workflow ID. Owners are cut to 512 bytes.
//
// For the search for deadlocks, a workflow that waits for its children and shares their party waits for whatever they wait
// for. A child that waits for a lock of its parent is not found: both are one party. WithOwner adds no event, and needs no
// interceptor where nothing is guarded.
func WithOwner(ctx workflow.Context, owner string) workflow.Context {
	return run.WithOwner(ctx, owner)
}
