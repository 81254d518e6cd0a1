package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
)

// nemesis applies the faults of a plan.
type nemesis struct {
	pool    *pool
	servers *servers
	log     *Log
	// loses is set if the database loses the latest acknowledged writes of this collection in a restart.
	loses *mongo.Collection
	// mongo and temporal are the proxies of each slot; clients have none to Temporal.
	mongo    [slots]*harness.Proxy
	temporal [slots]*harness.Proxy
	// busy is locked while a fault of the slot's process is under way.
	busy [slots]sync.Mutex
}

// open starts the proxies.
func (n *nemesis) open(s *servers) (err error) {
	for slot := range slots {
		if n.mongo[slot], err = harness.NewProxy(s.database, nil); err != nil {
			return err
		}
		if slot < clients {
			continue
		}
		if n.temporal[slot], err = harness.NewProxy(s.temporal, nil); err != nil {
			return err
		}
	}
	return nil
}

func (n *nemesis) close() {
	for _, p := range append(n.mongo[:], n.temporal[:]...) {
		if p != nil {
			p.Close()
		}
	}
}

// play applies the faults at their times, and returns when all have ended. A fault of a process that another fault concerns at
// its time waits for the end of that one.
func (n *nemesis) play(ctx context.Context, plan []Fault, began time.Time) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range plan {
		if !harness.Pause(ctx, time.Until(began.Add(plan[i].At))) {
			break
		}
		wg.Go(func() {
			if err := n.apply(ctx, i, &plan[i]); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%v: %w", &plan[i], err))
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// apply applies one fault and logs what was seen of it.
func (n *nemesis) apply(ctx context.Context, number int, f *Fault) error {
	var proc *harness.Process
	if f.Slot >= 0 {
		proc = n.pool.At(f.Slot)
		n.busy[f.Slot].Lock()
		defer n.busy[f.Slot].Unlock()
		if proc != n.pool.At(f.Slot) {
			return nil // it was killed meanwhile, and the new one has its own time
		}
	}
	write := func(what, seen string) {
		n.log.Write(&Record{What: what, Number: number, Fault: f, Result: seen})
	}
	write(Began, "")
	seen, err := n.act(ctx, f, proc)
	if err != nil {
		return err
	}
	if seen != "" {
		write(Acted, seen)
	}
	write(Ended, "")
	return nil
}

// act carries out a fault, from its begin to its end.
func (n *nemesis) act(ctx context.Context, f *Fault, proc *harness.Process) (seen string, err error) {
	switch f.Kind {
	case Kill:
		seen = kill(proc)
		return seen, n.pool.start(ctx, f.Slot)
	case Pause:
		seen, err = suspend(proc)
		harness.Pause(ctx, f.For)
		if err == nil {
			err = unlessEnded(proc.Resume())
		}
		return seen, err
	case DatabaseRestart, TemporalRestart:
		return n.servers.restart(ctx, f, n.loses)
	case WrongClock:
		return setClientWall(ctx, proc, f.Wall)
	}
	p := n.mongo[f.Slot]
	if f.Temporal {
		p = n.temporal[f.Slot]
	}
	return n.disturb(ctx, f, p)
}

// disturb carries out a fault of a process's connections to one server.
func (n *nemesis) disturb(ctx context.Context, f *Fault, p *harness.Proxy) (seen string, err error) {
	var affected int64
	var how string
	switch f.Kind {
	case Cut:
		affected, how = int64(p.Close()), "connections were closed"
		harness.Pause(ctx, f.For)
		err = p.Open()
	case Slow:
		p.Delay(f.Delay)
		harness.Pause(ctx, f.For)
		affected, how = p.Delay(0), "pieces of data were delayed"
	default:
		p.Swallow(f.Requests, f.Answers)
		harness.Pause(ctx, f.For)
		affected, how = p.Reset(f.Silent), "pieces of data vanished"
	}
	if affected == 0 {
		return "", err
	}
	return fmt.Sprintf("%d %s", affected, how), err
}
