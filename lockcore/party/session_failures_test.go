package party_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

func TestDocumentThatCannotBeWrittenCostsNoOtherSessionItsLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{})
		all := sessions(t, l, 0, 5)
		e.set(cutting(of(kindExtend, kindSwap), onResource("r/2")), nil)
		<-all[2].Context().Done()
		elapse(2 * time.Minute)
		for i, s := range all {
			if i != 2 {
				require.NoError(t, context.Cause(s.Context()), "session %d", i)
				require.True(t, s.Leases()[0].Valid())
			}
		}
	})
}

func TestDocumentThatHangsCostsNoOtherSessionItsLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{})
		all := sessions(t, l, 0, 5)
		e.set(hanging(of(kindExtend, kindSwap), onResource("r/0")), nil)
		<-all[0].Context().Done()
		elapse(2 * time.Minute)
		for _, s := range all[1:] {
			require.NoError(t, context.Cause(s.Context()))
			require.True(t, s.Leases()[0].Valid())
		}
	})
}

func TestEndlessSessionIsNotRenewedWithEveryShortOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{})
		for name, ttl := range map[string]time.Duration{"short": 100 * time.Millisecond, "endless": party.Forever} {
			req := request(name, party.Exclusive(name))
			req.TTL = ttl
			_, err := l.TryAcquire(t.Context(), req)
			require.NoError(t, err)
		}
		elapse(time.Minute)
		n := e.count(of(kindExtend, kindSwap), onResource("endless")) - 1 // the first makes it
		require.LessOrEqual(t, n, 12)
		require.GreaterOrEqual(t, n, 3, "it is confirmed like any other")
	})
}

func TestSessionOfNothingDoesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{})
		s := l.NewSession(t.Context(), nil)
		elapse(time.Hour)
		require.NoError(t, s.Context().Err())
		require.Empty(t, e.commands())
		require.NoError(t, s.Leave(t.Context()))
	})
}

func TestDowngradeWithoutAnAnswerLeavesTheSessionSharedUntilItIsKnown(t *testing.T) {
	t.Parallel()
	e := newFaultStore()
	l := newLocker(t, e, party.Config{})
	s, err := l.TryAcquire(t.Context(), request("a", party.Exclusive("r")))
	require.NoError(t, err)
	e.set(nil, cutting(of(kindSwap)))
	require.ErrorIs(t, s.Downgrade(t.Context()), party.ErrUnknownOutcome)
	e.set(nil, nil)
	_, err = l.TryAcquire(t.Context(), request("b", party.Shared("r")))
	require.NoError(t, err, "the downgrade took effect")
	require.Equal(t, party.ModeShared, s.Leases()[0].Mode, "a reader is in")

	// One that took no effect is made good by the next call, though the session trusts only shared
	// meanwhile.
	c, err := l.TryAcquire(t.Context(), request("c", party.Exclusive("r/2")))
	require.NoError(t, err)
	e.set(cutting(of(kindSwap)), nil)
	require.ErrorIs(t, c.Downgrade(t.Context()), party.ErrUnknownOutcome)
	e.set(nil, nil)
	require.Equal(t, party.ModeShared, c.Leases()[0].Mode)
	require.Equal(t, rules.Exclusive, e.Document("r/2").Entries[0].Mode)
	require.NoError(t, c.Downgrade(t.Context()))
	require.Equal(t, rules.Shared, e.Document("r/2").Entries[0].Mode)
}

func TestLossAfterTheContextEndedIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		s, err := l.TryAcquire(ctx, request("a", party.Exclusive("r")))
		require.NoError(t, err)
		cancel()
		elapse(time.Minute)
		require.NoError(t, s.Lost(), "it is renewed nevertheless")
		require.True(t, s.Leases()[0].Valid())
		_, err = byForce(t.Context(), l, party.Release{Force: true, LockID: "a", Resources: []string{"r"}, Reason: "an operator said so"})
		require.NoError(t, err)
		elapse(time.Minute)
		require.ErrorIs(t, context.Cause(s.Context()), context.Canceled)
		var lost *party.LostError
		require.ErrorAs(t, s.Lost(), &lost)
		require.Equal(t, "an operator said so", lost.Reason)
		require.ErrorIs(t, s.Downgrade(t.Context()), party.ErrLost)
	})
}

func TestEndlessLeaseIsTrustedNoLongerThanItsConfirmationIsOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{})
		s, err := l.TryAcquire(t.Context(), endless("a", party.Exclusive("r")))
		require.NoError(t, err)
		elapse(time.Minute)
		require.NoError(t, s.Lost())
		e.set(cutting(e.renews("")), nil)
		elapse(15 * time.Second)
		require.True(t, s.Leases()[0].Valid(), "a passing error loses nothing")
		elapse(15 * time.Second)
		require.False(t, s.Leases()[0].Valid())
		require.ErrorIs(t, s.Lost(), party.ErrLost)
	})
}
