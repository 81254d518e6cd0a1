package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// nemesis applies the faults of a plan.
type nemesis struct {
	pool    *pool
	servers *servers
	log     *Log
	// loses is set if the database loses the latest acknowledged writes of this collection in a restart.
	loses *mongo.Collection
	// mongo and temporal are the proxies of each slot; clients have none to Temporal.
	mongo    [slots]*proxy
	temporal [slots]*proxy
}

// open starts the proxies.
func (n *nemesis) open(s *servers) (err error) {
	for slot := range slots {
		if n.mongo[slot], err = newProxy(fmt.Sprintf("mongo %d", slot), s.database); err != nil {
			return err
		}
		if slot < clients {
			continue
		}
		if n.temporal[slot], err = newProxy(fmt.Sprintf("temporal %d", slot), s.temporal); err != nil {
			return err
		}
	}
	return nil
}

func (n *nemesis) close() {
	for _, p := range append(n.mongo[:], n.temporal[:]...) {
		if p != nil {
			p.close()
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
		if !pause(ctx, time.Until(began.Add(plan[i].At))) {
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
	var proc *process
	if f.Slot >= 0 {
		proc = n.pool.at(f.Slot)
		proc.busy.Lock()
		defer proc.busy.Unlock()
		if proc != n.pool.at(f.Slot) {
			return nil // it was killed meanwhile, and the new one has its own time
		}
	}
	write := func(what, seen string) {
		n.log.WriteAbout("", f.Slot, &Record{What: what, Number: number, Fault: f, Result: seen})
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
func (n *nemesis) act(ctx context.Context, f *Fault, proc *process) (seen string, err error) {
	switch f.Kind {
	case Kill:
		seen = kill(proc)
		return seen, n.pool.start(ctx, f.Slot)
	case Pause:
		seen, err = suspend(proc)
		pause(ctx, f.For)
		if err == nil {
			err = resume(proc)
		}
		return seen, err
	case DatabaseRestart, TemporalRestart:
		return n.servers.restart(ctx, f, n.loses)
	case WrongClock:
		return proc.setWall(f.Wall)
	}
	p := n.mongo[f.Slot]
	if f.Temporal {
		p = n.temporal[f.Slot]
	}
	return n.disturb(ctx, f, p)
}

// disturb carries out a fault of a process's connections to one server.
func (n *nemesis) disturb(ctx context.Context, f *Fault, p *proxy) (seen string, err error) {
	var affected int64
	var how string
	switch f.Kind {
	case Cut:
		affected, how = int64(p.cut()), "connections were closed"
		pause(ctx, f.For)
		err = p.mend()
	case Slow:
		before := p.network.slow(f.Delay)
		pause(ctx, f.For)
		affected, how = p.network.slow(0)-before, "pieces of data were delayed"
	default:
		before := p.network.halfOpen(f.Requests, f.Answers)
		pause(ctx, f.For)
		affected, how = p.network.mend(f.Silent)-before, "pieces of data vanished"
	}
	if affected == 0 {
		return "", err
	}
	return fmt.Sprintf("%d %s", affected, how), err
}
