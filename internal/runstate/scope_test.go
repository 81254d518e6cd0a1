package runstate

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

func TestUses_AddedTwice_KeepTheFirstSchedule(t *testing.T) {
	t.Parallel()
	var u uses
	u.addAll([]lockcore.Resource{lockcore.Exclusive("b"), lockcore.Exclusive("a")}, 0)
	require.Equal(t, []string{"a", "b"}, u.names())
	require.True(t, u.has("a"))
	require.Zero(t, u.heldSince("a"), "it was only requested")
	for _, schedule := range []uint32{5, 3, 4, 0} {
		u.add(wire.Use{Resource: "b", Schedule: schedule})
	}
	require.Equal(t, uses{{Resource: "b", Schedule: 3}}, u.held())
	require.Equal(t, uses{{Resource: "a"}, {Resource: "b", Schedule: 3}}, u)
}

// A resource that two sagas use is released with the last of them.
func TestScopeRelease_ResourceInUseElsewhere_StaysHeld(t *testing.T) {
	t.Parallel()
	s := NewState(nil, nil, "", nil)
	s.ended = true // nothing is scheduled
	one, other := s.newScope(), s.newScope()
	one.uses.addAll([]lockcore.Resource{lockcore.Exclusive("shared"), lockcore.Exclusive("own")}, 1)
	other.uses.addAll([]lockcore.Resource{lockcore.Exclusive("shared")}, 0)
	s.due.add(wire.Use{Resource: "left"})
	one.Release()
	require.Equal(t, []string{"left", "own"}, s.takeReleasable().names())
	require.Zero(t, s.heldSince(other, "own"), "a closed scope holds nothing")
	other.Release()
	require.Equal(t, []string{"shared"}, s.takeReleasable().names())
	require.Empty(t, s.takeReleasable())
}

func TestIsUndecided_LocalActivityFailed_IsRepeatedUnlessDecided(t *testing.T) {
	t.Parallel()
	busy, req := &lockcore.BusyError{Resource: "r"}, party.Request{Resources: []lockcore.Resource{lockcore.Exclusive("r")}}
	for name, tc := range map[string]struct {
		err       error
		undecided bool
	}{
		"timeout":   {errors.New("a timeout"), true},
		"database":  {wire.Failure(errors.New("no primary")), true},
		"cancelled": {temporal.NewCanceledError(), false},
		"busy":      {wire.ParkFailure(busy, req, ""), false},
		"lost":      {wire.Failure(&lockcore.LostError{}), false},
		"invalid":   {wire.Failure(&lockcore.InvalidError{}), false},
	} {
		require.Equal(t, tc.undecided, isUndecided(tc.err), name)
	}
}
