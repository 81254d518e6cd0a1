package wire

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestMerge_NameTwice_KeepsTheStrongerRequest(t *testing.T) {
	t.Parallel()
	a := []lockcore.Resource{lockcore.Shared("a"), lockcore.Exclusive("b")}
	got := Merge(a, lockcore.Exclusive("a"), lockcore.SharedLimit("c", 5), lockcore.Shared("b"), lockcore.SharedLimit("c", 3))
	require.Equal(t, []lockcore.Resource{lockcore.Exclusive("a"), lockcore.Exclusive("b"), lockcore.SharedLimit("c", 3)}, got)
	require.Equal(t, []lockcore.Resource{lockcore.Shared("a"), lockcore.Exclusive("b")}, a, "the argument has changed")
	require.Equal(t, []lockcore.Resource{lockcore.Exclusive("a")}, Merge(nil, lockcore.Exclusive("a"), lockcore.Exclusive("a")))
	require.Equal(t, []lockcore.Resource{{Name: "a"}}, Merge(nil, lockcore.Shared("a"), lockcore.Resource{Name: "a"}), "the default mode is exclusive")
	require.Nil(t, Merge(nil))
}

// A valid request for the same name must not hide an invalid one, which is refused when the locks are taken.
func TestMerge_InvalidRequest_IsKept(t *testing.T) {
	t.Parallel()
	for name, invalid := range map[string]lockcore.Resource{
		"mode": {Name: "a", Mode: "Z"}, "limit": lockcore.SharedLimit("a", -1), "no places": lockcore.SharedLimit("a", 0),
		"limit of X": {Name: "a", Mode: lockcore.ModeExclusive, Limit: 2},
	} {
		for _, valid := range []lockcore.Resource{lockcore.Exclusive("a"), lockcore.Shared("a"), lockcore.SharedLimit("a", 2), {Name: "a"}} {
			require.Equal(t, []lockcore.Resource{invalid}, Merge(nil, valid, invalid), name)
			require.Equal(t, []lockcore.Resource{invalid}, Merge(nil, invalid, valid), name)
		}
	}
}
