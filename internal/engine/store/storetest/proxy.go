package storetest

import (
	"context"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

// Proxy forwards connections to the test server. It can hang, and refuse or close connections.
type Proxy struct {
	// URI is the connection string of the proxy.
	URI     string
	running sync.WaitGroup

	mu              sync.Mutex
	hangs, refuses  bool
	stopped         bool
	conns           []net.Conn
	listener        net.Listener
	target, address string
}

// NewProxy starts a proxy that ends with the test.
func NewProxy(t testing.TB) *Proxy {
	t.Helper()
	uri, err := url.Parse(testenv.MongoURI(t))
	require.NoError(t, err)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{listener: listener, target: uri.Host, address: listener.Addr().String()}
	uri.Host = p.address
	p.URI = uri.String()
	p.running.Go(p.accept)
	t.Cleanup(func() {
		p.mu.Lock()
		p.stopped = true
		p.mu.Unlock()
		_ = listener.Close() // ends accept
		p.Cut()
		p.running.Wait()
	})
	return p
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refuses := p.refuses || p.stopped
		p.mu.Unlock()
		if refuses {
			_ = conn.Close() // this is the refusal
			continue
		}
		back, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.target)
		if err != nil {
			_ = conn.Close() // the client tries again
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, conn, back)
		p.mu.Unlock()
		p.running.Go(func() { p.copy(back, conn) })
		p.running.Go(func() { p.copy(conn, back) })
	}
}

// copy forwards bytes, and drops them while the proxy hangs.
func (p *Proxy) copy(to, from net.Conn) {
	defer func() {
		_ = to.Close()   // so that the other direction ends
		_ = from.Close() // as above
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		hangs := p.hangs
		p.mu.Unlock()
		if n > 0 && !hangs {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Hang makes the server silent. Connections stay open.
func (p *Proxy) Hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangs = true
}

// Refuse closes new connections.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = true
}

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close() // it may have ended
	}
	p.conns = nil
}
