package runstate

import (
	"errors"
	"testing"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/temporal"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestUsesAreInTheOrderOfTheirNamesWithTheFirstSchedule(t *testing.T) {
	t.Parallel()
	var u uses
	u.addAll([]lockcore.Resource{lockcore.Exclusive("b"), lockcore.Exclusive("a")}, 0)
	require.Equal(t, []string{"a", "b"}, u.names())
	require.True(t, u.has("a"))
	require.False(t, u.holds("a"), "it was asked for, and no more")
	for _, schedule := range []uint32{5, 3, 4, 0} {
		u.add(wire.Use{Resource: "b", Schedule: schedule})
	}
	require.Equal(t, uses{{Resource: "b", Schedule: 3}}, u.held())
	require.Equal(t, uses{{Resource: "a"}, {Resource: "b", Schedule: 3}}, u)
}

// What two sagas use is released with the last of them.
func TestWhatIsFreeAtTheEndOfAScope(t *testing.T) {
	t.Parallel()
	s := NewState(nil, nil, "")
	one, other := s.newScope(), s.newScope()
	one.uses.addAll([]lockcore.Resource{lockcore.Exclusive("shared"), lockcore.Exclusive("own")}, 1)
	other.uses.addAll([]lockcore.Resource{lockcore.Exclusive("shared")}, 0)
	s.due.add(wire.Use{Resource: "left"})
	one.retire()
	require.Equal(t, []string{"left", "own"}, s.free().names())
	require.False(t, s.knows(other, "own"), "what has ended is not known to be held")
	other.retire()
	require.Equal(t, []string{"shared"}, s.free().names())
	require.Empty(t, s.free())
}

func TestGuardsAddUpToTheStrongerModeAndTheLongerScope(t *testing.T) {
	t.Parallel()
	outer := &Locks{Resources: []lockcore.Resource{lockcore.Shared("a"), lockcore.Exclusive("b")}, TTL: 1, MaxWait: 2}
	inner := &Locks{Resources: []lockcore.Resource{lockcore.Exclusive("a"), lockcore.Exclusive("c")}, Scope: wire.ScopeStep, TTL: 3, Try: true}
	require.Equal(t, &Locks{
		Resources: []lockcore.Resource{lockcore.Exclusive("a"), lockcore.Exclusive("b"), lockcore.Exclusive("c")}, TTL: 3, MaxWait: 2, Try: true,
	}, outer.with(inner))
	for _, tc := range [][3]string{{"saga", "step", "saga"}, {"step", "saga", "saga"}, {"", "step", ""}, {"step", "", ""}, {"no", "saga", "no"}} {
		require.Equal(t, tc[2], longer(tc[0], tc[1]), tc)
	}
}

func TestWhatALocalActivityLeavesOpenIsTriedByAnOrdinaryOne(t *testing.T) {
	t.Parallel()
	busy, req := &lockcore.BusyError{Resource: "r"}, party.Request{Resources: []lockcore.Resource{lockcore.Exclusive("r")}}
	for name, tc := range map[string]struct {
		err  error
		open bool
	}{
		"timeout":   {errors.New("a timeout"), true},
		"database":  {wire.Failure(errors.New("no primary")), true},
		"cancelled": {temporal.NewCanceledError(), false},
		"busy":      {wire.ParkFailure(busy, req, ""), false},
		"lost":      {wire.Failure(&lockcore.LostError{}), false},
		"invalid":   {wire.Failure(&lockcore.InvalidError{}), false},
	} {
		require.Equal(t, tc.open, isOpen(tc.err), name)
	}
}
