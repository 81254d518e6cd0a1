package lockcore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestLeaveWithin_NextWrite_IsShared(t *testing.T) {
	type test struct {
		next   func(t *testing.T, l *lockcore.Steps)
		writes int
	}
	eachCase(t, map[string]test{
		"with the next request": {func(t *testing.T, l *lockcore.Steps) {
			t.Helper()
			confirm(t, l, numbered("b", lockcore.Exclusive("r")))
		}, 1},
		"alone":          {func(*testing.T, *lockcore.Steps) { elapse(50 * time.Millisecond) }, 1},
		"not too soon":   {func(*testing.T, *lockcore.Steps) { elapse(40 * time.Millisecond) }, 0},
		"when it closes": {func(t *testing.T, l *lockcore.Steps) { t.Helper(); require.NoError(t, l.Close(context.Background())) }, 1},
	}, func(t *testing.T, l *lockcore.Steps, db *faultStore, c test) {
		leases := confirm(t, l, numbered("a", lockcore.Exclusive("r")))
		synctest.Wait() // the update loop would send the leave at once if it still ran
		writes := db.swaps()
		left := make(chan error, 1)
		go func() { left <- l.LeaveWithin(t.Context(), 50*time.Millisecond, l.NewSession(t.Context(), leases)) }()
		synctest.Wait()
		c.next(t, l)
		synctest.Wait()
		require.Equal(t, writes+c.writes, db.swaps())
		require.NoError(t, <-left)
	})
}

func TestLeaveWithin_OthersWait_LeavesAtOnce(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, db *faultStore) {
		leases := confirm(t, l, numbered("a", lockcore.Exclusive("r")))
		queue(t, l, numbered("b", lockcore.Exclusive("r")))
		began := time.Now()
		require.NoError(t, l.LeaveWithin(t.Context(), time.Second, l.NewSession(t.Context(), leases)))
		require.Less(t, time.Since(began), time.Second)
		require.Empty(t, db.Document("r").Waiters, "b has a claim")
	})
}

func TestLeaveQueue_ClaimWasTakenUp_KeepsThePart(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	other := enter(t, l, request("other", lockcore.Exclusive("r")))
	req := numbered("a", lockcore.Exclusive("r"))
	queue(t, l, req)
	position := lockcore.Lease{Resource: "r", LockID: "a", Part: req.Part, Order: req.Order}
	leave(t, l, other...)
	leases := confirm(t, l, req)
	_, err := l.LeaveQueue(t.Context(), position)
	require.NoError(t, err)
	_, err = l.Renew(t.Context(), leases...)
	require.NoError(t, err)
	leave(t, l, leases...)
	enter(t, l, request("other", lockcore.Exclusive("r")))
	req.Order.Attempt++
	queue(t, l, req)
	position.Order = req.Order
	_, err = l.LeaveQueue(t.Context(), position)
	require.NoError(t, err)
	require.Empty(t, db.Document("r").Waiters)
}

// A forced release that does not wait for the drain frees the resource, although its holder may trust
// its lease for hours.
func TestRelease_ForcedAgain_EndsNothingGrantedSince(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	req := request("a", lockcore.Exclusive("r"))
	req.TTL = 6 * time.Hour
	dead := enter(t, l, req)
	force := lockcore.Release{Force: true, LockID: "a", Resources: []string{"r"}, FirstFence: dead[0].FirstFence, Reason: "it hangs"}
	require.NoError(t, l.Release(t.Context(), force))
	_, err := l.TryEnter(t.Context(), request("b", lockcore.Exclusive("r")))
	require.ErrorContains(t, err, "draining", "the holder may still work")

	force.Now = true
	require.NoError(t, l.Release(t.Context(), force))
	other := tryAcquire(t, l, request("b", lockcore.Exclusive("r")))
	require.NoError(t, other.Release(t.Context()))
	again := tryAcquire(t, l, request("a", lockcore.Exclusive("r")))
	require.NoError(t, l.Release(t.Context(), force))
	d := db.Document("r")
	require.Equal(t, again.Leases()[0].FirstFence, d.FirstFence("a"))
}

func TestRelease_PlainRequestWaits_QueuesAgain(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, db *faultStore) {
		holder := tryAcquire(t, l, request("holder", lockcore.Exclusive("r")))
		var waits []<-chan acquired
		for i, lockID := range []string{"a", "b"} {
			waits = append(waits, acquireLater(t.Context(), l, request(lockID, lockcore.Exclusive("r"))))
			requireWaiting(t, db, i+1, "r")
		}
		require.NoError(t, l.Release(t.Context(), lockcore.Release{LockID: "a", Resources: []string{"r"}, Order: lockcore.LastAttempt(0)}))
		require.NoError(t, holder.Release(t.Context()))
		b := requireGranted(t, waits[1])
		require.Empty(t, waits[0], "a has queued behind b")
		require.NoError(t, b.Release(t.Context()))
		require.NoError(t, requireGranted(t, waits[0]).Release(t.Context()))
	})
}

// keptOn takes resources for a lock ID and leaves at once, so that the holds remain without a process.
func keptOn(t *testing.T, l *lockcore.Steps, lockID string, holdTTL time.Duration, resources ...lockcore.Resource) {
	t.Helper()
	req := request(lockID, resources...)
	req.Part, req.Order, req.Keep, req.HoldTTL, req.TTL = "p", lockcore.Order{Schedule: 7, Attempt: 1}, true, holdTTL, time.Second
	leases := enter(t, l, req)
	require.NoError(t, l.Leave(t.Context(), leases...))
}

func TestExtend_Holds_KeptOrReportedLost(t *testing.T) {
	t.Parallel()
	l, _, clock := withClock(t, lockcore.Config{})
	mine, gone := lockcore.Exclusive("r/1"), lockcore.Shared("r/2")
	keptOn(t, l, "a", time.Minute, mine, gone)
	for range 5 {
		clock.Advance(45 * time.Second)
		for _, r := range []lockcore.Resource{mine, gone} {
			again, err := l.Extend(t.Context(), "a", "", r.Name)
			require.NoError(t, err)
			require.Equal(t, 20*time.Second, again)
		}
	}
	clock.Advance(45 * time.Second)
	requireBusy(t, l, request("b", mine))

	revoke(t, l, "a", "it has to go", gone.Name)
	_, err := l.Extend(t.Context(), "a", "", gone.Name)
	lost := errorAs[*lockcore.LostError](t, err)
	require.Equal(t, gone.Name, lost.Resource)
	require.Equal(t, "it has to go", lost.Reason)
	_, err = l.Extend(t.Context(), "a", "", mine.Name)
	require.NoError(t, err)
	clock.Advance(45 * time.Second)
	requireBusy(t, l, request("b", mine))
}

func TestExtend_NothingHeld_IsLost(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, lockcore.Config{})
	r := lockcore.Exclusive("r/1")
	_, err := l.Extend(t.Context(), "a", "", r.Name)
	require.ErrorIs(t, err, lockcore.ErrLost)

	keptOn(t, l, "a", lockcore.Forever, r)
	again, err := l.Extend(t.Context(), "a", "", r.Name)
	require.NoError(t, err)
	require.Equal(t, 5*time.Minute, again)
	require.NoError(t, l.Release(t.Context(), lockcore.Release{LockID: "a", Resources: []string{r.Name}, Order: lockcore.LastAttempt(7)}))
	_, err = l.Extend(t.Context(), "a", "", r.Name)
	require.ErrorIs(t, err, lockcore.ErrLost)
	enter(t, l, request("b", r))

	_, err = l.Extend(t.Context(), "", "", r.Name)
	require.ErrorIs(t, err, lockcore.ErrInvalid)
}

// What a request got, and left, before it was queued is extended like any kept hold.
func TestExtend_HoldOfAQueuedRequest_IsKept(t *testing.T) {
	t.Parallel()
	l, _, clock := withClock(t, lockcore.Config{})
	keptOn(t, l, "other", lockcore.Forever, lockcore.Exclusive("r/2"))
	req := request("a", lockcore.Exclusive("r/1"), lockcore.Exclusive("r/2"))
	req.Part, req.Order, req.Keep, req.TTL, req.HoldTTL = "p", lockcore.Order{Schedule: 1, Attempt: 1}, true, time.Second, 20*time.Second
	queue(t, l, req)
	for range 5 {
		clock.Advance(15 * time.Second)
		_, err := l.Extend(t.Context(), "a", "", "r/1")
		require.NoError(t, err)
	}
	requireBusy(t, l, request("b", lockcore.Exclusive("r/1")))
}
