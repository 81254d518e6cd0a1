package rules_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// A bar cuts off both entries of a part, or none: the request for an upgrade need not name the saga.
func TestUpgrade_OfAStep_BelongsToItsSaga(t *testing.T) {
	t.Parallel()
	now := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	op := rules.Acquire{
		Resource: "r", Call: "shared", LockID: "w/1", Within: "w", Label: "run", Saga: "s", Part: "p", Order: 1, Mode: rules.Shared, TTL: 10_000,
	}
	d, _ := op.Apply(nil, now)
	op.Call, op.Upgrades, op.Mode, op.Saga, op.Within = "exclusive", "shared", rules.Exclusive, "", ""
	d, result := op.Apply(d, now)
	require.Equal(t, rules.Granted, result.Outcome)
	d, result = rules.Raise{Resource: "r", LockID: "w", Label: "run", Saga: "s", Order: 1}.Apply(d, now)
	require.Equal(t, rules.Busy, result.Outcome)
	require.Len(t, d.Entries, 2)
	for _, e := range d.Entries {
		require.True(t, e.CutOff, "%+v", e)
	}
}
