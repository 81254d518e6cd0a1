package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// engineBench measures operations of the lock engine in a database of its own.
type engineBench struct {
	db  *mongo.Database
	raw *mongo.Collection
	// locker performs the measured operations. other represents another process, whose changes locker has not read.
	locker, other *party.Locker
}

func runEngine(ctx context.Context, args []string, out io.Writer, env func(string) string) error {
	flags := flag.NewFlagSet("bench engine", flag.ContinueOnError)
	asJSON := flags.Bool("json", false, "print JSON")
	rounds := flags.Int("rounds", 300, "how often each case is measured, 10 to 10000")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	if err := checkRange("--rounds", *rounds, 10, 10_000); err != nil {
		return err
	}
	if err := requireVariables(env, "LOCKSTEP_MONGODB_URI"); err != nil {
		return err
	}
	report, err := benchEngine(ctx, env("LOCKSTEP_MONGODB_URI"), *rounds)
	if err != nil {
		return err
	}
	return report.write(out, *asJSON, report.printEngine)
}

func benchEngine(ctx context.Context, uri string, rounds int) (report Report, err error) {
	db, drop, err := database(ctx, uri)
	if err != nil {
		return report, err
	}
	defer drop()
	locker, err := party.New(db.Collection("locks"), lockcore.Config{MaxWaiters: 5000})
	if err != nil {
		return report, err
	}
	if err := locker.CreateIndexes(ctx); err != nil {
		return report, err
	}
	other, err := party.New(db.Collection("locks"), lockcore.Config{})
	if err != nil {
		return report, err
	}
	b := &engineBench{db: db, raw: db.Collection("raw"), locker: locker, other: other}
	shared, err := b.sharedHolders(ctx)
	if err != nil {
		return report, err
	}
	for _, s := range []section{b.pairs(), b.tenResources(), shared, b.handOffs()} {
		r, err := s.measure(ctx, rounds)
		if err != nil {
			return report, err
		}
		report.Sections = append(report.Sections, r)
	}
	report.Facts, err = b.renewals(ctx, uri)
	return report, err
}

// pairs are two operations each, compared with two raw commands.
func (b *engineBench) pairs() section {
	step := func(round int) party.Request { return stepOn(round, lockcore.Exclusive("bench/q")) }
	kept := func(round int) party.Request {
		return party.Request{
			LockID: "bench/saga", Part: "step", Order: party.Order{Schedule: uint32(round) + 1, Attempt: 1}, Persist: true, //nolint:gosec // small
			Resources: []lockcore.Resource{lockcore.Exclusive("bench/k")},
		}
	}
	return section{name: "uncontended, two commands", cases: []benchCase{
		{name: "two raw $inc", once: b.rawPair},
		{name: "acquire + release, exclusive", limit: 1.3, once: b.acquireRelease(lockcore.Exclusive("bench/x"))},
		{name: "acquire + release, shared", limit: 1.3, once: b.acquireRelease(lockcore.Shared("bench/s"))},
		{name: "acquire + release, exclusive, not known", limit: 1.75, once: b.acquireReleaseUnknown("bench/ux/%d", lockcore.Exclusive)},
		{name: "acquire + release, shared, not known", limit: 1.75, once: b.acquireReleaseUnknown("bench/us/%d", lockcore.Shared)},
		{name: "acquire + release, semaphore", once: b.acquireRelease(lockcore.SharedLimit("bench/l", 10))},
		{name: "enter (would queue) + leave", once: b.enterLeave(step)},
		{name: "enter + leave of a kept hold", limit: 1.35, once: b.enterLeave(kept)},
	}}
}

// rawPair increments a number in a document twice. It needs two round trips, like an acquire and a release.
func (b *engineBench) rawPair(ctx context.Context, _ int) (time.Duration, error) {
	return timed(func() error { return rawPair(ctx, b.raw, "bench") })
}

func rawPair(ctx context.Context, documents *mongo.Collection, id string) error {
	opts := options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)
	for range 2 {
		err := documents.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: id}},
			bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: int64(1)}}}}, opts).Err()
		if err != nil {
			return err
		}
	}
	return nil
}

// acquireRelease acquires a resource without queueing, and releases it.
func (b *engineBench) acquireRelease(res lockcore.Resource) measurement {
	return func(ctx context.Context, round int) (time.Duration, error) {
		return timed(func() error { return acquireAndRelease(ctx, b.locker, round, res) })
	}
}

// acquireReleaseUnknown does the same on another resource in each round. Its document exists, but this process has not read it.
func (b *engineBench) acquireReleaseUnknown(name string, mode func(string) lockcore.Resource) measurement {
	return func(ctx context.Context, round int) (time.Duration, error) {
		res := mode(fmt.Sprintf(name, round))
		if err := acquireAndRelease(ctx, b.other, round, res); err != nil {
			return 0, err
		}
		return timed(func() error { return acquireAndRelease(ctx, b.locker, round, res) })
	}
}

func acquireAndRelease(ctx context.Context, locker *party.Locker, round int, res lockcore.Resource) error {
	leases, err := locker.TryEnter(ctx, party.Request{LockID: fmt.Sprintf("bench/pair/%d", round), Resources: []lockcore.Resource{res}})
	if err != nil {
		return err
	}
	lease := leases[0]
	return locker.Release(ctx, party.Release{
		LockID: lease.LockID, Resources: []string{res.Name}, FirstFence: lease.FirstFence, Order: lease.Order, Leaving: &lease.Part,
	})
}

// enterLeave enters with the request of each round, queueing if it must, and leaves.
func (b *engineBench) enterLeave(request func(round int) party.Request) measurement {
	return func(ctx context.Context, round int) (time.Duration, error) {
		return timed(func() error { return b.enterAndLeave(ctx, request(round)) })
	}
}

func (b *engineBench) enterAndLeave(ctx context.Context, request party.Request) error {
	leases, err := b.locker.Enter(ctx, request)
	if err != nil {
		return err
	}
	return b.locker.Leave(ctx, leases...)
}

// stepOn returns the request of a step.
func stepOn(round int, resources ...lockcore.Resource) party.Request {
	return party.Request{
		LockID: fmt.Sprintf("bench/step/%d/%d", len(resources), round), Part: "step", Order: party.Order{Schedule: 1, Attempt: 1},
		Resources: resources,
	}
}

func (b *engineBench) tenResources() section {
	all := make([]lockcore.Resource, 10)
	for i := range all {
		all[i] = lockcore.Exclusive(fmt.Sprintf("bench/ten/%d", i))
	}
	tenSteps := func(ctx context.Context, round int) (time.Duration, error) {
		return timed(func() error {
			for _, res := range all {
				if err := b.enterAndLeave(ctx, stepOn(round, res)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	oneStep := func(round int) party.Request { return stepOn(round, all...) }
	return section{name: "enter + leave of ten resources", divisor: 3, cases: []benchCase{
		{name: "ten steps, one after the other", once: tenSteps},
		{name: "one step", limit: 0.4, once: b.enterLeave(oneStep)},
	}}
}

// sharedHolders measures a shared acquisition on a resource that others hold already.
func (b *engineBench) sharedHolders(ctx context.Context) (section, error) {
	s := section{name: "with shared holders", divisor: 3}
	for _, c := range []struct {
		holders int
		limit   float64
	}{{0, 0}, {20, 0}, {200, 2.5}} {
		res := lockcore.Shared(fmt.Sprintf("bench/c%d", c.holders))
		for i := range c.holders {
			req := party.Request{LockID: fmt.Sprintf("holder/%d", i), Resources: []lockcore.Resource{res}, TTL: time.Hour}
			if _, err := b.locker.TryEnter(ctx, req); err != nil {
				return s, err
			}
		}
		s.cases = append(s.cases, benchCase{name: fmt.Sprint(c.holders), limit: c.limit, once: b.acquireRelease(res)})
	}
	return s, nil
}

// handOffs measures a release that makes a claim for the first waiter, and that waiter's confirmation.
func (b *engineBench) handOffs() section {
	s := section{name: "hand-off with waiters", divisor: 3}
	for _, c := range []struct {
		waiters int
		limit   float64
	}{{10, 0}, {100, 0}, {1000, 6}} {
		q := &queue{locker: b.locker, resource: fmt.Sprintf("bench/queue/%d", c.waiters), waiters: c.waiters}
		s.cases = append(s.cases, benchCase{name: fmt.Sprint(c.waiters), limit: c.limit, once: q.handOff})
	}
	return s
}

// queue is a resource with a holder and a number of waiters.
type queue struct {
	locker   *party.Locker
	resource string
	waiters  int
	// entered is the number of requests so far. The holder is the request with the number of the round.
	entered int
	holder  []lockcore.Lease
}

func (q *queue) request(i int) party.Request {
	return party.Request{
		LockID: fmt.Sprintf("bench/waiter/%d", i), Order: party.Order{Schedule: 1, Attempt: 1}, TTL: time.Hour,
		Resources: []lockcore.Resource{lockcore.Exclusive(q.resource)},
	}
}

func (q *queue) handOff(ctx context.Context, round int) (time.Duration, error) {
	for ; q.entered < round+q.waiters+1; q.entered++ {
		leases, err := q.locker.Enter(ctx, q.request(q.entered))
		if err == nil {
			q.holder = leases
		} else if ignoreBusy(err) != nil {
			return 0, err
		}
	}
	next := q.request(round + 1)
	// On a busy machine the waiter may have queued for so long that it is overdue and would not be granted.
	if _, err := q.locker.Recheck(ctx, next); ignoreBusy(err) != nil {
		return 0, err
	}
	return timed(func() (err error) {
		if err = q.locker.Leave(ctx, q.holder...); err != nil {
			return err
		}
		q.holder, err = q.locker.Enter(ctx, next)
		return err
	})
}

func ignoreBusy(err error) error {
	if errors.Is(err, lockcore.ErrBusy) && !errors.Is(err, lockcore.ErrQueueFull) {
		return nil
	}
	return err
}

// renewals renews 10,000 locks of one process, one in ten of them shared, and counts the commands.
func (b *engineBench) renewals(ctx context.Context, uri string) ([]FactReport, error) {
	const n = 10_000
	var commands atomic.Int64
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if slices.Contains([]string{"update", "find", "findAndModify"}, e.CommandName) {
			commands.Add(1)
		}
	}}
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetMonitor(monitor))
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	locker, err := party.New(client.Database(b.db.Name()).Collection("locks"), lockcore.Config{})
	if err != nil {
		return nil, err
	}
	leases := make([]lockcore.Lease, n)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for i := range n {
		group.Go(func() error {
			res := lockcore.Exclusive(fmt.Sprintf("bench/many/%d", i))
			if i%10 == 0 {
				res = lockcore.Shared(fmt.Sprintf("bench/shared/%d", i/100))
			}
			got, err := locker.TryEnter(groupCtx, party.Request{LockID: fmt.Sprintf("bench/holder/%d", i), Resources: []lockcore.Resource{res}, TTL: time.Hour})
			if err == nil {
				leases[i] = got[0]
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var seconds []float64
	for range 3 {
		commands.Store(0)
		took, err := timed(func() error { _, err := locker.Renew(ctx, leases...); return err })
		if err != nil {
			return nil, err
		}
		seconds = append(seconds, took.Seconds())
	}
	return []FactReport{
		{Name: "renewing 10,000 locks, one in ten shared", Value: float64(commands.Load()), Unit: "commands", Limit: 20},
		{Name: "the same, median of 3", Value: median(seconds), Unit: "s", Limit: 1},
	}, nil
}
