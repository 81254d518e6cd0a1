package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/engine/store/storetest"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// fixture is a store in a new collection. The commands of its client are checked when the test ends. raw
// is the same collection with an unchecked client.
type fixture struct {
	*store.Mongo
	raw     *mongo.Collection
	client  *mongo.Client
	checker *storetest.Checker
}

func setup(t *testing.T) *fixture {
	t.Helper()
	return setupAt(t, testenv.MongoURI(t))
}

// setupAt connects the store's client to uri.
func setupAt(t *testing.T, uri string, change ...func(*options.ClientOptions)) *fixture {
	t.Helper()
	f := &fixture{raw: testenv.Mongo(t).Collection("locks")}
	monitor, checker := storetest.Monitor()
	f.checker = checker
	o := options.Client().ApplyURI(uri).SetMonitor(monitor)
	for _, c := range change {
		c(o)
	}
	client, err := mongo.Connect(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, checker.Err())
		_ = client.Disconnect(context.WithoutCancel(t.Context())) // the test may have done it
	})
	f.client = client
	f.Mongo = store.New(client.Database(f.raw.Database().Name()).Collection(f.raw.Name()))
	return f
}

// alsoMonitor calls started, too, before each command of the store's client.
func alsoMonitor(started func(e *event.CommandStartedEvent)) func(*options.ClientOptions) {
	return func(o *options.ClientOptions) {
		check := o.Monitor.Started
		o.SetMonitor(&event.CommandMonitor{Started: func(ctx context.Context, e *event.CommandStartedEvent) {
			check(ctx, e)
			started(e)
		}})
	}
}

func version(n int64) rules.Version { return rules.Version{N: n, R: fmt.Sprint("r", n)} }

// at returns a time in whole milliseconds, as it is stored.
func at(seconds int) time.Time { return time.Unix(1_700_000_000+int64(seconds), 0).UTC() }

// document returns a document with two entries, "a" and "b".
func document(name string, n int64) *rules.Document {
	return &rules.Document{
		ID: name, Version: version(n), Fence: 7, IdleAt: at(100), EvidenceSince: at(0),
		Entries: []rules.Entry{
			{ID: name + "/a", Caller: rules.Caller{LockID: "lock-a", Part: "1"}, State: rules.StateRunning, FirstFence: 7, ExpiresAt: at(100)},
			{ID: name + "/b", Caller: rules.Caller{LockID: "lock-b", Part: "2"}, Owner: "owner-b", State: rules.StateRunning, FirstFence: 7, ExpiresAt: at(100)},
		},
		Waiters: []rules.Waiter{}, Evidence: []rules.Evidence{}, Attn: []string{},
	}
}

// insert stores documents.
func insert(t *testing.T, s store.Store, docs ...*rules.Document) {
	t.Helper()
	for _, d := range docs {
		done, err := s.Swap(t.Context(), store.Swap{Next: d})
		require.NoError(t, err)
		require.Equal(t, 1, done)
	}
}

// stored returns a document without At, or nil.
func stored(t *testing.T, s store.Store, name string) *rules.Document {
	t.Helper()
	loaded, err := s.Load(t.Context(), name)
	require.NoError(t, err)
	d := loaded.Docs[name]
	if d != nil {
		require.Equal(t, loaded.At, d.At)
		d.At = time.Time{}
	}
	return d
}

// listed returns the names that a query lists.
func listed(t *testing.T, s store.Store, q rules.Query) []string {
	t.Helper()
	names := []string{}
	for d, err := range s.List(t.Context(), q) {
		require.NoError(t, err)
		names = append(names, d.ID)
	}
	return names
}
