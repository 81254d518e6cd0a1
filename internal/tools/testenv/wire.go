package testenv

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Wire is a TCP proxy to a server. It can cut or refuse connections, and hang.
type Wire struct {
	Address string
	// accept, unless nil, is called for each new connection, and reports whether it is passed on.
	accept func(net.Conn) bool

	mu             sync.Mutex
	refuses, hangs bool
	conns          []net.Conn
	onData         func(data []byte)
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
	refuses := w.refuses
	if !refuses {
		w.conns = append(w.conns, conn, back)
	}
	w.mu.Unlock()
	if refuses {
		_ = back.Close() // nothing was sent
		return
	}
	running.Go(func() { w.copy(back, conn) })
	w.copy(conn, back)
}

// copy passes data on until either connection ends.
func (w *Wire) copy(to, from net.Conn) {
	defer func() { _ = to.Close() }() // the other side has gone
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		w.mu.Lock()
		onData, hangs := w.onData, w.hangs
		w.mu.Unlock()
		if onData != nil {
			onData(buffer[:n])
		}
		if hangs {
			n = 0
		}
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// OnData calls a function with all data before it is passed on.
func (w *Wire) OnData(call func(data []byte)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onData = call
}

// Hang makes the server silent: what is sent is lost. Connections stay open.
func (w *Wire) Hang() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hangs = true
}

// Refuse closes new connections until Mend.
func (w *Wire) Refuse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuses = true
}

// Cut closes all connections, and new ones until Mend.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuses = true
	for _, c := range w.conns {
		_ = c.Close() // it may have ended
	}
	w.conns = nil
}

// Mend accepts connections again.
func (w *Wire) Mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuses = false
}

// MongoByWire returns a Wire to the MongoDB of the tests, and the URI of the MongoDB through it.
func MongoByWire(tb testing.TB) (w *Wire, uri string) {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	w = NewWire(tb, listener, MongoPrimary(tb), nil)
	return w, MongoByProxy(tb, w.Address, nil)
}

// MongoLater returns the URI of MongoDB at an address where nothing answers until open is called.
func MongoLater(tb testing.TB) (uri string, open func()) {
	tb.Helper()
	listen := func(address string) net.Listener {
		listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", address)
		require.NoError(tb, err)
		return listener
	}
	reserved := listen("127.0.0.1:0")
	address := reserved.Addr().String()
	require.NoError(tb, reserved.Close())
	return MongoByProxy(tb, address, nil), func() { NewWire(tb, listen(address), MongoPrimary(tb), nil) }
}
