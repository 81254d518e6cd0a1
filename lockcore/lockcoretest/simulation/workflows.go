package simulation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
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
	steps []party.Request
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
	switch err := r.play(req, reset, nil); {
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
func (r *run) request(rs []party.Resource, kind string) party.Request {
	r.schedule++
	return party.Request{
		LockID: r.lockID, Run: r.label, Part: fmt.Sprintf("%s/%s%d", r.label, kind, r.schedule), Resources: rs, Persist: true, Owner: r.owner,
		Order: party.Order{Schedule: r.schedule, Attempt: 1}, MaxWait: inlineWait,
	}
}

// compensate undoes the steps, newest first.
func (r *run) compensate() {
	for len(r.steps) > 0 && !r.w.over() {
		step := r.steps[len(r.steps)-1]
		req := r.request(step.Resources, "undo")
		req.Undo, req.NewFence, req.Reacquire, req.NeverVictim = []string{step.Part}, true, true, true
		_ = r.play(req, 0, nil)
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
		c := r.begin(p, "release of "+r.label)
		for _, label := range append([]string{r.label}, r.before...) {
			r.w.releasing(c, party.Release{LockID: r.lockID, Run: label, Resources: r.w.plan.resources, Order: party.LastAttempt(math.MaxInt32)})
		}
		if r.within(10*time.Second, func() error { return r.releaseFrom(r.ctx, p.locker) }) == nil {
			return
		}
		time.Sleep(time.Second)
	}
}

// releaseFrom releases what the workflow's runs have. Those of a workflow that was started again since are not its own.
func (r *run) releaseFrom(ctx context.Context, l *party.Locker) error {
	var errs []error
	for _, name := range r.w.plan.resources {
		labels := map[string]bool{}
		for s, err := range l.Status(ctx, party.Filter{Resource: name, LockID: r.lockID}) {
			if errs = append(errs, err); err == nil && (s.Run == r.label || slices.Contains(r.before, s.Run)) {
				labels[s.Run] = true
			}
		}
		for _, label := range slices.Sorted(maps.Keys(labels)) {
			errs = append(errs, l.Release(ctx, party.Release{
				LockID: r.lockID, Run: label, Resources: []string{name}, Order: party.LastAttempt(math.MaxInt32),
			}))
		}
	}
	return errors.Join(errs...)
}

// use is that a step of a workflow has run under a lock. From then on the workflow relies on the hold, until it commits.
type use struct {
	resource string
	mode     party.Mode
	by       party.Order
	since    time.Time
	// first names the hold.
	first int64
}

// used takes down that a step has run.
func (r *run) used(step *party.Request) {
	for _, res := range step.Resources {
		d := r.w.document(res.Name)
		r.uses = append(r.uses, use{res.Name, res.Mode, party.LastAttempt(step.Order.Schedule), time.Now(), d.HoldFence(r.lockID)})
	}
}

// commit verifies what the steps have used, and releases it. What is lost is left to ends, as what a run leaves is to the
// janitor.
func (r *run) commit() {
	c := party.Commit{LockID: r.lockID, Run: r.label, Order: party.LastAttempt(r.schedule), Inherits: len(r.before) > 0, Before: r.before}
	for _, u := range r.uses { // the first of each resource: a hold that began after it is another one
		if !slices.ContainsFunc(c.Uses, func(known party.Use) bool { return known.Resource == u.resource }) {
			c.Uses = append(c.Uses, party.Use{Resource: u.resource, By: u.by})
			c.Resources = append(c.Resources, u.resource)
		}
	}
	tried := &tries{run: r} // one that was not waited for goes on
	for !r.w.over() {
		p := r.anyProcess()
		call := r.begin(p, "commit of "+r.label)
		tried.calls = append(tried.calls, call)
		r.w.releasing(call, party.Release{LockID: c.LockID, Run: c.Run, Resources: c.Resources, Order: c.Order})
		asked, sure := c, tried.certain(&c)
		err := r.within(10*time.Second, func() error {
			err := p.locker.Commit(r.ctx, asked)
			tried.told(call, sure, err)
			return err
		})
		var other *party.OtherRunError
		switch {
		case errors.As(err, &other) && len(r.before) > 0:
			c.TakeOver = other.Other
		case err == nil, errors.Is(err, party.ErrLost), errors.Is(err, party.ErrOtherRun):
			return
		default:
			time.Sleep(time.Second)
		}
	}
}

// tries are the calls of one commit.
type tries struct {
	*run
	calls []*call
}

// certain are the resources that must not be told to be lost: those on which all uses were of the hold that stands, and for a
// while; or all, if the commit has begun to release.
func (t *tries) certain(c *party.Commit) (sure []string) {
	begun := false
	for _, name := range c.Resources {
		d := t.w.document(name)
		begun = begun || d.ReleasedUpTo(c.LockID, c.Run, number(c.Order))
		k := d.Kept(c.LockID)
		another := func(u use) bool { return u.resource == name && u.first != k.FirstFence }
		if k != nil && (k.Label == c.Run || k.Label == c.TakeOver) && k.ExpiresAt.After(t.w.clock().Add(15*time.Second)) && !slices.ContainsFunc(t.uses, another) {
			sure = append(sure, name)
		}
	}
	if begun {
		sure = c.Resources
	}
	return sure
}

// told checks what a workflow was told at its commit: that is what isolation is. If all is well, then nobody else was let in
// after a step had run, and before the commit first took effect. And nothing is lost that stands.
func (t *tries) told(c *call, sure []string, err error) {
	w := t.w
	w.mu.Lock()
	defer w.mu.Unlock()
	c.done = true
	w.noted(t.name, t.lockID, "%s: %v", c.what, err)
	var lost *party.LostError
	if errors.As(err, &lost) && slices.Contains(sure, lost.Resource) && time.Since(c.began) < 12*time.Second {
		w.broken("false loss", t.lockID, "%s: nobody else had %s, and it is told to be lost: %v", c.what, lost.Resource, err)
	}
	if err != nil {
		return
	}
	until := t.calls[0].began
	for _, u := range t.uses {
		for _, a := range w.admissions {
			own := a.lockID == t.lockID || strings.HasPrefix(a.lockID, t.lockID+"/")
			if a.resource == u.resource && !own && !rules.Compatible(string(a.mode), string(u.mode)) && a.at.After(u.since) && a.at.Before(until) {
				w.broken("isolation", t.lockID, "%s: %s was used %v ago, and %s was let in %v ago", c.what, u.resource,
					time.Since(u.since).Round(time.Millisecond), a.lockID, time.Since(a.at).Round(time.Millisecond))
			}
		}
	}
}
