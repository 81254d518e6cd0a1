// Command pool books test phones: 50 workflows share five phones, one of which is in repair for a while, and a worker is killed. It
// prints which workflow used which phone, under which fences, and checks that no phone was used by two workflows at once.
//
// It runs against a Temporal server and a MongoDB of yours:
//
//	TEMPORAL_ADDRESS=localhost:7233 LOCKSTEP_MONGODB_URI=mongodb://localhost:27017 go run ./examples/pool
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := program(ctx, os.Args[1:], os.Stdout); err != nil {
		stop()
		log.Fatal(err)
	}
}

// program runs the example, or a worker process for it: the program starts itself with the servers, the database and the task queue
// as arguments.
func program(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 4 {
		return workUntilKilled(ctx, site{args[0], args[1], args[2], args[3]}, out)
	}
	// A database and a task queue of its own: a run that was interrupted leaves nothing for the next one.
	name := "pool-" + rand.Text()[:8]
	return run(ctx, site{
		temporal: cmp.Or(os.Getenv("TEMPORAL_ADDRESS"), client.DefaultHostPort),
		mongo:    cmp.Or(os.Getenv("LOCKSTEP_MONGODB_URI"), "mongodb://localhost:27017"),
		database: name, queue: name,
	}, out)
}

// site names the servers of a run, its database and its task queue.
type site struct{ temporal, mongo, database, queue string }

// process has the connections and the names of a process of the example.
type process struct {
	db     *mongo.Database
	locker *lockcore.Locker
	client client.Client
	worker sdkworker.Worker
	lab    *Lab
}

// connect connects to the servers, and makes a worker, which the caller starts.
func (s site) connect(ctx context.Context) (_ *process, err error) {
	p := &process{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close(ctx))
		}
	}()
	m, err := mongo.Connect(options.Client().ApplyURI(s.mongo))
	if err != nil {
		return nil, err
	}
	p.db = m.Database(s.database)
	// After a worker was killed, its phone is free when the TTL has ended.
	if p.locker, err = lockcore.New(p.db.Collection("locks"), lockcore.Config{TTL: 10 * time.Second}); err != nil {
		return nil, err
	}
	lockstep, err := worker.NewPlugin(worker.Options{Locker: p.locker, Janitor: worker.JanitorOptions{Interval: 5 * time.Second}})
	if err != nil {
		return nil, err
	}
	logger := sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)) // it would report each crash, and the killed worker many times
	if p.client, err = client.DialContext(ctx, client.Options{HostPort: s.temporal, Plugins: []client.Plugin{lockstep}, Logger: logger}); err != nil {
		return nil, err
	}
	p.worker = sdkworker.New(p.client, s.queue, sdkworker.Options{})
	p.lab = &Lab{Phones: p.db.Collection("phones")}
	p.worker.RegisterWorkflow(TestApp)
	p.worker.RegisterActivity(p.lab)
	return p, nil
}

func (p *process) close(ctx context.Context) error {
	if p.client != nil {
		p.client.Close()
	}
	if p.db != nil {
		return p.db.Client().Disconnect(context.WithoutCancel(ctx))
	}
	return nil
}

// workUntilKilled runs the worker that hangs in its third test.
func workUntilKilled(ctx context.Context, at site, out io.Writer) (err error) {
	p, err := at.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close(ctx)) }()
	tests := make(chan struct{}, 2)
	p.lab.Testing = func(app App, phone string) {
		select {
		case tests <- struct{}{}:
		default:
			_, _ = fmt.Fprintln(out, hangsLine, app.Name, phone)
			select {}
		}
	}
	if err := p.worker.Start(); err != nil {
		return err
	}
	defer p.worker.Stop()
	if _, err := fmt.Fprintln(out, readyLine); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}
