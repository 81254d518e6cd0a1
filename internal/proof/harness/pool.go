package harness

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Pool has child processes in numbered slots, at most one in each.
type Pool struct {
	mu      sync.Mutex
	command func(slot, number int) Command
	slots   []*Process
	started int
}

// NewPool returns a Pool without processes. The function command describes the next process of a slot; number counts the processes of
// all slots from 1. It is never called concurrently.
func NewPool(slots int, command func(slot, number int) Command) *Pool {
	return &Pool{command: command, slots: make([]*Process, slots)}
}

// Start starts a process in a slot, in place of one that was there, and returns when it is ready.
func (p *Pool) Start(ctx context.Context, slot int) error { return p.start(ctx, slot, p.next(slot)) }

// StartAll starts a process in each slot, all at the same time.
func (p *Pool) StartAll(ctx context.Context) error {
	errs, commands := make([]error, len(p.slots)), make([]Command, len(p.slots))
	for slot := range commands {
		commands[slot] = p.next(slot)
	}
	InParallel(len(errs), func(slot int) { errs[slot] = p.start(ctx, slot, commands[slot]) })
	return errors.Join(errs...)
}

func (p *Pool) next(slot int) Command {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started++
	return p.command(slot, p.started)
}

func (p *Pool) start(ctx context.Context, slot int, c Command) error {
	proc, err := Start(ctx, c)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slots[slot] = proc
	return nil
}

// At returns the process in a slot, or nil.
func (p *Pool) At(slot int) *Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slots[slot]
}

// Stop takes the processes out of the slots from the first to before the last, and calls end for all of them at the same time.
func (p *Pool) Stop(first, last int, end func(slot int, proc *Process)) {
	InParallel(last-first, func(i int) {
		p.mu.Lock()
		proc := p.slots[first+i]
		p.slots[first+i] = nil
		p.mu.Unlock()
		if proc != nil {
			end(first+i, proc)
		}
	})
}

// InParallel calls do with 0 to n-1 at the same time.
func InParallel(n int, do func(int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// Pause waits, and reports whether ctx has not ended.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
