package lockcore_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// asking is how a request may be made that is not to stay when it fails.
var asking = map[string]func(context.Context, *lockcore.Locker, lockcore.Request) error{
	"TryAcquire": func(ctx context.Context, l *lockcore.Locker, req lockcore.Request) error {
		_, err := l.TryAcquire(ctx, req)
		return err
	},
	"Acquire": func(ctx context.Context, l *lockcore.Locker, req lockcore.Request) error {
		_, err := l.Acquire(ctx, req)
		return err
	},
	"Enter": func(ctx context.Context, l *lockcore.Locker, req lockcore.Request) error {
		_, err := l.Enter(ctx, req, false)
		return err
	},
}

func forEver(lockID string, res ...lockcore.Resource) lockcore.Request {
	req := one(lockID, res...)
	req.TTL = lockcore.Forever
	return req
}

func TestRequestWhoseAnswerIsLostLeavesNothingForEver(t *testing.T) {
	t.Parallel()
	for name, ask := range asking {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := faulty()
				l := on(t, e, lockcore.Config{})
				lost := func(ctx context.Context, op any) error {
					if op, yes := op.(rules.Acquire); yes && op.Resource == "a" {
						return nil
					}
					return errCut
				}
				e.set(cutting[rules.Leave], lost) // an outage
				require.ErrorIs(t, ask(t.Context(), l, forEver("a", lockcore.Exclusive("a"), lockcore.Exclusive("b"))), lockcore.ErrUnknownOutcome)
				require.Len(t, e.Document("b").Entries, 1, "it took effect")
				elapse(time.Minute)
				e.set(nil, nil)
				elapse(2 * time.Minute)
				require.Empty(t, e.Document("a").Entries)
				require.Empty(t, e.Document("b").Entries)
			})
		})
	}
}

func TestRequestThatIsCancelledUnderWayLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, ask := range asking {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := faulty()
				l := on(t, e, lockcore.Config{})
				ctx, cancel := context.WithCancel(t.Context())
				e.set(nil, func(_ context.Context, op any) error {
					if _, yes := op.(rules.Acquire); yes {
						cancel()
						return ctx.Err()
					}
					return nil
				})
				require.ErrorIs(t, ask(ctx, l, forEver("a", lockcore.Exclusive("r"))), context.Canceled)
				require.Empty(t, e.Document("r").Entries, "it could be given back at once")
			})
		})
	}
}

func TestLateCopyOfARequestThatGaveUpHoldsNothingForLong(t *testing.T) {
	t.Parallel()
	for name, ask := range asking {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := faulty()
				l := on(t, e, lockcore.Config{})
				var late rules.Acquire
				e.set(func(_ context.Context, op any) error { // still on its way when its caller has given up
					if op, yes := op.(rules.Acquire); yes && op.LockID == "late" {
						late = op
						return errCut
					}
					return nil
				}, nil)
				require.ErrorIs(t, ask(t.Context(), l, forEver("late", lockcore.Exclusive("r"))), lockcore.ErrUnknownOutcome)
				for i := range 20 { // the records of the document have forgotten it
					s, err := l.TryAcquire(t.Context(), one(fmt.Sprint("other/", i), lockcore.Exclusive("r")))
					require.NoError(t, err)
					require.NoError(t, s.Leave(t.Context()))
				}
				_, err := e.Engine.Acquire(t.Context(), late)
				require.NoError(t, err)
				elapse(20 * time.Second)
				require.Empty(t, e.Document("r").Entries)
			})
		})
	}
}

// The process is stopped while the leave is under way that gives it back, and the copy comes meanwhile.
func TestLateCopyThatCameWhileTheProcessWasStoppedHoldsNothingForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := faulty()
		l := on(t, e, lockcore.Config{})
		var late *rules.Acquire
		stopped := false
		e.set(func(_ context.Context, op any) error {
			if op, yes := op.(rules.Acquire); yes {
				late = &op
				return errCut
			}
			return nil
		}, func(ctx context.Context, op any) error {
			if _, yes := op.(rules.Leave); yes && !stopped {
				stopped = true
				for i := range 20 { // the records of the document forget it
					_, _ = e.Engine.Acquire(ctx, acquire("r", fmt.Sprint("other/", i), rules.Exclusive))
					_, _ = e.Engine.Leave(ctx, rules.Leave{Resource: "r", LockID: fmt.Sprint("other/", i), Part: "p", Order: 1})
				}
				_, err := e.Engine.Acquire(ctx, *late)
				elapse(time.Minute)
				return err
			}
			return nil
		})
		require.ErrorIs(t, asking["TryAcquire"](t.Context(), l, forEver("late", lockcore.Exclusive("r"))), lockcore.ErrUnknownOutcome)
		require.True(t, stopped)
		elapse(2 * time.Minute)
		require.Empty(t, e.Document("r").Entries)
	})
}

// It was told of a deadlock, or of what superseded it, after an answer had been lost.
func TestLateCopyOfARequestThatWasTakenOutOfTheQueueWaitsForNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := faulty()
		l := on(t, e, lockcore.Config{})
		holder, err := l.TryAcquire(t.Context(), one("holder", lockcore.Shared("r")))
		require.NoError(t, err)
		var late rules.Acquire
		e.set(nil, func(_ context.Context, op any) error {
			if op, yes := op.(rules.Acquire); yes && op.LockID == "late" && late.LockID == "" {
				late = op
				return errCut
			}
			return nil
		})
		next := acquireLater(t.Context(), l, one("late", lockcore.Exclusive("r")))
		synctest.Wait()
		elapse(time.Second)
		_, err = e.Withdraw(t.Context(), rules.Withdraw{Resource: "r", LockID: "late", Part: late.Part, Order: late.Order, Reason: "deadlock: so they say"})
		require.NoError(t, err)
		require.ErrorIs(t, (<-next).err, lockcore.ErrDeadlock)
		for i := range 20 { // the records of the document have forgotten it
			s, err := l.TryAcquire(t.Context(), one(fmt.Sprint("other/", i), lockcore.Shared("r")))
			require.NoError(t, err)
			require.NoError(t, s.Leave(t.Context()))
		}
		_, err = e.Engine.Acquire(t.Context(), late)
		require.NoError(t, err)
		require.Len(t, e.Document("r").Waiters, 1, "the copy has queued")
		elapse(20 * time.Second)
		require.Empty(t, e.Document("r").Waiters)
		require.NoError(t, holder.Leave(t.Context()))
	})
}

// The first try is under way when the second one finds the resource busy.
func TestLateCopyOfARequestThatFoundItBusyHoldsNothingForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := faulty()
		l := on(t, e, lockcore.Config{})
		holder, err := l.TryAcquire(t.Context(), one("holder", lockcore.Exclusive("r")))
		require.NoError(t, err)
		var late *rules.Acquire
		e.set(func(_ context.Context, op any) error {
			if op, yes := op.(rules.Acquire); yes && op.LockID == "late" && late == nil {
				late = &op
				return errCut
			}
			return nil
		}, nil)
		_, err = l.TryAcquire(t.Context(), forEver("late", lockcore.Exclusive("r")))
		require.ErrorIs(t, err, lockcore.ErrBusy)
		require.NoError(t, holder.Leave(t.Context()))
		_, err = e.Engine.Acquire(t.Context(), *late)
		require.NoError(t, err)
		elapse(20 * time.Second)
		require.Empty(t, e.Document("r").Entries)
	})
}

func TestRefusalAfterALostAnswerLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := faulty()
		l := on(t, e, lockcore.Config{})
		n := 0
		e.set(func(_ context.Context, op any) error {
			if _, yes := op.(rules.Acquire); yes {
				if n++; n > 1 {
					return mongo.CommandError{Code: 13, Message: "not authorized any more"}
				}
			}
			return nil
		}, cutting[rules.Acquire])
		_, err := l.TryAcquire(t.Context(), forEver("a", lockcore.Exclusive("r")))
		require.ErrorIs(t, err, lockcore.ErrUnknownOutcome, "the first try may have taken effect, and did")
		require.Empty(t, e.Document("r").Entries)
	})
}

func TestLateCopyOfARequestThatWasGrantedAndLeftHoldsNothingForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := faulty()
		l := on(t, e, lockcore.Config{})
		var late *rules.Acquire
		e.set(func(_ context.Context, op any) error {
			if op, yes := op.(rules.Acquire); yes && late == nil {
				late = &op
				return errCut
			}
			return nil
		}, nil)
		s, err := l.TryAcquire(t.Context(), forEver("late", lockcore.Exclusive("r")))
		require.NoError(t, err)
		require.NoError(t, s.Leave(t.Context()))
		for i := range 20 { // the records of the document have forgotten it
			s, err := l.TryAcquire(t.Context(), one(fmt.Sprint("other/", i), lockcore.Exclusive("r")))
			require.NoError(t, err)
			require.NoError(t, s.Leave(t.Context()))
		}
		_, err = e.Engine.Acquire(t.Context(), *late)
		require.NoError(t, err)
		elapse(20 * time.Second)
		require.Empty(t, e.Document("r").Entries)
	})
}
