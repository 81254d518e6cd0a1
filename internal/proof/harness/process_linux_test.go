package harness_test

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
)

func TestProcess_Suspend_IsSeenAndCanBeResumed(t *testing.T) {
	t.Parallel()
	p := start(t, shell(t, `echo ready; exec cat`))
	seen, err := p.Suspend()
	require.NoError(t, err)
	require.True(t, seen)
	require.NoError(t, p.Say("hello"))
	require.NoError(t, p.Resume())
	line, err := p.Line(t.Context())
	require.NoError(t, err)
	require.Equal(t, "hello", line)
	_, err = p.Suspend()
	require.NoError(t, err)
	require.True(t, p.Kill(), "a suspended process, too")
	_, err = p.Suspend()
	require.ErrorIs(t, err, harness.ErrEnded)
}

// parentVariable makes this test binary a parent that is killed.
const parentVariable = "LOCKSTEP_TEST_HARNESS_PARENT"

// A child ends with its parent, even if it ignores the end of its standard input.
func TestProcess_ParentIsKilled_EndsToo(t *testing.T) {
	t.Parallel()
	if os.Getenv(parentVariable) != "" {
		p := start(t, shell(t, "echo ready; exec sleep 600"))
		_, _ = os.Stdout.WriteString("child " + strconv.Itoa(p.PID()) + "\n")
		<-p.Ended()
		return
	}
	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	parent.Env = append(parent.Environ(), parentVariable+"=1", "TMPDIR="+t.TempDir()) // it removes nothing
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	var pid string
	for buffer := make([]byte, 100); ; {
		n, err := out.Read(buffer)
		require.NoError(t, err)
		if _, found, ok := strings.Cut(string(buffer[:n]), "child "); ok {
			pid = strings.TrimSpace(found)
			break
		}
	}
	require.DirExists(t, "/proc/"+pid)
	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	}, 10*time.Second, 10*time.Millisecond, "the child still runs")
}
