package harness

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// Proxy is a TCP proxy to a server, whose network can be disturbed.
type Proxy struct {
	Network
	// Address is the address on which it listens.
	Address string

	upstream string
	accept   func(net.Conn) net.Conn
	listener net.Listener
	running  sync.WaitGroup
}

// NewProxy starts a proxy on a free port. The function accept, unless nil, is called with each new connection, and returns the one to
// use, or nil to close it.
func NewProxy(upstream string, accept func(net.Conn) net.Conn) (*Proxy, error) {
	p := &Proxy{Address: "127.0.0.1:0", upstream: upstream, accept: accept}
	return p, p.Open()
}

// Open listens again after Close, on the same address. The port is this program's own, but another program may have taken it for a
// moment.
func (p *Proxy) Open() (err error) {
	for range 100 {
		if p.listener, err = net.Listen("tcp", p.Address); err == nil { //nolint:noctx // loopback
			p.Address = p.listener.Addr().String()
			p.Mend()
			p.running.Go(p.serve)
			return nil
		}
		time.Sleep(20 * time.Millisecond) // the system has no event for a port that becomes free
	}
	return err
}

// Close closes the port and all connections, and returns the number of connections that it closed. The system refuses later
// connections; [Network.Cut] keeps the port, and accepts connections only to close them.
func (p *Proxy) Close() int {
	if p.listener != nil { // Open has succeeded before
		_ = p.listener.Close() // ends serve
	}
	n := p.Cut()
	p.running.Wait()
	return n
}

func (p *Proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.connect(client) })
	}
}

// connect passes data between a client and the server until either ends.
func (p *Proxy) connect(accepted net.Conn) {
	defer func() { _ = accepted.Close() }() // the other side may have
	client := accepted
	if p.accept != nil {
		if client = p.accept(accepted); client == nil {
			return
		}
	}
	server, err := p.DialContext(context.Background(), "tcp", p.upstream)
	if err != nil {
		return // the client tries again
	}
	p.running.Go(func() { // a cut ends both copies, even if the client does not read
		<-server.(*conn).dead //nolint:forcetypeassert // DialContext returns no other type
		_ = client.Close()
	})
	p.running.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close() // ends the copy below
	})
	_, _ = io.Copy(client, server)
	_ = server.Close() // ends the copy above
}
