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

// asked runs release at a terminal, and returns when it has asked the question.
func (l *locks) asked(t *testing.T, resource, name, question string, env ...string) (person io.Writer, p *process) {
	t.Helper()
	person, in := terminal(t)
	c := exec.CommandContext(t.Context(), binary, "release", resource, name, "--reason", "a drill", "--database", l.database)
	c.Stdin = in
	p = startCommand(t, c, append(servers(t), env...))
	require.Eventually(t, func() bool { return strings.Contains(p.stdout.String(), question) }, within, 20*time.Millisecond)
	return person, p
}

func TestRelease_AtTerminal_AsksAndCtrlCEndsIt(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.ask(t, "holder", "p", "r")
	_, p := l.asked(t, "r", "holder", "End it? [y/N] ")
	p.interrupt(t)
	require.Equal(t, 130, p.wait(t), &p.stderr)
	require.Equal(t, []lockcore.State{lockcore.StateHolding}, l.states(t, "r", "holder"))

	for _, answer := range []string{"n\n", "y\n"} {
		person, p := l.asked(t, "r", "holder", "End it? [y/N] ")
		_, err := io.WriteString(person, answer)
		require.NoError(t, err)
		require.Equal(t, answer == "y\n", p.wait(t) == 0, &p.stderr)
	}
	require.NotContains(t, l.states(t, "r", "holder"), lockcore.StateHolding)
}

func TestRelease_OpenWorkflowAtTerminal_OffersToCancel(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	run := d.come(t, "Lock", lockcore.StateHolding)
	const question = "Cancel it (c), end the hold by force (f), or neither? [c/f/N] "
	person, p := d.asked(t, "door", run.GetID(), question)
	require.Contains(t, p.stdout.String(), "Workflow "+run.GetID()+" is open (Lock, run "+run.GetRunID()+").")
	_, err := io.WriteString(person, "\n")
	require.NoError(t, err)
	require.Equal(t, 1, p.wait(t))
	require.Equal(t, []lockcore.State{lockcore.StateHolding}, d.states(t, "door", ""))

	person, p = d.asked(t, "door", run.GetID(), question)
	_, err = io.WriteString(person, "c\n")
	require.NoError(t, err)
	require.Zero(t, p.wait(t), &p.stderr)
	require.Contains(t, p.stdout.String(), "it has left\n")
	require.ErrorContains(t, run.Get(t.Context(), nil), "canceled")

	run = d.come(t, "Lock", lockcore.StateHolding)
	person, p = d.asked(t, "door", run.GetID(), question)
	_, err = io.WriteString(person, "f\n")
	require.NoError(t, err)
	require.Zero(t, p.wait(t), &p.stderr)
	require.Contains(t, p.stdout.String(), "ended\n")
	require.NoError(t, d.client.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "for the test"))
}

// Temporal does not answer, and the hold must end.
func TestRelease_AtTerminalWithoutTemporal_EndsByForce(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	run := d.come(t, "Lock", lockcore.StateHolding)
	person, p := d.asked(t, "door", run.GetID(), "End it? [y/N] ", "TEMPORAL_ADDRESS=127.0.0.1:1")
	require.Contains(t, p.stderr.String(), "its workflow cannot be cancelled: no Temporal server answers at 127.0.0.1:1")
	_, err := io.WriteString(person, "y\n")
	require.NoError(t, err)
	require.Zero(t, p.wait(t), &p.stderr)
	require.NoError(t, d.client.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "for the test"))
}
