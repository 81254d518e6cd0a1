package verify

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
)

// How often a connection is cut while cuts are on: per write to the server, at each of three moments; and per
// write that no connection can be made for a while.
const (
	cutShare  = 0.03
	awayShare = 0.01
	mostAway  = 3 * time.Second
)

// cutter dials the connections of a client process, and cuts them at random moments while it is on: before a
// command is sent, after it was sent, and when its answer arrives.
type cutter struct {
	harness.Network

	mu   sync.Mutex
	rand *rand.Rand
	on   bool
	cuts int
	// away is the time until which no connection can be made.
	away time.Time
}

func newCutter(seed uint64) *cutter {
	c := &cutter{rand: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // a failed run must be repeatable
	c.OnRequest(func([]byte) harness.Moment { return c.draw() })
	return c
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
		return nil, harness.ErrCut
	}
	return c.Network.DialContext(ctx, network, address)
}

// draw returns when the connection of the next write is cut. It may cut all connections at once, for a while.
func (c *cutter) draw() harness.Moment {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.on {
		return harness.Never
	}
	p := c.rand.Float64()
	switch {
	case p < 3*cutShare:
		c.cuts++
		return []harness.Moment{harness.BeforeRequest, harness.AfterRequest, harness.BeforeAnswer}[int(p/cutShare)]
	case p < 3*cutShare+awayShare:
		c.cuts += c.CloseAll()
		c.away = time.Now().Add(time.Duration(c.rand.Int64N(int64(mostAway))))
		return harness.BeforeRequest
	}
	return harness.Never
}
