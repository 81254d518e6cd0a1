package party_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// fixture is a Locker on a collection of the test's own.
type fixture struct {
	*party.Locker
	coll *mongo.Collection
}

func setup(t *testing.T, cfg party.Config) fixture {
	t.Helper()
	coll := testenv.Mongo(t).Collection("locks")
	l, err := party.New(coll, cfg)
	require.NoError(t, err)
	require.NoError(t, l.CreateIndexes(t.Context()))
	t.Cleanup(func() { closeSoon(l) })
	return fixture{l, coll}
}

// closeSoon ends what a Locker still does in the background, such as leaving again after a lost answer.
func closeSoon(l *party.Locker) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = l.Close(ctx) // a test may have cut it off
}

// waiting counts the queue of a resource as it is stored.
func (f fixture) waiting(t *testing.T, resource string) int64 {
	t.Helper()
	var d struct {
		Waiters []bson.Raw `bson:"waiters"`
	}
	err := f.coll.FindOne(t.Context(), bson.D{{Key: "_id", Value: resource}}).Decode(&d)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return 0
	}
	require.NoError(t, err)
	return int64(len(d.Waiters))
}

// one asks for resources in the name of a lock ID, and leaves the rest to the Locker.
func one(lockID string, res ...party.Resource) party.Request {
	return party.Request{LockID: lockID, Resources: res}
}

// on is a Locker on a store, whose sessions end with the test.
func on(t *testing.T, s party.Store, cfg party.Config) *party.Locker {
	t.Helper()
	l, err := party.NewWithStore(s, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { closeSoon(l) })
	return l
}

// acquired is what an Acquire in the background came to.
type acquired struct {
	session *party.Session
	err     error
}

func acquireLater(ctx context.Context, l *party.Locker, req party.Request) <-chan acquired {
	out := make(chan acquired, 1)
	go func() {
		s, err := l.Acquire(ctx, req)
		out <- acquired{s, err}
	}()
	return out
}

// documents is a store in memory.
type documents interface {
	Document(resource string) rules.Document
}

func waitersOf(s documents, resource string) func() int {
	return func() int { return len(s.Document(resource).Waiters) }
}

func eventually(t *testing.T, n int, count func() int, why string) {
	t.Helper()
	require.Eventually(t, func() bool { return count() == n }, 10*time.Second, time.Millisecond, why)
}

// byForce releases by force the holds that a lock ID has on the resources of r, each by its first
// fence.
func byForce(ctx context.Context, l *party.Locker, r party.Release) (held []string, err error) {
	names := r.Resources
	for s, err := range l.Status(ctx, party.Filter{LockID: r.LockID, States: []party.State{party.StateHolding}}) {
		if err == nil && slices.Contains(names, s.Resource) {
			var one []string
			r.Resources, r.FirstFence = []string{s.Resource}, s.FirstFence
			one, err = l.ReleaseHeld(ctx, r)
			held = append(held, one...)
		}
		if err != nil {
			return held, err
		}
	}
	return held, nil
}
