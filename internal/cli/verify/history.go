package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/internal/proof/linear"
)

// plan describes a history.
type plan struct {
	name      string
	resources int
	// each is the number of operations of each client.
	each int
	// waits is set if requests wait in the queue.
	waits bool
	// within bounds each operation, and enough the time to begin operations. A lock that is lost makes
	// all others wait.
	within, enough time.Duration
	// midway, if set, is called after half of the operations. Clients continue until it has returned, and a little longer.
	midway func(ctx context.Context) error
	// disturbed is set if midway or the clients themselves disturb their connections.
	disturbed bool
}

// histories is a check: clients take, renew and leave locks.
func (r *run) histories(ctx context.Context, seed uint64) (outcome, error) {
	return r.playAndJudge(ctx, seed, plan{name: "histories", resources: 3, each: 250, within: 30 * time.Second, enough: time.Minute})
}

// queues is a check: clients wait for locks.
func (r *run) queues(ctx context.Context, seed uint64) (outcome, error) {
	return r.playAndJudge(ctx, seed, plan{name: "queues", resources: 2, each: 100, within: 12 * time.Second, enough: 45 * time.Second, waits: true})
}

func (r *run) playAndJudge(ctx context.Context, seed uint64, p plan) (outcome, error) {
	clients, stop, err := r.clients(ctx, r.o.Clients, seed)
	if err != nil {
		return outcome{}, err
	}
	defer stop()
	history, err := r.play(ctx, clients, seed, p)
	if err != nil {
		return outcome{count: len(history)}, err
	}
	return judge(history), nil
}

// play plays a history. In the end all clients leave, and the first takes and leaves each resource: nothing
// may be in the way then.
func (r *run) play(ctx context.Context, clients []*process, seed uint64, p plan) ([]linear.Operation, error) {
	parts := make([][]linear.Operation, len(clients)+1)
	errs := make([]error, len(clients)+1)
	var done atomic.Int64
	half, over := make(chan struct{}), make(chan struct{})
	reached := sync.OnceFunc(func() { close(half) })
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	harness.InParallel(len(clients)+1, func(i int) {
		if i == len(clients) {
			defer close(over)
			if p.midway != nil {
				select {
				case <-half:
					errs[i] = p.midway(ctx)
				case <-ctx.Done():
				}
			}
			return
		}
		clients[i].disturbed = p.disturbed
		player := &player{process: clients[i], run: r, plan: p, over: over, rand: rand.New(rand.NewPCG(seed, uint64(i))), seed: seed} //nolint:gosec // it must be repeatable
		parts[i], errs[i] = player.play(ctx, func() {
			if done.Add(1) == int64(p.each*len(clients)/2) {
				reached()
			}
		})
		reached() // the first that has ended
		if errs[i] != nil {
			cancel(errs[i]) // the others need not continue
		}
	})
	var history []linear.Operation
	for _, part := range parts {
		history = append(history, part...)
	}
	for _, err := range errs {
		if v := new(violation); errors.As(err, &v) {
			return history, v
		}
	}
	if err := errors.Join(errs...); err != nil {
		return history, err
	}
	last := &player{process: clients[0], run: r, plan: p, seed: seed}
	end, err := last.takeAll(ctx)
	return append(history, end...), err
}

// player plays the part of one client.
type player struct {
	*process
	run  *run
	plan plan
	rand *rand.Rand
	seed uint64
	held []int
	// asked is the number of operations so far, and after that of those since over was closed, which is when midway has returned.
	asked, after int
	over         <-chan struct{}
}

func (p *player) resource(i int) string { return fmt.Sprintf("%s/%d/%d", p.plan.name, p.seed, i) }

func (p *player) play(ctx context.Context, done func()) (history []linear.Operation, err error) {
	for began := time.Now(); (p.asked < p.plan.each || p.continues(ctx)) && time.Since(began) < p.plan.enough; p.asked++ {
		ops, err := p.step(ctx)
		history = append(history, ops...)
		if err != nil {
			return history, err
		}
		done()
	}
	for len(p.held) > 0 {
		ops, err := p.ask(ctx, linear.Leave, p.held[0])
		history = append(history, ops...)
		if err != nil {
			return history, err
		}
	}
	return history, nil
}

// continues reports whether a client that has done its operations does one more, after a pause, because midway has not returned or has just
// returned.
func (p *player) continues(ctx context.Context) bool {
	const afterwards = 20
	if p.plan.midway == nil || p.after == afterwards {
		return false
	}
	select {
	case <-p.over:
		p.after++
	default:
	}
	harness.Pause(ctx, 2*poll)
	return true
}

// step performs an operation on a random resource. A client that holds does not wait for another resource, so
// deadlocks cannot occur.
func (p *player) step(ctx context.Context) ([]linear.Operation, error) {
	i := p.rand.IntN(p.plan.resources)
	if p.plan.waits && len(p.held) > 0 {
		i = p.held[0]
	}
	var verbs []linear.Verb
	switch {
	case slices.Contains(p.held, i):
		verbs = []linear.Verb{linear.Renew, linear.Leave, linear.Release}
	case p.plan.waits:
		verbs = []linear.Verb{linear.WaitExclusive, linear.WaitExclusive, linear.WaitShared}
	default:
		verbs = []linear.Verb{linear.TakeExclusive, linear.TakeShared, linear.TakeShared}
	}
	return p.ask(ctx, verbs[p.rand.IntN(len(verbs))], i)
}

// ask performs one operation, and keeps track of what the client holds.
func (p *player) ask(ctx context.Context, do linear.Verb, i int) ([]linear.Operation, error) {
	ops, err := p.perform(ctx, p.run, order{Do: do, Resource: p.resource(i), TTL: longTTL, Within: p.plan.within})
	if err != nil {
		return ops, err
	}
	holds := do == linear.Renew // if nothing is known, it holds
	for _, op := range ops {
		holds = op.OK && (op.Do.Takes() || op.Do == linear.Renew)
	}
	p.held = slices.DeleteFunc(p.held, func(held int) bool { return held == i })
	if holds {
		p.held = append(p.held, i)
	}
	return ops, nil
}

// takeAll takes each resource exclusively and leaves it. No client holds them, so a wait must be granted.
func (p *player) takeAll(ctx context.Context) (history []linear.Operation, err error) {
	do := linear.TakeExclusive
	if p.plan.waits {
		do = linear.WaitExclusive
	}
	for i := range p.plan.resources {
		for _, do := range []linear.Verb{do, linear.Leave} {
			ops, err := p.ask(ctx, do, i)
			history = append(history, ops...)
			if err != nil {
				return history, err
			}
			if last := len(ops) - 1; do.Waits() && !ops[last].OK && !ops[last].Unknown {
				return history, &violation{fmt.Sprintf("on %s: %s. All clients had left", p.resource(i), ops[last])}
			}
		}
	}
	return history, nil
}

// cuts is a check: clients take, renew and leave locks while their connections are cut.
func (r *run) cuts(ctx context.Context, seed uint64) (outcome, error) {
	clients, stop, err := r.clients(ctx, r.o.Clients, seed)
	if err != nil {
		return outcome{}, err
	}
	defer stop()
	if _, err := r.tellAll(ctx, clients, cutOn); err != nil {
		return outcome{}, err
	}
	history, err := r.play(ctx, clients, seed, plan{name: "cuts", resources: 4, each: 80, within: time.Second, enough: time.Minute, disturbed: true})
	if err != nil {
		return outcome{count: len(history)}, err
	}
	found := judge(history)
	n, err := r.tellAll(ctx, clients, cutOff)
	if err != nil {
		return found, err
	}
	if found.note += fmt.Sprintf(", %s cut", table.Count(n, "connection")); n == 0 {
		found.reason = "no connection was cut"
	}
	return r.afterwards(ctx, clients, seed, "after cuts", found)
}

// afterwards plays a short history after a fault, in which each client must work again by itself, and adds it to
// what was found.
func (r *run) afterwards(ctx context.Context, clients []*process, seed uint64, name string, found outcome) (outcome, error) {
	history, err := r.play(ctx, clients, seed, plan{name: name, resources: 2, each: 5, within: worksAgain, enough: worksAgain, disturbed: true})
	if err != nil {
		return found, err
	}
	after := judge(history)
	found.count += after.count
	if found.seen = cmp.Or(found.seen, after.seen); found.seen != "" {
		return found, nil
	}
	if i := slices.IndexFunc(history, func(op linear.Operation) bool { return op.Unknown }); i >= 0 {
		found.seen = fmt.Sprintf("on %s: it had no answer within %s, although the fault was over", history[i], worksAgain)
	}
	return found, nil
}

// tellAll sends an order to all clients, and returns the number of connections that they have cut.
func (r *run) tellAll(ctx context.Context, clients []*process, do linear.Verb) (cuts int, err error) {
	for _, c := range clients {
		a, _, _, err := c.do(ctx, order{Do: do})
		if err != nil {
			return cuts, err
		}
		cuts += a.Cuts
	}
	return cuts, nil
}
