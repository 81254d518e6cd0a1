package party_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// parked is a locker on a store in memory whose turns are heard.
type parked struct {
	*party.Locker
	store *faultStore
	clock *lockcoretest.Clock
	turns chan party.Wakeup
}

func newParked(t *testing.T, clock *lockcoretest.Clock) *parked {
	t.Helper()
	now := time.Now
	if clock != nil {
		now = clock.Now
	}
	p := &parked{store: newFaultStoreAt(now), clock: clock, turns: make(chan party.Wakeup, 100)}
	l, err := party.NewWithStore(p.store, party.Config{HoldTTL: 10 * time.Minute})
	require.NoError(t, err)
	p.Locker = l
	t.Cleanup(l.OnWakeup(func(turn party.Wakeup) {
		select {
		case p.turns <- turn:
		default: // one that is told again and again
		}
	}))
	return p
}

func (p *parked) request(lockID string, resources ...party.Resource) party.Request {
	return party.Request{LockID: lockID, Resources: resources, Part: "step", Order: party.Order{Schedule: 1, Attempt: 1}, Persist: true}
}

func (p *parked) enter(t *testing.T, lockID string, resources ...party.Resource) []party.Lease {
	t.Helper()
	leases, err := p.Enter(t.Context(), p.request(lockID, resources...))
	require.NoError(t, err)
	return leases
}

func (p *parked) queue(t *testing.T, lockID string, resources ...party.Resource) {
	t.Helper()
	_, err := p.Enter(t.Context(), p.request(lockID, resources...))
	require.ErrorIs(t, err, party.ErrBusy)
}

func (p *parked) turn(t *testing.T) party.Wakeup {
	t.Helper()
	select {
	case turn := <-p.turns:
		return turn
	case <-time.After(within):
		require.Fail(t, "nobody was told that it is its turn")
		return party.Wakeup{}
	}
}

const within = time.Minute

func TestWhoeverMakesAClaimTellsOfIt(t *testing.T) {
	t.Parallel()
	p := newParked(t, nil)
	p.enter(t, "a", party.Exclusive("r"))
	p.queue(t, "b", party.Exclusive("r"))
	require.NoError(t, p.Release(t.Context(), party.Release{LockID: "a", Resources: []string{"r"}, Order: party.LastAttempt(1)}))
	// The part of a is cut off by a release that does not say that it has stopped; its leave makes the claim.
	require.NoError(t, p.Leave(t.Context(), party.Lease{Resource: "r", LockID: "a", Part: "step", Order: party.Order{Schedule: 1, Attempt: 1}}))
	require.Equal(t, party.Wakeup{Resource: "r", LockID: "b", Part: "step", Order: party.Order{Schedule: 1, Attempt: 1}}, p.turn(t))
}

// Nobody acts: the holder is dead, and who waits has no process.
func TestATendedResourceIsGrantedWhenItsHoldersPromiseEnds(t *testing.T) {
	t.Parallel()
	p := newParked(t, nil)
	_, err := p.TryEnter(t.Context(), party.Request{LockID: "dead", Resources: []party.Resource{party.Exclusive("r")}, TTL: 100 * time.Millisecond})
	require.NoError(t, err)
	p.queue(t, "b", party.Exclusive("r"))
	p.WatchFor("r")
	require.Equal(t, "b", p.turn(t).LockID)
	// The lease of the first is over, and it has no process that would leave: it goes when the claim is confirmed.
	next := p.request("b", party.Exclusive("r"))
	next.Order.Schedule++
	leases, err := p.Enter(t.Context(), next)
	require.NoError(t, err)
	require.NoError(t, p.Release(t.Context(), party.Release{LockID: "b", Resources: []string{"r"}, Order: leases[0].Order, Leaving: &leases[0].Part}))
	require.Eventually(t, func() bool { return p.Tended() == 0 }, within, time.Millisecond, "nobody waits, and the resource is tended")
}

func TestTendingEndsDeadlocksOfThoseWhoWaitElsewhere(t *testing.T) {
	t.Parallel()
	p := newParked(t, nil)
	for lockID, has := range map[string]string{"old": "r1", "young": "r2"} {
		require.NoError(t, p.Leave(t.Context(), p.enter(t, lockID, party.Exclusive(has))...))
	}
	started := time.Now()
	for i, wait := range []struct{ lockID, wants string }{{"old", "r2"}, {"young", "r1"}} {
		req := p.request(wait.lockID, party.Exclusive(wait.wants))
		req.Part, req.Started = "second step", started.Add(time.Duration(i)*time.Second)
		_, err := p.Enter(t.Context(), req)
		require.ErrorIs(t, err, party.ErrBusy)
		p.WatchFor(wait.wants)
	}
	turn := p.turn(t)
	require.Equal(t, "young", turn.LockID)
	require.Contains(t, turn.Deadlock, "young waits for old on r1")
	req := p.request("young", party.Exclusive("r1"))
	req.Part = "second step"
	_, err := p.Recheck(t.Context(), req)
	var deadlock *party.DeadlockError
	require.ErrorAs(t, err, &deadlock)
	require.Equal(t, turn.Deadlock, deadlock.Cycle)
}

func TestWithoutAnybodyToHearNothingIsTended(t *testing.T) {
	t.Parallel()
	l, err := party.NewWithStore(lockcoretest.NewStore(time.Now), party.Config{})
	require.NoError(t, err)
	l.WatchFor("r")
	require.Zero(t, l.Tended())
	stop := l.OnWakeup(func(party.Wakeup) {})
	l.WatchFor("r")
	stop()
	require.Zero(t, l.Tended())
}

func TestARecheckReadsAndWritesOnlyWhenAPromiseNeedsIt(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Now())
	p := newParked(t, clock)
	p.enter(t, "a", party.Exclusive("r"))
	p.queue(t, "b", party.Exclusive("r"))
	p.queue(t, "c", party.Exclusive("r"))
	before := p.store.count(of(kindSwap))
	again, err := p.Recheck(t.Context(), p.request("c", party.Exclusive("r")))
	var busy *party.BusyError
	require.ErrorAs(t, err, &busy)
	require.Equal(t, 2, busy.Position)
	require.Equal(t, "a", busy.Holders[0].LockID)
	require.Positive(t, again)
	require.Equal(t, before, p.store.count(of(kindSwap)), "a place that is fresh is not written")

	clock.Advance(4 * time.Minute)
	_, err = p.Recheck(t.Context(), p.request("c", party.Exclusive("r")))
	require.ErrorIs(t, err, party.ErrBusy)
	require.Equal(t, before+1, p.store.count(of(kindSwap)), "an old one is")
	clock.Advance(4 * time.Minute) // b, which nobody looked after, is passed over, and keeps its place
	again, err = p.Recheck(t.Context(), p.request("c", party.Exclusive("r")))
	require.ErrorAs(t, err, &busy)
	require.Equal(t, 2, busy.Position)
	for s, err := range p.Status(t.Context(), party.Filter{LockID: "c"}) {
		require.NoError(t, err)
		require.Equal(t, busy.Position, s.Position)
	}
	require.LessOrEqual(t, again, 2*time.Minute, "the head of the queue looks when the holder's promise ends")
}

func TestARecheckSaysWhenItIsWorthToAsk(t *testing.T) {
	t.Parallel()
	p := newParked(t, nil)
	ask := func() error {
		_, err := p.Recheck(t.Context(), p.request("b", party.Exclusive("r")))
		return err
	}
	require.NoError(t, ask(), "there is no place")
	leases := p.enter(t, "a", party.Exclusive("r"))
	p.queue(t, "b", party.Exclusive("r"))
	require.ErrorIs(t, ask(), party.ErrBusy)
	require.NoError(t, p.Release(t.Context(), party.Release{LockID: "a", Resources: []string{"r"}, Order: leases[0].Order, Leaving: &leases[0].Part}))
	require.NoError(t, ask(), "there is a claim")
	granted := p.enter(t, "b", party.Exclusive("r"))
	require.NoError(t, p.Release(t.Context(), party.Release{LockID: "b", Resources: []string{"r"}, Order: granted[0].Order, Leaving: &granted[0].Part}))
	require.NoError(t, ask(), "it was granted and released meanwhile")
	require.Empty(t, p.store.Document("r").Entries, "and it takes nothing")
}

// The place stands on and nothing else changes: neither what it says of the request, nor when the request is passed over.
func TestAPlaceIsKeptWithoutAnyoneAskingForIt(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Now())
	p := newParked(t, clock)
	p.enter(t, "a", party.Exclusive("r"))
	req := p.request("b", party.SharedLimit("r", 3))
	req.Run, req.Owner, req.Started, req.NeverVictim = "run", "somebody", clock.Now().Add(-time.Hour), true
	_, err := p.Enter(t.Context(), req)
	require.ErrorIs(t, err, party.ErrBusy)
	place := party.Lease{Resource: "r", LockID: "b", Run: "run", Part: req.Part, Order: req.Order}
	waiter := func() rules.Waiter { return p.store.Document("r").Waiters[0] }
	for _, after := range []time.Duration{time.Minute, 23 * time.Hour, 23 * time.Hour} { // it is passed over from 4 min on
		clock.Advance(after)
		before := waiter()
		require.NoError(t, p.KeepPosition(t.Context(), place))
		now := waiter()
		require.WithinDuration(t, clock.Now().Add(24*time.Hour), now.ExpiresAt, time.Second)
		require.WithinDuration(t, before.OverdueAt, now.OverdueAt, time.Second)
		now.ExpiresAt, now.OverdueAt = before.ExpiresAt, before.OverdueAt
		require.Equal(t, before, now)
	}
	stands := waiter()
	other, later, gone := place, place, place
	other.Run, later.Order, gone.Resource = "another", party.Order{Schedule: 2, Attempt: 1}, "no such"
	for _, one := range []party.Lease{other, later, gone} {
		require.NoError(t, p.KeepPosition(t.Context(), one))
		require.Equal(t, stands, waiter())
	}
	require.NoError(t, p.Leave(t.Context(), place))
	require.NoError(t, p.KeepPosition(t.Context(), place))
	require.Empty(t, p.store.Document("r").Waiters, "who has left is not queued again")
}

func TestARecheckThatIsNotOfAQueuedRequestIsRefused(t *testing.T) {
	t.Parallel()
	p := newParked(t, nil)
	two := p.request("b", party.Exclusive("r"))
	two.Resources = append(two.Resources, party.Exclusive("other"))
	_, err := p.Recheck(t.Context(), two)
	require.ErrorIs(t, err, party.ErrInvalid)
	unnumbered := p.request("b", party.Exclusive("r"))
	unnumbered.Order = party.Order{}
	_, err = p.Recheck(t.Context(), unnumbered)
	require.ErrorIs(t, err, party.ErrInvalid)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Recheck(ctx, p.request("b", party.Exclusive("r")))
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, p.store.count(of(kindSwap)))
}

// The process that frees the resource has no listener, like a Go program that does not know Temporal.
func TestWatchFor_FreedByAnotherProcess_IsNoticedWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	for name, holdOnly := range map[string]bool{"claim": false, "hold": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newParked(t, nil)
				other := newLocker(t, p.store.Store, party.Config{})
				p.enter(t, "a", party.Exclusive("r"))
				req := p.request("b", party.Exclusive("r"))
				req.HoldOnly = holdOnly
				_, err := p.Enter(t.Context(), req)
				require.ErrorIs(t, err, party.ErrBusy)
				p.WatchFor("r")
				elapse(time.Minute)
				looks, compares := p.store.count(of(kindLook)), p.store.count(of(kindVersions))
				elapse(time.Minute)
				require.LessOrEqual(t, p.store.count(of(kindLook))-looks, 16, "one each 20 seconds, and the searches for deadlocks")
				require.InDelta(t, 55, p.store.count(of(kindVersions))-compares, 6, "one a second, or a look")

				freed := time.Now()
				require.NoError(t, other.Release(t.Context(), ofStep("a")))
				require.Equal(t, "b", p.turn(t).LockID)
				require.LessOrEqual(t, time.Since(freed), 2*time.Second)
			})
		})
	}
}

// While the versions cannot be read, the process looks as before.
func TestWatchFor_VersionsCannotBeRead_IsNoticedByALook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newParked(t, nil)
		p.store.set(cutting(of(kindVersions)), nil)
		other := newLocker(t, p.store.Store, party.Config{})
		p.enter(t, "a", party.Exclusive("r"))
		p.queue(t, "b", party.Exclusive("r"))
		p.WatchFor("r")
		elapse(time.Minute)
		require.NoError(t, other.Release(t.Context(), ofStep("a")))
		require.Equal(t, "b", p.turn(t).LockID)
	})
}
