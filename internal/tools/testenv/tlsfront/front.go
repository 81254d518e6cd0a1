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

// Front is a proxy that accepts TLS connections for a server without TLS.
type Front struct {
	Address string

	backend string
	running sync.WaitGroup
	mu      sync.Mutex
	closed  bool
	conns   []net.Conn
	clients []string
}

// New starts a front for the server at the address backend. It ends with the test.
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
		_ = listener.Close() // ends the loop above
		f.mu.Lock()
		f.closed = true
		f.mu.Unlock()
		f.Cut()
		f.running.Wait()
	})
	return f
}

// Cut closes all connections.
func (f *Front) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close() // it may have ended
	}
	f.conns = nil
}

// Clients returns the names in the certificates of the clients, in the order of their connections.
func (f *Front) Clients() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.clients...)
}

func (f *Front) serve(ctx context.Context, conn *tls.Conn) {
	defer func() { _ = conn.Close() }() // the other side may have
	if err := conn.HandshakeContext(ctx); err != nil {
		// Unread input would cause a reset, which may reach the client before the TLS alert does.
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second)) // bounds the copy below
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
		_, _ = io.Copy(back, conn) // ends with either connection
		_ = back.Close()
	})
	_, _ = io.Copy(conn, back) // as above
}
