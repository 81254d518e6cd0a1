package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// FactReport is one number that is compared with a limit, and not with another case.
type FactReport struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Limit is what the value should not exceed; 0 if nothing is said.
	Limit float64 `json:"limit,omitempty"`
	// Least is what the value should not be below; 0 if nothing is said.
	Least float64 `json:"least,omitempty"`
}

// observer is a client of its own, as another process has, that counts its commands.
type observer struct {
	client   *mongo.Client
	locker   *party.Locker
	commands map[string]*atomic.Int64
}

func (b *bench) observe(uri string) (*observer, error) {
	o := &observer{commands: map[string]*atomic.Int64{}}
	for _, name := range []string{"update", "find", "findAndModify"} {
		o.commands[name] = &atomic.Int64{}
	}
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if n := o.commands[e.CommandName]; n != nil {
			n.Add(1)
		}
	}}
	var err error
	if o.client, err = mongo.Connect(options.Client().ApplyURI(uri).SetMonitor(monitor)); err != nil {
		return nil, err
	}
	o.locker, err = party.New(o.client.Database(b.db.Name()).Collection("locks"), lockcore.Config{})
	return o, err
}

func (o *observer) count(name string) float64 { return float64(o.commands[name].Load()) }

// renewals renews 10,000 locks of one process, one in ten of them shared.
func (b *bench) renewals(ctx context.Context, uri string) ([]FactReport, error) {
	const n = 10_000
	o, err := b.observe(uri)
	if err != nil {
		return nil, err
	}
	defer func() { _ = o.client.Disconnect(context.WithoutCancel(ctx)) }()
	leases := make([]lockcore.Lease, n)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for i := range n {
		group.Go(func() error {
			res := lockcore.Exclusive(fmt.Sprintf("bench/many/%d", i))
			if i%10 == 0 {
				res = lockcore.Shared(fmt.Sprintf("bench/shared/%d", i/100))
			}
			got, err := o.locker.Enter(groupCtx, party.Request{LockID: fmt.Sprintf("bench/holder/%d", i), Resources: []lockcore.Resource{res}, TTL: time.Hour}, false)
			if err == nil {
				leases[i] = got[0]
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var took []time.Duration
	var commands float64
	for range 3 {
		before := o.count("update") + o.count("find") + o.count("findAndModify")
		d, err := timed(func() error { _, err := o.locker.Renew(ctx, leases...); return err })
		if err != nil {
			return nil, err
		}
		took = append(took, d)
		commands = o.count("update") + o.count("find") + o.count("findAndModify") - before
	}
	slices.Sort(took)
	return []FactReport{
		{Name: "renewing 10,000 locks, one in ten shared", Value: commands, Unit: "commands", Limit: 20},
		{Name: "the same, median of 3", Value: took[1].Seconds(), Unit: "s", Limit: 1},
	}, nil
}

// wakeUps hands an exclusive lock from one waiter to the next, and takes the time from when the release has returned until
// the next one's Acquire has.
func (b *bench) wakeUps(ctx context.Context, uri string, rounds int, trip time.Duration) ([]FactReport, error) {
	o, err := b.observe(uri)
	if err != nil {
		return nil, err
	}
	defer func() { _ = o.client.Disconnect(context.WithoutCancel(ctx)) }()
	here, err := b.wakeUp(ctx, b.locker, b.locker, "here", rounds, 0)
	if err != nil {
		return nil, err
	}
	start, before := time.Now(), o.count("find")
	there, err := b.wakeUp(ctx, b.locker, o.locker, "there", max(rounds/10, 20), 250*time.Millisecond)
	if err != nil {
		return nil, err
	}
	reads := (o.count("find") - before) / time.Since(start).Seconds()
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return []FactReport{
		{Name: "one round trip (a raw $inc)", Value: ms(trip), Unit: "ms"},
		{Name: "wake-up in the same process, median", Value: ms(here), Unit: "ms", Limit: ms(2 * trip)},
		{Name: "wake-up in another process, median", Value: ms(there), Unit: "ms", Limit: 250},
		{Name: "reads of that other process", Value: reads, Unit: "per second", Limit: 50}, // every 20 ms, for a turn that is near
	}, nil
}

// wakeUp releases at moments that are spread evenly over the time from one read of the waiter's to the next.
func (b *bench) wakeUp(ctx context.Context, releaser, waiter *party.Locker, name string, rounds int, between time.Duration) (time.Duration, error) {
	res := []lockcore.Resource{lockcore.Exclusive("bench/wake/" + name)}
	var took []time.Duration
	for i := range rounds {
		held, err := releaser.TryAcquire(ctx, party.Request{LockID: fmt.Sprintf("bench/holder/%d", i), Resources: res})
		if err != nil {
			return 0, err
		}
		type result struct {
			s   *party.Session
			err error
			at  time.Time
		}
		woken := make(chan result, 1)
		go func() {
			s, err := waiter.Acquire(ctx, party.Request{LockID: fmt.Sprintf("bench/waiter/%d", i), Resources: res})
			woken <- result{s, err, time.Now()}
		}()
		if err := b.queued(ctx, res[0].Name); err != nil {
			return 0, err
		}
		time.Sleep(between * time.Duration(i) / time.Duration(rounds)) // the case that is measured, not a way to synchronise
		if err := held.Release(ctx); err != nil {
			return 0, err
		}
		released := time.Now()
		got := <-woken
		if got.err != nil {
			return 0, got.err
		}
		took = append(took, max(got.at.Sub(released), 0))
		if err := got.s.Release(ctx); err != nil {
			return 0, err
		}
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// queued waits until a request waits for a resource. It asks again and again: the waiter is another process's, as it were.
func (b *bench) queued(ctx context.Context, resource string) error {
	for ctx.Err() == nil {
		for _, err := range b.locker.Status(ctx, lockcore.Filter{Resource: resource, States: []lockcore.State{lockcore.StateWaiting}}) {
			return err
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return ctx.Err()
}
