package tlsfront

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Front ends the TLS of its clients, and passes on what they say to a server that speaks none.
type Front struct {
	Address string

	backend string
	running sync.WaitGroup
	mu      sync.Mutex
	closed  bool
	conns   []net.Conn
	clients []string
}

// New starts a front of the server at the address backend. It ends with the test.
func New(t testing.TB, conf *tls.Config, backend string) *Front {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", conf)
	require.NoError(t, err)
	f := &Front{Address: listener.Addr().String(), backend: backend}
	f.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			f.running.Go(func() { f.serve(t.Context(), conn.(*tls.Conn)) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close() // it is the end of the loop above
		f.mu.Lock()
		f.closed = true
		f.mu.Unlock()
		f.Cut()
		f.running.Wait()
	})
	return f
}

// Cut ends all connections.
func (f *Front) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close() // it may have ended
	}
	f.conns = nil
}

// Clients are the names in the certificates of those that have connected, in their order.
func (f *Front) Clients() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.clients...)
}

func (f *Front) serve(ctx context.Context, conn *tls.Conn) {
	defer func() { _ = conn.Close() }() // the other side may have
	if err := conn.HandshakeContext(ctx); err != nil {
		// The client is told by an alert, which a reset would overtake if what it has sent were
		// left unread.
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second)) // else the copy below is not bounded
		_, _ = io.Copy(io.Discard, conn.NetConn())
		return
	}
	back, err := (&net.Dialer{}).DialContext(ctx, "tcp", f.backend)
	if err != nil {
		return
	}
	defer func() { _ = back.Close() }() // as above
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return
	}
	f.conns = append(f.conns, conn, back)
	for _, c := range conn.ConnectionState().PeerCertificates {
		f.clients = append(f.clients, c.Subject.CommonName)
	}
	f.mu.Unlock()
	f.running.Go(func() {
		_, _ = io.Copy(back, conn) // ends with either
		_ = back.Close()
	})
	_, _ = io.Copy(conn, back) // as above
}
