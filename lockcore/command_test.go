package lockcore_test

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

type asker func(context.Context, *lockcore.Steps, lockcore.StepRequest) error

// asking are the ways to make a request that must leave nothing behind when it fails.
var asking = map[string]asker{
	"TryAcquire": func(ctx context.Context, l *lockcore.Steps, req lockcore.StepRequest) error {
		_, err := l.TryAcquire(ctx, req)
		return err
	},
	"Acquire": func(ctx context.Context, l *lockcore.Steps, req lockcore.StepRequest) error {
		_, err := l.Acquire(ctx, req)
		return err
	},
	"Enter": func(ctx context.Context, l *lockcore.Steps, req lockcore.StepRequest) error {
		_, err := l.TryEnter(ctx, req)
		return err
	},
}

func TestRequest_AnswerIsLostInAnOutage_LeavesNothingBehind(t *testing.T) {
	eachCase(t, asking, func(t *testing.T, l *lockcore.Steps, e *faultStore, ask asker) {
		e.set(cutting(ends("a")), cutting(onResource("b"), of(kindSwap)))
		unknown := errorAs[*lockcore.UnknownOutcomeError](t, ask(t.Context(), l, endless("a", lockcore.Exclusive("a"), lockcore.Exclusive("b"))))
		require.Equal(t, "acquire", unknown.Op)
		require.ErrorIs(t, unknown, lockcore.ErrUnknownOutcome)
		require.ErrorIs(t, unknown, errCut)
		require.NotErrorIs(t, unknown, lockcore.ErrBusy)
		require.Len(t, e.Document("b").Entries, 1, "it took effect")
		elapse(time.Minute)
		e.set(nil, nil)
		elapse(2 * time.Minute)
		require.Empty(t, e.Document("a").Entries)
		require.Empty(t, e.Document("b").Entries)
	})
}

func TestRequest_CancelledUnderWay_LeavesNothingBehind(t *testing.T) {
	eachCase(t, asking, func(t *testing.T, l *lockcore.Steps, e *faultStore, ask asker) {
		ctx, cancel := context.WithCancel(t.Context())
		e.set(nil, times(1, func(context.Context, command) error {
			cancel()
			synctest.Wait()
			return errCut
		}, grants("a")))
		require.ErrorIs(t, ask(ctx, l, endless("a", lockcore.Exclusive("r"))), context.Canceled)
		elapse(time.Second)
		require.Empty(t, e.Document("r").Entries)
	})
}

// The answer arrives after the caller has given up, so the lock that it grants must be released.
func TestRequest_GrantedAfterItsCallerGaveUp_LeavesNothingBehind(t *testing.T) {
	eachCase(t, asking, func(t *testing.T, l *lockcore.Steps, e *faultStore, ask asker) {
		ctx, cancel := context.WithCancel(t.Context())
		e.set(nil, times(1, func(context.Context, command) error {
			cancel()
			elapse(time.Second)
			return nil
		}, grants("a")))
		require.ErrorIs(t, ask(ctx, l, endless("a", lockcore.Exclusive("r"), lockcore.Exclusive("s"))), context.Canceled)
		elapse(2 * time.Second)
		require.Empty(t, e.Document("r").Entries)
		require.Empty(t, e.Document("s").Entries)
	})
}

// A router of a sharded cluster labels no error, and can fail a write that its shard has applied. So
// no error of a server, whatever its code, proves that a swap was not applied.
func TestRequest_ServerErrorAfterTheSwapWasApplied_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{
		"command error":       mongo.CommandError{Code: 13, Name: "Unauthorized", Message: "not authorized"},
		"not primary":         mongo.CommandError{Code: 10107, Name: "NotWritablePrimary", Message: "not primary"},
		"write error":         mongo.WriteException{WriteErrors: []mongo.WriteError{{Code: 11602, Message: "interrupted"}}},
		"write concern error": mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: 64, Message: "timed out"}},
		"bulk write error":    mongo.BulkWriteException{WriteErrors: []mongo.BulkWriteError{{WriteError: mongo.WriteError{Code: 189, Message: "stepped down"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			eachCase(t, asking, func(t *testing.T, l *lockcore.Steps, e *faultStore, ask asker) {
				for _, names := range [][]lockcore.Resource{{lockcore.Exclusive("r")}, {lockcore.Exclusive("r"), lockcore.Exclusive("s")}} {
					e.set(nil, failing(failure, of(kindSwap)))
					require.ErrorIs(t, ask(t.Context(), l, endless("a", names...)), lockcore.ErrUnknownOutcome)
					e.set(nil, nil)
					elapse(time.Minute)
					require.Empty(t, e.Document("r").Entries)
					require.Empty(t, e.Document("s").Entries)
				}
			})
		})
	}
}

// late keeps the swaps that a hook has lost on their way, to deliver them later.
type late struct {
	mu    sync.Mutex
	swaps [][]store.Swap
}

// keep is a hook: the command is still on its way when its caller gets the error that the connection is cut.
func (k *late) keep(_ context.Context, c command) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.swaps = append(k.swaps, c.swaps)
	return errCut
}

// deliver delivers them twice each, and returns the number of documents that were replaced.
func (k *late) deliver(t *testing.T, s store.Store) (done int) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	require.NotEmpty(t, k.swaps)
	for range 2 {
		for _, swaps := range k.swaps {
			n, err := s.Swap(context.Background(), swaps...)
			require.NoError(t, err)
			done += n
		}
	}
	return done
}

func TestLateCopy_AfterItsRequestGaveUp_TakesNothing(t *testing.T) {
	eachCase(t, asking, func(t *testing.T, l *lockcore.Steps, e *faultStore, ask asker) {
		for _, names := range [][]string{{"r"}, {"q", "s"}} {
			copies := late{}
			e.set(func(ctx context.Context, c command) error {
				if grants("late")(c) {
					return copies.keep(ctx, c)
				}
				return nil
			}, nil)
			req := endless("late")
			for _, name := range names {
				req.Resources = append(req.Resources, lockcore.Exclusive(name))
			}
			require.ErrorIs(t, ask(t.Context(), l, req), lockcore.ErrUnknownOutcome)
			elapse(time.Minute) // in which the debt is paid, though no document was stored
			require.Zero(t, copies.deliver(t, e.Store))
			for _, name := range names {
				require.Empty(t, e.Document(name).Entries)
			}
		}
	})
}

// The copy arrives while the outage lasts: no swap has replaced the version that it depends on.
func TestLateCopy_BeforeTheDebtIsPaid_IsTakenBack(t *testing.T) {
	eachCase(t, asking, func(t *testing.T, l *lockcore.Steps, e *faultStore, ask asker) {
		copies := late{}
		e.set(func(ctx context.Context, c command) error {
			switch {
			case grants("late")(c):
				return copies.keep(ctx, c)
			case c.kind == kindSwap:
				return errCut
			}
			return nil
		}, nil)
		require.ErrorIs(t, ask(t.Context(), l, endless("late", lockcore.Exclusive("r"))), lockcore.ErrUnknownOutcome)
		elapse(time.Minute)
		require.Equal(t, 1, copies.deliver(t, e.Store))
		require.Len(t, e.Document("r").Entries, 1)
		e.set(nil, nil)
		elapse(time.Minute)
		require.Empty(t, e.Document("r").Entries)
	})
}

// The copy of a grant comes after its holder died and others have had the lock: no record is left of
// the request.
func TestLateCopy_OfAGrant_TakesNothing(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		enter(t, l, request("a", lockcore.Exclusive("r")))
		copies := late{swaps: [][]store.Swap{e.commands(grants("a"))[0].swaps}}
		elapse(time.Hour)
		other := enter(t, l, request("b", lockcore.Exclusive("r")))
		require.NoError(t, l.Leave(t.Context(), other...))
		require.Zero(t, copies.deliver(t, e.Store))
		require.Empty(t, e.Document("r").Entries)
	})
}

// The request was withdrawn after an answer had been lost.
func TestLateCopy_RequestWasWithdrawn_DoesNotQueue(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		copies := late{}
		holder := tryAcquire(t, l, request("holder", lockcore.Shared("r")))
		e.set(times(1, copies.keep, queues("late")), nil)
		next := acquireLater(t.Context(), l, request("late", lockcore.Exclusive("r")))
		elapse(time.Second)
		w := e.Document("r").Waiters[0]
		err := change(t.Context(), e.Store, rules.Withdraw{Resource: "r", Caller: rules.Caller{LockID: "late", Part: w.Part, Order: w.Order}, Reason: "deadlock: a test says so"})
		require.NoError(t, err)
		require.ErrorIs(t, (<-next).err, lockcore.ErrDeadlock)
		require.Zero(t, copies.deliver(t, e.Store))
		elapse(time.Second)
		require.Empty(t, e.Document("r").Waiters)
		require.NoError(t, holder.Leave(t.Context()))
	})
}

// The first swap took effect and its answer was lost. What comes after it is not sent at all.
func TestRequest_NotSentAfterALostAnswer_HasAnUnknownOutcome(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		e.set(nil, func(_ context.Context, c command) error {
			if c.kind != kindSwap {
				return nil
			}
			e.set(failing(errNotSent), nil)
			return errCut
		})
		_, err := l.TryAcquire(t.Context(), endless("a", lockcore.Exclusive("r")))
		require.ErrorIs(t, err, lockcore.ErrUnknownOutcome)
		require.Len(t, e.Document("r").Entries, 1)
		e.set(nil, nil)
		elapse(time.Minute)
		require.Empty(t, e.Document("r").Entries)
	})
}

// Each lost answer leaves a debt. Debts are paid a few at a time, and wait without a goroutine each.
func TestRequest_ManyLostAnswers_CostNoGoroutineEach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 2000
		l, e := inMemory(t, lockcore.Config{})
		e.set(nil, cutting(of(kindSwap)))
		var asked sync.WaitGroup
		for i := range many {
			asked.Go(func() {
				_, err := l.TryAcquire(t.Context(), endless("a", lockcore.Exclusive(fmt.Sprint("r/", i))))
				require.ErrorIs(t, err, lockcore.ErrUnknownOutcome)
			})
		}
		asked.Wait()
		elapse(10 * time.Second)
		require.Less(t, goroutines(), 40)
		elapse(time.Minute)
		require.Less(t, goroutines(), 40)
		e.set(nil, nil)
		elapse(time.Hour)
		for i := range many {
			require.Empty(t, e.Document(fmt.Sprint("r/", i)).Entries)
		}
	})
}

// goroutines returns the number of goroutines of the test's bubble.
func goroutines() int {
	own := make([]byte, 256)
	own = own[:runtime.Stack(own, false)]
	bubble := bubbleOf.Find(own)
	everything := make([]byte, 64<<20)
	return bytes.Count(everything[:runtime.Stack(everything, true)], bubble)
}

var bubbleOf = regexp.MustCompile(`synctest bubble \d+\]`)

func TestRequest_LostAnswers_IsGrantedOnce(t *testing.T) {
	t.Parallel()
	l, e := inMemory(t, lockcore.Config{})
	e.cut(2)
	leases := enter(t, l, request("a", lockcore.Exclusive("r")))
	require.Equal(t, 3, e.count(of(kindSwap)))
	require.Len(t, e.Document("r").Entries, 1)
	require.Equal(t, e.Document("r").Entries[0].Fence, leases[0].Fence, "one grant, not three")
	e.cut(1)
	require.NoError(t, l.Leave(t.Context(), leases...))
	require.Empty(t, e.Document("r").Entries)
}
