package runstate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// A release of a scope that has not committed would erase the evidence of a loss, which that of a committed one must report.
func TestAddDue_OneHasCommitted_IsReleasedOnceAsCommitted(t *testing.T) {
	t.Parallel()
	for _, committed := range [][]bool{{false, true}, {true, false}, {true, true}, {false, false}} {
		s := &State{}
		for _, c := range committed {
			var of uses
			of.add(use{Use: wire.Use{Resource: "a", Schedule: 1}})
			s.addDue(due{uses: of, committed: c})
		}
		var released []bool
		for _, d := range s.due {
			if d.uses.has("a") {
				released = append(released, d.committed)
			}
		}
		require.Equal(t, []bool{committed[0] || committed[1]}, released, "%v", committed)
	}
}
