package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	enumspb "go.temporal.io/api/enums/v1"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Setup is a run to play: the faults of a seed, or those of a control.
type Setup struct {
	Seed uint64
	Long time.Duration // the load
	Plan []Fault
	// What is wrong in a control, see controls.go. Broken makes all clients wrong, Unchecked the registers, and BareSagas and HalfUndone
	// the sagas. Forgets makes the database lose its latest acknowledged writes in a restart, and Edits changes its documents.
	Broken                                    string
	Unchecked, BareSagas, HalfUndone, Forgets bool
	Edits                                     edit
	// Policies returns what the operator sets instead of the policy that it logs. If it is nil, there is no operator.
	Policies func(lockcore.Policy) lockcore.Policy
	// Revokes ends all holds by force.
	Revokes bool
	// NoSagas leaves the registers to the clients.
	NoSagas bool
	// Gentle lets all processes end by themselves at the end.
	Gentle bool
	// Samples is the folder of a soak's samples, or empty.
	Samples string
}

// play is a run.
type play struct {
	Setup
	dir, name string // the folder of the logs; the name of the database and the task queue
	servers   *servers
	log       *Log
	registers *Registers
	locker    *lockcore.Locker  // not through a proxy
	coll      *mongo.Collection // of the locks
	tc        temporalclient.Client
	pool      *pool
	nemesis   *nemesis
	sagas     sync.WaitGroup
	audited   map[string]bool // the changes of policies that the audit was seen to show
}

const (
	// sagasAtOnce is the number of sagas that run at the same time.
	sagasAtOnce = 3
	// sagaBound bounds the time in which all sagas end after the load.
	sagaBound = 60 * time.Second
	// sagaEnds is the time after which Temporal ends a saga of a run that was interrupted.
	sagaEnds = 30 * time.Minute
	// releaseBound bounds the time in which their locks are released.
	releaseBound = 20 * time.Second
	// lookAtQueues is the interval at which the queues are logged.
	lookAtQueues = 200 * time.Millisecond
	// afterOverdue is the time for which a waiter of a client stays in the queue after it became overdue: it refreshes its
	// request three times in its TTL, and two times may be left out.
	afterOverdue = ttl / 3
)

// Play plays a setup and returns its log. Errors concern the program and its servers, not violations.
func Play(ctx context.Context, s Setup, srv *servers, exe, dir string) (records []Record, err error) {
	p := &play{Setup: s, dir: dir, servers: srv, audited: map[string]bool{}, name: fmt.Sprintf("chaos_%d_%d", s.Seed, time.Now().UnixMilli())}
	if p.log, err = OpenLog(dir, "program", -1); err != nil {
		return nil, err
	}
	defer func() { _ = p.log.Close() }()   // each write was checked
	if err := srv.start(ctx); err != nil { // an earlier run may have ended in the middle of a restart
		return nil, err
	}
	closeAll, err := p.open(ctx, exe)
	defer closeAll()
	if err != nil {
		return nil, err
	}
	if err := p.load(ctx); err != nil {
		return nil, err
	}
	if err := p.ending(ctx); err != nil {
		return nil, err
	}
	return ReadLogs(dir)
}

// open starts everything but the load. close must be called even after an error.
func (p *play) open(ctx context.Context, exe string) (closeAll func(), err error) {
	var closers []func()
	closeAll = func() {
		for _, c := range slices.Backward(closers) {
			c()
		}
	}
	var names []string
	for i := range exclusives {
		names = append(names, fmt.Sprintf("x/%d", i))
	}
	p.registers = newRegisters(p.log, p.Unchecked, names)
	listener, err := p.registers.serve()
	if err != nil {
		return closeAll, err
	}
	closers = append(closers, func() { _ = listener.Close() })
	mc, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + p.servers.database + "/?directConnection=true").SetServerSelectionTimeout(opTimeout))
	if err != nil {
		return closeAll, err
	}
	closers = append(closers, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := mc.Database(p.name).Drop(last); err != nil {
			fmt.Fprintf(os.Stderr, "chaos: the database %s was not removed: %v\n", p.name, err)
		}
		_ = mc.Disconnect(last) // the program ends
	})
	p.coll = mc.Database(p.name).Collection("locks")
	if p.locker, err = lockcore.New(p.coll, lockcore.Config{TTL: ttl, ClaimTTL: ttl, WaiterTTL: ttl}); err != nil {
		return closeAll, err
	}
	if err := p.locker.CreateIndexes(ctx); err != nil {
		return closeAll, err
	}
	output, err := os.Create(filepath.Join(p.dir, "program.output"))
	if err != nil {
		return closeAll, err
	}
	closers = append(closers, func() { _ = output.Close() })
	if p.tc, err = dialTemporal(p.servers.temporal, output); err != nil {
		return closeAll, err
	}
	closers = append(closers, p.tc.Close)
	p.nemesis = &nemesis{servers: p.servers, log: p.log}
	if p.Forgets {
		p.nemesis.loses = p.coll
	}
	closers = append(closers, p.nemesis.close)
	if err := p.nemesis.open(p.servers); err != nil {
		return closeAll, err
	}
	p.pool = newPool(exe, p.log, func(slot int) Child { return p.child(slot, listener.Addr().String()) })
	p.nemesis.pool, p.pool.gentle = p.pool, p.Gentle
	closers = append(closers, func() { p.pool.stop(0, slots) })
	return closeAll, p.pool.startAll(ctx)
}

// child returns the configuration of a process.
func (p *play) child(slot int, registers string) Child {
	c := Child{Dir: p.dir, Slot: slot, Seed: p.Seed, Mongo: p.nemesis.mongo[slot].Address, Database: p.name, Registers: registers, Broken: p.Broken, Samples: p.Samples}
	if slot >= clients {
		c.Temporal = p.nemesis.temporal[slot].Address
	}
	return c
}

// load applies the faults while clients and sagas work, and for as long as clients may need to recover from the last one. Then it stops
// the clients, and waits until the sagas have ended.
func (p *play) load(ctx context.Context) error {
	p.log.Write(&Record{What: Total, Base: p.registers.total()})
	began := time.Now()
	loading, stop := context.WithCancel(ctx)
	defer stop()
	looking, stopLooking := context.WithCancel(ctx)
	var looks sync.WaitGroup
	looks.Go(func() { p.look(looking) })
	if p.Edits != nil {
		looks.Go(func() { repeatEdit(loading, p.coll, p.Edits) })
	}
	if p.Revokes {
		looks.Go(func() { p.revokeAll(loading) })
	}
	if p.Policies != nil {
		looks.Go(func() { p.operate(loading) })
	}
	for i := range sagasAtOnce {
		if p.NoSagas {
			break
		}
		p.sagas.Go(func() { p.transfers(ctx, loading, i) })
	}
	err := p.nemesis.play(ctx, p.Plan, began) // a server that is down at the end of the load is started again
	recovering := time.Duration(0)
	for i := range p.Plan {
		recovering = max(recovering, p.Plan[i].bound()+time.Second)
	}
	if err == nil && !harness.Pause(ctx, max(time.Until(began.Add(p.Long)), recovering)) {
		err = ctx.Err()
	}
	if err == nil { // Temporal's development server may answer only with "interrupted (9)", of its SQLite, after it was killed
		err = p.servers.start(ctx)
	}
	p.log.Write(&Record{What: Over})
	stop()
	p.pool.stop(0, clients)
	p.sagas.Wait()
	stopLooking()
	looks.Wait()
	return err
}

// transfers runs one saga after the other until the load ends, and waits for the last one.
func (p *play) transfers(ctx, loading context.Context, thread int) {
	r := rand.New(rand.NewPCG(p.Seed, uint64(100+thread))) //nolint:gosec // it should be the same each time
	for number := 0; harness.Pause(loading, span(r, 50, 300)); number++ {
		from := r.IntN(exclusives)
		to := (from + 1 + r.IntN(exclusives-1)) % exclusives
		t := Transfer{From: fmt.Sprintf("x/%d", from), To: fmt.Sprintf("x/%d", to), Amount: 1 + r.Int64N(50), Fail: r.IntN(4) == 0}
		if p.BareSagas {
			t.HoldTTL, t.Bare = ttl, true
		}
		t.HalfUndone = p.HalfUndone
		p.transfer(ctx, loading, fmt.Sprintf("%s-%d-%d", p.name, thread, number), t)
	}
}

// transfer starts a saga and waits until it has ended.
func (p *play) transfer(ctx, loading context.Context, id string, t Transfer) {
	for { // the server may be down; a start that was applied is found by its ID
		call, cancel := context.WithTimeout(ctx, opTimeout)
		_, err := p.tc.ExecuteWorkflow(call, temporalclient.StartWorkflowOptions{
			ID: id, TaskQueue: p.name, WorkflowTaskTimeout: opTimeout, WorkflowExecutionTimeout: sagaEnds, WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
			WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		}, transferName, t)
		cancel()
		if err == nil || strings.Contains(err.Error(), "already started") {
			break
		}
		if !harness.Pause(ctx, 100*time.Millisecond) {
			return
		}
	}
	p.await(ctx, loading, id, t.Fail)
}

// await waits until a saga has ended, and logs it if it has not within sagaBound after the load.
func (p *play) await(ctx, loading context.Context, id string, fails bool) {
	for began := time.Now(); ; {
		if loading.Err() == nil {
			began = time.Now()
		}
		late := time.Since(began)
		call, cancel := context.WithTimeout(ctx, opTimeout)
		d, err := p.tc.DescribeWorkflowExecution(call, id, "")
		cancel()
		if err == nil && d.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
			call, cancel := context.WithTimeout(ctx, opTimeout)
			failure := p.tc.GetWorkflow(call, id, "").Get(call, nil)
			cancel()
			if ended := new(temporal.WorkflowExecutionError); failure == nil || errors.As(failure, &ended) {
				p.log.Write(&Record{What: Closed, LockID: id, Result: d.GetWorkflowExecutionInfo().GetStatus().String(), Undo: fails, Error: text(failure)})
				return
			}
		}
		if late > sagaBound {
			p.log.Write(&Record{What: Open, LockID: id, Error: text(err)})
			return
		}
		if !harness.Pause(ctx, 50*time.Millisecond) {
			return
		}
	}
}

// look logs the queues, and the audit of policies.
func (p *play) look(ctx context.Context) {
	for harness.Pause(ctx, lookAtQueues) {
		began := now()
		queues := map[string]*Record{}
		call, cancel := context.WithTimeout(ctx, opTimeout)
		for s, err := range p.locker.Status(call, lockcore.Filter{Contended: true}) {
			if err != nil {
				break
			}
			q := queues[s.Resource]
			if q == nil {
				q = &Record{What: Queue, Began: began, Resource: s.Resource}
				queues[s.Resource] = q
			}
			if s.State != lockcore.StateWaiting {
				q.Holders++
				continue
			}
			heard := int64(0)
			if !s.Overdue {
				heard = began + int64(s.ExpiresIn-afterOverdue)
			}
			q.LockIDs, q.Heard = append(q.LockIDs, s.LockID), append(q.Heard, heard)
		}
		_ = p.audit(call) // the next look shows the same
		cancel()
		for _, q := range queues {
			if len(q.LockIDs) > 0 {
				p.log.Write(q)
			}
		}
	}
}

// sagasHold reports whether a saga holds locks, or this is not known.
func (p *play) sagasHold(ctx context.Context) bool {
	for s, err := range p.locker.Status(ctx, lockcore.Filter{}) {
		if err != nil || strings.Contains(s.LockID, "/"+p.name+"-") {
			return true
		}
	}
	return false
}

// ending waits until the workers have released the locks of all sagas: if a worker was killed after a saga had closed, the other
// worker's janitor does. Then it stops the workers, and logs the locks that remain one TTL later.
func (p *play) ending(ctx context.Context) error {
	for began := time.Now(); time.Since(began) < releaseBound && p.sagasHold(ctx) && harness.Pause(ctx, 200*time.Millisecond); {
		continue
	}
	p.pool.stop(clients, slots)
	if err := p.audit(ctx); err != nil {
		return err
	}
	p.log.Write(&Record{What: Stopped})
	p.log.Write(&Record{What: Total, Base: initialBalance * exclusives, Version: p.registers.total()})
	if !harness.Pause(ctx, ttl+200*time.Millisecond) {
		return ctx.Err()
	}
	for s, err := range p.locker.Status(ctx, lockcore.Filter{}) {
		if err != nil {
			return err
		}
		if s.ExpiresIn > 0 {
			p.log.Write(&Record{What: Remains, Resource: s.Resource, LockID: s.LockID, Error: s.String()})
		}
	}
	return p.acquireAll(ctx)
}

// acquireAll acquires each resource once, and logs the resources that are not free.
func (p *play) acquireAll(ctx context.Context) error {
	var names []string
	for name, n := range map[string]int{"x/%d": exclusives, "z/%d": semaphores, "h/%d/0": historyNames, "h/%d/1": historyNames} {
		for i := range n {
			names = append(names, fmt.Sprintf(name, i))
		}
	}
	names = append(names, p.pool.probed()...)
	for _, name := range names {
		session, err := p.locker.TryAcquire(ctx, lockcore.Request{LockID: "at the end", Resources: []lockcore.Resource{lockcore.Exclusive(name)}})
		if errors.Is(err, lockcore.ErrBusy) {
			p.log.Write(&Record{What: Remains, Resource: name, Error: err.Error()})
			continue
		}
		if err != nil {
			return err
		}
		if err := session.Leave(ctx); err != nil {
			return err
		}
	}
	return nil
}
