package verify

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
)

// echo is a server that counts the bytes that it has read, and returns them.
func echo(t *testing.T) (address string, read *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed below
	require.NoError(t, err)
	read = new(atomic.Int64)
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close() // the test is over
		<-done
	})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b := make([]byte, 100)
			for {
				n, err := conn.Read(b)
				read.Add(int64(n))
				if err != nil {
					break
				}
				_, _ = conn.Write(b[:n]) // the client may have cut the connection
			}
			_ = conn.Close() // the client has closed it
		}
	}()
	return l.Addr().String(), read
}

func TestCutter_Off_CutsNothing(t *testing.T) {
	t.Parallel()
	address, _ := echo(t)
	c := newCutter(1)
	conn, err := c.DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	for range 200 {
		_, err := conn.Write([]byte("x"))
		require.NoError(t, err)
		_, err = io.ReadFull(conn, make([]byte, 1))
		require.NoError(t, err)
	}
	require.Zero(t, c.set(false))
	require.NoError(t, conn.Close())
	require.Zero(t, c.CloseAll(), "connections that are closed are not kept")
}

// Each of the moments occurs, and the server has got the command or has not, accordingly.
func TestCutter_On_CutsAtEachMoment(t *testing.T) {
	t.Parallel()
	address, read := echo(t)
	c := newCutter(1)
	seen := map[string]bool{}
	for i := 0; i < 5000 && (i < 300 || len(seen) < 4); i++ {
		conn, err := c.DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatalf("off ends the time without connections: %v", err)
		}
		c.set(true)
		before := read.Load()
		_, err = conn.Write([]byte("x"))
		c.set(false)
		if err != nil {
			require.ErrorIs(t, err, harness.ErrCut)
			seen["before it is sent"] = true
			require.Equal(t, before, read.Load())
			continue
		}
		_, err = io.ReadFull(conn, make([]byte, 1))
		switch {
		case err == nil:
			seen["not"] = true
		case err.Error() == harness.ErrCut.Error():
			seen["before the answer"] = true
			require.Greater(t, read.Load(), before, "the server had carried it out")
		default:
			seen["after it was sent"] = true
		}
		require.NotPanics(t, func() { _ = conn.Close() })
	}
	for _, moment := range []string{"not", "before it is sent", "before the answer", "after it was sent"} {
		require.True(t, seen[moment], moment)
	}
	require.Zero(t, c.CloseAll(), "connections that are closed are not kept")
}

func TestCutter_Away_RefusesForAWhile(t *testing.T) {
	t.Parallel()
	address, _ := echo(t)
	c := newCutter(1)
	conn, err := c.DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }() // it may have been cut
	c.set(true)
	for range 10_000 {
		c.draw()
	}
	require.True(t, time.Now().Before(c.away))
	_, err = c.DialContext(t.Context(), "tcp", address)
	require.ErrorIs(t, err, harness.ErrCut)
	_, err = io.ReadFull(conn, make([]byte, 1))
	require.Error(t, err, "connections that were open are cut too")
	require.Positive(t, c.set(false))
	again, err := c.DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	require.NoError(t, again.Close())
}
