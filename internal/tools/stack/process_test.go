//go:build unix

package stack

import (
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProcessStart_SameProcess_IsStable(t *testing.T) {
	t.Parallel()
	self, err := processStart(os.Getpid())
	require.NoError(t, err)
	again, err := processStart(os.Getpid())
	require.NoError(t, err)
	require.Equal(t, self, again)
	require.True(t, alive(Part{PID: os.Getpid(), Start: self}))
	require.False(t, alive(Part{PID: os.Getpid(), Start: self + "0"}))
	require.False(t, alive(Part{}))
}

func TestProcessStart_EndedButNotCollected_DoesNotExist(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", "read line")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	start, err := processStart(cmd.Process.Pid)
	require.NoError(t, err)
	p := Part{PID: cmd.Process.Pid, Start: start}
	require.NoError(t, in.Close())
	require.True(t, gone(t.Context(), p))
	_, err = processStart(p.PID)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Error(t, cmd.Wait(), "read fails at the end of its input")
}

// The kernel shows the name in parentheses and does not escape it.
func TestProcessStart_NameWithParentheses_IsParsed(t *testing.T) {
	t.Parallel()
	program := t.TempDir() + "/a) b (c"
	cat, err := exec.LookPath("cat")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(cat, program))
	cmd := exec.Command(program)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	start, err := processStart(cmd.Process.Pid)
	require.NoError(t, err)
	require.Regexp(t, `\d+$`, start)
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
}

func TestTerminate_SuspendedProcess_Ends(t *testing.T) {
	t.Parallel()
	p := startHelper(t, setup(t))
	process, err := os.FindProcess(p.PID)
	require.NoError(t, err)
	require.NoError(t, process.Signal(syscall.SIGSTOP))
	require.NoError(t, terminate(t.Context(), p))
	require.False(t, alive(p))
}
