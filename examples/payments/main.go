// Command payments is the program of the README: a worker with Lockstep, and one workflow for each way to lock.
//
// It runs against a Temporal server and a MongoDB of yours:
//
//	TEMPORAL_ADDRESS=localhost:7233 LOCKSTEP_MONGODB_URI=mongodb://localhost:27017 go run ./examples/payments
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := program(ctx); err != nil {
		stop()
		log.Fatal(err)
	}
}

func program(ctx context.Context) (err error) {
	m, err := mongo.Connect(options.Client().ApplyURI(cmp.Or(os.Getenv("LOCKSTEP_MONGODB_URI"), "mongodb://localhost:27017")))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Disconnect(context.WithoutCancel(ctx))) }()
	return run(ctx, cmp.Or(os.Getenv("TEMPORAL_ADDRESS"), client.DefaultHostPort), m.Database("payments"), "payments", os.Stdout)
}

// run starts a worker on a task queue, runs workflows on it, and prints the result.
func run(ctx context.Context, address string, db *mongo.Database, queue string, out io.Writer) error {
	locker, err := lockcore.New(db.Collection("locks"), lockcore.Config{})
	if err != nil {
		return err
	}
	lockstep, err := worker.NewPlugin(worker.Options{
		Locker: locker,
		Rules:  []worker.Rule{worker.RuleFor("Statement", statementLocks)},
	})
	if err != nil {
		return err
	}
	c, err := client.DialContext(ctx, client.Options{HostPort: address, Plugins: []client.Plugin{lockstep}})
	if err != nil {
		return err
	}
	defer c.Close()
	w := sdkworker.New(c, queue, sdkworker.Options{})
	bank := &Bank{Accounts: db.Collection("accounts")}
	w.RegisterWorkflow(Transfer)
	w.RegisterWorkflow(Notify)
	w.RegisterWorkflow(Freeze)
	w.RegisterActivity(bank)
	if err := bank.Open(ctx, "ada", "ben"); err != nil {
		return err
	}
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()
	ended, err := work(ctx, c, queue)
	if err != nil {
		return err
	}
	return nightly(ctx, locker, func(ctx context.Context, _ int64) error {
		balances, err := bank.Balances(ctx)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%d workflows ended well; ada has %d, ben has %d\n", ended, balances["ada"], balances["ben"])
		return err
	})
}

// work runs workflows on the same accounts, all at once, and counts them.
func work(ctx context.Context, c client.Client, queue string) (ended int, err error) {
	var started []client.WorkflowRun
	start := func(workflow, in any) error {
		run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: queue}, workflow, in)
		started = append(started, run)
		return err
	}
	for range 5 {
		err = errors.Join(err,
			start(Transfer, Payment{From: "ada", To: "ben", Cents: 300}),
			start(Transfer, Payment{From: "ben", To: "ada", Cents: 100}),
			start(Notify, "ada"),
			start(Freeze, "ben"))
	}
	if err != nil {
		return 0, err
	}
	for _, run := range started {
		if err := run.Get(ctx, nil); err != nil {
			return ended, err
		}
		ended++
	}
	return ended, nil
}
