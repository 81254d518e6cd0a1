package harness_test

import (
	"bufio"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
)

// echo starts a server that sends back each line, and reports each line that it has read.
func echo(t *testing.T) (address string, read <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback
	require.NoError(t, err)
	lines := make(chan string, 100)
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close() // the test is over
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }() // the client has closed it
				for in := bufio.NewReader(c); ; {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					lines <- line
					_, _ = io.WriteString(c, line) // the client may have cut the connection
				}
			}()
		}
	}()
	return l.Addr().String(), lines
}

// line sends a line and returns the answer.
func line(t *testing.T, c net.Conn, within time.Duration) (string, error) {
	t.Helper()
	_, err := c.Write([]byte("hello\n"))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(within)))
	return bufio.NewReader(c).ReadString('\n')
}

const patient = 10 * time.Second

func dial(t *testing.T, p *harness.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Address) //nolint:noctx // a test on loopback
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// dialAndUse connects and gets an answer.
func dialAndUse(t *testing.T, p *harness.Proxy) net.Conn {
	t.Helper()
	c := dial(t, p)
	answer, err := line(t, c, patient)
	require.NoError(t, err)
	require.Equal(t, "hello\n", answer)
	return c
}

func newProxy(t *testing.T) *harness.Proxy {
	t.Helper()
	server, _ := echo(t)
	p, err := harness.NewProxy(server, nil)
	require.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// requireClosed waits until the peer has closed a connection.
func requireClosed(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patient)))
	_, err := c.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestProxy_Close_ClosesConnectionsAndRefusesOthers(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	c := dialAndUse(t, p)
	require.Equal(t, 1, p.Close())
	requireClosed(t, c)
	_, err := net.Dial("tcp", p.Address) //nolint:noctx // loopback
	require.Error(t, err)
	address := p.Address
	require.NoError(t, p.Open())
	require.Equal(t, address, p.Address)
	dialAndUse(t, p)
}

func TestProxy_Cut_ClosesConnectionsUntilMend(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	c := dialAndUse(t, p)
	require.Equal(t, 1, p.Cut())
	requireClosed(t, c)
	requireClosed(t, dial(t, p))
	p.Mend()
	dialAndUse(t, p)
}

// A suspended client does not read. What is on its way to it fills all buffers, and the proxy waits in a write.
func TestProxy_ClientDoesNotRead_IsClosed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback
	require.NoError(t, err)
	defer l.Close()
	full := make(chan struct{})
	go func() {
		defer close(full)
		c, err := l.Accept()
		for err == nil {
			_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)) // it fails only on a closed connection
			_, err = c.Write(make([]byte, 1<<16))
		}
	}()
	p, err := harness.NewProxy(l.Addr().String(), nil)
	require.NoError(t, err)
	c, err := net.Dial("tcp", p.Address) //nolint:noctx // loopback
	require.NoError(t, err)
	defer c.Close()
	<-full
	require.Equal(t, 1, p.Close())
}

func TestProxy_Refuse_PresentConnectionsWork(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	c := dialAndUse(t, p)
	p.Refuse()
	requireClosed(t, dial(t, p))
	_, err := line(t, c, patient)
	require.NoError(t, err)
}

func TestProxy_Delay_DelaysBothDirections(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	c := dialAndUse(t, p)
	require.Zero(t, p.Delay(50*time.Millisecond))
	began := time.Now()
	_, err := line(t, c, patient)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)
	require.EqualValues(t, 2, p.Delay(0))
}

func TestProxy_Swallow_IsResetOrStaysSilent(t *testing.T) {
	t.Parallel()
	for name, silent := range map[string]bool{"reset": false, "silent": true} {
		for direction, requests := range map[string]bool{"requests": true, "answers": false} {
			t.Run(name+" "+direction, func(t *testing.T) {
				t.Parallel()
				p := newProxy(t)
				c := dialAndUse(t, p)
				p.Swallow(requests, !requests)
				_, err := line(t, c, 100*time.Millisecond)
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				dialAndUse(t, p) // a new connection works
				require.EqualValues(t, 1, p.Reset(silent))
				if !silent {
					requireClosed(t, c)
					return
				}
				require.NoError(t, c.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
				_, err = c.Read(make([]byte, 1))
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			})
		}
	}
}

func TestProxy_Hang_LaterConnectionsAreSilent(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	p.Hang()
	_, err := line(t, dial(t, p), 100*time.Millisecond)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestProxy_NotAccepted_IsClosed(t *testing.T) {
	t.Parallel()
	server, _ := echo(t)
	p, err := harness.NewProxy(server, func(net.Conn) net.Conn { return nil })
	require.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	requireClosed(t, dial(t, p))
}

func TestNetwork_OnRequest_CutsAtTheMoment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		when           harness.Moment
		sent, answered bool
	}{
		"never":              {harness.Never, true, true},
		"before the request": {when: harness.BeforeRequest},
		"after the request":  {when: harness.AfterRequest, sent: true},
		"before the answer":  {when: harness.BeforeAnswer, sent: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, read := echo(t)
			var n harness.Network
			conn, err := n.DialContext(t.Context(), "tcp", server)
			require.NoError(t, err)
			n.OnRequest(func(data []byte) harness.Moment {
				require.Equal(t, "hello\n", string(data))
				return c.when
			})
			_, err = conn.Write([]byte("hello\n"))
			if !c.sent {
				require.ErrorIs(t, err, harness.ErrCut)
				require.Empty(t, read)
			} else {
				require.NoError(t, err)
				require.Equal(t, "hello\n", <-read)
			}
			answer, err := bufio.NewReader(conn).ReadString('\n')
			require.Equal(t, c.answered, err == nil, err)
			if c.answered {
				require.Equal(t, "hello\n", answer)
			}
			require.Equal(t, map[bool]int{true: 1}[c.answered], n.CloseAll(), "a connection that was cut is not kept")
		})
	}
}
