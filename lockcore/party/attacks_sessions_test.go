package party_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

func done(s *party.Session, d time.Duration) bool {
	select {
	case <-s.Context().Done():
		return true
	case <-time.After(d):
		return false
	}
}

func TestSessionThatBeginsLateIsRenewedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{TTL: time.Second})
		ls, err := l.TryEnter(t.Context(), request("a", party.Exclusive("r")))
		require.NoError(t, err)
		elapse(650 * time.Millisecond)
		require.True(t, ls[0].Valid())
		s := l.NewSession(t.Context(), ls)
		require.False(t, done(s, time.Second), "lost after %d renewals: %v", e.count(of(kindExtend)), context.Cause(s.Context()))
	})
}

func TestSessionOnAnOlderGrantIsRenewedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{TTL: time.Second})
		req := request("a", party.Exclusive("r"))
		req.Part, req.Order, req.Call = "p", party.Order{Schedule: 1, Attempt: 1}, "the same"
		_, err := l.TryEnter(t.Context(), req)
		require.NoError(t, err)
		elapse(700 * time.Millisecond)
		s, err := l.TryAcquire(t.Context(), req)
		require.NoError(t, err)
		require.False(t, done(s, time.Second), "lost after %d renewals: %v", e.count(of(kindExtend)), context.Cause(s.Context()))
	})
}

func TestShortSessionsDoNotBoundTheRenewalOfALongOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		slow := func(ctx context.Context) error { // a database that takes 80 ms
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(80 * time.Millisecond):
				return nil
			}
		}
		e.set(func(ctx context.Context, c command) error {
			if e.renews("")(c) {
				return slow(ctx)
			}
			return nil
		}, nil)
		l := newLocker(t, e, party.Config{})
		req := request("long", party.Exclusive("long"))
		req.TTL = 3 * time.Second
		long, err := l.TryAcquire(t.Context(), req)
		require.NoError(t, err)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		defer wg.Wait()
		defer close(stop)
		for i := range 8 {
			wg.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					r := request(fmt.Sprint("s", i), party.Exclusive(fmt.Sprint("s", i)))
					r.TTL = 120 * time.Millisecond
					s, err := l.TryAcquire(context.Background(), r)
					if err != nil {
						t.Errorf("nobody else wants it: %v", err)
						return
					}
					done(s, 150*time.Millisecond)
					_ = s.Release(context.Background())
				}
			})
		}
		require.False(t, done(long, 10*time.Second), "%v", context.Cause(long.Context()))
	})
}

func TestHolderWithoutEndIsToldOfAForcedRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{TTL: time.Second})
		req := request("a", party.Exclusive("a"))
		req.TTL = party.Forever
		s, err := l.TryAcquire(t.Context(), req)
		require.NoError(t, err)
		_, err = byForce(t.Context(), l, party.Release{Force: true, LockID: "a", Resources: []string{"a"}, Reason: "op"})
		require.NoError(t, err)
		released := time.Now()
		next := acquireLater(t.Context(), l, request("b", party.Exclusive("a")))
		require.True(t, done(s, 11*time.Second), "a was not told")
		require.NoError(t, (<-next).err)
		waited := time.Since(released)
		require.True(t, waited >= rules.EndlessTTL && waited < rules.EndlessTTL+time.Second, "b was let in after %v: a had trusted its lease", waited)
	})
}

func TestUpgradeGrantedToASessionThatEndedIsGivenBack(t *testing.T) {
	t.Parallel()
	e := newFaultStore()
	l := newLocker(t, e, party.Config{})
	s, err := l.TryAcquire(t.Context(), request("a", party.Shared("r")))
	require.NoError(t, err)
	released := make(chan error, 1)
	e.set(nil, times(1, func(context.Context, command) error { // the answer is on its way
		go func() { released <- s.Release(context.Background()) }()
		<-s.Context().Done()
		return nil
	}, grants("a")))
	require.ErrorIs(t, s.Upgrade(t.Context(), "r"), party.ErrEnded)
	require.NoError(t, <-released)
	require.Empty(t, e.Document("r").Entries, "released, ended, and still held by nobody's session")
}

func TestDrainIsNoDeadlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newFaultStore()
		l := newLocker(t, e, party.Config{TTL: 4 * time.Second})
		_, err := l.TryEnter(t.Context(), request("A", party.Exclusive("r1")))
		require.NoError(t, err)
		_, err = l.TryAcquire(t.Context(), request("B", party.Exclusive("r2")))
		require.NoError(t, err)
		_, err = byForce(t.Context(), l, party.Release{Force: true, LockID: "A", Resources: []string{"r1"}, Reason: "op"})
		require.NoError(t, err)
		b := acquireLater(t.Context(), l, request("B", party.Exclusive("r1")))
		eventually(t, 1, waitersOf(e, "r1"), "")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a := acquireLater(ctx, l, request("A", party.Exclusive("r2")))
		select {
		case got := <-a:
			t.Fatal(got.err)
		case got := <-b:
			require.NoError(t, got.err)
		}
	})
}

func TestReleaseOfASessionSaysThatItsHoldWasLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, newFaultStore(), party.Config{})
		begin := func(lockID string) *party.Session {
			s, err := l.TryAcquire(t.Context(), request(lockID, party.Exclusive("r")))
			require.NoError(t, err)
			return s
		}
		force := func(s *party.Session) {
			lease := s.Leases()[0]
			_, err := l.ReleaseHeld(t.Context(), party.Release{Force: true,
				LockID: lease.LockID, Resources: []string{"r"}, FirstFence: lease.FirstFence, Reason: "by hand", Now: true,
			})
			require.NoError(t, err)
		}
		forced := begin("a")
		force(forced)
		var lost *party.LostError
		require.ErrorAs(t, forced.Release(t.Context()), &lost)
		require.Equal(t, "by hand", lost.Reason)
		ended := begin("a")
		require.NoError(t, l.Release(t.Context(), party.Release{LockID: "a", Resources: []string{"r"}, FirstFence: ended.Leases()[0].FirstFence}))
		require.NoError(t, ended.Release(t.Context()), "it was released, and not lost")
		for i := range rules.MaxEvidence + 1 {
			force(begin(fmt.Sprint("b", i)))
		}
		require.ErrorAs(t, ended.Release(t.Context()), &lost)
		require.Contains(t, lost.Reason, "not known any longer")
	})
}
