package simulation

import (
	"context"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// plainly takes a lock or two, works, and ends.
func plainly(a *actor) {
	rs, patient := a.resources(0.3, true)
	s := a.acquire(lockcore.Request{LockID: a.lockID, Owner: a.owner, Resources: rs}, patient)
	if s == nil {
		return
	}
	a.work()
	if a.d.chance(0.75) {
		a.leave(s)
	} else {
		a.release(s)
	}
}

// crossing takes one lock after the other, in whatever order.
func crossing(a *actor) {
	rs := [2]lockcore.Resource{}
	rs[0].Name = a.w.plan.resource(a.d)
	for rs[1].Name == "" || rs[1].Name == rs[0].Name {
		rs[1].Name = a.w.plan.resource(a.d)
	}
	for i := range rs {
		switch {
		case a.d.chance(0.25):
			rs[i] = lockcore.SharedLimit(rs[i].Name, 1)
		case a.d.chance(0.2):
			rs[i] = lockcore.Shared(rs[i].Name)
		}
	}
	id, second := a.lockID, a.lockID
	if a.d.chance(0.4) {
		second += "/2"
	}
	first := a.acquire(lockcore.Request{LockID: id, Owner: a.lockID, Resources: rs[:1]}, true)
	if first == nil {
		return
	}
	a.work()
	if then := a.acquire(lockcore.Request{LockID: second, Owner: a.lockID, Resources: rs[1:]}, true); then != nil {
		a.work()
		a.leave(then)
	}
	a.leave(first)
}

// trying asks once, and may give up while its command is on its way.
func trying(a *actor) {
	rs, _ := a.resources(0.4, true)
	req := lockcore.Request{LockID: a.lockID, Resources: rs}
	if a.d.chance(0.4) {
		req.TTL = lockcore.Forever
	}
	ctx, cancel := a.ctx, func() {}
	if a.d.chance(0.6) {
		ctx, cancel = a.p.Clock().WithTimeout(ctx, a.d.between(200*time.Microsecond, 12*time.Millisecond))
	}
	defer cancel()
	ctx, c := a.begin(ctx, a.p, "try "+names(rs), false)
	c.takes = true
	s, err := a.p.locker.TryAcquire(ctx, req)
	a.returned(ctx, c, err)
	if a.keep(s, req) != nil {
		a.work()
		a.leave(s)
	}
}

// hurrying comes and goes, many times.
func hurrying(a *actor) {
	for range 5 + a.d.upTo(10) {
		req := lockcore.Request{LockID: a.lockID, Resources: []lockcore.Resource{lockcore.Shared(a.w.plan.resources[0])}}
		if a.d.chance(0.5) {
			req.TTL = lockcore.Forever
		}
		ctx, cancel := a.p.Clock().WithTimeout(a.ctx, a.d.between(5*time.Millisecond, 40*time.Millisecond))
		ctx, c := a.begin(ctx, a.p, "try "+names(req.Resources), false)
		c.takes = true
		s, err := a.p.locker.TryAcquire(ctx, req)
		a.returned(ctx, c, err)
		cancel()
		if a.keep(s, req) != nil {
			a.p.sleep(a.d.between(25*time.Millisecond, 80*time.Millisecond))
			a.leave(s)
		}
		a.p.sleep(a.d.between(25*time.Millisecond, 80*time.Millisecond))
		if a.w.over() {
			return
		}
	}
}

// climbing goes up and down.
func climbing(a *actor) {
	r := a.w.plan.resource(a.d)
	s := a.acquire(lockcore.Request{LockID: a.lockID, Resources: []lockcore.Resource{lockcore.Shared(r)}}, true)
	if s == nil {
		return
	}
	a.work()
	ctx, cancel := a.ctx, func() {}
	if a.d.chance(0.5) {
		ctx, cancel = a.p.Clock().WithTimeout(ctx, a.d.between(100*time.Millisecond, 5*time.Second))
	}
	ctx, c := a.begin(ctx, a.p, "upgrade", true)
	err := s.Upgrade(ctx, r)
	a.returned(ctx, c, err)
	cancel()
	if err == nil {
		a.w.note(a.name, a.lockID, "upgraded %s", r)
		a.work()
		ctx, c := a.begin(a.ctx, a.p, "downgrade "+r, false)
		err = s.Downgrade(ctx)
		a.returned(ctx, c, err)
		a.work()
	}
	a.leave(s)
}

// lasting holds for long, with a TTL of whatever length.
func lasting(a *actor) {
	if a.d.chance(0.04) {
		s := a.p.locker.Renewing(a.ctx, nil)
		a.w.owns(s)
		a.work()
		_ = s.Leave(a.ctx)
		return
	}
	r := a.w.plan.resource(a.d)
	req := lockcore.Request{LockID: a.lockID, Resources: []lockcore.Resource{lockcore.Shared(r)}}
	switch a.d.upTo(3) {
	case 0:
		req.TTL = 2 * time.Second
		if a.w.plan.jump == 0 {
			req.TTL = 300 * time.Millisecond
		}
	case 1:
		req.TTL = lockcore.Forever
	}
	if a.d.chance(0.3) {
		req.Resources[0].Mode = lockcore.ModeExclusive
	}
	parent, cancel := context.WithCancel(a.ctx)
	defer cancel()
	ctx, c := a.begin(parent, a.p, "try "+names(req.Resources), false)
	c.takes = true
	s, err := a.p.locker.TryAcquire(ctx, req)
	a.returned(ctx, c, err)
	if a.keep(s, req) == nil {
		return
	}
	a.p.sleep(a.d.between(time.Second, 6*time.Second))
	if a.d.chance(0.4) {
		a.w.note(a.name, a.lockID, "its context ends, and it cleans up under its lock")
		cancel()
	}
	a.p.sleep(a.d.between(time.Second, 8*time.Second))
	a.w.renewedSeldom(a, s, req.TTL)
	a.leave(s)
}

// operator releases by force.
func operator(a *actor) {
	a.p.sleep(a.d.between(0, 3*time.Second))
	cast := a.w.plan.actors[a.d.upTo(len(a.w.plan.actors))]
	r := a.w.plan.resource(a.d)
	force := lockcore.Release{Force: true, LockID: cast.lockID, Resources: []string{r}, Reason: "the operator says so"}
	d := a.w.db.Document(r)
	if force.FirstFence = d.HoldFence(cast.lockID); force.FirstFence == 0 {
		return
	}
	if a.d.chance(0.5) { // what it saw may be over when it acts
		a.p.sleep(a.d.between(0, 3*time.Second))
	}
	ctx, c := a.begin(a.ctx, a.p, "force release of "+cast.lockID, false)
	c.fence = force.FirstFence
	_, err := a.p.locker.ReleaseHeld(ctx, force)
	a.returned(ctx, c, err)
}
