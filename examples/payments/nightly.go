package main

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// nightly does work that only one process may do at a time. It needs no Temporal.
func nightly(ctx context.Context, locker *lockcore.Locker, work func(ctx context.Context, fence int64) error) error {
	session, err := locker.Acquire(ctx, lockcore.Request{
		LockID:    "nightly-report/" + rand.Text(),                   // requests with one lock ID would not keep each other out
		Resources: []lockcore.Resource{lockcore.Exclusive("report")}, // or Shared, or SharedLimit for a semaphore
	})
	if err != nil {
		return err // for example a *lockcore.BusyError, which has the holders
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = session.Release(ctx) // what cannot be released ends with its TTL
	}()
	return work(session.Context(), session.Leases()[0].Fence) // the context is cancelled, with the cause, when the lock is lost
}
