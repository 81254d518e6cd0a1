package harness

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// ErrCut is the error of a connection that was cut, and of one that was refused.
var ErrCut = errors.New("the connection was cut on purpose")

// Network disturbs the connections to servers that are made with its DialContext. The zero value disturbs nothing until one of its
// methods is called. It works below TLS and is safe for concurrent use.
type Network struct {
	mu             sync.Mutex
	onRequest      func(data []byte) Moment
	conns          map[*conn]bool // the open ones
	refuses, hangs bool
	delay          time.Duration

	delayed, swallowed atomic.Int64 // pieces of data
}

// Moment is the point of a request at which its connection is cut.
type Moment int

// The moments.
const (
	Never Moment = iota
	BeforeRequest
	AfterRequest
	BeforeAnswer // when the answer has arrived, so that the server has carried out the request
)

// DialContext connects to a server, unless connections are refused.
func (n *Network) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refuses {
		_ = c.Close() // nothing was sent
		return nil, ErrCut
	}
	if n.conns == nil {
		n.conns = map[*conn]bool{}
	}
	disturbed := &conn{Conn: c, network: n, dead: make(chan struct{})}
	n.conns[disturbed] = true
	return disturbed, nil
}

// OnRequest calls a function with each piece of data before it is sent to a server. It decides when the connection is cut.
func (n *Network) OnRequest(call func(data []byte) Moment) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.onRequest = call
}

// Cut closes all connections and refuses new ones until Mend. It returns the number of connections that it closed.
func (n *Network) Cut() int {
	n.Refuse()
	return n.CloseAll()
}

// CloseAll closes all connections and returns their number.
func (n *Network) CloseAll() int { return n.closeThose(func(*conn) bool { return true }) }

// Refuse makes new connections fail until Mend.
func (n *Network) Refuse() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refuses = true
}

// Mend allows new connections again.
func (n *Network) Mend() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refuses = false
}

// Hang makes the servers silent from now on: what is sent is lost, also on later connections, which stay open.
func (n *Network) Hang() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hangs = true
}

// Delay delays each piece of data in both directions; 0 ends that. It returns the number of pieces that were delayed since the last call.
func (n *Network) Delay(d time.Duration) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = d
	return n.delayed.Swap(0)
}

// Swallow makes the present connections lose what is sent in the chosen directions, as half-open ones do. Later connections work.
func (n *Network) Swallow(requests, answers bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.swallowed.Store(0)
	for c := range n.conns {
		c.halfOpen, c.swallows = true, [2]bool{request: requests, answer: answers}
	}
}

// Reset closes the connections that are half-open because of Swallow, as a peer does that gets data of a connection which it does not
// know, or leaves them silent. It returns the number of pieces of data that were lost since Swallow.
func (n *Network) Reset(silent bool) int64 {
	if !silent {
		n.closeThose(func(c *conn) bool { return c.halfOpen })
	}
	return n.swallowed.Load()
}

// closeThose closes the selected connections and returns their number.
func (n *Network) closeThose(selected func(*conn) bool) int {
	var all []*conn
	n.mu.Lock()
	for c := range n.conns {
		if selected(c) {
			all = append(all, c)
		}
	}
	n.mu.Unlock()
	for _, c := range all {
		_ = c.Close() // it may have ended
	}
	return len(all)
}

// The directions of a connection.
const (
	request = iota
	answer
)

// conn is a connection that can be disturbed.
type conn struct {
	net.Conn
	network *Network
	dying   sync.Once
	dead    chan struct{} // closed by Close
	// cutAtAnswer is set if the connection is cut when the next answer arrives.
	cutAtAnswer atomic.Bool

	// The mutex of the network guards what follows. swallows has the directions in which data is lost.
	halfOpen bool
	swallows [2]bool
}

// Write sends data to the server, unless it is lost or the connection is cut.
func (c *conn) Write(b []byte) (int, error) {
	c.network.mu.Lock()
	decide, when := c.network.onRequest, Never
	c.network.mu.Unlock()
	if decide != nil {
		when = decide(b)
	}
	switch when {
	case BeforeRequest:
		_ = c.Close() // it is cut
		return 0, ErrCut
	case BeforeAnswer:
		c.cutAtAnswer.Store(true)
	case Never, AfterRequest:
	}
	if c.loses(request) {
		return len(b), nil
	}
	n, err := c.Conn.Write(b)
	if when == AfterRequest {
		_ = c.Close() // it is cut
	}
	return n, err
}

// Read receives data from the server, except what is lost.
func (c *conn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil {
			return n, err
		}
		if c.cutAtAnswer.Load() {
			_ = c.Close() // it is cut
			return 0, ErrCut
		}
		if !c.loses(answer) {
			return n, nil
		}
	}
}

// loses reports whether a piece of data is lost, and delays one that is not.
func (c *conn) loses(direction int) bool {
	n := c.network
	n.mu.Lock()
	delay, lost := n.delay, n.hangs || c.swallows[direction]
	n.mu.Unlock()
	if lost {
		n.swallowed.Add(1)
	} else if delay > 0 {
		n.delayed.Add(1)
		select {
		case <-time.After(delay):
		case <-c.dead:
		}
	}
	return lost
}

// Close closes the connection.
func (c *conn) Close() error {
	c.dying.Do(func() { close(c.dead) })
	c.network.mu.Lock()
	delete(c.network.conns, c)
	c.network.mu.Unlock()
	return c.Conn.Close()
}
