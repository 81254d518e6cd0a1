package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// proxy forwards the connections of one process to one server, and disturbs them. It listens on the same address all the time.
type proxy struct {
	*toxiproxy.Proxy
	network *network
}

// network is the state of the connections of one proxy. Its toxic is in the chain of each connection all the time, because a
// toxic that is taken out of a chain does not show what it did.
type network struct {
	mu    sync.Mutex
	delay time.Duration
	links map[*toxics.ToxicStub]bool

	delayed, swallowed atomic.Int64 // pieces of data
}

var (
	networksMu sync.Mutex
	networks   = map[string]*network{} // by the name in the toxic's attributes, because toxiproxy makes the toxics
)

// newProxy starts a proxy on a free port.
func newProxy(name, upstream string) (*proxy, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &proxy{Proxy: toxiproxy.NewProxy(server, name, "127.0.0.1:0", upstream), network: &network{links: map[*toxics.ToxicStub]bool{}}}
	networksMu.Lock()
	networks[name] = p.network
	networksMu.Unlock()
	for _, direction := range []string{"upstream", "downstream"} {
		text := fmt.Sprintf(`{"type": %q, "stream": %q, "attributes": {"network": %q, "requests": %t}}`, toxicName, direction, name, direction == "upstream")
		if _, err := p.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
			return nil, err
		}
	}
	return p, p.Start()
}

// close ends the proxy and its connections.
func (p *proxy) close() {
	p.Stop()
	networksMu.Lock()
	delete(networks, p.Name)
	networksMu.Unlock()
}

// connections returns the number of open connections.
func (p *proxy) connections() int {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	return len(p.network.links) / 2
}

// cut closes all connections and refuses new ones until mend is called. It returns the number of connections that it closed.
func (p *proxy) cut() int {
	n := p.connections()
	p.Stop()
	return n
}

// mend accepts connections again. The port is this program's own, but its last connections may still be closing.
func (p *proxy) mend() error {
	var err error
	for range 100 {
		if err = p.Start(); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// slow delays data in both directions. A delay of 0 ends that. It returns the pieces of data that were delayed since the start.
func (n *network) slow(delay time.Duration) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = delay
	return n.delayed.Load()
}

// halfOpen makes the present connections swallow data. Later ones work.
func (n *network) halfOpen(requests, answers bool) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	for stub := range n.links {
		l := stub.State.(*link)
		l.swallows = l.requests && requests || !l.requests && answers
		l.half = true
	}
	return n.swallowed.Load()
}

// mend ends that. It closes the connections, as a peer does that gets data of a connection which it does not know, unless they
// stay silent.
func (n *network) mend(silent bool) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	for stub := range n.links {
		if l := stub.State.(*link); l.half && !silent {
			l.half = false
			close(l.dead)
		}
	}
	return n.swallowed.Load()
}

// effect returns what happens to a piece of data of a link.
func (n *network) effect(l *link) (delay time.Duration, swallow bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.delay, l.swallows
}

func (n *network) add(stub *toxics.ToxicStub, requests bool) *link {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &link{requests: requests, dead: make(chan struct{})}
	stub.State = l
	n.links[stub] = true
	return l
}

func (n *network) remove(stub *toxics.ToxicStub) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.links, stub)
}

// link is one direction of a connection. The mutex of its network guards it.
type link struct {
	requests bool
	// half is set if it is a part of a half-open connection, and swallows if it swallows data.
	half, swallows bool
	dead           chan struct{}
}

const toxicName = "lockstep"

func init() { toxics.Register(toxicName, new(toxic)) }

// toxic applies the state of a network to one direction of each connection.
type toxic struct {
	Network  string `json:"network"`
	Requests bool   `json:"requests"`
}

// Pipe forwards data until the connection ends.
func (t *toxic) Pipe(stub *toxics.ToxicStub) {
	networksMu.Lock()
	n := networks[t.Network]
	networksMu.Unlock()
	if n == nil { // the proxy was closed
		stub.Close()
		return
	}
	l := n.add(stub, t.Requests)
	defer n.remove(stub)
	for {
		select {
		case <-stub.Interrupt:
			return
		case <-l.dead:
			stub.Close()
			go drain(stub.Input)
			return
		case c := <-stub.Input:
			if c == nil {
				stub.Close()
				return
			}
			if !t.pass(n, l, stub, c) {
				return
			}
		}
	}
}

// drain takes what toxiproxy still reads from a connection that was reset, until it notices that the connection is closed.
func drain(input <-chan *stream.StreamChunk) {
	for c := range input {
		_ = c
	}
}

// pass forwards, delays or swallows one piece of data. It returns false if the link was interrupted.
func (t *toxic) pass(n *network, l *link, stub *toxics.ToxicStub, c *stream.StreamChunk) bool {
	delay, swallow := n.effect(l)
	if swallow {
		n.swallowed.Add(1)
		return true
	}
	if delay > 0 {
		n.delayed.Add(1)
		select {
		case <-time.After(delay - time.Since(c.Timestamp)):
		case <-l.dead:
		case <-stub.Interrupt:
			return false
		}
	}
	stub.Output <- c
	return true
}

// refuses reports whether nothing accepts connections at an address.
func refuses(address string) bool {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", address)
	if err != nil {
		return true
	}
	_ = c.Close()
	return false
}
