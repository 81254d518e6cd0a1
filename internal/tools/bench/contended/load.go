package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/delay"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// warmUp is the time before the measurement, in which connections are made and the queue fills.
	warmUp = 2 * time.Second
	// cleanup bounds the time that closing Lockers and dropping the database take.
	cleanup = 15 * time.Second
	// drain bounds the time after the measurement in which each goroutine gets and releases the lock that it waits for.
	drain    = time.Minute
	resource = "contended/resource"
)

// caseReport holds the results of one case. Commands are counted per acquisition.
type caseReport struct {
	benchCase
	// PerSecond is the number of acquisitions a second.
	PerSecond float64 `json:"perSecond"`
	// WaitP50MS and WaitP99MS are percentiles of the time in Acquire, in milliseconds.
	WaitP50MS float64 `json:"waitP50Ms"`
	WaitP99MS float64 `json:"waitP99Ms"`
	// WritesSent counts the write commands.
	WritesSent float64 `json:"writesSent"`
	// WritesDone counts the write commands that matched or inserted at least one document.
	WritesDone float64 `json:"writesDone"`
	// Reads counts find, aggregate, getMore, count and distinct.
	Reads float64 `json:"reads"`
	// Failed counts the commands, of any kind, that ended in an error.
	Failed float64 `json:"failed"`
	// SlowShare is the number of the slow Locker's acquisitions, divided by the mean of all Lockers.
	SlowShare float64 `json:"slowShare,omitempty"`
}

// member is one of the Lockers of a case, with its client.
type member struct {
	client *mongo.Client
	locker *lockcore.Locker
}

// load is one measurement of one case.
type load struct {
	benchCase
	members []*member
	counts  *commandCounts
	// Acquisitions are counted if Acquire returns from begins to ends.
	begins, ends time.Time
	// holders is the number of goroutines that hold the resource. More than one is an error of the lock.
	holders atomic.Int32

	mu sync.Mutex
	// waits are the times in Acquire, per Locker.
	waits [][]time.Duration
}

// measure runs one case in a new database, and drops it afterwards.
func measure(ctx context.Context, cfg config, c benchCase) (result caseReport, err error) {
	name := fmt.Sprintf("lockstep_contended_%d", time.Now().UnixNano())
	l := &load{benchCase: c, counts: &commandCounts{}, waits: make([][]time.Duration, c.Lockers)}
	defer func() { err = errors.Join(err, l.close(ctx, name)) }()
	for i := range c.Lockers {
		d := delay.Delays{Writes: cfg.writeDelay, Reads: cfg.readDelay}
		if c.Slow && i == c.Lockers-1 {
			d.All = cfg.slow
		}
		m, err := connect(cfg.uri, name, d, l.counts)
		if err != nil {
			return result, err
		}
		l.members = append(l.members, m)
	}
	if err := l.members[0].locker.CreateIndexes(ctx); err != nil {
		return result, fmt.Errorf("create indexes: %w", err)
	}
	l.begins = time.Now().Add(warmUp)
	l.ends = l.begins.Add(cfg.each)
	counted, err := l.run(ctx)
	if err != nil {
		return result, err
	}
	return l.result(counted, cfg.each)
}

// connect returns a Locker on a client of its own.
func connect(uri, database string, d delay.Delays, counts *commandCounts) (*member, error) {
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetMonitor(counts.monitor(d)))
	if err != nil {
		return nil, fmt.Errorf("connect to LOCKSTEP_MONGODB_URI: %w", err)
	}
	locker, err := lockcore.New(client.Database(database).Collection("locks"), lockcore.Config{})
	if err != nil {
		return nil, errors.Join(err, client.Disconnect(context.Background()))
	}
	return &member{client, locker}, nil
}

// close closes the Lockers, drops the database and disconnects, even if ctx has ended.
func (l *load) close(ctx context.Context, database string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	errs := make([]error, len(l.members))
	var closing sync.WaitGroup
	for i, m := range l.members {
		closing.Go(func() { errs[i] = m.locker.Close(ctx) })
	}
	closing.Wait()
	for i, m := range l.members {
		if i == 0 {
			errs[i] = errors.Join(errs[i], m.client.Database(database).Drop(ctx))
		}
		errs[i] = errors.Join(errs[i], m.client.Disconnect(ctx))
	}
	return errors.Join(errs...)
}

// run runs the goroutines, and returns the commands that they sent while the case was measured.
func (l *load) run(ctx context.Context) (counted counts, err error) {
	ctx, cancel := context.WithDeadlineCause(ctx, l.ends.Add(drain), fmt.Errorf("the goroutines did not end within %s", drain))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var working sync.WaitGroup
	for i := range l.members {
		for n := range l.Goroutines {
			working.Go(func() {
				if err := l.contend(ctx, i, n); err != nil {
					fail(err)
				}
			})
		}
	}
	if pause(ctx, time.Until(l.begins)) == nil {
		before := l.counts.load()
		if pause(ctx, time.Until(l.ends)) == nil {
			counted = l.counts.load().minus(before)
		}
	}
	working.Wait()
	return counted, context.Cause(ctx)
}

// contend acquires and releases the resource until the measurement ends. It never cancels an Acquire, which would cost the
// other requests time.
func (l *load) contend(ctx context.Context, i, n int) error {
	var waits []time.Duration
	for round := 0; time.Now().Before(l.ends); round++ {
		asked := time.Now()
		session, err := l.members[i].locker.Acquire(ctx, lockcore.Request{
			LockID:    fmt.Sprintf("contended/%d/%d/%d", i, n, round),
			Resources: []lockcore.Resource{lockcore.Exclusive(resource)},
		})
		if err != nil {
			return fmt.Errorf("acquire: %w", err)
		}
		got := time.Now()
		if holders := l.holders.Add(1); holders != 1 {
			return fmt.Errorf("%d goroutines hold an exclusive lock", holders)
		}
		l.holders.Add(-1)
		if err := session.Release(ctx); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		if !got.Before(l.begins) && got.Before(l.ends) {
			waits = append(waits, got.Sub(asked))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waits[i] = append(l.waits[i], waits...)
	return nil
}

func (l *load) result(c counts, each time.Duration) (caseReport, error) {
	r := caseReport{benchCase: l.benchCase}
	all := slices.Concat(l.waits...)
	if len(all) == 0 {
		return r, fmt.Errorf("nothing was acquired in %s", each)
	}
	slices.Sort(all)
	acquired := float64(len(all))
	r.PerSecond = acquired / each.Seconds()
	r.WaitP50MS, r.WaitP99MS = millis(all[len(all)/2]), millis(all[len(all)*99/100])
	r.WritesSent, r.WritesDone = float64(c.sent)/acquired, float64(c.done)/acquired
	r.Reads, r.Failed = float64(c.reads)/acquired, float64(c.failed)/acquired
	if l.Slow {
		r.SlowShare = float64(len(l.waits[len(l.waits)-1])) / (acquired / float64(l.Lockers))
	}
	return r, nil
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// pause waits, and returns ctx's cause if ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
