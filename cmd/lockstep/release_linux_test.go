package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// terminal is a pair of what a person sits at and what a command has for one.
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

// transcript is what was written so far.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *transcript) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *transcript) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// asked runs release at a terminal, and returns when it has asked.
func (s *shed) asked(t *testing.T) (person io.Writer, c *background) {
	t.Helper()
	typed, in := terminal(t)
	var out transcript
	c = &background{Cmd: exec.CommandContext(t.Context(), binary, append([]string{"release", "r", "holder", "--reason", "a drill"}, s.args...)...)}
	c.Env = append(c.Environ(), servers(t)...)
	c.Stdin, c.Stdout, c.Stderr = in, &out, &c.stderr
	require.NoError(t, c.Start())
	require.Eventually(t, func() bool { return bytes.Contains([]byte(out.String()), []byte("End it? [y/N] ")) }, within, 20*time.Millisecond)
	return typed, c
}

func TestReleaseAsksAndCtrlCEndsItAtOnce(t *testing.T) {
	t.Parallel()
	s := openShed(t)
	s.ask(t, "holder", "p", "r")
	_, c := s.asked(t)
	require.NoError(t, c.Process.Signal(os.Interrupt))
	code, stderr := c.ends(t)
	require.Equal(t, 130, code, stderr)
	require.Equal(t, []lockcore.State{lockcore.StateHolding}, s.stands(t, "r", "holder"))

	for _, answer := range []string{"n\n", "y\n"} {
		person, c := s.asked(t)
		_, err := io.WriteString(person, answer)
		require.NoError(t, err)
		code, stderr := c.ends(t)
		require.Equal(t, answer == "y\n", code == 0, stderr)
	}
	require.NotContains(t, s.stands(t, "r", "holder"), lockcore.StateHolding)
}
