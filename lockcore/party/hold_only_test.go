package party_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// hold asks for the hold alone, under a run label.
func (p *parked) hold(lockID string, attempt uint32, resources ...party.Resource) party.Request {
	req := p.request(lockID, resources...)
	req.Run, req.HoldOnly, req.Order.Attempt = "run", true, attempt
	return req
}

// ofStep is the release by the holder of a part, and ofHold that of a hold without one.
func ofStep(lockID string) party.Release {
	return party.Release{LockID: lockID, Resources: []string{"r"}, Order: party.Order{Schedule: 1, Attempt: 1}, Leaving: new("step")}
}

func ofHold(lockID string) party.Release {
	return party.Release{LockID: lockID, Run: "run", Resources: []string{"r"}, Order: party.LastAttempt(1)}
}

func (p *parked) kept(resource, lockID string) *rules.Entry {
	d := p.store.Document(resource)
	return d.Kept(lockID)
}

func TestEnter_HoldOnly_LeaseHasNoPart(t *testing.T) {
	t.Parallel()
	p := newParked(t, nil)
	swaps := p.store.count(of(kindSwap))
	leases, err := p.Enter(t.Context(), p.hold("a", 1, party.Exclusive("r")))
	require.NoError(t, err)
	require.Equal(t, swaps+1, p.store.count(of(kindSwap)), "one write")
	entries := p.store.Document("r").Entries
	require.Len(t, entries, 1)
	require.Equal(t, rules.StateKept, entries[0].State)
	l := leases[0]
	require.Equal(t, []any{"r", "a", "run", "step", party.ModeExclusive, entries[0].Fence}, []any{l.Resource, l.LockID, l.Run, l.Part, l.Mode, l.Fence})
	require.Equal(t, l.Fence, l.FirstFence)
	require.InDelta(t, 10*time.Minute, l.Left, float64(time.Minute))
	require.False(t, l.Valid() || l.Joined)
	_, err = p.Renew(t.Context(), l)
	require.ErrorIs(t, err, party.ErrLost, "there is no part")
	require.NoError(t, p.Leave(t.Context(), l))
	text, err := json.Marshal(l)
	require.NoError(t, err)
	var travelled party.Lease
	require.NoError(t, json.Unmarshal(text, &travelled))
	require.NoError(t, p.Leave(t.Context(), travelled))
	require.Equal(t, entries, p.store.Document("r").Entries, "neither a renewal nor a leave changes the hold")
	require.NoError(t, p.Release(t.Context(), ofHold("a")))
	require.Empty(t, p.store.Document("r").Entries)
}

func TestEnter_HoldOnlyWithShortHoldTTL_HoldEndsInTime(t *testing.T) {
	t.Parallel()
	p := newParked(t, nil)
	req := p.hold("a", 1, party.Exclusive("r"))
	req.HoldTTL = 5 * time.Second
	leases, err := p.Enter(t.Context(), req)
	require.NoError(t, err)
	require.LessOrEqual(t, leases[0].Left, 5*time.Second, "the default of TTL is longer")
}

func TestRequest_HoldOnlyThatMakesNoSense_IsRefused(t *testing.T) {
	t.Parallel()
	p := newParked(t, nil)
	valid := p.hold("a", 1, party.Exclusive("r"))
	plain, queued := valid, valid
	plain.Persist, queued.Queued = false, true
	for _, req := range []party.Request{plain, queued} {
		_, err := p.Enter(t.Context(), req)
		require.ErrorIs(t, err, party.ErrInvalid)
		require.ErrorContains(t, err, "Request.HoldOnly")
	}
	for _, acquire := range []func() (*party.Session, error){
		func() (*party.Session, error) { return p.Acquire(t.Context(), valid) },
		func() (*party.Session, error) { return p.TryAcquire(t.Context(), valid) },
	} {
		_, err := acquire()
		require.ErrorIs(t, err, party.ErrInvalid)
		require.ErrorContains(t, err, "Request.HoldOnly")
	}
	require.Zero(t, p.store.count(of(kindSwap)))
}

// The swap that frees the resource makes the hold, and the process that writes it wakes the waiter.
func TestEnter_HoldOnlyWaiter_IsGrantedTheHoldByTheRelease(t *testing.T) {
	t.Parallel()
	p := newParked(t, nil)
	p.enter(t, "a", party.Exclusive("r"))
	_, err := p.Enter(t.Context(), p.hold("b", 1, party.Exclusive("r")))
	require.ErrorIs(t, err, party.ErrBusy)
	swaps := p.store.count(of(kindSwap))
	require.NoError(t, p.Release(t.Context(), ofStep("a")))
	require.Equal(t, swaps+1, p.store.count(of(kindSwap)))
	k := p.kept("r", "b")
	require.NotNil(t, k)
	require.Equal(t, party.Wakeup{
		Resource: "r", LockID: "b", Run: "run", Order: party.Order{Schedule: 1, Attempt: 1}, HoldFence: k.FirstFence, Mode: party.ModeExclusive,
	}, p.turn(t))

	for attempt := uint32(1); attempt <= 3; attempt++ { // the same order again too
		leases, err := p.Enter(t.Context(), p.hold("b", attempt, party.Exclusive("r")))
		require.NoError(t, err)
		require.True(t, leases[0].Joined)
		require.Equal(t, k.FirstFence, leases[0].FirstFence)
	}
	require.Len(t, p.store.Document("r").Entries, 1)
	require.Equal(t, k.FirstOrder, p.kept("r", "b").FirstOrder)
	require.NoError(t, p.Release(t.Context(), ofHold("b")))
	require.Empty(t, p.store.Document("r").Entries)
}

func TestEnter_HoldOnlyInUnknownOutcome_IsGrantedOnce(t *testing.T) {
	t.Parallel()
	p := newParked(t, nil)
	req := p.hold("a", 1, party.Exclusive("q"), party.Exclusive("r"))
	req.Call = "the same"
	first, err := p.Enter(t.Context(), req)
	require.NoError(t, err)
	again, err := p.Enter(t.Context(), req)
	require.NoError(t, err)
	for i := range again {
		require.Equal(t, first[i].Fence, again[i].Fence)
		require.False(t, again[i].Joined)
		require.Len(t, p.store.Document(again[i].Resource).Entries, 1)
	}
}

// What a request that does not queue has taken before it found a resource busy ends with it.
func TestEnter_HoldOnlyWithoutQueue_LeavesNothing(t *testing.T) {
	t.Parallel()
	p := newParked(t, nil)
	p.enter(t, "a", party.Exclusive("r"))
	_, err := p.TryEnter(t.Context(), p.hold("b", 1, party.Exclusive("q"), party.Exclusive("r")))
	require.ErrorIs(t, err, party.ErrBusy)
	require.Empty(t, p.store.Document("q").Entries)
	require.Empty(t, p.store.Document("r").Waiters)
}

// The waiter asked with MaxWait, and waits in this process for a moment.
func TestEnter_HoldOnlyInline_IsGrantedByTheSwapOfTheRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newParked(t, nil)
		p.enter(t, "a", party.Exclusive("r"))
		req := p.hold("b", 1, party.Exclusive("r"))
		req.MaxWait = time.Second
		entered := make(chan error, 1)
		go func() {
			_, err := p.Enter(t.Context(), req)
			entered <- err
		}()
		synctest.Wait()
		require.Len(t, p.store.Document("r").Waiters, 1)
		swaps := p.store.count(of(kindSwap))
		require.NoError(t, p.Release(t.Context(), ofStep("a")))
		require.NoError(t, <-entered)
		require.Equal(t, swaps+1, p.store.count(of(kindSwap)))
		require.NotNil(t, p.kept("r", "b"))
	})
}

// The process that made the grant has no listener, as if it had died.
func TestOnWakeup_HoldGrantedElsewhere_IsFoundByAWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newParked(t, nil)
		other := newLocker(t, p.store, party.Config{})
		p.enter(t, "a", party.Exclusive("r"))
		_, err := p.Enter(t.Context(), p.hold("b", 1, party.Exclusive("r")))
		require.ErrorIs(t, err, party.ErrBusy)
		p.WatchFor("r")
		elapse(time.Second)
		require.NoError(t, other.Release(t.Context(), ofStep("a")))
		require.Equal(t, p.kept("r", "b").FirstFence, p.turn(t).HoldFence)
		elapse(2 * time.Minute)
		for len(p.turns) > 0 {
			<-p.turns
		}
		p.WatchFor("r")
		elapse(time.Minute)
		require.Empty(t, p.turns, "an old grant is not reported")
	})
}

func TestOnWakeup_HoldThatARequestHasJoined_IsNotReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newParked(t, nil)
		other := newLocker(t, p.store, party.Config{})
		p.enter(t, "a", party.Exclusive("r"))
		_, err := p.Enter(t.Context(), p.hold("b", 1, party.Exclusive("r")))
		require.ErrorIs(t, err, party.ErrBusy)
		require.NoError(t, other.Release(t.Context(), ofStep("a")))
		_, err = p.Enter(t.Context(), p.hold("b", 2, party.Exclusive("r")))
		require.NoError(t, err)
		p.WatchFor("r")
		elapse(time.Minute)
		require.Empty(t, p.turns)
	})
}

// Only who waits for a turn in a slot is told early.
func TestOnWakeup_HoldOnlyWaiterNearItsTurn_IsNotToldEarly(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Now())
	p := newParked(t, clock)
	for _, lockID := range []string{"a", "b", "c"} {
		_, err := p.Enter(t.Context(), p.hold(lockID, 1, party.Exclusive("r")))
		require.Equal(t, lockID == "a", err == nil)
	}
	for _, lockID := range []string{"a", "b"} { // holds of 10 ms
		clock.Advance(10 * time.Millisecond)
		require.NoError(t, p.Release(t.Context(), ofHold(lockID)))
		require.NotZero(t, p.turn(t).HoldFence)
	}
	require.Empty(t, p.turns)
}

func TestRecheck_HoldOnly_KeepsTheWaiterOfAHold(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Now())
	p := newParked(t, clock)
	p.enter(t, "a", party.Exclusive("r"))
	req := p.hold("b", 1, party.Exclusive("r"))
	_, err := p.Enter(t.Context(), req)
	require.ErrorIs(t, err, party.ErrBusy)
	clock.Advance(3 * time.Minute)
	swaps := p.store.count(of(kindSwap))
	_, err = p.Recheck(t.Context(), req)
	require.ErrorIs(t, err, party.ErrBusy)
	require.Equal(t, swaps+1, p.store.count(of(kindSwap)))
	require.NoError(t, p.Release(t.Context(), ofStep("a")))
	require.NotNil(t, p.kept("r", "b"))
	again, err := p.Recheck(t.Context(), req)
	require.NoError(t, err, "it is worthwhile to ask again")
	require.Zero(t, again)
}

func TestWaitSpan_HoldGrantedToAWaiter_IsWrittenByTheGrant(t *testing.T) {
	t.Parallel()
	o := observe(t, party.Config{})
	r := party.Exclusive("account/1")
	o.enters(t, o.Locker, asks("a", 1, r))
	waits := asks("b", 1, r)
	waits.HoldOnly = true
	o.queues(t, o.other, waits)
	o.clock.Advance(4 * time.Second)
	require.NoError(t, o.Release(t.Context(), party.Release{LockID: "a", Resources: []string{r.Name}, Leaving: new("1/Debit"), Order: party.Order{Schedule: 1, Attempt: 1}}))
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
