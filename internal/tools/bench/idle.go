package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// busy is how many resources are contended, and how many are kept, beside the idle documents.
	busy = 20
	// queuedOn is how many wait for each contended one.
	queuedOn = 2
	// busyPrefix begins the lock IDs of all of these parties, and no idle document has it.
	busyPrefix = "bench-party/"
)

// runIdle measures what background work costs beside documents that are neither held nor waited for.
func runIdle(ctx context.Context, args []string, out io.Writer, env func(string) string) error {
	flags := flag.NewFlagSet("bench idle", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	asJSON := flags.Bool("json", false, "print JSON")
	rounds := flags.Int("rounds", 30, "how often each search is measured, 5 to 10000")
	documents := flags.String("documents", "0,100000", "how many idle documents, 0 to 10000000; compared with the first")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if *rounds < 5 || *rounds > 10_000 {
		return fmt.Errorf("%w: --rounds %d is not from 5 to 10000", errUsage, *rounds)
	}
	var counts []int
	for text := range strings.SplitSeq(*documents, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > 10_000_000 {
			return fmt.Errorf("%w: --documents %q is not a list of numbers from 0 to 10000000", errUsage, *documents)
		}
		counts = append(counts, n)
	}
	if err := present(env, "LOCKSTEP_MONGODB_URI"); err != nil {
		return err
	}
	report, err := benchIdle(ctx, env("LOCKSTEP_MONGODB_URI"), *rounds, counts)
	if err != nil {
		return err
	}
	return tell(out, report, *asJSON)
}

// idleCollection is a collection with idle documents, and a few that are not.
type idleCollection struct {
	locker    *party.Locker
	documents int
}

func benchIdle(ctx context.Context, uri string, rounds int, counts []int) (report Report, err error) {
	db, drop, err := database(ctx, uri)
	if err != nil {
		return report, err
	}
	defer drop()
	var collections []*idleCollection
	for i, n := range counts {
		c, err := newIdleCollection(ctx, db.Collection(fmt.Sprintf("locks_%d", i)), n)
		if err != nil {
			return report, fmt.Errorf("make %d idle documents: %w", n, err)
		}
		collections = append(collections, c)
	}
	for _, c := range collections { // last, so that no place in a queue ends before it is measured
		if err := c.makeBusy(ctx); err != nil {
			return report, err
		}
	}
	for _, s := range []section{
		beside(collections, "deadlock search", 1.5, (*idleCollection).searchDeadlocks),
		beside(collections, "the janitor's read", 1.5, (*idleCollection).readForJanitor),
		beside(collections, "status by owner", 1.5, (*idleCollection).readOwner),
		beside(collections, "acquire + release of one more", 0, (*idleCollection).pair),
	} {
		r, err := s.measure(ctx, rounds)
		if err != nil {
			return report, err
		}
		report.Sections = append(report.Sections, r)
	}
	return report, nil
}

// beside measures one thing in each of the collections.
func beside(collections []*idleCollection, name string, limit float64, once func(*idleCollection, context.Context, int) error) section {
	s := section{name: name + ", beside idle documents"}
	for i, c := range collections {
		measured := benchCase{name: strconv.Itoa(c.documents), once: func(ctx context.Context, round int) (time.Duration, error) {
			return timed(func() error { return once(c, ctx, round) })
		}}
		if i > 0 {
			measured.limit = limit
		}
		s.cases = append(s.cases, measured)
	}
	return s
}

func newIdleCollection(ctx context.Context, coll *mongo.Collection, documents int) (*idleCollection, error) {
	locker, err := party.New(coll, lockcore.Config{WaiterTTL: time.Hour, HoldTTL: time.Hour})
	if err != nil {
		return nil, err
	}
	c := &idleCollection{locker, documents}
	if err := locker.CreateIndexes(ctx); err != nil {
		return nil, err
	}
	// An idle document is what a release leaves, and the others are copies of it: as many as there would be if
	// each had been released just now.
	if err := c.pair(ctx, 0); err != nil {
		return nil, err
	}
	var idle bson.D
	if err := coll.FindOne(ctx, bson.D{{Key: "_id", Value: idleName}}).Decode(&idle); err != nil {
		return nil, err
	}
	const batch = 10_000
	for made := 0; made < documents; made += batch {
		copies := make([]bson.D, min(batch, documents-made))
		for i := range copies {
			copies[i] = append(bson.D{}, idle...)
			for at := range copies[i] {
				if copies[i][at].Key == "_id" {
					copies[i][at].Value = fmt.Sprintf("idle/%09d", made+i)
				}
			}
		}
		if _, err := coll.InsertMany(ctx, copies, options.InsertMany().SetOrdered(false)); err != nil {
			return nil, err
		}
	}
	return c, nil
}

const idleName = "bench/idle"

// pair takes and releases a resource that no other wants.
func (c *idleCollection) pair(ctx context.Context, round int) error {
	leases, err := c.locker.Enter(ctx, party.Request{
		LockID: fmt.Sprintf("bench/%d", round), Resources: []lockcore.Resource{lockcore.Exclusive(idleName)},
	}, false)
	if err != nil {
		return err
	}
	return c.locker.Leave(ctx, leases...)
}

// makeBusy lets parties hold and wait for a few resources, and keep as many.
func (c *idleCollection) makeBusy(ctx context.Context) error {
	enter := func(resource string, n int, keep bool) ([]lockcore.Lease, error) {
		return c.locker.Enter(ctx, party.Request{
			LockID: fmt.Sprintf("%s%s/%d", busyPrefix, resource, n), Owner: ownerOf(resource, n), Part: "step",
			Order: party.Order{Schedule: 1, Attempt: 1}, TTL: time.Hour, Persist: keep, Resources: []lockcore.Resource{lockcore.Exclusive(resource)},
		}, true)
	}
	for i := range busy {
		for n := range 1 + queuedOn {
			if _, err := enter(contended(i), n, false); ignoreBusy(err) != nil {
				return err
			}
		}
		leases, err := enter(fmt.Sprintf("bench/kept/%d", i), 0, true)
		if err != nil {
			return err
		}
		if err := c.locker.Leave(ctx, leases...); err != nil { // the hold stands without a part
			return err
		}
	}
	return nil
}

func contended(i int) string { return fmt.Sprintf("bench/contended/%d", i) }

func ownerOf(resource string, party int) string {
	return fmt.Sprintf("bench-owner/%s/%d", resource, party)
}

func (c *idleCollection) searchDeadlocks(ctx context.Context, _ int) error {
	found, err := c.locker.Deadlocks(ctx)
	if err == nil && len(found) > 0 {
		return fmt.Errorf("there are %d deadlocks, where nobody holds anything and waits", len(found))
	}
	return err
}

// readForJanitor reads what the janitor asks Temporal about.
func (c *idleCollection) readForJanitor(ctx context.Context, _ int) error {
	return expect(busy*(1+queuedOn+1), c.locker.Status(ctx, lockcore.Filter{Contended: true,
		LockIDPrefix: busyPrefix,
		States:       []lockcore.State{lockcore.StateHolding, lockcore.StateClaimed, lockcore.StateWaiting},
	}))
}

// readOwner reads what one owner waits for.
func (c *idleCollection) readOwner(ctx context.Context, round int) error {
	return expect(1, c.locker.Status(ctx, lockcore.Filter{Contended: true, Owner: ownerOf(contended(round%busy), queuedOn)}))
}

// expect reads a status to its end, which has to be of so many.
func expect(want int, status iter.Seq2[lockcore.Status, error]) error {
	got := 0
	for _, err := range status {
		if err != nil {
			return err
		}
		got++
	}
	if got != want {
		return fmt.Errorf("%d are listed, of %d", got, want)
	}
	return nil
}
