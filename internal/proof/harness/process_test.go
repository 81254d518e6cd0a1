//go:build unix

package harness_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shell returns a command of a shell, whose output is a file of the test.
func shell(t *testing.T, script string) harness.Command {
	t.Helper()
	return harness.Command{Name: "child", Program: "/bin/sh", Args: []string{"-c", script}, Output: filepath.Join(t.TempDir(), "child.output")}
}

func start(t *testing.T, c harness.Command) *harness.Process {
	t.Helper()
	p, err := harness.Start(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { p.Kill() })
	return p
}

func TestStart_NotReady_IsEndedAndExplained(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, want string }{
		"ends":          {"exit 1", "child did not start: see "},
		"other line":    {"echo hello; exec sleep 60", "child did not start: see "},
		"does not come": {"exec sleep 60", "child did not start within 100ms: see "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := shell(t, c.script)
			var crashed, ready bool
			command.Within, command.Ended = 100*time.Millisecond, func(p *harness.Process) { crashed, ready = p.Crashed(), p.WasReady() }
			if c.want == "child did not start: see " {
				command.Within = time.Minute
			}
			_, err := harness.Start(t.Context(), command)
			require.ErrorContains(t, err, c.want+command.Output)
			require.False(t, crashed || ready)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := harness.Start(ctx, shell(t, "exec sleep 60"))
	require.ErrorIs(t, err, context.Canceled)
	_, err = harness.Start(t.Context(), harness.Command{Name: "child", Program: filepath.Join(t.TempDir(), "none")})
	require.ErrorContains(t, err, "start child: ")
}

// A process that ends by itself has crashed, and one that was killed has not.
func TestProcess_Ends_IsReportedOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script  string
		end     func(*harness.Process) bool
		crashed bool
	}{
		"by itself": {"echo ready; exit 3", func(p *harness.Process) bool { <-p.Ended(); return !p.Kill() && p.State().ExitCode() == 3 }, true},
		"killed":    {"echo ready; exec sleep 60", (*harness.Process).Kill, false},
		"quits":     {"echo ready; read line; exit 0", func(p *harness.Process) bool { return p.Quit(time.Minute) == nil }, false},
		"quits with an error": {"echo ready; read line; exit 4", func(p *harness.Process) bool {
			return p.Quit(time.Minute) != nil && p.State().ExitCode() == 4
		}, false},
		"does not quit": {"echo ready; exec sleep 60", func(p *harness.Process) bool { return p.Quit(10*time.Millisecond) != nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := shell(t, c.script)
			var ends []bool
			command.Ended = func(p *harness.Process) { ends = append(ends, p.Crashed()) }
			p := start(t, command)
			require.True(t, c.end(p))
			require.Equal(t, []bool{c.crashed}, ends)
			require.ErrorIs(t, p.Signal(os.Interrupt), harness.ErrEnded)
			_, err := p.Line(t.Context())
			require.ErrorIs(t, err, harness.ErrEnded)
		})
	}
}

func TestProcess_Lines_AreExchangedAndOutputIsKept(t *testing.T) {
	t.Parallel()
	command := shell(t, `echo ready; echo "$COLOR" >&2; while read line; do echo "got $line"; done`)
	command.Env = []string{"COLOR=red"}
	p := start(t, command)
	for i := range 100 {
		require.NoError(t, p.Say(fmt.Sprint(i)))
		line, err := p.Line(t.Context())
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("got ", i), line)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := p.Line(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, p.Quit(time.Minute))
	output, err := os.ReadFile(p.Output)
	require.NoError(t, err)
	require.Equal(t, "red\n", string(output))
}

// A child whose output is not read does not block.
func TestProcess_ManyLines_DoNotBlock(t *testing.T) {
	t.Parallel()
	p := start(t, shell(t, "echo ready; i=0; while [ $i -lt 20000 ]; do echo a line that nobody reads; i=$((i+1)); done; read line; exit 0"))
	require.NoError(t, p.Quit(time.Minute))
}

// A silent command need not print anything, and Change can take its output away.
func TestStart_Silent_DoesNotWait(t *testing.T) {
	t.Parallel()
	p := start(t, harness.Command{Name: "child", Program: "/bin/cat", Silent: true})
	require.NoError(t, p.Say("hello"))
	line, err := p.Line(t.Context())
	require.NoError(t, err)
	require.Equal(t, "hello", line)
	require.False(t, p.Crashed())
}

func TestPool_ProcessIsReplaced_HasTheNextNumber(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := harness.NewPool(3, func(slot, number int) harness.Command {
		name := fmt.Sprintf("p%d-%d", slot, number)
		return harness.Command{Name: name, Program: "/bin/sh", Args: []string{"-c", "echo ready; exec cat"}, Output: filepath.Join(dir, name)}
	})
	require.NoError(t, p.StartAll(t.Context()))
	require.True(t, p.At(1).Kill())
	require.NoError(t, p.Start(t.Context(), 1))
	var names []string
	for slot := range 3 {
		names = append(names, p.At(slot).Name)
	}
	require.Equal(t, []string{"p0-1", "p1-4", "p2-3"}, names)
	p.Stop(1, 3, func(slot int, proc *harness.Process) { require.NoError(t, proc.Quit(time.Minute), slot) })
	require.Nil(t, p.At(1))
	require.NotNil(t, p.At(0))
	p.Stop(0, 3, func(slot int, proc *harness.Process) {
		require.Zero(t, slot)
		require.True(t, proc.Kill())
	})
}
