package runstate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestLocks_Added_HaveStrongerModeAndLongerScope(t *testing.T) {
	t.Parallel()
	outer := &Locks{Resources: []lockcore.Resource{lockcore.Shared("a"), lockcore.Exclusive("b")}, TTL: 1, MaxWait: 2}
	inner := &Locks{Resources: []lockcore.Resource{lockcore.Exclusive("a"), lockcore.Exclusive("c")}, Scope: wire.ScopeStep, TTL: 3, Try: true}
	require.Equal(t, &Locks{
		Resources: []lockcore.Resource{lockcore.Exclusive("a"), lockcore.Exclusive("b"), lockcore.Exclusive("c")}, TTL: 3, MaxWait: 2, Try: true,
	}, outer.add(inner))
	for _, tc := range [][3]string{{"saga", "step", "saga"}, {"step", "saga", "saga"}, {"", "step", ""}, {"step", "", ""}, {"no", "saga", "no"}} {
		require.Equal(t, tc[2], longerScope(tc[0], tc[1]), tc)
	}
}

func TestLocksCheck_NegativeDuration_NamesTheField(t *testing.T) {
	t.Parallel()
	for field, locks := range map[string]Locks{
		"Locks.TTL": {TTL: -time.Second}, "Locks.HoldTTL": {HoldTTL: -time.Second}, "Locks.MaxWait": {MaxWait: -time.Second},
	} {
		var invalid *lockcore.InvalidError
		require.ErrorAs(t, locks.Check(), &invalid, field)
		require.Equal(t, field, invalid.Field)
		require.Equal(t, "-1s", invalid.Value)
		require.NotEmpty(t, invalid.Bound)
	}
	require.NoError(t, (&Locks{TTL: lockcore.Forever, HoldTTL: lockcore.Forever, MaxWait: time.Hour}).Check())
	require.NoError(t, (&Locks{}).Check())
}
