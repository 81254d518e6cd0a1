package simulation

import (
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// plan contains everything that a seed draws before the play begins. Each seed has a few themes and a few kinds of faults,
// not all of them, because frequent events hide rare ones.
type plan struct {
	processes int
	resources []string
	// pool is set if the last resource is a pool, which only some actors use.
	pool bool
	cfg  lockcore.Config
	// busy is the time in which actors begin new work.
	busy time.Duration
	// jitter bounds the difference of the server's clock between two commands.
	jitter time.Duration
	// slow, lost, refused and again are the probabilities that a command is slow, that its answer is lost, that it is refused,
	// and that it has a late copy if its answer is lost. breaks is the probability that a lost answer begins an outage of its
	// process, and old that a read returns an old state.
	slow, lost, refused, again, breaks, old float64
	// lag bounds the time until a majority of the servers has a write.
	lag time.Duration
	// sluggish is the process whose commands are all slow, -1 if there is none.
	sluggish int
	// far is a process far away from the server, if its round trip farTrip is not 0. crowd is the number of sessions of a crowd.
	far, crowd int
	farTrip    time.Duration
	events     []event
	actors     []casting
}

// event is something that happens to a process, to all of them (-1), or to a resource.
type event struct {
	at, lasts time.Duration
	what      string
	process   int
	resource  string
	// limit is that of a policy, or 0 to remove it. until is the time after which it ends, if that is not 0.
	limit int64
	until time.Duration
	// members are those of a pool.
	members []rules.Member
}

// casting describes an actor: its role, process, lock ID and owner.
type casting struct {
	role    role
	process int
	lockID  string
	owner   string
	// theme is the number of its group.
	theme int
}

func newPlan(seed uint64) *plan {
	d := newDice(draw(seed, "plan"))
	p := &plan{processes: 3 + d.upTo(6), sluggish: -1, busy: d.between(25*time.Second, 60*time.Second)}
	for i := range 2 + d.upTo(3) {
		p.resources = append(p.resources, fmt.Sprintf("r%d", i+1))
	}
	p.cfg = lockcore.Config{
		TTL: time.Duration(3+d.upTo(4)) * time.Second, HoldTTL: time.Duration(20+d.upTo(30)) * time.Second,
		ClaimTTL: time.Duration(1+d.upTo(3)) * time.Second, WaiterTTL: time.Duration(30+d.upTo(60)) * time.Second,
	}
	if d.chance(0.2) {
		p.cfg.MaxWaiters = 2
	}
	p.drawFaults(d)
	for theme := range 1 + d.upTo(3) {
		p.drawTheme(d, theme)
	}
	p.drawPolicies(newDice(draw(seed, "policies")))
	p.drawPool(newDice(draw(seed, "pool")))
	return p
}

// followWithin is the time within which every process follows a change of the policies.
const followWithin = 10 * time.Second

// drawPolicies lets an operator change limits, in one seed of four.
func (p *plan) drawPolicies(d *dice) {
	if !d.chance(0.25) {
		return
	}
	for range 2 + d.upTo(5) {
		e := event{what: policyChanges, process: -1, at: d.between(time.Second, p.busy), lasts: followWithin, limit: int64(d.upTo(4))}
		e.resource = p.resources[d.upTo(len(p.resources))]
		if d.chance(0.3) {
			e.until = d.between(time.Second, 15*time.Second)
		}
		p.events = append(p.events, e)
	}
}

// drawPool adds a pool, in one seed of four. An operator adds and removes members, and takes them out of service. In the end
// all are in service.
func (p *plan) drawPool(d *dice) {
	if !d.chance(0.25) {
		return
	}
	p.pool, p.resources = true, append(p.resources, "pool")
	all := []rules.Member{{Name: "m1"}, {Name: "m2"}, {Name: "m3"}}[:1+d.upTo(3)]
	change := func(at time.Duration, members []rules.Member) {
		p.events = append(p.events, event{what: policyChanges, process: -1, at: at, lasts: followWithin, resource: "pool", members: members})
	}
	change(0, all)
	for range d.upTo(6) {
		var members []rules.Member
		for _, m := range all {
			m.Out = d.chance(0.3)
			if d.chance(0.8) {
				members = append(members, m)
			}
		}
		if len(members) > 0 {
			change(d.between(time.Second, p.busy-time.Second), members)
		}
	}
	change(p.busy, all)
	theme := 1 + len(p.actors)
	for i := range 3 + d.upTo(4) {
		p.actors = append(p.actors, casting{role: pooling, process: d.upTo(p.processes), lockID: fmt.Sprintf("pool%d", min(i, 3)), theme: theme}) // from the fourth on, they are one party
	}
}

// policyChanges is the event of an operator who changes a limit.
const policyChanges = "policy changes"

// drawFaults chooses what goes wrong. One seed in eight has no faults.
func (p *plan) drawFaults(d *dice) {
	if d.chance(0.125) {
		return
	}
	some := func(likely, most float64) float64 {
		if d.chance(likely) {
			return most * d.share()
		}
		return 0
	}
	p.slow, p.lost, p.refused, p.again = some(0.3, 0.05), some(0.5, 0.15), some(0.3, 0.1), some(0.5, 1)
	p.breaks = some(0.4, 0.1)
	p.old = some(0.3, 0.1)
	if d.chance(0.4) {
		p.lag = d.between(10*time.Millisecond, 400*time.Millisecond)
	}
	if d.chance(0.2) {
		p.sluggish = d.upTo(p.processes)
	}
	if d.chance(0.4) {
		p.jitter = 100 * time.Millisecond
	}
	at := func() time.Duration { return d.between(3*time.Second, p.busy-5*time.Second) }
	for d.chance(0.4) {
		p.events = append(p.events, event{at: at(), lasts: d.between(500*time.Millisecond, 20*time.Second), what: "freeze", process: d.upTo(p.processes)})
	}
	for range 2 {
		if d.chance(0.3) {
			p.events = append(p.events, event{at: at(), what: "kill", process: 1 + d.upTo(p.processes-1)})
		}
	}
	if d.chance(0.2) {
		who := d.upTo(p.processes+1) - 1
		p.events = append(p.events, event{at: at(), lasts: d.between(time.Second, 20*time.Second), what: "outage", process: who})
	}
	if d.chance(0.25) {
		p.events = append(p.events, event{at: at(), lasts: d.between(time.Second, 10*time.Second), what: "deposed", process: d.upTo(p.processes)})
	}
	if d.chance(0.25) {
		p.events = append(p.events, event{at: at(), lasts: d.between(3*time.Second, 15*time.Second), what: "unwritable", resource: p.resource(d)})
	}
	if d.chance(0.2) {
		p.events = append(p.events, event{at: at(), lasts: d.between(100*time.Millisecond, 5*time.Second), what: "clock back", process: -1})
	}
}

// resource draws a resource, but not a pool.
func (p *plan) resource(d *dice) string {
	n := len(p.resources)
	if p.pool {
		n--
	}
	return p.resources[d.upTo(n)]
}

// drawTheme adds a group of actors.
func (p *plan) drawTheme(d *dice, theme int) {
	add := func(r role, lockID, owner string) {
		p.actors = append(p.actors, casting{role: r, process: d.upTo(p.processes), lockID: lockID, owner: owner, theme: theme})
	}
	name := func(kind string, n int) string { return fmt.Sprintf("%s%d.%d", kind, theme, n) }
	each := func(n int, r role, kind string) {
		for i := range n {
			add(r, name(kind, i), "")
		}
	}
	switch d.upTo(10) {
	case 0: // strangers
		each(2+d.upTo(4), plainly, "plain")
	case 1: // one lock ID in several places
		id := name("family", 0)
		for i := range 2 + d.upTo(3) {
			owner := ""
			if d.chance(0.4) {
				owner = name("kin", i)
			}
			add(plainly, id, owner)
		}
		each(1+d.upTo(2), plainly, "plain")
	case 2: // two resources in opposite order
		each(2+d.upTo(2), crossing, "cross")
	case 3: // actors that try, and give up during the call
		each(2+d.upTo(2), trying, "try")
		each(1, plainly, "plain")
	case 4: // sagas
		each(2+d.upTo(2), saga, "saga")
	case 5: // kept holds of several parts
		id := name("kept", 0)
		for range 2 + d.upTo(2) {
			add(keeping, id, "")
		}
		each(2, plainly, "plain")
	case 6: // up and down
		each(2+d.upTo(3), climbing, "climb")
	case 7: // leases of all lengths in one process, and an operator
		at := d.upTo(p.processes)
		for i := range 3 {
			p.actors = append(p.actors, casting{role: lasting, process: at, lockID: name("last", i), theme: theme})
		}
		p.actors = append(p.actors, casting{role: operator, process: d.upTo(p.processes), lockID: "operator", theme: theme})
		each(1, plainly, "plain")
	case 8: // an operator among strangers and kin
		id := name("family", 0)
		add(plainly, id, "")
		add(plainly, id, "")
		each(1, plainly, "plain")
		each(1, operator, "operator")
	case 9: // actors that acquire and leave so fast that records of ended requests are soon dropped
		each(2+d.upTo(2), hurrying, "hurry")
		each(1, plainly, "plain")
	}
}

// dice draw what follows from a seed.
type dice struct{ state uint64 }

func newDice(seed uint64) *dice { return &dice{seed} }

func (d *dice) next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	return mix(d.state)
}

// upTo draws a number less than n.
func (d *dice) upTo(n int) int { return int(d.next() % uint64(n)) } //nolint:gosec // n is small and positive

func (d *dice) share() float64 { return float64(d.next()>>11) / (1 << 53) }

func (d *dice) chance(p float64) bool { return d.share() < p }

func (d *dice) between(a, b time.Duration) time.Duration {
	return a + time.Duration(d.share()*float64(b-a))
}

// draw is a number that follows from a seed, a name and a few numbers.
func draw(seed uint64, name string, numbers ...uint64) uint64 {
	h := mix(seed ^ 0xcbf29ce484222325)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 0x100000001b3
	}
	for _, n := range numbers {
		h = mix(h ^ mix(n))
	}
	return mix(h)
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}
