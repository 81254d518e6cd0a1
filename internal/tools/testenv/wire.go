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
	to      string
	address string

	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

func newWire(tb testing.TB, to string) *Wire {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	w := &Wire{to: to, address: listener.Addr().String()}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { w.pass(conn, &running) })
		}
	})
	tb.Cleanup(func() {
		_ = listener.Close() // ends the loop above
		w.Cut()
		running.Wait()
	})
	return w
}

func (w *Wire) pass(conn net.Conn, running *sync.WaitGroup) {
	back, err := new(net.Dialer).DialContext(context.Background(), "tcp", w.to)
	if err != nil {
		_ = conn.Close() // the client retries
		return
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
	_ = conn.Close()
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
	w = newWire(tb, host)
	return w, strings.Replace(MongoURI(tb), host, w.address, 1)
}
