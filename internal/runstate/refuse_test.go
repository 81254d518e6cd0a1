package runstate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestRefuse_NegativeDuration_NamesTheField(t *testing.T) {
	t.Parallel()
	for field, locks := range map[string]Locks{
		"Locks.TTL": {TTL: -time.Second}, "Locks.HoldTTL": {HoldTTL: -time.Second}, "Locks.MaxWait": {MaxWait: -time.Second},
	} {
		var invalid *lockcore.InvalidError
		require.ErrorAs(t, locks.Refuse(), &invalid, field)
		require.Equal(t, field, invalid.Field)
		require.Equal(t, "-1s", invalid.Value)
		require.NotEmpty(t, invalid.Bound)
	}
	require.NoError(t, (&Locks{TTL: lockcore.Forever, HoldTTL: lockcore.Forever, MaxWait: time.Hour}).Refuse())
	require.NoError(t, (&Locks{}).Refuse())
}
