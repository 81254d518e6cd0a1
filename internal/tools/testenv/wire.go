package testenv

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
)

// Wire is a TCP proxy to a server. It can cut or refuse connections, and hang.
type Wire = harness.Proxy

// NewWire starts a Wire to a server, until the test ends. The function accept is that of [harness.NewProxy].
func NewWire(tb testing.TB, to string, accept func(net.Conn) net.Conn) *Wire {
	tb.Helper()
	w, err := harness.NewProxy(to, accept)
	require.NoError(tb, err)
	tb.Cleanup(func() { w.Close() })
	return w
}

// MongoByWire returns a Wire to the MongoDB of the tests, and the URI of the MongoDB through it.
func MongoByWire(tb testing.TB) (w *Wire, uri string) {
	tb.Helper()
	w = NewWire(tb, MongoPrimary(tb), nil)
	return w, MongoByProxy(tb, w.Address, nil)
}

// MongoLater returns the URI of MongoDB at an address where nothing answers until open is called.
func MongoLater(tb testing.TB) (uri string, open func()) {
	tb.Helper()
	w := NewWire(tb, MongoPrimary(tb), nil)
	w.Close()
	return MongoByProxy(tb, w.Address, nil), func() { require.NoError(tb, w.Open()) }
}
