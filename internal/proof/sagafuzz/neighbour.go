package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// runNeighbours is the main function of the neighbours' process: programs without Temporal that take plain locks on the
// resources of the workflows. It ends when stdin ends.
func runNeighbours(ctx context.Context, dir, run, name string) error {
	log, err := OpenLog(dir, name)
	if err != nil {
		return err
	}
	plan, err := readPlan(dir)
	if err != nil {
		return err
	}
	locker, disconnect, err := newLocker(ctx, run, nil)
	if err != nil {
		return err
	}
	defer disconnect()
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for i, takes := range plan.Neighbours {
		n := &neighbour{log: log, locker: locker, lockID: fmt.Sprintf("%s_%s-n%d", run, name, i)} // each process is other ones
		wg.Go(func() {
			for number := range takes {
				n.take(ctx, number, &takes[number])
			}
		})
	}
	fmt.Println(harness.Ready)
	_, _ = io.Copy(io.Discard, os.Stdin) // whichever way it ends, the parent has gone
	stop()
	wg.Wait()
	return nil
}

// neighbour is one program with its own lock ID.
type neighbour struct {
	log    *Log
	locker *lockcore.Locker
	lockID string
}

// take acquires locks, works, and leaves. The log contains it as an attempt of a step outside of sagas.
func (n *neighbour) take(ctx context.Context, number int, t *Take) {
	if !harness.Pause(ctx, t.After) {
		return
	}
	call := &Call{Node: Node{Kind: Step, ID: number, Needs: t.Needs, Time: t.Time, Try: t.Try}}
	exec := fmt.Sprintf("%s.%d", n.lockID, number)
	n.log.Write(&Record{What: Enter, Exec: exec, Workflow: n.lockID, Call: call, Attempt: 1})
	acquire := n.locker.Acquire
	if t.Try {
		acquire = n.locker.TryAcquire
	}
	session, err := acquire(ctx, lockcore.Request{LockID: n.lockID, Resources: resources(t.Needs), MaxWait: t.MaxWait})
	if err == nil {
		_ = observe(session.Context(), n.log, exec, t.Time, false, session.Leases) // a loss is in its end
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), partTTL)
		err = session.Leave(leaving)
		cancel()
	}
	n.log.Write(&Record{What: Exit, Exec: exec, Error: text(err), Type: kindOf(err)})
}

// Take is one use of locks by a neighbour.
type Take struct {
	// After is the pause before the request. MaxWait bounds its wait; 0 means unlimited.
	After, MaxWait time.Duration
	Needs          []Need
	Try            bool
	Time           time.Duration // for which it has them
}

// neighbours draws the programs and their uses of locks.
func (p *planner) neighbours() (all [][]Take) {
	for range 2 {
		var takes []Take
		for range 15 + p.IntN(15) {
			t := Take{After: p.span(0, 900), Time: p.span(1, 150), Needs: p.needs(1 + p.IntN(2)), Try: p.one(4)}
			if p.one(6) {
				t.Needs = append(t.Needs, p.semaphore())
			}
			if p.one(5) {
				t.Needs = []Need{{Name: "q/again"}}
			}
			if p.one(8) { // longer than the TTL of a session that its stopped process does not renew
				t.Time = p.span(1000, 3000)
			}
			if !t.Try && p.one(3) {
				t.MaxWait = p.span(50, 2000)
			}
			takes = append(takes, t)
		}
		all = append(all, takes)
	}
	return all
}
