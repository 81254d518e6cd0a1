package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

func TestDocument_Bytes_IsNoLessThanWhatIsStored(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, text := range []string{"", "x", strings.Repeat("x", 512)} {
		ended := &rules.EndedHold{LockID: text, Fence: 1, Owner: text, Trace: text}
		d := &rules.Document{ID: text, Reserved: &rules.Reservation{By: text, Until: now}, Attn: []string{text}}
		for range 100 {
			d.Entries = append(d.Entries, rules.Entry{
				ID: text, LockID: text, Label: text, Part: text, Order: 1, Mode: rules.Exclusive, State: rules.StateDraining, Fence: 1, FirstFence: 1,
				LeastFence: 1, FirstOrder: 1, HandedOver: true, Joined: true, Within: text, Saga: text, CutOff: true, TTL: 1, ExpiresAt: now, RenewedAt: &now,
				Since: &now, ClaimedAt: &now, Predecessor: ended, PositionExpiresAt: &now, ClaimTTL: 1, CreatedAt: &now, Owner: text, Host: text, Comment: text, Limit: 1, Trace: text,
			})
			d.Waiters = append(d.Waiters, rules.Waiter{
				LockID: text, Label: text, Within: text, Saga: text, Part: text, Order: 1, Mode: rules.Exclusive, Limit: 1, Owner: text, Started: &now,
				NeverVictim: true, Since: now, ExpiresAt: now, OverdueAt: now, Verdict: text, Ahead: true, ClaimTTL: 1,
				Hold: &rules.WaitingHold{ID: text, TTL: 1, Host: text, Comment: text, Trace: text},
			})
			d.Evidence = append(d.Evidence, rules.Evidence{LockID: text, Label: text, To: text, Fence: 1, At: now, By: text, Reason: text})
			d.Releases = append(d.Releases, rules.ReleaseRecord{LockID: text, Label: text, Order: 1, Lost: true})
			d.Bars = append(d.Bars, rules.Bar{LockID: text, Label: text, Saga: text, Part: text, Order: 1})
		}
		stored, err := bson.Marshal(d)
		require.NoError(t, err)
		require.Less(t, len(stored), d.Bytes())
	}
}

// The longest names fill a document long before the queue is full.
func TestAcquire_DocumentWithoutRoom_IsFull(t *testing.T) {
	t.Parallel()
	now := time.Now()
	acquire := func(lockID string, mode string) rules.Acquire {
		long := strings.Repeat("x", 512)
		return rules.Acquire{
			Resource: "r", Call: lockID, LockID: lockID + strings.Repeat("y", 1400), Label: long, Within: strings.Repeat("w", 1500), Saga: long, Part: long,
			Owner: long, Order: 1, Mode: mode, Queue: true, TTL: 1000, HoldTTL: 1000, WaiterTTL: 60_000, MaxWaiters: 5000,
		}
	}
	for name, mode := range map[string]string{"waiters": rules.Exclusive, "holders": rules.Shared} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, result := acquire("holder", mode).Apply(nil, now)
			require.Equal(t, rules.Granted, result.Outcome)
			d, _ = acquire("other/0", mode).Apply(d, now)
			n := 1
			for ; d.Bytes() < rules.MaxBytes-20<<10; n++ { // as many more
				if mode == rules.Exclusive {
					d.Waiters = append(d.Waiters, d.Waiters[0])
					d.Waiters[n].LockID = fmt.Sprint("other/", n, d.Waiters[0].LockID)
				} else {
					d.Entries = append(d.Entries, d.Entries[1])
					d.Entries[n+1].LockID = fmt.Sprint("other/", n, d.Entries[1].LockID)
				}
			}
			require.Greater(t, n, 1000)
			for ; result.Outcome != rules.Full; n++ {
				require.Less(t, n, 5000)
				d, result = acquire(fmt.Sprint("other/", n), mode).Apply(d, now)
			}
			require.True(t, result.ReadOnly)
			require.Less(t, d.Bytes(), rules.MaxBytes+16<<10)

			next := acquire("holder", mode)
			next.Part = "next step"
			d, result = next.Apply(d, now)
			require.Equal(t, rules.Joined, result.Outcome, "others wait for who holds")
			_, result = acquire("other/0", mode).Apply(d, now)
			require.NotEqual(t, rules.Full, result.Outcome, "who has a position keeps it")
			d, result = rules.Leave{Resource: "r", LockID: next.LockID, Part: next.Part, Order: 1}.Apply(d, now)
			require.Equal(t, rules.Granted, result.Outcome)
			require.Less(t, d.Bytes(), rules.MaxBytes+16<<10)
		})
	}
}
