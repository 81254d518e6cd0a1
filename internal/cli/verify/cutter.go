package verify

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// How often a connection is cut while cuts are on: per write to the server, at each of three moments; and per
// write that no connection can be made for a while.
const (
	cutShare  = 0.03
	awayShare = 0.01
	mostAway  = 3 * time.Second
)

// errCut is the error of a connection that was cut.
var errCut = errors.New("the connection was cut by lockstep verify")

// cutter dials the connections of a client process, and cuts them at random moments while it is on: before a
// command is sent, after it was sent, and when its answer arrives. It works below TLS.
type cutter struct {
	dialer net.Dialer

	mu   sync.Mutex
	rand *rand.Rand
	on   bool
	// away is the time until which no connection can be made.
	away time.Time
	cuts int
	open map[*cutConn]bool
}

func newCutter(seed uint64) *cutter {
	return &cutter{rand: rand.New(rand.NewPCG(seed, 1)), open: map[*cutConn]bool{}} //nolint:gosec // a failed run must be repeatable
}

// set switches the cutter, and returns the number of cuts so far.
func (c *cutter) set(on bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.on = on
	if !on {
		c.away = time.Time{}
	}
	return c.cuts
}

// DialContext connects to a server, unless none can be reached for the moment.
func (c *cutter) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	away := time.Now().Before(c.away)
	c.mu.Unlock()
	if away {
		return nil, errCut
	}
	conn, err := c.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	cut := &cutConn{Conn: conn, cutter: c}
	c.mu.Lock()
	c.open[cut] = true
	c.mu.Unlock()
	return cut, nil
}

// moment is the point of a command at which a connection is cut.
type moment int

const (
	never moment = iota
	beforeSend
	afterSend
	beforeAnswer
)

// draw returns when the connection of the next write is cut. It may cut all connections at once, for a while.
func (c *cutter) draw() moment {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.on {
		return never
	}
	p := c.rand.Float64()
	switch {
	case p < 3*cutShare:
		c.cuts++
		return []moment{beforeSend, afterSend, beforeAnswer}[int(p/cutShare)]
	case p < 3*cutShare+awayShare:
		c.cuts += len(c.open)
		c.away = time.Now().Add(time.Duration(c.rand.Int64N(int64(mostAway))))
		for conn := range c.open {
			_ = conn.Conn.Close() // it is cut
		}
		return beforeSend
	}
	return never
}

// cutConn is a connection that can be cut.
type cutConn struct {
	net.Conn
	cutter *cutter

	mu     sync.Mutex
	answer bool // the next answer is lost
}

// Write sends bytes of a command.
func (c *cutConn) Write(b []byte) (int, error) {
	when := c.cutter.draw()
	if when == beforeSend {
		_ = c.Close() // it is cut
		return 0, errCut
	}
	n, err := c.Conn.Write(b)
	switch when {
	case afterSend:
		_ = c.Close() // it is cut
	case beforeAnswer:
		c.mu.Lock()
		c.answer = true
		c.mu.Unlock()
	case never, beforeSend:
	}
	return n, err
}

// Read receives bytes of an answer. If the answer is to be lost, it waits for it, so that the server has
// carried out the command.
func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	lost := c.answer
	c.mu.Unlock()
	if lost && err == nil {
		_ = c.Close() // it is cut
		return 0, errCut
	}
	return n, err
}

// Close closes the connection.
func (c *cutConn) Close() error {
	c.cutter.mu.Lock()
	delete(c.cutter.open, c)
	c.cutter.mu.Unlock()
	return c.Conn.Close()
}
