package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// scaleBench measures how costs grow with the number of resources, of clients, of waiters, of idle documents, of renewals of one
// document, and of its holders and waiters. Its JSON is the report.
type scaleBench struct {
	uri string
	db  *mongo.Database // neither counted nor delayed
	// each is the time for which a load is measured.
	each   time.Duration
	delays measure.Delays

	Seconds float64 `json:"seconds"`
	// Loads have one resource or more, Background has the work whose cost must not grow with idle documents.
	Loads      []*loadRow       `json:"loads"`
	Background []*backgroundRow `json:"background"`
	// Renewals have one document that is renewed often.
	Renewals []*renewalsRow `json:"renewals,omitempty"`
	// Crowds have one document with many holders and many waiters.
	Crowds []*crowdRow `json:"crowds,omitempty"`
}

const (
	// scaleBound bounds a run, and shortBound one with --short.
	scaleBound, shortBound = 8 * time.Minute, time.Minute
	// mostWaiters is the length of a queue. More waiters are spread over several resources. The default of Config.MaxWaiters is
	// twice as much, but each request copies and sends the whole queue, so filling it takes time by the square of its length.
	mostWaiters = 1000
)

func runScale(ctx context.Context, args []string) (err error) {
	b := &scaleBench{}
	flags := flag.NewFlagSet("bench scale", flag.ExitOnError)
	flags.DurationVar(&b.each, "each", 4*time.Second, "how long each load is measured")
	flags.DurationVar(&b.delays.Writes, "write-delay", 0, "how long answers of the database to writes are held back")
	short := flags.Bool("short", false, "fewer and shorter loads, within a minute")
	asJSON := parseFlags(flags, args)
	if b.uri, err = variable("LOCKSTEP_MONGODB_URI"); err != nil {
		return err
	}
	documents, clients, waiters, bound := []int{1, 10, 100, 1_000, 10_000, 100_000}, []int{1, 4, 16, 64}, []int{10, 100, 1_000, 10_000}, scaleBound
	renewals, crowds := []int{5, 50, 500}, []int{100, 300, 1_000}
	if *short {
		documents, clients, waiters, bound, b.each = []int{1, 100, 10_000}, []int{1, 16}, []int{10, 1_000}, shortBound, time.Second
		renewals, crowds = []int{50, 500}, []int{30, 100}
	}
	b.Seconds = b.each.Seconds()
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("the benchmark did not end within %s", bound))
	defer cancel()
	db, drop, err := database(ctx, b.uri)
	if err != nil {
		return err
	}
	defer drop()
	b.db = db
	// What was measured is printed even if the rest fails.
	err = errors.Join(b.growDocuments(ctx, documents), b.growClients(ctx, clients), b.growWaiters(ctx, waiters), b.growRenewals(ctx, renewals),
		b.growCrowds(ctx, crowds))
	return errors.Join(err, write(b, asJSON))
}

// growDocuments measures one Locker with eight goroutines on more and more resources, and background work with as many idle
// documents.
func (b *scaleBench) growDocuments(ctx context.Context, numbers []int) error {
	f, err := b.newFleet(ctx, 1, "documents")
	if err != nil {
		return err
	}
	defer f.close(ctx)
	if err := fillQueues(ctx, f.lockers[0].Steps()); err != nil {
		return err
	}
	documents := 0
	for _, n := range append([]int{0}, numbers...) {
		if err := b.insertIdle(ctx, f.lockers[0].Steps(), documents, n); err != nil {
			return err
		}
		documents = n
		if n > 0 {
			if err := b.addLoad(ctx, loadCase{what: "resources", lockers: 1, goroutines: 8, resources: n, collection: "documents"}); err != nil {
				return err
			}
		}
		if n == 0 || n >= 10_000 {
			row, err := measureBackground(ctx, f.lockers[0].Steps(), n)
			if err != nil {
				return err
			}
			b.Background = append(b.Background, row)
		}
	}
	return nil
}

func (b *scaleBench) growClients(ctx context.Context, numbers []int) (err error) {
	for _, resources := range []int{1, 1_000} {
		for _, n := range numbers {
			err = errors.Join(err, b.addLoad(ctx, loadCase{
				what: "clients", lockers: n, goroutines: 1, resources: resources, collection: fmt.Sprintf("clients_%d_%d", resources, n),
			}))
		}
	}
	return err
}

func (b *scaleBench) addLoad(ctx context.Context, c loadCase) error {
	row, err := b.measureLoad(ctx, c)
	if err == nil {
		b.Loads = append(b.Loads, row)
	}
	return err
}

// growWaiters measures queues. Their waiters belong to one Locker or, up to 1,000, to four: these take long to queue, because they
// change the same document.
func (b *scaleBench) growWaiters(ctx context.Context, numbers []int) (err error) {
	for _, lockers := range []int{1, 4} {
		for _, n := range numbers {
			if lockers > 1 && n > 1_000 {
				continue
			}
			err = errors.Join(err, b.addLoad(ctx, loadCase{
				what: "waiters", lockers: lockers, goroutines: n / lockers, resources: (n + mostWaiters - 1) / mostWaiters,
				collection: fmt.Sprintf("waiters_%d_%d", lockers, n), queued: true,
			}))
		}
	}
	return err
}

// insertIdle adds documents of idle resources, with the numbers from from to to. They are copies of one that a Locker has left.
func (b *scaleBench) insertIdle(ctx context.Context, locker *lockcore.Steps, from, to int) error {
	coll := b.db.Collection("documents")
	const template = "idle"
	if err := acquireRelease(locker, always(lockcore.Exclusive(template)))(ctx, 0); err != nil {
		return err
	}
	var document bson.D
	if err := coll.FindOne(ctx, bson.D{{Key: "_id", Value: template}}).Decode(&document); err != nil {
		return err
	}
	for batch := range slices.Chunk(make([]int, to-from), 1_000) {
		copies := make([]any, len(batch))
		for i := range copies {
			d := slices.Clone(document)
			d[slices.IndexFunc(d, func(e bson.E) bool { return e.Key == "_id" })].Value = resourceName(from + i)
			copies[i] = d
		}
		if _, err := coll.InsertMany(ctx, copies); err != nil {
			return fmt.Errorf("insert idle documents: %w", err)
		}
		from += len(batch)
	}
	return nil
}

func resourceName(i int) string { return fmt.Sprintf("scale/%d", i) }

// fillQueues makes what background work reads: twenty kept holds, each with five waiters.
func fillQueues(ctx context.Context, locker *lockcore.Steps) error {
	locker.LimitInlineWaits(0)
	for i := range 20 {
		for j := range 6 {
			_, err := locker.Enter(ctx, lockcore.StepRequest{
				Caller: lockcore.Caller{LockID: fmt.Sprintf("scale/party/%d/%d", i, j), Part: "step", Order: lockcore.Order{Schedule: 1, Attempt: 1}}, Keep: true, TTL: time.Hour,
				Resources: []lockcore.Resource{lockcore.Exclusive(fmt.Sprintf("kept/%d", i))},
			})
			if ignoreBusy(err) != nil {
				return err
			}
		}
	}
	return nil
}

// backgroundRow has the times, in ms, of work that reads many documents: medians of three, with a number of idle documents in the collection.
type backgroundRow struct {
	Documents int `json:"documents"`
	// Search is the search for deadlocks, List what the janitor and `lockstep ps --waiting` read, All what `lockstep ps` reads.
	SearchMS float64 `json:"searchMs"`
	ListMS   float64 `json:"listMs"`
	AllMS    float64 `json:"allMs"`
	Listed   int     `json:"listed"`
}

func measureBackground(ctx context.Context, locker *lockcore.Steps, documents int) (*backgroundRow, error) {
	row := &backgroundRow{Documents: documents}
	list := func(f lockcore.Filter) func() error {
		return func() error {
			row.Listed = 0
			for _, err := range locker.Status(ctx, f) {
				if err != nil {
					return err
				}
				row.Listed++
			}
			return nil
		}
	}
	for _, work := range []struct {
		to *float64
		do func() error
	}{
		{&row.SearchMS, func() error { _, err := locker.Deadlocks(ctx); return err }},
		{&row.AllMS, list(lockcore.Filter{})},
		{&row.ListMS, list(lockcore.Filter{Contended: true})},
	} {
		var took []float64
		for range 3 {
			d, err := timed(work.do)
			if err != nil {
				return nil, err
			}
			took = append(took, measure.Millis(d))
		}
		*work.to = measure.Median(took)
	}
	return row, nil
}

func (b *scaleBench) print(w io.Writer) {
	if len(b.Loads) > 0 {
		b.printLoads(w)
	}
	b.printRenewals(w)
	b.printCrowds(w)
}

func (b *scaleBench) printLoads(w io.Writer) {
	fmt.Fprintf(w, "each load %g s; answers to writes held back %s; a queue has at most %d waiters\n\n", b.Seconds, b.delays.Writes, mostWaiters)
	fmt.Fprintln(w, "what\tLockers\tgoroutines each\tresources\ta second\twait p50 ms\tp99 ms\twrites\treads\tdocument kB\theap of a waiter kB\t")
	for _, r := range b.Loads {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.1f\t%.1f\t%.1f\t%.2f\t%.2f\t%.1f\t%.1f\t\n", r.What, r.Lockers, r.Goroutines, r.Resources,
			r.PerSecond, r.WaitP50MS, r.WaitP99MS, r.Writes, r.Reads, r.DocumentKB, r.HeapKB)
	}
	fmt.Fprintln(w, "\nidle documents\tdeadlock search ms\tlist of contended ms\tlist of all ms\tlisted\t")
	for _, r := range b.Background {
		fmt.Fprintf(w, "%d\t%.1f\t%.1f\t%.1f\t%d\t\n", r.Documents, r.SearchMS, r.ListMS, r.AllMS, r.Listed)
	}
}

// random returns the name of one of n resources.
func random(n int) func() string { return func() string { return resourceName(rand.IntN(n)) } } //nolint:gosec // no secret
