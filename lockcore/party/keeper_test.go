package party_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// What is renewed in time is tested where time stands still while anybody works (testing/synctest): a machine that is
// busy ends no promise too early, and no test waits for one.

// renewals returns the numbers of entries that were extended by one command each, and the number of
// renewals one by one.
func (s *faultStore) renewals() (batches []int, singles int) {
	for _, c := range s.commands(of(kindExtend)) {
		batches = append(batches, len(c.parts))
	}
	return batches, s.count(of(kindSwap), s.renews(""))
}

func sessions(t *testing.T, l *party.Locker, first, n int) []*party.Session {
	t.Helper()
	var out []*party.Session
	for i := first; i < first+n; i++ {
		s, err := l.TryAcquire(t.Context(), request(fmt.Sprint("holder/", i), party.Exclusive(fmt.Sprint("r/", i))))
		require.NoError(t, err)
		out = append(out, s)
	}
	return out
}

func TestSessionsOfOneProcessAreRenewedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{TTL: 3 * time.Second})
		const n = 500
		var all []*party.Session
		for i := range n { // one after the other, as sessions begin
			all = append(all, sessions(t, l, i, 1)...)
			elapse(time.Millisecond)
		}
		require.Eventually(t, func() bool {
			renewed := 0
			for i := range n {
				if e.Document(fmt.Sprint("r/", i)).Entries[0].RenewedAt != nil {
					renewed++
				}
			}
			return renewed == n
		}, 30*time.Second, 10*time.Millisecond, "all are renewed")
		batches, singles := e.renewals()
		require.LessOrEqual(t, len(batches)+singles, n/50, "in few commands")
		for _, s := range all {
			require.NoError(t, s.Context().Err())
			require.True(t, s.Leases()[0].Valid())
			require.NoError(t, s.Release(t.Context()))
		}
	})
}

func TestOneOfABatchThatIsLostIsToldAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{TTL: time.Second})
		all := sessions(t, l, 0, 3)
		held, err := byForce(t.Context(), l, party.Release{Force: true, LockID: "holder/1", Resources: []string{"r/1", "r/2"}, Reason: "an operator said so"})
		require.NoError(t, err)
		require.Equal(t, []string{"r/1"}, held)
		<-all[1].Context().Done()
		var lost *party.LostError
		require.ErrorAs(t, context.Cause(all[1].Context()), &lost)
		require.Equal(t, "an operator said so", lost.Reason)
		for _, s := range []*party.Session{all[0], all[2]} {
			require.NoError(t, s.Context().Err())
			require.NoError(t, s.Release(t.Context()))
		}
	})
}

func TestQuestionAboutALostLeaseDoesNotCostTheOthersTheirs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{TTL: time.Second})
		all := sessions(t, l, 0, 3)
		_, err := byForce(t.Context(), l, party.Release{Force: true, LockID: "holder/1", Resources: []string{"r/1"}, Reason: "test"})
		require.NoError(t, err)
		e.set(hanging(of(kindLoad, kindSwap), onResource("r/1")), nil)
		// Its end is told when it cannot be trusted any more; by then the others were renewed.
		<-all[1].Context().Done()
		for _, s := range []*party.Session{all[0], all[2]} {
			require.NoError(t, s.Context().Err())
			require.NotNil(t, e.Document(s.Leases()[0].Resource).Entries[0].RenewedAt)
			require.NoError(t, s.Release(t.Context()))
		}
	})
}

func TestPassingErrorOfTheDatabaseLosesNothingAndALastingOneIsToldInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{TTL: 2 * time.Second})
		all := sessions(t, l, 0, 3)
		e.set(cutting(e.renews("")), nil)
		require.Eventually(t, func() bool { b, s := e.renewals(); return len(b)+s >= 2 }, 10*time.Second, time.Millisecond, "it is tried again soon")
		e.set(nil, nil)
		require.Eventually(t, func() bool { return e.Document("r/0").Entries[0].RenewedAt != nil }, 10*time.Second, time.Millisecond)
		for _, s := range all {
			require.NoError(t, s.Context().Err())
		}
		e.set(cutting(e.renews("")), nil)
		for _, s := range all {
			<-s.Context().Done()
			require.ErrorIs(t, context.Cause(s.Context()), party.ErrLost)
			require.ErrorContains(t, context.Cause(s.Context()), "could not be renewed in time")
			require.True(t, e.Document("r/0").Entries[0].ExpiresAt.After(time.Now()), "it is told before others are let in")
		}
	})
}

func TestDowngradeLetsReadersInAndKeepsTheFence(t *testing.T) {
	t.Parallel()
	l := newLocker(t, lockcoretest.NewStore(time.Now), party.Config{})
	s, err := l.TryAcquire(t.Context(), request("a", party.Exclusive("r")))
	require.NoError(t, err)
	fence := s.Leases()[0].Fence
	_, err = l.TryAcquire(t.Context(), request("b", party.Shared("r")))
	require.ErrorIs(t, err, party.ErrBusy)
	require.NoError(t, s.Downgrade(t.Context()))
	require.Equal(t, party.ModeShared, s.Leases()[0].Mode)
	require.Equal(t, fence, s.Leases()[0].Fence)
	b, err := l.TryAcquire(t.Context(), request("b", party.Shared("r")))
	require.NoError(t, err)
	require.NoError(t, b.Release(t.Context()))
	require.NoError(t, s.Upgrade(t.Context(), "r"))
	require.Equal(t, party.ModeExclusive, s.Leases()[0].Mode)
	require.Greater(t, s.Leases()[0].Fence, fence)
	require.ErrorIs(t, s.Upgrade(t.Context(), "elsewhere"), party.ErrInvalid)
	require.NoError(t, s.Release(t.Context()))
}

func TestLeaseOfAnotherProcessIsTrustedAndKeptAfterItWasRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := lockcoretest.NewStore(time.Now)
		elsewhere, l := newLocker(t, mem, party.Config{}), newLocker(t, mem, party.Config{})
		leases, err := elsewhere.TryEnter(t.Context(), request("a", party.Exclusive("r")))
		require.NoError(t, err)
		sent, err := json.Marshal(leases)
		require.NoError(t, err)
		var got []party.Lease
		require.NoError(t, json.Unmarshal(sent, &got))
		require.False(t, got[0].Valid())
		renewed, err := l.Renew(t.Context(), got...)
		require.NoError(t, err)
		s := l.NewSession(t.Context(), renewed)
		require.True(t, s.Leases()[0].Valid())
		elapse(time.Minute)
		require.NoError(t, s.Context().Err())

		// As it came, its age is not known.
		gone := l.NewSession(t.Context(), got)
		<-gone.Context().Done()
		require.ErrorIs(t, context.Cause(gone.Context()), party.ErrLost)
		require.NoError(t, s.Context().Err(), "the lock itself stands")
		require.NoError(t, s.Release(t.Context()))
	})
}
