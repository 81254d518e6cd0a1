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

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// newRunsPlan draws a play of workflows: sagas that are reset during a step while the step continues in the old run, that
// compensate, and that have steps with their own lock IDs. A few other parties compete for the same resources.
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
	runID string
	// reacquires is set if steps acquire lost locks again, which the verification must report. Such a workflow is
	// not reset, because a run cannot know what an earlier run has lost and acquired again.
	reacquires bool
	// steps lists the requests of all runs whose compensations are registered.
	steps []lockcore.StepRequest
	// uses lists the resources under whose locks steps of all runs have run, and before the names of the
	// earlier runs.
	uses   []use
	before []string
	// began is the server's time at which the first run began.
	began time.Time
	// heldUntil contains, by resource, the time until which a verified hold exists at least. releases is set once the run has
	// begun to release.
	heldUntil map[string]time.Time
	releases  bool
}

// workflow is a saga that may be reset. It commits or compensates, and ends.
func workflow(a *actor) {
	r := &run{actor: a, heldUntil: map[string]time.Time{}, reacquires: a.d.chance(0.4)}
	r.begins()
	ok := true
	pause := a.d.upTo(4)
	for n := range 2 + a.d.upTo(3) {
		if ok = r.oneStep(); !ok || a.w.over() {
			break
		}
		if n == pause { // without a renewal of its kept holds
			time.Sleep(a.d.between(0, 3*a.w.plan.cfg.HoldTTL/2))
		}
	}
	if !ok || a.d.chance(0.3) {
		r.compensate()
	} else {
		r.commit()
	}
	r.ends()
}

// begins makes a new run the workflow's current one, and closes the run before.
func (r *run) begins() {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if r.runID == "" {
		r.began = r.w.clock()
	} else {
		r.w.closed[r.runID] = true
		r.before = append(r.before, r.runID)
	}
	n := len(r.w.runs) + 1
	r.runID = fmt.Sprintf("run%d", n)
	r.w.runs[r.runID] = n
	r.w.noted(r.name, r.lockID, "begins %s", r.runID)
}

// lostSince returns the time from which losses of the runs before count. It is zero in the first run.
func (r *run) lostSince() time.Time {
	if len(r.before) == 0 {
		return time.Time{}
	}
	return r.began.Add(-time.Minute)
}

// oneStep runs a step, of scope saga or with its own lock ID, and reports whether it ran.
func (r *run) oneStep() bool {
	rs, _ := r.resources(0.3, true)
	req := r.request(rs, "step")
	req.Reacquire = r.reacquires
	if req.LostSince = r.lostSince(); !req.LostSince.IsZero() {
		req.HeldSince = map[string]uint32{}
		for _, u := range r.uses {
			req.HeldSince[u.resource] = 1
		}
	}
	if r.d.chance(0.3) {
		req.LockID, req.Within, req.Keep = fmt.Sprintf("%s/%s", r.lockID, req.Part), r.lockID, false
	} else {
		r.steps = append(r.steps, req)
	}
	reset := time.Duration(0)
	if !r.reacquires && r.d.chance(0.2) {
		reset = r.d.between(100*time.Millisecond, 8*time.Second)
	}
	switch err := r.play(req, reset, nil); {
	case errors.Is(err, errWasReset):
		r.begins()
		return r.oneStep()
	case err != nil:
		return false
	}
	if req.Keep {
		r.used(&req)
	}
	return true
}

// request returns the request of a new step of this run.
func (r *run) request(rs []lockcore.Resource, kind string) lockcore.StepRequest {
	r.schedule++
	saga := sagaOfSteps
	if r.schedule%2 == 0 { // one inside it, which its bars match too
		saga += "/1"
	}
	return lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: r.lockID, Run: r.runID, Part: fmt.Sprintf("%s/%s%d", r.runID, kind, r.schedule), Saga: saga, Order: lockcore.Order{Schedule: r.schedule, Attempt: 1}}, Resources: rs, Keep: true, Owner: r.owner,
		MaxWait: inlineWait,
	}
}

// sagaOfSteps is the saga of a workflow's steps and of their compensations, or the one around theirs.
const sagaOfSteps = "saga"

// bars bars the steps of the run, and waits until none can run any longer.
func (r *run) bars() {
	bar := lockcore.Raise{LockID: r.lockID, Run: r.runID, Saga: sagaOfSteps, Order: lockcore.LastAttempt(r.schedule), Resources: r.w.plan.resources}
	for !r.w.over() {
		p := r.anyProcess()
		r.begin(p, "bar of "+r.runID)
		err := r.within(10*time.Second, func() error { return p.locker.Raise(r.ctx, bar) })
		var other *lockcore.OtherRunError
		switch {
		case err == nil:
			r.w.mu.Lock()
			defer r.w.mu.Unlock()
			r.w.barred[r.runID] = number(bar.Order)
			return
		case errors.As(err, &other):
			bar.TakeOver = other.Other
		default:
			time.Sleep(time.Second)
		}
	}
}

// compensate undoes the steps, newest first.
func (r *run) compensate() {
	r.bars()
	for len(r.steps) > 0 && !r.w.over() {
		step := r.steps[len(r.steps)-1]
		req := r.request(step.Resources, "undo")
		req.Reacquire, req.NeverVictim = true, true
		_ = r.play(req, 0, nil)
		r.steps = r.steps[:len(r.steps)-1]
	}
}

// ends releases all holds of the workflow, of all its runs, as the janitor does.
func (r *run) ends() {
	r.w.mu.Lock()
	r.w.closed[r.runID] = true
	r.w.mu.Unlock()
	var all []lockcore.Release
	for _, runID := range append([]string{r.runID}, r.before...) {
		all = append(all, lockcore.Release{LockID: r.lockID, Run: runID, Resources: r.w.plan.resources, Order: lockcore.LastAttempt(math.MaxInt32)})
	}
	r.release(func(l *lockcore.Steps) error { return r.releaseFrom(r.ctx, l) }, all...)
}

// release calls fn in one process after the other until it succeeds. what lists the releases, for the checks.
func (r *run) release(fn func(l *lockcore.Steps) error, what ...lockcore.Release) {
	r.w.mu.Lock()
	r.releases = true
	r.w.mu.Unlock()
	for !r.w.over() {
		p := r.anyProcess()
		c := r.begin(p, "release of "+r.runID)
		for _, one := range what {
			r.w.releasing(c, one)
		}
		if r.within(10*time.Second, func() error { return fn(p.locker) }) == nil {
			return
		}
		time.Sleep(time.Second)
	}
}

// releaseFrom releases the holds of the workflow's runs. Holds of a workflow that was started again are not included.
func (r *run) releaseFrom(ctx context.Context, l *lockcore.Steps) error {
	var errs []error
	for _, name := range r.w.plan.resources {
		runIDs := map[string]bool{}
		for s, err := range l.Status(ctx, lockcore.Filter{Resource: name, LockID: r.lockID}) {
			if errs = append(errs, err); err == nil && (s.Run == r.runID || slices.Contains(r.before, s.Run)) {
				runIDs[s.Run] = true
			}
		}
		for _, runID := range slices.Sorted(maps.Keys(runIDs)) {
			errs = append(errs, l.Release(ctx, lockcore.Release{
				LockID: r.lockID, Run: runID, Resources: []string{name}, Order: lockcore.LastAttempt(math.MaxInt32),
			}))
		}
	}
	return errors.Join(errs...)
}

// use is a resource under whose lock a step of a workflow has run. From then on the workflow relies on
// the hold, until it releases it.
type use struct {
	resource string
	mode     lockcore.Mode
	by       lockcore.Order
	since    time.Time
	// first names the hold.
	first int64
}

// used records that a step has run.
func (r *run) used(step *lockcore.StepRequest) {
	for _, res := range step.Resources {
		d := r.w.document(res.Name)
		r.uses = append(r.uses, use{res.Name, res.Mode, lockcore.LastAttempt(step.Order.Schedule), time.Now(), d.FirstFence(r.lockID)})
	}
}

// commit verifies the holds that the steps have used, and releases them afterwards. After a loss it leaves
// the release to ends, as a run leaves it to the janitor.
func (r *run) commit() {
	if !r.reacquires && r.d.chance(0.4) { // it is reset, and the next run repeats no step
		r.begins()
	}
	if !r.verify() {
		return
	}
	if r.d.chance(0.5) {
		time.Sleep(r.d.between(0, r.w.plan.cfg.HoldTTL))
	}
	switch r.d.upTo(6) {
	case 0: // its process dies: ends releases
		return
	case 1: // the verification was not recorded, and the code that runs again decides otherwise
		r.compensate()
		return
	case 2: // it was not recorded, and the code that runs again, perhaps after a reset, decides the same
		if !r.reacquires && r.d.chance(0.5) {
			r.begins()
		}
		if !r.verify() {
			return
		}
	}
	r.w.mu.Lock()
	r.isolated("release of "+r.runID, func(resource string) time.Time { return r.heldUntil[resource] })
	r.w.mu.Unlock()
	all := lockcore.Release{LockID: r.lockID, Run: r.runID, Order: lockcore.LastAttempt(r.schedule)}
	for _, u := range r.uses {
		if !slices.Contains(all.Resources, u.resource) {
			all.Resources = append(all.Resources, u.resource)
		}
	}
	for range 1 + r.d.upTo(2) {
		if len(all.Resources) > 0 {
			r.release(func(l *lockcore.Steps) error {
				_, err := l.ReleaseCommitted(r.ctx, all)
				return err
			}, all)
		}
	}
}

// verify verifies the holds that the steps have used, in one process after the other, and reports whether
// nothing was lost.
func (r *run) verify() bool {
	v := lockcore.Verify{LockID: r.lockID, Run: r.runID, Inherits: len(r.before) > 0, LostSince: r.lostSince()}
	for _, u := range r.uses { // the first of each resource: a hold that began after it is another one
		if !slices.ContainsFunc(v.Used, func(known lockcore.Use) bool { return known.Resource == u.resource }) {
			v.Used = append(v.Used, lockcore.Use{Resource: u.resource, Order: u.by})
		}
	}
	for !r.w.over() {
		p := r.anyProcess()
		call := r.begin(p, "verification of "+r.runID)
		asked, sure := v, r.certain(&v)
		err := r.within(10*time.Second, func() error { // one that is not waited for continues
			err := p.locker.Verify(r.ctx, asked)
			r.verified(call, sure, err)
			return err
		})
		var other *lockcore.OtherRunError
		switch {
		case errors.As(err, &other) && len(r.before) > 0:
			v.TakeOver = other.Other
		case err == nil:
			return true
		case errors.Is(err, lockcore.ErrLost), errors.Is(err, lockcore.ErrOtherRun):
			return false
		default:
			time.Sleep(time.Second)
		}
	}
	return false
}

// certain lists the resources that must not be reported lost: those on which all uses were of the hold
// that exists, and that does not expire soon.
func (r *run) certain(v *lockcore.Verify) (sure []string) {
	for _, used := range v.Used {
		k := r.w.document(used.Resource).Kept(v.LockID)
		another := func(u use) bool { return u.resource == used.Resource && u.first != k.FirstFence }
		if k != nil && (k.Run == v.Run || k.Run == v.TakeOver) && k.ExpiresAt.After(r.w.clock().Add(15*time.Second)) && !slices.ContainsFunc(r.uses, another) {
			sure = append(sure, used.Resource)
		}
	}
	return sure
}

// verified checks the answer to a verification. If nothing was lost, the workflow was isolated until the call
// began, and remains so until it releases or its holds expire. No existing hold may be reported lost.
func (r *run) verified(c *call, sure []string, err error) {
	w := r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	c.done = true
	w.noted(r.name, r.lockID, "%s: %v", c.what, err)
	var lost *lockcore.LostError
	if errors.As(err, &lost) && !r.releases && slices.Contains(sure, lost.Resource) && time.Since(c.began) < 12*time.Second {
		w.broken("false loss", r.lockID, "%s: nobody else had %s, and it is reported lost: %v", c.what, lost.Resource, err)
	}
	if err != nil || r.releases {
		return
	}
	r.isolated(c.what, func(string) time.Time { return c.began })
	for _, u := range r.uses {
		r.heldUntil[u.resource] = c.began
		if k := w.doc(u.resource).Kept(r.lockID); k != nil && k.Run == r.runID {
			r.heldUntil[u.resource] = time.Now().Add(k.ExpiresAt.Sub(w.clock()) - w.plan.jitter)
		}
	}
}

// isolated checks that no other party was granted a used resource after a step had run, until a time by
// resource. The mutex is held.
func (r *run) isolated(what string, until func(resource string) time.Time) {
	for _, u := range r.uses {
		for _, a := range r.w.admissions {
			own := a.lockID == r.lockID || strings.HasPrefix(a.lockID, r.lockID+"/")
			if a.resource == u.resource && !own && !rules.Compatible(string(a.mode), string(u.mode)) && a.at.After(u.since) && a.at.Before(until(u.resource)) {
				r.w.broken("isolation", r.lockID, "%s: %s was used %v ago, and %s was let in %v ago", what, u.resource,
					time.Since(u.since).Round(time.Millisecond), a.lockID, time.Since(a.at).Round(time.Millisecond))
			}
		}
	}
}
