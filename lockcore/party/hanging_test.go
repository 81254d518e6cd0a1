package party_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/engine/store/storetest"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

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
