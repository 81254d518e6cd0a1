package runstate

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestLocks_Added_HaveStrongerModeAndLongerScope(t *testing.T) {
	t.Parallel()
	outer := &wire.Guard{Resources: wire.Resources(lockcore.Shared("a"), lockcore.Exclusive("b")), TTL: 1, MaxWait: 2}
	inner := &wire.Guard{Resources: wire.Resources(lockcore.Exclusive("a"), lockcore.Exclusive("c")), Scope: wire.ScopeStep, TTL: 3, Try: true}
	require.Equal(t, &wire.Guard{
		Resources: wire.Resources(lockcore.Exclusive("a"), lockcore.Exclusive("b"), lockcore.Exclusive("c")), TTL: 3, MaxWait: 2, Try: true,
	}, addLocks(outer, inner))
	for _, tc := range [][3]string{{"saga", "step", "saga"}, {"step", "saga", "saga"}, {"", "step", ""}, {"step", "", ""}, {"no", "saga", "no"}} {
		require.Equal(t, tc[2], longerScope(tc[0], tc[1]), tc)
	}
}

// What no worker would accept is refused before anything is scheduled.
func TestLocksCheck_Refused_NamesTheField(t *testing.T) {
	t.Parallel()
	one := func(name string) []wire.Resource { return wire.Resources(lockcore.Exclusive(name)) }
	const minute = wire.Duration(time.Minute)
	for field, locks := range map[string]*wire.Guard{
		"Locks.TTL": {Resources: one("r"), TTL: -minute}, "Locks.MaxWait": {Resources: one("r"), MaxWait: -minute},
		"Locks.HoldTTL":           {Resources: one("r"), HoldTTL: 14 * minute},
		"len(Locks.Resources)":    {},
		"Locks.Resources[0].Name": {Resources: one("")}, "Locks.Resources[1].Name": {Resources: append(one("r"), one(strings.Repeat("x", 513))...)},
		"Locks.Resources[0].Limit": {Resources: wire.Resources(lockcore.SharedLimit("r", -1))},
		"Locks.Scope":              {Resources: one("r"), Scope: "galaxy"},
	} {
		var invalid *lockcore.InvalidError
		require.ErrorAs(t, CheckLocks(locks), &invalid, field)
		require.Equal(t, field, invalid.Field)
		require.NotEmpty(t, invalid.Bound)
	}
	const forever = wire.Duration(lockcore.Forever)
	require.ErrorContains(t, CheckLocks(&wire.Guard{Resources: one("r"), TTL: 60 * minute, HoldTTL: 60*minute - 1}), "Locks.TTL")
	require.NoError(t, CheckLocks(&wire.Guard{Resources: one("r"), TTL: forever, HoldTTL: forever, MaxWait: 60 * minute}))
	require.NoError(t, CheckLocks(&wire.Guard{Resources: one("r"), HoldTTL: 15 * minute}))
}
