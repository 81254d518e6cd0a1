package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// bench is a database of its own, with a Locker and a collection for the raw commands.
type bench struct {
	db     *mongo.Database
	locker *party.Locker
	// other is another process's.
	other *party.Locker
	raw   *mongo.Collection
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
	b := &bench{db: db, locker: locker, other: other, raw: db.Collection("raw")}
	observed, stop, err := b.observed(ctx)
	if err != nil {
		return report, err
	}
	defer stop()
	for _, s := range []section{b.uncontended(), b.ten(), b.crowd(), b.handOff(), observed} {
		r, err := s.measure(ctx, rounds)
		if err != nil {
			return report, err
		}
		report.Sections = append(report.Sections, r)
	}
	trip := time.Duration(report.Sections[0].Cases[0].MedianMS / 2 * float64(time.Millisecond))
	facts, err := b.wakeUps(ctx, uri, rounds, trip)
	if err != nil {
		return report, err
	}
	report.Facts = facts
	facts, err = b.renewals(ctx, uri)
	report.Facts = append(report.Facts, facts...)
	return report, err
}

// database connects, and returns a new database and what drops it in the end.
func database(ctx context.Context, uri string) (*mongo.Database, func(), error) {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return nil, nil, fmt.Errorf("connect to LOCKSTEP_MONGODB_URI: %w", err)
	}
	db := client.Database(fmt.Sprintf("lockstep_bench_%d", time.Now().UnixNano()))
	return db, func() {
		// The context may have ended by Ctrl-C, and the database must go all the same.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = db.Drop(ctx)
		_ = client.Disconnect(ctx)
	}, nil
}

func timed(f func() error) (time.Duration, error) {
	start := time.Now()
	err := f()
	return time.Since(start), err
}

func (b *bench) uncontended() section {
	return section{name: "uncontended, two commands", cases: []benchCase{
		{name: "two raw $inc", once: func(ctx context.Context, _ int) (time.Duration, error) {
			return timed(func() error { return rawPair(ctx, b.raw, "bench") })
		}},
		{name: "acquire + release, exclusive", limit: 1.3, once: b.pair("x", lockcore.Exclusive("bench/x"), 0)},
		{name: "acquire + release, shared", limit: 1.3, once: b.pair("s", lockcore.Shared("bench/s"), 0)},
		{name: "acquire + release, exclusive, not known", limit: 1.75, once: b.unknown("ux", lockcore.Exclusive)},
		{name: "acquire + release, shared, not known", limit: 1.75, once: b.unknown("us", lockcore.Shared)},
		{name: "acquire + release, semaphore", once: b.pair("l", lockcore.SharedLimit("bench/l", 10), 0)},
		{name: "enter (would queue) + leave", once: b.enterLeave(lockcore.Exclusive("bench/q"))},
		{name: "enter + leave of a kept hold", limit: 1.35, once: b.kept(lockcore.Exclusive("bench/k"))},
	}}
}

// rawPair increments a number in a document, and once more: two round trips, as an acquire and a release are.
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

// pair takes and releases a resource in the way of a program that wants it now or not at all.
func (b *bench) pair(name string, res lockcore.Resource, holders int) func(context.Context, int) (time.Duration, error) {
	return b.pairOf(b.locker, name, res, holders)
}

func (b *bench) pairOf(locker *party.Locker, name string, res lockcore.Resource, holders int) func(context.Context, int) (time.Duration, error) {
	return func(ctx context.Context, round int) (time.Duration, error) {
		if round == 0 {
			for i := range holders {
				req := party.Request{LockID: fmt.Sprintf("holder/%d", i), Resources: []lockcore.Resource{res}, TTL: time.Hour}
				if _, err := locker.Enter(ctx, req, false); err != nil {
					return 0, err
				}
			}
		}
		return timed(func() error {
			leases, err := locker.Enter(ctx, party.Request{
				LockID: fmt.Sprintf("bench/%s/%d", name, round), Resources: []lockcore.Resource{res},
			}, false)
			if err != nil {
				return err
			}
			return locker.Release(ctx, party.Release{
				LockID: leases[0].LockID, Resources: []string{res.Name}, FirstFence: leases[0].FirstFence, Order: leases[0].Order, Leaving: &leases[0].Part,
			})
		})
	}
}

// unknown takes and releases in each round another resource, which has a document that this process has
// not read.
func (b *bench) unknown(name string, resource func(string) lockcore.Resource) func(context.Context, int) (time.Duration, error) {
	return func(ctx context.Context, round int) (time.Duration, error) {
		res := resource(fmt.Sprintf("bench/%s/%d", name, round))
		if _, err := b.pairOf(b.other, name, res, 0)(ctx, round); err != nil {
			return 0, err
		}
		return b.pairOf(b.locker, name, res, 0)(ctx, round)
	}
}

func (b *bench) enterLeave(resources ...lockcore.Resource) func(context.Context, int) (time.Duration, error) {
	return func(ctx context.Context, round int) (time.Duration, error) {
		return timed(func() error {
			leases, err := b.locker.Enter(ctx, party.Request{
				LockID: fmt.Sprintf("bench/%d/%d", len(resources), round), Part: "step", Order: party.Order{Schedule: 1, Attempt: 1},
				Resources: resources,
			}, true)
			if err != nil {
				return err
			}
			return b.locker.Leave(ctx, leases...)
		})
	}
}

// kept is a saga's step that comes to a hold of its own.
func (b *bench) kept(res lockcore.Resource) func(context.Context, int) (time.Duration, error) {
	return func(ctx context.Context, round int) (time.Duration, error) {
		return timed(func() error {
			leases, err := b.locker.Enter(ctx, party.Request{
				LockID: "bench/saga", Part: "step", Order: party.Order{Schedule: uint32(round) + 1, Attempt: 1}, Persist: true, //nolint:gosec // small
				Resources: []lockcore.Resource{res},
			}, true)
			if err != nil {
				return err
			}
			return b.locker.Leave(ctx, leases...)
		})
	}
}

// ten are steps on ten resources in all.
func (b *bench) ten() section {
	all := make([]lockcore.Resource, 10)
	for i := range all {
		all[i] = lockcore.Exclusive(fmt.Sprintf("bench/ten/%d", i))
	}
	return section{name: "enter + leave of ten resources", divisor: 3, cases: []benchCase{
		{name: "ten steps, one after the other", once: func(ctx context.Context, round int) (took time.Duration, err error) {
			for _, res := range all {
				d, err := b.enterLeave(res)(ctx, round)
				if err != nil {
					return 0, err
				}
				took += d
			}
			return took, nil
		}},
		{name: "one step", limit: 0.4, once: b.enterLeave(all...)},
	}}
}

func (b *bench) crowd() section {
	return section{name: "beside shared holders", divisor: 3, cases: []benchCase{
		{name: "none", once: b.pair("c0", lockcore.Shared("bench/c0"), 0)},
		{name: "20", once: b.pair("c20", lockcore.Shared("bench/c20"), 20)},
		{name: "200", limit: 2.5, once: b.pair("c200", lockcore.Shared("bench/c200"), 200)},
	}}
}

// handOff is a release that makes a claim for the first of those who wait, and that one's confirmation.
func (b *bench) handOff() section {
	return section{name: "hand-off with waiters", divisor: 3, cases: []benchCase{
		{name: "10", once: b.queue(10)},
		{name: "100", once: b.queue(100)},
		{name: "1000", limit: 6, once: b.queue(1000)},
	}}
}

func (b *bench) queue(waiters int) func(context.Context, int) (time.Duration, error) {
	res := lockcore.Exclusive(fmt.Sprintf("bench/queue/%d", waiters))
	next, holder := 0, []lockcore.Lease(nil)
	request := func(i int) party.Request {
		return party.Request{
			LockID: fmt.Sprintf("bench/waiter/%d", i), Order: party.Order{Schedule: 1, Attempt: 1}, TTL: time.Hour,
			Resources: []lockcore.Resource{res},
		}
	}
	enqueue := func(ctx context.Context) error {
		leases, err := b.locker.Enter(ctx, request(next), true)
		next++
		if err == nil {
			holder = leases
			return nil
		}
		return ignoreBusy(err)
	}
	return func(ctx context.Context, round int) (time.Duration, error) {
		for next-round < waiters+1 {
			if err := enqueue(ctx); err != nil {
				return 0, err
			}
		}
		// On a busy machine it may have waited for so long that it would be passed over.
		if _, err := b.locker.Recheck(ctx, request(round+1)); ignoreBusy(err) != nil {
			return 0, err
		}
		return timed(func() error {
			if err := b.locker.Leave(ctx, holder...); err != nil {
				return err
			}
			var err error
			holder, err = b.locker.Enter(ctx, request(round+1), true)
			return err
		})
	}
}

func ignoreBusy(err error) error {
	if errors.Is(err, lockcore.ErrBusy) && !errors.Is(err, lockcore.ErrQueueFull) {
		return nil
	}
	return err
}
