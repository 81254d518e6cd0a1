package lockcore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
)

// From a call to the database: a call becomes an operation of package rules (acquire.go, enter.go, renew.go,
// release.go, workflow.go). Locker.do, below, adds it to the line of its resource, in package update, and it is
// answered when a swap that contains it is acknowledged. Acquire, and Enter with MaxWait, leave the operation in
// the line while they wait. The watcher (watch.go) finds the grants of other processes, and park.go serves
// requests that wait without a process. The keeper (renew.go) renews sessions, and deadlock.go searches for
// cycles of waits and breaks them.

const (
	// commandTimeout bounds one command.
	commandTimeout = update.CommandTimeout
	// cleanupTimeout bounds the commands of the watcher.
	cleanupTimeout = 5 * time.Second
	// undoTimeout bounds the wait of a caller whose request failed for the release of what it may have got.
	// After it, the lines complete the release in the background.
	undoTimeout = time.Second
)

// failure returns the error of an operation, which may have been applied if unknown is set.
func failure(op, resource string, order Order, err error, unknown bool) error {
	err = public(err)
	var layout *LayoutError
	switch {
	case unknown:
		return &UnknownOutcomeError{Op: op, Resource: resource, Order: order, Err: err}
	case errors.Is(err, ErrClosed), errors.As(err, &layout):
		return err
	}
	return fmt.Errorf("lockstep: %s of %q: %w", op, resource, err)
}

// detached returns a context for operations that must run although the caller's context has ended.
func (l *Locker) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.clock.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
}

// bounded returns a context for one command that reads.
func (l *Locker) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := l.clock.WithTimeout(ctx, commandTimeout)
	stop := context.AfterFunc(l.life.closed, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// do carries out an operation. name is for its errors: the database's, ctx's or ErrClosed, and an
// *UnknownOutcomeError if the operation may have been applied.
func (l *Locker) do(ctx context.Context, name string, order Order, c *update.Call) (update.Answer, error) {
	var a update.Answer
	switch {
	case l.life.closed.Err() != nil:
		a.Err = ErrClosed
	case ctx.Err() != nil:
		return a, fmt.Errorf("lockstep: %s of %q was not sent: %w", name, c.Op.ResourceName(), context.Cause(ctx))
	default:
		a = l.lines.Do(ctx, c)
	}
	if a.Err != nil {
		return a, failure(name, c.Op.ResourceName(), order, a.Err, a.Unknown)
	}
	return a, nil
}

// call returns a call of an operation. Its effects are recorded in the trace of ctx, with the reason why.
func (l *Locker) call(ctx context.Context, op rules.Op, why ending) *update.Call {
	return &update.Call{Op: op, OnWrite: func(a update.Answer) { l.record(ctx, &a, why) }}
}

// record records the spans of what an acknowledged write has ended.
func (l *Locker) record(ctx context.Context, a *update.Answer, why ending) {
	ctx = context.WithoutCancel(ctx)
	l.tel.recordEnded(ctx, a, why)
	l.tel.recordHoldGrants(ctx, a)
}

// wrote is called after an acknowledged write of one document. It wakes the waiters that were granted the resource.
func (l *Locker) wrote(answers []update.Answer) {
	all, endedHold := answers[len(answers)-1], false
	for i := range answers {
		endedHold = l.holds.learn(&answers[i]) || endedHold
		if i < len(answers)-1 {
			all.Retried = all.Retried || answers[i].Retried
			all.Ended, all.Holds = slices.Concat(all.Ended, answers[i].Ended), slices.Concat(all.Holds, answers[i].Holds)
		}
	}
	l.watch.onWrite(&all, endedHold)
}

// readMajority reads documents as a majority of the servers has them. The error is about the command; one
// about a single document is in Damaged.
func (l *Locker) readMajority(ctx context.Context, names ...string) (store.Loaded, error) {
	if l.life.closed.Err() != nil {
		return store.Loaded{}, ErrClosed
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	sent := clock.Now()
	loaded, err := l.store.LoadMajority(ctx, names...)
	if err != nil {
		return store.Loaded{}, fmt.Errorf("lockstep: read lock documents: %w", public(err))
	}
	l.lines.Learn(loaded.At, sent)
	return loaded, nil
}

// inParallel calls do with 0 to n-1, a few at a time.
func inParallel(n int, do func(int)) {
	if n == 1 {
		do(0)
		return
	}
	var calls errgroup.Group
	calls.SetLimit(16)
	for i := range n {
		calls.Go(func() error {
			do(i)
			return nil
		})
	}
	_ = calls.Wait()
}

// readOne returns the document of a resource, or nil if there is none.
func (l *Locker) readOne(ctx context.Context, resource string) (*rules.Document, error) {
	loaded, err := l.readMajority(ctx, resource)
	return loaded.Docs[resource], cmp.Or(err, public(loaded.Damaged[resource]))
}
