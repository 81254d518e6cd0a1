package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Child configures a child process.
type Child struct {
	Name, Dir string
	Slot      int
	Seed      uint64
	// Mongo, Database, Temporal and Registers are the addresses of its servers; the first and the third are proxies.
	Mongo, Database, Temporal, Registers string
	// Broken makes the process wrong on purpose: see controls.go.
	Broken string
	// Samples is the folder of a soak's samples, or empty.
	Samples string
}

const (
	// opTimeout bounds each call of a client.
	opTimeout = 2 * time.Second
	// lookEvery is the interval at which a holder checks that it may trust its lease.
	lookEvery = 5 * time.Millisecond
	// historyTime is the time for which all clients use the same resource for their histories.
	historyTime = 5 * time.Second
	// historyNames is the number of pairs of such resources.
	historyNames = 64
	// logEvery is the interval at which it logs that it did.
	logEvery = 20 * time.Millisecond

	exclusives, semaphores, permits = 4, 2, 3
)

// client is a client process.
type client struct {
	Child
	log       *Log
	locker    *lockcore.Locker
	coll      *mongo.Collection
	registers registers
}

// openClient connects a child process, which may be a worker too.
func openClient(c Child, holdTTL time.Duration) (*client, error) {
	log, err := OpenLog(c.Dir, c.Name, c.Slot)
	if err == nil && c.Samples != "" {
		err = sampleSelf(&c)
	}
	if err != nil {
		return nil, err
	}
	// The driver must not find other addresses of the database than the proxy's.
	mc, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + c.Mongo + "/?directConnection=true").SetServerSelectionTimeout(opTimeout))
	if err != nil {
		return nil, err
	}
	coll := mc.Database(c.Database).Collection("locks")
	locker, err := lockcore.New(coll, lockcore.Config{TTL: ttl, HoldTTL: holdTTL, ClaimTTL: ttl, WaiterTTL: ttl, Host: c.Name})
	if err != nil {
		return nil, err
	}
	regs, err := dialRegisters(c.Registers)
	return &client{Child: c, log: log, locker: locker, coll: coll, registers: regs}, err
}

// runClient is the main function of a client process. It works until its standard input ends, and obeys the commands there.
func runClient(c Child) error {
	cl, err := openClient(c, 0)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var wg sync.WaitGroup
	for thread, work := range []work{cl.hold, cl.hold, cl.history, cl.probe} {
		wg.Go(func() { cl.repeat(ctx, thread, work) })
	}
	cl.log.Write(&Record{What: Born})
	fmt.Println(harness.Ready)
	if c.Broken == brokenExit {
		harness.Pause(ctx, ttl)
		os.Exit(1)
	}
	obey()
	stop()
	wg.Wait()
	leaving, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	return cl.locker.Close(leaving)
}

// work is one round of the work that a thread of a client repeats. All choices come from the random numbers.
type work func(ctx context.Context, r *rand.Rand, lockID string)

// repeat does some work with ever new lock IDs until ctx ends.
func (c *client) repeat(ctx context.Context, thread int, do work) {
	r := rand.New(rand.NewPCG(c.Seed, uint64(thread))) //nolint:gosec // it should be the same each time
	for number := 0; ctx.Err() == nil; number++ {
		do(ctx, r, fmt.Sprintf("%s/%d/%d", c.Name, thread, number))
	}
}

// obey carries out the commands of the parent until it closes the pipe.
func obey() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var wall time.Duration
		err := json.Unmarshal(in.Bytes(), &wall)
		before := time.Now()
		if err == nil {
			err = setWall(wall)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, in.Text(), err)
		}
		after := time.Now()
		fmt.Println(after.Round(0).Sub(before.Round(0)).Round(time.Second)) // what the process saw
	}
}

// request is one acquisition.
type request struct {
	lockID    string
	resources []lockcore.Resource
	queue     bool
}

func (c *client) draw(r *rand.Rand, lockID string) request {
	req := request{lockID: lockID, queue: r.IntN(3) > 0}
	name := func() string { return fmt.Sprintf("x/%d", r.IntN(exclusives)) }
	which := r.IntN(8)
	if c.Broken == brokenPermits {
		which = 0
	}
	switch which {
	case 0, 1:
		req.resources = []lockcore.Resource{lockcore.SharedLimit(fmt.Sprintf("z/%d", r.IntN(semaphores)), permits)}
	case 2:
		req.resources = []lockcore.Resource{lockcore.Shared(name())}
	case 3:
		req.resources = []lockcore.Resource{lockcore.Exclusive("x/0"), lockcore.Exclusive(fmt.Sprintf("x/%d", 1+r.IntN(exclusives-1)))}
	default:
		req.resources = []lockcore.Resource{lockcore.Exclusive(name())}
	}
	return req
}

// hold acquires locks, works under them, and gives them back.
func (c *client) hold(ctx context.Context, r *rand.Rand, lockID string) {
	harness.Pause(ctx, span(r, 1, 150))
	req := c.draw(r, lockID)
	long := span(r, 5, 250)
	if r.IntN(12) == 0 { // longer than the lease, which must be renewed
		long = span(r, 3500, 5000)
	}
	how := tried
	acquire := c.locker.TryAcquire
	if req.queue {
		how, acquire = queued, c.locker.Acquire
	}
	began := now()
	for _, res := range req.resources {
		c.log.Write(&Record{What: Asked, Resource: res.Name, LockID: lockID, Shared: isShared(res), Limit: res.Limit, Result: how})
	}
	ask := lockcore.Request{LockID: lockID, Resources: req.resources, MaxWait: 2 * ttl}
	switch c.Broken {
	case brokenForever:
		ask.TTL = lockcore.Forever
	case brokenLong:
		ask.TTL, long = 10*ttl, span(r, 500, 4000)
	case brokenHeld, brokenPermits:
		long = span(r, 500, 4000)
	case brokenWall, brokenLate:
		c.naive(ctx, ask)
		return
	}
	call, cancel := context.WithCancel(ctx) // it is that of the session, too
	defer cancel()
	late := time.AfterFunc(2*ttl+opTimeout, cancel)
	session, err := acquire(call, ask)
	late.Stop()
	if err != nil {
		c.log.Write(&Record{What: Not, Began: began, LockID: lockID, Result: resultOf(err), Error: err.Error()})
		return
	}
	context.AfterFunc(session.Context(), func() {
		var loss *lockcore.LostError
		if errors.As(context.Cause(session.Context()), &loss) {
			c.log.Write(&Record{What: Loss, Resource: loss.Resource, LockID: lockID, Error: loss.Error()})
		}
	})
	c.use(lockID, began, long, session.Leases)
	c.leave(lockID, session)
}

func isShared(res lockcore.Resource) bool { return res.Mode == lockcore.ModeShared }

// leave gives a session's locks back.
func (c *client) leave(lockID string, session *lockcore.Session) {
	began := now()
	err := leaveInTime(session)
	c.log.Write(&Record{What: Left, Began: began, LockID: lockID, Result: resultOf(err), Error: text(err)})
}

// leaveInTime leaves with a time limit of its own. If the rest of the request's were too short, the lock would stay for a TTL.
func leaveInTime(session *lockcore.Session) error {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	return session.Leave(ctx)
}

// use reads the registers of exclusive locks, waits, and writes them. It logs that it trusts its leases while it does. It
// writes even if it does not trust them any longer, because a register must not depend on that.
func (c *client) use(lockID string, began int64, long time.Duration, leases func() []lockcore.Lease) {
	first := leases()
	for _, l := range first {
		c.log.Write(&Record{What: Got, Began: began, Resource: l.Resource, LockID: lockID, Shared: l.Mode == lockcore.ModeShared, Fence: l.Fence})
	}
	read := map[string]Answer{}
	for _, l := range first {
		if isRegister(l.Resource) && l.Mode == lockcore.ModeExclusive {
			if a, err := c.registers.call("Read", &Use{Resource: l.Resource, LockID: lockID, Fence: l.Fence}); err == nil {
				read[l.Resource] = a
			}
		}
	}
	observe(c.log, lockID, long, leases)
	for _, l := range first {
		if a, ok := read[l.Resource]; ok {
			a.Value.Count++
			_, _ = c.registers.call("Write", &Use{ // the register logs what becomes of it
				Resource: l.Resource, LockID: lockID, Fence: l.Fence, Base: a.Version, Value: a.Value,
			})
		}
	}
}

// observe logs for a time that leases are valid, each with a time at which it was. The time is read first: a process that is
// stopped in between trusted its lease at that time at least. The last such time of a lease that ends is logged too.
func observe(log *Log, lockID string, long time.Duration, leases func() []lockcore.Lease) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	valid, logged := map[string]int64{}, map[string]int64{}
	for end := now() + int64(long); ; <-look.C {
		at := now()
		for _, l := range leases() {
			ended := !l.Valid()
			if !ended {
				valid[l.Resource] = at
			}
			last := valid[l.Resource]
			if last > logged[l.Resource] && (ended || at >= end || last-logged[l.Resource] >= int64(logEvery)) {
				logged[l.Resource] = last
				log.Write(&Record{At: last, What: Trusted, Resource: l.Resource, LockID: lockID})
			}
		}
		if at >= end {
			return
		}
	}
}

// probedBy returns the name of the resource that only one process asks for.
func probedBy(process string) string { return "p/" + process }

// probe asks for a resource that only this process asks for. It succeeds whenever the process can work at all.
func (c *client) probe(ctx context.Context, r *rand.Rand, lockID string) {
	harness.Pause(ctx, span(r, 50, 100))
	if c.Broken == brokenNoLimit { // as a client that leaves all time limits to the network
		began := now()
		err := c.coll.FindOne(context.WithoutCancel(ctx), bson.D{{Key: "_id", Value: "p"}}).Err()
		if err == nil || errors.Is(err, mongo.ErrNoDocuments) {
			c.log.Write(&Record{What: Probe, Began: began, LockID: lockID, Result: done})
		}
		return
	}
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), opTimeout)
	defer cancel()
	began := now()
	session, err := c.locker.TryAcquire(call, lockcore.Request{
		LockID: lockID, Resources: []lockcore.Resource{lockcore.Exclusive(probedBy(c.Name))},
	})
	if err == nil {
		err = leaveInTime(session)
	}
	result := resultOf(err)
	c.log.Write(&Record{What: Probe, Began: began, LockID: lockID, Result: result, Error: text(err)})
}

// history carries out one short history of operations without a session, on a resource that all clients use for a short time.
// Each history has a lock ID of its own. The time is longer than a TTL, so that the lease of a killed client ends within it. The
// log has a name of its own for each use of a resource, which is used again after some minutes: with ever new resources the cache of
// documents would grow to its bound.
func (c *client) history(ctx context.Context, r *rand.Rand, lockID string) {
	harness.Pause(ctx, span(r, 5, 60))
	use, half := now()/int64(historyTime), r.IntN(2)
	resource, name := fmt.Sprintf("h/%d/%d", use, half), fmt.Sprintf("h/%d/%d", use%historyNames, half)
	shared := r.IntN(2) == 0
	ask := lockcore.StepRequest{Caller: lockcore.Caller{LockID: lockID}, Resources: []lockcore.Resource{lockcore.Exclusive(name)}}
	if shared {
		ask.Resources = []lockcore.Resource{lockcore.Shared(name)}
	}
	var leases []lockcore.Lease
	result := c.operation(Try, resource, lockID, shared, func(ctx context.Context) (fence int64, err error) {
		leases, err = c.locker.Steps().TryEnter(ctx, ask)
		if err != nil {
			return 0, err
		}
		return leases[0].Fence, nil
	})
	for result == granted && r.IntN(2) == 0 {
		harness.Pause(ctx, span(r, 1, 100))
		result = c.operation(Renew, resource, lockID, shared, func(ctx context.Context) (int64, error) {
			renewed, err := c.locker.Steps().Renew(ctx, leases...)
			if err == nil {
				leases = renewed
			}
			return leases[0].Fence, err
		})
	}
	if result != granted && result != unknown || len(leases) == 0 {
		return
	}
	c.operation(Release, resource, lockID, shared, func(ctx context.Context) (int64, error) {
		return 0, c.locker.Leave(ctx, leases...)
	})
}

// operation carries out and logs one operation of a history.
func (c *client) operation(what, resource, lockID string, shared bool, do func(context.Context) (fence int64, err error)) string {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	// A client that is killed leaves an operation without an answer.
	began := now()
	c.log.Write(&Record{At: began, Began: began, What: what, Resource: resource, LockID: lockID, Shared: shared})
	fence, err := do(ctx)
	result := resultOf(err)
	if err == nil {
		result = granted
	}
	if c.Broken == brokenUnknown { // as a client that takes an error for a no, or for a yes
		switch {
		case what == Release:
			result = granted
		case result == unknown:
			result = refused
		}
	}
	c.log.Write(&Record{What: what, Began: began, Resource: resource, LockID: lockID, Shared: shared, Fence: fence, Result: result, Error: text(err)})
	return result
}

// resultOf classifies an error of an operation. Errors that prove nothing are unknown outcomes.
func resultOf(err error) string {
	switch {
	case err == nil:
		return done
	case errors.Is(err, lockcore.ErrUnknownOutcome):
		return unknown
	case errors.Is(err, lockcore.ErrBusy):
		return refused
	case errors.Is(err, lockcore.ErrLost):
		return lost
	case strings.Contains(err.Error(), "not sent"):
		return failed
	}
	return unknown
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
