package lockcore_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Timely renewals are tested with a clock that advances only while all goroutines are blocked (testing/synctest): a
// busy machine makes no lease expire too early, and no test waits for an expiry.

// renewals returns the numbers of entries that were extended by one command each, and the number of
// renewals one by one.
func (s *faultStore) renewals() (batches []int, singles int) {
	for _, c := range s.commands(of(kindExtend)) {
		batches = append(batches, len(c.parts))
	}
	return batches, s.count(of(kindSwap), renews)
}

func sessions(t *testing.T, l *lockcore.Steps, first, n int) []*lockcore.Session {
	t.Helper()
	var out []*lockcore.Session
	for i := first; i < first+n; i++ {
		s := tryAcquire(t, l, request(fmt.Sprint("holder/", i), lockcore.Exclusive(fmt.Sprint("r/", i))))
		out = append(out, s)
	}
	return out
}

func TestKeeper_ManySessions_AreRenewedTogether(t *testing.T) {
	virtual(t, lockcore.Config{TTL: 3 * time.Second}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		const n = 500
		var all []*lockcore.Session
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

func TestKeeper_OneOfABatchLost_OthersContinue(t *testing.T) {
	virtual(t, lockcore.Config{TTL: time.Second}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		all := sessions(t, l, 0, 3)
		revoke(t, l, "holder/1", "an operator said so", "r/1", "r/2")
		<-all[1].Context().Done()
		lost := errorAs[*lockcore.LostError](t, context.Cause(all[1].Context()))
		require.Equal(t, "an operator said so", lost.Reason)
		for _, s := range []*lockcore.Session{all[0], all[2]} {
			require.NoError(t, s.Context().Err())
			require.NoError(t, s.Release(t.Context()))
		}
	})
}

func TestKeeper_ErrorsOfTheDatabase_LoseOnlyIfTheyLast(t *testing.T) {
	virtual(t, lockcore.Config{TTL: 2 * time.Second}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		all := sessions(t, l, 0, 3)
		e.set(cutting(renews), nil)
		require.Eventually(t, func() bool { b, s := e.renewals(); return len(b)+s >= 2 }, 10*time.Second, time.Millisecond, "it is tried again soon")
		e.set(nil, nil)
		require.Eventually(t, func() bool { return e.Document("r/0").Entries[0].RenewedAt != nil }, 10*time.Second, time.Millisecond)
		for _, s := range all {
			require.NoError(t, s.Context().Err())
		}
		e.set(cutting(renews), nil)
		for _, s := range all {
			<-s.Context().Done()
			require.ErrorIs(t, context.Cause(s.Context()), lockcore.ErrLost)
			require.ErrorContains(t, context.Cause(s.Context()), "could not be renewed in time")
			require.True(t, e.Document("r/0").Entries[0].ExpiresAt.After(time.Now()), "it is told before others are let in")
		}
	})
}

func TestNewSession_LateLease_IsRenewedAtOnce(t *testing.T) {
	virtual(t, lockcore.Config{TTL: time.Second}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		req := numbered("a", lockcore.Exclusive("r"))
		req.Call = "the same"
		leases := enter(t, l, req)
		elapse(650 * time.Millisecond)
		require.True(t, leases[0].Valid())
		for _, s := range []*lockcore.Session{l.NewSession(t.Context(), leases), tryAcquire(t, l, req)} {
			require.False(t, done(s, time.Second), "lost after %d renewals: %v", e.count(of(kindExtend)), context.Cause(s.Context()))
		}
	})
}

func TestKeeper_ShortSessions_DoNotBoundLongRenewals(t *testing.T) {
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
			if renews(c) {
				return slow(ctx)
			}
			return nil
		}, nil)
		l := newLocker(t, e, lockcore.Config{})
		req := request("long", lockcore.Exclusive("long"))
		req.TTL = 3 * time.Second
		long := tryAcquire(t, l, req)
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
					r := request(fmt.Sprint("s", i), lockcore.Exclusive(fmt.Sprint("s", i)))
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

func TestKeeper_OneDocumentFails_OthersAreRenewed(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(...condition) hook{"fails": cutting, "hangs": hanging} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", lost: ", lost), func(t *testing.T) {
				virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
					all := sessions(t, l, 0, 5)
					if lost {
						revoke(t, l, "holder/2", "test", "r/2")
					}
					e.set(fault(of(kindLoad, kindExtend, kindSwap), onResource("r/2")), nil)
					<-all[2].Context().Done()
					elapse(2 * time.Minute)
					for i, s := range all {
						if i != 2 {
							require.NoError(t, context.Cause(s.Context()), "session %d", i)
							require.True(t, s.Leases()[0].Valid())
						}
					}
				})
			})
		}
	}
}

// The commands for many documents hang, as those of a shard without a primary.
func TestKeeper_ManyDocumentsHang_OthersAreRenewed(t *testing.T) {
	t.Parallel()
	for _, hang := range []int{1, 30, 55} {
		t.Run(fmt.Sprint(hang), func(t *testing.T) {
			virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
				var all []*lockcore.Session
				for i := range 60 {
					all = append(all, sessions(t, l, i, 1)...)
					elapse(10 * time.Millisecond)
				}
				e.set(hanging(func(c command) bool {
					return slices.ContainsFunc(c.names, func(name string) bool {
						n, _ := strconv.Atoi(strings.TrimPrefix(name, "r/"))
						return n < hang
					})
				}), nil)
				elapse(2 * time.Minute)
				for i, s := range all[hang:] {
					require.NoError(t, s.Lost(), "session %d", hang+i)
				}
			})
		})
	}
}

// Leases that only a swap renews do not wait for a batch whose document is reserved.
func TestKeeper_ReservedDocument_UpgradedLeasesOnOthersAreRenewed(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		tryAcquire(t, l, withTTL(12*time.Second, request("busy", lockcore.Exclusive("busy"))))
		var all []*lockcore.Session
		for i := range 8 {
			name := fmt.Sprint("r/", i)
			s := tryAcquire(t, l, withTTL(time.Second, request(name, lockcore.Shared(name))))
			require.NoError(t, s.Upgrade(t.Context(), name))
			all = append(all, s)
			elapse(41 * time.Millisecond)
		}
		elapse(3500 * time.Millisecond) // the renewal of the busy document is due soon
		for range 2 {
			require.NoError(t, e.Reserve(t.Context(), "busy", rules.Reservation{By: "other", Until: time.Now().Add(3 * time.Second)}))
			elapse(2900 * time.Millisecond)
		}
		elapse(10 * time.Second)
		for i, s := range all {
			require.NoError(t, s.Lost(), "session %d", i)
		}
	})
}

// A short lease does not share a command with a long one: it might take as long as that one lasts.
func TestKeeper_CommandForALongLeaseHangs_ShortLeasesAreRenewed(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		tryAcquire(t, l, withTTL(30*time.Second, request("long", lockcore.Exclusive("long"))))
		var all []*lockcore.Session
		for i := range 8 {
			all = append(all, tryAcquire(t, l, withTTL(3*time.Second, request(fmt.Sprint("short/", i), lockcore.Exclusive(fmt.Sprint("r/", i))))))
			elapse(123 * time.Millisecond)
		}
		elapse(8 * time.Second) // the renewal of the long one is due soon
		e.set(times(1, hanging(), of(kindExtend), onResource("long")), nil)
		elapse(20 * time.Second)
		for i, s := range all {
			require.NoError(t, s.Lost(), "session %d", i)
		}
	})
}

func TestKeeper_EndlessSession_IsRenewedRarely(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		for name, ttl := range map[string]time.Duration{"short": 100 * time.Millisecond, "endless": lockcore.Forever} {
			req := request(name, lockcore.Exclusive(name))
			req.TTL = ttl
			tryAcquire(t, l, req)
		}
		elapse(time.Minute)
		n := e.count(of(kindExtend, kindSwap), onResource("endless")) - 1 // the first makes it
		require.LessOrEqual(t, n, 12)
		require.GreaterOrEqual(t, n, 3, "it is confirmed like any other")
	})
}

func TestKeeper_EndlessLeaseUnconfirmed_IsLost(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		s := tryAcquire(t, l, endless("a", lockcore.Exclusive("r")))
		elapse(time.Minute)
		require.NoError(t, s.Lost())
		e.set(cutting(renews), nil)
		elapse(15 * time.Second)
		require.True(t, s.Leases()[0].Valid(), "a passing error loses nothing")
		elapse(15 * time.Second)
		require.False(t, s.Leases()[0].Valid())
		require.ErrorIs(t, s.Lost(), lockcore.ErrLost)
	})
}

// An operator's release is noticed within seconds by a holder whose process watches the queue, and at the next renewal by others.
func TestKeeper_ForcedRelease_IsNoticedSoonWhereTheQueueIsWatched(t *testing.T) {
	for name, c := range map[string]struct {
		watches bool
		within  time.Duration
	}{"watched": {true, 3 * time.Second}, "not watched": {false, 21 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			virtual(t, lockcore.Config{TTL: time.Minute}, func(t *testing.T, l *lockcore.Steps, db *faultStore) {
				other := newLocker(t, db.Store, lockcore.Config{})
				t.Cleanup(l.OnWakeup(func(lockcore.Wakeup) {}))
				holder := tryAcquire(t, l, request("holder", lockcore.Exclusive("r")))
				queue(t, other, numbered("next", lockcore.Exclusive("r")))
				if c.watches {
					l.WatchFor("r")
				}
				<-time.After(time.Second) // in virtual time, as below
				released := time.Now()
				require.NoError(t, other.Revoke(t.Context(), "r", "holder", holder.Leases()[0].FirstFence, "a drill", true))
				<-holder.Context().Done()
				require.ErrorContains(t, context.Cause(holder.Context()), "a drill")
				require.Less(t, time.Since(released), c.within)
				require.Equal(t, c.watches, time.Since(released) < 10*time.Second, "the test would not notice")
			})
		})
	}
}
