package stack

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEnsure_RunningPart_IsKept(t *testing.T) {
	t.Parallel()
	s := setup(t)
	first := startHelper(t, s)
	again, started, err := s.ensure(t.Context(), helperService())
	require.NoError(t, err)
	require.False(t, started)
	require.Equal(t, first, again)

	st, err := loadState(s.cfg.Dir)
	require.NoError(t, err)
	first.started = false
	require.Equal(t, []Part{first}, st.Parts)
}

func TestEnsure_KilledPart_StartsOnSamePort(t *testing.T) {
	t.Parallel()
	s := setup(t)
	first := startHelper(t, s)
	kill(t, first)
	second := startHelper(t, s)
	require.NotEqual(t, first.PID, second.PID)
	require.Equal(t, first.Ports, second.Ports)
}

func TestEnsure_OldPortTaken_TakesAnother(t *testing.T) {
	t.Parallel()
	s := setup(t)
	first := startHelper(t, s)
	kill(t, first)
	other, err := net.Listen("tcp", hostPort(first.Ports["main"]))
	require.NoError(t, err)
	defer other.Close()
	require.NotEqual(t, first.Ports, startHelper(t, s).Ports)
}

func TestEnsure_PortTakenAfterPick_TriesAgain(t *testing.T) {
	t.Parallel()
	s := setup(t)
	// The other program answers on the port, so an answer alone does not prove that the part listens.
	other, err := net.Listen("tcp", loopback+":0")
	require.NoError(t, err)
	defer other.Close()
	picked := 0
	s.pickPorts = func(names []string, _ map[string]int) (map[string]int, error) {
		picked++
		if picked == 1 {
			return map[string]int{"main": other.Addr().(*net.TCPAddr).Port}, nil
		}
		return freePorts(names, nil)
	}
	p := startHelper(t, s)
	require.Equal(t, 2, picked)
	ok, err := listensOn(p.PID, p.Ports["main"])
	require.NoError(t, err)
	require.True(t, ok)
}

func TestEnsure_ServiceFails_ReturnsLogAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	svc := helperService()
	svc.argv = func(map[string]int) []string { return []string{"sh", "-c", "echo no such setting; exit 3"} }
	_, _, err := s.ensure(t.Context(), svc)
	require.ErrorContains(t, err, "ended before it was ready")
	require.ErrorContains(t, err, "no such setting")
	require.Empty(t, s.state.Parts)
}

func TestEndStarted_EarlierPart_IsKept(t *testing.T) {
	t.Parallel()
	s := setup(t)
	earlier := startHelper(t, s)
	earlier.started = false // as if an earlier run had started it
	s.state.put(earlier)
	svc := helperService()
	svc.name = "later"
	later, _, err := s.ensure(t.Context(), svc)
	require.NoError(t, err)

	require.NoError(t, s.endStarted(t.Context()))
	require.True(t, alive(earlier))
	require.False(t, alive(later))
	require.Equal(t, []Part{earlier}, s.state.Parts)
}

func TestDown_RecordedPart_IsEnded(t *testing.T) {
	t.Parallel()
	s := setup(t)
	p := startHelper(t, s)
	require.NoError(t, s.Down(t.Context()))
	require.False(t, alive(p))
	st, err := loadState(s.cfg.Dir)
	require.NoError(t, err)
	require.Empty(t, st.Parts)
	require.Equal(t, p.Ports, st.Ports["helper"])
	require.NoError(t, s.Down(t.Context()), "Down is idempotent")
}

func TestDown_OtherProcessWithPID_IsSpared(t *testing.T) {
	t.Parallel()
	s := setup(t)
	p := startHelper(t, s)
	recycled := p
	recycled.Start = "an earlier process"
	s.state.put(recycled)
	require.NoError(t, s.state.save(s.cfg.Dir))

	require.NoError(t, s.Down(t.Context()))
	require.True(t, alive(p))
	kill(t, p)
}

func TestKill_RecordedPart_EndsAndStartsOnSamePorts(t *testing.T) {
	t.Parallel()
	s := setup(t)
	before := startHelper(t, s)
	require.NoError(t, s.Kill(t.Context(), before.Name))
	require.False(t, alive(before))
	require.Error(t, s.Kill(t.Context(), before.Name), "it has ended")
	after := startHelper(t, s)
	require.NotEqual(t, before.PID, after.PID)
	require.Equal(t, before.Ports, after.Ports)
	record, err := s.Record()
	require.NoError(t, err)
	require.Equal(t, after.PID, record.Parts[0].PID)
}
