package main

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo starts a server that sends back each line.
func echo(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// line sends a line and returns the answer.
func line(t *testing.T, c net.Conn, within time.Duration) (string, error) {
	t.Helper()
	_, err := c.Write([]byte("hello\n"))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(within)))
	return bufio.NewReader(c).ReadString('\n')
}

func dialProxy(t *testing.T, p *proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Listen) //nolint:noctx // a test on loopback
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	answer, err := line(t, c, 10*time.Second)
	require.NoError(t, err)
	require.Equal(t, "hello\n", answer)
	return c
}

func newTestProxy(t *testing.T) *proxy {
	t.Helper()
	p, err := newProxy(t.Name(), echo(t))
	require.NoError(t, err)
	t.Cleanup(p.close)
	return p
}

func TestProxy_Cut_ClosesConnectionsAndRefusesOthers(t *testing.T) {
	t.Parallel()
	p := newTestProxy(t)
	c := dialProxy(t, p)
	require.Equal(t, 1, p.cut())
	require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err := c.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	require.True(t, refuses(p.Listen))
	require.NoError(t, p.mend())
	dialProxy(t, p)
}

func TestProxy_Slow_DelaysBothDirections(t *testing.T) {
	t.Parallel()
	p := newTestProxy(t)
	c := dialProxy(t, p)
	require.Zero(t, p.network.slow(50*time.Millisecond))
	began := time.Now()
	_, err := line(t, c, 10*time.Second)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)
	require.EqualValues(t, 2, p.network.slow(0))
}

func TestProxy_HalfOpen_SwallowsAndIsResetOrStaysSilent(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{false, true} {
		p, err := newProxy(t.Name()+map[bool]string{true: "silent"}[silent], echo(t))
		require.NoError(t, err)
		t.Cleanup(p.close)
		c := dialProxy(t, p)
		require.Zero(t, p.network.halfOpen(false, true))
		_, err = line(t, c, 100*time.Millisecond)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		dialProxy(t, p) // a new connection works
		require.EqualValues(t, 1, p.network.mend(silent))
		require.NoError(t, c.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
		_, err = c.Read(make([]byte, 1))
		require.Equal(t, silent, os.IsTimeout(err), err)
	}
}

func TestWithWall_GoOfThisMachine_IsKnown(t *testing.T) {
	t.Parallel()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go"))
	require.NoError(t, err)
	changed, err := withWall(string(text))
	require.NoError(t, err)
	require.Contains(t, changed, "sec += wallError.Load()")
	_, err = withWall("package time")
	require.Error(t, err)
}

func TestRegisters_StaleFence_IsRefusedUnlessUnchecked(t *testing.T) {
	t.Parallel()
	for _, unchecked := range []bool{false, true} {
		log, err := OpenLog(t.TempDir(), "p", 0)
		require.NoError(t, err)
		r := newRegisters(log, unchecked, []string{"x/0"})
		var a Answer
		require.NoError(t, r.Read(&Use{Resource: "x/0", Fence: 2}, &a))
		require.NoError(t, r.Write(&Use{Resource: "x/0", Fence: 1, Value: Value{Balance: 5}}, &a))
		require.Equal(t, !unchecked, a.Refused)
	}
}

func TestRegisters_Change_IsAppliedAndUndoneOnce(t *testing.T) {
	t.Parallel()
	log, err := OpenLog(t.TempDir(), "p", 0)
	require.NoError(t, err)
	r := newRegisters(log, false, []string{"x/0"})
	var a Answer
	change, undo := &Use{Resource: "x/0", Key: "k", Delta: 5}, &Use{Resource: "x/0", Key: "k", Undo: true}
	for range 2 {
		require.NoError(t, r.Apply(change, &a))
		require.EqualValues(t, initialBalance+5, r.total())
	}
	for range 2 {
		require.NoError(t, r.Apply(undo, &a))
		require.NoError(t, r.Apply(change, &a), "it is refused from then on")
		require.EqualValues(t, initialBalance, r.total())
	}
}
