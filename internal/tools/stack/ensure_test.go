package stack

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEnsureStartsOnceAndReuses(t *testing.T) {
	t.Parallel()
	s := setup(t)
	first, started, err := s.ensure(t.Context(), helperService())
	require.NoError(t, err)
	require.True(t, started)
	require.True(t, alive(first))

	again, started, err := s.ensure(t.Context(), helperService())
	require.NoError(t, err)
	require.False(t, started)
	require.Equal(t, first, again)

	// Whoever reads the record in another process sees the same.
	st, err := loadState(s.cfg.Dir)
	require.NoError(t, err)
	require.Equal(t, []Part{first}, st.Parts)
}

func TestEnsureStartsAgainWhatWasKilledOnTheSamePort(t *testing.T) {
	t.Parallel()
	s := setup(t)
	first, _, err := s.ensure(t.Context(), helperService())
	require.NoError(t, err)
	kill(t, first)

	second, started, err := s.ensure(t.Context(), helperService())
	require.NoError(t, err)
	require.True(t, started)
	require.NotEqual(t, first.PID, second.PID)
	require.Equal(t, first.Ports, second.Ports)
}

func TestEnsureTakesAnotherPortWhenTheOldOneIsTaken(t *testing.T) {
	t.Parallel()
	s := setup(t)
	first, _, err := s.ensure(t.Context(), helperService())
	require.NoError(t, err)
	kill(t, first)
	stranger, err := net.Listen("tcp", hostPort(first.Ports["main"]))
	require.NoError(t, err)
	defer stranger.Close()

	second, _, err := s.ensure(t.Context(), helperService())
	require.NoError(t, err)
	require.NotEqual(t, first.Ports, second.Ports)
}

func TestEnsureCopesWithAPortTakenAfterItWasPicked(t *testing.T) {
	t.Parallel()
	s := setup(t)
	// The stranger answers on the port, so only who listens there tells it from the part.
	stranger, err := net.Listen("tcp", loopback+":0")
	require.NoError(t, err)
	defer stranger.Close()
	picked := 0
	s.pick = func(names []string, before map[string]int) (map[string]int, error) {
		picked++
		if picked == 1 {
			return map[string]int{"main": stranger.Addr().(*net.TCPAddr).Port}, nil
		}
		return freePorts(names, nil)
	}
	p, _, err := s.ensure(t.Context(), helperService())
	require.NoError(t, err)
	require.Equal(t, 2, picked)
	ok, err := listensOn(p.PID, p.Ports["main"])
	require.NoError(t, err)
	require.True(t, ok)
}

func TestEnsureGivesUpWithTheLogAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	svc := helperService()
	svc.argv = func(map[string]int) []string { return []string{"sh", "-c", "echo no such setting; exit 3"} }
	_, _, err := s.ensure(t.Context(), svc)
	require.ErrorContains(t, err, "ended before it was ready")
	require.ErrorContains(t, err, "no such setting")
	require.Empty(t, s.state.Parts)
	require.Empty(t, s.fresh)
}

func TestUndoEndsOnlyWhatThisRunStarted(t *testing.T) {
	t.Parallel()
	s := setup(t)
	older, _, err := s.ensure(t.Context(), helperService())
	require.NoError(t, err)
	s.fresh = nil // as if by an earlier run
	svc := helperService()
	svc.name = "younger"
	younger, _, err := s.ensure(t.Context(), svc)
	require.NoError(t, err)

	require.NoError(t, s.undo(t.Context()))
	require.True(t, alive(older))
	require.False(t, alive(younger))
	require.Equal(t, []Part{older}, s.state.Parts)
}

func TestDownEndsWhatIsOnRecord(t *testing.T) {
	t.Parallel()
	s := setup(t)
	p, _, err := s.ensure(t.Context(), helperService())
	require.NoError(t, err)
	require.NoError(t, s.Down(t.Context()))
	require.False(t, alive(p))
	st, err := loadState(s.cfg.Dir)
	require.NoError(t, err)
	require.Empty(t, st.Parts)
	require.Equal(t, p.Ports, st.Ports["helper"])
	require.NoError(t, s.Down(t.Context()), "nothing to end is no error")
}

func TestDownSparesAProcessThatHasTheRecordedPID(t *testing.T) {
	t.Parallel()
	s := setup(t)
	p, _, err := s.ensure(t.Context(), helperService())
	require.NoError(t, err)
	recycled := p
	recycled.Start = "an earlier process"
	s.state.put(recycled)
	require.NoError(t, s.state.save(s.cfg.Dir))

	require.NoError(t, s.Down(t.Context()))
	require.True(t, alive(p))
	kill(t, p)
}
