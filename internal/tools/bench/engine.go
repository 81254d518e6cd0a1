package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// engineBench measures operations of the lock engine in a database of its own.
type engineBench struct {
	db  *mongo.Database
	raw *mongo.Collection
	// locker performs the measured operations. other represents another process, whose changes locker has not read.
	locker, other *lockcore.Steps
}

func runEngine(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench engine", flag.ExitOnError)
	rounds := flags.Int("rounds", 300, "how often each case is measured")
	asJSON := parseFlags(flags, args)
	uri, err := variable("LOCKSTEP_MONGODB_URI")
	if err != nil {
		return err
	}
	report, err := benchEngine(ctx, uri, *rounds)
	if err != nil {
		return err
	}
	return write(report, asJSON)
}

func benchEngine(ctx context.Context, uri string, rounds int) (*engineReport, error) {
	db, drop, err := measure.Database(ctx, uri)
	if err != nil {
		return nil, err
	}
	defer drop()
	locker, err := lockcore.New(db.Collection("locks"), lockcore.Config{MaxWaiters: 5000})
	if err != nil {
		return nil, err
	}
	if err := locker.CreateIndexes(ctx); err != nil {
		return nil, err
	}
	if err := storePolicies(ctx, locker); err != nil {
		return nil, err
	}
	other, err := lockcore.New(db.Collection("locks"), lockcore.Config{})
	if err != nil {
		return nil, err
	}
	b := &engineBench{db: db, raw: db.Collection("raw"), locker: locker.Steps(), other: other.Steps()}
	shared, err := b.sharedHolders(ctx)
	if err != nil {
		return nil, err
	}
	report := &engineReport{}
	for _, s := range []section{b.pairs(), b.tenResources(), shared, b.handOffs()} {
		r, err := s.measure(ctx, rounds)
		if err != nil {
			return nil, err
		}
		report.Sections = append(report.Sections, r)
	}
	report.Facts, err = b.renewals(ctx, uri)
	return report, err
}

// policiesVariable is the number of policies that the collection has, for names that the benchmark does not use. It is a variable and no flag, so that
// the program of a commit that knows no policies can be compared.
const policiesVariable = "LOCKSTEP_BENCH_POLICIES"

func storePolicies(ctx context.Context, locker *lockcore.Locker) error {
	text := os.Getenv(policiesVariable)
	if text == "" {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("%s: %w", policiesVariable, err)
	}
	for i := range n {
		p := lockcore.Policy{Name: fmt.Sprintf("partner/%d", i), Prefix: i%2 == 0, Limit: 3, By: "bench", Reason: "a benchmark"}
		if err := locker.SetPolicy(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// pairs are two operations each, compared with two raw commands.
func (b *engineBench) pairs() section {
	unknown := func(name string, mode func(string) lockcore.Resource) benchCase {
		each := func(round int) lockcore.Resource { return mode(fmt.Sprintf(name, round)) }
		// The document exists, but this process has not read it.
		return benchCase{limit: 1.75, prepare: acquireRelease(b.other, each), once: acquireRelease(b.locker, each)}
	}
	exclusive, shared := unknown("bench/ux/%d", lockcore.Exclusive), unknown("bench/us/%d", lockcore.Shared)
	exclusive.name, shared.name = "acquire + release, exclusive, not known", "acquire + release, shared, not known"
	step := func(round int) lockcore.StepRequest { return stepOn(round, lockcore.Exclusive("bench/q")) }
	kept := func(round int) lockcore.StepRequest {
		return lockcore.StepRequest{
			Caller: lockcore.Caller{LockID: "bench/saga", Part: "step", Order: lockcore.Order{Schedule: uint32(round) + 1, Attempt: 1}}, Keep: true, //nolint:gosec // small
			Resources: []lockcore.Resource{lockcore.Exclusive("bench/k")},
		}
	}
	return section{name: "uncontended, two commands", cases: []benchCase{
		{name: "two raw $inc", once: func(ctx context.Context, _ int) error { return rawPair(ctx, b.raw, "bench") }},
		{name: "acquire + release, exclusive", limit: 1.3, once: acquireRelease(b.locker, always(lockcore.Exclusive("bench/x")))},
		{name: "acquire + release, shared", limit: 1.3, once: acquireRelease(b.locker, always(lockcore.Shared("bench/s")))},
		exclusive,
		shared,
		{name: "acquire + release, semaphore", once: acquireRelease(b.locker, always(lockcore.SharedLimit("bench/l", 10)))},
		{name: "enter (would queue) + leave", once: b.enterLeave(step)},
		{name: "enter + leave of a kept hold", limit: 1.35, once: b.enterLeave(kept)},
	}}
}

func always(res lockcore.Resource) func(int) lockcore.Resource {
	return func(int) lockcore.Resource { return res }
}

// rawPair increments a number in a document twice. It needs two round trips, like an acquire and a release.
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

// acquireRelease acquires the resource of each round without queueing, and releases it.
func acquireRelease(locker *lockcore.Steps, resource func(round int) lockcore.Resource) operation {
	return func(ctx context.Context, round int) error {
		res := resource(round)
		leases, err := locker.TryEnter(ctx, lockcore.StepRequest{Caller: lockcore.Caller{LockID: fmt.Sprintf("bench/pair/%d", round)}, Resources: []lockcore.Resource{res}})
		if err != nil {
			return err
		}
		lease := leases[0]
		return locker.Release(ctx, lockcore.Release{
			LockID: lease.LockID, Resources: []string{res.Name}, FirstFence: lease.FirstFence, Order: lease.Order, Leaving: &lease.Part,
		})
	}
}

// enterLeave enters with the request of each round, queueing if it must, and leaves.
func (b *engineBench) enterLeave(request func(round int) lockcore.StepRequest) operation {
	return func(ctx context.Context, round int) error {
		leases, err := b.locker.Enter(ctx, request(round))
		if err != nil {
			return err
		}
		return b.locker.Leave(ctx, leases...)
	}
}

// stepOn returns the request of a step.
func stepOn(round int, resources ...lockcore.Resource) lockcore.StepRequest {
	return lockcore.StepRequest{
		Caller:    lockcore.Caller{LockID: fmt.Sprintf("bench/step/%d/%d", len(resources), round), Part: "step", Order: lockcore.Order{Schedule: 1, Attempt: 1}},
		Resources: resources,
	}
}

func (b *engineBench) tenResources() section {
	all := make([]lockcore.Resource, 10)
	for i := range all {
		all[i] = lockcore.Exclusive(fmt.Sprintf("bench/ten/%d", i))
	}
	tenSteps := func(ctx context.Context, round int) error {
		for _, res := range all {
			if err := b.enterLeave(func(int) lockcore.StepRequest { return stepOn(round, res) })(ctx, round); err != nil {
				return err
			}
		}
		return nil
	}
	return section{name: "enter + leave of ten resources", divisor: 3, cases: []benchCase{
		{name: "ten steps, one after the other", once: tenSteps},
		{name: "one step", limit: 0.4, once: b.enterLeave(func(round int) lockcore.StepRequest { return stepOn(round, all...) })},
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
			req := lockcore.StepRequest{Caller: lockcore.Caller{LockID: fmt.Sprintf("holder/%d", i)}, Resources: []lockcore.Resource{res}, TTL: time.Hour}
			if _, err := b.locker.TryEnter(ctx, req); err != nil {
				return s, err
			}
		}
		s.cases = append(s.cases, benchCase{name: fmt.Sprint(c.holders), limit: c.limit, once: acquireRelease(b.locker, always(res))})
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
		s.cases = append(s.cases, benchCase{name: fmt.Sprint(c.waiters), limit: c.limit, prepare: q.prepare, once: q.handOff})
	}
	return s
}

// queue is a resource with a holder and a number of waiters.
type queue struct {
	locker   *lockcore.Steps
	resource string
	waiters  int
	// entered is the number of requests so far. The holder is the request with the number of the round.
	entered int
	holder  []lockcore.Lease
}

func (q *queue) request(i int) lockcore.StepRequest {
	return lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: fmt.Sprintf("bench/waiter/%d", i), Order: lockcore.Order{Schedule: 1, Attempt: 1}}, TTL: time.Hour,
		Resources: []lockcore.Resource{lockcore.Exclusive(q.resource)},
	}
}

// prepare fills the queue.
func (q *queue) prepare(ctx context.Context, round int) error {
	for ; q.entered < round+q.waiters+1; q.entered++ {
		leases, err := q.locker.Enter(ctx, q.request(q.entered))
		if err == nil {
			q.holder = leases
		} else if ignoreBusy(err) != nil {
			return err
		}
	}
	// On a busy machine the waiter may have queued for so long that it is overdue and would not be granted.
	_, err := q.locker.Recheck(ctx, q.request(round+1))
	return ignoreBusy(err)
}

func (q *queue) handOff(ctx context.Context, round int) (err error) {
	if err = q.locker.Leave(ctx, q.holder...); err != nil {
		return err
	}
	q.holder, err = q.locker.Enter(ctx, q.request(round+1))
	return err
}

func ignoreBusy(err error) error {
	if errors.Is(err, lockcore.ErrBusy) && !errors.Is(err, lockcore.ErrQueueFull) {
		return nil
	}
	return err
}

// renewals renews 10,000 locks of one process, one in ten of them shared, and counts the commands.
func (b *engineBench) renewals(ctx context.Context, uri string) ([]factReport, error) {
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
	locker, err := lockcore.New(client.Database(b.db.Name()).Collection("locks"), lockcore.Config{})
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
			got, err := locker.Steps().TryEnter(groupCtx, lockcore.StepRequest{Caller: lockcore.Caller{LockID: fmt.Sprintf("bench/holder/%d", i)}, Resources: []lockcore.Resource{res}, TTL: time.Hour})
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
		took, err := timed(func() error { _, err := locker.Steps().Renew(ctx, leases...); return err })
		if err != nil {
			return nil, err
		}
		seconds = append(seconds, took.Seconds())
	}
	return []factReport{
		{Name: "renewing 10,000 locks, one in ten shared", Value: float64(commands.Load()), Unit: "commands", Limit: 20},
		{Name: "the same, median of 3", Value: measure.Median(seconds), Unit: "s", Limit: 1},
	}, nil
}

// section is a set of cases that run alternately and are compared with the first of them.
type section struct {
	name string
	// divisor reduces the number of rounds, for cases that take long.
	divisor int
	cases   []benchCase
}

// benchCase is one operation.
type benchCase struct {
	name string
	// limit is the highest acceptable ratio to the first case; 0 if there is none.
	limit float64
	// prepare, which may be nil, is not measured.
	prepare, once operation
}

type operation func(ctx context.Context, round int) error

// engineReport is the result of bench engine.
type engineReport struct {
	Sections []sectionReport `json:"sections"`
	Facts    []factReport    `json:"facts"`
}

type sectionReport struct {
	Name  string       `json:"name"`
	Cases []caseReport `json:"cases"`
}

// caseReport is one line of a table. Times are in milliseconds.
type caseReport struct {
	Name     string  `json:"name"`
	Rounds   int     `json:"rounds"`
	MedianMS float64 `json:"medianMs"`
	P90MS    float64 `json:"p90Ms"`
	// Ratio is the median divided by that of the section's first case.
	Ratio float64 `json:"ratio"`
	// Limit is the highest acceptable ratio; 0 if there is none.
	Limit float64 `json:"limit,omitempty"`
}

// factReport is one number that is compared with a limit and not with another case.
type factReport struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Limit is the highest acceptable value; 0 if there is none.
	Limit float64 `json:"limit,omitempty"`
}

func (s section) measure(ctx context.Context, rounds int) (sectionReport, error) {
	report := sectionReport{Name: s.name}
	rounds = max(rounds/max(s.divisor, 1), 5)
	took := make([][]time.Duration, len(s.cases))
	const warmUp = 3
	for round := range rounds + warmUp {
		for i, c := range s.cases {
			if c.prepare != nil {
				if err := c.prepare(ctx, round); err != nil {
					return report, fmt.Errorf("prepare %s, %s: %w", s.name, c.name, err)
				}
			}
			d, err := timed(func() error { return c.once(ctx, round) })
			if err != nil {
				return report, fmt.Errorf("%s, %s: %w", s.name, c.name, err)
			}
			if round >= warmUp {
				took[i] = append(took[i], d)
			}
		}
	}
	for i, c := range s.cases {
		report.Cases = append(report.Cases, caseReport{
			Name: c.name, Rounds: rounds, MedianMS: measure.Percentile(took[i], 50), P90MS: measure.Percentile(took[i], 90), Limit: c.limit,
		})
		report.Cases[i].Ratio = report.Cases[i].MedianMS / report.Cases[0].MedianMS
	}
	return report, nil
}

func (r *engineReport) print(w io.Writer) {
	for _, s := range r.Sections {
		fmt.Fprintf(w, "%s\tmedian ms\tp90 ms\tratio\tlimit\t\t\n", s.Name)
		for _, c := range s.Cases {
			limit, verdict := judge(c.Ratio, c.Limit)
			fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.2f\t%s\t%s\t\n", c.Name, c.MedianMS, c.P90MS, c.Ratio, limit, verdict)
		}
		fmt.Fprintln(w, "\t\t\t\t\t\t")
	}
	fmt.Fprintln(w, "in addition\tvalue\tunit\tlimit\t\t")
	for _, f := range r.Facts {
		limit, verdict := judge(f.Value, f.Limit)
		fmt.Fprintf(w, "%s\t%.3f\t%s\t%s\t%s\t\n", f.Name, f.Value, f.Unit, limit, verdict)
	}
}

// judge returns a limit as text, and whether the value misses it.
func judge(value, limit float64) (text, verdict string) {
	if limit == 0 {
		return "", ""
	}
	if value > limit {
		verdict = "MISSED"
	}
	return fmt.Sprintf("%.2f", limit), verdict
}
