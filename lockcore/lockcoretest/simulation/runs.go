package simulation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// newRunsPlan is a play of workflows: sagas that are reset in the middle of a step, whose steps go on in the old run
// meanwhile, that compensate, and that have steps with lock IDs of their own. A few strangers want the same resources.
func newRunsPlan(seed uint64) *plan {
	p := newPlan(seed)
	p.actors = nil
	d := newDice(draw(seed, "runs"))
	for i := range 1 + d.upTo(3) {
		id := fmt.Sprintf("workflow%d", i)
		p.actors = append(p.actors, casting{role: workflow, process: d.upTo(p.processes), lockID: id, owner: id})
	}
	for i := range 1 + d.upTo(3) {
		p.actors = append(p.actors, casting{role: plainly, process: d.upTo(p.processes), lockID: fmt.Sprintf("plain%d", i), theme: 1})
	}
	return p
}

// run is one run of a workflow, as the actor that plays it knows it.
type run struct {
	*actor
	label string
	// steps are the parts whose compensations are registered, of all runs, and the resources of each.
	steps []lockcore.Request
	// uses are what steps have run under, of all runs, and before are the labels of the runs before.
	uses   []use
	before []string
}

// workflow is a saga that may be reset. It ends by a commit or by its compensations.
func workflow(a *actor) {
	r := &run{actor: a}
	r.begins()
	ok := true
	for range 2 + a.d.upTo(3) {
		if ok = r.oneStep(); !ok || a.w.over() {
			break
		}
	}
	if !ok || a.d.chance(0.3) {
		r.compensate()
	} else {
		r.commit()
	}
	r.ends()
}

// begins makes a run the workflow's current one, and closes the one before.
func (r *run) begins() {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if r.label != "" {
		r.w.closed[r.label] = true
		r.before = append(r.before, r.label)
	}
	n := len(r.w.runs) + 1
	r.label = fmt.Sprintf("run%d", n)
	r.w.runs[r.label] = n
	r.w.noted(r.name, r.lockID, "begins %s", r.label)
}

// oneStep runs a step, of scope saga or with a lock ID of its own, and reports whether it ran.
func (r *run) oneStep() bool {
	rs, _ := r.resources(0.3, true)
	req := r.request(rs, "step")
	if r.d.chance(0.3) {
		req.LockID, req.Within, req.Persist = fmt.Sprintf("%s/%s", r.lockID, req.Part), r.lockID, false
	} else {
		r.steps = append(r.steps, req)
	}
	reset := time.Duration(0)
	if r.d.chance(0.2) {
		reset = r.d.between(100*time.Millisecond, 8*time.Second)
	}
	switch err := r.try(req, reset); {
	case errors.Is(err, errWasReset):
		r.begins()
		return r.oneStep()
	case err != nil:
		return false
	}
	if req.Persist {
		r.used(&req)
	}
	return true
}

// request is a new step's, in the name of this run.
func (r *run) request(rs []lockcore.Resource, kind string) lockcore.Request {
	r.schedule++
	return lockcore.Request{
		LockID: r.lockID, Run: r.label, Part: fmt.Sprintf("%s/%s%d", r.label, kind, r.schedule), Resources: rs, Persist: true, Owner: r.owner,
		Order: lockcore.Order{Schedule: r.schedule, Attempt: 1}, MaxWait: inlineWait,
	}
}

// errWasReset says that the workflow was reset during the step, and errNotRun that the step does not run.
var (
	errWasReset = errors.New("simulated: the workflow was reset")
	errNotRun   = errors.New("simulated: the step does not run")
	stepTimeout = 6 * time.Second
	// inlineWait is how long a step waits before it parks, if its turn is near. Meanwhile it
	// takes a claim up by the order by which it queued, which wakers know too.
	inlineWait = 2 * time.Second
)

// try runs a step until it is done, attempt by attempt, or until the workflow is reset. An attempt that has timed out goes on.
func (r *run) try(req lockcore.Request, reset time.Duration) error {
	var resets <-chan time.Time
	if reset > 0 {
		t := time.NewTimer(reset)
		defer t.Stop()
		resets = t.C
	}
	for ; req.Order.Attempt < 60 && !r.w.over(); req.Order.Attempt++ {
		done := make(chan error, 1)
		r.w.actors.Add(1)
		work := r.d.between(30*time.Millisecond, 2*time.Second)
		if r.d.chance(0.1) {
			work = 3 * stepTimeout
		}
		go r.attempt(r.anyProcess(), req, work, done)
		timeout := time.NewTimer(stepTimeout)
		var err error
		select {
		case err = <-done:
		case <-resets:
			timeout.Stop()
			return errWasReset
		case <-timeout.C:
			r.w.note(r.name, r.lockID, "attempt %s of %s has timed out", req.Order, req.Part)
			continue
		}
		timeout.Stop()
		if again := r.answered(&req, err); !again {
			if err != nil {
				return errNotRun
			}
			return nil
		}
	}
	return errNotRun
}

// answered is what the worker and the workflow make of an attempt's outcome. It reports whether to come again.
func (r *run) answered(req *lockcore.Request, err error) (again bool) {
	var busy *lockcore.BusyError
	var other *lockcore.OtherRunError
	switch {
	case err == nil:
		return false
	case errors.As(err, &other): // this run is the workflow's current one: else its actor has gone on
		req.TakeOver = other.Other
		return true
	case errors.Is(err, lockcore.ErrDeadlock), errors.Is(err, lockcore.ErrLost) && !req.Reacquire:
		return false // also of a compensation, if all others in the circle compensate
	case errors.As(err, &busy) && !busy.Full:
		return r.park(*req, busy.Resource, nil)
	}
	time.Sleep(time.Second)
	return true
}

// compensate undoes the steps, newest first.
func (r *run) compensate() {
	for len(r.steps) > 0 && !r.w.over() {
		step := r.steps[len(r.steps)-1]
		req := r.request(step.Resources, "undo")
		req.Undo, req.NewFence, req.Reacquire, req.NeverVictim = []string{step.Part}, true, true, true
		_ = r.try(req, 0)
		r.steps = r.steps[:len(r.steps)-1]
	}
}

// ends releases what the workflow has, under whichever label, as the janitor does.
func (r *run) ends() {
	r.w.mu.Lock()
	r.w.closed[r.label] = true
	r.w.mu.Unlock()
	for !r.w.over() {
		p := r.anyProcess()
		ctx, c := r.begin(r.ctx, p, "release of "+r.label, false)
		if r.within(10*time.Second, func() error {
			defer r.w.ended(c)
			return r.releaseFrom(ctx, p.locker)
		}) == nil {
			return
		}
		time.Sleep(time.Second)
	}
}

// releaseFrom releases what the workflow's runs have. Those of a workflow that was started again since are not its own.
func (r *run) releaseFrom(ctx context.Context, l *lockcore.Locker) error {
	var errs []error
	for _, name := range r.w.plan.resources {
		labels := map[string]bool{}
		for s, err := range l.Status(ctx, lockcore.Filter{Resource: name, LockID: r.lockID}) {
			if errs = append(errs, err); err == nil && (s.Run == r.label || slices.Contains(r.before, s.Run)) {
				labels[s.Run] = true
			}
		}
		for _, label := range slices.Sorted(maps.Keys(labels)) {
			errs = append(errs, l.Release(ctx, lockcore.Release{
				LockID: r.lockID, Run: label, Resources: []string{name}, Order: lockcore.LastAttempt(math.MaxInt32),
			}))
		}
	}
	return errors.Join(errs...)
}
