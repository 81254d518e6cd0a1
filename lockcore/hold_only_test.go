package lockcore_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// holdOnly returns a request of a run for the hold alone.
func holdOnly(lockID string, attempt uint32, resources ...lockcore.Resource) lockcore.StepRequest {
	req := keeping(lockID, resources...)
	req.Run, req.HoldOnly, req.Order.Attempt = "run", true, attempt
	return req
}

// endOf returns the release of a hold without a part.
func endOf(lockID string) lockcore.Release {
	return lockcore.Release{LockID: lockID, Run: "run", Resources: []string{"r"}, Order: lockcore.LastAttempt(1)}
}

func kept(db *faultStore, lockID string) *rules.Entry {
	d := db.Document("r")
	return d.Kept(lockID)
}

func TestEnter_HoldOnly_LeaseHasNoPart(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{HoldTTL: 10 * time.Minute})
	leases := confirm(t, l, holdOnly("a", 1, lockcore.Exclusive("r")))
	require.Equal(t, 1, db.swaps())
	entries := db.Document("r").Entries
	require.Len(t, entries, 1)
	require.Equal(t, rules.StateKept, entries[0].State)
	lease := leases[0]
	require.Equal(t, []any{"r", "a", "run", "p", lockcore.ModeExclusive, entries[0].Fence},
		[]any{lease.Resource, lease.LockID, lease.Run, lease.Part, lease.Mode, lease.Fence})
	require.Equal(t, lease.Fence, lease.FirstFence)
	require.InDelta(t, 10*time.Minute, lease.Left, float64(time.Minute))
	require.False(t, lease.Valid() || lease.Joined)
	_, err := l.Renew(t.Context(), lease)
	require.ErrorIs(t, err, lockcore.ErrLost)
	leave(t, l, lease)
	text, err := json.Marshal(lease)
	require.NoError(t, err)
	var decoded lockcore.Lease
	require.NoError(t, json.Unmarshal(text, &decoded))
	leave(t, l, decoded)
	require.Equal(t, entries, db.Document("r").Entries, "neither a renewal nor a leave changes the hold")
	require.NoError(t, l.Release(t.Context(), endOf("a")))
	require.Empty(t, db.Document("r").Entries)
}

func TestEnter_HoldOnlyWithShortHoldTTL_EndsInTime(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, lockcore.Config{})
	req := holdOnly("a", 1, lockcore.Exclusive("r"))
	req.HoldTTL = 5 * time.Second
	require.LessOrEqual(t, confirm(t, l, req)[0].Left, 5*time.Second, "the default TTL is longer")
}

func TestEnter_HoldOnlyContradictsOtherFields_IsRefused(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	valid := holdOnly("a", 1, lockcore.Exclusive("r"))
	plain, queued := valid, valid
	plain.Keep, queued.Queued = false, true
	for name, call := range map[string]func() error{
		"without Keep": func() error { _, err := l.Enter(t.Context(), plain); return err },
		"with Queued":  func() error { _, err := l.Enter(t.Context(), queued); return err },
		"Acquire":      func() error { _, err := l.Acquire(t.Context(), valid); return err },
		"TryAcquire":   func() error { _, err := l.TryAcquire(t.Context(), valid); return err },
	} {
		err := call()
		require.ErrorIs(t, err, lockcore.ErrInvalid, name)
		require.ErrorContains(t, err, "Request.HoldOnly", name)
	}
	require.Zero(t, db.swaps())
}

// The swap that frees the resource makes the hold, and the process that wrote it wakes the waiter.
func TestEnter_HoldOnlyWaiter_IsGrantedByTheRelease(t *testing.T) {
	whileParked(t, func(t *testing.T, p *parked) {
		confirm(t, p.Steps, keeping("a", lockcore.Exclusive("r")))
		queue(t, p.Steps, holdOnly("b", 1, lockcore.Exclusive("r")))
		swaps := p.db.swaps()
		require.NoError(t, p.Release(t.Context(), stopped("a")))
		require.Equal(t, swaps+1, p.db.swaps())
		k := kept(p.db, "b")
		require.NotNil(t, k)
		require.Equal(t, lockcore.Wakeup{
			Resource: "r", LockID: "b", Run: "run", Order: lockcore.Order{Schedule: 1, Attempt: 1}, FirstFence: k.FirstFence, Mode: lockcore.ModeExclusive,
		}, p.wakeup(t, "b"))

		for attempt := uint32(1); attempt <= 3; attempt++ { // the same order again, and later ones
			leases := confirm(t, p.Steps, holdOnly("b", attempt, lockcore.Exclusive("r")))
			require.True(t, leases[0].Joined)
			require.Equal(t, k.FirstFence, leases[0].FirstFence)
		}
		require.Len(t, p.db.Document("r").Entries, 2, "what has merged, and that of the last call")
		require.Equal(t, k.FirstOrder, kept(p.db, "b").FirstOrder)
		require.NoError(t, p.Release(t.Context(), endOf("b")))
		require.Empty(t, p.db.Document("r").Entries)
	})
}

func TestEnter_HoldOnlyRepeated_IsGrantedOnce(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	req := holdOnly("a", 1, lockcore.Exclusive("q"), lockcore.Exclusive("r"))
	req.Call = "the same"
	first, again := confirm(t, l, req), confirm(t, l, req)
	for i := range again {
		require.Equal(t, first[i].Fence, again[i].Fence)
		require.False(t, again[i].Joined)
		require.Len(t, db.Document(again[i].Resource).Entries, 1)
	}
}

func TestEnter_HoldOnlyDoesNotQueue_GivesBackWhatItTook(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	confirm(t, l, keeping("a", lockcore.Exclusive("r")))
	requireBusy(t, l, holdOnly("b", 1, lockcore.Exclusive("q"), lockcore.Exclusive("r")))
	require.Empty(t, db.Document("q").Entries)
	require.Empty(t, db.Document("r").Waiters)
}

func TestEnter_HoldOnlyWithMaxWait_IsGrantedByTheRelease(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, db *faultStore) {
		confirm(t, l, keeping("a", lockcore.Exclusive("r")))
		req := holdOnly("b", 1, lockcore.Exclusive("r"))
		req.MaxWait = time.Second
		entered := make(chan error, 1)
		go func() {
			_, err := l.Enter(t.Context(), req)
			entered <- err
		}()
		synctest.Wait()
		requireWaiting(t, db, 1, "r")
		swaps := db.swaps()
		require.NoError(t, l.Release(t.Context(), stopped("a")))
		require.NoError(t, <-entered)
		require.Equal(t, swaps+1, db.swaps())
		require.NotNil(t, kept(db, "b"))
	})
}

// The process that made the grant has no listener, as if it had died.
func TestOnWakeup_HoldGrantedElsewhere_IsReportedWhileItIsNew(t *testing.T) {
	t.Parallel()
	for name, joined := range map[string]bool{"not joined": false, "joined by a request": true} {
		t.Run(name, func(t *testing.T) {
			whileParked(t, func(t *testing.T, p *parked) {
				other := newLocker(t, p.db, lockcore.Config{})
				confirm(t, p.Steps, keeping("a", lockcore.Exclusive("r")))
				queue(t, p.Steps, holdOnly("b", 1, lockcore.Exclusive("r")))
				if !joined {
					p.WatchFor("r")
					elapse(time.Second)
				}
				require.NoError(t, other.Release(t.Context(), stopped("a")))
				if joined {
					confirm(t, p.Steps, holdOnly("b", 2, lockcore.Exclusive("r")))
				} else {
					require.Equal(t, kept(p.db, "b").FirstFence, p.wakeup(t, "b").FirstFence)
					elapse(2 * time.Minute)
					for len(p.wakes) > 0 {
						<-p.wakes
					}
				}
				p.WatchFor("r")
				elapse(time.Minute)
				require.Empty(t, p.wakes, "neither an old grant is reported nor one that was joined")
			})
		})
	}
}

// Only waiters that would wait in a slot are called early.
func TestOnWakeup_HoldOnlyWaiterIsNext_IsNotCalledEarly(t *testing.T) {
	t.Parallel()
	l, db, clock := withClock(t, lockcore.Config{})
	p := listening(t, l, db)
	for _, lockID := range []string{"a", "b", "c"} {
		_, err := l.Enter(t.Context(), holdOnly(lockID, 1, lockcore.Exclusive("r")))
		require.Equal(t, lockID == "a", err == nil)
	}
	for _, lockID := range []string{"a", "b"} { // holds of 10 ms
		clock.Advance(10 * time.Millisecond)
		require.NoError(t, l.Release(t.Context(), endOf(lockID)))
		require.NotZero(t, (<-p.wakes).FirstFence)
	}
	require.Empty(t, p.wakes)
}

func TestRecheck_HoldOnlyWaiter_IsRefreshed(t *testing.T) {
	t.Parallel()
	l, db, clock := withClock(t, lockcore.Config{})
	confirm(t, l, keeping("a", lockcore.Exclusive("r")))
	req := holdOnly("b", 1, lockcore.Exclusive("r"))
	queue(t, l, req)
	clock.Advance(3 * time.Minute)
	swaps := db.swaps()
	_, err := l.Recheck(t.Context(), req)
	require.ErrorIs(t, err, lockcore.ErrBusy)
	require.Equal(t, swaps+1, db.swaps())
	require.NoError(t, l.Release(t.Context(), stopped("a")))
	require.NotNil(t, kept(db, "b"))
	again, err := l.Recheck(t.Context(), req)
	require.NoError(t, err, "asking again is worthwhile")
	require.Zero(t, again)
}

func TestWaitSpan_HoldGrantedToAWaiter_IsWrittenByTheGrant(t *testing.T) {
	t.Parallel()
	o := observe(t, lockcore.Config{})
	r := lockcore.Exclusive("account/1")
	o.enters(t, o.Steps, asks("a", 1, r))
	waits := asks("b", 1, r)
	waits.HoldOnly = true
	o.queues(t, o.other, waits)
	o.clock.Advance(4 * time.Second)
	require.NoError(t, o.Release(t.Context(), lockcore.Release{LockID: "a", Resources: []string{r.Name}, Leaving: new("1/Debit"), Order: lockcore.Order{Schedule: 1, Attempt: 1}}))
	waits.Order.Attempt = 2
	o.enters(t, o.other, waits)

	wait, ended := o.only(t, telemetry.SpanWait, "b"), o.only(t, telemetry.SpanHold, "a")
	require.Equal(t, 4*time.Second, wait.EndTime().Sub(wait.StartTime()))
	require.Equal(t, []string{telemetry.OutcomeGranted, "1/Debit", "owner-b", "a"}, []string{
		text(wait.Attributes(), telemetry.Outcome), text(wait.Attributes(), telemetry.Part), text(wait.Attributes(), telemetry.Owner),
		text(wait.Attributes(), telemetry.BlockedByID),
	})
	next := eventsNamed(ended, telemetry.EventGrantedTo)
	require.Len(t, next, 1)
	require.Equal(t, []string{"b", "1/Debit"}, []string{text(next[0].Attributes, telemetry.LockID), text(next[0].Attributes, telemetry.Part)})
}
