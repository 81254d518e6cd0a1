// Package delay holds back the answers of a database, for benches: a replica set of three needs longer for a majority write
// than a database on one machine does.
package delay

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// Delays are the times for which answers are held back after they arrive.
type Delays struct {
	// All applies to every answer. Writes and Reads are added to it for the answers of these commands.
	All, Writes, Reads time.Duration
}

// Dialer makes connections to a database that hold back answers, for the driver's SetDialer.
type Dialer struct {
	net.Dialer
	Delays Delays
}

// DialContext connects to a server.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return newDelayedConn(conn, d.Delays), nil
}

// delayedConn is a connection that holds back answers. It reads the messages of the MongoDB wire protocol that the driver
// sends, and remembers the IDs of requests whose answers it must hold back for longer than others. An answer that belongs
// to no such request, such as the second and later ones of a streaming hello, is held back for delays.All.
type delayedConn struct {
	net.Conn
	delays Delays

	mu sync.Mutex
	// pending are the delays of requests without an answer so far, by request ID.
	pending  map[int32]time.Duration
	deadline time.Time
	closed   bool
	// changed is closed, and replaced, when deadline or closed changes.
	changed chan struct{}

	// The state of the message that is being read. One goroutine reads at a time.
	header [headerSize]byte
	// arrived is how much of the header has been read, and delivered how much of it the caller has.
	arrived, delivered int
	// body is how many bytes follow that have not been read.
	body    int
	release time.Time
}

const (
	headerSize = 16
	opMsg      = 2013
	// moreToCome is the flag of a message that is not answered.
	moreToCome = 2
)

var errNotAMessage = errors.New("not a message of the MongoDB wire protocol")

func newDelayedConn(conn net.Conn, d Delays) *delayedConn {
	return &delayedConn{Conn: conn, delays: d, pending: map[int32]time.Duration{}, changed: make(chan struct{})}
}

// Write sends a message. The driver sends each message by one call.
func (c *delayedConn) Write(b []byte) (int, error) {
	if len(b) < headerSize || int(int32At(b, 0)) != len(b) {
		return 0, errNotAMessage
	}
	if d := c.delayOf(b); d > 0 {
		c.mu.Lock()
		c.pending[int32At(b, 4)] = d
		c.mu.Unlock()
	}
	return c.Conn.Write(b)
}

// delayOf returns how much longer than others the answer of a request is held back.
func (c *delayedConn) delayOf(message []byte) time.Duration {
	switch name := commandOf(message); {
	case IsWrite(name):
		return c.delays.Writes
	case IsRead(name):
		return c.delays.Reads
	}
	return 0
}

// commandOf returns the name of the command in a request that is answered, or "". The name is the first key of the document
// in the message's first section, where the driver puts it.
func commandOf(message []byte) string {
	const flags, kind, firstKey = headerSize, headerSize + 4, headerSize + 4 + 1 + 4 + 1
	if len(message) < firstKey || int32At(message, 12) != opMsg || int32At(message, flags)&moreToCome != 0 || message[kind] != 0 {
		return ""
	}
	name, _, _ := bytes.Cut(message[firstKey:], []byte{0})
	return string(name)
}

// Read returns bytes of an answer when the answer's delay is over.
func (c *delayedConn) Read(b []byte) (int, error) {
	if c.delivered == headerSize && c.body == 0 {
		c.arrived, c.delivered = 0, 0
	}
	if c.arrived < headerSize {
		if err := c.readHeader(); err != nil {
			return 0, err
		}
	}
	if err := c.hold(); err != nil {
		return 0, err
	}
	if c.delivered < headerSize {
		n := copy(b, c.header[c.delivered:])
		c.delivered += n
		return n, nil
	}
	n, err := c.Conn.Read(b[:min(len(b), c.body)])
	c.body -= n
	return n, err
}

// readHeader reads the header of the next answer, from which on the answer's delay counts. It continues where a call
// that ran into the deadline has ended.
func (c *delayedConn) readHeader() error {
	for c.arrived < headerSize {
		n, err := c.Conn.Read(c.header[c.arrived:])
		c.arrived += n
		if c.arrived < headerSize && err != nil {
			if errors.Is(err, io.EOF) && c.arrived > 0 {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	c.body = int(int32At(c.header[:], 0)) - headerSize
	if c.body < 0 {
		return errNotAMessage
	}
	request := int32At(c.header[:], 8)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release = time.Now().Add(c.delays.All + c.pending[request])
	delete(c.pending, request)
	return nil
}

// hold waits until the answer may be delivered, the deadline has passed or the connection is closed.
func (c *delayedConn) hold() error {
	for {
		c.mu.Lock()
		deadline, closed, changed := c.deadline, c.closed, c.changed
		c.mu.Unlock()
		if closed {
			return net.ErrClosed
		}
		if !deadline.IsZero() && !time.Now().Before(deadline) {
			return os.ErrDeadlineExceeded
		}
		wait := time.Until(c.release)
		if wait <= 0 {
			return nil
		}
		if !deadline.IsZero() {
			wait = min(wait, time.Until(deadline))
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		}
		timer.Stop()
	}
}

// SetDeadline sets the deadlines of Read and Write.
func (c *delayedConn) SetDeadline(t time.Time) error {
	c.change(func() { c.deadline = t })
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline sets the deadline of Read.
func (c *delayedConn) SetReadDeadline(t time.Time) error {
	c.change(func() { c.deadline = t })
	return c.Conn.SetReadDeadline(t)
}

// Close closes the connection, and ends a Read that waits.
func (c *delayedConn) Close() error {
	c.change(func() { c.closed = true })
	return c.Conn.Close()
}

// change changes the state on which hold depends, and makes hold look at it again.
func (c *delayedConn) change(set func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	set()
	close(c.changed)
	c.changed = make(chan struct{})
}

func int32At(b []byte, at int) int32 {
	return int32(binary.LittleEndian.Uint32(b[at:])) //nolint:gosec // the wire protocol's numbers are signed
}

var (
	writeCommands = []string{"update", "insert", "findAndModify", "delete", "bulkWrite"}
	readCommands  = []string{"find", "aggregate", "getMore", "count", "distinct"}
)

// IsWrite reports whether a command writes.
func IsWrite(command string) bool { return slices.Contains(writeCommands, command) }

// IsRead reports whether a command reads documents.
func IsRead(command string) bool { return slices.Contains(readCommands, command) }
