package testenv

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// MongoLater returns the URI of MongoDB at an address where nothing answers until open is called.
func MongoLater(tb testing.TB) (uri string, open func()) {
	tb.Helper()
	primary := MongoPrimary(tb)
	reserved, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	address := reserved.Addr().String()
	require.NoError(tb, reserved.Close())
	return MongoByProxy(tb, address, nil), func() {
		listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", address)
		require.NoError(tb, err)
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		tb.Cleanup(func() {
			cancel()
			_ = listener.Close()
			running.Wait()
		})
		running.Go(func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				running.Go(func() { forward(ctx, conn, primary) })
			}
		})
	}
}

// forward copies one connection in both directions until one side, or ctx, ends it.
func forward(ctx context.Context, from net.Conn, target string) {
	to, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
	if err != nil {
		_ = from.Close()
		return
	}
	end := func() { _, _ = from.Close(), to.Close() }
	defer context.AfterFunc(ctx, end)()
	var back sync.WaitGroup
	back.Go(func() {
		defer end()
		_, _ = io.Copy(from, to)
	})
	_, _ = io.Copy(to, from)
	end()
	back.Wait()
}
