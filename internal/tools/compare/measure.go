package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
)

// processes is the number of instances, each with connections of its own.
const processes = 5

// sizes has the numbers and times of a run.
type sizes struct {
	turns                                  int
	pairs, handOffs, fairness, idle, crowd time.Duration
	waiters, fair, crowded                 int
	ttl                                    time.Duration
}

var (
	full = sizes{
		turns: 3, pairs: 2 * time.Second, handOffs: 3 * time.Second, fairness: 10 * time.Second, idle: 3 * time.Second,
		crowd: 30 * time.Second, waiters: 10, fair: 20, crowded: 200, ttl: 30 * time.Second,
	}
	short = sizes{
		turns: 1, pairs: time.Second / 2, handOffs: time.Second, fairness: time.Second, idle: time.Second / 2,
		crowd: 10 * time.Second, waiters: 5, fair: 5, crowded: 20, ttl: 30 * time.Second,
	}
)

// workTime is the time for which the lock is held in a hand-off, and briefWork the time in the measure of fairness.
const (
	workTime  = 20 * time.Millisecond
	briefWork = 2 * time.Millisecond
)

// group is a system with its instances.
type group struct {
	system
	sizes
	instances []instance
	sent      *atomic.Int64
	pids      []int
	// turn makes the names of resources unique.
	turn int
	// holders is the number of clients that hold the resource. More than one is an error of the lock.
	holders atomic.Int32
}

func openGroup(ctx context.Context, sys system, srv *servers, sz sizes) (*group, error) {
	g := &group{system: sys, sizes: sz}
	e := srv.counted()
	e.TTL, e.Queue = sz.ttl, srv.Database+"/"+sys.name
	e.Mutexes, g.sent = e.Queue, e.sent
	for _, name := range sys.servers {
		g.pids = append(g.pids, srv.pids[name]...)
		if len(srv.pids[name]) == 0 {
			g.pids = nil // a part of the time is unknown
			break
		}
	}
	for range processes {
		i, err := sys.open(ctx, e)
		if err != nil {
			return g, fmt.Errorf("%s: %w", sys.name, err)
		}
		g.instances = append(g.instances, i)
	}
	return g, nil
}

func (g *group) close(ctx context.Context) error {
	var errs []error
	for _, i := range g.instances {
		errs = append(errs, i.close(ctx))
	}
	return errors.Join(errs...)
}

func (g *group) acquire(ctx context.Context, client int, resource string) (*held, error) {
	h, err := g.instances[client%processes].acquire(ctx, client, resource)
	if err == nil && g.holders.Add(1) != 1 {
		return h, fmt.Errorf("%s: two clients hold the lock", g.name)
	}
	return h, err
}

func (g *group) release(ctx context.Context, h *held) error {
	g.holders.Add(-1)
	return h.release(ctx)
}

func (g *group) resource(measure string) string { return fmt.Sprintf("%s/%d", measure, g.turn) }

// pairResult has medians in milliseconds.
type pairResult struct{ pair, raw float64 }

// pair measures an acquire and a release in turn with a raw write.
func (g *group) pair(ctx context.Context) (r pairResult, err error) {
	var pairs, writes []float64
	resource, begin := g.resource("pair"), time.Now()
	const warmUp = 3
	for n := 0; n < 5+warmUp || time.Since(begin) < g.pairs; n++ {
		start := time.Now()
		h, err := g.acquire(ctx, 0, resource)
		if err == nil {
			err = g.release(ctx, h)
		}
		between := time.Now()
		if err = errors.Join(err, g.instances[0].write(ctx)); err != nil {
			return r, err
		}
		if n >= warmUp {
			pairs, writes = append(pairs, measure.Millis(between.Sub(start))), append(writes, measure.Millis(time.Since(between)))
		}
	}
	return pairResult{measure.Median(pairs), measure.Median(writes)}, nil
}

// handOffResult has the median time in milliseconds, and the requests of one cycle.
type handOffResult struct{ time, requests float64 }

// grant is an acquired lock.
type grant struct {
	held   *held
	client int
	at     time.Time
	err    error
}

// handOff keeps a number of waiters. Each holder releases after workTime, and becomes the newest waiter when it has.
func (g *group) handOff(ctx context.Context) (r handOffResult, err error) {
	resource, grants := g.resource("hand-off"), make(chan grant, g.waiters+1)
	wait := func(client int) {
		h, err := g.acquire(ctx, client, resource)
		grants <- grant{h, client, time.Now(), err}
	}
	wait(0)
	now := <-grants
	if now.err != nil {
		return r, now.err
	}
	for client := range g.waiters {
		go wait(client + 1)
	}
	if err := measure.Pause(ctx, g.settle/2); err != nil {
		return r, err
	}
	var times []float64
	sent, begin := g.sent.Load(), time.Now()
	for left := g.waiters; left > 0; {
		if err := measure.Pause(ctx, workTime); err != nil {
			return r, err
		}
		start, released := time.Now(), make(chan error, 1)
		go func() { released <- g.release(ctx, now.held) }()
		next := <-grants
		if err := errors.Join(next.err, <-released); err != nil {
			return r, err
		}
		if time.Since(begin) < g.handOffs || len(times) < 5 {
			times = append(times, measure.Millis(next.at.Sub(start)))
			r.requests = float64(g.sent.Load()-sent) / float64(len(times))
			go wait(now.client)
		} else {
			left-- // the remaining waiters get the lock too, and none follows
		}
		now = next
	}
	r.time = measure.Median(times)
	return r, g.release(ctx, now.held)
}

// fairResult has times in milliseconds. most and fewest are acquisitions of one client.
type fairResult struct {
	median, longest float64
	perSecond       float64
	most, fewest    int
}

// fair lets clients compete. Each waits for the lock that it asked for before the end, so the longest wait is known.
func (g *group) fairly(ctx context.Context) (fairResult, error) {
	resource, end := g.resource("fair"), time.Now().Add(g.fairness)
	counts := make([]int, g.fair)
	var mu sync.Mutex
	var waits []float64
	group, ctx := errgroup.WithContext(ctx)
	for client := range g.fair {
		group.Go(func() error {
			for asked := time.Now(); asked.Before(end); asked = time.Now() {
				h, err := g.acquire(ctx, client, resource)
				if err != nil {
					return err
				}
				got := time.Now()
				mu.Lock()
				waits = append(waits, measure.Millis(got.Sub(asked)))
				if got.Before(end) {
					counts[client]++
				}
				mu.Unlock()
				if err := errors.Join(measure.Pause(ctx, briefWork), g.release(ctx, h)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return fairResult{}, err
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	return fairResult{
		median: measure.Median(waits), longest: slices.Max(waits), perSecond: float64(total) / g.fairness.Seconds(),
		most: slices.Max(counts), fewest: slices.Min(counts),
	}, nil
}

// crowdResult has the cost of many waiters: while another client holds the lock, and until all have had it. Processor times are negative if
// they are unknown.
type crowdResult struct {
	// idleRequests is a number per second, and idleCPU a share of one processor.
	idleRequests, idleCPU float64
	// served clients had the lock within a time in seconds.
	served        int
	seconds       float64
	requests, cpu float64
}

func (g *group) manyWaiters(ctx context.Context) (r crowdResult, err error) {
	resource := g.resource("crowd")
	first, err := g.acquire(ctx, g.crowded, resource)
	if err != nil {
		return r, err
	}
	end := time.Now().Add(g.settle + g.idle + g.crowd)
	limited, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	var last atomic.Int64 // the time of the last grant
	var served atomic.Int32
	group, groupCtx := errgroup.WithContext(limited)
	for client := range g.crowded {
		group.Go(func() error {
			h, err := g.acquire(groupCtx, client, resource)
			if err != nil {
				if time.Until(end) < time.Second { // the calls of some clients end shortly before their deadline
					err = nil // it was not served in time
				}
				return err
			}
			served.Add(1)
			last.Store(time.Now().UnixNano())
			return g.release(ctx, h)
		})
	}
	err = measure.Pause(ctx, g.settle)
	idle, idleErr := g.spend(func() error { return measure.Pause(ctx, g.idle) })
	begin := time.Now()
	all, allErr := g.spend(func() error { return errors.Join(g.release(ctx, first), group.Wait()) })
	if err = errors.Join(err, idleErr, allErr); err != nil {
		return r, err
	}
	return crowdResult{
		idleRequests: idle.requests / g.idle.Seconds(), idleCPU: idle.cpu / g.idle.Seconds(),
		served: int(served.Load()), seconds: time.Unix(0, last.Load()).Sub(begin).Seconds(),
		requests: all.requests, cpu: all.cpu,
	}, nil
}

// spent has the cost of an action: requests, and the servers' processor time in seconds, negative if unknown.
type spent struct{ requests, cpu float64 }

func (g *group) spend(action func() error) (spent, error) {
	before, err := processorTime(g.pids)
	if err != nil {
		return spent{}, err
	}
	sent := g.sent.Load()
	if err := action(); err != nil {
		return spent{}, err
	}
	s := spent{requests: float64(g.sent.Load() - sent), cpu: -1}
	after, err := processorTime(g.pids)
	if len(g.pids) > 0 {
		s.cpu = (after - before).Seconds()
	}
	return s, err
}
