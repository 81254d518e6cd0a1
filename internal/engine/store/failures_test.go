package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

// soon is well above the time that an operation with a context of 200 ms may take, in which a cursor is
// closed within a second, and well below the time limits of commands and of the driver.
const soon = 4 * time.Second

func TestMongo_SilentServer_EndsWithTheContext(t *testing.T) {
	t.Parallel()
	for name := range operations(nil) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wire, uri := testenv.MongoByWire(t)
			f := setupAt(t, uri)
			insert(t, f, document("x", 1))
			wire.Hang()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			began := time.Now()
			err := operations(f)[name](ctx)
			require.Error(t, err)
			require.NotErrorIs(t, err, store.ErrNotSent, "it was sent")
			require.Less(t, time.Since(began), soon)
		})
	}
}

// TestMongo_SilentServer_DuringList ends a list while the server does not answer, by leaving the loop or
// by the end of the context.
func TestMongo_SilentServer_DuringList(t *testing.T) {
	t.Parallel()
	const documents = 600 // more than one answer
	for _, leave := range []bool{true, false} {
		t.Run(fmt.Sprint("Leave=", leave), func(t *testing.T) {
			t.Parallel()
			wire, uri := testenv.MongoByWire(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			f := setupAt(t, uri, alsoMonitor(func(e *event.CommandStartedEvent) {
				if e.CommandName == "getMore" {
					began = time.Now()
					time.AfterFunc(200*time.Millisecond, cancel)
				}
			}))
			_, err := f.Identify(t.Context())
			require.NoError(t, err)
			many := make([]any, documents)
			for i := range many {
				many[i], err = store.Encode(document(fmt.Sprint(i), 1))
				require.NoError(t, err)
			}
			_, err = f.raw.InsertMany(t.Context(), many)
			require.NoError(t, err)

			var last error
			n := 0
			for _, err := range f.List(ctx, rules.Query{}) {
				last = err
				if n++; n == 1 {
					wire.Hang()
					if leave {
						began = time.Now()
						break
					}
				}
			}
			require.Less(t, time.Since(began), soon)
			if !leave {
				require.ErrorIs(t, last, context.Canceled)
				require.Equal(t, 501, n, "the first answer, and the error")
				require.Equal(t, 1, f.checker.Count("getMore"))
				return // the cursor would be closed on a new connection, which cannot be established
			}
			require.Equal(t, 1, f.checker.Count("killCursors"))
		})
	}
}

// TestMongo_LostServer_IsNotSent closes all connections and refuses new ones. Commands are not sent as
// soon as the driver has noticed.
func TestMongo_LostServer_IsNotSent(t *testing.T) {
	t.Parallel()
	wire, uri := testenv.MongoByWire(t)
	f := setupAt(t, uri, func(o *options.ClientOptions) { o.SetServerSelectionTimeout(time.Second) })
	insert(t, f, document("x", 1))
	wire.Cut()
	swap := store.Swap{Prev: version(1), Next: document("x", 2)}
	require.Eventually(t, func() bool {
		_, err := f.Swap(t.Context(), swap)
		_, unselected := errors.AsType[topology.ServerSelectionError](err)
		return unselected && errors.Is(err, store.ErrNotSent)
	}, 10*time.Second, time.Millisecond)
	require.Equal(t, document("x", 1), stored(t, store.New(f.raw), "x"))
	for name, err := range everyOperation(t.Context(), f) {
		require.ErrorIs(t, err, store.ErrNotSent, name)
	}
}

// TestMongo_RefusedConnection_IsNotSent sends a command on the only connection, to a silent server, and
// then one that needs a new connection, which the server refuses.
func TestMongo_RefusedConnection_IsNotSent(t *testing.T) {
	t.Parallel()
	f, end := swapInFlight(t, true)
	_, err := f.Swap(t.Context(), store.Swap{Prev: version(1), Next: document("x", 3)})
	require.ErrorIs(t, err, store.ErrNotSent)
	require.ErrorContains(t, err, "connection handshake")
	end()
}

// swapInFlight returns a store with one command on its way to a silent server, which may also refuse new connections. end
// ends the command, and checks that its outcome is unknown and that no other command was sent.
func swapInFlight(t *testing.T, refuses bool, change ...func(*options.ClientOptions)) (f *fixture, end func()) {
	t.Helper()
	wire, uri := testenv.MongoByWire(t)
	sending := make(chan struct{}, 100)
	f = setupAt(t, uri, append(change, alsoMonitor(func(e *event.CommandStartedEvent) {
		if e.CommandName == "update" {
			sending <- struct{}{}
		}
	}))...)
	insert(t, store.New(f.raw), document("x", 1))
	_, err := f.Identify(t.Context()) // the first command of a store
	require.NoError(t, err)
	if refuses {
		wire.Refuse()
	}
	wire.Hang()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	first := make(chan error, 1)
	go func() {
		_, err := f.Swap(ctx, store.Swap{Prev: version(1), Next: document("x", 2)})
		first <- err
	}()
	<-sending
	return f, func() {
		cancel()
		err := <-first
		require.Error(t, err)
		require.NotErrorIs(t, err, store.ErrNotSent)
		require.Empty(t, sending, "the second was not sent")
	}
}

// TestMongo_LostAnswer_IsUnknown closes the connection of a command in flight.
func TestMongo_LostAnswer_IsUnknown(t *testing.T) {
	t.Parallel()
	wire, uri := testenv.MongoByWire(t)
	f := setupAt(t, uri, alsoMonitor(func(e *event.CommandStartedEvent) {
		if e.CommandName == "update" {
			wire.Cut()
		}
	}), func(o *options.ClientOptions) { o.SetServerSelectionTimeout(time.Second) })
	insert(t, store.New(f.raw), document("x", 1))
	_, err := f.Identify(t.Context()) // the first command of a store
	require.NoError(t, err)
	done, err := f.Swap(t.Context(), store.Swap{Prev: version(1), Next: document("x", 2)})
	require.Error(t, err)
	require.Zero(t, done)
	require.NotErrorIs(t, err, store.ErrNotSent)
}

func TestMongo_ClosedClient_IsNotSent(t *testing.T) {
	t.Parallel()
	f := setup(t)
	insert(t, f, document("x", 1))
	require.NoError(t, f.client.Disconnect(t.Context()))
	for name, err := range everyOperation(t.Context(), f) {
		require.ErrorIs(t, err, store.ErrNotSent, name)
		require.ErrorIs(t, err, mongo.ErrClientDisconnected, name)
	}
}

// The only connection of the pool is in use.
func TestMongo_BusyPool_IsNotSent(t *testing.T) {
	t.Parallel()
	f, end := swapInFlight(t, false, func(o *options.ClientOptions) { o.SetMaxPoolSize(1) })
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := f.Swap(short, store.Swap{Prev: version(1), Next: document("x", 3)})
	require.ErrorIs(t, err, store.ErrNotSent)
	_, busy := errors.AsType[topology.WaitQueueTimeoutError](err)
	require.True(t, busy, "%v", err)
	require.True(t, store.PoolBusy(err))
	end()
}

// Errors that resemble a proof prove nothing.
func TestNotSent_OtherErrors(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"Plain":      io.ErrUnexpectedEOF,
		"Deadline":   context.DeadlineExceeded,
		"Network":    mongo.CommandError{Wrapped: driver.Error{Labels: []string{driver.NetworkError}, Wrapped: topology.ConnectionError{Wrapped: io.EOF}}},
		"NoWrites":   mongo.CommandError{Code: 11602, Labels: []string{driver.NoWritesPerformed}},
		"NotPrimary": mongo.CommandError{Code: 10107, Name: "NotWritablePrimary", Labels: []string{driver.RetryableWriteError}},
		"Text":       errors.New("connection() error occurred during connection handshake"),
		"Write":      mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 11000}}},
		"Concern":    mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: 64}},
	} {
		require.False(t, store.NotSent(err), name)
	}
}

// A server may return a duplicate key as an error of the document or of the command. Of the command it has no
// index: the first document counts as the conflict, and a conflict does not prove that nothing was written.
func TestStoppedAt_Errors(t *testing.T) {
	t.Parallel()
	concern := &mongo.WriteConcernError{Code: 64}
	of := func(index, code int) []mongo.BulkWriteError {
		return []mongo.BulkWriteError{{WriteError: mongo.WriteError{Index: index, Code: code}}}
	}
	for name, c := range map[string]struct {
		err     error
		index   int
		stopped bool
	}{
		"Duplicate":         {mongo.BulkWriteException{WriteErrors: of(2, 11000)}, 2, true},
		"NothingMatched":    {mongo.BulkWriteException{WriteErrors: of(1, 66)}, 1, true},
		"Concern":           {mongo.BulkWriteException{WriteErrors: of(2, 11000), WriteConcernError: concern}, 0, false},
		"Command":           {mongo.CommandError{Code: 11000, Name: "DuplicateKey"}, 0, true},
		"CommandOfAnother":  {mongo.CommandError{Code: 16500, Name: "RequestRateTooLarge"}, 0, false},
		"CommandWithCause":  {fmt.Errorf("insert: %w", mongo.CommandError{Code: 11000}), 0, true},
		"NotFromTheCommand": {io.ErrUnexpectedEOF, 0, false},
	} {
		index, stopped := store.StoppedAt(c.err)
		require.Equal(t, c.stopped, stopped, name)
		require.Equal(t, c.index, index, name)
	}
}
