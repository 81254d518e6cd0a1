package simulation

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// parking is a parked request of a saga, which waits without a process.
type parking struct {
	began time.Time
	turn  chan lockcore.Wakeup
	// watched is the process that watches the resource for it.
	watched *process
}

// wakeup receives the wake-ups of a process. A wake-up of a closed run leaves the queue, as the wakers of a
// worker do. An attempt of that run may still be on its way.
func (w *world) wakeup(p *process, t lockcore.Wakeup) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed[t.Run] && t.Cycle == "" {
		place := lockcore.Lease{Resource: t.Resource, LockID: t.LockID, Run: t.Run, Part: t.Part, Order: t.Order}
		go func() {
			p.sleep(newDice(p.ring(0)).between(time.Millisecond, 20*time.Millisecond)) // it asks whether the run is closed
			_, _ = p.locker.LeaveQueue(w.base, place)
		}()
	}
	if p := w.parked[partKey{t.Resource, t.LockID, t.Part}]; p != nil {
		select {
		case p.turn <- t:
		default:
		}
	}
}

// saga runs a few steps, each as an activity in any process, under kept holds.
func saga(a *actor) {
	held := map[string]uint32{} // the schedules since which it holds resources
	for range 2 + a.d.upTo(2) {
		a.schedule++
		rs, _ := a.resources(0.25, false)
		for i := range rs {
			rs[i].Mode = lockcore.ModeExclusive
		}
		order := lockcore.Order{Schedule: a.schedule, Attempt: 1}
		req := lockcore.StepRequest{Caller: lockcore.Caller{LockID: a.lockID, Part: fmt.Sprintf("step%d", a.schedule), Order: order}, Resources: rs, HeldSince: maps.Clone(held), Keep: true}
		if a.play(req, 0, held) != nil {
			break
		}
		for _, r := range rs {
			held[r.Name] = cmp.Or(held[r.Name], a.schedule)
		}
		if a.w.over() {
			return
		}
	}
	a.commit()
}

// Results of a step: errWasReset if the workflow was reset during the step, errNotRun if the step does not run.
var (
	errWasReset = errors.New("simulated: the workflow was reset")
	errNotRun   = errors.New("simulated: the step does not run")
)

const (
	stepTimeout = 6 * time.Second
	// inlineWait is the time for which a step of a workflow waits before it parks, if its grant is expected
	// soon. It then confirms a claim with the order with which it queued, which wakers know too.
	inlineWait = 2 * time.Second
)

// play runs a step until it is done, attempt by attempt, or until its workflow is reset. An attempt
// that has timed out continues. held are the resources that a saga keeps.
func (a *actor) play(req lockcore.StepRequest, reset time.Duration, held map[string]uint32) error {
	var resets <-chan time.Time
	if reset > 0 {
		t := time.NewTimer(reset)
		defer t.Stop()
		resets = t.C
	}
	for ; req.Order.Attempt < 60 && !a.w.over(); req.Order.Attempt++ {
		done := make(chan error, 1)
		a.w.actors.Add(1)
		work := a.d.between(30*time.Millisecond, 2*time.Second)
		if a.d.chance(0.1) {
			work += a.d.between(stepTimeout, 3*stepTimeout)
		}
		go a.attempt(a.anyProcess(), req, work, done)
		timeout := time.NewTimer(stepTimeout)
		var err error
		select {
		case err = <-done:
		case <-resets:
			timeout.Stop()
			return errWasReset
		case <-timeout.C:
			a.w.note(a.name, a.lockID, "attempt %s of %s has timed out", req.Order, req.Part)
			if req.Run == "" && a.d.upTo(4) == 0 { // an operator resets the activity, whose attempts count from 1 again
				req.Order.Attempt = 0
			}
			continue
		}
		timeout.Stop()
		switch again := a.answered(&req, held, err); {
		case again:
		case err != nil:
			return errNotRun
		default:
			return nil
		}
	}
	return errNotRun
}

// answered handles an attempt's outcome like the worker and the workflow. It reports whether to try again.
func (a *actor) answered(req *lockcore.StepRequest, held map[string]uint32, err error) (again bool) {
	var busy *lockcore.BusyError
	var other *lockcore.OtherRunError
	switch {
	case err == nil:
		return false
	case errors.As(err, &other): // this run is the workflow's current one: otherwise its actor has moved on
		req.TakeOver = other.Other
		return true
	case errors.Is(err, lockcore.ErrDeadlock), errors.Is(err, lockcore.ErrLost) && !req.Reacquire:
		return false // also of a compensation, if all others in the cycle compensate
	case errors.As(err, &busy) && !busy.Full:
		return a.park(*req, busy.Resource, held)
	}
	time.Sleep(time.Second) // of virtual time: the pause of a retry
	return true
}

// anyProcess returns a process that was not killed.
func (a *actor) anyProcess() *process {
	for {
		p := a.w.procs[a.d.upTo(len(a.w.procs))]
		if next := a.w.procs[(p.n+1)%len(a.w.procs)]; p.plain && !next.dead() { // which runs workflows
			p = next
		}
		if !p.dead() {
			return p
		}
	}
}

// attempt enters, works and leaves, in a process.
func (a *actor) attempt(p *process, req lockcore.StepRequest, work time.Duration, done chan error) {
	defer a.w.actors.Done()
	c := a.asks(p, "enter "+req.Part+" "+names(req.Resources)+" "+req.Order.String(), &req)
	leases, err := p.locker.Enter(a.ctx, req)
	a.entered(c, err)
	if err != nil {
		done <- err
		return
	}
	s := p.locker.NewSession(a.ctx, leases)
	a.w.holds(a, p, req.LockID, s, true)
	p.sleep(work)
	a.w.ends(s)
	loss := s.Lost()
	a.begin(p, "leave "+req.Part+" "+req.Order.String())
	_ = s.Leave(a.ctx)
	done <- loss
}

// entered records how an Enter ended. What it leaves after a failure is left to the next attempt.
func (a *actor) entered(c *call, err error) {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	c.done, c.kept = true, err == nil
	a.w.noted(a.name, a.lockID, "%s: %v", c.what, err)
	if a.w.isOver() {
		return
	}
	a.w.followsFromCommands(c, err)
	disturbed := slices.ContainsFunc(c.resources, func(r string) bool { return !c.p.lastTrouble(r).Before(c.began) })
	if errors.Is(err, lockcore.ErrUnknownOutcome) && a.ctx.Err() == nil && c.p.running() && !disturbed {
		a.w.broken("unknown", c.lockID, "%s of %s does not know its outcome, and no command has failed since it began: %v", c.what, c.lockID, err)
	}
}

// park waits in the queue without a process, and reports whether to enter again.
func (a *actor) park(req lockcore.StepRequest, at string, held map[string]uint32) bool {
	key := partKey{at, req.LockID, req.Part}
	place := &parking{began: time.Now(), turn: make(chan lockcore.Wakeup, 1)}
	a.w.mu.Lock()
	a.w.parked[key] = place
	a.w.mu.Unlock()
	defer func() {
		a.w.mu.Lock()
		delete(a.w.parked, key)
		a.w.mu.Unlock()
	}()
	var others []string
	for _, name := range a.w.plan.resources {
		if held[name] > 0 && name != at {
			others = append(others, name)
		}
	}
	one := req
	one.Resources = slices.DeleteFunc(slices.Clone(req.Resources), func(r lockcore.Resource) bool { return r.Name != at })
	for !a.w.over() {
		p := a.anyProcess()
		p.locker.WatchFor(at)
		c := a.begin(p, "recheck "+at)
		a.w.mu.Lock()
		place.watched = p
		a.w.calls[partKey{"", req.LockID, req.Part}] = c
		a.w.mu.Unlock()
		var after time.Duration
		err := a.within(12*time.Second, func() (err error) {
			p.hold(0)
			for _, name := range others { // as a janitor does
				_, _ = p.locker.Extend(a.ctx, req.LockID, req.Run, name) // what is lost is found by the next request
			}
			after, err = p.locker.Recheck(a.ctx, one)
			p.hold(0)
			return err
		})
		a.w.ended(c)
		again := time.Second
		switch {
		case err == nil:
			return true
		case errors.Is(err, lockcore.ErrDeadlock):
			return false
		case errors.Is(err, lockcore.ErrBusy):
			again = after
		}
		t := time.NewTimer(again)
		select {
		case turn := <-place.turn:
			t.Stop()
			a.w.note(a.name, a.lockID, "its turn on %s has come: deadlock %q", at, turn.Cycle)
			return turn.Cycle == ""
		case <-t.C:
		case <-a.w.stop:
			t.Stop()
		}
	}
	return false
}

// errNoAnswer is the result of a call to a process that was frozen or killed.
var errNoAnswer = errors.New("simulated: the attempt has timed out")

// within calls ask, and continues without its answer after d.
func (a *actor) within(d time.Duration, ask func() error) error {
	done := make(chan error, 1)
	a.w.actors.Add(1)
	go func() {
		defer a.w.actors.Done()
		done <- ask()
	}()
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	select {
	case err := <-done:
		return err
	case <-timeout.C:
		return errNoAnswer
	}
}

// commit releases the saga's holds.
func (a *actor) commit() {
	all := slices.Clone(a.w.plan.resources)
	for !a.w.over() {
		p := a.anyProcess()
		r := lockcore.Release{LockID: a.lockID, Resources: all, Order: lockcore.LastAttempt(a.schedule)}
		c := a.begin(p, "commit", all...)
		a.w.releasing(c, r)
		if a.within(10*time.Second, func() error {
			err := p.locker.Release(a.ctx, r)
			if err == nil {
				a.w.committed(a, c)
			}
			return err
		}) == nil {
			return
		}
		time.Sleep(time.Second) // of virtual time: the pause of a retry
	}
}
