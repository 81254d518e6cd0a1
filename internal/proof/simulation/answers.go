package simulation

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// answers contains the answers that the users of the Lockers received, for the checks.
type answers struct {
	sessions map[*lockcore.Session]*openSession
	// all are the sessions that there ever were.
	all []*lockcore.Session
	// done are the actors that have ended.
	done map[string]bool
}

func newAnswers() answers {
	return answers{sessions: map[*lockcore.Session]*openSession{}, done: map[string]bool{}}
}

// call is one call of the library by an actor.
type call struct {
	p      *process
	actor  string
	what   string
	lockID string
	// resources are the resources that it requests or ends.
	resources []string
	began     time.Time
	done      bool
	// patient is set if it waits without a limit, and queued once its position was reported.
	patient, queued bool
	// takes is set if it requests locks, which it must give back if it fails; upgrades if it may lose an
	// existing part; kept once it has succeeded. gaveUp is the time at which it failed.
	takes, upgrades, kept bool
	gaveUp                time.Time
	// priority is that of the request.
	priority int64
	// before is the call before it with the same order, as after a reset of an activity.
	before *call
}

// underWay reports whether the call, or one before it with the same order, has not returned.
func (c *call) underWay() bool { return c != nil && (!c.done || c.before.underWay()) }

// begin records that the actor calls the library.
func (a *actor) begin(p *process, what string, resources ...string) *call {
	c := &call{p: p, actor: a.name, what: what, lockID: a.lockID, resources: resources, began: time.Now()}
	a.w.note(a.name, a.lockID, "%s, as %s in %s", what, a.lockID, p.name)
	return c
}

// ended records that a call has returned.
func (w *world) ended(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.done = true
}

// returned records how the call ended, and checks that it may end like this.
func (a *actor) returned(ctx context.Context, c *call, err error) {
	w := a.w
	w.mu.Lock()
	defer w.mu.Unlock()
	c.done, c.kept = true, err == nil
	if w.isOver() {
		return
	}
	if err != nil && c.takes {
		c.gaveUp = time.Now()
	}
	if err != nil {
		w.noted(a.name, a.lockID, "%s: %v", c.what, err)
	}
	w.followsFromCommands(c, err)
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, lockcore.ErrDeadlock), errors.Is(err, lockcore.ErrLost), errors.Is(err, lockcore.ErrEnded):
	case errors.Is(err, lockcore.ErrQueueFull):
		if c.upgrades {
			w.broken("upgrade", a.lockID, "an upgrade of %s is refused: %v", a.lockID, err)
		}
	case errors.Is(err, lockcore.ErrBusy):
		if c.patient {
			w.broken("patience", a.lockID, "%s of %s gives up: %v", c.what, a.lockID, err)
		}
	case errors.Is(err, lockcore.ErrSuperseded):
		if !slices.ContainsFunc(w.releases, func(r release) bool { return r.lockID == a.lockID && !r.call.began.Before(c.began.Add(-time.Minute)) }) {
			w.broken("superseded", a.lockID, "%s of %s was overtaken by nobody: %v", c.what, a.lockID, err)
		}
	default:
		if c.queued && c.patient && len(c.resources) == 1 {
			w.broken("place", a.lockID, "%s of %s had queued, and gives up for a passing error: %v", c.what, a.lockID, err)
		}
		if w.faultless && w.since() > w.plan.busy+faultsLast {
			w.broken("error", a.lockID, "%s of %s fails, and nothing is wrong: %v", c.what, a.lockID, err)
		}
	}
}

// faultsLast bounds the time after the last fault in which its error may be returned: an answer takes at
// most 8 s (see fateOf), and a call may try three times.
const faultsLast = 30 * time.Second

// followsFromCommands is I7: an answer follows an acknowledged write that was made after the call began,
// and an answer "busy" at least such a read. The mutex is held.
func (w *world) followsFromCommands(c *call, err error) {
	written := func(r string) bool { return !c.p.acked[r].Before(c.began) }
	var lost *lockcore.LostError
	var late *lockcore.SupersededError
	var dead *lockcore.DeadlockError
	var busy *lockcore.BusyError
	told := ""
	switch {
	case err == nil:
		for _, r := range c.resources {
			if !written(r) {
				told = r
			}
		}
	case errors.As(err, &lost) && c.takes && !c.upgrades && !written(lost.Resource):
		told = lost.Resource
	case errors.As(err, &late) && !written(late.Resource):
		told = late.Resource
	case errors.As(err, &dead) && !written(dead.Resource):
		told = dead.Resource
	case errors.As(err, &busy) && !written(busy.Resource):
		reads := c.p.reads[busy.Resource]
		if len(reads) == 0 || reads[len(reads)-1].sent.Before(c.began) {
			w.broken("I7 busy", c.lockID, "%s of %s is told without a read since it asked: %v", c.what, c.lockID, err)
		}
	}
	if told != "" {
		w.broken("I7", c.lockID, "%s of %s is told of %s without a write since it asked: %v", c.what, c.lockID, told, err)
	}
}

// openSession is a session that has not ended.
type openSession struct {
	s      *lockcore.Session
	p      *process
	actor  string
	lockID string
	began  time.Time
	// untrusted is the time since which one of its leases is over. hadLost is set once it has reported a loss.
	untrusted time.Time
	hadLost   bool
}

// holds records that an actor was given a session.
func (w *world) holds(a *actor, p *process, lockID string, s *lockcore.Session, kept bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := &openSession{s: s, p: p, actor: a.name, lockID: lockID, began: time.Now()}
	w.sessions[s] = st
	w.all = append(w.all, s)
	for _, l := range s.Leases() {
		w.noted(a.name, lockID, "holds %s %s in %s with fence %d", l.Resource, l.Mode, p.name, l.Fence)
		key := entryKey{partKey{l.Resource, lockID, l.Part}, number(l.Order)}
		if !slices.Contains(w.granted[key], l.Fence) {
			w.broken("I7", lockID, "%s of %s is told that it holds %s with fence %d, which no write has granted", a.name, lockID, l.Resource, l.Fence)
		}
		if kept && w.doc(l.Resource).FirstFence(lockID) == l.FirstFence { // or it was released while the answer was on its way
			w.relied[key.partKey] = true
		}
	}
	for _, l := range s.Leases() {
		w.checkTrust(l.Resource)
	}
	context.AfterFunc(s.Context(), func() { w.lost(st) })
}

// ends records that an actor ends its session, which trusts no lease from now on.
func (w *world) ends(s *lockcore.Session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.sessions, s)
	for _, l := range s.Leases() {
		w.leaving[entryKey{partKey{l.Resource, l.LockID, l.Part}, number(l.Order)}] = true
	}
}

// trusted returns a session's valid lease on a resource, unless the session has reported a loss.
func (st *openSession) trusted(resource string) (lockcore.Lease, bool) {
	if st.s.Lost() != nil {
		return lockcore.Lease{}, false
	}
	for _, l := range st.s.Leases() {
		if l.Resource == resource && l.Valid() {
			return l, true
		}
	}
	return lockcore.Lease{}, false
}

// checkTrust is I1. The mutex is held.
func (w *world) checkTrust(resource string) {
	type trust struct {
		st *openSession
		l  lockcore.Lease
	}
	var all []trust
	for _, st := range w.sessions {
		l, ok := st.trusted(resource)
		if !ok {
			continue
		}
		if l.Run != "" && number(l.Order) <= w.barred[l.Run] {
			w.broken("bar", l.LockID, "%s of run %s (in %s) trusts %s, and is barred", l.Part, l.Run, st.p.name, resource)
		}
		for _, o := range all {
			if o.l.LockID == l.LockID && o.l.Run != l.Run {
				w.broken("I1 run", l.LockID, "%s of run %s (in %s) and %s of run %s (in %s) both trust %s: one was cut off", l.Part, l.Run, st.p.name, o.l.Part, o.l.Run,
					o.st.p.name, resource)
			}
			if o.l.LockID != l.LockID && l.Member != "" && o.l.Member == l.Member {
				w.broken("I13", l.LockID, "%s of %s (fence %d, in %s) and %s of %s (fence %d, in %s) both trust the member %s", st.actor, l.LockID, l.Fence,
					st.p.name, o.st.actor, o.l.LockID, o.l.Fence, o.st.p.name, l.Member)
			}
			if o.l.LockID != l.LockID && !rules.Compatible(string(o.l.Mode), string(l.Mode)) {
				w.broken("I1", l.LockID, "%s of %s (%s, fence %d, in %s) and %s of %s (%s, fence %d, in %s) both trust %s", st.actor, l.LockID, l.Mode, l.Fence,
					st.p.name, o.st.actor, o.l.LockID, o.l.Mode, o.l.Fence, o.st.p.name, resource)
			}
		}
		all = append(all, trust{st, l})
	}
}

// checkLossesReported: the holder of a lease that is over hears of it. The mutex is held.
func (w *world) checkLossesReported() {
	for s, st := range w.sessions {
		lost := s.Lost() != nil
		if st.hadLost && !lost {
			w.broken("I8", st.lockID, "%s of %s had reported a loss, and does not any longer", st.actor, st.lockID)
		}
		st.hadLost = lost
		over := ""
		for _, l := range s.Leases() {
			if !l.Valid() {
				over = l.Resource
			}
		}
		switch {
		case over == "" || !st.p.running() || lost:
			st.untrusted = time.Time{}
		case st.untrusted.IsZero() || st.p.lastTrouble("").After(st.untrusted):
			st.untrusted = time.Now()
		case time.Since(st.untrusted) > time.Second:
			kind := "untold loss"
			if s.Context().Err() != nil {
				kind = "untold loss parent"
			}
			w.broken(kind, st.lockID, "%s of %s in %s has a lease on %s that is over, and was not told", st.actor, st.lockID, st.p.name, over)
		}
	}
}

// lost checks that a reported loss is true.
func (w *world) lost(st *openSession) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var loss *lockcore.LostError
	if w.sessions[st.s] == nil || w.isOver() || !errors.As(st.s.Lost(), &loss) {
		return
	}
	w.noted(st.actor, st.lockID, "is told: %v", loss)
	for _, l := range st.s.Leases() {
		if l.Resource != loss.Resource || w.doc(l.Resource).Part(rules.Caller{LockID: l.LockID, Part: l.Part, Order: number(l.Order)}) == nil {
			continue // its end was checked when it was written
		}
		// If the answer to the grant was lost, the lease may have been short from the beginning.
		if !st.p.suffered(l.Left, l.Resource) && !st.p.suffered(w.plan.cfg.TTL, l.Resource) {
			w.broken("false loss", st.lockID, "%s in %s is told that %s has lost %s, which it holds: %v", st.actor, st.p.name, st.lockID, l.Resource, loss)
		}
	}
}

// committed records that a saga has released its holds.
func (w *world) committed(a *actor, c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.done = true
	w.noted(a.name, a.lockID, "committed")
}

// renewedSeldom checks the number of renewals of a session.
func (w *world) renewedSeldom(a *actor, s *lockcore.Session, ttl time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := w.sessions[s]
	if st == nil || w.isOver() {
		return
	}
	if ttl == 0 || ttl == lockcore.Forever {
		ttl = w.plan.cfg.TTL
	}
	fair := 8 + 3*int(time.Since(st.began)/(ttl/3))
	for _, l := range s.Leases() {
		if n := w.renewals[partKey{l.Resource, l.LockID, l.Part}]; n > fair && !st.p.suffered(time.Since(st.began), l.Resource) {
			w.broken("cost", a.lockID, "%s of %s on %s was renewed %d times in %v", a.name, a.lockID, l.Resource, n, time.Since(st.began))
		}
	}
}
