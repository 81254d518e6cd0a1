package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

// site names the servers of a benchmark with workflows, a database and a task queue.
type site struct {
	Address, URI, Database, Queue string
	// WriteDelay is how long answers of the database to writes are held back.
	WriteDelay time.Duration
}

// newSite returns a site on the servers of the environment with a new database that has its indexes, and a function that drops that.
func newSite(ctx context.Context) (s site, drop func(), err error) {
	if s.URI, err = variable("LOCKSTEP_MONGODB_URI"); err != nil {
		return s, nil, err
	}
	if s.Address, err = variable("TEMPORAL_ADDRESS"); err != nil {
		return s, nil, err
	}
	db, drop, err := measure.Database(ctx, s.URI)
	if err != nil {
		return s, nil, err
	}
	locker, err := lockcore.New(db.Collection("locks"), lockcore.Config{})
	if err == nil {
		err = locker.CreateIndexes(ctx)
	}
	if err != nil {
		drop()
		return s, nil, err
	}
	s.Database, s.Queue = db.Name(), db.Name()
	return s, drop, nil
}

func (s site) dialTemporal() (client.Client, error) {
	c, err := client.Dial(client.Options{HostPort: s.Address, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		return nil, fmt.Errorf("connect to TEMPORAL_ADDRESS: %w", err)
	}
	return c, nil
}

// station is a worker with Lockstep at a site, and what it uses. It needs no end: its process ends with the benchmark.
type station struct {
	sdkworker.Worker
	client client.Client
	db     *mongo.Database
	locker *lockcore.Locker
}

// open returns a worker that has not started.
func (s site) open(o sdkworker.Options) (*station, error) {
	mc, err := mongo.Connect(options.Client().ApplyURI(s.URI).SetMonitor(measure.Delays{Writes: s.WriteDelay}.Monitor()))
	if err != nil {
		return nil, fmt.Errorf("connect to LOCKSTEP_MONGODB_URI: %w", err)
	}
	at := &station{db: mc.Database(s.Database)}
	if at.locker, err = lockcore.New(at.db.Collection("locks"), lockcore.Config{}); err != nil {
		return nil, err
	}
	if at.client, err = s.dialTemporal(); err != nil {
		return nil, err
	}
	plugin, err := worker.NewPlugin(worker.Options{Locker: at.locker})
	if err != nil {
		return nil, err
	}
	o.Plugins = []sdkworker.Plugin{plugin}
	at.Worker = sdkworker.New(at.client, s.Queue, o)
	return at, nil
}
