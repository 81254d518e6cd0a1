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
		first: map[string]time.Time{}, left: map[string]bool{},
	}
	a.w.noted(a.name, a.lockID, "%s, as %s in %s", what, a.lockID, p.name)
	return context.WithValue(ctx, callKey{}, c), c
}

// ended takes down that a call has returned.
func (w *world) ended(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.done = true
}

// returned takes down how the call ended, and checks that it may end like this.
func (a *actor) returned(ctx context.Context, c *call, err error) {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	c.done = true
	if a.w.isOver() {
		return
	}
	if err != nil && c.takes {
		c.gaveUp = time.Now()
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
		// In seed 512 an acquire was refused 0.7 s before the faults ended, and its answer took 5.7
		// s. An answer takes 8 s at most (see fateOf), and the leaves that follow, sent after the
		// faults, took 9 ms. So a refusal of the time of faults is told within 10 s.
		if a.w.faultlessFor(10 * time.Second) {
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
	c.takes = true
	s, err := a.p.locker.Acquire(ctx, req)
	a.returned(ctx, c, err)
	return a.keep(s, req)
}

// keep takes down that the actor was given a session.
func (a *actor) keep(s *lockcore.Session, req lockcore.Request) *lockcore.Session {
	if s != nil {
		a.w.holds(a, a.p, req.LockID, s, req.Persist)
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
