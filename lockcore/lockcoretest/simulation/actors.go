package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// role is what an actor does once, again and again.
type role func(*actor)

// actor is one that uses locks, in a process. Sagas move from process to process.
type actor struct {
	casting
	w    *world
	p    *process
	name string
	d    *dice
	// ctx ends with the play.
	ctx context.Context
	// schedule numbers a saga's steps.
	schedule uint32
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

// begin takes down that the actor calls the library.
func (a *actor) begin(ctx context.Context, p *process, what string, patient bool) (context.Context, *call) {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	a.w.lastCall++
	c := &call{
		id: a.w.lastCall, p: p, actor: a.name, what: what, lockID: a.lockID, began: time.Now(), patient: patient,
		first: map[string]time.Time{},
	}
	a.w.noted(a.name, a.lockID, "%s, as %s in %s", what, a.lockID, p.name)
	return context.WithValue(ctx, callKey{}, c), c
}

// returned takes down how the call ended, and checks that it may end like this.
func (a *actor) returned(ctx context.Context, c *call, err error) {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	c.done = true
	if a.w.isOver() {
		return
	}
	if err != nil {
		a.w.noted(a.name, a.lockID, "%s: %v", c.what, err)
	}
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, lockcore.ErrDeadlock), errors.Is(err, lockcore.ErrLost), errors.Is(err, lockcore.ErrEnded):
	case errors.Is(err, lockcore.ErrQueueFull):
		if c.what == "upgrade" {
			a.w.broken("upgrade", a.lockID, "an upgrade of %s is refused: %v", a.lockID, err)
		}
	case errors.Is(err, lockcore.ErrBusy):
		if c.patient {
			a.w.broken("patience", a.lockID, "%s of %s gives up: %v", c.what, a.lockID, err)
		}
	case errors.Is(err, lockcore.ErrSuperseded):
		if !a.w.releases[a.lockID].After(c.began.Add(-lateAfter)) {
			a.w.broken("superseded", a.lockID, "%s of %s was overtaken by nobody: %v", c.what, a.lockID, err)
		}
	default:
		var refused mongo.CommandError
		if c.queued && !(errors.As(err, &refused) && refused.Code == errInvalid.Code) {
			a.w.broken("place", a.lockID, "%s of %s had queued, and gives up for a passing error: %v", c.what, a.lockID, err)
		}
		if a.w.faultlessFor(5 * time.Second) {
			a.w.broken("error", a.lockID, "%s of %s fails, and nothing is wrong: %v", c.what, a.lockID, err)
		}
	}
}

// resources draws one or two of them.
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
func (a *actor) acquire(req lockcore.Request, patient bool) *lockcore.Session {
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
	ctx, c := a.begin(ctx, a.p, "acquire "+names(req.Resources), patient)
	s, err := a.p.locker.Acquire(ctx, req)
	a.returned(ctx, c, err)
	return a.keep(s, req)
}

// keep takes down that the actor was given a session.
func (a *actor) keep(s *lockcore.Session, req lockcore.Request) *lockcore.Session {
	if s != nil {
		a.w.holds(a, a.p, req.LockID, s, req.Keep)
	}
	return s
}

// leave ends a session, and insists.
func (a *actor) leave(s *lockcore.Session) {
	a.w.ends(s)
	ctx, c := a.begin(a.ctx, a.p, "leave "+leased(s), false)
	err := s.Leave(ctx)
	a.returned(ctx, c, err)
	for err != nil && !a.w.over() {
		a.p.sleep(time.Second)
		err = a.p.locker.Leave(ctx, s.Leases()...)
	}
}

// release ends the hold of the whole lock ID.
func (a *actor) release(s *lockcore.Session) {
	a.w.ends(s)
	ctx, c := a.begin(a.ctx, a.p, "release "+leased(s), false)
	err := s.Release(ctx)
	a.returned(ctx, c, err)
	if err != nil {
		a.leave(s)
	}
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

func leased(s *lockcore.Session) string {
	out := ""
	for _, l := range s.Leases() {
		out += " " + l.Resource
	}
	return out
}

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
	s, err := a.p.locker.TryAcquire(ctx, req)
	a.returned(ctx, c, err)
	if a.keep(s, req) != nil {
		a.work()
		a.leave(s)
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
		s := a.p.locker.Keep(a.ctx, nil)
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
	ctx, c := a.begin(a.ctx, a.p, "force release of "+cast.lockID, false)
	r := a.w.plan.resource(a.d)
	_, err := a.p.locker.ForceRelease(ctx, lockcore.ForceRelease{LockID: cast.lockID, Resources: []string{r}, Reason: "the operator says so"})
	a.returned(ctx, c, err)
}
