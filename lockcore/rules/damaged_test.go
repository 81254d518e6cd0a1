package rules_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/proof/scenarios"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

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
			after, result := op.Apply(d, start.Add(time.Duration(pick(3))*time.Hour))
			if result.Outcome == "" || after.Entries == nil || after.Waiters == nil || after.Evidence == nil || after.Attn == nil {
				t.Errorf("%s and %+v after %+v", result.Outcome, after, op)
			}
			result.Released()
			result.Withdrawn(after.At)
			after.ExpiresBy(start)
			look(after)
		}
		look(d)
	})
}

// look asks a document all that readers ask.
func look(d *rules.Document) {
	q := d.Queue()
	q.Due()
	for i := range d.Waiters {
		q.Next(&d.Waiters[i])
		d.NeedsNoClaim(d.Waiters[i].Party())
	}
	for i := range d.Entries {
		e := &d.Entries[i]
		rules.Next(d, &rules.Waiter{LockID: e.LockID, Part: e.Part, Order: e.Order, Mode: e.Mode, Label: e.Label, Within: e.Within})
		d.Replaced(e.LockID, e.Label)
		d.LostBefore(e.LockID, e.FirstFence, e.ExpiresAt)
		d.Keeps(e.LockID, e.Order)
	}
}
