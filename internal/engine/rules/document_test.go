package rules_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/proof/scenarios"
)

func TestDocument_Bytes_IsNoLessThanWhatIsStored(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, text := range []string{"", "x", strings.Repeat("x", 512)} {
		ended := &rules.EndedHold{LockID: text, Fence: 1, Owner: text, Trace: text}
		d := &rules.Document{ID: text, LastMember: text, Reserved: &rules.Reservation{By: text, Until: now}, Attn: []string{text}}
		for range 100 {
			d.Entries = append(d.Entries, rules.Entry{
				ID: text, Caller: rules.Caller{LockID: text, Run: text, Part: text, Order: 1, Saga: text, Within: text}, Mode: rules.Exclusive, State: rules.StateDraining, Fence: 1, FirstFence: 1,
				LeastFence: 1, FirstOrder: 1, Regained: 1, Bars: []rules.Bar{{LockID: text, Run: text, Saga: text, Order: 1}}, Passed: true, CutOff: true, TTL: 1, ExpiresAt: now, RenewedAt: &now,
				Since: &now, ClaimedAt: &now, Predecessor: ended, QueuedUntil: &now, ClaimTTL: 1, CreatedAt: &now, Owner: text, Host: text, Comment: text, Limit: 1, Member: text, Trace: text,
			})
			d.Waiters = append(d.Waiters, rules.Waiter{
				Caller: rules.Caller{LockID: text, Run: text, Part: text, Order: 1, Saga: text, Within: text}, Mode: rules.Exclusive, Limit: 1, Member: text, Priority: 1, Promoted: true, Owner: text, Started: &now,
				NeverVictim: true, Since: now, ExpiresAt: now, OverdueAt: now, Verdict: text, Ahead: true, ClaimTTL: 1,
				Hold: &rules.WaitingHold{ID: text, TTL: 1, Host: text, Comment: text, Trace: text},
			})
			d.Evidence = append(d.Evidence, rules.Evidence{LockID: text, Run: text, To: text, Fence: 1, Number: 1, Order: 1, Member: text, At: now, By: text, Reason: text})
			d.Forced = d.Evidence
			d.Missed = append(d.Missed, rules.Missed{LockID: text, Run: text, Order: 1, Fence: 1, At: now, By: text, Reason: text, UpTo: 1, ReleasedAt: now})
			d.Releases = append(d.Releases, rules.ReleaseRecord{LockID: text, Run: text, Order: 1})
			d.Bars = append(d.Bars, rules.Bar{LockID: text, Run: text, Saga: text, Order: 1})
		}
		stored, err := bson.Marshal(d)
		require.NoError(t, err)
		require.Less(t, len(stored), d.Bytes())
	}
}

// FuzzRules_DamagedDocument applies all operations to documents that no operation leaves. None may
// panic, and none may change the document that it is given.
func FuzzRules_DamagedDocument(f *testing.F) {
	for seed := range uint64(3_000) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		pick := rand.New(rand.NewPCG(seed, 1)).IntN
		d := scenarios.Damaged(pick, start)
		for _, op := range scenarios.AllOps(pick) {
			after, result := op.Apply(d, start.Add(time.Duration(pick(3))*time.Hour), settings)
			if result.Outcome == "" || after.Entries == nil || after.Waiters == nil || after.Evidence == nil || after.Attn == nil {
				t.Errorf("%s and %+v after %+v", result.Outcome, after, op)
			}
			result.Released()
			result.Withdrawn(after.At)
			result.HoldsEnded(after)
			after.ExpiresBy(start)
			readEverything(after)
		}
		readEverything(d)
	})
}

// readEverything calls all functions that read a document.
func readEverything(d *rules.Document) {
	q := d.Queue()
	q.Due()
	for i := range d.Waiters {
		q.Next(&d.Waiters[i])
		d.Queue().NeedsNoClaim(d.Waiters[i].Party())
	}
	for i := range d.Entries {
		e := &d.Entries[i]
		rules.Next(d, &rules.Waiter{Caller: rules.Caller{LockID: e.LockID, Run: e.Run, Part: e.Part, Order: e.Order, Within: e.Within}, Mode: e.Mode})
		d.Replaced(e.LockID, e.Run)
		d.LostBefore(e.LockID, e.FirstFence, e.ExpiresAt)
		d.Keeps(e.LockID, e.Order)
		d.Lost(e.LockID, e.Run, start)
	}
}

func TestReservedByOther_EndsTooLate_IsIgnored(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for left, want := range map[time.Duration]bool{
		-time.Second: false, 0: false, time.Millisecond: true, rules.LongestReservation: true,
		rules.LongestReservation + 1: false, 5 * time.Minute: false, // the server's clock was set back
	} {
		d := &rules.Document{Reserved: &rules.Reservation{By: "other", Until: now.Add(left)}}
		require.Equal(t, want, d.ReservedByOther("this", now), left)
		require.False(t, d.ReservedByOther("other", now), left)
	}
}
