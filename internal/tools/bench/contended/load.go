package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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

const (
	// cleanup bounds the time that closing Lockers and dropping the database take.
	cleanup = 15 * time.Second
	// drain bounds the time after the measurement in which each goroutine gets and releases the lock that it waits for.
	drain    = time.Minute
	resource = "contended/resource"
)

// load is one measurement of one case.
type load struct {
	benchCase
	clients []*mongo.Client
	lockers []*lockcore.Locker
	// Commands, and acquisitions by the time at which Acquire returns, are counted until ends.
	ends time.Time
	// holders is the number of goroutines that hold the resource. More than one is an error of the lock.
	holders atomic.Int32

	mu sync.Mutex
	// waits are the times in Acquire, per Locker.
	waits [][]time.Duration
	// counted has the numbers of commands.
	counted figures
}

// measureCase measures one case in a new database, and drops it afterwards.
func measureCase(ctx context.Context, cfg config, c benchCase) (r result, err error) {
	l := &load{benchCase: c, waits: make([][]time.Duration, c.Lockers)}
	name := fmt.Sprintf("lockstep_contended_%d", time.Now().UnixNano())
	defer func() { err = errors.Join(err, l.close(ctx, name)) }()
	for i := range c.Lockers {
		delays := measure.Delays{Writes: cfg.writeDelay, Reads: cfg.readDelay}
		if c.Slow && i == c.Lockers-1 {
			delays.All = cfg.slow
		}
		client, err := mongo.Connect(options.Client().ApplyURI(cfg.uri).SetMonitor(l.monitor(delays)))
		if err != nil {
			return r, fmt.Errorf("connect to LOCKSTEP_MONGODB_URI: %w", err)
		}
		l.clients = append(l.clients, client)
		if err := client.Ping(ctx, nil); err != nil {
			return r, fmt.Errorf("connect to LOCKSTEP_MONGODB_URI: %w", err)
		}
		locker, err := lockcore.New(client.Database(name).Collection("locks"), lockcore.Config{})
		if err != nil {
			return r, err
		}
		l.lockers = append(l.lockers, locker)
	}
	if err := l.lockers[0].CreateIndexes(ctx); err != nil {
		return r, fmt.Errorf("create indexes: %w", err)
	}
	l.ends = time.Now().Add(cfg.each)
	limited, cancel := context.WithDeadlineCause(ctx, l.ends.Add(drain), fmt.Errorf("the goroutines did not end within %s", drain))
	defer cancel()
	g, groupCtx := errgroup.WithContext(limited)
	for i := range l.lockers {
		for n := range l.Goroutines {
			g.Go(func() error { return l.contend(groupCtx, i, n) })
		}
	}
	if err := g.Wait(); err != nil {
		return r, errors.Join(err, context.Cause(limited))
	}
	return l.result(cfg.each)
}

// close closes the Lockers, drops the database and disconnects, even if ctx has ended.
func (l *load) close(ctx context.Context, database string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	var errs []error
	for _, locker := range l.lockers {
		errs = append(errs, locker.Close(ctx))
	}
	for i, client := range l.clients {
		if i == 0 {
			errs = append(errs, client.Database(database).Drop(ctx))
		}
		errs = append(errs, client.Disconnect(ctx))
	}
	return errors.Join(errs...)
}

// contend acquires and releases the resource until the measurement ends. It never cancels an Acquire, which would cost the
// other requests time.
func (l *load) contend(ctx context.Context, i, n int) error {
	for round := 0; time.Now().Before(l.ends); round++ {
		asked := time.Now()
		session, err := l.lockers[i].Acquire(ctx, lockcore.Request{
			LockID:    fmt.Sprintf("contended/%d/%d/%d", i, n, round),
			Resources: []lockcore.Resource{lockcore.Exclusive(resource)},
		})
		if err != nil {
			return fmt.Errorf("acquire: %w", err)
		}
		wait := time.Since(asked)
		l.whileMeasured(func() { l.waits[i] = append(l.waits[i], wait) })
		if holders := l.holders.Add(1); holders != 1 {
			return fmt.Errorf("%d goroutines hold an exclusive lock", holders)
		}
		l.holders.Add(-1)
		if err := session.Release(ctx); err != nil {
			return fmt.Errorf("release: %w", err)
		}
	}
	return nil
}

// whileMeasured calls note if the measurement has begun and not ended.
func (l *load) whileMeasured(note func()) {
	if time.Now().Before(l.ends) {
		l.mu.Lock()
		defer l.mu.Unlock()
		note()
	}
}

// monitor returns a monitor that counts the commands of one client, and delays their answers.
func (l *load) monitor(d measure.Delays) *event.CommandMonitor {
	return &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			switch {
			case measure.IsWrite(e.CommandName):
				l.whileMeasured(func() { l.counted.WritesSent++ })
			case measure.IsRead(e.CommandName):
				l.whileMeasured(func() { l.counted.Reads++ })
			}
		},
		Succeeded: func(ctx context.Context, e *event.CommandSucceededEvent) {
			if measure.IsWrite(e.CommandName) && wrote(e.Reply) {
				l.whileMeasured(func() { l.counted.WritesDone++ })
			}
			d.Hold(ctx, e.CommandName)
		},
		Failed: func(ctx context.Context, e *event.CommandFailedEvent) {
			l.whileMeasured(func() { l.counted.Failed++ })
			d.Hold(ctx, e.CommandName)
		},
	}
}

// wrote reports whether the answer of a write command counts at least one document. An update that matches a document and
// leaves it unchanged counts, because a replica set acknowledges it like any other write.
func wrote(reply bson.Raw) bool {
	for _, key := range [][]string{
		{"n"}, {"nModified"}, // update, insert, delete
		{"lastErrorObject", "n"},                                 // findAndModify
		{"nInserted"}, {"nMatched"}, {"nUpserted"}, {"nDeleted"}, // bulkWrite
	} {
		if n, ok := reply.Lookup(key...).AsInt64OK(); ok && n > 0 {
			return true
		}
	}
	value, err := reply.LookupErr("value") // findAndModify
	return err == nil && value.Type != bson.TypeNull
}

func (l *load) result(each time.Duration) (result, error) {
	all := slices.Concat(l.waits...)
	if len(all) == 0 {
		return result{}, fmt.Errorf("nothing was acquired in %s", each)
	}
	acquired, of := float64(len(all)), l.counted
	f := figures{
		PerSecond: acquired / each.Seconds(), WaitP50MS: measure.Percentile(all, 50), WaitP99MS: measure.Percentile(all, 99),
		WritesSent: of.WritesSent / acquired, WritesDone: of.WritesDone / acquired, Reads: of.Reads / acquired, Failed: of.Failed / acquired,
	}
	if l.Slow {
		f.SlowShare = float64(len(l.waits[len(l.waits)-1])) / (acquired / float64(l.Lockers))
	}
	return result{l.benchCase, f}, nil
}
