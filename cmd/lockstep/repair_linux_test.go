package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// terminal opens a pseudoterminal: the side of the person, and the side of the command.
func terminal(t *testing.T) (person, command *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = person.Close() }) // what is left is not read
	var number, unlock int32
	for request, value := range map[uintptr]*int32{syscall.TIOCGPTN: &number, syscall.TIOCSPTLCK: &unlock} {
		_, _, failed := syscall.Syscall(syscall.SYS_IOCTL, person.Fd(), request, uintptr(unsafe.Pointer(value)))
		require.Zero(t, failed)
	}
	command, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = command.Close() }) // as above
	return person, command
}

// asked runs release at a terminal, and returns when it has asked.
func (l *locks) asked(t *testing.T) (person io.Writer, p *process) {
	t.Helper()
	person, in := terminal(t)
	c := exec.CommandContext(t.Context(), binary, "release", "r", "holder", "--reason", "a drill", "--database", l.database)
	c.Stdin = in
	p = startCommand(t, c, servers(t))
	require.Eventually(t, func() bool { return strings.Contains(p.stdout.String(), "End it? [y/N] ") }, within, 20*time.Millisecond)
	return person, p
}

func TestRelease_AtTerminal_AsksAndCtrlCEndsIt(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.ask(t, "holder", "p", "r")
	_, p := l.asked(t)
	p.interrupt(t)
	require.Equal(t, 130, p.wait(t), &p.stderr)
	require.Equal(t, []lockcore.State{lockcore.StateHolding}, l.states(t, "r", "holder"))

	for _, answer := range []string{"n\n", "y\n"} {
		person, p := l.asked(t)
		_, err := io.WriteString(person, answer)
		require.NoError(t, err)
		require.Equal(t, answer == "y\n", p.wait(t) == 0, &p.stderr)
	}
	require.NotContains(t, l.states(t, "r", "holder"), lockcore.StateHolding)
}
