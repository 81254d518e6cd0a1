package lockcore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

func done(s *lockcore.Session, d time.Duration) bool {
	select {
	case <-s.Context().Done():
		return true
	case <-time.After(d):
		return false
	}
}

func TestSession_EndlessLeaseForced_EndsInTime(t *testing.T) {
	virtual(t, lockcore.Config{TTL: time.Second}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		req := endless("a", lockcore.Exclusive("a"))
		s := tryAcquire(t, l, req)
		revoke(t, l, "a", "op", "a")
		released := time.Now()
		next := acquireLater(t.Context(), l, request("b", lockcore.Exclusive("a")))
		require.True(t, done(s, 11*time.Second), "a was not told")
		require.NoError(t, (<-next).err)
		waited := time.Since(released)
		require.True(t, waited >= rules.EndlessTTL && waited < rules.EndlessTTL+time.Second, "b was let in after %v: a had trusted its lease", waited)
	})
}

func TestSessionRelease_HoldWasLost_ReturnsLostError(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, _ *faultStore) {
		begin := func(lockID string) *lockcore.Session {
			return tryAcquire(t, l, request(lockID, lockcore.Exclusive("r")))
		}
		force := func(s *lockcore.Session) {
			lease := s.Leases()[0]
			require.NoError(t, l.Revoke(t.Context(), "r", lease.LockID, lease.FirstFence, "by hand", true))
		}
		forced := begin("a")
		force(forced)
		lost := errorAs[*lockcore.LostError](t, forced.Release(t.Context()))
		require.Equal(t, "by hand", lost.Reason)
		ended := begin("a")
		require.NoError(t, l.Release(t.Context(), lockcore.Release{LockID: "a", Resources: []string{"r"}, FirstFence: ended.Leases()[0].FirstFence}))
		require.NoError(t, ended.Release(t.Context()), "it was released, and not lost")
		for i := range rules.MaxEvidence + 1 {
			force(begin(fmt.Sprint("b", i)))
		}
		require.ErrorAs(t, ended.Release(t.Context()), &lost)
		require.Contains(t, lost.Reason, "not known any longer")
	})
}

func TestSessionRelease_EarlierAttempt_Drains(t *testing.T) {
	t.Parallel()
	l := setup(t, lockcore.Config{})
	req := lockcore.StepRequest{Caller: lockcore.Caller{LockID: "saga", Part: "step", Order: lockcore.Order{Schedule: 1, Attempt: 1}}, Resources: []lockcore.Resource{lockcore.Exclusive("r")}}
	old := enter(t, l.Steps, req)
	req.Order.Attempt = 2
	s := tryAcquire(t, l.Steps, req)
	require.NoError(t, s.Release(t.Context()))
	require.True(t, old[0].Valid())
	requireBusy(t, l.Steps, request("other", lockcore.Exclusive("r"))) // the zombie still trusts
}

func TestNewSession_NoLeases_DoesNothing(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		s := l.NewSession(t.Context(), nil)
		elapse(time.Hour)
		require.NoError(t, s.Context().Err())
		require.Empty(t, e.commands())
		require.NoError(t, s.Leave(t.Context()))
	})
}

func TestSession_LostAfterItsContextEnded_ReportsTheLoss(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := l.TryAcquire(ctx, request("a", lockcore.Exclusive("r")))
		require.NoError(t, err)
		cancel()
		elapse(time.Minute)
		require.NoError(t, s.Lost(), "it is renewed nevertheless")
		require.True(t, s.Leases()[0].Valid())
		revoke(t, l, "a", "an operator said so", "r")
		elapse(time.Minute)
		require.ErrorIs(t, context.Cause(s.Context()), context.Canceled)
		lost := errorAs[*lockcore.LostError](t, s.Lost())
		require.Equal(t, "an operator said so", lost.Reason)
		require.ErrorIs(t, s.Downgrade(t.Context()), lockcore.ErrLost)
	})
}

func TestNewSession_LeaseOfAnotherProcess_NeedsRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := lockcoretest.NewStore(time.Now)
		elsewhere, l := newLocker(t, mem, lockcore.Config{}), newLocker(t, mem, lockcore.Config{})
		leases := enter(t, elsewhere, request("a", lockcore.Exclusive("r")))
		sent, err := json.Marshal(leases)
		require.NoError(t, err)
		var got []lockcore.Lease
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
		require.ErrorIs(t, context.Cause(gone.Context()), lockcore.ErrLost)
		require.NoError(t, s.Context().Err(), "the lock itself stands")
		require.NoError(t, s.Release(t.Context()))
	})
}
