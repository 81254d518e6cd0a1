package party_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/engine/store/storetest"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// A MaxWait of 200 ms once became 35 s when the database did not answer.
func TestAcquire_MaxWait_EndsAlthoughTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	for _, queued := range []bool{false, true} {
		t.Run(fmt.Sprint("queued=", queued), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := newFaultStore()
				l := newLocker(t, e, party.Config{})
				_, err := newLocker(t, e, party.Config{}).TryAcquire(t.Context(), request("holder", party.Exclusive("r")))
				require.NoError(t, err)
				hang := hanging(of(kindLoad, kindLook, kindSwap, kindExtend))
				if !queued {
					e.set(hang, nil)
				}
				req := request("a", party.Exclusive("r"))
				req.MaxWait = 200 * time.Millisecond
				began := time.Now()
				waits := acquireLater(t.Context(), l, req)
				if queued {
					synctest.Wait()
					require.Equal(t, 1, waitersOf(e, "r")())
					e.set(hang, nil)
				}
				require.Error(t, (<-waits).err)
				require.LessOrEqual(t, time.Since(began), req.MaxWait+time.Second, "and a second to leave")
				e.set(nil, nil)
				elapse(time.Minute)
				require.Empty(t, e.Document("r").Waiters)
			})
		})
	}
}

// What it took before is given back although the reads that come before that hang, so that nothing
// was sent when the caller gave up.
func TestAcquire_GivesUpWhileReadsHang_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{})
		_, err := l.TryAcquire(t.Context(), request("holder", party.Exclusive("b")))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		waits := acquireLater(ctx, l, endless("a", party.Exclusive("a"), party.Exclusive("b")))
		synctest.Wait()
		require.Equal(t, 1, waitersOf(e, "b")())
		e.set(hanging(of(kindLoad, kindSwap)), cutting(of(kindExtend))) // which makes the process forget the documents
		elapse(15 * time.Second)
		cancel()
		require.ErrorIs(t, (<-waits).err, context.Canceled)
		require.Len(t, e.Document("a").Entries, 1)
		e.set(nil, nil)
		elapse(time.Minute)
		require.Empty(t, e.Document("a").Entries)
		require.Empty(t, e.Document("b").Waiters)
	})
}

// Once a request has queued, any error of the database may pass: one without a label too.
func TestAcquire_QueuedAndThePrimarySteppedDown_WaitsOn(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{
		"not primary":    mongo.CommandError{Code: 10107, Name: "NotWritablePrimary", Message: "not primary"},
		"not authorized": mongo.CommandError{Code: 13, Name: "Unauthorized", Message: "not authorized"},
		"not sent":       errNotSent,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := newFaultStore()
				l := newLocker(t, e, party.Config{})
				holder, err := l.TryAcquire(t.Context(), endless("holder", party.Exclusive("r")))
				require.NoError(t, err)
				waits := acquireLater(t.Context(), l, request("a", party.Exclusive("r")))
				synctest.Wait()
				since := e.Document("r").Waiters[0].Since
				elapse(99 * time.Second) // shortly before its position is refreshed
				e.set(failing(failure, of(kindLoad, kindSwap)), nil)
				elapse(2 * time.Minute)
				e.set(nil, nil)
				elapse(time.Minute)
				require.Equal(t, 1, waitersOf(e, "r")())
				require.Equal(t, since, e.Document("r").Waiters[0].Since)
				require.NoError(t, holder.Leave(t.Context()))
				got := <-waits
				require.NoError(t, got.err)
				require.NoError(t, got.session.Leave(t.Context()))
			})
		})
	}
}

// soon is far above what a call takes whose context lasts 200 ms, and far below the limits of the driver.
const soon = 5 * time.Second

// The driver once waited without a limit to close a cursor.
func TestStatus_SilentServer_EndsWithTheContext(t *testing.T) {
	t.Parallel()
	direct := setup(t, party.Config{})
	manyLeases(t, direct.Locker, 600) // more than one batch of a cursor
	for name, list := range map[string]func(ctx context.Context, l *party.Locker, hang func()) error{
		"Status": func(ctx context.Context, l *party.Locker, hang func()) error {
			hang()
			return firstStatus(ctx, l, party.Filter{})
		},
		"Status in between": func(ctx context.Context, l *party.Locker, hang func()) error {
			for _, err := range l.Status(ctx, party.Filter{}) {
				if err != nil {
					return err
				}
				hang()
			}
			return nil
		},
		"Status that is left": func(ctx context.Context, l *party.Locker, hang func()) error {
			for _, err := range l.Status(ctx, party.Filter{}) {
				if err != nil {
					return err
				}
				hang()
				return context.DeadlineExceeded
			}
			return nil
		},
		"BreakDeadlocks": func(ctx context.Context, l *party.Locker, hang func()) error {
			hang()
			_, err := l.BreakDeadlocks(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := storetest.NewProxy(t)
			c, err := mongo.Connect(options.Client().ApplyURI(p.URI))
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Disconnect(context.Background()) }) // the server does not answer
			l, err := party.New(c.Database(direct.coll.Database().Name()).Collection("locks"), party.Config{})
			require.NoError(t, err)
			_, err = l.CollectionID(t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var began time.Time
			hang := func() {
				if began.IsZero() {
					p.Hang()
					began = time.Now()
					time.AfterFunc(200*time.Millisecond, cancel)
				}
			}
			require.Error(t, list(ctx, l, hang))
			require.Less(t, time.Since(began), soon)
		})
	}
}

// The driver takes the session of a context into its commands, whatever the collection's options are.
// A lock that is part of the caller's transaction ends with its rollback, unknown to its holder.
func TestSessionOfTheCallersContext_IsNotUsed(t *testing.T) {
	t.Parallel()
	coll, w := careless(t)
	l := fresh(t, coll)
	session, err := coll.Database().Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	require.NoError(t, session.StartTransaction())
	ctx := mongo.NewSessionContext(t.Context(), session)
	s, err := l.TryAcquire(ctx, request("a", party.Exclusive("r"), party.Exclusive("s")))
	require.NoError(t, err)
	_, err = l.Renew(ctx, s.Leases()...)
	require.NoError(t, err)
	require.NoError(t, firstStatus(ctx, l, party.Filter{}))
	_, err = l.BreakDeadlocks(ctx)
	require.NoError(t, err)
	for _, c := range w.take() {
		require.Nil(t, c.Body.Lookup("startTransaction").Value, c.Name)
		require.Nil(t, c.Body.Lookup("autocommit").Value, c.Name)
	}
	require.NoError(t, session.AbortTransaction(t.Context()))
	_, err = fresh(t, coll).TryAcquire(t.Context(), request("b", party.Exclusive("r")))
	require.ErrorIs(t, err, party.ErrBusy)
	require.NoError(t, s.Leave(ctx))
	_, err = fresh(t, coll).TryAcquire(t.Context(), request("b", party.Exclusive("r")))
	require.NoError(t, err)
}

func TestEndedContext_SendsNothing(t *testing.T) {
	t.Parallel()
	e := newFaultStore()
	l := newLocker(t, e, party.Config{})
	req := request("a", party.Exclusive("r"), party.Exclusive("s"))
	req.Part, req.Order = "part", party.Order{Schedule: 1, Attempt: 1}
	leases, err := l.Enter(t.Context(), request("b", party.Shared("t")), false)
	require.NoError(t, err)
	s := l.Renewing(t.Context(), leases)
	end := party.Release{LockID: "b", Resources: []string{"t"}, FirstFence: leases[0].FirstFence}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sent := e.count()
	for name, call := range map[string]func() error{
		"Acquire":      func() error { _, err := l.Acquire(ctx, req); return err },
		"TryAcquire":   func() error { _, err := l.TryAcquire(ctx, req); return err },
		"Enter":        func() error { _, err := l.Enter(ctx, req, false); return err },
		"Enter queues": func() error { _, err := l.Enter(ctx, req, true); return err },
		"Enter waits": func() error {
			req := req
			req.MaxWait = time.Second
			_, err := l.Enter(ctx, req, true)
			return err
		},
		"Leave":      func() error { return l.Leave(ctx, leases...) },
		"LeaveQueue": func() error { return l.LeaveQueue(ctx, leases...) },
		"Release":    func() error { return l.Release(ctx, end) },
		"Extend":     func() error { _, err := l.Extend(ctx, "b", "", "t", false); return err },
		"Upgrade":    func() error { return s.Upgrade(ctx, "t") },
		"Verify": func() error {
			return l.Verify(ctx, party.Verify{LockID: "b", Run: "run", Uses: []party.Use{{Resource: "t"}}})
		},
		"session": func() error { return s.Leave(ctx) },
	} {
		require.ErrorIs(t, call(), context.Canceled, name)
		require.Equal(t, sent, e.count(of(kindLoad, kindSwap, kindExtend, kindReserve)), name)
	}
	require.Len(t, e.Document("t").Entries, 1)
}
