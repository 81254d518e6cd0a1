package simulation

import (
	"context"
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// role is the behaviour that an actor repeats.
type role func(*actor)

// actor uses locks in a process. Sagas move from process to process.
type actor struct {
	casting
	w    *world
	p    *process
	name string
	d    *dice
	// ctx ends with the play.
	ctx context.Context
	// schedule numbers a saga's steps, and asked its requests that bring no part.
	schedule, asked uint32
}

func newActor(w *world, i int, c casting) *actor {
	return &actor{
		casting: c, w: w, p: w.procs[c.process], name: fmt.Sprintf("a%d", i), d: newDice(draw(w.seed, "actor", uint64(i))), ctx: w.base, //nolint:gosec // i is positive
	}
}

func (a *actor) run() {
	defer a.w.actors.Done()
	defer a.w.finished(a)
	for !a.w.over() {
		a.p.sleep(a.d.between(10*time.Millisecond, 1500*time.Millisecond))
		if a.w.since() > a.w.plan.busy || a.w.over() {
			return
		}
		a.role(a)
	}
}

// take begins a call for a request of its own part, by which the documents name the call.
func (a *actor) take(what string, req *lockcore.StepRequest) *call {
	a.asked++
	req.Part, req.Order = fmt.Sprintf("%s.%d", a.name, a.asked), lockcore.Order{Attempt: 1}
	return a.asks(a.p, what+" "+names(req.Resources), req)
}

// asks begins a call for a request.
func (a *actor) asks(p *process, what string, req *lockcore.StepRequest) *call {
	c := a.begin(p, what)
	c.takes, c.priority = true, int64(req.Priority)
	for _, r := range req.Resources {
		c.resources = append(c.resources, r.Name)
	}
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	a.w.setLatestCall(c, req.LockID, req.Part, req.Order)
	return c
}

// setLatestCall records the latest call about a request. The mutex is held.
func (w *world) setLatestCall(c *call, lockID, part string, order lockcore.Order) {
	key := entryKey{partKey{"", lockID, part}, number(order)}
	c.before = w.requests[key]
	w.calls[key.partKey], w.requests[key] = c, c
}

// resources draws one or two resources.
func (a *actor) resources(two float64, limits bool) (out []lockcore.Resource, patient bool) {
	names := []string{a.w.plan.resource(a.d)}
	if second := a.w.plan.resource(a.d); a.d.chance(two) && second != names[0] {
		names = append(names, second)
	}
	patient = true
	for _, n := range names {
		switch {
		case a.d.chance(0.55):
			out = append(out, lockcore.Exclusive(n))
		case limits && a.d.chance(0.4):
			limit := 1 + a.d.upTo(3)
			patient = patient && limit == 1
			out = append(out, lockcore.SharedLimit(n, limit))
		default:
			out = append(out, lockcore.Shared(n))
		}
	}
	return out, patient
}

// acquire waits for a lock, patiently or not.
func (a *actor) acquire(req lockcore.StepRequest, patient bool) *lockcore.Session {
	ctx, cancel := a.ctx, func() {}
	switch {
	case patient && a.d.chance(0.5):
	case a.d.chance(0.5):
		req.MaxWait, patient = a.d.between(300*time.Millisecond, 6*time.Second), false
	default:
		patient = false
		ctx, cancel = a.p.Clock().WithTimeout(ctx, a.d.between(20*time.Millisecond, 6*time.Second))
	}
	defer cancel()
	c := a.take("acquire", &req)
	c.patient = patient
	s, err := a.p.locker.Acquire(ctx, req)
	a.returned(ctx, c, err)
	return a.keep(s, req)
}

// try calls TryAcquire.
func (a *actor) try(ctx context.Context, req lockcore.StepRequest) *lockcore.Session {
	c := a.take("try", &req)
	s, err := a.p.locker.TryAcquire(ctx, req)
	a.returned(ctx, c, err)
	return a.keep(s, req)
}

// keep records the actor's session.
func (a *actor) keep(s *lockcore.Session, req lockcore.StepRequest) *lockcore.Session {
	if s != nil {
		a.w.holds(a, a.p, req.LockID, s, req.Keep)
	}
	return s
}

// leave ends a session, and retries until it succeeds.
func (a *actor) leave(s *lockcore.Session) {
	a.w.ends(s)
	c := a.begin(a.p, "leave "+fmt.Sprint(leased(s)), leased(s)...)
	err := s.Leave(a.ctx)
	a.returned(a.ctx, c, err)
	for err != nil && !a.w.over() {
		a.p.sleep(time.Second)
		err = a.p.locker.Leave(a.ctx, s.Leases()...)
	}
}

// release ends the hold of the whole lock ID.
func (a *actor) release(s *lockcore.Session) {
	a.w.ends(s)
	c := a.begin(a.p, "release "+fmt.Sprint(leased(s)), leased(s)...)
	for _, l := range s.Leases() {
		a.w.releasing(c, lockcore.Release{LockID: l.LockID, Resources: []string{l.Resource}, FirstFence: l.FirstFence})
	}
	err := s.Release(a.ctx)
	a.returned(a.ctx, c, err)
	if err != nil {
		a.leave(s)
	}
}

// releasing records the release that a call requests.
func (w *world) releasing(c *call, r lockcore.Release) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.releases = append(w.releases, release{c, r.LockID, r.Run, r.Resources, number(r.Order), r.FirstFence, r.Force})
}

func (a *actor) work() {
	most := 2500 * time.Millisecond
	if a.d.chance(0.07) {
		most = 12 * time.Second
	}
	a.p.sleep(a.d.between(30*time.Millisecond, most))
}

func names(rs []lockcore.Resource) string {
	out := ""
	for _, r := range rs {
		out += " " + r.Name + " " + string(r.Mode)
	}
	return out[1:]
}

func leased(s *lockcore.Session) (out []string) {
	for _, l := range s.Leases() {
		out = append(out, l.Resource)
	}
	return out
}

// plainly acquires one or two locks, works, and ends.
func plainly(a *actor) {
	rs, patient := a.resources(0.3, true)
	s := a.acquire(lockcore.StepRequest{Caller: lockcore.Caller{LockID: a.lockID}, Owner: a.owner, Resources: rs}, patient)
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

// pooling acquires a member of the pool, works, and ends.
func pooling(a *actor) {
	req := lockcore.StepRequest{Caller: lockcore.Caller{LockID: a.lockID}, Resources: []lockcore.Resource{lockcore.Pool("pool")}, Priority: a.d.upTo(6)}
	var s *lockcore.Session
	if a.d.chance(0.3) {
		s = a.try(a.ctx, req)
	} else {
		s = a.acquire(req, true)
	}
	if s == nil {
		return
	}
	a.work()
	a.leave(s)
}

// crossing acquires two locks one after the other, in any order.
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
	first := a.acquire(lockcore.StepRequest{Caller: lockcore.Caller{LockID: id}, Owner: a.lockID, Resources: rs[:1]}, true)
	if first == nil {
		return
	}
	a.work()
	if then := a.acquire(lockcore.StepRequest{Caller: lockcore.Caller{LockID: second}, Owner: a.lockID, Resources: rs[1:]}, true); then != nil {
		a.work()
		a.leave(then)
	}
	a.leave(first)
}

// trying tries once, and may give up while its command is on its way.
func trying(a *actor) {
	rs, _ := a.resources(0.4, true)
	req := lockcore.StepRequest{Caller: lockcore.Caller{LockID: a.lockID}, Resources: rs}
	if a.d.chance(0.4) {
		req.TTL = lockcore.Forever
	}
	ctx, cancel := a.ctx, func() {}
	if a.d.chance(0.6) {
		ctx, cancel = a.p.Clock().WithTimeout(ctx, a.d.between(200*time.Microsecond, 12*time.Millisecond))
	}
	defer cancel()
	if s := a.try(ctx, req); s != nil {
		a.work()
		a.leave(s)
	}
}

// hurrying acquires and leaves many times.
func hurrying(a *actor) {
	for range 5 + a.d.upTo(10) {
		req := lockcore.StepRequest{Caller: lockcore.Caller{LockID: a.lockID}, Resources: []lockcore.Resource{lockcore.Shared(a.w.plan.resources[0])}}
		if a.d.chance(0.5) {
			req.TTL = lockcore.Forever
		}
		ctx, cancel := a.p.Clock().WithTimeout(a.ctx, a.d.between(5*time.Millisecond, 40*time.Millisecond))
		s := a.try(ctx, req)
		cancel()
		if s != nil {
			a.p.sleep(a.d.between(25*time.Millisecond, 80*time.Millisecond))
			a.leave(s)
		}
		a.p.sleep(a.d.between(25*time.Millisecond, 80*time.Millisecond))
		if a.w.over() {
			return
		}
	}
}

// climbing upgrades and downgrades.
func climbing(a *actor) {
	r := a.w.plan.resource(a.d)
	s := a.acquire(lockcore.StepRequest{Caller: lockcore.Caller{LockID: a.lockID}, Resources: []lockcore.Resource{lockcore.Shared(r)}}, true)
	if s == nil {
		return
	}
	a.work()
	ctx, cancel := a.ctx, func() {}
	if a.d.chance(0.5) {
		ctx, cancel = a.p.Clock().WithTimeout(ctx, a.d.between(100*time.Millisecond, 5*time.Second))
	}
	lease := s.Leases()[0]
	c := a.begin(a.p, "upgrade", r)
	a.w.mu.Lock()
	c.patient, c.upgrades = true, true
	a.w.setLatestCall(c, lease.LockID, lease.Part, lease.Order)
	a.w.mu.Unlock()
	err := s.Upgrade(ctx, r)
	a.returned(ctx, c, err)
	cancel()
	if err == nil {
		a.w.note(a.name, a.lockID, "upgraded %s", r)
		a.work()
		c := a.begin(a.p, "downgrade "+r)
		a.returned(a.ctx, c, s.Downgrade(a.ctx))
		a.work()
	}
	a.leave(s)
}

// lasting holds for a long time, with a short, long or endless TTL.
func lasting(a *actor) {
	if a.d.chance(0.04) {
		s := a.p.locker.NewSession(a.ctx, nil)
		a.w.mu.Lock()
		a.w.all = append(a.w.all, s)
		a.w.mu.Unlock()
		a.work()
		_ = s.Leave(a.ctx)
		return
	}
	r := a.w.plan.resource(a.d)
	req := lockcore.StepRequest{Caller: lockcore.Caller{LockID: a.lockID}, Resources: []lockcore.Resource{lockcore.Shared(r)}}
	switch a.d.upTo(3) {
	case 0:
		req.TTL = 2 * time.Second
		if a.w.plan.jitter == 0 && a.w.plan.lag == 0 && a.p.n != a.w.plan.sluggish {
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
	s := a.try(parent, req)
	if s == nil {
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

// operator releases holds by force.
func operator(a *actor) {
	a.p.sleep(a.d.between(0, 3*time.Second))
	cast := a.w.plan.actors[a.d.upTo(len(a.w.plan.actors))]
	r := a.w.plan.resource(a.d)
	force := lockcore.Release{Force: true, LockID: cast.lockID, Resources: []string{r}, Reason: "the operator says so"}
	if force.FirstFence = a.w.document(r).FirstFence(cast.lockID); force.FirstFence == 0 {
		return
	}
	if a.d.chance(0.5) { // the hold may have ended when it acts
		a.p.sleep(a.d.between(0, 3*time.Second))
	}
	c := a.begin(a.p, "force release of "+cast.lockID, r)
	a.w.releasing(c, force)
	err := a.p.locker.Release(a.ctx, force)
	a.returned(a.ctx, c, err)
}

// keeping acquires kept holds, together with other actors of its lock ID.
func keeping(a *actor) {
	rs, _ := a.resources(0.6, false)
	req := lockcore.StepRequest{Caller: lockcore.Caller{LockID: a.lockID}, Resources: rs, Keep: true}
	var s *lockcore.Session
	if a.d.chance(0.6) {
		s = a.try(a.ctx, req)
	} else {
		s = a.acquire(req, false)
	}
	if s != nil {
		a.work()
		a.leave(s)
	}
	if a.d.chance(0.15) {
		r := lockcore.Release{LockID: a.lockID, Resources: []string{a.w.plan.resource(a.d)}}
		if r.FirstFence = a.w.document(r.Resources[0]).FirstFence(a.lockID); r.FirstFence != 0 {
			c := a.begin(a.p, "release of "+r.Resources[0], r.Resources...)
			a.w.releasing(c, r)
			a.returned(a.ctx, c, a.p.locker.Release(a.ctx, r))
		}
	}
}
