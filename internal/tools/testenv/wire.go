package testenv

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Wire is a TCP proxy to a server. Its connections can be cut.
type Wire struct {
	Address string
	// accept, unless nil, is called for each new connection, and reports whether it is passed on.
	accept func(net.Conn) bool

	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

// NewWire passes the connections of a listener that accept, unless nil, returns true for on to a server, until the test ends.
func NewWire(tb testing.TB, listener net.Listener, to string, accept func(net.Conn) bool) *Wire {
	tb.Helper()
	w := &Wire{Address: listener.Addr().String(), accept: accept}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { w.pass(conn, to, &running) })
		}
	})
	tb.Cleanup(func() {
		_ = listener.Close() // ends the loop above
		w.Cut()
		running.Wait()
	})
	return w
}

func (w *Wire) pass(conn net.Conn, to string, running *sync.WaitGroup) {
	defer func() { _ = conn.Close() }() // the other side may have
	if w.accept != nil && !w.accept(conn) {
		return
	}
	back, err := new(net.Dialer).DialContext(context.Background(), "tcp", to)
	if err != nil {
		return // the client retries
	}
	w.mu.Lock()
	w.conns = append(w.conns, conn, back)
	isCut := w.isCut
	w.mu.Unlock()
	if isCut {
		w.Cut()
	}
	running.Go(func() {
		_, _ = io.Copy(back, conn) // ends with either connection
		_ = back.Close()
	})
	_, _ = io.Copy(conn, back) // as above
}

// Cut closes all connections, and new ones until Mend.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
	for _, c := range w.conns {
		_ = c.Close() // it may have ended
	}
	w.conns = nil
}

// Mend accepts connections again.
func (w *Wire) Mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = false
}

// MongoByWire returns a Wire to the MongoDB of the tests, and the URI of the MongoDB through it.
func MongoByWire(tb testing.TB) (w *Wire, uri string) {
	tb.Helper()
	_, host, _ := strings.Cut(MongoURI(tb), "://")
	host, _, _ = strings.Cut(host[strings.LastIndex(host, "@")+1:], "/")
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	w = NewWire(tb, listener, host, nil)
	return w, strings.Replace(MongoURI(tb), host, w.Address, 1)
}
