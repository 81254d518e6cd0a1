// Package collection finds workers that keep their locks in another collection than the workflow's: they would let a step in
// beside those that it must not run beside.
//
// The workflow's worker writes the ID of its own collection into what it schedules, if it knows the ID by then. A worker that runs
// it compares.
package collection

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// timeout bounds the question, which also takes at most half of the time that the caller has left.
const timeout = 2 * time.Second

// Locker is what the package needs of a *party.Locker.
type Locker interface {
	CollectionID(ctx context.Context) (string, error)
}

// ID is that of the collection of a worker's Locker, which it never changes. The zero value knows of none.
type ID struct{ known atomic.Pointer[string] }

// Known is the ID, empty if it is not known yet. It asks nothing, for workflow code: the answer only travels in headers and inputs,
// which a replay does not compare.
func (id *ID) Known() string {
	if known := id.known.Load(); known != nil {
		return *known
	}
	return ""
}

// Ask asks the database the first time, and returns the ID; empty if the database does not answer.
func (id *ID) Ask(ctx context.Context, locker Locker) string {
	if known := id.Known(); known != "" {
		return known
	}
	bound := timeout
	if deadline, ok := ctx.Deadline(); ok {
		bound = min(bound, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	found, err := locker.CollectionID(ctx)
	if err != nil {
		return ""
	}
	id.known.Store(&found)
	return found
}

// Check refuses what a workflow with another collection has scheduled. Nothing is refused if one of the two is not known.
func (id *ID) Check(ctx context.Context, locker Locker, workflows string) error {
	if workflows == "" {
		return nil
	}
	own := id.Ask(ctx, locker)
	if own == "" || own == workflows {
		return nil
	}
	return temporal.NewApplicationError(fmt.Sprintf("lockstep: this worker keeps its locks in the collection with the ID %s, and the workflow's "+
		"worker in that with the ID %s: give the Lockers of both the same database and collection", own, workflows), wire.FailureOtherCollection)
}
