package rules_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// crowdOf returns a document with n shared holders, of which each second one keeps its hold, and an operation that renews
// all but the last.
func crowdOf(n int, now time.Time) (*rules.Document, rules.RenewParts) {
	var d *rules.Document
	op := rules.RenewParts{Resource: "r", Parts: map[rules.PartID]bool{}}
	for i := range n {
		id := fmt.Sprint("holder/", i)
		d, _ = rules.Acquire{
			Resource: "r", Call: id, Caller: rules.Caller{LockID: id, Part: "p", Order: 1}, Mode: rules.Shared, TTL: 30_000, HoldTTL: 60_000, Keep: i%2 == 0,
		}.Apply(d, now)
		if i < n-1 {
			op.Parts[rules.PartID{LockID: id, Part: "p", Order: 1}] = true
		}
	}
	return d, op
}

func TestRenewParts_NamedParts_AreRenewedWithTheirHolds(t *testing.T) {
	t.Parallel()
	began := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	d, op := crowdOf(6, began)
	op.Parts[rules.PartID{LockID: "holder/1", Part: "p", Order: 2}] = true // another order
	delete(op.Parts, rules.PartID{LockID: "holder/1", Part: "p", Order: 1})
	op.Parts[rules.PartID{LockID: "gone", Part: "p", Order: 1}] = true
	before := d.Clone()
	for _, after := range []time.Duration{10 * time.Second, 40 * time.Second} {
		now := began.Add(after)
		renewed, result := op.Apply(d, now)
		require.Equal(t, rules.Granted, result.Outcome)
		require.False(t, result.ReadOnly)
		require.Len(t, renewed.Entries, len(d.Entries))
		for i, e := range renewed.Entries {
			was := &d.Entries[i]
			named := e.LockID != "holder/1" && e.LockID != "holder/5"
			switch {
			case e.State == rules.StateRunning && named:
				require.Equal(t, now.Add(30*time.Second), e.ExpiresAt)
				require.Equal(t, now, *e.RenewedAt)
			case e.State == rules.StateKept && named && after > 30*time.Second: // half of its time is over
				require.Equal(t, now.Add(time.Minute), e.ExpiresAt)
			default:
				require.Equal(t, *was, e)
			}
		}
		require.Equal(t, before, d, "the document that was given is not changed")
	}
}

// A shorter end is never given, and a part with another TTL gets its own.
func TestRenewParts_LaterEnd_Stays(t *testing.T) {
	t.Parallel()
	began := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	d, op := crowdOf(2, began)
	earlier, _ := op.Apply(d, began.Add(-time.Second)) // the server's clock was set back
	for i := range d.Entries {
		require.Equal(t, d.Entries[i].ExpiresAt, earlier.Entries[i].ExpiresAt)
	}
}

func BenchmarkRenewParts(b *testing.B) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	d, op := crowdOf(1000, now)
	for b.Loop() {
		op.Apply(d, now.Add(10*time.Second))
	}
}
