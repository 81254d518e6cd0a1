package runstate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestUses_AddedTwice_KeepTheFirstSchedule(t *testing.T) {
	t.Parallel()
	var u uses
	u.addAll(wire.Resources(lockcore.Exclusive("b"), lockcore.Exclusive("a")))
	require.Equal(t, []string{"a", "b"}, u.names())
	require.True(t, u.has("a"))
	require.Zero(t, u.heldSince("a"), "it was only requested")
	for _, schedule := range []uint32{5, 3, 4, 0} {
		u.add(use{Use: wire.Use{Resource: "b", Schedule: schedule}, at: time.Unix(int64(schedule), 0)})
	}
	require.Equal(t, uses{{wire.Use{Resource: "b", Schedule: 3}, time.Unix(5, 0)}}, u.held(), "the first schedule, and the time of the last")
	require.Equal(t, []string{"a", "b"}, u.names())
}

// A resource that two sagas use is released with the last of them.
func TestScopeRelease_ResourceInUseElsewhere_StaysHeld(t *testing.T) {
	t.Parallel()
	s := NewState(func() string { return "" }, nil, "", nil)
	s.ended = true // nothing is scheduled
	one, other := s.newScope(nil), s.newScope(nil)
	for _, name := range []string{"shared", "own"} {
		one.uses.add(use{Use: wire.Use{Resource: name, Schedule: 1}})
	}
	other.uses.addAll(wire.Resources(lockcore.Exclusive("shared")))
	one.Release()
	require.False(t, s.inUse(one.uses[0]), "own")
	require.True(t, s.inUse(one.uses[1]), "shared")
	require.Zero(t, s.heldSince(other, "own"), "a closed scope holds nothing")
	other.Release()
	require.False(t, s.inUse(one.uses[1]))
}

func TestSplit_LongList_HasPiecesOfBoundedSize(t *testing.T) {
	t.Parallel()
	var all uses
	for i, size := range []int{60_000, 40_000, 10, 99_990, 200_000, 15} {
		all = append(all, use{Use: wire.Use{Resource: fmt.Sprint(i) + strings.Repeat("x", size-6)}})
	}
	var sizes, lengths []int
	for _, o := range split(all, own{overhead: 5}, func(piece uses) any { return len(piece) }) {
		length, _ := o.params.(int)
		require.Len(t, o.resources, length)
		sizes, lengths = append(sizes, o.size()), append(lengths, length)
	}
	require.Equal(t, []int{2, 2, 1, 1}, lengths)
	require.Equal(t, []int{100_000, 100_000, 200_000, 15}, sizes)
}
