package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// turns notes the steps that ran under a lock.
type turns struct {
	mu    sync.Mutex
	taken []turn
}

type turn struct {
	runID      string
	start, end time.Time
}

// take is the step of a guarded workflow.
func (t *turns) take(ctx context.Context) error {
	start := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken = append(t.taken, turn{activity.GetInfo(ctx).WorkflowExecution.RunID, start, time.Now()})
	return nil
}

func (t *turns) reset() []turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.taken
	t.taken = nil
	return taken
}

// wakeUps lets workflows wait for one lock, one behind the other, and measures from the end of a step to the start of
// the next.
func (b *temporalBench) wakeUps(ctx context.Context) ([]FactReport, error) {
	const waiters = 40
	b.turns.reset()
	runs, release, err := b.queueUp(ctx, "wake-up", waiters)
	if err != nil {
		return nil, err
	}
	if err := release(); err != nil {
		return nil, err
	}
	for _, run := range runs {
		if err := run.Get(ctx, nil); err != nil {
			return nil, err
		}
	}
	taken := b.turns.reset()
	var waits []float64
	for i := 1; i < len(taken); i++ {
		waits = append(waits, millis(taken[i].start.Sub(taken[i-1].end)))
	}
	return []FactReport{{Name: "from a step's end to the next waiting one's start, p50", Value: median(waits), Unit: "ms", Limit: 150}}, nil
}

// queueUp holds a resource and starts workflows that wait for it, in the order in which they queue.
func (b *temporalBench) queueUp(ctx context.Context, resource string, waiters int) (runs []client.WorkflowRun, release func() error, err error) {
	held, err := b.locker.Core().TryAcquire(ctx, party.Request{LockID: "bench", Resources: []lockcore.Resource{lockcore.Exclusive(resource)}})
	if err != nil {
		return nil, nil, err
	}
	runs, err = b.park(ctx, waiters, func(int) string { return resource })
	return runs, func() error { return held.Leave(ctx) }, err
}

// park starts workflows, each of which waits for a resource, and returns when all do. After an error it returns those that it
// has started; the others are nil.
func (b *temporalBench) park(ctx context.Context, waiters int, resource func(i int) string) ([]client.WorkflowRun, error) {
	runs := make([]client.WorkflowRun, waiters)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(20)
	for i := range runs {
		g.Go(func() (err error) {
			runs[i], err = b.start(gctx, step{Resource: resource(i)})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return runs, err
	}
	for _, run := range runs {
		for {
			parked, err := b.parked(ctx, run)
			if err != nil {
				return runs, err
			}
			if parked {
				break
			}
			if err := pause(ctx, 200*time.Millisecond); err != nil {
				return runs, err
			}
		}
	}
	return runs, nil
}

// parked reports whether a run has come to wait: its history stands still.
func (b *temporalBench) parked(ctx context.Context, run client.WorkflowRun) (bool, error) {
	d, err := b.client.DescribeWorkflowExecution(ctx, run.GetID(), run.GetRunID())
	if err != nil {
		return false, err
	}
	p := d.GetPendingActivities()
	return len(p) == 1 && p[0].GetActivityType().GetName() == "lockstep.Wait" && p[0].GetLastFailure() != nil, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// crowd lets many workflows wait for one lock on a worker with few slots.
func (b *temporalBench) crowd(ctx context.Context) ([]FactReport, error) {
	alone, err := b.latency(ctx, 60)
	if err != nil {
		return nil, err
	}
	b.turns.reset()
	runs, release, err := b.queueUp(ctx, "crowd", b.cfg.waiters)
	if err != nil {
		return nil, err
	}
	order, err := b.order(ctx, "crowd")
	if err != nil {
		return nil, err
	}
	before, serial, commands, since := heap(), b.serial.Load(), b.commands.Load(), time.Now()
	if err := pause(ctx, b.cfg.wait); err != nil {
		return nil, err
	}
	elapsed := time.Since(since)
	serial, commands = b.serial.Load()-serial, b.commands.Load()-commands
	after := heap()
	beside, err := b.latency(ctx, 60)
	if err != nil {
		return nil, err
	}
	draining := time.Now()
	if err := release(); err != nil {
		return nil, err
	}
	most := 0.0
	for _, run := range runs {
		if err := run.Get(ctx, nil); err != nil {
			return nil, err
		}
		n, err := b.historyLength(ctx, run)
		if err != nil {
			return nil, err
		}
		most = max(most, n)
	}
	drained := time.Since(draining)
	name := func(what string) string { return fmt.Sprintf("%d wait: %s", b.cfg.waiters, what) }
	return []FactReport{
		{Name: name("another workflow takes"), Value: beside / alone, Unit: "times as long", Limit: 1.5},
		{Name: name("grants twice, missing, or out of order"), Value: float64(wrong(order, b.turns.reset())), Unit: "workflows", Limit: 0.5},
		{Name: name("the longest history"), Value: most, Unit: "events", Limit: 26},
		{Name: name("the database is busy with looks for"), Value: float64(serial) / float64(elapsed), Unit: "of the time", Limit: 0.2},
		{Name: name("commands meanwhile"), Value: float64(commands) / elapsed.Seconds(), Unit: "per second"},
		{Name: name("the worker's memory grew by"), Value: (after - before) / (1 << 20), Unit: "MiB"},
		{Name: name("each was let in after"), Value: millis(drained) / float64(b.cfg.waiters), Unit: "ms"},
	}, nil
}

// order is in which order the runs stand in the queue.
func (b *temporalBench) order(ctx context.Context, resource string) ([]string, error) {
	var order []string
	for s, err := range b.locker.Status(ctx, lockcore.Filter{Resource: resource, States: []lockcore.State{lockcore.StateWaiting}}) {
		if err != nil {
			return nil, err
		}
		order = append(order, s.Run)
	}
	return order, nil
}

// wrong counts the workflows that were let in at another place than theirs in the queue.
func wrong(order []string, taken []turn) int {
	n := max(len(order), len(taken))
	for i := range min(len(order), len(taken)) {
		if order[i] == taken[i].runID {
			n--
		}
	}
	return n
}

// latency is the median time of a workflow with one unguarded step, in milliseconds.
func (b *temporalBench) latency(ctx context.Context, rounds int) (float64, error) {
	var took []time.Duration
	for range rounds {
		d, err := timed(func() error { _, err := b.run(ctx, step{}); return err })
		if err != nil {
			return 0, err
		}
		took = append(took, d)
	}
	slices.Sort(took)
	return millis(took[len(took)/2]), nil
}

// heap is what is in use after a collection, in bytes.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
