package party_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// cut loses the answers of the next writes after they took effect; a negative number loses all.
func (s *faultStore) cut(answers int) {
	if answers < 0 {
		answers = 1 << 30
	}
	s.set(nil, times(answers, cutting(), of(kindSwap, kindExtend)))
}

// refuse has everything fail, or nothing any longer.
func (s *faultStore) refuse(everything bool) {
	s.set(nil, nil)
	if everything {
		s.set(cutting(), nil)
	}
}

func onFaulty(t *testing.T, cfg party.Config) (*party.Locker, *faultStore) {
	t.Helper()
	e := newFaultStore()
	return newLocker(t, e, cfg), e
}

func TestLostAnswerIsAskedForAgainAndEndsAsIfItHadRunOnce(t *testing.T) {
	t.Parallel()
	l, e := onFaulty(t, party.Config{})
	e.cut(2)
	leases, err := l.TryEnter(t.Context(), request("a", party.Exclusive("r")))
	require.NoError(t, err)
	require.Equal(t, 3, e.count(of(kindSwap)))
	require.Len(t, e.Document("r").Entries, 1)
	require.Equal(t, e.Document("r").Entries[0].Fence, leases[0].Fence, "one grant, not three")
	e.cut(1)
	require.NoError(t, l.Leave(t.Context(), leases...))
	require.Empty(t, e.Document("r").Entries)
}

func TestOutcomeThatStaysUnknownIsSaidAndCleanedUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, e := onFaulty(t, party.Config{})
		e.cut(-1)
		_, err := l.TryEnter(t.Context(), request("a", party.Exclusive("r")))
		var unknown *party.UnknownOutcomeError
		require.ErrorAs(t, err, &unknown)
		require.ErrorIs(t, err, party.ErrUnknownOutcome)
		require.ErrorIs(t, err, errCut)
		require.NotErrorIs(t, err, party.ErrBusy)
		require.Equal(t, "acquire", unknown.Op)
		e.cut(0)
		_, err = l.TryEnter(t.Context(), request("b", party.Exclusive("r")))
		require.NoError(t, err)
	})
}

func TestOutageLosesTheLockOnlyWhenThePromiseEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, e := onFaulty(t, party.Config{TTL: 3 * time.Second})
		s, err := l.TryAcquire(t.Context(), request("a", party.Exclusive("r")))
		require.NoError(t, err)
		first := s.Leases()[0]
		e.cut(4) // one renewal, its repeats, and one more
		require.Eventually(t, func() bool { return s.Leases()[0].Valid() && !first.Valid() }, time.Minute, 10*time.Millisecond, "it is renewed after the outage")
		require.NoError(t, s.Context().Err())

		e.cut(-1)
		<-s.Context().Done()
		var lost *party.LostError
		require.ErrorAs(t, context.Cause(s.Context()), &lost)
		require.Contains(t, lost.Reason, "could not be renewed in time")
		e.cut(0)
		require.NoError(t, s.Release(t.Context()))
	})
}
