package contention

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

func TestManyShortHoldsAreToldAsSuch(t *testing.T) {
	t.Parallel()
	s := &scene{}
	for i := range 12 {
		owner := string(rune('a' + i))
		if i > 0 {
			s.wait("r", owner, 10+i, max(0, i*100-150), i*100, nil)
		}
		s.hold("r", owner, 10+i, i*100, i*100+97, nil)
	}
	r := s.report(t)
	require.Equal(t, "many short holds, one after another: held 97 % of the time by 12 owners, 97 ms each (median)", r.Resources[0].Why)
	require.Equal(t, 2, r.Resources[0].LongestQueue)
}

// Sagas that wait for other locks while they hold this one make others wait longer than their steps do.
func TestHoldersThatWaitThemselvesAreToldAsSuch(t *testing.T) {
	t.Parallel()
	s := &scene{}
	for i, owner := range []string{"a", "b", "c", "d"} {
		from := i * 1000
		if i > 0 {
			s.wait("r", owner, 10+i, from-900, from, nil)
		}
		s.hold("r", owner, 10+i, from, from+990, nil)
		s.step("r", owner, "1/Debit", 10+i, from, from+90, telemetry.OutcomeGranted)
		s.wait("other", owner, 20+i, from+100, from+900, nil)
	}
	require.Equal(t, "those who held it waited themselves: for 2.4 s of the 3.0 s that they kept others waiting, most for other; their steps ran 270 ms",
		s.report(t).Resources[1].Why)
}

func TestHoldersThatStandBetweenStepsAreToldAsSuch(t *testing.T) {
	t.Parallel()
	s := &scene{}
	for i, owner := range []string{"a", "b", "c", "d"} {
		from := i * 1000
		if i > 0 {
			s.wait("r", owner, 10+i, from-900, from, nil)
		}
		s.hold("r", owner, 10+i, from, from+990, nil)
		s.step("r", owner, "1/Debit", 10+i, from, from+90, telemetry.OutcomeGranted)
	}
	require.Equal(t, "those who held it stood between steps: their steps ran 270 ms of the 3.0 s that they kept others waiting",
		s.report(t).Resources[0].Why)
}
