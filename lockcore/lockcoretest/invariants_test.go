package lockcoretest_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// picker draws what lockcoretest asks for.
func picker(t *rapid.T) func(int) int {
	return func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }
}

func TestSpecificationKeepsTheInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pick := picker(t)
		var watch lockcoretest.Invariants
		var d rules.Document
		now := start
		for step := range rapid.IntRange(1, 60).Draw(t, "operations") {
			now = now.Add(time.Duration(pick(4)*pick(4)) * 2 * time.Second)
			var op any
			if pick(10) == 1 {
				batch := lockcoretest.Batch(pick, d)
				if _, extended := lockcoretest.Extend(d, batch, now); !extended || len(batch) == 0 {
					continue
				}
				op = batch
			} else {
				op = lockcoretest.Random(pick, d, "r", step)
			}
			after := lockcoretest.Next(d, op, now)
			t.Logf("%v %s: %+v", now.Sub(start), after.Last.Outcome, op)
			require.NoError(t, watch.Check(lockcoretest.Step{Op: op, Before: d, After: after}))
			if repeatable(op, after) {
				twice := lockcoretest.Next(after, op, now)
				require.NoError(t, lockcoretest.Repeated(lockcoretest.Next(after, nothing, now), twice))
			}
			d = after
		}
	})
}

// backwards is how far a server's time was seen to run backwards between two writes of one document.
const backwards = 75 * time.Millisecond

// TestInvariantsHoldWhereTheClockRunsBackwards has operations that began at one time take effect after
// others that began later.
func TestInvariantsHoldWhereTheClockRunsBackwards(t *testing.T) {
	t.Parallel()
	for range 20 { // what it looks for is rare
		rapid.Check(t, runBackwards)
	}
}

func runBackwards(t *rapid.T) {
	pick := picker(t)
	var watch lockcoretest.Invariants
	m := newInMemory()
	var jump time.Duration
	for step := range rapid.IntRange(1, 60).Draw(t, "operations") {
		// Most TTLs end in this step or shortly before: where what has ended may live again.
		m.clock.Advance(jump + time.Duration(pick(4)*pick(4))*2*time.Second + time.Duration(pick(3))*backwards/2)
		jump = 0
		if pick(3) == 1 {
			jump = time.Duration(1+pick(int(backwards.Milliseconds()))) * time.Millisecond
		}
		m.clock.Advance(-jump)
		before := m.Document("r")
		var op any
		if pick(10) == 1 {
			op = m.renewAll(t, lockcoretest.Batch(pick, before))
		} else {
			op = lockcoretest.Random(pick, before, "r", step)
			_, err := lockcoretest.Apply(t.Context(), m, op)
			require.NoError(t, err)
		}
		after := m.Document("r")
		t.Logf("%v, %v back, %s: %+v", m.clock.Now().Sub(start), jump, after.Last.Outcome, op)
		if op != nil {
			require.NoError(t, watch.Check(lockcoretest.Step{Op: op, Before: before, After: after}))
		}
	}
}

// renewAll extends a batch, and returns it; nil where it was not extended.
func (m inMemory) renewAll(t *rapid.T, batch []rules.Renew) any {
	renewed, err := m.RenewAll(t.Context(), batch)
	require.NoError(t, err)
	if len(batch) == 0 || slices.Contains(renewed, false) {
		return nil
	}
	return batch
}

// nothing is a write that names nothing, and settles.
var nothing = rules.Withdraw{Policy: rules.Policy{ClaimTTL: 20_000}, Resource: "r", LockID: "nobody"}

// repeatable is false for a batch, which does not settle; for a request that took nothing, or whose place was
// granted meanwhile: when it comes again it may find more; and for one whose own hold was displaced by that very write.
func repeatable(op any, after rules.Document) bool {
	switch op := op.(type) {
	case []rules.Renew:
		return false
	case rules.Acquire:
		outcome := after.Last.Outcome
		displaced := slices.ContainsFunc(after.Last.Expired, func(e rules.Entry) bool { return e.LockID == op.LockID })
		return outcome != rules.Busy && outcome != rules.Full && after.Claim(op.LockID, op.Part) == nil && !displaced
	}
	return true
}
