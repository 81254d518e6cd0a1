package simulation

import (
	"context"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// What the simulation reads from the stored document, and the calls of the library that are likely to change, stand here.

// lives reports whether an entry still stands.
func lives(e *rules.Entry, now time.Time) bool { return e.ExpiresAt.After(now) }

// waits reports whether a place in the queue still stands, for a request that has not been refused yet.
func waits(w *rules.Waiter, now time.Time) bool { return w.Waits(now) }

// passedOver reports whether a place is not waited for, since nothing was heard of the waiter in time.
func passedOver(w *rules.Waiter, now time.Time) bool { return w.Overdue(now) }

// condemned are the requests that a write made the victims of a deadlock.
func condemned(before, after *rules.Document) []partKey {
	var out []partKey
	for i := range after.Waiters {
		q := &after.Waiters[i]
		if q.Verdict != "" && before.Tombstone(q.LockID, q.Part) == nil {
			out = append(out, partKey{before.ID, q.LockID, q.Part})
		}
	}
	return out
}

// lossOf is the loss that a session tells of, or nil.
func lossOf(s *lockcore.Session) error { return s.Lost() }

// closeLocker ends what a Locker still does.
func closeLocker(l *lockcore.Locker) { _ = l.Close(context.Background()) }
