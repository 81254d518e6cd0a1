package currentrun

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// collectionTimeout bounds the question for the collection's ID, which also takes at most half of the time that the caller has left.
const collectionTimeout = 2 * time.Second

// CollectionIdentifier is the part of a *party.Locker that a CollectionCheck needs.
type CollectionIdentifier interface {
	CollectionID(ctx context.Context) (string, error)
}

// CollectionCheck finds workers that keep their locks in another collection than the workflow's worker. Such a worker would run a
// step next to steps that its lock excludes. The workflow's worker writes the ID of its own collection into everything that it
// schedules, once it knows the ID, and the worker that runs the activity compares.
//
// A CollectionCheck belongs to one Locker, whose ID never changes. In the zero value the ID is not known.
type CollectionCheck struct{ known atomic.Pointer[string] }

// Known returns the ID, or "" if it is not known yet. It does no I/O, so workflow code may call it. The ID only travels in headers
// and inputs, which a replay does not compare.
func (c *CollectionCheck) Known() string {
	if known := c.known.Load(); known != nil {
		return *known
	}
	return ""
}

// Learn returns the ID, and asks the database for it the first time. It returns "" if the database does not answer.
func (c *CollectionCheck) Learn(ctx context.Context, locker CollectionIdentifier) string {
	if known := c.Known(); known != "" {
		return known
	}
	bound := collectionTimeout
	if deadline, ok := ctx.Deadline(); ok {
		bound = min(bound, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	found, err := locker.CollectionID(ctx)
	if err != nil {
		return ""
	}
	c.known.Store(&found)
	return found
}

// Check returns an error if the workflow's worker uses another collection. It accepts the activity if one of the two IDs is not
// known.
func (c *CollectionCheck) Check(ctx context.Context, locker CollectionIdentifier, workflows string) error {
	if workflows == "" {
		return nil
	}
	own := c.Learn(ctx, locker)
	if own == "" || own == workflows {
		return nil
	}
	return temporal.NewApplicationError(fmt.Sprintf("lockstep: this worker keeps its locks in the collection with the ID %s, and the workflow's "+
		"worker in that with the ID %s: give the Lockers of both the same database and collection", own, workflows), wire.FailureOtherCollection)
}
