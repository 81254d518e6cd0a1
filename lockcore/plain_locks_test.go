package lockcore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

// The functions that do not begin with Test are the snippets of docs/guides/plain-locks.md, which shows them unchanged.

// ErrRunning reports that the program is running already.
var ErrRunning = errors.New("another run is on")

func runAlone(ctx context.Context, locker *lockcore.Locker, work func(context.Context) error) error {
	session, err := locker.TryAcquire(ctx, lockcore.Request{
		LockID:    "nightly-report/" + rand.Text(),
		Resources: []lockcore.Resource{lockcore.Exclusive("job/nightly-report")},
	})
	var busy *lockcore.BusyError
	if errors.As(err, &busy) {
		return fmt.Errorf("%w: %w", ErrRunning, err) // which host and process holds it, since when
	}
	if err != nil {
		return err
	}
	err = work(session.Context()) // cancelled, with the cause, when the lock is lost

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, session.Release(ctx)) // a *LostError if it was lost
}

func TestRecipe_OneRunAtATime_SecondIsBusy(t *testing.T) {
	t.Parallel()
	l := setup(t, lockcore.Config{})
	host, err := os.Hostname()
	require.NoError(t, err)

	err = runAlone(t.Context(), l.Locker, func(ctx context.Context) error {
		err := runAlone(ctx, l.Locker, func(context.Context) error { return errors.New("must not run") })
		require.ErrorIs(t, err, ErrRunning)
		var busy *lockcore.BusyError
		require.ErrorAs(t, err, &busy)
		require.Equal(t, fmt.Sprintf("%s:%d", host, os.Getpid()), busy.Holders[0].Host)
		return nil
	})
	require.NoError(t, err)

	err = runAlone(t.Context(), l.Locker, func(ctx context.Context) error {
		for s, err := range l.Status(ctx, lockcore.Filter{LockIDPrefix: "nightly-report/"}) {
			require.NoError(t, err)
			require.NoError(t, l.Revoke(ctx, s.Resource, s.LockID, s.FirstFence, "it hangs", false))
		}
		return nil
	})
	require.ErrorIs(t, err, lockcore.ErrLost, "what is not held any more is not released in silence")
	require.ErrorContains(t, err, "it hangs")
}

func lockDocument(ctx context.Context, locker *lockcore.Steps, session string, id bson.ObjectID) (lockcore.Lease, error) {
	leases, err := locker.TryEnter(ctx, lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: session}, Keep: true, HoldTTL: 15 * time.Minute,
		Resources: []lockcore.Resource{lockcore.Exclusive("invoices/" + id.Hex())},
	})
	if err != nil {
		return lockcore.Lease{}, err
	}
	return leases[0], locker.Leave(ctx, leases...) // nothing runs between two requests; the hold remains
}

func unlockDocument(ctx context.Context, locker *lockcore.Steps, lease lockcore.Lease) error {
	return locker.Release(ctx, lockcore.Release{LockID: lease.LockID, Resources: []string{lease.Resource}, FirstFence: lease.FirstFence})
}

func unlockAll(ctx context.Context, locker *lockcore.Steps, session string) error {
	var names []string
	for status, err := range locker.Status(ctx, lockcore.Filter{LockID: session}) {
		if err != nil {
			return err
		}
		names = append(names, status.Resource)
	}
	var errs []error
	for some := range slices.Chunk(slices.Compact(names), 100) {
		// Up to the last order there is: nothing that the session may have sent before takes a lock after this.
		errs = append(errs, locker.Release(ctx, lockcore.Release{
			LockID: session, Resources: some, Order: lockcore.LastAttempt(math.MaxInt32),
		}))
	}
	return errors.Join(errs...)
}

func TestRecipe_DocumentLock_LastsBetweenRequests(t *testing.T) {
	t.Parallel()
	l := setup(t, lockcore.Config{})
	session, other := rand.Text(), rand.Text()
	var leases []lockcore.Lease
	for range 3 {
		lease, err := lockDocument(t.Context(), l.Steps, session, bson.NewObjectID())
		require.NoError(t, err)
		leases = append(leases, lease)
	}
	lockedTo := func(session string, lease lockcore.Lease) error {
		var id bson.ObjectID
		require.NoError(t, id.UnmarshalText([]byte(lease.Resource[len("invoices/"):])))
		_, err := lockDocument(t.Context(), l.Steps, session, id)
		return err
	}
	require.ErrorIs(t, lockedTo(other, leases[0]), lockcore.ErrBusy)
	require.NoError(t, lockedTo(session, leases[0]), "its own session may come again, and so keeps it")

	require.NoError(t, unlockDocument(t.Context(), l.Steps, leases[1]))
	require.NoError(t, lockedTo(other, leases[1]))
	require.ErrorIs(t, lockedTo(other, leases[2]), lockcore.ErrBusy)

	require.NoError(t, unlockAll(t.Context(), l.Steps, session))
	require.NoError(t, lockedTo(other, leases[0]))
	require.NoError(t, lockedTo(other, leases[2]))
	require.ErrorIs(t, unlockDocument(t.Context(), l.Steps, lockcore.Lease{}), lockcore.ErrInvalid)
	require.NoError(t, unlockDocument(t.Context(), l.Steps, leases[0]), "and takes nothing from whoever holds it now")
	require.ErrorIs(t, lockedTo(session, leases[0]), lockcore.ErrSuperseded, "a session that has ended does not come back")
}

func setBalance(ctx context.Context, locker *lockcore.Locker, accounts *mongo.Collection, id string, to int) error {
	session, err := locker.Acquire(ctx, lockcore.Request{
		LockID:    rand.Text(),
		Resources: []lockcore.Resource{lockcore.Exclusive("account/" + id)},
	})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = session.Release(ctx) // what cannot be released ends with its TTL
	}()
	return lockcore.UpdateFenced(session.Context(), accounts, session.Leases()[0],
		bson.D{{Key: "_id", Value: id}}, bson.D{{Key: "$set", Value: bson.D{{Key: "balance", Value: to}}}})
}

func TestRecipe_LateWriter_IsFenced(t *testing.T) {
	t.Parallel()
	l := setup(t, lockcore.Config{})
	accounts := l.coll.Database().Collection("accounts")
	_, err := accounts.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "7"}, {Key: "balance", Value: 0}})
	require.NoError(t, err)
	balance := func() int32 {
		var account struct{ Balance int32 }
		require.NoError(t, accounts.FindOne(t.Context(), bson.D{{Key: "_id", Value: "7"}}).Decode(&account))
		return account.Balance
	}

	stalled := lockcore.StepRequest{Caller: lockcore.Caller{LockID: "stalled"}, Resources: []lockcore.Resource{lockcore.Exclusive("account/7")}, TTL: 300 * time.Millisecond}
	old, err := l.TryEnter(t.Context(), stalled)
	require.NoError(t, err)
	require.NoError(t, setBalance(t.Context(), l.Locker, accounts, "7", 10))
	require.False(t, old[0].Valid())
	require.EqualValues(t, 10, balance())

	err = lockcore.UpdateFenced(t.Context(), accounts, old[0],
		bson.D{{Key: "_id", Value: "7"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "balance", Value: 99}}}})
	require.ErrorIs(t, err, lockcore.ErrFenced, "the one that stalled wakes up and writes")
	require.EqualValues(t, 10, balance())
	_, err = l.Resume(t.Context(), old...)
	require.ErrorIs(t, err, lockcore.ErrLost)
}

// The first example, on the engine in memory. With a database, lockcore.New takes a *mongo.Collection instead.
func Example() {
	ctx := context.Background()
	locker, err := lockcore.NewWithStore(lockcoretest.NewStore(time.Now), lockcore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	report := func(lockID string) lockcore.Request {
		return lockcore.Request{LockID: lockID, Resources: []lockcore.Resource{lockcore.Exclusive("report")}}
	}
	session, err := locker.Acquire(ctx, report("monday"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held, with a fence:", session.Leases()[0].Fence > 0)

	_, err = locker.TryAcquire(ctx, report("tuesday"))
	var busy *lockcore.BusyError
	if errors.As(err, &busy) {
		fmt.Println("busy, held by:", busy.Holders[0].LockID)
	}

	err = session.Release(ctx)
	fmt.Println("released:", err, "/", context.Cause(session.Context()))
	// Output:
	// held, with a fence: true
	// busy, held by: monday
	// released: <nil> / lockstep: session ended
}
