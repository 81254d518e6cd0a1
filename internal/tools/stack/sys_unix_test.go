//go:build unix

package stack

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASuspendedPartCanBeEnded(t *testing.T) {
	t.Parallel()
	s := setup(t)
	p, _, err := s.ensure(t.Context(), helperService())
	require.NoError(t, err)
	process, err := os.FindProcess(p.PID)
	require.NoError(t, err)
	require.NoError(t, process.Signal(syscall.SIGSTOP))
	require.NoError(t, terminate(t.Context(), p))
	require.False(t, alive(p))
}
