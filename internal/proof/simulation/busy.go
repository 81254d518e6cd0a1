package simulation

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// RunBusy plays a seed of a busy document: processes near the server acquire, renew and leave it all the time, one process
// is far away, and the server's clock may be set back by minutes.
func RunBusy(seed uint64) *Violation { return play(seed, newBusyPlan(seed)) }

// RunCrowd plays a seed of a document with many shared holders in one process.
func RunCrowd(seed uint64, holders int) *Violation {
	p := newBusyPlan(seed)
	p.busy, p.crowd = 45*time.Second, holders
	p.actors = []casting{{role: crowding, process: 0, lockID: "crowd"}, {role: faraway, process: p.far, lockID: "far"}}
	return play(seed, p)
}

func newBusyPlan(seed uint64) *plan {
	d := newDice(draw(seed, "busy plan"))
	p := &plan{
		processes: 3 + d.upTo(3), sluggish: -1, busy: d.between(40*time.Second, 70*time.Second), resources: []string{"r1"},
		farTrip: d.between(50*time.Millisecond, time.Second),
		cfg:     lockcore.Config{TTL: 30 * time.Second, HoldTTL: time.Minute, ClaimTTL: 30 * time.Second, WaiterTTL: 2 * time.Minute},
	}
	p.far = p.processes - 1
	for i := range p.far {
		for n := range 1 + d.upTo(3) {
			p.actors = append(p.actors, casting{role: rushing, process: i, lockID: fmt.Sprintf("rush%d.%d", i, n)})
		}
	}
	for n := range 1 + d.upTo(2) {
		p.actors = append(p.actors, casting{role: faraway, process: p.far, lockID: fmt.Sprintf("far%d", n)})
	}
	for range d.upTo(3) {
		p.events = append(p.events, event{at: d.between(3*time.Second, p.busy), lasts: d.between(time.Second, 10*time.Minute), what: "clock back", process: -1})
	}
	return p
}

// rushing acquires, renews and leaves without a pause.
func rushing(a *actor) {
	for n := range 20 {
		s := a.try(a.ctx, lockcore.StepRequest{Caller: lockcore.Caller{LockID: a.lockID}, Resources: []lockcore.Resource{lockcore.Shared(a.w.plan.resources[0])}})
		if s == nil {
			return
		}
		for range a.d.upTo(4) {
			a.p.sleep(a.d.between(0, 20*time.Millisecond))
			_, _ = a.p.locker.Renew(a.ctx, s.Leases()...)
		}
		a.leave(s)
		if n%4 == 0 {
			a.p.sleep(a.d.between(0, 40*time.Millisecond))
		}
		if a.w.over() || a.w.since() > a.w.plan.busy {
			return
		}
	}
}

// faraway acquires and leaves.
func faraway(a *actor) {
	req := lockcore.StepRequest{Caller: lockcore.Caller{LockID: a.lockID}, Resources: []lockcore.Resource{lockcore.Shared(a.w.plan.resources[0])}}
	if a.d.chance(0.3) {
		req.Resources[0].Mode = lockcore.ModeExclusive
	}
	s := a.acquire(req, true)
	if s == nil {
		return
	}
	a.work()
	a.leave(s)
}

// crowding holds with many sessions at once.
func crowding(a *actor) {
	r := lockcore.Shared(a.w.plan.resources[0])
	sessions := make([]*lockcore.Session, a.w.plan.crowd)
	var all sync.WaitGroup
	for i := range sessions {
		all.Go(func() {
			// They are too many for the checks of sessions, but those of each write see their entries.
			s, err := a.p.locker.TryAcquire(a.ctx, lockcore.StepRequest{Caller: lockcore.Caller{LockID: fmt.Sprintf("%s/%d", a.lockID, i)}, Resources: []lockcore.Resource{r}})
			if err == nil {
				sessions[i] = s
			}
		})
	}
	all.Wait()
	for a.w.since() < a.w.plan.busy && !a.w.over() {
		a.p.sleep(time.Second)
		for i, s := range sessions {
			if s != nil && s.Lost() != nil {
				a.w.violate("false loss", a.name, r.Name, "session %d of %d: %v", i, len(sessions), s.Lost())
			}
		}
	}
	sessions = slices.DeleteFunc(sessions, func(s *lockcore.Session) bool { return s == nil })
	for _, s := range sessions {
		a.w.ends(s)
		all.Go(func() { _ = s.Leave(a.ctx) })
	}
	all.Wait()
}

// extendCost is the time that a server takes for one pair of an entry that a statement names and an entry of the document,
// since it compares each with each.
const extendCost = 20 * time.Microsecond

// costOf returns the time that a server takes for extensions.
func (w *world) costOf(parts []store.Extension) (cost time.Duration) {
	named := map[string]int{}
	for _, p := range parts {
		named[p.Resource]++
	}
	for name, n := range named {
		if n > 1 {
			cost += time.Duration(n*len(w.document(name).Entries)) * extendCost
		}
	}
	return cost
}

// answerWithin bounds the time after which a request has an answer or is in the queue, whatever others do.
func (w *world) answerWithin() time.Duration {
	if w.plan.farTrip == 0 {
		return 0
	}
	return 10*time.Second + 20*w.plan.farTrip
}

// checkAnswers finds a request that gets no turn. The mutex is held.
func (w *world) checkAnswers() {
	if w.plan.farTrip == 0 {
		return
	}
	for _, c := range w.requests {
		if c.takes && !c.done && !c.queued && time.Since(later(c.began, c.p.lastTrouble(""))) > w.answerWithin() {
			w.broken("I9 turn", c.lockID, "%s of %s has no answer after %v", c.what, c.lockID, time.Since(c.began).Round(time.Millisecond))
			return
		}
	}
}
