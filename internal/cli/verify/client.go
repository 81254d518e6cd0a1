package verify

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/internal/proof/linear"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// longTTL is the TTL of locks that must not expire during a run.
	longTTL = time.Hour
	// worksAgain bounds the time in which a client must have left a resource, whatever happens to its
	// connections.
	worksAgain = time.Minute
	// attempt bounds one attempt to leave, and leavePause is the pause between two.
	attempt    = 10 * time.Second
	leavePause = 20 * time.Millisecond
	// closing bounds the end of a client.
	closing = 5 * time.Second
)

// client is one client process: a Locker on a connection of its own.
type client struct {
	locker *lockcore.Steps
	lockID string
	cutter *cutter
	asked  uint32
	held   map[string]*holding
}

// holding is a lock that the client holds. Those of waits have a session, which renews them.
type holding struct {
	lease   lockcore.Lease
	session *lockcore.Session
}

// valid reports whether the process trusts its lease.
func (h *holding) valid() bool {
	if h.session != nil {
		return h.session.Leases()[0].Valid()
	}
	return h.lease.Valid()
}

// RunClient is a client process: it carries out the orders that it reads, until in or ctx ends. The verify
// command starts it.
func RunClient(ctx context.Context, in io.Reader, out io.Writer) error {
	read, write := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	var s setup
	if err := read.Decode(&s); err != nil {
		return fmt.Errorf("%w: the first line is not a setup: %w", ErrUsage, err)
	}
	c := &client{lockID: fmt.Sprintf("client-%d", s.Client), cutter: newCutter(s.Seed), held: map[string]*holding{}}
	mc, err := connect.Mongo(ctx, s.URI, "lockstep verify", func(o *options.ClientOptions) { o.SetDialer(c.cutter) })
	if err != nil {
		return errors.Join(err, write.Encode(answer{Failed: true, Text: err.Error()}))
	}
	defer func() { _ = mc.Disconnect(context.WithoutCancel(ctx)) }() // the process ends anyway
	kept, err := broken(s.Control, s.Seed, store.New(mc.Database(s.Database).Collection(s.Collection)))
	if err != nil {
		return err
	}
	locker, err := lockcore.NewWithStore(kept, lockcore.Config{TTL: longTTL})
	if err != nil {
		return err
	}
	c.locker = locker.Steps()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
		defer cancel()
		_ = c.locker.Close(ctx) // the collection is removed
	}()
	if err := write.Encode(answer{OK: true}); err != nil {
		return err
	}
	for ctx.Err() == nil {
		var o order
		if err := read.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := write.Encode(c.carryOut(ctx, o)); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) carryOut(ctx context.Context, o order) answer {
	held := c.held[o.Resource]
	switch o.Do {
	case ping:
		return answer{OK: true}
	case cutOn, cutOff:
		return answer{OK: true, Cuts: c.cutter.set(o.Do == cutOn)}
	case askValid:
		return answer{OK: held != nil && held.valid()}
	case linear.Renew:
		return c.renew(ctx, o)
	case linear.Leave, linear.Release, linear.Settle:
		return c.leave(ctx, o)
	}
	if o.Do.Takes() {
		return c.take(ctx, o)
	}
	return answer{Failed: true, Text: fmt.Sprintf("unknown order %q", o.Do)}
}

// take asks for a lock. After an error, the request's part is kept, so that a Settle can leave.
func (c *client) take(ctx context.Context, o order) answer {
	ctx, cancel := context.WithTimeout(ctx, o.Within)
	defer cancel()
	c.asked++
	resource := lockcore.Exclusive(o.Resource)
	if o.Do == linear.TakeShared || o.Do == linear.WaitShared {
		resource = lockcore.Shared(o.Resource)
	}
	req := lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: c.lockID, Part: fmt.Sprintf("%d", c.asked), Order: lockcore.Order{Attempt: 1}}, Resources: []lockcore.Resource{resource}, TTL: o.TTL,
	}
	taken := &holding{lease: lockcore.Lease{Resource: o.Resource, LockID: req.LockID, Part: req.Part, Order: req.Order}}
	var err error
	if o.Do.Waits() {
		req.MaxWait = o.Within * 3 / 4
		taken.session, err = c.locker.Acquire(ctx, req)
		if err == nil {
			taken.lease = taken.session.Leases()[0]
		}
	} else {
		var leases []lockcore.Lease
		if leases, err = c.locker.TryEnter(ctx, req); err == nil {
			taken.lease = leases[0]
		}
	}
	switch {
	case errors.Is(err, lockcore.ErrBusy):
		return answer{}
	case err != nil:
		c.held[o.Resource] = taken
		return answer{Failed: true, Text: err.Error()}
	}
	c.held[o.Resource] = taken
	return answer{OK: true, Fence: taken.lease.Fence}
}

func (c *client) renew(ctx context.Context, o order) answer {
	held := c.held[o.Resource]
	if held == nil {
		return answer{}
	}
	ctx, cancel := context.WithTimeout(ctx, o.Within)
	defer cancel()
	leases, err := c.locker.Renew(ctx, held.lease)
	switch {
	case errors.Is(err, lockcore.ErrLost):
		delete(c.held, o.Resource)
		if held.session != nil {
			_ = held.session.Leave(ctx) // its lock is lost
		}
		return answer{}
	case err != nil:
		return answer{Failed: true, Text: err.Error()}
	}
	held.lease = leases[0]
	return answer{OK: true, Fence: held.lease.Fence}
}

// leave ends the client's use of a resource, and repeats that until it is acknowledged.
func (c *client) leave(ctx context.Context, o order) answer {
	held := c.held[o.Resource]
	if held == nil {
		return answer{OK: true}
	}
	ctx, cancel := context.WithTimeout(ctx, worksAgain)
	defer cancel()
	for {
		err := c.leaveOnce(ctx, o.Do, held)
		if err == nil {
			delete(c.held, o.Resource)
			return answer{OK: true}
		}
		if ctx.Err() != nil {
			return answer{Failed: true, Text: fmt.Sprintf("it could not leave within %s: %v", worksAgain, err)}
		}
		harness.Pause(ctx, leavePause)
	}
}

func (c *client) leaveOnce(ctx context.Context, do linear.Verb, held *holding) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	l := held.lease
	switch {
	case held.session != nil:
		return held.session.Leave(ctx)
	case do == linear.Release && l.FirstFence > 0:
		return c.locker.Release(ctx, lockcore.Release{
			LockID: l.LockID, Resources: []string{l.Resource}, FirstFence: l.FirstFence, Order: l.Order, Leaving: &l.Part,
		})
	}
	return c.locker.Leave(ctx, l)
}
