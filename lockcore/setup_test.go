package lockcore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// fixture is a Locker on a MongoDB collection of its own.
type fixture struct {
	*lockcore.Steps
	coll *mongo.Collection
}

func setup(t *testing.T, cfg lockcore.Config) fixture {
	t.Helper()
	coll := testenv.Mongo(t).Collection("locks")
	l, err := lockcore.New(coll, cfg)
	require.NoError(t, err)
	require.NoError(t, l.CreateIndexes(t.Context()))
	t.Cleanup(func() { closeSoon(l.Steps()) })
	return fixture{l.Steps(), coll}
}

// waiting returns the length of the queue of a resource as it is stored.
func (f fixture) waiting(t *testing.T, resource string) int {
	t.Helper()
	var d struct {
		Waiters []bson.Raw `bson:"waiters"`
	}
	err := f.coll.FindOne(t.Context(), bson.D{{Key: "_id", Value: resource}}).Decode(&d)
	if !errors.Is(err, mongo.ErrNoDocuments) {
		require.NoError(t, err)
	}
	return len(d.Waiters)
}

// newLocker returns a Locker on a store. It is closed when the test ends.
func newLocker(t *testing.T, s lockcore.Store, cfg lockcore.Config) *lockcore.Steps {
	t.Helper()
	l, err := lockcore.NewWithStore(s, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { closeSoon(l.Steps()) })
	return l.Steps()
}

// closeSoon closes a Locker. It ignores the error, because the test may have cut off the database.
func closeSoon(l *lockcore.Steps) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = l.Close(ctx)
}

// inMemory returns a Locker on a store in memory, in real time.
func inMemory(t *testing.T, cfg lockcore.Config) (*lockcore.Steps, *faultStore) {
	t.Helper()
	db := newFaultStore()
	return newLocker(t, db, cfg), db
}

// withClock returns a Locker on a store in memory whose server has a clock that the test moves.
func withClock(t *testing.T, cfg lockcore.Config) (*lockcore.Steps, *faultStore, *lockcoretest.Clock) {
	t.Helper()
	clock := lockcoretest.NewClock(time.Now())
	db := newFaultStoreAt(clock.Now)
	return newLocker(t, db, cfg), db, clock
}

// virtual runs a parallel test in virtual time, with a Locker on a store in memory.
func virtual(t *testing.T, cfg lockcore.Config, test func(t *testing.T, l *lockcore.Steps, db *faultStore)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, db := inMemory(t, cfg)
		test(t, l, db)
	})
}

// elapse lets virtual time pass. The test is about that time, and waits for nothing else:
// virtual time does not advance while any goroutine works.
func elapse(d time.Duration) { <-time.After(d) }

// request returns a request for resources. The Locker chooses its part and order.
func request(lockID string, resources ...lockcore.Resource) lockcore.StepRequest {
	return lockcore.StepRequest{Caller: lockcore.Caller{LockID: lockID}, Resources: resources}
}

// numbered returns a request of part "p" with order 1.1. It may queue, and be repeated.
func numbered(lockID string, resources ...lockcore.Resource) lockcore.StepRequest {
	return lockcore.StepRequest{Caller: lockcore.Caller{LockID: lockID, Part: "p", Order: lockcore.Order{Schedule: 1, Attempt: 1}}, Resources: resources}
}

// endless returns a request for a lease without an end.
func endless(lockID string, resources ...lockcore.Resource) lockcore.StepRequest {
	return lockcore.StepRequest{Caller: lockcore.Caller{LockID: lockID}, TTL: lockcore.Forever, Resources: resources}
}

// enter makes a request that must be granted at once.
// withTTL returns the request with a TTL.
func withTTL(ttl time.Duration, req lockcore.StepRequest) lockcore.StepRequest {
	req.TTL = ttl
	return req
}

func enter(t *testing.T, l *lockcore.Steps, req lockcore.StepRequest) []lockcore.Lease {
	t.Helper()
	leases, err := l.TryEnter(t.Context(), req)
	require.NoError(t, err)
	return leases
}

// requireBusy makes a request that must be refused because another is in its way. It does not queue.
func requireBusy(t *testing.T, l *lockcore.Steps, req lockcore.StepRequest) {
	t.Helper()
	_, err := l.TryEnter(t.Context(), req)
	require.ErrorIs(t, err, lockcore.ErrBusy)
}

// queue makes a numbered request that must queue.
func queue(t *testing.T, l *lockcore.Steps, req lockcore.StepRequest) {
	t.Helper()
	_ = queueBusy(t, l, req)
}

// queueBusy makes a numbered request that must queue, and returns its error.
func queueBusy(t *testing.T, l *lockcore.Steps, req lockcore.StepRequest) *lockcore.BusyError {
	t.Helper()
	_, err := l.Enter(t.Context(), req)
	return errorAs[*lockcore.BusyError](t, err)
}

// confirm repeats a numbered request that must be granted.
func confirm(t *testing.T, l *lockcore.Steps, req lockcore.StepRequest) []lockcore.Lease {
	t.Helper()
	leases, err := l.Enter(t.Context(), req)
	require.NoError(t, err)
	return leases
}

func leave(t *testing.T, l *lockcore.Steps, leases ...lockcore.Lease) {
	t.Helper()
	require.NoError(t, l.Leave(t.Context(), leases...))
}

// tryAcquire starts a session that must be granted at once.
func tryAcquire(t *testing.T, l *lockcore.Steps, req lockcore.StepRequest) *lockcore.Session {
	t.Helper()
	s, err := l.TryAcquire(t.Context(), req)
	require.NoError(t, err)
	return s
}

// acquired is the result of an Acquire in another goroutine.
type acquired struct {
	session *lockcore.Session
	err     error
}

func acquireLater(ctx context.Context, l *lockcore.Steps, req lockcore.StepRequest) <-chan acquired {
	out := make(chan acquired, 1)
	go func() {
		s, err := l.Acquire(ctx, req)
		out <- acquired{s, err}
	}()
	return out
}

// requireGranted waits for an Acquire that must succeed.
func requireGranted(t *testing.T, waits <-chan acquired) *lockcore.Session {
	t.Helper()
	select {
	case got := <-waits:
		require.NoError(t, got.err)
		return got.session
	case <-time.After(15 * time.Second):
		require.Fail(t, "the request is not granted")
		return nil
	}
}

// requireDone waits for the end of a session's context, for d at most.
func requireDone(t *testing.T, s *lockcore.Session, d time.Duration) {
	t.Helper()
	select {
	case <-s.Context().Done():
	case <-time.After(d):
		require.Fail(t, "the session has not ended")
	}
}

// requireWaiting waits until n requests are in the queue of a resource.
func requireWaiting(t *testing.T, db *faultStore, n int, resource string) {
	t.Helper()
	require.Eventually(t, func() bool { return len(db.Document(resource).Waiters) == n }, 10*time.Second, time.Millisecond)
}

// revoke releases by force what a lock ID holds of some resources.
func revoke(t *testing.T, l *lockcore.Steps, lockID, reason string, resources ...string) {
	t.Helper()
	for s, err := range l.Status(t.Context(), lockcore.Filter{LockID: lockID, States: []lockcore.State{lockcore.StateHolding}}) {
		require.NoError(t, err)
		if slices.Contains(resources, s.Resource) {
			require.NoError(t, l.Revoke(t.Context(), s.Resource, lockID, s.FirstFence, reason, false))
		}
	}
}

// firstStatus returns the error of a listing, if it begins with one.
func firstStatus(ctx context.Context, l *lockcore.Steps, f lockcore.Filter) error {
	for _, err := range l.Status(ctx, f) {
		return err
	}
	return nil
}

// enterOrTry makes a request that queues, or one that does not.
func enterOrTry(ctx context.Context, l *lockcore.Steps, req lockcore.StepRequest, queue bool) ([]lockcore.Lease, error) {
	if queue {
		return l.Enter(ctx, req)
	}
	return l.TryEnter(ctx, req)
}

// errorAs returns the error of a type in the tree of err.
func errorAs[E error](t testing.TB, err error) (found E) {
	t.Helper()
	require.ErrorAs(t, err, &found)
	return found
}

// requireInvalid requires an *InvalidError that names a field.
func requireInvalid(t testing.TB, err error, field string) {
	t.Helper()
	require.Equal(t, field, errorAs[*lockcore.InvalidError](t, err).Field)
}

// eachCase runs a parallel test in virtual time for each case.
func eachCase[C any](t *testing.T, cases map[string]C, test func(t *testing.T, l *lockcore.Steps, db *faultStore, c C)) {
	t.Helper()
	t.Parallel()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, db *faultStore) { test(t, l, db, c) })
		})
	}
}

// statuses returns what a Locker lists.
func statuses(t *testing.T, l *lockcore.Steps, f lockcore.Filter) (all []lockcore.Status) {
	t.Helper()
	for s, err := range l.Status(t.Context(), f) {
		require.NoError(t, err)
		all = append(all, s)
	}
	return all
}
